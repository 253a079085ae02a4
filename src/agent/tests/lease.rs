//! What the Lease lane sends, and when (LSE-*, D3, D5).

use super::*;

fn renew_time(wish: &Wish) -> String {
    body_of(wish)["spec"]["renewTime"].as_str().unwrap().to_owned()
}

#[test]
fn nothing_is_sent_before_the_node_exists() {
    let mut script = Script::new();
    let (status, _) = script.next(Lane::Status);
    assert!(script.drain().0.iter().all(|(ticket, _)| ticket.lane() != Lane::Lease));
    drop(status);
}

#[test]
fn a_lease_that_is_ours_is_stripped_and_renewed_by_patch() {
    let mut script = Script::new();
    assert_eq!(script.play_healthy(Lane::Lease).1, Wish::ReadLease);
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
}

#[test]
fn a_missing_lease_is_created_with_its_owner_at_once() {
    let mut script = Script::new();
    let (asked_at, _) = script.play(Lane::Lease, refused(404, "NotFound"));
    let (created_at, create) = script.play_healthy(Lane::Lease);
    assert!(matches!(create, Wish::CreateLease { .. }));
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
fn a_lease_deleted_meanwhile_is_created_within_the_same_beat() {
    let mut script = Script::new();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    let (lost_at, _) = script.play(Lane::Lease, refused(404, "NotFound"));
    let (created_at, create) = script.play_healthy(Lane::Lease);
    assert!(matches!(create, Wish::CreateLease { .. }));
    assert_eq!(lost_at, created_at);
    assert!(script.words().contains(&"lease-missing"));
}

#[test]
fn a_writer_who_was_faster_is_read_again() {
    let mut script = Script::new();
    script.play(Lane::Lease, refused(404, "NotFound"));
    script.play(Lane::Lease, refused(409, "AlreadyExists"));
    assert_eq!(script.play_healthy(Lane::Lease).1, Wish::ReadLease);
}

#[test]
fn a_lease_with_another_owner_or_duration_is_adopted() {
    for stored in [lease(None), lease(Some("another")), {
        let mut short = lease(Some("uid1"));
        short.spec.lease_duration_seconds = Some(5);
        short
    }] {
        let mut script = Script::new();
        script.play(Lane::Lease, Ok(Document::Lease(Box::new(stored))));
        let body = body_of(&script.play_healthy(Lane::Lease).1);
        assert!(body["metadata"]["ownerReferences"].to_string().contains("uid1"), "{body}");
        assert_eq!(body["spec"]["leaseDurationSeconds"], 40);
    }
}

#[test]
fn renew_time_never_goes_back_behind_what_the_server_holds() {
    let mut script = Script::new();
    let mut future = lease(Some("uid1"));
    future.spec.renew_time = Some("2026-06-01T00:00:00.000000Z".to_owned());
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
    assert!(gaps[10..].iter().all(|gap| *gap >= 3500), "{gaps:?}");
    assert!(script.drops > 0);
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
fn missing_rights_are_named_and_credentials_read_again() {
    let mut script = Script::new();
    script.play(Lane::Lease, refused(403, "Forbidden"));
    script.drain();
    assert_eq!(script.reloads, 1);
    let line = script.said.iter().find(|notice| notice.word == "failing").unwrap();
    assert!(line.text.contains("`get leases`") && line.text.contains("system:node:n1"), "{}", line.text);
}

#[test]
fn a_hanging_status_request_does_not_delay_a_renewal() {
    let mut script = Script::new();
    script.register();
    let (hanging, _) = script.next(Lane::Status);
    let times: Vec<_> = (0..5).map(|_| script.play_healthy(Lane::Lease).0).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] < 10_400), "{times:?}");
    drop(hanging);
}
