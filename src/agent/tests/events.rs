//! How events reach the server (EVT-*, D6).

use super::*;
use crate::node::NodeEvent;

#[test]
fn starting_is_told_at_the_first_answer_and_names_the_node_before_its_uid_is_known() {
    let mut script = Script::new();
    let (at_ms, starting) = script.play_healthy(Lane::Events);
    assert_eq!(at_ms, 100);
    let body = body_of(&starting);
    assert_eq!(body["reason"], "Starting");
    assert_eq!(body["involvedObject"]["uid"], "n1");
}

#[test]
fn a_board_a_day_ahead_tells_nothing_before_it_knows_the_time() {
    let mut script = Script::new();
    script.clock_error_seconds = 86_400;
    let (_, starting) = script.play_healthy(Lane::Events);
    let body = body_of(&starting);
    assert_eq!(body["reason"], "Starting");
    for field in ["firstTimestamp", "lastTimestamp"] {
        let told = body[field].as_str().and_then(Wall::parse_stamp).unwrap();
        assert!(script.wall(0).unwrap().since(told) <= Duration::from_secs(1), "{body}");
        assert!(told <= script.wall(0).unwrap(), "{body}");
    }
}

#[test]
fn events_of_a_registered_node_carry_its_uid() {
    let mut script = Script::new();
    script.play_healthy(Lane::Events);
    script.register();
    script.facts.readings.memory = Ok(MemoryUse { available_bytes: 1 << 20, source: MemorySource::CgroupV2 });
    let pressed = std::iter::repeat_with(|| script.play_healthy(Lane::Events).1)
        .find(|operation| body_of(operation)["reason"] == "NodeHasInsufficientMemory")
        .unwrap();
    assert_eq!(body_of(&pressed)["involvedObject"]["uid"], "uid1");
}

/// Plays what the event lane has within a minute.
fn play_all(script: &mut Script) -> Vec<Operation> {
    let is_event =
        |operation: &Operation| matches!(operation, Operation::CreateEvent { .. } | Operation::PatchEvent { .. });
    script.pass(Duration::from_secs(60)).into_iter().filter(is_event).collect()
}

fn happen(script: &mut Script, message: &str) {
    let message = message.to_owned();
    let came = script.now().up;
    script.agent.shared.fresh_events.push((came, NodeEvent { warning: true, reason: "Test", message }));
}

#[test]
fn a_repeat_counts_on_the_event_that_the_server_has() {
    let mut script = Script::new();
    play_all(&mut script);
    happen(&mut script, "again");
    let first = play_all(&mut script);
    happen(&mut script, "again");
    let second = play_all(&mut script);
    let [Operation::PatchEvent { name, .. }] = second.as_slice() else { panic!("{second:?}") };
    assert_eq!(body_of(&first[0])["metadata"]["name"], name.as_str());
    let body = body_of(&second[0]);
    assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["count", "lastTimestamp", "message"]);
    assert_eq!(body["count"], 2);
}

#[test]
fn a_repeat_that_is_given_up_counts_as_the_server_may_have_counted_it() {
    let mut script = Script::new();
    play_all(&mut script);
    happen(&mut script, "again");
    play_all(&mut script);
    for (code, reason) in [(502, "InternalError"), (422, "Invalid")] {
        happen(&mut script, "again");
        assert!(matches!(script.play(Lane::Events, refused(code, reason)).1, Operation::PatchEvent { .. }));
    }
    happen(&mut script, "again");
    assert_eq!(body_of(&play_all(&mut script)[0])["count"], 4);
}

#[test]
fn a_link_does_not_shorten_a_retry_after() {
    let mut script = Script::new();
    script.play(Lane::Events, unreachable());
    let (refused_at, _) = script.play(Lane::Events, refused_after(503, 60));
    script.agent.handle(Input::LinkChanged, script.now());
    assert_eq!(script.play_healthy(Lane::Events).0 - refused_at, 60_000);
}

#[test]
fn a_repeat_of_an_event_that_the_server_forgot_is_posted_again_under_its_name() {
    let mut script = Script::new();
    play_all(&mut script);
    happen(&mut script, "again");
    let first = play_all(&mut script);
    happen(&mut script, "again");
    assert!(matches!(script.play(Lane::Events, refused(404, "NotFound")).1, Operation::PatchEvent { .. }));
    let (_, again) = script.play_healthy(Lane::Events);
    assert!(matches!(again, Operation::CreateEvent { .. }));
    assert_eq!(body_of(&again)["metadata"]["name"], body_of(&first[0])["metadata"]["name"]);
    assert_eq!(body_of(&again)["count"], 2);
}

#[test]
fn an_event_that_hangs_delays_neither_registration_nor_lease() {
    let mut script = Script::new();
    let (_hanging, _) = script.next(Lane::Events);
    script.register();
    let times: Vec<_> = (0..5).map(|_| script.play_healthy(Lane::Lease).0).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] < 10_400), "{times:?}");
}

#[test]
fn a_node_tells_only_what_a_kubelet_would_tell_and_leaves_the_rest_to_the_controllers() {
    let mut script = Script::new();
    let mut sent = script.pass(Duration::from_secs(30));
    script.facts.machine.boot_id = Ok("another".to_owned());
    script.facts.readings.memory = Ok(MemoryUse { available_bytes: 1 << 20, source: MemorySource::CgroupV2 });
    script.facts.readings.pids = Ok(Pids { limit: 100, used: 100 });
    sent.extend(script.pass(Duration::from_secs(30)));
    script.play(Lane::Status, refused(404, "NotFound"));
    sent.extend(script.pass(Duration::from_secs(60)));
    let events = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. }));
    let mut reasons: Vec<_> =
        events.map(|operation| body_of(operation)["reason"].as_str().unwrap().to_owned()).collect();
    reasons.sort();
    reasons.dedup();
    assert_eq!(
        reasons,
        [
            "NodeHasInsufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientMemory",
            "NodeHasSufficientPID",
            "Rebooted",
            "Starting"
        ]
    );
}

#[test]
fn an_event_that_exists_counts_as_delivered() {
    let mut script = Script::new();
    script.play(Lane::Events, refused(409, "AlreadyExists"));
    let (_, next) = script.play_healthy(Lane::Events);
    assert_ne!(body_of(&next)["reason"], "Starting");
}

#[test]
fn how_often_an_event_that_exists_was_seen_nobody_knows_so_it_is_told_anew() {
    let mut script = Script::new();
    play_all(&mut script);
    happen(&mut script, "again");
    script.play(Lane::Events, refused(409, "AlreadyExists"));
    happen(&mut script, "again");
    let (_, next) = script.play_healthy(Lane::Events);
    assert!(matches!(next, Operation::CreateEvent { .. }), "{next:?}");
}

#[test]
fn a_repeat_whose_event_was_not_found_and_exists_all_the_same_is_counted_on_it() {
    let mut script = Script::new();
    play_all(&mut script);
    happen(&mut script, "again");
    script.play_healthy(Lane::Events);
    happen(&mut script, "again");
    assert!(matches!(script.play(Lane::Events, refused(404, "NotFound")).1, Operation::PatchEvent { .. }));
    let (_, anew) = script.play(Lane::Events, refused(409, "AlreadyExists"));
    assert!(matches!(anew, Operation::CreateEvent { .. }), "{anew:?}");
    let (_, repeat) = script.play_healthy(Lane::Events);
    assert!(matches!(repeat, Operation::PatchEvent { .. }) && body_of(&repeat)["count"] == 2, "{repeat:?}");
}

#[test]
fn no_event_is_dated_by_a_clock_that_nobody_has_compared() {
    let mut script = Script::new();
    script.clock_error_seconds = -86_400;
    happen(&mut script, "early");
    script.drain();
    script.up += Duration::from_secs(3);
    let early = loop {
        let body = body_of(&script.play_healthy(Lane::Events).1);
        if body["message"] == "early" {
            break body;
        }
    };
    assert_eq!(early["lastTimestamp"], START.to_seconds_stamp());
}

#[test]
fn an_event_that_waits_for_the_answer_to_another_keeps_its_time() {
    let mut script = Script::new();
    play_all(&mut script);
    happen(&mut script, "first");
    let (ticket, _) = script.next(Lane::Events);
    let came = script.wall(0).unwrap().to_seconds_stamp();
    happen(&mut script, "second");
    script.drain();
    script.up += Duration::from_secs(9);
    script.answer(ticket, Ok(Document::Nothing));
    let (_, second) = script.next(Lane::Events);
    assert_eq!(body_of(&second)["firstTimestamp"], came);
}

#[test]
fn an_event_the_server_refuses_is_dropped_and_said() {
    let mut script = Script::new();
    script.play(Lane::Events, refused(422, "Invalid"));
    let (_, next) = script.play_healthy(Lane::Events);
    assert_ne!(body_of(&next)["reason"], "Starting");
    assert!(script.words().contains(&"event-dropped"));
}

#[test]
fn a_right_that_is_missing_is_named_as_rbac_names_it() {
    let mut script = Script::new();
    play_all(&mut script);
    let forbidden = |script: &mut Script| {
        happen(script, "again");
        let (_, operation) = script.play(Lane::Events, refused(403, "Forbidden"));
        // It is told all the same, once somebody may.
        assert!(!play_all(script).is_empty());
        let said = script.said.iter().rfind(|notice| notice.word == "failing").unwrap();
        (matches!(operation, Operation::PatchEvent { .. }), said.text.to_string())
    };
    let (is_patch, text) = forbidden(&mut script);
    assert!(!is_patch && text.contains("may not `create events`"), "{text}");
    let (is_patch, text) = forbidden(&mut script);
    assert!(is_patch && text.contains("may not `patch events`"), "{text}");
}

#[test]
fn an_unreachable_server_is_tried_twelve_times_ten_seconds_apart() {
    let mut script = Script::new();
    script.register();
    script.pass(Duration::from_secs(5));
    happen(&mut script, "once");
    let times: Vec<_> = (0..12).map(|_| script.play(Lane::Events, unreachable()).0).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[0] < 10_000);
    assert!(gaps[1..].iter().all(|gap| *gap == 10_000), "{gaps:?}");
    happen(&mut script, "twice");
    assert_eq!(body_of(&script.play_healthy(Lane::Events).1)["message"], "twice");
}

#[test]
fn an_event_waits_until_a_server_that_was_away_for_some_seconds_has_had_its_peace() {
    let mut script = super::outage::settled();
    script.offline(Duration::from_secs(15));
    happen(&mut script, "once");
    let sent = script.offline(Duration::from_secs(4));
    assert!(!sent.iter().any(|operation| matches!(operation, Operation::CreateEvent { .. })), "{sent:?}");
    let (back_ms, _) = script.play_healthy(Lane::Lease);
    let (told_ms, told) = script.play_healthy(Lane::Events);
    assert_eq!(body_of(&told)["message"], "once");
    assert!((10_000..20_400).contains(&(told_ms - back_ms)), "{} ms after the Lease", told_ms - back_ms);
}

#[test]
fn an_event_that_is_due_when_the_board_wakes_up_waits_as_after_an_outage() {
    let mut script = super::outage::settled();
    happen(&mut script, "once");
    script.up += Duration::from_secs(60);
    let sent = script.pass(Duration::from_secs(9));
    assert!(matches!(sent[..], [Operation::RenewLease { .. }, Operation::PatchStatus { .. }]), "{sent:?}");
    assert_eq!(body_of(&script.play_healthy(Lane::Events).1)["message"], "once");
}

#[test]
fn a_thousand_events_of_one_type_are_a_burst_and_no_flood() {
    let mut script = Script::new();
    script.register();
    for number in 0..1000 {
        let (reason, message) = (["One", "Two", "Three", "Four", "Five"][number % 5], format!("number {number}"));
        let came = script.now().up;
        script.agent.shared.fresh_events.push((came, NodeEvent { warning: true, reason, message }));
    }
    let sent = (0..3).map(|_| play_all(&mut script).len()).sum::<usize>();
    assert!((20..=35).contains(&sent), "{sent}");
}

#[test]
fn events_are_sent_no_faster_than_the_settings_allow() {
    let mut script = Script::with(Settings { event_record_qps: 2, event_burst: 3, ..Settings::default() });
    play_all(&mut script);
    let start_ms = script.up.as_millis();
    for reason in ["A", "B", "C", "D", "E", "F"] {
        let message = "a test".to_owned();
        let came = script.now().up;
        script.agent.shared.fresh_events.push((came, NodeEvent { warning: true, reason, message }));
    }
    let times: Vec<_> = (0..6).map(|_| script.play_healthy(Lane::Events).0).collect();
    assert_eq!(times[..3], [start_ms; 3]);
    let gaps: Vec<_> = times[2..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (499..=502).contains(gap)), "{gaps:?}");
}

/// Lets time pass with a server that takes no event.
fn refuse_events(script: &mut Script, span: Duration) {
    let end = script.up + span;
    while script.up < end {
        let (sent, until) = script.drain();
        if sent.is_empty() {
            script.up = end.min(until.as_duration());
        }
        for (ticket, operation) in sent {
            let is_event = ticket.lane() == Lane::Events;
            let reply = if is_event { refused(500, "InternalError") } else { script.reply(&operation) };
            script.answer(ticket, reply);
        }
    }
}

/// What is told of that memory suffices, somebody having written it otherwise.
fn tell_that_memory_suffices(script: &mut Script) -> Vec<Value> {
    let message = "Node n1 status is now: NodeHasSufficientMemory".to_owned();
    let came = script.now().up;
    script
        .agent
        .shared
        .fresh_events
        .push((came, NodeEvent { warning: false, reason: "NodeHasSufficientMemory", message }));
    let told = script.pass(Duration::from_secs(900));
    let is_event = |told: &&Operation| matches!(told, Operation::CreateEvent { .. } | Operation::PatchEvent { .. });
    let of_memory = told.iter().filter(is_event).map(body_of);
    of_memory.filter(|body| body["message"].to_string().contains("NodeHasSufficientMemory")).collect()
}

#[test]
fn what_happened_before_the_last_sighting_is_told_under_its_own_name_with_its_own_time() {
    let mut script = Script::new();
    play_all(&mut script);
    script.facts.readings.node_file_system.as_mut().unwrap().available_bytes = 0;
    refuse_events(&mut script, Duration::from_secs(30));
    script.press_memory(true);
    refuse_events(&mut script, Duration::from_secs(30));
    script.press_memory(false);
    refuse_events(&mut script, Duration::from_secs(400));
    let record = script.agent.shared.records.waiting().last().unwrap().at.up.as_duration();
    let told = tell_that_memory_suffices(&mut script);
    let times: Vec<Value> = told.iter().map(|body| body["lastTimestamp"].clone()).collect();
    assert!(times.contains(&script.booted.plus(record).to_seconds_stamp().into()), "{times:?}");
}

#[test]
fn two_sightings_that_wait_at_once_are_not_both_the_second() {
    let mut script = Script::new();
    play_all(&mut script);
    script.press_memory(true);
    refuse_events(&mut script, Duration::from_secs(30));
    script.press_memory(false);
    refuse_events(&mut script, Duration::from_secs(400));
    let told = tell_that_memory_suffices(&mut script);
    let counts: Vec<_> = told.iter().map(|body| body["count"].as_u64()).collect();
    assert_eq!(counts, [Some(2), Some(1)], "{told:?}");
}
