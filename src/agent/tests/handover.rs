//! A process that ends in the middle of an outage, and what the next one does without asking.

use super::outage::{settled, waiting};
use super::*;
use crate::journal::Happened;
use crate::journal::record::KnownNode;

/// What is left for the next process, in memory.
fn left(script: &Script) -> Vec<KnownNode> {
    let known = |what: &Happened| match what {
        Happened::NodeKnown(known) => Some((**known).clone()),
        _ => None,
    };
    script.agent.world.memory.waiting().filter_map(|record| known(&record.what)).collect()
}

/// Killed and started again in an outage: 30 s after the beginning, in which memory ran short.
fn killed(boot: BootId) -> Script {
    let mut script = settled();
    script.offline(Duration::from_secs(60));
    script.press_memory(true);
    script.offline(Duration::from_secs(30));
    let up = script.up + Duration::from_secs(5);
    let mut script = script.restart(boot, up);
    script.press_memory(true);
    script
}

/// Killed, back, and Ready; but the answer shows a label that a registration would repair.
fn mislabelled() -> Script {
    let mut script = killed(BOOT);
    let mut node = registered_node();
    node.metadata.labels.insert("kubernetes.io/arch".to_owned(), "vax".to_owned());
    script.play_healthy(Lane::Lease);
    script.play(Lane::Status, Ok(Document::Node(Box::new(node))));
    script
}

/// Everything that is sent in `span`, and answered well by a server that has the Node already.
fn back(script: &mut Script, span: Duration) -> Vec<Wish> {
    script.stored.get_or_insert_with(registered_node);
    script.pass(span)
}

#[test]
fn after_a_kill_in_an_outage_lease_and_true_status_come_first_and_alone_for_ten_seconds() {
    let mut script = killed(BOOT);
    script.offline(Duration::from_secs(100));
    let changed =
        waiting(&script).iter().find(|record| matches!(record.what, Happened::ConditionChanged { .. })).cloned();
    let changed = changed.unwrap().at.wall.unwrap().to_seconds_stamp();
    let sent = back(&mut script, Duration::from_secs(9));
    let [Wish::RenewLease { body: lease, .. }, Wish::PatchStatus { body: report, .. }] = sent.as_slice() else {
        panic!("{sent:?}")
    };
    let lease: Value = serde_json::from_str(lease).unwrap();
    assert_eq!(lease["spec"].as_object().unwrap().len(), 1, "{lease}");
    assert!(lease["metadata"]["resourceVersion"].is_string(), "{lease}");
    let status = &serde_json::from_str::<Value>(report).unwrap()["status"];
    let since: Vec<(&str, &str)> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| (condition["status"].as_str().unwrap(), condition["lastTransitionTime"].as_str().unwrap()))
        .collect();
    let registered = registered_node();
    let first = |kind: usize| registered.status.conditions[kind].last_transition_time.clone().unwrap();
    assert_eq!(since, [("True", &*changed), ("False", &first(1)), ("False", &first(2)), ("True", &first(3))]);
    assert_eq!(status["capacity"]["cpu"], "4", "nobody asked whether the rest is as it was: {report}");
    assert_eq!(status["nodeInfo"]["kubeletVersion"], "v1.36.3-nodepulse.0.1.0", "{report}");
    assert_eq!(left(&script), []);
}

#[test]
fn what_is_left_is_on_disk_with_the_beginning_of_the_outage_and_forgotten_at_its_end() {
    let mut script = settled();
    let writes = script.disk.writes;
    script.offline(Duration::from_secs(60));
    assert_eq!(script.disk.writes, writes + 1);
    let known = left(&script);
    let [KnownNode { uid, server_version, lease_duration_seconds, .. }] = known.as_slice() else { panic!("{known:?}") };
    assert_eq!((uid.as_str(), server_version.as_str(), *lease_duration_seconds), ("uid1", "v1.36.3", 40));
    let journal = Journal::recover(&script.disk.bytes, 65_536, BOOT).0;
    let kept: Vec<_> = journal.waiting().map(|record| record.what.clone()).collect();
    assert_eq!(kept[1..], [Happened::NodeKnown(Box::new(known[0].clone()))]);
    script.pass(Duration::from_secs(20));
    assert_eq!(left(&script), []);
}

#[test]
fn a_report_that_gets_through_while_renewals_do_not_is_what_is_left_then() {
    let mut script = settled();
    script.offline(Duration::from_secs(30));
    let before = left(&script);
    script.press_memory(true);
    for _ in 0..2000 {
        let (sent, until) = script.drain();
        for (ticket, wish) in sent {
            match ticket.lane() {
                Lane::Status => {
                    let document = script.document(&wish);
                    script.answer(ticket, Ok(document));
                }
                _ => script.answer_unreachable(ticket),
            }
        }
        script.up = until.as_duration().max(script.up);
        if left(&script) != before {
            break;
        }
    }
    let [KnownNode { conditions, .. }] = left(&script).try_into().unwrap();
    assert_eq!(conditions[0].0, crate::journal::Status::True);
}

#[test]
fn after_a_reboot_everything_is_asked_for() {
    let mut script = killed(BootId(2));
    let sent = script.pass(Duration::from_secs(5));
    assert!(matches!(sent[..2], [Wish::ReadVersion, Wish::CreateNode { .. }]), "{sent:?}");
    script.pass(Duration::from_secs(60));
    assert_eq!(left(&script), []);
}

#[test]
fn without_a_boot_id_everything_is_asked_for() {
    let mut script = Script::on(Disk::default(), Settings::default(), BootId(0), START, Duration::ZERO);
    script.register();
    script.pass(Duration::from_secs(30));
    script.offline(Duration::from_secs(60));
    let up = script.up;
    let sent = script.restart(BootId(0), up).pass(Duration::from_secs(5));
    assert_eq!(sent[0], Wish::ReadVersion);
}

#[test]
fn a_clock_that_was_known_to_be_wrong_is_not_believed_by_the_next_process_either() {
    for error_seconds in [86_400, -86_400] {
        let mut script = settled();
        script.clock_error_seconds = error_seconds;
        let (ticket, _) = script.next(Lane::Lease);
        let date = Some(script.booted.plus(script.up));
        let (uid, resource_version, transitions) = ("uid1".to_owned(), "8".to_owned(), script.transitions);
        let result = Ok(Document::Metadata { uid, resource_version, lease_duration_seconds: None, transitions });
        script.agent.handle(Input::Answered(ticket, Answer { date, result }), script.now());
        script.offline(Duration::from_secs(60));
        let last = left(&script)[0].renewed;
        let up = script.up + Duration::from_secs(5);
        let mut script = Script { clock_error_seconds: error_seconds, ..script.restart(BOOT, up) };
        let (_, wish) = script.next(Lane::Lease);
        let renewed = Wall::parse_stamp(body_of(&wish)["spec"]["renewTime"].as_str().unwrap()).unwrap();
        assert!(renewed > last && renewed.since(script.booted.plus(script.up)) < Duration::from_secs(1), "{renewed}");
        assert!(script.booted.plus(script.up).since(renewed) < Duration::from_secs(1), "{renewed}");
    }
}

#[test]
fn a_node_that_was_deleted_meanwhile_is_registered_again() {
    let mut script = killed(BOOT);
    script.play_healthy(Lane::Lease);
    script.play(Lane::Status, refused(404, "NotFound"));
    assert_eq!(script.play(Lane::Status, refused(404, "NotFound")).1, Wish::ReadNode { heartbeat: false });
    assert!(matches!(script.play_healthy(Lane::Status).1, Wish::CreateNode { .. }));
}

#[test]
fn a_lease_that_somebody_wrote_meanwhile_is_left_alone_until_the_node_is_known_to_be_ours() {
    let mut script = killed(BOOT);
    script.lease_version += 1;
    assert!(matches!(script.play_healthy(Lane::Lease).1, Wish::RenewLease { .. }));
    // The status lane is next, and until it has its answer nothing is asked of the Lease.
    let (ticket, asked) = script.next(Lane::Status);
    assert_eq!(asked, Wish::ReadNode { heartbeat: true });
    let (sent, _) = script.drain();
    assert!(sent.is_empty(), "{sent:?}");
    let mut theirs = registered_node();
    theirs.status.node_info.machine_id = "another".to_owned();
    script.answer(ticket, Ok(Document::Node(Box::new(theirs))));
    assert_eq!(script.next(Lane::Status).1, Wish::ReadLease, "watching whether that one lives");
    assert!(script.words().contains(&"stranger"), "{:?}", script.words());
}

#[test]
fn what_a_registration_would_repair_is_repaired_once_the_node_is_ready() {
    let mut script = mislabelled();
    assert_eq!(script.play_healthy(Lane::Status).1, Wish::ReadVersion);
    let (_, repair) = script.play_healthy(Lane::Status);
    assert!(body_of(&repair)["metadata"]["labels"]["kubernetes.io/arch"].is_string(), "{repair:?}");
}

#[test]
fn a_lease_whose_duration_was_changed_in_between_is_made_right() {
    let script = killed(BOOT);
    let settings = Settings { node_lease_duration_seconds: 80, ..Settings::default() };
    let mut script = Script::on(script.disk, settings, BOOT, script.booted, script.up);
    let sent = script.pass(Duration::from_secs(9));
    assert_eq!(sent[0], Wish::ReadVersion, "as at any start");
    let renewal = sent.iter().find(|wish| matches!(wish, Wish::RenewLease { .. })).unwrap();
    assert_eq!(body_of(renewal)["spec"]["leaseDurationSeconds"], 80, "{sent:?}");
}

#[test]
fn a_repair_that_fails_is_no_reason_to_ask_without_end_while_leases_and_the_disk_fail_too() {
    let mut script = mislabelled();
    let (repair, _) = script.next(Lane::Status);
    script.disk.hangs = true;
    script.play(Lane::Lease, unreachable());
    script.facts.readings.node_file_system.as_mut().unwrap().available_bytes = 0;
    script.answer(repair, unreachable());
    let (end, mut asked) = (script.up + Duration::from_secs(30), 0);
    while script.up < end && asked < 100 {
        let (sent, until) = script.drain();
        if sent.is_empty() {
            script.up = until.as_duration();
        }
        for (ticket, wish) in sent {
            if ticket.lane() != Lane::Status {
                script.answer_unreachable(ticket);
                continue;
            }
            asked += 1;
            let reply = script.reply(&wish);
            script.answer(ticket, reply);
        }
    }
    assert!(asked < 15, "{asked} requests");
}

#[test]
fn a_lease_that_somebody_wrote_while_rights_were_missing_is_found_at_once_where_the_node_was_read() {
    let mut script = killed(BOOT);
    script.stored.get_or_insert_with(registered_node);
    script.play(Lane::Lease, refused(403, "Forbidden"));
    while !matches!(script.play_healthy(Lane::Status).1, Wish::ReadNode { .. }) {}
    script.play_healthy(Lane::Status);
    let (at_ms, resumed) = script.play(Lane::Lease, refused(409, "Conflict"));
    assert!(body_of(&resumed)["metadata"]["resourceVersion"].is_string(), "{resumed:?}");
    assert_eq!(script.play_healthy(Lane::Lease), (at_ms, Wish::ReadLease));
    assert!(matches!(script.play_healthy(Lane::Lease), (renewed_ms, Wish::RenewLease { .. }) if renewed_ms == at_ms));
}
