//! What the board suffers from, from its sensors to the Node and back: over restarts, outages and sensors that go.

use super::*;
use crate::config::settings::ConditionSetting;
use crate::probe::facts::{Thermal, Zone};

const MINUTE: Duration = Duration::from_secs(60);

/// What the server has of it.
fn stored(script: &Script) -> Option<&str> {
    let conditions = &script.stored.as_ref().unwrap().status.conditions;
    conditions.iter().find(|one| one.kind == "Undervoltage").map(|one| one.status.as_str())
}

fn says(script: &mut Script, undervoltage: Option<bool>) {
    script.facts.readings.health.undervoltage = undervoltage.map(Ok);
}

fn events(sent: &[Operation]) -> Vec<String> {
    let created = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. }));
    let reasons = created.map(|operation| body_of(operation)["reason"].as_str().unwrap().to_owned());
    reasons.filter(|reason| reason.contains("oltage")).collect()
}

/// Whether a patch of a condition is not its end.
pub(super) fn stays(sent: &&Value) -> bool {
    sent["$patch"] != "delete"
}

/// What a server does with the conditions that a patch ends.
pub(super) fn delete(node: &mut Node, patch: &Value) {
    let all = patch["status"]["conditions"].as_array().into_iter().flatten();
    let gone: Vec<&Value> = all.filter(|sent| !stays(sent)).map(|sent| &sent["type"]).collect();
    node.status.conditions.retain(|stored| !gone.iter().any(|kind| **kind == *stored.kind));
}

/// The same board and server, another process.
fn restarted(script: Script) -> Script {
    let (facts, node) = (script.facts.clone(), script.stored.clone());
    let mut next = Script::on(script.disk, Settings::default(), BOOT, START, script.up + MINUTE);
    (next.facts, next.stored) = (facts, node);
    assert_eq!(next.play_healthy(Lane::Status).1, Operation::ReadVersion);
    let (_, create) = next.play(Lane::Status, refused(409, "AlreadyExists"));
    assert!(matches!(create, Operation::CreateNode { .. }), "{create:?}");
    next
}

#[test]
fn a_supply_that_sags_is_a_condition_until_it_has_not_for_five_minutes() {
    let mut script = Script::new();
    says(&mut script, Some(false));
    script.register();
    script.pass(MINUTE);
    assert_eq!(stored(&script), Some("False"), "the board can tell");
    says(&mut script, Some(true));
    assert_eq!(events(&script.pass(MINUTE / 4)), ["UndervoltageDetected"]);
    assert_eq!(stored(&script), Some("True"));
    says(&mut script, Some(false));
    assert_eq!(events(&script.pass(MINUTE * 9 / 2)), [""; 0]);
    assert_eq!(stored(&script), Some("True"));
    assert_eq!(events(&script.pass(MINUTE)), ["VoltageOK"]);
    assert_eq!(stored(&script), Some("False"));
}

#[test]
fn a_restart_neither_forgets_it_nor_tells_it_again() {
    let mut script = Script::new();
    says(&mut script, Some(true));
    script.register();
    script.pass(MINUTE);
    assert_eq!(stored(&script), Some("True"));
    says(&mut script, Some(false));
    let mut next = restarted(script);
    assert_eq!(events(&next.pass(MINUTE * 4)), [""; 0]);
    assert_eq!(stored(&next), Some("True"), "nobody knows when it sagged last");
    assert_eq!(events(&next.pass(MINUTE * 2)), ["VoltageOK"]);
    assert_eq!(stored(&next), Some("False"));
}

#[test]
fn a_board_without_the_sensor_lacks_the_condition_and_one_that_lost_it_says_unknown() {
    let mut script = Script::new();
    script.register();
    script.pass(MINUTE * 10);
    assert_eq!(stored(&script), None);
    let absent = Absent::new("/sys/class/hwmon/hwmon1/in0_lcrit_alarm", Why::NoSuchFile);
    says(&mut script, Some(true));
    script.pass(MINUTE);
    script.facts.readings.health.undervoltage = Some(Err(absent));
    script.pass(MINUTE / 2);
    assert_eq!(stored(&script), Some("True"), "for half a minute it may be busy");
    let sent = script.pass(MINUTE);
    assert_eq!(events(&sent), ["VoltageUnreadable"]);
    assert_eq!(stored(&script), Some("Unknown"));
    says(&mut script, None);
    let mut next = restarted(script);
    // What the journal has not forgotten yet is the same event, which the server has.
    let again = next.pass(MINUTE * 10);
    let is_new = |one: &&Operation| !sent.contains(one) && !events(&[(*one).clone()]).is_empty();
    assert_eq!(again.iter().find(is_new), None);
    assert_eq!(stored(&next), Some("Unknown"), "the Node has it from before");
}

#[test]
fn a_condition_that_is_switched_off_goes_from_the_node_and_nothing_is_owed_for_it() {
    let mut script = Script::new();
    says(&mut script, Some(true));
    script.register();
    script.pass(MINUTE);
    assert_eq!(stored(&script), Some("True"));
    let mut next = restarted(script);
    next.agent.shared.settings.conditions.insert("Undervoltage".to_owned(), ConditionSetting::Off);
    next.pass(MINUTE * 2);
    assert_eq!(stored(&next), None);
    let is_report = |one: &&Operation| matches!(one, Operation::PatchStatus { answer: PatchAnswer::Node, .. });
    let reports = next.pass(MINUTE * 30).iter().filter(is_report).count();
    assert!(reports <= 8, "{reports} reports in half an hour");
    assert_eq!(stored(&next), None);
    next.agent.shared.settings.conditions.clear();
    next.pass(MINUTE * 2);
    assert_eq!(stored(&next), Some("True"), "again");
}

/// An outage of an hour in which the supply sags at each second look.
#[test]
fn a_supply_that_flaps_costs_one_record() {
    let mut script = Script::new();
    says(&mut script, Some(false));
    script.register();
    script.pass(MINUTE);
    for look in 0..180 {
        says(&mut script, Some(look % 2 == 0));
        script.offline(Duration::from_secs(20));
    }
    assert_eq!(events(&script.pass(MINUTE * 2)), ["UndervoltageDetected"]);
}

/// Another program dates its condition, and gives it this status.
fn others_write(script: &mut Script, kind: &str, status: &str) {
    let stamp = START.plus(script.up).to_seconds_stamp();
    let node = script.stored.as_mut().unwrap();
    node.metadata.resource_version = format!("theirs{stamp}");
    let conditions = &mut node.status.conditions;
    let found = conditions.iter_mut().find(|one| one.kind == kind).unwrap();
    (found.last_heartbeat_time, found.status) = (stamp, status.to_owned());
    found.reason = "AsTheySee".to_owned();
}

#[test]
fn a_condition_that_another_program_writes_is_left_to_it_while_it_goes_on() {
    let mut script = Script::with(Settings { node_watch: false, ..Settings::default() });
    says(&mut script, Some(false));
    script.register();
    script.pass(MINUTE * 10);
    let theirs = |script: &Script| {
        let conditions = &script.stored.as_ref().unwrap().status.conditions;
        conditions.iter().any(|one| one.kind == "Undervoltage" && one.reason == "AsTheySee")
    };
    for (time, is_left) in [(1, false), (2, true), (3, true)] {
        others_write(&mut script, "Undervoltage", "True");
        script.pass(MINUTE * 2);
        assert_eq!(theirs(&script), is_left, "{time}");
        assert_eq!(script.words().contains(&"condition-left"), is_left);
    }
    // What we see of it meanwhile is nobody's news, and what was switched off is not taken away.
    says(&mut script, Some(true));
    assert_eq!(events(&script.pass(MINUTE * 2)), [""; 0]);
    says(&mut script, Some(false));
    script.pass(MINUTE * 50);
    assert!(theirs(&script));
    // That one is gone.
    script.pass(MINUTE * 20);
    assert!(!theirs(&script));
    assert_eq!(stored(&script), Some("False"));
}

/// Beside the changes of the condition.
#[test]
fn a_supply_that_sags_three_times_in_a_day_is_a_warning_also_after_an_outage_and_over_a_restart() {
    let mut script = super::outage::settled();
    let sag = |script: &mut Script| {
        says(script, Some(true));
        let mut sent = script.pass(MINUTE);
        says(script, Some(false));
        sent.extend(script.pass(MINUTE * 6));
        warnings(&sent)
    };
    assert_eq!([sag(&mut script), sag(&mut script)], [[""; 0], [""; 0]]);
    let third = script.up;
    assert_eq!(sag(&mut script), ["PowerSupplyWeak Warning 3 times in 24 hours"]);
    script.offline(MINUTE);
    for _ in 0..3 {
        says(&mut script, Some(true));
        script.offline(MINUTE);
        says(&mut script, Some(false));
        script.offline(MINUTE * 6);
    }
    assert!(script.up - third > MINUTE * 20);
    let now = script.now();
    script.agent.handle(Input::Stopping, now);
    script.drain();
    let mut script = script.restart(BOOT, now.up.as_duration() + MINUTE);
    let sent = script.pass(MINUTE * 5);
    assert_eq!(warnings(&sent), ["PowerSupplyWeak Warning 3 times in 24 hours"]);
}

fn warnings(sent: &[Operation]) -> Vec<String> {
    let created = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. })).map(body_of);
    let of_supply = created.filter(|body| body["reason"] == "PowerSupplyWeak" || body["reason"] == "OverTemperature");
    let text = |body: Value| ["reason", "type", "message"].map(|key| body[key].as_str().unwrap().to_owned()).join(" ");
    of_supply.map(text).collect()
}

#[test]
fn a_board_that_is_about_to_switch_itself_off_is_a_warning_with_its_temperature() {
    let mut script = super::outage::settled();
    let mut at = |degrees: i64| {
        let zone = Zone {
            kind: "cpu-thermal".to_owned(),
            millidegrees: degrees * 1000,
            passive_millidegrees: Some(80_000),
            critical_millidegrees: Some(110_000),
        };
        script.facts.readings.health.thermal = Some(Ok(Thermal { zones: vec![zone], ..Thermal::default() }));
        warnings(&script.pass(MINUTE * 7))
    };
    assert_eq!([at(50), at(85)], [[""; 0], [""; 0]]);
    assert_eq!(at(106), ["OverTemperature Warning cpu-thermal at 106 °C"]);
    assert_eq!([at(85), at(107)], [[""; 0], [""; 0]], "it was not over");
    assert_eq!(at(50), [""; 0]);
    assert_eq!(at(108), ["OverTemperature Warning cpu-thermal at 108 °C"]);
}
