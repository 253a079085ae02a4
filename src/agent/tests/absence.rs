//! An absence that people announce: a condition until its time or until they are back, told at once, kept over reboots.

use super::disk::on_disk;
use super::outage::{kinds, settled, waiting};
use super::*;
use crate::config::absence::Until;

const HOUR: Duration = Duration::from_secs(3600);
const REBOOTED: BootId = BootId(0xb000_0000_0000_4000_8000_0000_0000_0002);

fn away(script: &mut Script, until: &str, reason: &str) {
    let now = script.now();
    let until = Until::parse(until).unwrap();
    script.agent.handle(Input::Away { until, reason: reason.to_owned() }, now);
}

fn back(script: &mut Script) {
    let now = script.now();
    script.agent.handle(Input::Back, now);
}

/// What the server has of it: status, reason, message.
fn stored(script: &Script) -> Option<[&str; 3]> {
    let conditions = &script.stored.as_ref()?.status.conditions;
    let found = conditions.iter().find(|one| one.kind == "PlannedAbsence")?;
    Some([&found.status, &found.reason, &found.message])
}

fn ready(script: &Script) -> &str {
    let conditions = &script.stored.as_ref().unwrap().status.conditions;
    conditions.iter().find(|one| one.kind == "Ready").map_or("none", |one| one.status.as_str())
}

/// What was told of it, and how many reports there were.
fn told(sent: &[Operation]) -> (Vec<String>, usize) {
    let created = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. }));
    let reasons = created.map(|operation| body_of(operation)["reason"].as_str().unwrap().to_owned());
    let reports = sent.iter().filter(|operation| matches!(operation, Operation::PatchStatus { .. })).count();
    (reasons.collect(), reports)
}

#[test]
fn an_absence_is_told_at_once_and_over_at_its_time_and_ready_is_untouched() {
    let mut script = settled();
    assert_eq!(stored(&script), None, "nothing where nothing was announced");
    away(&mut script, "2026-01-01T03:00:00.7+01:00", "sleeps at night");
    let (reasons, reports) = told(&script.pass(Duration::from_secs(2)));
    assert_eq!((reasons.as_slice(), reports), (&["AbsenceAnnounced".to_owned()][..], 1));
    let message = "Absence announced until 2026-01-01T02:00:00Z: sleeps at night";
    assert_eq!(stored(&script), Some(["True", "Announced", message]));
    assert_eq!(script.told, [Ok("told 2026-01-01T02:00:00Z".to_owned())]);
    assert_eq!(kinds(&waiting(&script)), ["announced"]);
    let rest = 2 * HOUR - script.up;
    assert_eq!(told(&script.pass(rest - Duration::from_secs(5))).0, [""; 0]);
    assert_eq!(stored(&script).map(|[status, ..]| status), Some("True"));
    assert_eq!(told(&script.pass(Duration::from_secs(20))).0, ["AbsenceOver"]);
    assert_eq!(stored(&script), Some(["False", "Present", "No absence is announced"]));
    assert_eq!((ready(&script), kinds(&waiting(&script)).len()), ("True", 0));
}

#[test]
fn who_is_back_says_so_and_another_announcement_takes_the_place_of_the_first() {
    let mut script = settled();
    away(&mut script, "8h", "");
    script.pass(Duration::from_secs(2));
    let at = |script: &Script| {
        script.stored.as_ref().unwrap().status.conditions.last().unwrap().last_transition_time.clone()
    };
    let since = at(&script);
    assert_eq!(stored(&script).map(|[.., message]| message), Some("Absence announced until 2026-01-01T08:00:30Z"));
    away(&mut script, "90m", "a new fan");
    let (reasons, reports) = told(&script.pass(Duration::from_secs(2)));
    assert_eq!((reasons.len(), reports), (0, 1), "other words of the same status");
    let message = "Absence announced until 2026-01-01T01:30:32Z: a new fan";
    assert_eq!((stored(&script).map(|[.., message]| message), at(&script)), (Some(message), since));
    assert_eq!(kinds(&waiting(&script)), ["announced"]);
    back(&mut script);
    assert_eq!(told(&script.pass(Duration::from_secs(2))), (vec!["AbsenceOver".to_owned()], 1));
    assert_eq!(stored(&script).map(|[status, ..]| status), Some("False"));
    assert_eq!(script.told.last(), Some(&Ok("told ".to_owned())));
    // And not a second time.
    back(&mut script);
    assert_eq!(told(&script.pass(Duration::from_secs(2))), (vec![], 0));
    assert_eq!(script.told.last(), Some(&Ok("none".to_owned())));
}

#[test]
fn who_is_back_before_there_is_a_server_is_not_away_again_after_a_power_cut() {
    let mut script = settled();
    away(&mut script, "8h", "sleeps");
    script.pass(Duration::from_secs(2));
    let up = script.up;
    let mut next = script.restart(BOOT, up);
    // Its start is on the disk.
    next.drain();
    back(&mut next);
    next.drain();
    let next = next.restart(REBOOTED, Duration::from_secs(10));
    assert!(!kinds(&waiting(&next)).contains(&"announced"), "{:?}", waiting(&next));
}

#[test]
fn what_was_announced_outlives_the_process_and_the_boot_and_ends_while_nobody_is_there() {
    let mut script = settled();
    away(&mut script, "8h", "sleeps");
    script.pass(Duration::from_secs(2));
    let up = script.up;
    let mut next = script.restart(BOOT, up);
    next.register();
    assert_eq!(stored(&next).map(|[status, ..]| status), Some("True"));
    next.pass(HOUR / 10);
    // It was off for a while, and then beyond its end.
    let mut next = next.restart(REBOOTED, Duration::from_secs(10));
    next.booted = next.booted.plus(2 * HOUR);
    next.register();
    assert_eq!(stored(&next).map(|[status, ..]| status), Some("True"));
    let (reasons, _) = told(&next.pass(HOUR / 10));
    assert!(!reasons.iter().any(|reason| reason.starts_with("Absence")), "the server knows: {reasons:?}");
    let mut next = next.restart(BootId(7), Duration::from_secs(10));
    next.booted = next.booted.plus(6 * HOUR);
    next.register();
    next.pass(HOUR / 10);
    assert_eq!(stored(&next), Some(["False", "Present", "No absence is announced"]));
    assert!(waiting(&next).is_empty(), "{:?}", waiting(&next));
}

#[test]
fn without_a_server_it_is_kept_and_told_later_with_its_time() {
    let mut script = settled();
    script.offline(Duration::from_secs(120));
    away(&mut script, "8h", "no uplink");
    script.offline(Duration::from_secs(1));
    assert_eq!(script.told, [Ok("kept 2026-01-01T08:02:30Z".to_owned())], "as soon as it is on the disk");
    script.offline(HOUR);
    let sent = script.pass(Duration::from_secs(120));
    assert!(told(&sent).0.contains(&"AbsenceAnnounced".to_owned()));
    let found = script.stored.as_ref().unwrap().status.conditions.last().unwrap();
    assert_eq!((found.kind.as_str(), found.last_transition_time.as_str()), ("PlannedAbsence", "2026-01-01T00:02:30Z"));
    // A server that hangs is waited for ten seconds.
    let (ticket, _) = script.next(Lane::Lease);
    back(&mut script);
    let (sent, _) = script.drain();
    script.up += Duration::from_millis(9_900);
    script.drain();
    assert_eq!(script.told.len(), 1);
    script.up += Duration::from_millis(200);
    script.drain();
    assert_eq!(script.told.last(), Some(&Ok("kept ".to_owned())));
    drop((ticket, sent));
}

/// The disk was written just before, and is in no hurry by itself.
#[test]
fn who_hears_that_the_board_is_back_can_cut_its_power() {
    let mut script = settled();
    script.offline(Duration::from_secs(120));
    // More than the disk is written at once by itself.
    for _ in 0..20 {
        for is_away in [true, false] {
            if is_away {
                away(&mut script, "8h", "a field trip")
            } else {
                back(&mut script)
            }
            script.offline(Duration::from_millis(100));
            let answer = script.told.pop();
            assert!(matches!(answer, Some(Ok(_))), "{answer:?}");
            assert_eq!(kinds(&on_disk(&script)).contains(&"announced"), is_away);
        }
    }
}

#[test]
fn what_cannot_be_announced_is_said_and_changes_nothing() {
    let mut script = settled();
    for (until, reason, why) in [
        (
            "2026-01-01T00:00:29Z",
            "",
            "2026-01-01T00:00:29Z is not within the year (366 days) that comes: it is 2026-01-01T00:00:30Z",
        ),
        ("2027-02-01T00:00:00Z", "", "2027-02-01T00:00:00Z is not within the year"),
        ("9000h", "", "2027-01-11T00:00:30Z is not within the year"),
        ("8h", &"x".repeat(65), "\"xxxx"),
        ("8h", "a\nb", "\"a\\nb\" is no reason: write one line of at most 64 bytes"),
    ] {
        away(&mut script, until, reason);
        let sent = script.pass(Duration::from_millis(1));
        let said = script.told.pop().unwrap().unwrap_err();
        assert!(said.starts_with(why), "{said}");
        assert_eq!((told(&sent).1, waiting(&script).len()), (0, 0));
    }
    let mut script = Script::new();
    script.has_clock = false;
    away(&mut script, "8h", "");
    script.drain();
    assert!(script.told.pop().unwrap().unwrap_err().starts_with("nobody knows the time yet"));
}

#[test]
fn a_clock_that_nobody_has_compared_ends_nothing() {
    let mut script = settled();
    away(&mut script, "8h", "");
    script.pass(Duration::from_secs(2));
    let mut next = script.restart(REBOOTED, Duration::from_secs(10));
    // A year ahead, and no link.
    next.clock_error_seconds = 400 * 86_400;
    next.offline(HOUR);
    assert!(kinds(&waiting(&next)).contains(&"announced"));
    next.pass(HOUR / 10);
    assert_eq!(stored(&next).map(|[status, ..]| status), Some("True"));
}
