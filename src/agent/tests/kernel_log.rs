//! What the kernel says of trouble, from a look to events: counted, with its own time, once, over outages and restarts.

use super::outage::settled;
use super::*;
use crate::node::object::Condition;
use crate::probe::facts::{KernelPlaces, KernelTrouble, Trouble};

const MINUTE: Duration = Duration::from_secs(60);

/// So many of this kind so far, the last of them now.
fn says(script: &mut Script, reason: &'static str, count: u64) {
    let at = Up::since_boot(script.up);
    let kernel = script.facts.readings.health.kernel.get_or_insert_with(|| Ok(KernelTrouble::default()));
    let kernel = kernel.as_mut().unwrap();
    kernel.read.log += 10;
    kernel.all.retain(|known| known.reason != reason);
    kernel.all.push(Trouble { reason, count, place: kernel.read.log, at, text: format!("{reason} it was") });
}

/// Reason, message and time of what is told of it.
fn events(sent: &[Operation]) -> Vec<String> {
    let created = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. })).map(body_of);
    let told = created.filter(|body| body["message"].as_str().unwrap().contains(" it was"));
    told.map(|body| {
        assert_eq!(body["type"], "Warning");
        format!("{} {}", body["message"].as_str().unwrap(), body["firstTimestamp"].as_str().unwrap())
    })
    .collect()
}

fn told(script: &mut Script, span: Duration) -> Vec<String> {
    events(&script.pass(span))
}

fn stamp(script: &Script) -> String {
    START.plus(script.up).to_seconds_stamp()
}

#[test]
fn trouble_is_told_with_its_own_time_and_counted_for_ten_minutes() {
    let mut script = settled();
    says(&mut script, "IOError", 1);
    let first = stamp(&script);
    script.up += MINUTE / 2;
    assert_eq!(told(&mut script, MINUTE), [format!("IOError it was {first}")]);
    for count in 2..9 {
        says(&mut script, "IOError", count);
        assert_eq!(told(&mut script, MINUTE), [""; 0]);
    }
    says(&mut script, "OOMKilling", 3);
    let other = stamp(&script);
    assert_eq!(told(&mut script, MINUTE), [format!("OOMKilling it was (3 times) {other}")], "another kind");
    let last = told(&mut script, MINUTE * 3);
    assert!(matches!(&last[..], [one] if one.starts_with("IOError it was (7 times) ")), "{last:?}");
    assert_eq!(told(&mut script, MINUTE * 30), [""; 0], "nothing new");
}

#[test]
fn what_is_told_once_is_not_told_by_another_process_of_that_boot() {
    let mut script = settled();
    says(&mut script, "TaskHung", 2);
    says(&mut script, "Ext4Error", 1);
    let first = told(&mut script, MINUTE);
    assert_eq!(first.len(), 2);
    let until = |script: &Script| script.agent.shared.records.journal().kernel_read();
    assert_eq!(until(&script), KernelPlaces { log: 20, ..KernelPlaces::default() });
    let up = script.up;
    let mut script = script.restart(BOOT, up + MINUTE);
    assert_eq!(until(&script).log, 20, "where its probe begins to read");
    says(&mut script, "TaskHung", 1);
    // What a disk does not know to be told is sent again, under the name that the server knows.
    let again = told(&mut script, MINUTE * 2);
    let new: Vec<_> = again.iter().filter(|event| !first.contains(event)).collect();
    assert!(matches!(&new[..], [event] if event.starts_with("TaskHung it was 20")), "{again:?}");
    let script = script.restart(BootId(77), MINUTE / 6);
    assert_eq!(until(&script), KernelPlaces::default(), "another boot counts from nothing");
}

#[test]
fn a_task_that_hung_is_a_condition_for_an_hour() {
    let mut script = Script::new();
    let stored = |script: &Script| {
        let conditions = &script.stored.as_ref().unwrap().status.conditions;
        let found = conditions.iter().find(|one| one.kind == "KernelDeadlock")?;
        Some([&*found.status, &*found.reason, &*found.message].map(str::to_owned))
    };
    script.register();
    script.pass(MINUTE * 10);
    assert_eq!(stored(&script), None, "nobody can say");
    let theirs = ["True", "DockerHung", "task docker:7 blocked"].map(str::to_owned);
    let [status, reason, message] = theirs.clone();
    let node = script.stored.as_mut().unwrap();
    node.metadata.resource_version = "theirs".to_owned();
    let dates = || START.to_seconds_stamp();
    node.status.conditions.push(Condition {
        kind: "KernelDeadlock".to_owned(),
        status,
        reason,
        message,
        last_heartbeat_time: dates(),
        last_transition_time: dates(),
    });
    script.pass(MINUTE * 10);
    assert_eq!(stored(&script), Some(theirs), "who cannot say leaves it to who can");
    let hung = |script: &mut Script, has_hung| {
        script.facts.readings.health.kernel.as_mut().unwrap().as_mut().unwrap().has_hung = Some(has_hung);
    };
    says(&mut script, "IOError", 1);
    hung(&mut script, false);
    script.pass(MINUTE * 61);
    let well = ["False", "KernelHasNoDeadlock", "kernel has no deadlock"].map(str::to_owned);
    assert_eq!(stored(&script), Some(well.clone()));
    says(&mut script, "TaskHung", 1);
    hung(&mut script, true);
    script.pass(MINUTE / 2);
    hung(&mut script, false);
    let text = "A task has waited in the kernel for too long: TaskHung it was";
    let bad = ["True", "TaskHung", text].map(str::to_owned);
    assert_eq!(stored(&script), Some(bad.clone()));
    script.pass(MINUTE * 59);
    assert_eq!(stored(&script), Some(bad));
    script.pass(MINUTE * 2);
    assert_eq!(stored(&script), Some(well));
}

#[test]
fn trouble_of_an_outage_is_told_after_it_with_its_own_time() {
    let mut script = settled();
    script.offline(MINUTE);
    says(&mut script, "KernelOops", 1);
    let at = stamp(&script);
    script.offline(MINUTE * 5);
    assert_eq!(told(&mut script, MINUTE), [format!("KernelOops it was {at}")]);
}
