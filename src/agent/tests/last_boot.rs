//! A board that went down under the process: a condition for a day, told once, and none where anybody had a hand in it.

use super::outage::settled;
use super::*;
use crate::config::absence::Until;
use crate::node::Leaving;
use crate::node::rules::LastBoot;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Status, reason and time of the condition.
fn stored(script: &Script) -> Option<[&str; 3]> {
    let conditions = &script.stored.as_ref()?.status.conditions;
    let found = conditions.iter().find(|one| one.kind == "UnexpectedReboot")?;
    Some([&found.status, &found.reason, &found.last_transition_time])
}

fn status(script: &Script) -> Option<&str> {
    stored(script).map(|[status, ..]| status)
}

/// What is told of it while all is well.
fn told(script: &mut Script, span: Duration) -> Vec<String> {
    let sent = script.pass(span);
    let created = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. }));
    let reasons = created.map(|operation| body_of(operation)["reason"].as_str().unwrap().to_owned());
    reasons.filter(|reason| reason.ends_with("UnexpectedReboot")).collect()
}

/// The power goes, and the board starts again.
fn cut(script: Script, boot: u128) -> Script {
    script.restart(BootId(boot), Duration::from_secs(10))
}

fn input(script: &mut Script, input: Input) {
    let now = script.now();
    script.agent.handle(input, now);
    script.drain();
}

#[test]
fn a_board_that_went_down_under_the_process_says_why_for_a_day_and_tells_it_once() {
    let mut script = cut(settled(), 2);
    assert_eq!(told(&mut script, Duration::from_secs(60)), ["UnexpectedReboot"]);
    assert_eq!(stored(&script), Some(["True", "WatchdogReset", "2026-01-01T00:00:40Z"]), "when the process began");
    let up = script.up;
    let mut script = script.restart(BootId(2), up + Duration::from_secs(5));
    assert_eq!(
        told(&mut script, DAY - Duration::from_secs(90)),
        [""; 0],
        "to another process of that boot nothing is new"
    );
    assert_eq!(status(&script), Some("True"));
    assert_eq!(told(&mut script, Duration::from_secs(90)), ["NoUnexpectedReboot"]);
    assert_eq!(stored(&script).map(|[status, reason, _]| [status, reason]), Some(["False", "NoUnexpectedReboot"]));
}

#[test]
fn each_time_that_it_goes_down_is_told_with_its_own_time() {
    let mut script = cut(settled(), 2);
    assert_eq!(told(&mut script, Duration::from_secs(60)), ["UnexpectedReboot"]);
    let mut script = cut(script, 3);
    script.play_healthy(Lane::Status);
    script.play(Lane::Status, refused(409, "AlreadyExists"));
    assert_eq!(told(&mut script, Duration::from_secs(60)), ["UnexpectedReboot"]);
    assert_eq!(stored(&script), Some(["True", "WatchdogReset", "2026-01-01T00:01:50Z"]));
}

#[test]
fn it_is_over_with_a_boot_after_a_shutdown_in_good_order() {
    let mut script = cut(settled(), 2);
    assert_eq!(told(&mut script, Duration::from_secs(60)), ["UnexpectedReboot"]);
    input(&mut script, Input::Stopping);
    let mut script = cut(script, 3);
    assert_eq!(told(&mut script, Duration::from_secs(60)), ["NoUnexpectedReboot"]);
    assert_eq!(stored(&script).map(|[status, reason, _]| [status, reason]), Some(["False", "NoUnexpectedReboot"]));
}

#[test]
fn a_process_that_died_alone_is_one_under_which_the_board_goes_down_later() {
    let script = settled();
    let up = script.up + Duration::from_secs(5);
    let mut script = script.restart(BOOT, up);
    assert_eq!((told(&mut script, Duration::from_secs(60)), stored(&script)), (vec![], None));
    let mut script = cut(script, 2);
    assert_eq!(told(&mut script, Duration::from_secs(60)), ["UnexpectedReboot"]);
}

/// Its reason is not read again: it is in the record that waits.
#[test]
fn what_no_server_has_heard_of_yet_is_known_to_a_later_process_with_its_reason() {
    let mut script = cut(settled(), 2);
    script.offline(Duration::from_secs(60));
    let up = script.up + Duration::from_secs(5);
    let mut script = script.restart(BootId(2), up);
    assert_eq!(told(&mut script, Duration::from_secs(120)), ["UnexpectedReboot"]);
    assert_eq!(stored(&script), Some(["True", "WatchdogReset", "2026-01-01T00:00:40Z"]));
}

/// Nor is an older one taken for it that waits as well.
#[test]
fn of_two_that_wait_the_later_one_counts() {
    let mut script = cut(settled(), 2);
    script.offline(Duration::from_secs(60));
    input(&mut script, Input::Stopping);
    let mut script = cut(script, 3);
    script.offline(Duration::from_secs(60));
    let up = script.up + Duration::from_secs(5);
    let mut script = script.restart(BootId(3), up);
    assert_eq!(told(&mut script, Duration::from_secs(120)), ["UnexpectedReboot", "NoUnexpectedReboot"]);
    assert_eq!(status(&script), None, "a Node that never heard of it need not");
}

#[test]
fn one_of_an_earlier_boot_says_nothing_of_this_one_whatever_the_disk_lost_since() {
    let mut script = cut(settled(), 2);
    script.offline(Duration::from_secs(60));
    input(&mut script, Input::Stopping);
    let mut script = cut(script, 3);
    script.drain();
    let begun = script.disk.bytes.clone();
    script.offline(Duration::from_secs(60));
    script.disk.bytes = begun;
    let up = script.up + Duration::from_secs(5);
    let mut script = script.restart(BootId(3), up);
    script.register();
    assert_ne!(status(&script), Some("True"));
    assert_eq!(told(&mut script, Duration::from_secs(120)), ["UnexpectedReboot", "NoUnexpectedReboot"]);
}

#[test]
fn who_was_told_to_stop_or_that_the_machine_goes_down_or_was_away_went_down_in_order() {
    type Act = fn(&mut Script);
    let acts: [(&str, Act, Option<&str>); 6] = [
        ("nothing", |_| {}, Some("True")),
        ("stopped", |script| input(script, Input::Stopping), None),
        ("shut down", |script| input(script, Input::Leaving(Leaving::PowerOff)), None),
        ("about to go down", |script| input(script, Input::GoesDown(Leaving::Reboot)), None),
        (
            "which was called off",
            |script| {
                input(script, Input::GoesDown(Leaving::Reboot));
                input(script, Input::GoesOn);
                script.pass(Duration::from_secs(60));
            },
            Some("True"),
        ),
        (
            "away",
            |script| {
                let until = Until::parse("8h").unwrap();
                input(script, Input::Away { until, reason: String::new() });
            },
            None,
        ),
    ];
    for announces in [true, false] {
        for (what, act, expected) in &acts {
            let mut script = settled();
            script.agent.shared.settings.announce_shutdown = announces;
            act(&mut script);
            let mut script = cut(script, 2);
            script.pass(Duration::from_secs(60));
            assert_eq!(status(&script), *expected, "{what}, announceShutdown: {announces}");
        }
    }
}

#[test]
fn a_board_that_was_never_there_before_or_whose_disk_lost_it_says_nothing() {
    let mut script = Script::new();
    script.register();
    assert_eq!(stored(&script), None);
    script.pass(Duration::from_secs(30));
    script.disk.bytes.clear();
    let mut script = cut(script, 2);
    assert_eq!((told(&mut script, Duration::from_secs(60)), stored(&script)), (vec![], None));
}

#[test]
fn a_journal_of_before_there_was_that_record_says_nothing() {
    let mut script = settled();
    script.agent.shared.records.end_run();
    script.press_memory(true);
    script.pass(Duration::from_secs(60));
    let mut script = cut(script, 2);
    assert_eq!((told(&mut script, Duration::from_secs(60)), stored(&script)), (vec![], None));
}

/// As a process of the next boot has it, which finds what is on the disk now and no watchdog that says anything.
fn found_by_the_next(script: &Script) -> LastBoot {
    let (journal, _) = Journal::recover(&script.disk.bytes, 65_536, BootId(9));
    let now = Now { up: Up::since_boot(Duration::from_secs(10)), wall: None };
    let agent = Agent::new(Settings::default(), "n1".to_owned(), 1, journal, &LastReset::default(), now);
    agent.shared.last_boot
}

#[test]
fn a_board_whose_supply_was_too_weak_when_it_went_down_has_lost_its_power() {
    let mut script = settled();
    assert_eq!(found_by_the_next(&script), LastBoot::CutShort("Unknown"));
    script.facts.readings.health.undervoltage = Some(Ok(true));
    script.pass(Duration::from_secs(20));
    assert_eq!(found_by_the_next(&script), LastBoot::CutShort("PowerLoss"));
    // The server has acknowledged it, and other records came and went since.
    script.press_memory(true);
    script.pass(Duration::from_secs(60));
    script.press_memory(false);
    script.pass(Duration::from_secs(60));
    assert_eq!(found_by_the_next(&script), LastBoot::CutShort("PowerLoss"));
    script.facts.readings.health.undervoltage = Some(Ok(false));
    script.pass(Duration::from_secs(400));
    assert_eq!(found_by_the_next(&script), LastBoot::CutShort("Unknown"));
    script.facts.readings.health.undervoltage = Some(Ok(true));
    script.pass(Duration::from_secs(20));
    input(&mut script, Input::Stopping);
    assert_eq!(found_by_the_next(&script), LastBoot::Ended);
}
