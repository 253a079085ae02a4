//! The board is looked at, and the look does not come back.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A file of the board hangs for an hour: what is known of it is reported meanwhile, and the Lease is renewed.
#[test]
fn a_look_that_does_not_come_back_holds_no_report_up() {
    let mut script = Script::new();
    script.register();
    script.pass(Duration::from_secs(60));
    script.disk.hides_the_board = true;
    let sent = script.pass(HOUR);
    let reports = sent.iter().filter(|one| matches!(one, Operation::PatchStatus { .. })).count();
    let renewals = sent.iter().filter(|one| matches!(one, Operation::RenewLease { .. })).count();
    assert!(reports >= 11 && renewals >= 300, "{reports} reports, {renewals} renewals");
    assert_eq!(script.words().iter().filter(|word| **word == "look-late").count(), 1);
    let probes = script.probes.len();
    assert_eq!(script.pass(MINUTE).iter().filter(|one| one.verb() == "POST").count(), 0);
    assert_eq!(script.probes.len(), probes, "the one that is under way is the last");
    script.disk.hides_the_board = false;
    let seen = script.look();
    script.agent.handle(seen, script.now());
    script.pass(MINUTE);
    assert!(script.probes.len() > probes + 3, "it is looked at again");
}

/// What the settings ask to be counted is no part of what pressure is judged by, and worth a report of its own all the same.
#[test]
fn a_device_that_comes_is_reported_with_the_look_that_finds_it() {
    let mut script = Script::with(Settings { node_watch: false, ..Settings::default() });
    let count = |script: &mut Script, count| {
        script.facts.readings.extended_resources = [("example.com/usb".to_owned(), count)].into();
    };
    count(&mut script, Ok(1));
    script.register();
    script.pass(Duration::from_secs(20));
    count(&mut script, Ok(2));
    let before = script.up;
    let (at_ms, operation) = script.play_healthy(Lane::Status);
    assert!(at_ms - before.as_millis() <= 10_400);
    let status = &body_of(&operation)["status"];
    assert_eq!(
        (&status["capacity"]["example.com/usb"], &status["allocatable"]["example.com/usb"]),
        (&json!("2"), &json!("2"))
    );
    // One that cannot be counted is said once.
    count(&mut script, Err(Absent::new("/dev/serial", Why::NotPermitted)));
    script.pass(MINUTE);
    let said = script.said.iter().filter(|notice| notice.text.contains("capacity.example.com/usb: no source"));
    assert_eq!(said.count(), 1);
}
