//! How events reach the server (EVT-*, D6).

use super::*;

#[test]
fn starting_is_the_first_request_and_names_the_node_before_its_uid_is_known() {
    let mut script = Script::new();
    let (at_ms, starting) = script.play_healthy(Lane::Events);
    assert_eq!(at_ms, 0);
    let body = body_of(&starting);
    assert_eq!(body["reason"], "Starting");
    assert_eq!(body["involvedObject"]["uid"], "n1");
}

#[test]
fn events_of_a_registered_node_carry_its_uid() {
    let mut script = Script::new();
    script.play_healthy(Lane::Events);
    script.register();
    script.facts.readings.memory = Ok(MemoryUse { available_bytes: 1 << 20, source: MemorySource::CgroupV2 });
    let pressed = std::iter::repeat_with(|| script.play_healthy(Lane::Events).1)
        .find(|wish| body_of(wish)["reason"] == "NodeHasInsufficientMemory")
        .unwrap();
    assert_eq!(body_of(&pressed)["involvedObject"]["uid"], "uid1");
}

#[test]
fn an_event_that_exists_counts_as_delivered() {
    let mut script = Script::new();
    script.play(Lane::Events, refused(409, "AlreadyExists"));
    let (_, next) = script.play_healthy(Lane::Events);
    assert_ne!(body_of(&next)["reason"], "Starting");
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
fn an_unreachable_server_is_tried_twelve_times_ten_seconds_apart() {
    let mut script = Script::new();
    let times: Vec<_> = (0..12).map(|_| script.play(Lane::Events, unreachable()).0).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[0] < 10_000);
    assert!(gaps[1..].iter().all(|gap| *gap == 10_000), "{gaps:?}");
    let (_, next) = script.play_healthy(Lane::Events);
    assert_ne!(body_of(&next)["reason"], "Starting");
}

#[test]
fn a_thousand_events_of_one_kind_are_a_burst_and_no_flood() {
    let mut script = Script::new();
    script.register();
    for number in 0..1000 {
        let message = format!("number {number}");
        script.agent.world.fresh_events.push(NodeEvent { warning: true, reason: "Test", message });
    }
    let mut sent = 0;
    for _ in 0..100 {
        let (requests, _) = script.drain();
        if requests.is_empty() {
            break;
        }
        for (ticket, wish) in requests {
            sent += usize::from(ticket.lane() == Lane::Events);
            let document = healthy(&wish);
            script.answer(ticket, Ok(document));
        }
    }
    assert!((20..=35).contains(&sent), "{sent}");
}

#[test]
fn events_are_sent_no_faster_than_the_settings_allow() {
    let mut script = Script::with(Settings { event_record_qps: 2, event_burst: 3, ..Settings::default() });
    for reason in ["A", "B", "C", "D", "E", "F"] {
        let message = "a test".to_owned();
        script.agent.world.fresh_events.push(NodeEvent { warning: true, reason, message });
    }
    let times: Vec<_> = (0..7).map(|_| script.play_healthy(Lane::Events).0).collect();
    assert_eq!(times[..3], [0, 0, 0]);
    let gaps: Vec<_> = times[2..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (499..=502).contains(gap)), "{gaps:?}");
}
