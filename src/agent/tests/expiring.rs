//! The end of the client certificate: a condition where there is one, told once, and over with its successor (ROT-7).

use super::*;
use crate::identity::Renewal;

const HOUR: Duration = Duration::from_secs(3600);

/// From an hour before the start for so long, and never renewed by itself.
fn with_certificate(hours: u32) -> Script {
    let mut script = Script::with(Settings { rotate_certificates: false, ..Settings::default() });
    give(&mut script, hours);
    script.register();
    script
}

pub(super) fn give(script: &mut Script, hours: u32) {
    let (start, end) = (START.minus(HOUR), START.minus(HOUR).plus(HOUR * hours));
    let renewal = Some(Renewal { start, end, due: end });
    let now = script.now();
    script.agent.handle(Input::Credentials(CredentialDates { renewal, ..CredentialDates::default() }), now);
}

/// What the server has of it.
fn stored(script: &Script) -> Option<(&str, &str)> {
    let conditions = &script.stored.as_ref().unwrap().status.conditions;
    let found = conditions.iter().find(|one| one.kind == "CertificateExpiring")?;
    Some((&found.status, &found.message))
}

fn events(sent: &[Operation]) -> Vec<String> {
    let created = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. }));
    let reasons = created.map(|operation| body_of(operation)["reason"].as_str().unwrap().to_owned());
    reasons.filter(|reason| reason.starts_with("Certificate")).collect()
}

#[test]
fn the_end_of_a_certificate_is_a_condition_for_the_last_quarter_of_its_life() {
    let mut script = with_certificate(4);
    assert_eq!(events(&script.pass(HOUR + HOUR * 9 / 10)), [""; 0]);
    assert_eq!(stored(&script), None);
    let sent = script.pass(HOUR / 5);
    assert_eq!(events(&sent), ["CertificateExpiresSoon"]);
    assert_eq!(stored(&script), Some(("True", "Client certificate expires soon: 2026-01-01T03:00:00Z")));
    assert_eq!(events(&script.pass(HOUR)), [""; 0], "once");
    // A successor.
    give(&mut script, 100);
    assert_eq!(events(&script.pass(HOUR / 10)), ["CertificateIsValid"]);
    assert_eq!(stored(&script), Some(("False", "Client certificate does not expire soon")));
}

#[test]
fn a_board_that_starts_with_one_that_ends_says_so_and_one_without_says_nothing() {
    let mut script = with_certificate(1);
    script.pass(HOUR / 10);
    assert_eq!(stored(&script).map(|(status, _)| status), Some("True"));
    // A token in its place: nobody knows better.
    let now = script.now();
    script.agent.handle(Input::Credentials(CredentialDates::default()), now);
    script.pass(HOUR / 10);
    assert_eq!(stored(&script).map(|(status, _)| status), Some("True"));
    let mut without = Script::new();
    without.register();
    without.pass(HOUR);
    assert_eq!(stored(&without), None);
}

/// In an outage, with a successor before anybody heard of it.
#[test]
fn what_came_and_went_unseen_is_told_and_nothing_is_owed_for_it() {
    let mut script = with_certificate(4);
    script.pass(HOUR);
    script.offline(HOUR + HOUR / 2);
    give(&mut script, 100);
    script.offline(HOUR / 10);
    let sent = script.pass(HOUR / 5);
    assert_eq!(events(&sent), ["CertificateExpiresSoon", "CertificateIsValid"]);
    assert_ne!(stored(&script).map(|(status, _)| status), Some("True"));
    let reports = script
        .pass(HOUR / 2)
        .iter()
        .filter(|operation| matches!(operation, Operation::PatchStatus { answer: PatchAnswer::Node, .. }))
        .count();
    assert!(reports <= 8, "{reports} reports in half an hour");
}
