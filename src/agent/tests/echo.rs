//! A report without a change to a Node that is watched: its own event, and nothing else, says which version it made (D4).

use super::status::is_assertion;
use super::watch::{count, is_read, watched};
use super::*;
use crate::api::Seen;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn is_unread(operation: &Operation) -> bool {
    matches!(operation, Operation::PatchStatus { answer: PatchAnswer::OnWatch, .. })
}

fn version_of(operation: &Operation) -> String {
    body_of(operation)["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

impl Script {
    /// Up to the next request of the status lane that is such a report.
    fn next_unread(&mut self) -> (Ticket, Operation) {
        loop {
            let (ticket, operation) = self.next(Lane::Status);
            if is_unread(&operation) {
                return (ticket, operation);
            }
            let reply = self.reply(&operation);
            self.answer(ticket, reply);
        }
    }

    /// The server has taken such a report over this version, and the watch has told of nothing yet.
    fn reported(&mut self) {
        let (ticket, operation) = self.next_unread();
        assert_eq!(version_of(&operation), "100");
        self.store(101);
        self.answer(ticket, Ok(Document::Nothing));
    }

    fn see_of_several(&mut self, version: u64) {
        self.see(Seen::Version { resource_version: version.to_string(), is_next: false });
    }
}

#[test]
fn its_event_says_which_version_it_made_before_or_after_its_answer() {
    for comes_first in [true, false] {
        let mut script = watched();
        let mut version = 100;
        for _ in 0..5 {
            let (ticket, operation) = script.next_unread();
            assert_eq!(version_of(&operation), version.to_string(), "{comes_first}");
            version += 1;
            script.store(version);
            if comes_first {
                script.see_version(version);
            }
            script.answer(ticket, Ok(Document::Nothing));
            if !comes_first {
                assert!(script.asks_now().is_none());
                script.up += 9 * SECOND;
                script.see_version(version);
            }
            assert!(script.asks_now().is_none());
        }
        assert_eq!(count(&script.pass(HOUR), is_read), 0);
    }
}

#[test]
fn an_event_of_before_is_not_its_own() {
    let mut script = watched();
    script.reported();
    script.see_version(100);
    assert!(script.asks_now().is_none());
    script.see_version(101);
    assert_eq!(version_of(&script.next_unread().1), "101");
}

#[test]
fn what_another_wrote_after_it_is_read() {
    let all: [fn(&mut Script); 3] = [
        |script| {
            script.see_version(101);
            assert!(script.asks_now().is_none());
            script.see_version(102);
        },
        |script| {
            script.see_version(101);
            script.see_version(102);
        },
        |script| script.see_of_several(102),
    ];
    for tells in all {
        let mut script = watched();
        script.reported();
        tells(&mut script);
        assert!(is_read(&script.asks_now().unwrap().1));
        let mut early = watched();
        let (ticket, _) = early.next_unread();
        early.store(101);
        tells(&mut early);
        early.answer(ticket, Ok(Document::Nothing));
        assert!(is_read(&early.asks_now().unwrap().1));
    }
}

#[test]
fn without_its_event_the_node_is_read_with_the_next_run_and_the_watch_is_ended_if_it_goes_on_so() {
    let mut script = watched();
    script.is_watch_silent = true;
    let (ticket, operation) = script.next_unread();
    let reply = script.reply(&operation);
    script.answer(ticket, reply);
    let told = script.up;
    let (ticket, operation) = script.next(Lane::Status);
    assert!(is_read(&operation) && script.up - told < 15 * SECOND, "{operation:?}");
    let reply = script.reply(&operation);
    script.answer(ticket, reply);
    assert!(is_unread(&script.next_unread().1), "it may have been lost once");
    let mut script = watched();
    script.is_watch_silent = true;
    script.pass(HOUR / 4);
    assert!(script.words().contains(&"watch-silent"));
    assert_eq!(count(&script.pass(HOUR), is_assertion) / 10, 4, "the second says nothing of the Node at all");
}

#[test]
fn a_watch_that_ended_before_its_event_leads_to_one_look_and_no_other_is_begun_before() {
    let mut script = watched();
    script.reported();
    script.watch_ends(unreachable());
    let (_, operation) = script.next(Lane::Status);
    assert!(is_read(&operation), "{operation:?}");
    assert_eq!(script.watches.len(), 1);
}

#[test]
fn after_an_outage_or_a_suspend_it_is_reported_over_and_read_after_that() {
    for is_asleep in [false, true] {
        let mut script = watched();
        script.reported();
        let lost = script.up;
        if is_asleep {
            script.up += 200 * SECOND;
        } else {
            script.watch_ends(unreachable());
        }
        while script.up < lost + 200 * SECOND {
            let (sent, until) = script.drain();
            sent.into_iter().for_each(|(ticket, _)| script.answer_unreachable(ticket));
            script.up = until.as_duration().max(script.up);
        }
        let operations = script.pass(60 * SECOND);
        let of_node = |operation: &&Operation| matches!(operation, Operation::PatchStatus { .. }) || is_read(operation);
        let first: Vec<&Operation> = operations.iter().filter(of_node).take(2).collect();
        assert!(
            matches!(first[..], [Operation::PatchStatus { .. }, Operation::ReadNode { .. }]),
            "{is_asleep}: {first:?}"
        );
    }
}
