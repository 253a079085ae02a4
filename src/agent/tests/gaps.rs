//! Pauses between renewals after which the controller may have judged the Node, and what is none (D4, NLC-4).

use super::status::{is_assertion, is_whole};
use super::*;
use crate::node::tests::samples::START_STAMP;

/// Its answer brings the version alone.
fn is_report_in_full(operation: &Operation) -> bool {
    matches!(operation, Operation::PatchStatus { answer: PatchAnswer::Metadata, .. }) && is_whole(operation)
}

/// Requests of the status lane in full, in `span` of a healthy server that answers renewals so much later.
fn reports_in_full(script: &mut Script, span: Duration, answer_ms: u64) -> Vec<Duration> {
    let (end, mut full, mut renewals) = (script.up + span, Vec::new(), Vec::new());
    while script.up < end {
        let (sent, until) = script.drain();
        for (ticket, operation) in sent {
            if is_report_in_full(&operation) {
                full.push(script.up);
            }
            if ticket.lane() == Lane::Lease {
                renewals.push((script.up + Duration::from_millis(answer_ms), ticket, operation));
                continue;
            }
            let reply = script.reply(&operation);
            script.answer(ticket, reply);
        }
        let until = renewals.first().map_or(until.as_duration(), |(at, ..)| until.as_duration().min(*at));
        script.up = script.up.max(until);
        if renewals.first().is_some_and(|(at, ..)| *at <= script.up) {
            let (_, ticket, operation) = renewals.remove(0);
            let reply = script.reply(&operation);
            script.answer(ticket, reply);
        }
    }
    full
}

#[test]
fn a_pause_of_more_than_one_and_a_half_periods_is_asserted_once_and_a_slow_answer_is_none() {
    for (answer_ms, frozen_ms, expected) in
        [(0, 14_000, 0), (0, 16_000, 1), (0, 19_000, 1), (9_900, 0, 0), (4_000, 14_000, 0), (4_000, 16_000, 1)]
    {
        let mut script = Script::new();
        script.register();
        reports_in_full(&mut script, Duration::from_secs(60), answer_ms);
        // Right behind an answer.
        loop {
            let (ticket, operation) = script.next(Lane::Lease);
            let reply = script.reply(&operation);
            script.answer(ticket, reply);
            let (sent, _) = script.drain();
            if sent.is_empty() {
                break;
            }
            for (ticket, operation) in sent {
                let reply = script.reply(&operation);
                script.answer(ticket, reply);
            }
        }
        script.up += Duration::from_millis(frozen_ms);
        let full = reports_in_full(&mut script, Duration::from_secs(600), answer_ms);
        assert_eq!(full.len(), expected, "{answer_ms} ms, frozen for {frozen_ms} ms: {full:?}");
    }
}

#[test]
fn a_standstill_with_a_renewal_under_way_is_a_gap_from_its_sending_on() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    let (ticket, operation) = script.next(Lane::Lease);
    script.up += Duration::from_secs(16);
    let reply = script.reply(&operation);
    script.answer(ticket, reply);
    let frozen = script.up;
    assert_eq!(reports_in_full(&mut script, Duration::from_secs(60), 0), [frozen]);
}

#[test]
fn a_gap_that_was_asserted_long_before_its_end_is_asserted_again() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let (end, mut full) = (script.up + Duration::from_secs(100), Vec::new());
    while script.up < end {
        let (sent, until) = script.drain();
        if sent.is_empty() {
            script.up = until.as_duration();
        }
        for (ticket, operation) in sent {
            full.extend(is_report_in_full(&operation).then_some(script.up));
            let reply = if ticket.lane() == Lane::Lease { refused(500, "") } else { script.reply(&operation) };
            script.answer(ticket, reply);
        }
    }
    assert_eq!(full.len(), 1, "{full:?}");
    let (_, _) = script.play_healthy(Lane::Lease);
    let renewed = script.up;
    assert_eq!(reports_in_full(&mut script, Duration::from_secs(60), 0), [renewed]);
}

/// What a board of the profile `metered` sends of its statuses (in full, and asserted) after twenty renewals each of which got
/// through after so many that nobody answered.
fn told_after_lost_renewals(grace_s: u64, lease_seconds: u32, tries: usize) -> (usize, usize) {
    let grace = Duration::from_secs(grace_s);
    let mut script = Script::with(Settings {
        node_lease_duration_seconds: lease_seconds,
        node_monitor_grace_period: grace,
        node_status_update_frequency: Duration::from_secs(60),
        node_status_report_frequency: Duration::from_secs(3600),
        status_assert_frequency: Duration::from_secs(600),
        ..Settings::default()
    });
    script.register();
    script.pass(Duration::from_secs(1800));
    let (mut whole, mut assertions) = (0, 0);
    for _ in 0..20 {
        for _ in 0..tries {
            let (ticket, _) = script.next(Lane::Lease);
            script.up += Duration::from_secs(10);
            script.answer_unreachable(ticket);
        }
        let (again, operation) = script.next(Lane::Lease);
        let reply = script.reply(&operation);
        script.answer(again, reply);
        let later = script.pass(Duration::from_secs(2));
        let of_status = later.iter().filter(|sent| matches!(sent, Operation::PatchStatus { .. }));
        whole += of_status.clone().filter(|sent| !is_assertion(sent) && is_whole(sent)).count();
        assertions += of_status.filter(|sent| is_assertion(sent)).count();
    }
    (whole, assertions)
}

#[test]
fn a_renewal_that_came_through_at_the_second_try_brings_no_report_along() {
    for (grace_s, lease_seconds) in [(50, 80), (120, 192), (600, 960)] {
        assert_eq!(told_after_lost_renewals(grace_s, lease_seconds, 1), (0, 0), "{grace_s}");
    }
    // Whoever is lost for as long as the controller may have had patience says all of it at once.
    for (grace_s, lease_seconds, tries) in [(50, 80, 3), (120, 192, 6), (50, 160, 1)] {
        assert_eq!(told_after_lost_renewals(grace_s, lease_seconds, tries), (20, 0), "{grace_s} {lease_seconds}");
    }
}

#[test]
fn an_assertion_that_found_no_server_is_sent_again_and_nothing_more() {
    let mut script = Script::new();
    script.register();
    let mut assertion = loop {
        let (ticket, operation) = script.next(Lane::Status);
        if is_assertion(&operation) {
            script.answer_unreachable(ticket);
            break script.next(Lane::Status);
        }
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
    };
    assert!(is_assertion(&assertion.1), "{assertion:?}");
    let reply = script.reply(&assertion.1);
    script.answer(assertion.0, reply);
    assertion = script.next(Lane::Status);
    assert!(is_assertion(&assertion.1), "{assertion:?}");
}

#[test]
fn renewals_that_are_rare_by_the_settings_are_no_gaps() {
    let mut script = Script::with(Settings { node_lease_duration_seconds: 160, ..Settings::default() });
    script.register();
    for _ in 0..10 {
        let (_, operation) = script.play_healthy(Lane::Status);
        assert!(is_assertion(&operation) || !is_whole(&operation), "{operation:?}");
    }
}

#[test]
fn a_report_that_came_late_does_not_take_back_since_when_a_condition_holds() {
    let mut script = Script::new();
    script.register();
    script.press_memory(true);
    script.pass(Duration::from_secs(30));
    let since = |script: &Script| script.stored.as_ref().unwrap().status.conditions[0].last_transition_time.clone();
    let write = |script: &mut Script, version: &str, stamp: &str| {
        let stored = script.stored.as_mut().unwrap();
        stored.metadata.resource_version = version.to_owned();
        stored.status.conditions[0].last_transition_time = stamp.to_owned();
    };
    let told = since(&script);
    write(&mut script, "rv2", "2026-01-01T00:00:01Z");
    let later = script.pass(Duration::from_secs(600));
    assert_eq!(since(&script), told);
    let whole = later.iter().filter(|sent| sent.verb() != "GET" && body_of(sent).to_string().contains(&told)).count();
    assert_eq!(whole, 1, "told once more, and with that it is good: {later:?}");
    // Of a later time it is another who wrote it.
    write(&mut script, "rv3", "2099-01-01T00:00:01Z");
    script.pass(Duration::from_secs(600));
    assert_eq!(since(&script), "2099-01-01T00:00:01Z");
}

#[test]
fn a_report_of_the_node_before_does_not_take_back_since_when_a_condition_of_the_new_one_holds() {
    let mut script = Script::new();
    script.register();
    script.press_memory(true);
    // The report of that finds no Node, and the Node that is made in its place has it.
    script.play(Lane::Status, refused(404, "NotFound"));
    script.play(Lane::Status, refused(404, "NotFound"));
    let (ticket, operation) = script.next(Lane::Status);
    let made = stored(serde_json::from_value(body_of(&operation)).unwrap());
    let told = made.status.conditions[0].last_transition_time.clone();
    script.answer(ticket, Ok(Document::Node(Box::new(made.clone()))));
    // A report that was made for the Node before comes late.
    script.stored = Some(made);
    script.stored.as_mut().unwrap().status.conditions[0].last_transition_time = START_STAMP.to_owned();
    script.pass(Duration::from_secs(60));
    let memory = &script.stored.as_ref().unwrap().status.conditions[0];
    assert_eq!((memory.status.as_str(), &memory.last_transition_time), ("True", &told));
    assert_ne!(told, START_STAMP);
}

#[test]
fn what_a_boot_without_a_clock_recorded_is_older_than_what_the_server_heard_in_this_boot() {
    for is_pressed_again in [false, true] {
        let mut script = Script::new();
        script.has_clock = false;
        script.offline(Duration::from_secs(30));
        script.press_memory(true);
        script.offline(Duration::from_secs(30));
        let boot = BootId(BOOT.0 + 1);
        let mut script = script.restart(boot, Duration::from_secs(5));
        // That it is over, and that this was told, stays in memory.
        script.disk.fails = true;
        while script.stored.is_none() {
            let (_, operation) = script.play_healthy(Lane::Status);
            let is_made = matches!(operation, Operation::CreateNode { .. });
            script.stored = is_made.then(|| stored(serde_json::from_value(body_of(&operation)).unwrap()));
        }
        script.pass(Duration::from_secs(60));
        script.press_memory(is_pressed_again);
        script.pass(Duration::from_secs(60));
        let memory = |script: &Script| script.stored.clone().unwrap().status.conditions.swap_remove(0);
        let told = memory(&script);
        assert_eq!(told.status, if is_pressed_again { "True" } else { "False" });
        script.disk.fails = false;
        let up = script.up + Duration::from_secs(5);
        let mut script = script.restart(boot, up);
        if is_pressed_again {
            // What cannot be read is what it was.
            script.facts.readings.memory = Err(Absent::new("/proc/meminfo", Why::Errno(5)));
        }
        let made = script.stored.clone().unwrap();
        while script.play_healthy(Lane::Status).1 != Operation::ReadVersion {}
        // It is asked for with a time that is not of the record, which has none.
        script.play(Lane::Status, refused(409, "AlreadyExists"));
        script.play(Lane::Status, Ok(Document::Node(Box::new(made))));
        script.pass(Duration::from_secs(30));
        let again = memory(&script);
        assert_eq!((again.status, again.last_transition_time), (told.status, told.last_transition_time));
    }
}

#[test]
fn a_second_pause_before_the_node_was_read_is_reported_over_at_once_as_well() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    for _ in 0..2 {
        script.up += Duration::from_secs(60);
        assert!(matches!(script.play_healthy(Lane::Status).1, Operation::PatchStatus { .. }), "no look first");
    }
    assert!(matches!(script.play_healthy(Lane::Status).1, Operation::ReadNode { .. }), "what others wrote is read");
}

/// The next report, whatever else is asked before it.
fn next_report(script: &mut Script) -> Operation {
    loop {
        let (_, operation) = script.play_healthy(Lane::Status);
        if matches!(operation, Operation::PatchStatus { .. }) && !is_assertion(&operation) {
            return operation;
        }
    }
}

/// What a report of the whole status says, and no other.
fn says_all(report: &Operation) -> bool {
    body_of(report)["status"].get("addresses").is_some()
}

#[test]
fn a_report_that_cannot_have_left_is_made_again_as_it_was_and_one_that_may_have_says_all() {
    let unsent = Failure::new("connect-failed", "no route to host");
    for (failure, expected) in [(unsent.clone(), false), (unsent.after_sending(), true)] {
        let mut script = Script::new();
        script.register();
        script.pass(Duration::from_secs(30));
        script.press_memory(true);
        loop {
            let (ticket, operation) = script.next(Lane::Status);
            let is_report = matches!(operation, Operation::PatchStatus { .. }) && !is_assertion(&operation);
            let reply = if is_report { Err(Refusal::Failed(failure.clone())) } else { script.reply(&operation) };
            script.answer(ticket, reply);
            if is_report {
                break;
            }
        }
        let again = next_report(&mut script);
        assert_eq!(says_all(&again), expected, "{again:?}");
    }
}
