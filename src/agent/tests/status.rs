//! When NodeStatus is sent, and what is in it (SYN-*, CHG-*, D4).

use super::*;
use std::collections::BTreeSet;

pub(super) fn is_assertion(operation: &Operation) -> bool {
    matches!(operation, Operation::PatchStatus { answer: PatchAnswer::Nothing, .. })
}

#[test]
fn an_idle_node_asserts_every_minute_and_reports_every_five() {
    let mut script = Script::with(Settings { node_watch: false, ..Settings::default() });
    script.register();
    let started = script.up;
    let (mut assertions, mut reports) = (0, Vec::new());
    while script.up < started + Duration::from_secs(3600) {
        let (at_ms, operation) = script.play_healthy(Lane::Status);
        if is_assertion(&operation) {
            assertions += 1;
        } else {
            reports.push(at_ms - started.as_millis());
        }
    }
    assert!((150_000..461_000).contains(&reports[0]), "{reports:?}");
    let gaps: Vec<_> = reports.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (300_000..=311_000).contains(gap)), "{gaps:?}");
    assert!((44..=50).contains(&assertions), "{assertions}");
}

#[test]
fn a_report_without_a_change_carries_only_heartbeats() {
    let mut script = Script::new();
    script.register();
    let report = std::iter::repeat_with(|| script.play_healthy(Lane::Status).1)
        .find(|operation| !is_assertion(operation))
        .unwrap();
    let body = body_of(&report);
    let conditions = body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 4);
    assert!(conditions.iter().all(|condition| condition.as_object().unwrap().len() == 2), "{body}");
}

#[test]
fn pressure_is_sent_at_the_next_look_with_an_event() {
    let mut script = Script::new();
    script.register();
    script.facts.readings.memory = Ok(MemoryUse { available_bytes: 1 << 20, source: MemorySource::CgroupV2 });
    let before = script.up;
    let (at_ms, operation) = script.play_healthy(Lane::Status);
    assert!(at_ms - before.as_millis() <= 10_400);
    let text = body_of(&operation).to_string();
    assert!(text.contains("KubeletHasInsufficientMemory"), "{text}");
    assert!(script.said.iter().any(|notice| notice.text.starts_with("NodeHasInsufficientMemory")));
}

#[test]
fn a_change_that_nobody_acknowledges_keeps_its_first_transition_time_and_tells_one_event() {
    let mut script = Script::new();
    script.register();
    script.press_memory(true);
    let (_, first) = script.play(Lane::Status, unreachable());
    let (_, second) = script.play(Lane::Status, unreachable());
    assert_eq!(transition(&first), transition(&second));
    let told = script.said.iter().filter(|notice| notice.text.starts_with("NodeHasInsufficientMemory")).count();
    assert_eq!(told, 1);
}

/// When `operation` says that memory pressure became what it is.
fn transition(operation: &Operation) -> String {
    let body = body_of(operation);
    let conditions = body["status"]["conditions"].as_array().unwrap();
    let memory = conditions.iter().find(|condition| condition["type"] == "MemoryPressure").unwrap();
    memory["lastTransitionTime"].as_str().unwrap().to_owned()
}

#[test]
fn a_change_that_the_answer_does_not_show_keeps_its_time_for_the_next_report() {
    let mut script = Script::new();
    script.register();
    script.press_memory(true);
    let mut made_anew = registered_node();
    made_anew.status.conditions.iter_mut().for_each(|condition| condition.status.clear());
    let (_, first) = script.play(Lane::Status, Ok(Document::Node(Box::new(made_anew))));
    let (_, second) = script.play_healthy(Lane::Status);
    assert_eq!(transition(&first), transition(&second));
}

#[test]
fn a_server_error_is_tried_five_times_with_a_fresh_base_and_then_rests() {
    let mut script = super::outage::settled();
    script.facts.network.interfaces[0].addresses[0].ip = IpAddr::from([10, 0, 0, 2]);
    let mut requests = Vec::new();
    let first = script.play(Lane::Status, refused(500, ""));
    requests.push(first.clone());
    for _ in 0..4 {
        requests.push(script.play_healthy(Lane::Status));
        requests.push(script.play(Lane::Status, refused(500, "")));
    }
    assert!(requests.iter().all(|(at_ms, _)| *at_ms == first.0));
    let mut last_ms = first.0;
    let verbs: Vec<_> = requests.iter().map(|(_, operation)| operation.verb()).collect();
    assert_eq!(verbs, ["PATCH", "GET", "PATCH", "GET", "PATCH", "GET", "PATCH", "GET", "PATCH"]);
    // From then on once a run.
    for _ in 0..3 {
        let (read_ms, read) = script.play_healthy(Lane::Status);
        let (patched_ms, patch) = script.play(Lane::Status, refused(500, ""));
        assert_eq!((read.verb(), patch.verb(), patched_ms), ("GET", "PATCH", read_ms));
        assert!((10_000..10_400).contains(&(read_ms - last_ms)), "{} ms", read_ms - last_ms);
        last_ms = read_ms;
    }
}

#[test]
fn looks_at_the_board_are_ten_seconds_apart_and_at_most_four_percent_more() {
    let mut script = Script::new();
    script.register();
    script.probes.clear();
    script.pass(Duration::from_secs(600));
    let gaps: Vec<_> = script.probes.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert!(gaps.len() > 50 && gaps.iter().all(|gap| (10_000..10_400).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().collect::<std::collections::BTreeSet<_>>().len() > 10, "no jitter: {gaps:?}");
}

/// How far apart the looks of two hours were, at most and on average, in milliseconds.
fn looks_with(settings: Settings) -> (u128, u128) {
    let mut script = Script::with(settings);
    script.register();
    script.pass(Duration::from_secs(30));
    script.probes.clear();
    script.pass(Duration::from_secs(7200));
    let gaps: Vec<_> = script.probes.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    (gaps.iter().max().copied().unwrap(), gaps.iter().sum::<u128>() / gaps.len() as u128)
}

#[test]
fn the_board_is_looked_at_every_ten_seconds_however_rare_reports_and_renewals_are() {
    let rare = Duration::from_secs(900);
    for (node_status_update_frequency, node_lease_duration_seconds) in [
        (rare, 40),
        (rare, 3600),
        (Duration::from_secs(10), 400),
        (Duration::from_secs(10), 3600),
        (Duration::from_secs(12), 40),
    ] {
        let settings = Settings { node_status_update_frequency, node_lease_duration_seconds, ..Settings::default() };
        let (most_ms, mean_ms) = looks_with(settings);
        assert!(
            most_ms <= 11_500 && mean_ms >= 9_000,
            "{node_status_update_frequency:?}, {node_lease_duration_seconds} s: {most_ms} ms at most, {mean_ms}"
        );
    }
}

#[test]
fn pressure_that_comes_while_a_report_hangs_is_seen_before_that_one_fails() {
    let mut script = Script::new();
    script.register();
    script.facts.network.interfaces[0].addresses[0].ip = IpAddr::from([10, 0, 0, 2]);
    let (_hanging, _) = script.next(Lane::Status);
    let sent = script.up;
    script.press_memory(true);
    while !script.said.iter().any(|notice| notice.text.starts_with("NodeHasInsufficientMemory")) {
        script.play_healthy(Lane::Lease);
        assert!(script.up < sent + Duration::from_secs(21), "nobody looked");
    }
}

#[test]
fn a_look_goes_with_every_renewal_however_far_apart_they_began_and_slow_the_answers() {
    for answer_ms in [0, 60, 600] {
        let mut script = Script::new();
        script.register();
        // A look between two renewals.
        script.pass(Duration::from_secs(15));
        script.agent.handle(Input::LinkChanged, script.now());
        script.pass(Duration::from_secs(1));
        script.probes.clear();
        let mut renewed = Vec::new();
        for _ in 0..30 {
            let (ticket, operation) = script.next(Lane::Lease);
            renewed.push(script.up);
            script.up += Duration::from_millis(answer_ms);
            let document = script.document(&operation);
            script.answer(ticket, Ok(document));
        }
        assert_eq!(script.probes, renewed, "{answer_ms}");
    }
}

#[test]
fn the_first_report_after_a_change_is_moved_by_up_to_half_its_period_either_way() {
    let first_report_ms = |seed| {
        let mut script = Script::new();
        let (journal, reset) = (Journal::recover(&[], 65_536, BOOT).0, LastReset::default());
        script.agent = Agent::new(Settings::default(), "n1".to_owned(), seed, journal, &reset, script.now());
        script.register();
        let started = script.up;
        loop {
            let (at_ms, operation) = script.play_healthy(Lane::Status);
            if !is_assertion(&operation) {
                return at_ms - started.as_millis();
            }
        }
    };
    let all: Vec<_> = (0..20).map(first_report_ms).collect();
    assert!(all.iter().all(|at_ms| (150_000..461_000).contains(at_ms)), "{all:?}");
    assert!(all.iter().any(|at_ms| *at_ms < 250_000) && all.iter().any(|at_ms| *at_ms > 350_000), "{all:?}");
}

#[test]
fn a_report_that_failed_is_due_again_at_every_run_until_it_is_taken() {
    let mut script = Script::new();
    script.register();
    let due = loop {
        let (ticket, operation) = script.next(Lane::Status);
        if !is_assertion(&operation) {
            break ticket;
        }
        script.answer(ticket, Ok(healthy(&operation)));
    };
    let (mut last, mut patches) = (script.up, 0);
    script.answer(due, refused(403, "Forbidden"));
    for _ in 0..3 {
        let (at_ms, operation) = script.play(Lane::Status, refused(403, "Forbidden"));
        assert!(!is_assertion(&operation) && (10_000..=10_400).contains(&(at_ms - last.as_millis())), "{operation:?}");
        last = script.up;
        patches += usize::from(matches!(operation, Operation::PatchStatus { .. }));
    }
    assert_eq!(patches, 3);
    script.play_healthy(Lane::Status);
    assert!(is_assertion(&script.play_healthy(Lane::Status).1), "taken: nothing is due");
}

#[test]
fn retry_after_postpones_a_try_without_spending_it_ten_times_at_most() {
    let mut script = Script::new();
    script.register();
    script.facts.network.interfaces[0].addresses[0].ip = IpAddr::from([10, 0, 0, 2]);
    let times: Vec<_> = (0..12).map(|_| script.play(Lane::Status, refused_after(429, 2)).0).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps[..10], [2000; 10]);
    assert!(gaps[10] >= 10_000, "the eleventh ends the run: {gaps:?}");
}

#[test]
fn what_would_be_refused_again_is_tried_once_a_run() {
    for code in [400, 401, 403, 404] {
        let mut script = Script::with(Settings { reregister: false, ..Settings::default() });
        script.register();
        script.facts.network.interfaces[0].addresses[0].ip = IpAddr::from([10, 0, 0, 2]);
        let (first, operation) = script.play(Lane::Status, refused(code, "Refused"));
        assert!(matches!(operation, Operation::PatchStatus { .. }), "{operation:?}");
        let (second, _) = script.play(Lane::Status, refused(code, "Refused"));
        let tries = if code == 400 { 0..=0 } else { 10_000..=10_400 };
        assert!(tries.contains(&(second - first)), "{code}: {} ms", second - first);
    }
}

#[test]
fn a_conflict_reads_once_and_tries_once_more() {
    let mut script = Script::new();
    script.register();
    script.facts.network.interfaces[0].addresses[0].ip = IpAddr::from([10, 0, 0, 2]);
    let (first, _) = script.play(Lane::Status, refused(409, "Conflict"));
    assert_eq!(script.play_healthy(Lane::Status).1.verb(), "GET");
    script.play(Lane::Status, refused(422, "Invalid"));
    assert!(script.play_healthy(Lane::Status).0 - first >= 10_000);
}

#[test]
fn a_surprising_resource_version_leads_to_one_look_and_the_repair() {
    let mut script = Script::new();
    script.register();
    let (ticket, operation) = std::iter::repeat_with(|| {
        let (ticket, operation) = script.next(Lane::Status);
        if !is_assertion(&operation) {
            script.answer(ticket, Ok(healthy(&operation)));
            return None;
        }
        Some((ticket, operation))
    })
    .flatten()
    .next()
    .unwrap();
    assert_eq!(body_of(&operation), json!({ "metadata": { "resourceVersion": "rv1" } }));
    script.answer(ticket, Ok(metadata("rv2")));
    let mut node = registered_node();
    node.metadata.labels.remove("kubernetes.io/arch");
    node.metadata.resource_version = "rv2".to_owned();
    assert_eq!(
        script.play(Lane::Status, Ok(Document::Node(Box::new(node)))).1,
        Operation::ReadNode { heartbeat: true }
    );
    let (_, repair) = script.play_healthy(Lane::Status);
    assert!(body_of(&repair)["metadata"]["labels"]["kubernetes.io/arch"].is_string());
}

#[test]
fn after_an_outage_two_requests_make_the_node_ready_lease_then_status() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    for _ in 0..20 {
        script.play(Lane::Lease, unreachable());
    }
    let (back_at, _) = script.play_healthy(Lane::Lease);
    let (reported_at, report) = script.play_healthy(Lane::Status);
    assert_eq!(back_at, reported_at);
    let body = body_of(&report);
    let conditions = body["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| condition.as_object().unwrap().len() == 6), "{body}");
    assert!(script.words().contains(&"uplink-restored"));
}

#[test]
fn while_the_lease_finds_no_server_status_does_not_try_either() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    let mut tries = 0;
    let until = script.up + Duration::from_secs(240);
    while script.up < until {
        let (sent, deadline) = script.drain();
        for (ticket, _) in sent {
            tries += usize::from(ticket.lane() == Lane::Status);
            script.answer(ticket, unreachable());
        }
        script.up = script.up.max(deadline.as_duration());
    }
    assert!(tries <= 2, "{tries} tries in four minutes");
}

#[test]
fn a_status_that_fails_while_leases_do_not_is_tried_at_each_look_and_no_faster() {
    for failure in [unreachable(), refused(403, "Forbidden")] {
        let mut script = Script::new();
        script.register();
        script.play_healthy(Lane::Lease);
        // After a gap there is something to report.
        script.up += Duration::from_secs(60);
        let start = script.up;
        let tries = std::iter::repeat_with(|| script.play(Lane::Status, failure.clone()).0);
        let tries = tries.take(100).take_while(|at_ms| *at_ms < start.as_millis() + 120_000).count();
        assert!((10..=13).contains(&tries), "{tries} tries in two minutes");
    }
}

#[test]
fn a_patch_that_may_have_been_done_is_repeated_whole() {
    for failure in [unreachable(), refused_after(504, 1)] {
        let mut script = Script::new();
        first_report(&mut script);
        script.play(Lane::Status, failure);
        let (_, repeat) = script.play_healthy(Lane::Status);
        let addresses = body_of(&repeat)["status"]["addresses"].as_array().unwrap().clone();
        assert_eq!(addresses.last(), Some(&serde_json::json!({"$patch": "replace"})));
        let (_, next) = script.play_healthy(Lane::Status);
        assert!(is_assertion(&next));
    }
}

/// Up to the moment before the first report.
fn first_report(script: &mut Script) {
    while !matches!(script.play_healthy(Lane::Status).1, Operation::CreateNode { .. }) {}
}

#[test]
fn a_cordon_its_end_and_another_cordon_are_three_events_without_a_report_in_between() {
    let hour = Duration::from_secs(3600);
    let mut script = Script::with(Settings { node_status_report_frequency: hour, ..Settings::default() });
    script.register();
    script.pass(Duration::from_secs(5));
    let (mut node, mut events) = (registered_node(), Vec::new());
    for (version, unschedulable) in [("rv2", true), ("rv3", false), ("rv4", true)] {
        node.spec.unschedulable = unschedulable;
        node.metadata.resource_version = version.to_owned();
        let noticed = script.up + Duration::from_secs(90);
        while script.up < noticed {
            let (sent, until) = script.drain();
            if sent.is_empty() {
                script.up = until.as_duration();
            }
            for (ticket, operation) in sent {
                let reply = match &operation {
                    Operation::ReadNode { .. } => Ok(Document::Node(Box::new(node.clone()))),
                    operation if is_assertion(operation) => Ok(metadata(version)),
                    Operation::PatchStatus { .. } => panic!("a report: {operation:?}"),
                    Operation::CreateEvent { .. } | Operation::PatchEvent { .. } => {
                        let body = body_of(&operation);
                        let reason = body["reason"].as_str().unwrap_or("repeat").to_owned();
                        events.push((reason, body["count"].as_u64().unwrap()));
                        script.reply(&operation)
                    }
                    _ => script.reply(&operation),
                };
                script.answer(ticket, reply);
            }
        }
    }
    let expected = [("NodeNotSchedulable", 1), ("NodeSchedulable", 1), ("repeat", 2)];
    assert_eq!(events, expected.map(|(reason, count)| (reason.to_owned(), count)));
}

#[test]
fn a_reservation_above_the_capacity_is_told_once_in_words() {
    let mut settings = Settings::default();
    settings.system_reserved.insert("memory", crate::config::quantity::Quantity::from_bytes(200 << 30)).unwrap();
    let mut script = Script::with(settings);
    script.register();
    script.pass(Duration::from_secs(1000));
    let told: Vec<_> = script.said.iter().filter(|notice| notice.word == "reserved-above-capacity").collect();
    assert!(
        matches!(told[..], [one] if one.level == Level::Warn && one.text.contains("of memory are reserved")),
        "{told:?}"
    );
}

#[test]
fn a_cordon_is_told_once() {
    let mut script = Script::new();
    script.register();
    let mut node = registered_node();
    node.spec.unschedulable = true;
    let report = std::iter::repeat_with(|| {
        let (ticket, operation) = script.next(Lane::Status);
        let document =
            if is_assertion(&operation) { healthy(&operation) } else { Document::Node(Box::new(node.clone())) };
        script.answer(ticket, Ok(document));
        operation
    })
    .find(|operation| !is_assertion(operation));
    assert!(report.is_some());
    for _ in 0..20 {
        script.play_healthy(Lane::Lease);
    }
    let told = script.said.iter().filter(|notice| notice.text.starts_with("NodeNotSchedulable")).count();
    assert_eq!(told, 1);
}

pub(super) fn is_whole(operation: &Operation) -> bool {
    let body = body_of(operation);
    let Some(conditions) = body["status"]["conditions"].as_array() else { return false };
    conditions.len() == 4 && conditions.iter().all(|condition| condition.as_object().unwrap().len() == 6)
}

#[test]
fn after_a_suspend_lease_and_whole_report_go_out_together() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    script.up += Duration::from_secs(3600);
    let (sent, _) = script.drain();
    let lanes: Vec<Lane> = sent.iter().map(|(ticket, _)| ticket.lane()).filter(|lane| *lane != Lane::Events).collect();
    assert_eq!(lanes, [Lane::Lease, Lane::Status]);
    let (_, report) = sent.iter().find(|(ticket, _)| ticket.lane() == Lane::Status).unwrap();
    assert!(is_whole(report), "{report:?}");
    for (ticket, operation) in sent {
        let document = healthy(&operation);
        script.answer(ticket, Ok(document));
    }
    assert!(matches!(script.play_healthy(Lane::Status).1, Operation::ReadNode { .. }), "what others wrote is read");
    assert!(is_assertion(&script.play_healthy(Lane::Status).1), "said once");
}

#[test]
fn a_status_that_only_itself_finds_no_answer_is_tried_once_a_run() {
    for result in [unreachable(), refused(500, "")] {
        let mut script = super::outage::settled();
        script.facts.network.interfaces[0].addresses[0].ip = IpAddr::from([10, 0, 0, 2]);
        let lost_at = script.play(Lane::Status, result.clone()).0;
        let until = script.up + Duration::from_secs(60);
        let mut tried_at = BTreeSet::from([lost_at]);
        while script.up < until {
            let (ticket, operation) = script.next(Lane::Status);
            let is_patch = matches!(operation, Operation::PatchStatus { .. });
            tried_at.insert(script.up.as_millis());
            script.answer(ticket, if is_patch { result.clone() } else { Ok(healthy(&operation)) });
        }
        let times: Vec<_> = tried_at.into_iter().collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 10_000), "{times:?}");
    }
}

#[test]
fn an_address_that_changes_is_sent_at_the_next_look_however_long_nothing_did() {
    let mut script = Script::new();
    script.register();
    for _ in 0..30 {
        script.play_healthy(Lane::Status);
    }
    script.facts.network.interfaces[0].addresses[0].ip = IpAddr::from([10, 0, 0, 2]);
    let before = script.up;
    let change = std::iter::repeat_with(|| script.play_healthy(Lane::Status))
        .find(|(_, operation)| !is_assertion(operation))
        .unwrap();
    assert!(change.0 - before.as_millis() <= 10_400);
    assert!(body_of(&change.1)["status"]["addresses"].to_string().contains("10.0.0.2"));
}
