//! What is recorded, and when it is on disk: before anybody hears of it.

use super::disk::on_disk;
pub(super) use super::disk::{kinds, waiting};
use super::*;
use crate::journal::{Happened, Record, Status};
use crate::probe::Why;
use crate::probe::facts::Absent;

impl Script {
    /// Lets time pass without a server: whatever is asked fails at once. Answers what was asked.
    pub(super) fn offline(&mut self, span: Duration) -> Vec<Operation> {
        self.failing(span, &unreachable())
    }

    /// The same, where each request fails so.
    pub(super) fn failing(&mut self, span: Duration, result: &Result<Document, Refusal>) -> Vec<Operation> {
        let end = self.up + span;
        let mut operations = Vec::new();
        while self.up < end {
            let (sent, until) = self.drain();
            if sent.is_empty() {
                self.up = self.up.max(until.as_duration()).min(end);
            }
            for (ticket, operation) in sent {
                self.answer_undated(ticket, result.clone());
                operations.push(operation);
            }
        }
        operations
    }
}

/// An agent that is registered and has told all it had to tell.
pub(super) fn settled() -> Script {
    let mut script = Script::new();
    script.register();
    script.pass(Duration::from_secs(30));
    assert!(waiting(&script).is_empty(), "{:?}", waiting(&script));
    script
}

#[test]
fn nothing_that_tells_of_a_change_is_sent_before_the_change_is_on_disk() {
    let mut script = settled();
    script.disk.hangs = true;
    script.press_memory(true);
    while waiting(&script).is_empty() {
        script.pass(Duration::from_secs(1));
    }
    let early = script.pass(Duration::from_secs(8));
    assert!(!early.iter().any(tells_of_pressure), "{early:?}");
    assert_eq!(kinds(&waiting(&script)), ["changed"]);
    script.disk.hangs = false;
    script.agent.handle(Input::Written { done: true }, script.now());
    let told = script.pass(Duration::from_secs(5));
    assert!(
        told.iter().any(|operation| matches!(operation, Operation::PatchStatus { .. }) && tells_of_pressure(operation)),
        "{told:?}"
    );
    assert!(
        told.iter().any(|operation| matches!(operation, Operation::CreateEvent { .. }) && tells_of_pressure(operation)),
        "{told:?}"
    );
    assert!(waiting(&script).is_empty());
}

fn tells_of_pressure(operation: &Operation) -> bool {
    match operation {
        Operation::PatchStatus { body, .. } | Operation::CreateEvent { body } => body.contains("InsufficientMemory"),
        _ => false,
    }
}

#[test]
fn a_disk_that_never_answers_holds_nothing_back_for_longer_than_ten_seconds() {
    let mut script = settled();
    script.disk.hangs = true;
    script.press_memory(true);
    let told = script.pass(Duration::from_secs(25));
    let renewals = told.iter().filter(|operation| matches!(operation, Operation::RenewLease { .. })).count();
    assert!((2..=3).contains(&renewals), "renewals wait for no disk");
    assert!(
        told.iter().any(|operation| matches!(operation, Operation::PatchStatus { .. }) && tells_of_pressure(operation)),
        "{told:?}"
    );
}

#[test]
fn a_disk_that_fails_is_told_once_with_what_it_means_and_once_when_it_works_again() {
    let mut script = Script::new();
    script.disk.fails = true;
    script.register();
    script.press_memory(true);
    let told = script.pass(Duration::from_secs(300));
    assert!(told.iter().any(tells_of_pressure), "the agent goes on from memory");
    let count = |script: &Script, word| script.words().iter().filter(|said| **said == word).count();
    assert_eq!(count(&script, "journal-unwritable"), 1);
    script.disk.fails = false;
    script.press_memory(false);
    script.pass(Duration::from_secs(3600));
    assert_eq!([count(&script, "journal-unwritable"), count(&script, "journal-writable")], [1, 1]);
}

#[test]
fn a_failure_shorter_than_twenty_seconds_leaves_no_trace() {
    let mut script = settled();
    let writes = script.disk.writes;
    script.offline(Duration::from_secs(19));
    script.pass(Duration::from_secs(60));
    assert!(waiting(&script).is_empty());
    assert_eq!(script.disk.writes, writes);
}

#[test]
fn an_outage_is_recorded_with_its_first_failure_and_the_moment_the_server_was_last_reached() {
    let mut script = settled();
    let (reached_ms, _) = script.play_healthy(Lane::Lease);
    script.offline(Duration::from_secs(40));
    let records = waiting(&script);
    assert_eq!(kinds(&records), ["began"]);
    assert_eq!(records[0].what, Happened::OutageBegan { cause: crate::journal::record::cut("timed-out") });
    assert_eq!(records[0].at.up.as_duration().as_millis(), reached_ms);
    assert_eq!(records[0].at.wall.map(|wall| wall.since(START).as_millis()), Some(reached_ms));
    assert_eq!(on_disk(&script), records);
    script.pass(Duration::from_secs(5));
    assert_eq!(kinds(&waiting(&script)), ["began", "ended"]);
}

#[test]
fn a_report_that_was_accepted_between_two_renewals_says_that_the_outage_began_later() {
    let settings = Settings { node_lease_duration_seconds: 400, ..Settings::default() };
    let mut script = Script::with(settings);
    script.register();
    script.pass(Duration::from_secs(30));
    script.play_healthy(Lane::Lease);
    let (asserted_ms, _) = script.play_healthy(Lane::Status);
    script.offline(Duration::from_secs(130));
    let records = waiting(&script);
    assert_eq!(kinds(&records), ["began"]);
    assert_eq!(records[0].at.up.as_duration().as_millis(), asserted_ms);
}

#[test]
fn a_change_that_comes_while_no_server_is_found_begins_the_outage_at_once() {
    let mut script = settled();
    script.play(Lane::Lease, unreachable());
    script.press_memory(true);
    script.offline(Duration::from_secs(12));
    let records = waiting(&script);
    assert_eq!(kinds(&records), ["began", "changed"]);
    let (from, to) = (Status::False, Status::True);
    let (condition, reason) =
        ("MemoryPressure".try_into().unwrap(), "KubeletHasInsufficientMemory".try_into().unwrap());
    assert_eq!(records[1].what, Happened::ConditionChanged { condition, from, to, reason });
}

#[test]
fn changes_are_seen_and_kept_every_ten_seconds_while_nothing_can_be_reported() {
    let mut script = settled();
    script.offline(Duration::from_secs(60));
    for pressed in [true, false, true, false] {
        script.press_memory(pressed);
        script.offline(Duration::from_secs(330));
    }
    assert_eq!(kinds(&waiting(&script)), ["began", "changed", "changed", "changed", "changed"]);
    let gaps: Vec<_> = script.probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap < Duration::from_secs(25)), "{gaps:?}");
}

#[test]
fn a_board_that_never_reached_its_server_is_looked_at_all_the_same() {
    let mut script = Script::new();
    script.offline(Duration::from_secs(30));
    script.press_memory(true);
    script.offline(Duration::from_secs(30));
    let records = waiting(&script);
    assert_eq!(kinds(&records), ["started", "began", "changed"]);
    assert_eq!(records[1].at.up, Up::BOOT, "the process started then, and nobody was reached before");
    assert!(script.probes.windows(2).all(|pair| pair[1] - pair[0] <= Duration::from_secs(18)), "{:?}", script.probes);
}

#[test]
fn without_register_node_a_node_that_was_never_found_is_an_outage_as_well() {
    let mut script = Script::with(Settings { register_node: false, ..Settings::default() });
    script.offline(Duration::from_secs(60));
    assert_eq!(kinds(&waiting(&script)), ["started", "began"]);
    script.register();
    script.pass(Duration::from_secs(1));
    assert_eq!(kinds(&waiting(&script)), ["started", "began", "ended"]);
}

#[test]
fn a_boot_whose_clock_was_ahead_and_never_put_right_changed_nothing_in_the_future() {
    let mut script = Script::new();
    script.clock_error_seconds = 7 * 3600;
    script.offline(Duration::from_secs(30));
    script.press_memory(true);
    script.offline(Duration::from_secs(30));
    let died_at = START.plus(script.up);
    let mut script = script.restart(BootId(2), Duration::from_secs(90));
    script.press_memory(true);
    let created = loop {
        let (_, operation) = script.play_healthy(Lane::Status);
        if matches!(operation, Operation::CreateNode { .. }) {
            break body_of(&operation);
        }
    };
    let conditions = created["status"]["conditions"].as_array().unwrap();
    let pressure = conditions.iter().find(|condition| condition["type"] == "MemoryPressure").unwrap();
    assert_eq!(pressure["status"], "True");
    assert_eq!(pressure["lastTransitionTime"], died_at.to_seconds_stamp(), "the present boot began then");
}

#[test]
fn an_outage_goes_on_over_a_killed_process_and_a_reboot() {
    let mut script = settled();
    script.offline(Duration::from_secs(30));
    script.press_memory(true);
    script.offline(Duration::from_secs(30));
    let killed_at = script.up;
    let mut script = script.restart(BOOT, killed_at + Duration::from_secs(5));
    script.press_memory(true);
    script.offline(Duration::from_secs(60));
    assert_eq!(kinds(&waiting(&script)), ["began", "changed", "started"], "still under pressure: no change");
    let mut script = script.restart(BootId(2), Duration::from_secs(5));
    script.offline(Duration::from_secs(60));
    let expected = ["began", "changed", "started", "started", "rebooted", "changed", "changed"];
    let records = waiting(&script);
    assert_eq!(kinds(&records), expected, "it went down under the process, and the pressure is gone since");
    assert_eq!(
        records[4].what,
        Happened::BoardRebooted { old: BOOT, reason: crate::journal::record::cut("WatchdogReset") }
    );
    script.register();
    script.pass(Duration::from_secs(1));
    assert_eq!(kinds(&waiting(&script)).iter().filter(|kind| **kind == "ended").count(), 1);
}

#[test]
fn what_was_believed_before_the_start_is_what_the_servers_node_says() {
    let mut script = Script::new();
    script.press_memory(true);
    script.play_healthy(Lane::Status);
    script.play(Lane::Status, refused(409, "AlreadyExists"));
    let first_look = script.probes[0];
    let recorded = || kinds(&waiting(&script)).contains(&"changed");
    assert!(!recorded(), "a first look is no change");
    script.play(Lane::Status, Ok(Document::Node(Box::new(registered_node()))));
    script.drain();
    let changed = waiting(&script).into_iter().find(|record| matches!(record.what, Happened::ConditionChanged { .. }));
    assert_eq!(changed.unwrap().at.up.as_duration(), first_look);
}

#[test]
fn a_size_that_nobody_can_say_yet_is_no_change_of_ready() {
    let mut script = Script::new();
    script.facts.readings.node_file_system = Err(Absent { path: "/".to_owned(), why: Why::Errno(5) });
    script.offline(Duration::from_secs(60));
    script.facts = facts();
    script.offline(Duration::from_secs(60));
    assert_eq!(kinds(&waiting(&script)), ["started", "began"]);
}

#[test]
fn the_end_of_the_process_waits_for_what_is_not_on_disk() {
    let mut script = settled();
    script.offline(Duration::from_secs(30));
    // Enough changes that the disk is asked for more rarely than they come.
    for place in 0..40 {
        script.press_memory(place % 2 == 0);
        script.offline(Duration::from_secs(310));
    }
    assert!(on_disk(&script).len() < waiting(&script).len());
    script.agent.handle(Input::Stopping, script.now());
    let (sent, _) = script.drain();
    assert!(sent.is_empty() && script.stopped);
    assert_eq!(on_disk(&script), waiting(&script));
}

#[test]
fn the_end_of_the_process_does_not_wait_for_a_disk_that_failed() {
    let mut script = settled();
    script.disk.fails = true;
    script.press_memory(true);
    script.pass(Duration::from_secs(12));
    script.agent.handle(Input::Stopping, script.now());
    script.drain();
    assert!(script.stopped);
}

#[test]
fn after_sigterm_nothing_is_sent_however_long_the_disk_takes() {
    let mut script = settled();
    let (renewal, _) = script.next(Lane::Lease);
    script.disk.hangs = true;
    script.press_memory(true);
    script.pass(Duration::from_secs(12));
    script.agent.handle(Input::Stopping, script.now());
    script.answer(renewal, refused(500, ""));
    let begun = script.up;
    for stops_now in [false, true] {
        let (sent, until) = script.drain();
        assert!(sent.is_empty() && script.stopped == stops_now, "{sent:?}");
        script.up = until.as_duration().min(begun + Duration::from_secs(3));
    }
}

#[test]
fn the_end_of_the_process_does_not_wait_for_a_disk_that_hangs() {
    let mut script = settled();
    script.disk.hangs = true;
    script.press_memory(true);
    script.pass(Duration::from_secs(12));
    script.agent.handle(Input::Stopping, script.now());
    let (_, until) = script.drain();
    assert!(!script.stopped && until.as_duration() <= script.up + LAST_WRITES);
    script.up = until.as_duration();
    script.drain();
    assert!(script.stopped);
}

#[test]
fn a_day_without_a_server_and_with_a_change_a_minute_writes_some_blocks_and_no_more() {
    let settings = Settings { eviction_pressure_transition_period: Duration::ZERO, ..Settings::default() };
    let mut script = Script::with(settings);
    script.register();
    let writes = script.disk.writes;
    script.offline(Duration::from_secs(30));
    for minute in 0..24 * 60 {
        script.press_memory(minute % 2 == 0);
        script.offline(Duration::from_secs(60));
    }
    assert!(script.disk.writes - writes <= 64, "{} writes", script.disk.writes - writes);
    assert!(waiting(&script).iter().any(|record| matches!(record.what, Happened::Dropped { .. })));
}

#[test]
fn that_the_start_was_told_is_on_disk_before_the_next_start() {
    let script = settled();
    assert_eq!(on_disk(&script), [], "a power cut now, and nothing is told twice");
}

#[test]
fn a_change_of_a_boot_without_a_clock_keeps_the_time_with_which_it_was_told_first() {
    let mut script = Script::new();
    script.has_clock = false;
    script.offline(Duration::from_secs(30));
    script.press_memory(true);
    script.offline(Duration::from_secs(30));
    assert_eq!(kinds(&on_disk(&script)), ["started", "began", "changed"]);
    let mut script = script.restart(BootId(BOOT.0 + 1), Duration::from_secs(5));
    script.press_memory(true);
    let pressed_since =
        |operation: &Operation| body_of(operation)["status"]["conditions"][0]["lastTransitionTime"].clone();
    let create = |script: &mut Script, result: Option<Result<Document, Refusal>>| loop {
        let (ticket, operation) = script.next(Lane::Status);
        let is_create = matches!(operation, Operation::CreateNode { .. });
        let reply = script.reply(&operation);
        script.answer(ticket, result.clone().filter(|_| is_create).unwrap_or(reply));
        if is_create {
            break operation;
        }
    };
    let first = create(&mut script, Some(refused(500, "InternalError")));
    script.offline(Duration::from_secs(5));
    let second = create(&mut script, None);
    script.stored = Some(stored(serde_json::from_value(body_of(&second)).unwrap()));
    assert_eq!(body_of(&first)["status"]["conditions"][0]["status"], "True");
    assert_eq!(pressed_since(&second), pressed_since(&first));
    script.pass(Duration::from_secs(3));
    let report = script.next(Lane::Status).1;
    assert!(pressed_since(&report).is_null() || pressed_since(&report) == pressed_since(&first), "{report:?}");
}

#[test]
fn what_nobody_can_judge_is_what_an_earlier_process_asserted() {
    let mut script = Script::new();
    script.facts.readings.memory = Err(Absent::new("sys/fs/cgroup/memory.stat", Why::Empty));
    let mut node = registered_node();
    // Somebody made the Node anew, and no more than the statuses was said of it since.
    for condition in &mut node.status.conditions {
        condition.reason.clear();
        condition.message.clear();
        condition.last_transition_time = String::new();
    }
    while script.play_healthy(Lane::Status).1 != Operation::ReadVersion {}
    script.play(Lane::Status, refused(409, "AlreadyExists"));
    script.play(Lane::Status, Ok(Document::Node(Box::new(node))));
    let report = script.next(Lane::Status).1;
    assert_eq!(body_of(&report)["status"]["conditions"][0]["reason"], "KubeletHasSufficientMemory");
}

#[test]
fn what_only_looks_so_is_not_dated_by_the_record_of_another_status() {
    let mut script = Script::new();
    let uncounted = || Err(Absent::new("proc/cpuinfo", Why::Empty));
    script.facts.machine.cpu_count = uncounted();
    let create = |script: &mut Script| loop {
        let operation = script.play_healthy(Lane::Status).1;
        if matches!(operation, Operation::CreateNode { .. }) {
            break operation;
        }
    };
    create(&mut script);
    script.facts.machine.cpu_count = Ok(4);
    script.offline(Duration::from_secs(60));
    let is_ready = |record: &Record| matches!(&record.what, Happened::ConditionChanged { to: Status::True, .. });
    assert!(waiting(&script).iter().any(is_ready), "{:?}", waiting(&script));
    let up = script.up + Duration::from_secs(60);
    let mut script = script.restart(BOOT, up);
    script.facts.machine.cpu_count = uncounted();
    let ready = body_of(&create(&mut script))["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&ready["type"], &ready["status"]), (&"Ready".into(), &"False".into()));
    assert_eq!(ready["lastTransitionTime"], ready["lastHeartbeatTime"]);
}
