//! How a Node comes to be (REG-*, D1, D10).

use super::*;
use crate::journal::{Record, Status};

/// Plays the version request and answers the first attempt's POST.
fn first_attempt(script: &mut Script, result: Result<Document, Refusal>) -> (u128, Operation) {
    assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadVersion);
    script.play(Lane::Status, result)
}

#[test]
fn a_new_node_is_created_whole_after_a_hundred_milliseconds() {
    let mut script = Script::new();
    let (at_ms, create) = first_attempt(&mut script, refused(500, ""));
    assert_eq!(at_ms, 100);
    let body = body_of(&create);
    assert_eq!(body["kind"], "Node");
    assert_eq!(body["status"]["conditions"].as_array().unwrap().len(), 5);
    assert_eq!(
        body["status"]["nodeInfo"]["kubeletVersion"],
        format!("v1.36.3-{}", crate::api::USER_AGENT.replace('/', "."))
    );
}

/// The reasons of all events of so long.
fn events_of(script: &mut Script, span: Duration) -> Vec<String> {
    let sent = script.pass(span);
    let events = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. }));
    events.map(|event| body_of(event)["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_a_new_node_has_to_say_is_told_once_there_is_one() {
    let mut script = Script::new();
    first_attempt(&mut script, refused(500, ""));
    script.play(Lane::Status, refused(500, ""));
    assert!(script.agent.shared.fresh_events.is_empty());
    let told = events_of(&mut script, Duration::from_secs(60));
    let told: Vec<&str> = told.iter().map(String::as_str).filter(|reason| *reason != "Starting").collect();
    assert_eq!(told, ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]);
}

#[test]
fn a_condition_that_was_another_on_the_node_that_was_there_already_is_told_once() {
    let mut script = Script::new();
    let mut there = registered_node();
    for condition in there.status.conditions.iter_mut().filter(|condition| condition.kind == "MemoryPressure") {
        condition.status = "True".to_owned();
        condition.reason = "KubeletHasInsufficientMemory".to_owned();
    }
    first_attempt(&mut script, refused(409, "AlreadyExists"));
    script.play(Lane::Status, Ok(Document::Node(Box::new(there))));
    let told = events_of(&mut script, Duration::from_secs(120));
    assert_eq!(told.iter().filter(|reason| *reason == "NodeHasSufficientMemory").count(), 1, "{told:?}");
}

#[test]
fn attempts_double_their_distance_up_to_seven_seconds() {
    let mut script = Script::new();
    let mut times = vec![first_attempt(&mut script, refused(500, "")).0];
    times.extend((0..8).map(|_| script.play(Lane::Status, refused(500, "")).0));
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
}

#[test]
fn a_version_that_may_not_be_read_does_not_stop_registration() {
    let mut script = Script::new();
    script.play(Lane::Status, refused(403, "Forbidden"));
    let (asked_ms, look) = script.play(Lane::Status, refused(404, "NotFound"));
    assert_eq!((asked_ms, look), (100, Operation::ReadNode { heartbeat: false }));
    assert!(matches!(script.play_healthy(Lane::Status).1, Operation::CreateNode { .. }));
}

#[test]
fn a_version_that_cannot_be_read_right_now_is_waited_for() {
    let mut script = Script::new();
    let (asked_at, _) = script.play(Lane::Status, refused_after(503, 2));
    let (asked_again_at, again) = script.play_healthy(Lane::Status);
    assert_eq!((again, asked_again_at - asked_at), (Operation::ReadVersion, 2000));
    assert!(matches!(script.play_healthy(Lane::Status).1, Operation::CreateNode { .. }));
}

#[test]
fn without_register_node_the_version_is_waited_for_as_well() {
    let mut script = Script::with(Settings { register_node: false, ..Settings::default() });
    let (asked_at, first) = script.play(Lane::Status, refused_after(503, 2));
    let (asked_again_at, again) = script.play_healthy(Lane::Status);
    assert_eq!((first, again, asked_again_at - asked_at), (Operation::ReadVersion, Operation::ReadVersion, 2000));
    assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadNode { heartbeat: true });
}

#[test]
fn an_existing_node_that_is_up_to_date_is_read_and_reported_to_once() {
    for (code, reason) in [(409, "AlreadyExists"), (403, "Forbidden")] {
        let mut script = Script::new();
        first_attempt(&mut script, refused(code, reason));
        assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadNode { heartbeat: false });
        assert!(matches!(script.play_healthy(Lane::Status).1, Operation::PatchStatus { .. }));
    }
}

#[test]
fn a_node_with_needless_managers_is_stripped_once_before_its_first_report_whatever_the_server_says_to_that() {
    let node = |has_needless_managers| {
        let mut node = registered_node();
        node.metadata.has_needless_managers = has_needless_managers;
        Ok(Document::Node(Box::new(node)))
    };
    for answer in [node(false), node(true), refused(403, "Forbidden"), refused(409, "Conflict"), unreachable()] {
        for is_new in [true, false] {
            let mut script = Script::new();
            first_attempt(&mut script, if is_new { node(true) } else { refused(409, "AlreadyExists") });
            if !is_new {
                script.play(Lane::Status, node(true));
            }
            assert_eq!(script.play(Lane::Status, answer.clone()).1, Operation::StripNode);
            let rest = script.pass(Duration::from_secs(900));
            assert!(!rest.contains(&Operation::StripNode), "{answer:?}");
            assert!(rest.iter().any(|operation| matches!(operation, Operation::PatchStatus { .. })), "{answer:?}");
        }
    }
}

#[test]
fn the_patience_that_is_asked_for_by_who_would_not_strip_it_holds_back_the_first_report_and_no_lease() {
    let mut script = Script::new();
    let mut tracked = registered_node();
    tracked.metadata.has_needless_managers = true;
    first_attempt(&mut script, Ok(Document::Node(Box::new(tracked))));
    let (asked_at, _) = script.play(Lane::Status, refused_after(429, 5));
    assert_eq!(script.play_healthy(Lane::Lease), (asked_at, Operation::ReadLease));
    assert_eq!(script.play_healthy(Lane::Status).0 - asked_at, 5000);
}

#[test]
fn a_conflict_that_is_not_already_exists_is_a_failed_attempt() {
    let mut script = Script::new();
    first_attempt(&mut script, refused(409, "Conflict"));
    assert!(matches!(script.play_healthy(Lane::Status).1, Operation::CreateNode { .. }));
}

#[test]
fn every_other_failure_is_a_failed_attempt_without_a_look_at_the_node() {
    for result in [refused(409, "Conflict"), refused(500, ""), refused(429, ""), refused(422, "Invalid"), unreachable()]
    {
        let mut script = Script::new();
        let (failed_at, _) = first_attempt(&mut script, result);
        let (tried_at, operation) = script.play_healthy(Lane::Status);
        assert!(matches!(operation, Operation::CreateNode { .. }));
        assert_eq!(tried_at - failed_at, 200);
    }
}

#[test]
fn an_attempt_waits_as_long_as_the_server_asks_and_no_longer_than_half_a_minute() {
    let mut script = Script::new();
    let (first, _) = first_attempt(&mut script, refused_after(429, 3));
    let (second, _) = script.play(Lane::Status, refused_after(503, 3600));
    let (third, _) = script.play_healthy(Lane::Status);
    assert_eq!([second - first, third - second], [3000, 30_000]);
}

#[test]
fn an_attempt_without_a_time_to_stamp_sends_nothing_and_the_next_one_comes() {
    let mut script = Script::new();
    script.has_clock = false;
    let asked = script.pass(Duration::from_secs(60));
    assert!(
        asked.iter().all(|operation| *operation == Operation::ReadVersion),
        "for the time that comes with it: {asked:?}"
    );
    assert!(script.probes.len() > 8 && asked.len() == script.probes.len() + 3, "tried at {:?}", script.probes);
    script.has_clock = true;
    let after = std::iter::repeat_with(|| script.play_healthy(Lane::Status).1)
        .find(|operation| *operation != Operation::ReadVersion);
    assert!(matches!(after, Some(Operation::CreateNode { .. })));
}

#[test]
fn the_answer_to_the_registration_is_the_base_of_the_first_report() {
    let mut script = Script::new();
    first_attempt(&mut script, Ok(Document::Node(Box::new(registered_node()))));
    let (_, report) = script.play_healthy(Lane::Status);
    assert!(matches!(report, Operation::PatchStatus { .. }), "no look at the Node in between");
}

#[test]
fn a_new_node_is_ready_in_its_first_object_and_nothing_has_to_hurry() {
    let mut script = Script::new();
    let (_, create) = first_attempt(&mut script, Ok(Document::Node(Box::new(registered_node()))));
    let ready = body_of(&create)["status"]["conditions"][4].clone();
    assert_eq!([&ready["type"], &ready["status"], &ready["reason"]], ["Ready", "True", "KubeletReady"]);
    let sent = script.pass(Duration::from_secs(45));
    assert_eq!(sent.iter().filter(|operation| matches!(operation, Operation::PatchStatus { .. })).count(), 1);
}

#[test]
fn a_node_that_goes_missing_in_an_outage_is_looked_for_after_it() {
    let mut script = Script::with(Settings { register_node: false, ..Settings::default() });
    script.register();
    script.play_healthy(Lane::Lease);
    script.play(Lane::Status, unreachable());
    let (status, _) = script.next(Lane::Status);
    script.play(Lane::Lease, unreachable());
    script.answer(status, refused(404, "NotFound"));
    let missed_at = script.up;
    assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadNode { heartbeat: true });
    assert!(script.up - missed_at <= Duration::from_millis(10_400));
}

#[test]
fn what_a_registration_puts_right_is_in_the_first_report_until_one_is_accepted() {
    let mut script = Script::new();
    first_attempt(&mut script, refused(409, "AlreadyExists"));
    let mut node = registered_node();
    let labels = &mut node.metadata.labels;
    labels.insert("kubernetes.io/hostname".to_owned(), "wrong".to_owned());
    script.play(Lane::Status, Ok(Document::Node(Box::new(node.clone()))));
    let hostname = |operation: &Operation| body_of(operation)["metadata"]["labels"]["kubernetes.io/hostname"].clone();
    let (_, report) = script.play(Lane::Status, refused(409, "Conflict"));
    assert_eq!(hostname(&report), "n1");
    assert_eq!(
        script.play(Lane::Status, Ok(Document::Node(Box::new(node.clone())))).1,
        Operation::ReadNode { heartbeat: true }
    );
    let (_, report) = script.play(Lane::Status, Ok(Document::Node(Box::new(node))));
    assert_eq!(hostname(&report), "n1", "once more, as that one was refused");
    let later = script.pass(Duration::from_secs(100));
    let again = later
        .iter()
        .filter(|operation| matches!(operation, Operation::PatchStatus { .. }))
        .any(|operation| hostname(operation) == "n1");
    assert!(!again, "whoever changes it after that has his way (REC-2)");
}

#[test]
fn a_reading_that_fails_is_a_failed_attempt() {
    let mut script = Script::new();
    first_attempt(&mut script, refused(409, "AlreadyExists"));
    script.play(Lane::Status, refused(404, "NotFound"));
    assert!(matches!(script.play_healthy(Lane::Status).1, Operation::CreateNode { .. }));
}

/// The stored Node of a board with another serial number, and how the Lease looks at the two looks taken.
fn stranger(leases: [&str; 2]) -> (Script, Operation) {
    let mut script = Script::new();
    first_attempt(&mut script, refused(409, "AlreadyExists"));
    let mut node = registered_node();
    node.status.node_info.machine_id = "ffffffffffffffffffffffffffffffff".to_owned();
    script.play(Lane::Status, Ok(Document::Node(Box::new(node))));
    for renew_time in leases {
        let mut stored = lease(Some("uid1"));
        stored.spec.renew_time = renew_time.to_owned();
        let (_, operation) = script.play(Lane::Status, Ok(Document::Lease(Box::new(stored))));
        assert_eq!(operation, Operation::ReadLease);
    }
    let (_, next) = script.next(Lane::Status);
    (script, next)
}

#[test]
fn a_name_that_another_living_machine_holds_is_left_to_it() {
    let (script, next) = stranger(["2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:10.000000Z"]);
    assert!(script.up >= Duration::from_secs(300), "asked again after {:?}", script.up);
    assert_eq!(next, Operation::ReadNode { heartbeat: true });
    assert!(script.words().contains(&"name-taken"));
    let standing = script.agent.status_line();
    assert!(standing.is_settled && standing.text.contains("holds the name n1"), "{standing:?}");
}

#[test]
fn a_name_whose_machine_is_gone_is_taken_over() {
    let (script, next) = stranger(["2026-01-01T00:00:00.000000Z"; 2]);
    assert!(script.up < Duration::from_secs(30));
    assert!(matches!(next, Operation::PatchStatus { .. }));
    assert!(script.words().contains(&"stranger-gone"));
}

#[test]
fn without_register_node_nothing_is_created_and_the_node_is_waited_for() {
    let mut script = Script::with(Settings { register_node: false, ..Settings::default() });
    script.play_healthy(Lane::Status);
    assert_eq!(script.play(Lane::Status, refused(404, "NotFound")).1, Operation::ReadNode { heartbeat: true });
    assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadNode { heartbeat: true });
    assert!(matches!(script.play_healthy(Lane::Status).1, Operation::PatchStatus { .. }));
    let (_, lease) = script.play_healthy(Lane::Lease);
    assert!(matches!(lease, Operation::ReadLease | Operation::RenewLease { .. }));
}

#[test]
fn without_register_node_no_lease_is_dated_by_a_clock_that_nobody_has_compared() {
    let mut script = Script::with(Settings { register_node: false, ..Settings::default() });
    script.clock_error_seconds = 3600;
    // Nobody says the version, and the Node comes with a wrong time.
    let (ticket, read) = loop {
        match script.next(Lane::Status) {
            (ticket, Operation::ReadVersion) => script.answer_unreachable(ticket),
            other => break other,
        }
    };
    let date = Wall::parse_http_date("Fri, 01 Jun 2035 00:00:00 GMT");
    let result = Ok(script.document(&read));
    script.agent.handle(Input::Answered(ticket, Answer { date, result }), script.now());
    let (asked, _) = script.drain();
    let lanes: Vec<Lane> = asked.iter().map(|(ticket, _)| ticket.lane()).collect();
    assert_eq!(lanes, [Lane::Status], "the time is asked for first: {asked:?}");
    for (ticket, operation) in asked {
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
    }
    script.play_healthy(Lane::Lease);
    let renewed = body_of(&script.next(Lane::Lease).1)["spec"]["renewTime"].clone();
    assert_eq!(renewed, script.wall(0).unwrap().to_micro_stamp());
}

#[test]
fn a_deleted_node_is_registered_again_and_its_lease_gets_the_new_owner() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    script.play(Lane::Status, refused(404, "NotFound"));
    assert_eq!(script.play(Lane::Status, refused(404, "NotFound")).1, Operation::ReadNode { heartbeat: false });
    let (ticket, create) = script.next(Lane::Status);
    assert!(matches!(create, Operation::CreateNode { .. }));
    let mut node = registered_node();
    node.metadata.uid = "uid2".to_owned();
    script.answer(ticket, Ok(Document::Node(Box::new(node))));
    let (sent, _) = script.drain();
    let (_, adopt) = sent.into_iter().find(|(ticket, _)| ticket.lane() == Lane::Lease).unwrap();
    assert!(body_of(&adopt)["metadata"]["ownerReferences"].to_string().contains("uid2"));
}

#[test]
fn a_node_that_is_made_anew_has_the_sizes_that_were_known_where_they_cannot_be_read_now() {
    let mut script = Script::new();
    script.register();
    script.facts.machine.cpu_count = Err(Absent::new("proc/cpuinfo", crate::probe::Why::Empty));
    script.pass(Duration::from_secs(11));
    script.play(Lane::Status, refused(404, "NotFound"));
    script.play(Lane::Status, refused(404, "NotFound"));
    let status = body_of(&script.next(Lane::Status).1)["status"].clone();
    assert_eq!((&status["capacity"]["cpu"], &status["conditions"][4]["status"]), (&"4".into(), &"True".into()));
}

#[test]
fn with_reregister_off_a_deleted_node_is_only_missed() {
    let mut script = Script::with(Settings { reregister: false, ..Settings::default() });
    script.register();
    script.play(Lane::Status, refused(404, "NotFound"));
    assert!(!matches!(script.play(Lane::Status, refused(404, "NotFound")).1, Operation::CreateNode { .. }));
}

#[test]
fn a_version_that_was_answered_before_a_sleep_is_asked_for_again_as_it_says_no_time() {
    let mut script = Script::new();
    script.clock_error_seconds = 86_400;
    let (ticket, operation) = script.next(Lane::Status);
    assert_eq!(operation, Operation::ReadVersion);
    let date = script.wall(0);
    script.up += Duration::from_secs(60);
    let result = Ok(Document::Version("v1.36.3".to_owned()));
    script.agent.handle(Input::Answered(ticket, Answer { date, result }), script.now());
    for _ in 0..2 {
        assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadVersion, "two have to agree");
    }
    let (_, created) = script.play_healthy(Lane::Status);
    let heard = script.wall(0).unwrap().to_seconds_stamp();
    assert_eq!(body_of(&created)["status"]["conditions"][3]["lastTransitionTime"], heard);
}

#[test]
fn a_node_is_not_dated_by_one_reply_whose_date_is_wrong() {
    for (board_seconds, asked) in [(0, 2), (86_400, 3), (-400 * 86_400, 3)] {
        let mut script = Script::new();
        script.clock_error_seconds = board_seconds;
        let (ticket, _) = script.next(Lane::Status);
        let date = Wall::parse_http_date("Fri, 01 Jun 2035 00:00:00 GMT");
        let result = Ok(Document::Version("v1.36.3".to_owned()));
        script.agent.handle(Input::Answered(ticket, Answer { date, result }), script.now());
        for _ in 1..asked {
            assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadVersion, "{board_seconds}");
        }
        let created = body_of(&script.play_healthy(Lane::Status).1);
        let since = script.wall(0).unwrap().to_seconds_stamp();
        assert_eq!(created["status"]["conditions"][3]["lastTransitionTime"], since, "{board_seconds}");
    }
}

#[test]
fn a_node_that_a_kubelet_left_is_cleared_and_what_only_an_administrator_can_mend_is_told_once() {
    let mut script = Script::new();
    first_attempt(&mut script, refused(409, "AlreadyExists"));
    let mut node = registered_node();
    node.status.node_info.kubelet_version = "v1.36.3".to_owned();
    node.status.node_info.kube_proxy_version = "v1.36.3".to_owned();
    node.metadata.labels.clear();
    node.spec.taints.clear();
    script.play(Lane::Status, Ok(Document::Node(Box::new(node))));
    let (_, report) = script.play_healthy(Lane::Status);
    let body = body_of(&report);
    for key in ["images", "volumesInUse", "runtimeHandlers", "features", "declaredFeatures"] {
        assert_eq!(body["status"].get(key), Some(&Value::Null), "{key}: {body}");
    }
    assert_eq!(body["status"]["nodeInfo"]["kubeProxyVersion"], "");
    assert_eq!(body["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"], "podless");
    assert_eq!(body.get("spec"), None, "a node may not");
    script.play(Lane::Status, refused(404, "NotFound"));
    script.pass(Duration::from_secs(60));
    let told = |word: &str| script.said.iter().filter(|notice| notice.word == word).collect::<Vec<_>>();
    let (taints, pods) = (told("taints-missing"), told("kubelet-left"));
    assert_eq!((taints.len(), pods.len()), (1, 1), "{:?}", script.said);
    assert!(taints[0].text.contains("kubectl taint nodes n1 nodepulse.dev/podless:NoSchedule"), "{taints:?}");
    assert!(
        pods[0].text.contains("kubectl delete pods --all-namespaces --field-selector spec.nodeName=n1 "),
        "{pods:?}"
    );
}

#[test]
fn a_lease_that_is_gone_while_a_report_is_on_its_way_leads_to_a_look_at_the_node_after_it() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    script.press_memory(true);
    let (report, operation) = script.next(Lane::Status);
    assert!(matches!(operation, Operation::PatchStatus { .. }), "{operation:?}");
    script.play(Lane::Lease, refused(404, "NotFound"));
    let document = script.document(&operation);
    script.answer(report, Ok(document));
    let answered_at = script.up;
    script.next(Lane::Status);
    assert!(script.up - answered_at < Duration::from_secs(1), "asked {:?} later", script.up - answered_at);
}

#[test]
fn a_node_that_was_made_without_what_an_earlier_look_had_read_changes_after_that() {
    let mut script = Script::new();
    script.play(Lane::Status, refused_after(503, 20));
    script.facts.machine.cpu_count = Err(Absent::new("proc/cpuinfo", crate::probe::Why::Empty));
    let (ticket, create) = loop {
        let (ticket, operation) = script.next(Lane::Status);
        if matches!(operation, Operation::CreateNode { .. }) {
            break (ticket, operation);
        }
        script.answer(ticket, Ok(healthy(&operation)));
    };
    let mut node: Node = serde_json::from_value(body_of(&create)).unwrap();
    assert!(!node.is_ready());
    "uid-1".clone_into(&mut node.metadata.uid);
    let made = script.up;
    script.answer(ticket, Ok(Document::Node(Box::new(node))));
    let is_ready = |record: &&Record| matches!(&record.what, Happened::ConditionChanged { to: Status::True, .. });
    let change = script.agent.shared.records.waiting().find(is_ready).unwrap();
    assert!(change.at.up.as_duration() >= made, "{change:?}, made at {made:?}");
}
