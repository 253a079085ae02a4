//! What a watch of the Node tells, and what goes on without it (D4).

use super::status::is_assertion;
use super::*;
use crate::api::{EVENT_TOO_LARGE, Seen};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

impl Script {
    pub(super) fn watch_begins(&mut self, ticket: Ticket) {
        assert!(self.watch.is_none(), "a second one");
        self.watches.push(self.up);
        self.watch = Some(ticket);
    }

    pub(super) fn watch_ends(&mut self, result: Result<Document, Refusal>) {
        let ticket = self.watch.take().expect("no watch");
        self.answer(ticket, result);
    }

    pub(super) fn see(&mut self, seen: Seen) {
        let now = self.now();
        self.agent.handle(Input::Seen(seen), now);
    }

    pub(super) fn see_version(&mut self, version: u64) {
        self.see(Seen::Version { resource_version: version.to_string(), is_next: true });
    }

    /// From now on the server has this version of the Node, as our own writes left it.
    pub(super) fn store(&mut self, version: u64) -> Node {
        let mut node = self.stored.take().unwrap_or_else(registered_node);
        node.metadata.resource_version = version.to_string();
        self.stored = Some(node.clone());
        node
    }

    /// What the status lane asks in this moment, if anything.
    pub(super) fn asks_now(&mut self) -> Option<(Ticket, Operation)> {
        let (sent, _) = self.drain();
        sent.into_iter().find(|(ticket, _)| ticket.lane() == Lane::Status)
    }
}

/// A Node whose version 100 is reported and watched, and of which nothing has been seen yet.
fn begun() -> Script {
    let mut script = Script::with(watching());
    script.store(100);
    script.register();
    script.play_healthy(Lane::Lease);
    script.pass(15 * SECOND);
    assert_eq!(script.watches.len(), 1);
    script
}

pub(super) fn watching() -> Settings {
    Settings { node_watch: true, ..Settings::default() }
}

/// The same, and the first event has come.
pub(super) fn watched() -> Script {
    let mut script = begun();
    script.see_version(100);
    assert!(script.asks_now().is_none(), "that is what there was");
    script
}

pub(super) fn is_read(operation: &Operation) -> bool {
    *operation == Operation::ReadNode { heartbeat: true }
}

pub(super) fn count(operations: &[Operation], is_counted: fn(&Operation) -> bool) -> usize {
    operations.iter().filter(|operation| is_counted(operation)).count()
}

#[test]
fn what_is_watched_is_not_asserted_and_what_has_not_been_seen_is() {
    let mut script = begun();
    assert!(count(&script.pass(HOUR), is_assertion) >= 44, "the server has not said that there is a Node");
    let mut script = watched();
    let operations = script.pass(HOUR);
    assert_eq!(count(&operations, is_assertion), 0);
    assert!(count(&operations, |operation| matches!(operation, Operation::PatchStatus { .. })) >= 11, "reports go on");
    assert_eq!(script.watches.len(), 1);
    script.watch_ends(unreachable());
    assert_eq!(count(&script.pass(11 * SECOND), is_assertion), 1, "for the time without");
    let without = Script::new().pass(HOUR);
    assert!(without.iter().all(|operation| *operation != Operation::WatchNode));
}

#[test]
fn a_watch_begins_once_lease_and_status_stand_and_wakes_nobody() {
    let mut script = Script::with(watching());
    script.register();
    assert!(script.watches.is_empty());
    let mut plain = Script::new();
    plain.register();
    for _ in 0..100 {
        let (mut ours, mut theirs) = (script.drain(), plain.drain());
        assert_eq!(ours.1, theirs.1, "the next wake-up");
        assert_eq!(ours.0.len(), theirs.0.len());
        for ((ticket, operation), (other, _)) in ours.0.drain(..).zip(theirs.0.drain(..)) {
            let (reply, other_reply) = (script.reply(&operation), plain.reply(&operation));
            script.answer(ticket, reply);
            plain.answer(other, other_reply);
        }
        if ours.1.as_duration() > script.up {
            (script.up, plain.up) = (ours.1.as_duration(), ours.1.as_duration());
        }
    }
    assert_eq!(script.watches.len(), 1);
}

#[test]
fn what_another_wrote_is_read_in_that_moment_and_put_right() {
    let mut script = watched();
    script.pass(100 * SECOND);
    script.see_version(101);
    let (ticket, operation) = script.asks_now().unwrap();
    assert!(is_read(&operation), "{operation:?}");
    let mut node = script.store(101);
    node.metadata.labels.remove("kubernetes.io/arch");
    script.answer(ticket, Ok(Document::Node(Box::new(node))));
    let (_, repair) = script.asks_now().unwrap();
    assert!(body_of(&repair)["metadata"]["labels"]["kubernetes.io/arch"].is_string());
}

/// What may have changed of ours is what the controllers change; the rest is looked at after that.
#[test]
fn what_another_wrote_before_the_link_went_is_read_after_the_report_that_makes_the_node_ready() {
    let mut script = watched();
    script.pass(100 * SECOND);
    script.see_version(101);
    let (ticket, operation) = script.asks_now().unwrap();
    assert!(is_read(&operation), "{operation:?}");
    script.answer(ticket, unreachable());
    script.watch_ends(unreachable());
    let no_route = Failure::new("connect-failed", "no route to host");
    script.failing(50 * SECOND, &Err(Refusal::Failed(no_route)));
    script.store(102);
    let sent = script.pass(30 * SECOND);
    let mut sent = sent.iter().filter(|sent| matches!(sent, Operation::PatchStatus { .. }) || is_read(sent));
    let report = body_of(sent.next().unwrap());
    assert_eq!(report["status"]["conditions"][0]["status"], "False", "{report}");
    assert_eq!(report["status"].get("nodeInfo"), None, "{report}");
    assert!(is_read(sent.next().unwrap()));
}

/// The next renewals, which are answered without content where that suffices: whether each tests who holds the Lease.
fn renewals<const COUNT: usize>(script: &mut Script) -> [bool; COUNT] {
    std::array::from_fn(|_| {
        let (ticket, renewal) = script.next(Lane::Lease);
        let Operation::RenewLease { answer, .. } = &renewal else { panic!("{renewal:?}") };
        let reply = script.reply(&renewal);
        let reply = if *answer == PatchAnswer::Nothing { reply.map(|_| Document::Nothing) } else { reply };
        script.answer(ticket, reply);
        body_of(&renewal).is_array()
    })
}

#[test]
fn of_a_watched_node_the_renewal_after_each_write_tests_who_holds_the_lease_and_no_other() {
    let mut script = watched();
    assert_eq!(
        renewals(&mut script),
        [true, false, false, false, false, false],
        "another came before the watch, or none"
    );
    script.see_version(101);
    assert_eq!(renewals(&mut script), [true, false, false]);
    script.see_version(102);
    script.play(Lane::Lease, unreachable());
    assert_eq!(renewals(&mut script), [true, false], "after a failure, once");
    script.see_version(103);
    script.transitions += 1;
    assert_eq!(renewals(&mut script), [true]);
    assert_eq!(script.play_healthy(Lane::Lease).1, Operation::ReadLease);
    script.drain();
    assert!(script.words().contains(&"lease-taken"), "{:?}", script.words());
    let mut script = watched();
    renewals::<2>(&mut script);
    script.watch_ends(unreachable());
    let without: [bool; 4] = renewals(&mut script);
    assert!(without == [true, false, true, false] || without == [false, true, false, true], "each second one");
}

#[test]
fn our_own_writes_are_told_apart_whenever_their_event_comes() {
    for (before, after) in [(true, true), (true, false), (false, true)] {
        let mut script = watched();
        script.press_memory(true);
        let (ticket, operation) = script.next(Lane::Status);
        if before {
            script.see_version(101);
            assert!(script.asks_now().is_none());
        }
        script.store(101);
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
        if after {
            script.see_version(101);
            script.see_version(99);
        }
        assert!(!script.pass(100 * SECOND).iter().any(is_read), "{before} {after}");
    }
}

#[test]
fn what_another_wrote_while_a_request_was_under_way_is_read_after_it() {
    let mut script = watched();
    script.press_memory(true);
    let (ticket, operation) = script.next(Lane::Status);
    script.see_version(101);
    script.see_version(102);
    script.store(101);
    let reply = script.reply(&operation);
    script.answer(ticket, reply);
    assert!(is_read(&script.asks_now().unwrap().1));
}

#[test]
fn after_an_outage_that_began_before_it_was_read_two_requests_make_the_node_ready_all_the_same() {
    let mut script = watched();
    script.play(Lane::Lease, unreachable());
    script.see_version(101);
    for _ in 0..20 {
        script.play(Lane::Lease, unreachable());
    }
    script.watch_ends(unreachable());
    let (back_at, _) = script.play_healthy(Lane::Lease);
    // What it would tell is what the controllers made of the outage.
    let (reported_at, report) = script.play_healthy(Lane::Status);
    assert!(matches!(report, Operation::PatchStatus { .. }), "{report:?}");
    assert_eq!((back_at, script.watches.len()), (reported_at, 1));
    script.pass(60 * SECOND);
    assert_eq!(script.watches.len(), 2);
}

#[test]
fn what_controllers_wrote_while_the_board_slept_is_reported_over_and_read_after_that() {
    for comes_first in [true, false] {
        let mut script = watched();
        script.pass(95 * SECOND);
        script.up += 16 * SECOND;
        if comes_first {
            script.see_version(101);
        }
        let (sent, _) = script.drain();
        if !comes_first {
            script.see_version(101);
            assert!(script.asks_now().is_none(), "a report is under way");
        }
        let is_expected = |(ticket, operation): &(Ticket, Operation)| match ticket.lane() {
            Lane::Lease => matches!(operation, Operation::RenewLease { .. }),
            _ => body_of(operation)["status"]["conditions"].as_array().is_some_and(|all| all.len() >= 4),
        };
        assert!(sent.len() == 2 && sent.iter().all(is_expected), "{comes_first}: {sent:?}");
        script.store(102);
        for (ticket, operation) in sent {
            let reply = script.reply(&operation);
            script.answer(ticket, reply);
        }
        assert_eq!(script.pass(100 * SECOND).iter().filter(|operation| is_read(operation)).count(), 1);
    }
}

#[test]
fn a_node_that_was_made_anew_while_the_board_slept_is_read_and_not_reported_over_again() {
    let mut script = watched();
    script.pass(95 * SECOND);
    script.up += 16 * SECOND;
    let (sent, _) = script.drain();
    let anew = || Seen::Version { resource_version: "700".to_owned(), is_next: false };
    for (ticket, operation) in sent {
        let is_report = ticket.lane() == Lane::Status;
        let reply = if is_report {
            let (uid, resource_version) = ("uid2".to_owned(), "700".to_owned());
            Ok(Document::Metadata { uid, resource_version, lease_duration_seconds: None, transitions: 0 })
        } else {
            script.reply(&operation)
        };
        script.answer(ticket, reply);
        if is_report {
            script.see(anew());
        }
    }
    let (_, operation) = script.next(Lane::Status);
    assert!(is_read(&operation), "{operation:?}");
}

#[test]
fn a_deleted_node_is_made_again_in_that_moment_and_the_end_of_an_earlier_one_is_no_news() {
    let mut script = watched();
    script.see(Seen::Deleted { resource_version: "99".to_owned() });
    assert!(script.asks_now().is_none());
    script.see(Seen::Deleted { resource_version: "101".to_owned() });
    let start = script.up;
    let is_look = |operation: &Operation| matches!(operation, Operation::ReadNode { .. });
    let expected: [fn(&Operation) -> bool; 2] = [is_assertion, is_look];
    for is_expected in expected {
        let (ticket, operation) = script.asks_now().unwrap();
        assert!(is_expected(&operation), "{operation:?}");
        script.answer(ticket, refused(404, "NotFound"));
    }
    let (_, operation) = script.asks_now().unwrap();
    assert!(matches!(operation, Operation::CreateNode { .. }), "{operation:?}");
    assert_eq!(script.up, start);
}

#[test]
fn another_node_of_that_name_that_is_gone_again_before_anybody_looked_is_asked_about() {
    let mut script = watched();
    let (ticket, report) = loop {
        let (ticket, operation) = script.next(Lane::Status);
        if matches!(operation, Operation::PatchStatus { .. }) {
            break (ticket, operation);
        }
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
    };
    script.see(Seen::Version { resource_version: "701".to_owned(), is_next: false });
    script.see(Seen::Deleted { resource_version: "702".to_owned() });
    let reply = script.reply(&report);
    script.answer(ticket, reply);
    assert!(is_read(&script.asks_now().unwrap().1));
}

#[test]
fn what_became_urgent_while_patience_was_asked_for_happens_when_that_is_over() {
    let mut script = watched();
    script.facts.network.interfaces[0].addresses[0].ip = [10, 0, 0, 2].into();
    let (lost_ms, _) = script.play(Lane::Status, unconfirmed(400, Some(5)));
    script.up += SECOND;
    script.see(Seen::Deleted { resource_version: "101".to_owned() });
    assert!(script.asks_now().is_none());
    assert_eq!(script.play_healthy(Lane::Status).0, lost_ms + 5_000, "and not with the next look");
}

#[test]
fn another_node_of_that_name_is_read() {
    let mut script = watched();
    script.see(Seen::Version { resource_version: "701".to_owned(), is_next: false });
    assert!(is_read(&script.asks_now().unwrap().1));
}

#[test]
fn who_cannot_watch_asserts_as_ever_says_so_once_and_asks_again_the_next_day_or_when_told_to() {
    let too_large = || Err(Refusal::Failed(Failure::new(EVENT_TOO_LARGE, "an event is longer than 16384 bytes")));
    for refused in [|| refused(403, "Forbidden"), too_large] {
        let mut script = begun();
        script.watch_ends(refused());
        assert!(count(&script.pass(HOUR / 2), is_assertion) >= 22);
        script.pass(HOUR * 20);
        assert_eq!(script.watches.len(), 1);
        let settings = script.agent.shared.settings.clone();
        script.agent.handle(Input::Reloaded(Box::new(settings)), script.now());
        script.pass(SECOND);
        assert_eq!(script.watches.len(), 2);
        script.watch_ends(refused());
        script.pass(HOUR * 27);
        assert_eq!(script.watches.len(), 3);
        let said = |word: &str| script.words().iter().filter(|said| **said == word).count();
        assert_eq!((said("node-unwatched"), said("failing")), (1, 0));
        script.see_version(100);
        script.drain();
        assert!(script.words().contains(&"node-watched"));
    }
}

#[test]
fn another_certificate_may_be_one_that_may_watch() {
    let mut script = begun();
    script.watch_ends(refused(403, "Forbidden"));
    script.pass(HOUR);
    assert_eq!(script.watches.len(), 1);
    let dates = CredentialDates { not_after: Some(Wall::LAST), ..CredentialDates::default() };
    script.agent.handle(Input::Credentials(dates), script.now());
    script.pass(11 * SECOND);
    assert_eq!(script.watches.len(), 2);
}

#[test]
fn a_watch_that_ends_again_and_again_is_begun_ever_more_rarely_and_one_that_lived_at_once() {
    let mut script = begun();
    let start = script.up;
    while script.up < start + 4 * HOUR {
        if script.watch.is_some() {
            script.see_version(100);
            script.watch_ends(Ok(Document::Nothing));
        }
        script.pass(SECOND);
    }
    let began = script.watches.len();
    assert!((9..=14).contains(&began), "{began}");
    while script.watch.is_none() {
        script.pass(SECOND);
    }
    script.see_version(100);
    script.pass(HOUR);
    script.watch_ends(Ok(Document::Nothing));
    script.pass(SECOND);
    assert!(script.watch.is_some());
}

#[test]
fn a_connection_over_which_nothing_can_be_watched_is_mentioned_once() {
    let mut script = begun();
    for _ in 0..5 {
        script.watch_ends(Err(Refusal::Failed(Failure::not_sent("over this one requests wait for each other"))));
        while script.watch.is_none() {
            script.pass(SECOND);
        }
    }
    let said = |word: &str| script.words().iter().filter(|said| **said == word).count();
    assert_eq!((said("node-unwatched"), said("failing")), (1, 0));
}

#[test]
fn without_the_setting_it_ends() {
    let mut script = watched();
    let settings = Settings { node_watch: false, ..Settings::default() };
    script.agent.handle(Input::Reloaded(Box::new(settings)), script.now());
    script.pass(SECOND);
    assert!(script.watch.is_none());
    assert!(count(&script.pass(HOUR), is_assertion) >= 44);
}
