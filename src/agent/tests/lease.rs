//! What the Lease lane sends, and when (LSE-*, D3, D5).

use super::*;

fn renew_time(operation: &Operation) -> String {
    body_of(operation)["spec"]["renewTime"].as_str().unwrap().to_owned()
}

#[test]
fn nothing_is_sent_before_the_node_exists() {
    let mut script = Script::new();
    let (_hanging, _) = script.next(Lane::Status);
    assert!(script.drain().0.iter().all(|(ticket, _)| ticket.lane() != Lane::Lease));
}

#[test]
fn a_new_nodes_lease_is_looked_for_in_the_moment_the_node_exists() {
    let mut script = Script::new();
    let (asked_at, operation) = script.play(Lane::Lease, refused(404, "NotFound"));
    assert_eq!((asked_at, operation), (100, Operation::ReadLease), "registration takes its first pause, and no longer");
    assert_eq!(script.play_healthy(Lane::Lease).0, asked_at, "created at once");
}

#[test]
fn a_lease_that_is_ours_is_stripped_and_renewed_by_patch() {
    let mut script = Script::new();
    assert_eq!(script.play_healthy(Lane::Lease).1, Operation::ReadLease);
    let (_, first) = script.play_healthy(Lane::Lease);
    assert_eq!(body_of(&first)["metadata"]["managedFields"], serde_json::json!([{}]));
    let (_, second) = script.play_healthy(Lane::Lease);
    assert_eq!(body_of(&second).as_object().unwrap().keys().collect::<Vec<_>>(), ["spec"]);
    assert_eq!(body_of(&second)["spec"].as_object().unwrap().len(), 1);
}

#[test]
fn renewals_are_ten_seconds_apart_and_at_most_four_percent_more() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    let times: Vec<_> = (0..50).map(|_| script.play_healthy(Lane::Lease).0).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (10_000..10_400).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().collect::<std::collections::BTreeSet<_>>().len() > 10, "no jitter: {gaps:?}");
}

#[test]
fn a_missing_lease_is_created_with_its_owner_at_once() {
    let mut script = Script::new();
    let (asked_at, _) = script.play(Lane::Lease, refused(404, "NotFound"));
    let (created_at, create) = script.play_healthy(Lane::Lease);
    assert!(matches!(create, Operation::CreateLease { .. }));
    assert_eq!(asked_at, created_at);
    let body = body_of(&create);
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "uid1");
    assert_eq!(body["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(body["spec"]["holderIdentity"], "n1");
}

#[test]
fn the_first_renewal_of_a_created_lease_strips_it() {
    let mut script = Script::new();
    script.play(Lane::Lease, refused(404, "NotFound"));
    script.play_healthy(Lane::Lease);
    let (_, first) = script.play_healthy(Lane::Lease);
    assert_eq!(body_of(&first)["metadata"]["managedFields"], serde_json::json!([{}]));
    let (_, second) = script.play_healthy(Lane::Lease);
    assert!(body_of(&second).get("metadata").is_none());
}

#[test]
fn a_lease_whose_creation_was_not_answered_is_stripped_as_well() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    script.play(Lane::Lease, refused(404, "NotFound"));
    assert!(matches!(script.play(Lane::Lease, refused(502, "")).1, Operation::CreateLease { .. }));
    script.play(Lane::Lease, refused(409, "AlreadyExists"));
    assert_eq!(script.play_healthy(Lane::Lease).1, Operation::ReadLease);
    let (_, first) = script.play_healthy(Lane::Lease);
    assert_eq!(body_of(&first)["metadata"]["managedFields"], serde_json::json!([{}]));
}

#[test]
fn a_lease_deleted_meanwhile_is_created_within_the_same_beat() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let (lost_at, _) = script.play(Lane::Lease, refused(404, "NotFound"));
    let (created_at, create) = script.play_healthy(Lane::Lease);
    assert!(matches!(create, Operation::CreateLease { .. }));
    assert_eq!(lost_at, created_at);
    assert!(script.words().contains(&"lease-missing"));
}

#[test]
fn a_writer_who_was_faster_is_read_again() {
    let mut script = Script::new();
    script.play(Lane::Lease, refused(404, "NotFound"));
    script.play(Lane::Lease, refused(409, "AlreadyExists"));
    assert_eq!(script.play_healthy(Lane::Lease).1, Operation::ReadLease);
}

#[test]
fn a_lease_with_another_owner_or_duration_is_adopted() {
    let mut short = lease(Some("uid1"));
    short.spec.lease_duration_seconds = Some(5);
    for stored in [lease(None), lease(Some("another")), short] {
        let mut script = Script::new();
        script.play(Lane::Lease, Ok(Document::Lease(Box::new(stored))));
        let body = body_of(&script.play_healthy(Lane::Lease).1);
        assert!(body["metadata"]["ownerReferences"].to_string().contains("uid1"), "{body}");
        assert_eq!(body["spec"]["leaseDurationSeconds"], 40);
        assert_eq!(body["spec"]["holderIdentity"], "n1");
    }
}

#[test]
fn a_conflict_looks_at_the_lease_again_at_once() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let (conflict_at, _) = script.play(Lane::Lease, refused(409, "Conflict"));
    let look = script.play_healthy(Lane::Lease);
    let (renewed_at, renewal) = script.play_healthy(Lane::Lease);
    assert_eq!(look, (conflict_at, Operation::ReadLease));
    assert!(matches!(renewal, Operation::RenewLease { .. }) && renewed_at == conflict_at);
}

#[test]
fn renew_time_never_goes_back_behind_what_the_server_holds() {
    let mut script = Script::new();
    let mut future = lease(Some("uid1"));
    future.spec.renew_time = "2026-06-01T00:00:00.000000Z".to_owned();
    script.play(Lane::Lease, Ok(Document::Lease(Box::new(future))));
    assert_eq!(renew_time(&script.play_healthy(Lane::Lease).1), "2026-06-01T00:00:00.000001Z");
    assert_eq!(renew_time(&script.play_healthy(Lane::Lease).1), "2026-06-01T00:00:00.000002Z");
}

#[test]
fn a_server_error_is_tried_five_times_and_then_backed_off() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let times: Vec<_> = (0..13).map(|_| script.play(Lane::Lease, refused(500, "")).0).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [0, 0, 0, 0, 200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
}

#[test]
fn a_lost_server_is_tried_once_more_at_once_and_then_ever_less() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let times: Vec<_> = (0..40).map(|_| script.play(Lane::Lease, unreachable()).0).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps[0], 0);
    assert!(gaps.iter().all(|gap| *gap <= 7000), "{gaps:?}");
    let late = &gaps[7..];
    let mean = late.iter().sum::<u128>() / late.len() as u128;
    assert!((2500..4500).contains(&mean), "anywhere in seven seconds: {gaps:?}");
    assert!(late.iter().any(|gap| *gap < 1000) && late.iter().any(|gap| *gap > 6000), "{gaps:?}");
    assert!(script.drops > 0);
}

#[test]
fn idle_connections_go_once_with_the_fifth_failure_of_a_server_that_cannot_be_reached() {
    for (result, drops) in [(unreachable as fn() -> _, 1), (|| refused(500, ""), 0), (|| refused(403, "Forbidden"), 0)]
    {
        let mut script = Script::new();
        script.play_healthy(Lane::Lease);
        script.play_healthy(Lane::Lease);
        let seen: Vec<usize> = (0..8)
            .map(|_| {
                script.play(Lane::Lease, result());
                script.drops
            })
            .collect();
        assert_eq!((seen[3], seen[7]), (0, drops), "{seen:?}");
    }
}

#[test]
fn retry_after_is_obeyed_up_to_the_ceiling_and_costs_no_try() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let (first, _) = script.play(Lane::Lease, refused_after(429, 2));
    let (second, _) = script.play(Lane::Lease, refused_after(503, 3600));
    let (third, _) = script.play(Lane::Lease, refused(500, ""));
    let (fourth, _) = script.play_healthy(Lane::Lease);
    assert_eq!([second - first, third - second, fourth - third], [2000, 7000, 0]);
}

#[test]
fn a_server_that_says_something_else_between_may_ask_for_patience_as_often_again() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    for _ in 0..3 {
        let times: Vec<_> = (0..9).map(|_| script.play(Lane::Lease, refused_after(429, 2)).0).collect();
        // Somebody wrote the Lease: it is read, adopted and renewed, of which the last is refused again.
        let (conflict, _) = script.play(Lane::Lease, refused(409, "Conflict"));
        let (look, operation) = script.play(Lane::Lease, refused_after(429, 2));
        assert_eq!((operation.verb(), look - conflict), ("GET", 0));
        let (again, _) = script.play_healthy(Lane::Lease);
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!((gaps, conflict - times[8], again - look), (vec![2000; 8], 2000, 2000));
    }
}

#[test]
fn missing_rights_are_named_and_credentials_read_again() {
    let mut script = Script::new();
    script.play(Lane::Lease, refused(403, "Forbidden"));
    script.drain();
    assert_eq!(script.reloads, 1);
    let line = script.said.iter().find(|notice| notice.word == "failing").unwrap();
    assert!(line.text.contains("`get leases`") && line.text.contains("system:node:n1"), "{}", line.text);
}

#[test]
fn a_missing_right_is_backed_off_from_the_first_refusal_on() {
    for code in [401, 403] {
        let mut script = Script::new();
        script.play_healthy(Lane::Lease);
        script.play_healthy(Lane::Lease);
        let times: Vec<_> = (0..9).map(|_| script.play(Lane::Lease, refused(code, "Refused")).0).collect();
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps, [200, 400, 800, 1600, 3200, 6400, 7000, 7000], "{code}");
    }
}

#[test]
fn a_hanging_status_request_does_not_delay_a_renewal() {
    let mut script = Script::new();
    script.register();
    let (_hanging, _) = script.next(Lane::Status);
    let times: Vec<_> = (0..5).map(|_| script.play_healthy(Lane::Lease).0).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] < 10_400), "{times:?}");
}

#[test]
fn a_duration_from_reloaded_settings_is_on_the_lease_at_once_and_renewed_in_its_rhythm() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let settings = Settings { node_lease_duration_seconds: 120, ..Settings::default() };
    script.agent.handle(Input::Reloaded(Box::new(settings)), script.now());
    let reloaded_at = script.up.as_millis();
    let (asserted_at, adopted) = script.play_healthy(Lane::Lease);
    assert_eq!(body_of(&adopted)["spec"]["leaseDurationSeconds"], 120);
    assert_eq!(asserted_at, reloaded_at);
    let (renewed_at, renewal) = script.play_healthy(Lane::Lease);
    assert_eq!(body_of(&renewal)["spec"].as_object().unwrap().len(), 1);
    assert!((30_000..31_200).contains(&(renewed_at - asserted_at)), "{renewed_at}");
}

#[test]
fn a_duration_that_somebody_else_wrote_is_ours_again_with_the_next_renewal_and_no_sooner() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let says = |seconds| {
        let (uid, resource_version) = ("uid1".to_owned(), "8".to_owned());
        Ok(Document::Metadata { uid, resource_version, lease_duration_seconds: Some(seconds), transitions: 1 })
    };
    let specs: Vec<_> = [40, 3600, 3600, 40, 40]
        .map(|seconds| {
            let (at_ms, operation) = script.play(Lane::Lease, says(seconds));
            (at_ms, body_of(&operation)["spec"]["leaseDurationSeconds"].as_u64())
        })
        .into();
    let asserted: Vec<_> = specs.iter().map(|(_, seconds)| *seconds).collect();
    assert_eq!(asserted, [None, None, Some(40), Some(40), None], "a writer that insists is answered no faster");
    assert!(specs.windows(2).all(|pair| (10_000..10_400).contains(&(pair[1].0 - pair[0].0))), "{specs:?}");
}

#[test]
fn an_authority_that_may_have_been_replaced_is_read_again_now_and_then() {
    let untrusted = || Err(Refusal::Failed(Failure::new("tls-unknown-issuer", "signed by nobody")));
    let mut script = Script::new();
    let until = script.up + Duration::from_secs(100);
    while script.up < until {
        script.play(Lane::Lease, untrusted());
    }
    assert_eq!(script.reloads, 4, "at once and then every half minute");
}

#[test]
fn looking_for_a_lease_or_creating_it_backs_off_from_the_first_failure_on() {
    for is_missing in [false, true] {
        let mut script = Script::new();
        if is_missing {
            script.play(Lane::Lease, refused(404, "NotFound"));
        }
        let times: Vec<_> = (0..9).map(|_| script.play(Lane::Lease, refused(503, "")).0).collect();
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps, [200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
    }
}

#[test]
fn no_lease_is_kept_or_made_for_a_node_that_is_gone() {
    let mut script = Script::with(Settings { reregister: false, ..Settings::default() });
    script.register();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    while script.play(Lane::Status, refused(404, "NotFound")).1 != (Operation::ReadNode { heartbeat: true }) {}
    let gone_at = script.up;
    while script.up < gone_at + Duration::from_secs(60) {
        let (sent, until) = script.drain();
        for (ticket, operation) in sent {
            assert_ne!(ticket.lane(), Lane::Lease, "{operation:?}");
            script.answer(ticket, refused(404, "NotFound"));
        }
        script.up = script.up.max(until.as_duration());
    }
    script.play_healthy(Lane::Status);
    assert!(matches!(script.play_healthy(Lane::Lease).1, Operation::RenewLease { .. }), "the Node is there again");
}

/// A Lease is held, and then no server is found until the link changes.
fn back_after_ten_failures() -> Script {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    for _ in 0..10 {
        script.play(Lane::Lease, unreachable());
    }
    script.agent.handle(Input::LinkChanged, script.now());
    script
}

#[test]
fn a_link_that_comes_back_ends_a_back_off_but_not_the_patience_a_server_asked_for() {
    let mut script = back_after_ten_failures();
    let before = script.up.as_millis();
    let (asked_at, _) = script.play(Lane::Lease, refused_after(503, 5));
    assert_eq!(asked_at, before);
    script.agent.handle(Input::LinkChanged, script.now());
    assert_eq!(script.play_healthy(Lane::Lease).0 - asked_at, 5000);
}

#[test]
fn a_network_that_knows_no_way_at_first_is_tried_as_often_as_after_a_first_failure() {
    let mut script = back_after_ten_failures();
    let back_at = script.up.as_millis();
    let last = (0..5).map(|_| script.play(Lane::Lease, unreachable()).0).last().unwrap();
    // At once, and after pauses of at most 200, 400, 800 and 1,600 ms.
    assert!(last - back_at <= 3000, "{}", last - back_at);
}

#[test]
fn a_missing_lease_makes_the_status_lane_ask_for_the_node_at_once() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let (lost_at, _) = script.play(Lane::Lease, refused(404, "NotFound"));
    let (asked_at, operation) = script.play(Lane::Status, refused(404, "NotFound"));
    assert_eq!((asked_at, operation.verb()), (lost_at, "PATCH"));
    assert_eq!(script.play(Lane::Status, refused(404, "NotFound")).1, Operation::ReadNode { heartbeat: false });
    assert!(matches!(script.next(Lane::Status).1, Operation::CreateNode { .. }));
}

#[test]
fn an_answer_that_waited_while_the_board_slept_does_not_tell_the_time() {
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    let (ticket, operation) = script.next(Lane::Lease);
    let date = script.wall(0);
    script.up += Duration::from_secs(200);
    let document = script.document(&operation);
    script.agent.handle(Input::Answered(ticket, Answer { date, result: Ok(document) }), script.now());
    let (_, report) = script.next(Lane::Status);
    let heartbeat = script.now().wall.unwrap().to_seconds_stamp();
    assert_eq!(body_of(&report)["status"]["conditions"][0]["lastHeartbeatTime"], heartbeat);
}

#[test]
fn an_answer_that_waited_does_not_keep_a_board_whose_clock_is_behind_it_from_hearing_the_time() {
    let mut script = Script::new();
    script.clock_error_seconds = -50_000;
    let (ticket, _) = script.next(Lane::Status);
    let server = script.wall(0);
    script.up += Duration::from_secs(60);
    let document = Ok(Document::Version("v1.36.3".to_owned()));
    let answer = Answer { date: server, result: document };
    let now = script.now();
    script.agent.handle(Input::Answered(ticket, answer), now);
    for _ in 0..2 {
        assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadVersion, "nobody bears it out");
    }
    let (_, created) = script.next(Lane::Status);
    let since = &body_of(&created)["status"]["conditions"][0]["lastTransitionTime"];
    assert_eq!(*since, script.wall(0).unwrap().to_seconds_stamp(), "not fourteen hours ago");
}

/// Answers the next request of `lane` well, with this `Date`.
fn play_dated(script: &mut Script, lane: Lane, date: Wall) -> Operation {
    let (ticket, operation) = script.next(lane);
    let result = script.reply(&operation);
    script.agent.handle(Input::Answered(ticket, Answer { date: Some(date), result }), script.now());
    operation
}

/// When the conditions of each report were true, as it says.
fn heartbeats(operations: &[Operation]) -> Vec<String> {
    let reports = operations.iter().filter(|operation| matches!(operation, Operation::PatchStatus { .. })).map(body_of);
    let stamps = reports.filter_map(|body| {
        Some(
            body["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == "Ready")?["lastHeartbeatTime"]
                .as_str()?
                .to_owned(),
        )
    });
    stamps.collect()
}

#[test]
fn a_renew_time_that_has_no_later_one_falls_back_to_the_present_and_two_reports_bear_it_out() {
    for end in ["9999-12-31T23:59:59.999999Z", "10000-01-01T00:00:00.000000Z"] {
        let mut script = Script::new();
        let mut last = lease(Some("uid1"));
        last.spec.renew_time = end.to_owned();
        script.play(Lane::Lease, Ok(Document::Lease(Box::new(last))));
        let first = script.play_healthy(Lane::Lease).1;
        assert!(renew_time(&first).starts_with("2026-01-01T00:00:0"), "{first:?}");
        let reported = heartbeats(&script.pass(Duration::from_secs(15)));
        assert_eq!(reported.iter().collect::<std::collections::BTreeSet<_>>().len(), 2, "{reported:?}");
        let silent = heartbeats(&script.pass(Duration::from_secs(45)));
        assert_eq!(silent, [""; 0], "from then on the renewals are enough");
    }
}

#[test]
fn the_renewal_before_the_last_of_all_stamps_is_still_later() {
    let mut script = Script::new();
    let mut future = lease(Some("uid1"));
    future.spec.renew_time = "9999-12-31T23:59:59.999997Z".to_owned();
    script.play(Lane::Lease, Ok(Document::Lease(Box::new(future))));
    assert_eq!(renew_time(&script.play_healthy(Lane::Lease).1), "9999-12-31T23:59:59.999998Z");
    assert_eq!(renew_time(&script.play_healthy(Lane::Lease).1), "9999-12-31T23:59:59.999999Z");
    assert!(renew_time(&script.play_healthy(Lane::Lease).1).starts_with("2026-01-01T00:00:2"));
}

#[test]
fn one_wrong_date_dates_nothing() {
    let wrong = Wall::parse_http_date("Fri, 31 Dec 9999 23:59:59 GMT").unwrap();
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    play_dated(&mut script, Lane::Lease, wrong);
    for _ in 0..3 {
        assert!(renew_time(&script.play_healthy(Lane::Lease).1).starts_with("2026-01-01T00:00:"));
    }
}

#[test]
fn a_server_whose_clock_was_at_the_end_of_all_stamps_for_a_while_is_renewed_at_in_the_present_again() {
    let end = Wall::parse_http_date("Fri, 31 Dec 9999 23:59:50 GMT").unwrap();
    let mut script = Script::new();
    script.register();
    script.play_healthy(Lane::Lease);
    let right = script.booted;
    let off = end.since(script.wall(0).unwrap());
    script.booted = right.plus(off);
    script.clock_error_seconds = -i64::try_from(off.as_secs()).unwrap();
    let renewals: Vec<Operation> = (0..5).map(|_| script.play_healthy(Lane::Lease).1).collect();
    assert_eq!(renew_time(&renewals[4]), "9999-12-31T23:59:59.999999Z", "as late as can be written: {renewals:?}");
    script.booted = right;
    script.clock_error_seconds = 0;
    script.play_healthy(Lane::Lease);
    let back = script.play_healthy(Lane::Lease).1;
    assert!(renew_time(&back).starts_with("2026-01-01T00:0"), "{back:?}");
}

#[test]
fn a_machine_that_slept_with_a_renewal_in_flight_reports_over_whatever_others_wrote_meanwhile() {
    let mut script = Script::new();
    script.register();
    (0..3).for_each(|_| drop(script.play_healthy(Lane::Lease)));
    let (in_flight, _) = script.next(Lane::Lease);
    script.up += Duration::from_secs(90);
    let (sent, _) = script.drain();
    let report = sent.iter().find(|(ticket, _)| ticket.lane() == Lane::Status).map(|(_, operation)| operation);
    assert!(report.is_some_and(super::status::is_whole), "{sent:?}");
    assert!(sent.iter().all(|(ticket, _)| ticket.lane() != Lane::Lease), "one at a time: {sent:?}");
    script.answer(in_flight, unreachable());
    assert!(matches!(script.next(Lane::Lease).1, Operation::RenewLease { .. }));
}
