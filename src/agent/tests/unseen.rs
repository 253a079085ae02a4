//! A Node of which others made more than is taken in (D4).

use super::*;
use crate::config::limits::NODE_BODY_BYTES;

fn too_long() -> Result<Document, Refusal> {
    Err(Refusal::Failed(Failure::body_too_large(NODE_BODY_BYTES)))
}

fn is_blind_report(operation: &Operation) -> bool {
    matches!(operation, Operation::PatchStatus { answer: PatchAnswer::Metadata, .. }) && is_whole(operation)
}

/// Every condition of ours with all its fields, capacity and addresses.
fn is_whole(operation: &Operation) -> bool {
    let status = &body_of(operation)["status"];
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_complete = |one: &Value| one["reason"].is_string() && one["lastTransitionTime"].is_string();
    let own = conditions.iter().filter(|one| is_complete(one)).count();
    own == 5 && status["capacity"]["cpu"] == "4" && status["addresses"].is_array()
}

#[test]
fn a_node_that_became_too_large_is_reported_without_being_read() {
    let mut script = Script::new();
    script.register();
    script.press_memory(true);
    let (_, report) = script.play(Lane::Status, too_long());
    assert!(matches!(report, Operation::PatchStatus { answer: PatchAnswer::Node, .. }), "{report:?}");
    assert_eq!(script.play(Lane::Status, Ok(metadata("rv5"))).1, Operation::ReadMetadata);
    let (_, blind) = script.play(Lane::Status, Ok(metadata("rv6")));
    assert!(is_blind_report(&blind), "{blind:?}");
    let memory = &body_of(&blind)["status"]["conditions"];
    assert!(memory.as_array().unwrap().iter().any(|one| one["type"] == "MemoryPressure" && one["status"] == "True"));
    assert_eq!(script.words().iter().filter(|word| **word == "node-too-large").count(), 1);
    // What follows asks for no more than the version, and finds the one that the report made.
    for operation in (0..20).map(|_| script.play(Lane::Status, Ok(metadata("rv6"))).1) {
        assert!(
            matches!(operation, Operation::PatchStatus { answer: PatchAnswer::Metadata | PatchAnswer::Nothing, .. }),
            "{operation:?}"
        );
    }
    // Somebody else wrote it: whatever that was, all of ours is stated again.
    while !matches!(script.play(Lane::Status, Ok(metadata("rv7"))).1, Operation::ReadMetadata) {}
    let (_, blind) = script.play(Lane::Status, Ok(metadata("rv8")));
    assert!(is_blind_report(&blind), "{blind:?}");
}

#[test]
fn a_node_that_is_too_large_at_the_start_gets_its_lease_and_its_status() {
    let mut script = Script::new();
    assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadVersion);
    assert!(matches!(script.play(Lane::Status, refused(409, "AlreadyExists")).1, Operation::CreateNode { .. }));
    assert_eq!(script.play(Lane::Status, too_long()).1, Operation::ReadNode { heartbeat: false });
    assert_eq!(script.play(Lane::Status, Ok(metadata("rv5"))).1, Operation::ReadMetadata);
    let (_, blind) = script.play(Lane::Status, Ok(metadata("rv6")));
    assert!(is_blind_report(&blind), "{blind:?}");
    assert!(matches!(script.play_healthy(Lane::Lease).1, Operation::ReadLease | Operation::RenewLease { .. }));
    let words = script.words();
    assert!(words.contains(&"node-too-large") && words.contains(&"registered"), "{words:?}");
    for word in ["failing", "uplink-restored", "taints-missing"] {
        assert!(!words.contains(&word), "{words:?}");
    }
}

#[test]
fn once_a_day_it_is_tried_again_whether_the_node_can_be_read() {
    let mut script = Script::new();
    script.register();
    script.press_memory(true);
    script.play(Lane::Status, too_long());
    let begun = script.up;
    let (read_ms, _) = loop {
        let (ticket, operation) = script.next(Lane::Status);
        let at_ms = script.up.as_millis();
        if matches!(operation, Operation::ReadNode { .. }) {
            break (at_ms, script.answer(ticket, Ok(Document::Node(Box::new(registered_node())))));
        }
        let reply = if operation == Operation::ReadVersion { healthy(&operation) } else { metadata("rv6") };
        script.answer(ticket, Ok(reply));
    };
    let hours = (read_ms - begun.as_millis()) / 3_600_000;
    assert!((23..=24).contains(&hours), "{hours} h later");
    let (_, report) = script.play_healthy(Lane::Status);
    assert!(matches!(report, Operation::PatchStatus { answer: PatchAnswer::Node, .. }), "{report:?}");
    let later = script.pass(Duration::from_secs(600));
    assert!(!later.contains(&Operation::ReadMetadata));
}
