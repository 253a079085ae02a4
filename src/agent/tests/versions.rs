//! What is sent under the condition that nobody else has written the Node, and what its refusal leads to (D4).

use super::status::is_assertion;
use super::*;

impl Script {
    /// Whether a PATCH of the status names another version than the server has.
    pub(super) fn is_of_another_version(&self, operation: &Operation) -> bool {
        let (Operation::PatchStatus { body, .. }, Some(stored)) = (operation, &self.stored) else { return false };
        let patch: Value = serde_json::from_str(body).unwrap();
        let named = &patch["metadata"]["resourceVersion"];
        named.is_string() && *named != *stored.metadata.resource_version
    }

    /// The answer to a look at it, once others have written it.
    pub(super) fn node_as_stored(&self, operation: &Operation) -> Option<Document> {
        let is_look = matches!(operation, Operation::ReadNode { .. });
        self.stored.clone().filter(|_| is_look).map(|node| Document::Node(Box::new(node)))
    }
}

fn conflict() -> Result<Document, Refusal> {
    refused(409, "Conflict")
}

fn read() -> Operation {
    Operation::ReadNode { heartbeat: true }
}

/// Up to the next request of the status lane that is, or is not, an assertion.
fn next(script: &mut Script, wants_assertion: bool) -> (Ticket, Operation) {
    loop {
        let (ticket, operation) = script.next(Lane::Status);
        if is_assertion(&operation) == wants_assertion {
            return (ticket, operation);
        }
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
    }
}

fn registered() -> Script {
    let mut script = Script::new();
    script.stored = Some(registered_node());
    script.register();
    script.said.clear();
    script
}

#[test]
fn an_assertion_of_another_version_leads_to_one_look_in_that_moment_and_no_complaint() {
    let mut script = registered();
    let (ticket, operation) = next(&mut script, true);
    assert_eq!(body_of(&operation)["metadata"]["resourceVersion"], "rv1");
    script.stored.as_mut().unwrap().metadata.resource_version = "rv2".to_owned();
    let asserted = script.up;
    script.answer(ticket, conflict());
    let (ticket, operation) = script.next(Lane::Status);
    assert_eq!((script.up, &operation), (asserted, &read()));
    let node = script.stored.clone().unwrap();
    script.answer(ticket, Ok(Document::Node(Box::new(node))));
    let (_, operation) = next(&mut script, true);
    assert_eq!(body_of(&operation)["metadata"]["resourceVersion"], "rv2");
    assert!(script.up - asserted > Duration::from_secs(54), "not before it is due: {:?}", script.up - asserted);
    assert!(!script.words().contains(&"failing"), "{:?}", script.words());
}

#[test]
fn a_report_without_a_change_asks_for_no_more_than_its_version() {
    let mut script = registered();
    let (ticket, report) = next(&mut script, false);
    assert!(matches!(report, Operation::PatchStatus { answer: PatchAnswer::Metadata, .. }), "{report:?}");
    assert_eq!(body_of(&report)["metadata"]["resourceVersion"], "rv1");
    script.answer(ticket, Ok(metadata("rv2")));
    let (ticket, operation) = script.next(Lane::Status);
    assert_eq!(body_of(&operation), json!({ "metadata": { "resourceVersion": "rv2" } }), "what it made is known");
    script.answer(ticket, Ok(Document::Nothing));
    // What changes is answered whole.
    script.press_memory(true);
    let (_, report) = next(&mut script, false);
    assert!(matches!(report, Operation::PatchStatus { answer: PatchAnswer::Node, .. }), "{report:?}");
    assert_eq!(body_of(&report).get("metadata"), None);
}

#[test]
fn a_report_of_another_version_is_made_again_over_what_others_wrote_whatever_they_write_then() {
    let mut script = registered();
    let (ticket, report) = next(&mut script, false);
    assert!(body_of(&report)["metadata"]["resourceVersion"].is_string());
    let reported = script.up;
    script.answer(ticket, conflict());
    assert_eq!(script.play_healthy(Lane::Status).1, read());
    let (ticket, report) = script.next(Lane::Status);
    assert!(matches!(report, Operation::PatchStatus { answer: PatchAnswer::Node, .. }), "{report:?}");
    assert_eq!((script.up, body_of(&report).get("metadata")), (reported, None));
    let reply = script.reply(&report);
    script.answer(ticket, reply);
    assert!(!script.words().contains(&"failing"), "{:?}", script.words());
    let (_, report) = next(&mut script, false);
    assert!(body_of(&report)["metadata"]["resourceVersion"].is_string(), "{report:?}");
}

#[test]
fn counts_of_extended_resources_change_only_over_the_version_they_were_made_of() {
    let mut script = registered();
    let says_counts = |operation: &Operation| body_of(operation).to_string().contains("example.com/usb");
    script.facts.readings.extended_resources = [("example.com/usb".to_owned(), Ok(1))].into();
    let (ticket, report) = next(&mut script, false);
    assert!(says_counts(&report) && body_of(&report)["metadata"]["resourceVersion"] == "rv1", "{report:?}");
    let reported = script.up;
    script.answer(ticket, conflict());
    let (ticket, look) = script.next(Lane::Status);
    assert_eq!(look, read());
    let mut node = registered_node();
    node.metadata.resource_version = "rv2".to_owned();
    script.answer(ticket, Ok(Document::Node(Box::new(node))));
    let (ticket, report) = script.next(Lane::Status);
    assert!(says_counts(&report) && body_of(&report)["metadata"]["resourceVersion"] == "rv2", "{report:?}");
    script.answer(ticket, conflict());
    assert_eq!(script.play_healthy(Lane::Status).1, read());
    let (ticket, report) = script.next(Lane::Status);
    assert!(
        script.up == reported && !says_counts(&report),
        "what others write all the time delays no report: {report:?}"
    );
    let reply = script.reply(&report);
    script.answer(ticket, reply);
    let (ticket, report) = next(&mut script, false);
    assert!(says_counts(&report) && body_of(&report)["metadata"]["resourceVersion"].is_string(), "{report:?}");
    // A server that hung may take it late.
    script.answer_unreachable(ticket);
    let (_, report) = next(&mut script, false);
    assert!(!says_counts(&report) && body_of(&report)["status"]["capacity"].is_object(), "{report:?}");
}
