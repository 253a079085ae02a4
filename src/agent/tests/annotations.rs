//! What the owner of a fleet would have to ask each board for: the end of its certificate, and what its network took on the last
//! day. Both go along with reports, and bring about none.

use super::status::is_assertion;
use super::*;
use crate::node::report::{CERTIFICATE_EXPIRY, NETWORK_BYTES};

const HOUR: Duration = Duration::from_secs(3600);

/// What a server keeps of a PATCH.
pub(super) fn keep(node: &mut Node, patch: &Value) {
    for (name, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
        node.metadata.annotations.remove(name);
        node.metadata.annotations.extend(value.as_str().map(|value| (name.clone(), value.to_owned())));
    }
}

fn stored<'a>(script: &'a Script, name: &str) -> Option<&'a str> {
    script.stored.as_ref().unwrap().metadata.annotations.get(name).map(String::as_str)
}

fn reports(sent: &[Operation]) -> usize {
    let is_report = |one: &&Operation| matches!(one, Operation::PatchStatus { .. }) && !is_assertion(one);
    sent.iter().filter(is_report).count()
}

/// 2026-01-01 is the 20,454th day.
fn day(number: i64, bytes: u64) -> Day {
    let mut day = Day { number, seconds: 86_400, ..Day::default() };
    *day.of(Purpose::Lease).unwrap() = crate::api::traffic::Sum { count: 8640, bytes };
    day
}

#[test]
fn a_node_says_when_its_certificate_ends_and_with_the_next_report_when_its_successor_does() {
    let mut script = Script::new();
    expiring::give(&mut script, 101);
    let sent = script.pass(HOUR);
    let created = sent.iter().find(|one| matches!(one, Operation::CreateNode { .. })).map(body_of).unwrap();
    assert_eq!(created["metadata"]["annotations"][CERTIFICATE_EXPIRY], "2026-01-05T04:00:00Z");
    expiring::give(&mut script, 201);
    script.pass(HOUR / 60);
    assert_eq!(stored(&script, CERTIFICATE_EXPIRY), Some("2026-01-05T04:00:00Z"), "it is worth no report");
    script.pass(HOUR / 10);
    assert_eq!(stored(&script, CERTIFICATE_EXPIRY), Some("2026-01-09T08:00:00Z"));
    // A token ends otherwise.
    let now = script.now();
    script.agent.handle(Input::Credentials(CredentialDates::default()), now);
    script.pass(HOUR);
    assert_eq!(stored(&script, CERTIFICATE_EXPIRY), None);
}

#[test]
fn a_node_says_what_its_network_took_on_the_last_day_that_is_over() {
    // The other has nothing to say.
    let [mut script, mut other] = [Script::new(), Script::new()];
    script.counted = Some([day(20_454, 7), Day::default()]);
    for board in [&mut script, &mut other] {
        board.register();
        board.pass(HOUR);
    }
    assert_eq!(stored(&script, NETWORK_BYTES), None, "there is no such day");
    script.counted = Some([day(20_454, 7), day(20_453, 3_190_123)]);
    let [said, silent] = [&mut script, &mut other].map(|board| reports(&board.pass(HOUR)));
    assert_eq!(said, silent, "it goes along with those that are due");
    let said = r#"{"bytes":3190123,"day":"2025-12-31"}"#;
    assert_eq!(stored(&script, NETWORK_BYTES), Some(said));
    // Of a day that nobody can name, or that was not counted, nothing is said.
    for unknown in [day(0, 5), Day { number: 20_455, ..Day::default() }] {
        script.counted = Some([day(20_456, 7), unknown]);
        script.pass(HOUR);
        assert_eq!(stored(&script, NETWORK_BYTES), Some(said));
    }
    script.counted = None;
    script.pass(HOUR);
    assert_eq!(stored(&script, NETWORK_BYTES), Some(said), "it stands until there is another");
}
