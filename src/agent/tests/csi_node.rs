//! A Node that takes pods gets its CSINode by itself, and waits for it in nothing (AUT-10).

use super::*;

/// In the next hour the CSINode is asked for at these times; each time `answer` is what comes.
fn asked(script: &mut Script, answer: impl Fn(usize) -> Result<Document, Refusal>) -> Vec<Duration> {
    let (end, mut times) = (script.up + Duration::from_secs(3600), Vec::new());
    while script.up < end {
        let (ticket, operation) = script.next(Lane::Status);
        let reply = if let Operation::CreateCsiNode { .. } = &operation {
            let owner = &body_of(&operation)["metadata"]["ownerReferences"][0];
            assert_eq!((&owner["name"], &owner["uid"]), (&json!("n1"), &json!("uid1")));
            times.push(script.up);
            answer(times.len())
        } else {
            script.reply(&operation)
        };
        script.answer(ticket, reply);
    }
    times
}

fn with_pods() -> Script {
    let mut script = Script::with(Settings { podless: false, ..Settings::default() });
    while script.stored.is_none() {
        let (ticket, operation) = script.next(Lane::Status);
        if let Operation::CreateNode { .. } = &operation {
            script.stored = Some(stored(serde_json::from_value(body_of(&operation)).unwrap()));
        }
        script.answer(ticket, Ok(healthy(&operation)));
    }
    script
}

#[test]
fn a_node_that_takes_no_pods_asks_for_none() {
    let mut script = Script::new();
    script.register();
    assert_eq!(asked(&mut script, |_| Ok(Document::Nothing)).len(), 0);
}

#[test]
fn what_was_made_is_asked_for_once_and_what_was_found_once_more() {
    assert_eq!(asked(&mut with_pods(), |_| Ok(Document::Nothing)).len(), 1);
    let times = asked(&mut with_pods(), |_| refused(409, "AlreadyExists"));
    assert_eq!(times.len(), 2);
    assert!(times[1] - times[0] >= Duration::from_secs(300), "{times:?}");
    let times =
        asked(&mut with_pods(), |time| if time == 1 { refused(409, "AlreadyExists") } else { Ok(Document::Nothing) });
    assert_eq!(times.len(), 2);
}

#[test]
fn a_refusal_is_said_once_and_costs_neither_reports_nor_ready() {
    let mut script = with_pods();
    let times = asked(&mut script, |_| refused(403, "Forbidden"));
    // Ever more rarely.
    let pauses: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert!(pauses.len() >= 2 && pauses[0] >= 300 && pauses.windows(2).all(|two| two[1] > two[0]), "{pauses:?}");
    assert_eq!(script.words().iter().filter(|word| **word == "csi-node-failed").count(), 1);
    assert!(!script.words().contains(&"failing"), "{:?}", script.words());
}

#[test]
fn a_node_made_anew_gets_another_one() {
    let mut script = with_pods();
    assert_eq!(asked(&mut script, |_| Ok(Document::Nothing)).len(), 1);
    script.play(Lane::Status, refused(404, "NotFound"));
    let mut node = script.stored.clone().unwrap();
    node.metadata.uid = "uid2".to_owned();
    script.stored = Some(node.clone());
    let owner = loop {
        let (ticket, operation) = script.next(Lane::Status);
        match operation {
            Operation::ReadNode { .. } => script.answer(ticket, refused(404, "NotFound")),
            Operation::CreateNode { .. } => script.answer(ticket, Ok(Document::Node(Box::new(node.clone())))),
            Operation::CreateCsiNode { .. } => {
                break body_of(&operation)["metadata"]["ownerReferences"][0]["uid"].clone();
            }
            other => {
                let reply = script.reply(&other);
                script.answer(ticket, reply);
            }
        }
    };
    assert_eq!(owner, "uid2");
}
