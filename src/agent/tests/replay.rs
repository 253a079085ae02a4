//! What is told after an outage, how soon, and in which order.

use super::outage::{kinds, settled, waiting};
use super::*;

/// An outage with three changes in it, and how far its start is from the last renewal before.
fn outage() -> Script {
    let mut script = settled();
    script.offline(Duration::from_secs(60));
    for pressed in [true, false, true] {
        script.press_memory(pressed);
        script.offline(Duration::from_secs(330));
    }
    script
}

/// What is sent in `span`, and when in milliseconds.
fn timed(script: &mut Script, span: Duration) -> Vec<(u128, Operation)> {
    let end = script.up + span;
    let mut sent = Vec::new();
    while script.up < end {
        let (now, until) = script.drain();
        if now.is_empty() {
            script.up = end.min(until.as_duration());
        }
        for (ticket, operation) in now {
            let document = script.document(&operation);
            script.answer(ticket, Ok(document));
            sent.push((script.up.as_millis(), operation));
        }
    }
    sent
}

fn events(sent: &[(u128, Operation)]) -> Vec<(u128, Value)> {
    let is_event =
        |operation: &Operation| matches!(operation, Operation::CreateEvent { .. } | Operation::PatchEvent { .. });
    sent.iter()
        .filter(|(_, operation)| is_event(operation))
        .map(|(at_ms, operation)| (*at_ms, body_of(operation)))
        .collect()
}

fn reasons(events: &[(u128, Value)]) -> Vec<String> {
    events.iter().map(|(_, event)| event["reason"].as_str().unwrap().to_owned()).collect()
}

fn last_outage(operation: &Operation) -> Option<Value> {
    let Operation::PatchStatus { body, .. } = operation else { return None };
    let patch: Value = serde_json::from_str(body).unwrap();
    let text = patch["metadata"]["annotations"]["nodepulse.dev/last-outage"].as_str()?.to_owned();
    Some(serde_json::from_str(&text).unwrap())
}

fn stamp(at_ms: u128) -> String {
    START.plus(Duration::from_millis(at_ms as u64)).to_seconds_stamp()
}

const BACK: [&str; 4] =
    ["NodeHasInsufficientMemory", "NodeHasSufficientMemory", "NodeHasInsufficientMemory", "UplinkRestored"];

#[test]
fn after_an_outage_lease_and_true_status_come_first_and_alone_for_ten_seconds() {
    let mut script = outage();
    let changed = waiting(&script).last().unwrap().at.up.as_duration();
    let back = timed(&mut script, Duration::from_secs(16));
    let start = back[0].0;
    let early: Vec<_> = back.iter().filter(|(at_ms, _)| at_ms - start < 9_990).collect();
    let [(_, lease), (reported_ms, report)] = early.as_slice() else { panic!("{early:?}") };
    assert!(matches!(lease, Operation::RenewLease { .. }), "{lease:?}");
    assert_eq!(*reported_ms, start);
    let conditions = body_of(report)["status"]["conditions"].clone();
    assert_eq!(conditions[0]["type"], "MemoryPressure");
    assert_eq!(conditions[0]["status"], "True");
    assert_eq!(conditions[0]["lastTransitionTime"], stamp(changed.as_millis()));
    assert!(conditions.as_array().unwrap().iter().all(|condition| condition.as_object().unwrap().len() == 6));
}

#[test]
fn an_outage_that_began_before_a_changed_node_was_read_ends_in_two_requests_as_well() {
    let mut script = settled();
    let asserted = loop {
        let (ticket, operation) = script.next(Lane::Status);
        if matches!(operation, Operation::PatchStatus { answer: PatchAnswer::Nothing, .. }) {
            break ticket;
        }
        let document = script.document(&operation);
        script.answer(ticket, Ok(document));
    };
    script.answer(asserted, Ok(metadata("rv2")));
    assert_eq!(script.play(Lane::Status, unreachable()).1, Operation::ReadNode { heartbeat: true });
    script.offline(Duration::from_secs(120));
    let back = timed(&mut script, Duration::from_secs(9));
    let [(_, Operation::RenewLease { .. }), (_, report)] = back.as_slice() else { panic!("{back:?}") };
    let status = &body_of(report)["status"];
    assert_eq!(status["conditions"].as_array().unwrap().len(), 5);
    assert!(status["capacity"].is_object(), "whatever the others wrote: {status}");
}

#[test]
fn what_was_missed_follows_slowly_in_order_with_its_own_times_and_then_a_summary() {
    let mut script = outage();
    let records = waiting(&script);
    let back = timed(&mut script, Duration::from_secs(90));
    let told = events(&back);
    assert_eq!(reasons(&told), BACK);
    assert!(told[0].0 - back[0].0 >= 10_000);
    assert!(told.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 1000), "{told:?}");
    for ((_, event), record) in told.iter().zip(&records[1..]) {
        let at = stamp(record.at.up.as_duration().as_millis());
        assert_eq!([&event["firstTimestamp"], &event["lastTimestamp"]], [at.as_str(), at.as_str()]);
        assert_eq!(event["count"], 1);
    }
    let (summed_ms, summary) =
        back.iter().find_map(|(at_ms, operation)| Some((*at_ms, last_outage(operation)?))).unwrap();
    assert!(summed_ms - told[3].0 >= 1000, "the summary is the last");
    let from = stamp(records[0].at.up.as_duration().as_millis());
    assert_eq!(
        summary,
        serde_json::json!({ "from": from, "to": stamp(back[0].0), "cause": "timed-out", "changes": 3, "dropped": 0 })
    );
    assert!(waiting(&script).is_empty());
    script.agent.handle(Input::Stopping, script.now());
    script.drain();
    assert_eq!(Journal::recover(&script.disk.bytes, 65_536, BOOT).0.waiting().count(), 0);
}

#[test]
fn what_was_missed_is_never_beside_a_heartbeat() {
    let mut script = outage();
    let mut lease_in_flight = None;
    let mut told = 0;
    let end = script.up + Duration::from_secs(120);
    while script.up < end {
        let (sent, until) = script.drain();
        if sent.is_empty() && lease_in_flight.is_none() {
            script.up = until.as_duration();
        }
        // Each renewal takes five seconds.
        if let Some((ticket, done_at)) = lease_in_flight.take_if(|(_, done_at)| script.up >= *done_at) {
            let _: Duration = done_at;
            script.answer(ticket, Ok(Document::Nothing));
        }
        for (ticket, operation) in sent {
            if matches!(operation, Operation::RenewLease { .. }) {
                lease_in_flight = Some((ticket, script.up + Duration::from_secs(5)));
                continue;
            }
            if let Operation::CreateEvent { .. } = operation {
                assert!(lease_in_flight.is_none(), "{operation:?}");
                told += 1;
            }
            let document = script.document(&operation);
            script.answer(ticket, Ok(document));
        }
        if let Some((_, done_at)) = &lease_in_flight {
            script.up = (script.up + Duration::from_millis(500)).min(*done_at);
        }
    }
    assert_eq!(told, 4);
}

#[test]
fn an_event_keeps_its_name_over_a_killed_process_and_one_that_exists_counts_as_told() {
    let mut script = outage();
    let (_lost_with_the_process, first) = script.next(Lane::Events);
    let name = body_of(&first)["metadata"]["name"].clone();
    let up = script.up + Duration::from_secs(3);
    let mut script = script.restart(BOOT, up);
    script.press_memory(true);
    let same = loop {
        let (ticket, operation) = script.next(Lane::Events);
        if body_of(&operation)["metadata"]["name"] == name {
            script.answer(ticket, refused(409, "AlreadyExists"));
            break operation;
        }
        script.answer(ticket, Ok(Document::Nothing));
    };
    assert_eq!(body_of(&same)["firstTimestamp"], body_of(&first)["firstTimestamp"]);
    let mut rest = reasons(&events(&timed(&mut script, Duration::from_secs(60))));
    // Those of registration are told by every start (PRS-0).
    rest.retain(|reason| !["NodeHasNoDiskPressure", "NodeHasSufficientPID"].contains(&reason.as_str()));
    assert_eq!(rest, [BACK[1], BACK[2], BACK[3], "Starting"]);
    assert!(waiting(&script).is_empty());
}

#[test]
fn what_the_server_will_never_take_is_said_and_blocks_nothing() {
    for (code, reason) in [(413, "RequestEntityTooLarge"), (422, "Invalid"), (400, "BadRequest")] {
        let mut script = outage();
        script.play(Lane::Events, refused(code, reason));
        assert_eq!(reasons(&events(&timed(&mut script, Duration::from_secs(60)))), BACK[1..]);
        assert_eq!(script.words().iter().filter(|word| **word == "event-dropped").count(), 1);
        assert!(waiting(&script).is_empty());
    }
}

#[test]
fn what_the_server_cannot_take_now_is_kept_however_long_that_lasts() {
    for failure in [refused(500, ""), refused(401, "Unauthorized"), refused_after(429, 30), unreachable()] {
        let mut script = outage();
        let mut times = Vec::new();
        for _ in 0..20 {
            let (at_ms, operation) = script.play(Lane::Events, failure.clone());
            assert_eq!(body_of(&operation)["reason"], BACK[0]);
            times.push(at_ms);
        }
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 300_000), "{times:?}");
        assert_eq!(reasons(&events(&timed(&mut script, Duration::from_secs(600)))), BACK);
    }
}

#[test]
fn tries_that_a_link_brings_forward_make_no_pause_longer() {
    let mut script = outage();
    for _ in 0..6 {
        script.play(Lane::Events, unreachable());
        script.agent.handle(Input::LinkChanged, script.now());
    }
    let (failed_ms, _) = script.play(Lane::Events, unreachable());
    let (again_ms, _) = script.play_healthy(Lane::Events);
    assert!(again_ms - failed_ms <= 10_000, "the first pause once more, not 300 s: {} ms", again_ms - failed_ms);
}

#[test]
fn patience_that_the_server_asks_for_is_had() {
    let mut script = outage();
    let (asked_ms, _) = script.play(Lane::Events, refused_after(429, 60));
    assert_eq!(script.play_healthy(Lane::Events).0 - asked_ms, 60_000);
}

#[test]
fn a_second_outage_in_the_middle_goes_on_where_the_first_stopped() {
    let mut script = outage();
    script.play_healthy(Lane::Events);
    script.offline(Duration::from_secs(60));
    script.press_memory(false);
    script.offline(Duration::from_secs(330));
    assert_eq!(kinds(&waiting(&script)), ["began", "changed", "changed", "ended", "began", "changed"]);
    let back = timed(&mut script, Duration::from_secs(120));
    let told = events(&back);
    assert_eq!(reasons(&told), [BACK[1], BACK[2], BACK[3], "NodeHasSufficientMemory", "UplinkRestored"]);
    assert!(told[0].0 - back[0].0 >= 10_000, "again after ten seconds");
    let summaries: Vec<Value> = back.iter().filter_map(|(_, operation)| last_outage(operation)).collect();
    let changes: Vec<_> = summaries.iter().map(|summary| summary["changes"].as_u64().unwrap()).collect();
    assert_eq!(changes, [3, 1]);
    assert!(waiting(&script).is_empty());
}

#[test]
fn a_summary_that_is_refused_for_good_is_said_and_one_that_fails_is_tried_again() {
    let forbidden = refused(403, "Forbidden");
    for (failure, tries) in [(refused(422, "Invalid"), 1), (forbidden, 2), (unreachable(), 2), (refused(500, ""), 2)] {
        let mut script = outage();
        let mut summaries = 0;
        for _ in 0..60 {
            let (ticket, operation) = script.next(Lane::Status);
            let is_summary = last_outage(&operation).is_some();
            summaries += u32::from(is_summary);
            let result = if is_summary && summaries == 1 { failure.clone() } else { Ok(script.document(&operation)) };
            script.answer(ticket, result);
        }
        assert_eq!(summaries, tries);
        assert!(waiting(&script).is_empty());
    }
}

#[test]
fn online_a_change_is_told_at_once_under_its_own_name_and_a_repeat_counts() {
    let mut script = settled();
    let mut sent = Vec::new();
    for pressed in [true, false, true] {
        script.press_memory(pressed);
        sent.extend(timed(&mut script, Duration::from_secs(330)));
    }
    let told = events(&sent);
    assert_eq!(reasons(&told[..1]), [BACK[0]]);
    assert!(told.last().unwrap().1["count"] == 2, "{told:?}");
    let (_, patch) = sent.iter().rfind(|(_, operation)| matches!(operation, Operation::PatchEvent { .. })).unwrap();
    let Operation::PatchEvent { name, .. } = patch else { panic!() };
    assert_eq!(told[0].1["metadata"]["name"], name.as_str());
    assert!(waiting(&script).is_empty());
}

#[test]
fn a_clock_that_steps_in_an_outage_changes_no_time_and_no_order() {
    let mut script = settled();
    script.offline(Duration::from_secs(60));
    script.press_memory(true);
    script.offline(Duration::from_secs(330));
    script.clock_error_seconds = -86_400;
    script.press_memory(false);
    script.offline(Duration::from_secs(330));
    let records = waiting(&script);
    let told = events(&timed(&mut script, Duration::from_secs(60)));
    assert_eq!(reasons(&told), [BACK[0], BACK[1], BACK[3]]);
    for ((_, event), record) in told.iter().zip(&records[1..]) {
        assert_eq!(event["firstTimestamp"], stamp(record.at.up.as_duration().as_millis()));
    }
}

#[test]
fn a_boot_without_a_clock_is_dated_by_what_the_server_said_in_it_and_else_said_to_be_undated() {
    for learns in [true, false] {
        let mut script = Script::new();
        script.has_clock = false;
        script.offline(Duration::from_secs(60));
        script.press_memory(true);
        script.offline(Duration::from_secs(60));
        if learns {
            let (ticket, _) = script.next(Lane::Status);
            script.has_clock = true;
            script.answer(ticket, refused(500, ""));
            script.has_clock = false;
            script.offline(Duration::from_secs(3000));
        }
        let changed = waiting(&script)[2].at.up.as_duration().as_millis();
        let mut script = script.restart(BootId(2), Duration::from_secs(4000));
        let told = events(&timed(&mut script, Duration::from_secs(60)));
        let pressed = told.iter().find(|(_, event)| event["reason"] == BACK[0]).unwrap();
        let message = pressed.1["message"].as_str().unwrap();
        assert_eq!(message.contains("is not known"), !learns, "{message}");
        if learns {
            assert_eq!(pressed.1["firstTimestamp"], stamp(changed));
        }
        assert!(waiting(&script).is_empty());
    }
}

#[test]
fn a_reboot_is_told_once_by_the_journal_that_remembers_the_boot_before() {
    let script = settled();
    let up = script.up;
    let mut script = script.restart(BootId(2), up);
    script.facts.machine.boot_id = Ok("00000000-0000-0000-0000-000000000002".to_owned());
    let [started, rebooted] = [(); 2].map(|()| body_of(&script.play_healthy(Lane::Events).1));
    assert_eq!((&started["reason"], &rebooted["reason"]), (&json!("Starting"), &json!("Rebooted")));
    script.play_healthy(Lane::Status);
    script.play(Lane::Status, refused(409, "AlreadyExists"));
    let rest = reasons(&events(&timed(&mut script, Duration::from_secs(120))));
    assert!(!rest.contains(&"Rebooted".to_owned()), "{rest:?}");
    assert_eq!(rebooted["type"], "Warning");
    assert!(rebooted["message"].as_str().unwrap().ends_with("boot id: 00000000-0000-0000-0000-000000000002"));
}

#[test]
fn a_change_that_was_told_and_not_reported_is_none_to_the_next_process() {
    let mut script = settled();
    script.press_memory(true);
    let mut told = None;
    while told.is_none() {
        let (sent, until) = script.drain();
        script.up = if sent.is_empty() { until.as_duration() } else { script.up };
        for (ticket, operation) in sent {
            // The report is lost with the process.
            if ticket.lane() != Lane::Status {
                let reply = script.reply(&operation);
                script.answer(ticket, reply);
            }
            told = told.or(matches!(operation, Operation::CreateEvent { .. }).then_some(operation));
        }
    }
    let told = told.unwrap();
    assert_eq!(kinds(&waiting(&script)), ["changed"]);
    let up = script.up + Duration::from_secs(30);
    let mut script = script.restart(BOOT, up);
    script.press_memory(true);
    let (ticket, report) = loop {
        let (ticket, operation) = script.next(Lane::Status);
        if matches!(operation, Operation::PatchStatus { .. }) {
            break (ticket, operation);
        }
        let is_there = matches!(operation, Operation::CreateNode { .. });
        let reply = if is_there { refused(409, "AlreadyExists") } else { script.reply(&operation) };
        script.answer(ticket, reply);
    };
    let since = body_of(&report)["status"]["conditions"][0]["lastTransitionTime"].clone();
    assert_eq!(since, body_of(&told)["firstTimestamp"], "{report:?}");
    let reply = script.reply(&report);
    script.answer(ticket, reply);
    let again = events(&timed(&mut script, Duration::from_secs(60)));
    let pressed = again.iter().filter(|(_, event)| event["reason"] == "NodeHasInsufficientMemory");
    let names: Vec<_> = pressed.map(|(_, event)| event["metadata"]["name"].clone()).collect();
    assert_eq!(names, [body_of(&told)["metadata"]["name"].clone()], "the server has it already");
    assert!(waiting(&script).is_empty());
}

#[test]
fn a_reboot_that_no_disk_remembers_is_told_once_all_the_same() {
    let script = settled();
    let up = script.up;
    let mut names = Vec::new();
    let mut script = script.restart(BootId(2), up);
    for _ in 0..2 {
        script.disk.fails = true;
        let told = events(&timed(&mut script, Duration::from_secs(60)));
        let rebooted = told.iter().find(|(_, event)| event["reason"] == "Rebooted").unwrap();
        names.push(rebooted.1["metadata"]["name"].clone());
        let up = script.up + Duration::from_secs(5);
        script = script.restart(BootId(2), up);
    }
    assert_eq!(names[0], names[1], "the server has it already");
}

#[test]
fn a_record_is_forgotten_when_its_event_was_accepted_and_not_before() {
    let mut script = settled();
    script.press_memory(true);
    let (ticket, _) = script.next(Lane::Events);
    assert_eq!(kinds(&waiting(&script)), ["changed"]);
    script.answer(ticket, Ok(Document::Nothing));
    assert!(waiting(&script).is_empty());
}

#[test]
fn the_patience_that_a_summary_was_asked_for_outlasts_a_hurry() {
    let mut script = outage();
    let asked_at = loop {
        let (ticket, operation) = script.next(Lane::Status);
        if last_outage(&operation).is_some() {
            script.answer(ticket, refused_after(503, 20));
            break script.up;
        }
        let document = script.document(&operation);
        script.answer(ticket, Ok(document));
    };
    // The Lease is gone, so the Node may be as well: that is asked, but not before the time that the server said.
    script.play(Lane::Lease, refused(404, "NotFound"));
    script.agent.handle(Input::LinkChanged, script.now());
    let (ticket, _) = script.next(Lane::Status);
    assert!(script.up - asked_at >= Duration::from_secs(20), "asked again after {:?}", script.up - asked_at);
    script.answer(ticket, Ok(Document::Nothing));
}
