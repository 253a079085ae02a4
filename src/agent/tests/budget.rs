//! A budget of bytes for each day: what is put off and what never is, what is said of it, and that nothing is lost (D16).

use super::disk::{kinds, waiting};
use super::status::is_assertion;
use super::*;
use crate::api::Seen;

const HOUR: Duration = Duration::from_secs(3600);
/// Of renewals alone at the cadence of the default, and as much again that is left over.
const RENEWALS: u64 = 2_859_840;
const OTHERS: u64 = 10_000_000;

/// A board that has reported, and whose network has taken so much of what renewals leave over.
fn spent(bytes: u64) -> Script {
    let mut script = Script::with(Settings { daily_bytes: Some(RENEWALS + OTHERS), ..Settings::default() });
    script.counted = Some(<[Day; 2]>::default());
    script.register();
    script.pass(Duration::from_secs(60));
    spend(&mut script, bytes);
    // That something is put off is said by now.
    script.pass(Duration::from_secs(60));
    script
}

fn spend(script: &mut Script, bytes: u64) {
    let [today, _] = script.counted.as_mut().unwrap();
    today.of(Purpose::Status).unwrap().bytes = bytes;
}

/// How many renewals, reports, questions (assertions, looks) and events these are.
fn counts(operations: &[Operation]) -> [usize; 4] {
    let count = |is: fn(&Operation) -> bool| operations.iter().filter(|operation| is(operation)).count();
    [
        count(|one| matches!(one, Operation::RenewLease { .. })),
        count(|one| matches!(one, Operation::PatchStatus { answer, .. } if *answer != PatchAnswer::Nothing)),
        count(|one| is_assertion(one) || matches!(one, Operation::ReadNode { .. })),
        count(|one| matches!(one, Operation::CreateEvent { .. } | Operation::PatchEvent { .. })),
    ]
}

/// Another process on the same board, with the same budget and what its meter has kept.
fn restarted(script: Script) -> Script {
    let (settings, up) = (script.agent.shared.settings.clone(), script.up);
    let (counted, stored, lease_version) = (script.counted, script.stored, script.lease_version);
    Script { counted, stored, lease_version, ..Script::on(script.disk, settings, BOOT, START, up) }
}

fn stored<'a>(script: &'a Script, kind: &str) -> Option<&'a str> {
    let conditions = &script.stored.as_ref().unwrap().status.conditions;
    conditions.iter().find(|one| one.kind == kind).map(|one| one.status.as_str())
}

/// An hour in which memory runs low once, and is plenty again.
fn hour(script: &mut Script) -> [usize; 4] {
    let mut operations = script.pass(HOUR / 2);
    script.press_memory(true);
    operations.extend(script.pass(HOUR / 4));
    script.press_memory(false);
    operations.extend(script.pass(HOUR / 4));
    counts(&operations)
}

#[test]
fn what_runs_short_puts_off_one_after_the_other_and_renewals_never() {
    let all = hour(&mut spent(0));
    assert!(all[0] > 340 && all[1] > 10 && all[2] > 40 && all[3] == 2, "{all:?}");
    // Two reports of the changes, with what stands beside them.
    for (bytes, reports, has_assertions, events) in
        [(2_600_000, 2, true, 2), (5_100_000, 2, false, 2), (7_600_000, 2, false, 0), (10_200_000, 0, false, 0)]
    {
        let mut script = spent(bytes);
        let some = hour(&mut script);
        assert_eq!((some[1], some[2] > 40, some[3]), (reports, has_assertions, events), "{bytes}: {some:?}");
        assert!(has_assertions || some[2] == 0, "{bytes}: {some:?}");
        assert!(some[0].abs_diff(all[0]) <= 2, "renewals: {some:?} and {all:?}");
        assert_eq!(stored(&script, "MeteredBudgetLow"), Some("True"), "{bytes}");
        assert_eq!(stored(&script, "Ready"), Some("True"));
    }
}

#[test]
fn what_another_wrote_is_looked_at_as_long_as_it_is_asked_about() {
    for (bytes, is_read) in [(2_600_000, true), (5_100_000, false)] {
        let mut script = spent(bytes);
        let is_look = |sent: &&Operation| matches!(sent, Operation::ReadNode { .. });
        script.agent.status.seen(Seen::Version { resource_version: "101".to_owned(), is_next: true });
        let sent = script.pass(HOUR / 60);
        assert_eq!(sent.iter().filter(is_look).count(), usize::from(is_read), "{bytes}");
        // With what has changed it is.
        script.press_memory(true);
        let sent = script.pass(HOUR / 60);
        assert_eq!(sent.iter().filter(is_look).count(), usize::from(!is_read), "{bytes}");
        assert_eq!(stored(&script, "MemoryPressure"), Some("True"), "{bytes}");
    }
}

#[test]
fn without_a_budget_nothing_is_said_and_nothing_put_off_whatever_was_counted() {
    let mut script = Script::new();
    script.counted = Some(<[Day; 2]>::default());
    script.register();
    spend(&mut script, u64::MAX / 4);
    let all = hour(&mut script);
    assert!(all[1] > 10 && all[2] > 40 && all[3] >= 2, "{all:?}");
    assert_eq!(stored(&script, "MeteredBudgetLow"), None);
    let mut script = spent(1_000_000);
    script.pass(HOUR);
    assert_eq!(stored(&script, "MeteredBudgetLow"), None, "one that suffices");
}

#[test]
fn what_was_put_off_is_recorded_and_told_with_its_own_times_once_the_day_is_over() {
    let mut script = spent(10_500_000);
    script.press_memory(true);
    assert_eq!(counts(&script.pass(HOUR))[1..], [0, 0, 0]);
    script.press_memory(false);
    script.pass(HOUR);
    assert_eq!(counts(&script.pass(HOUR))[1..], [0, 0, 0]);
    assert_eq!(stored(&script, "MemoryPressure"), Some("False"));
    assert_eq!(kinds(&waiting(&script)), ["changed"; 3], "two changes, and that the bytes run low");
    // They outlive the process, too.
    let mut next = restarted(script);
    next.pass(HOUR);
    assert_eq!(kinds(&waiting(&next)), ["changed", "changed", "changed", "started"]);
    let sent = next.pass(24 * HOUR - next.up + HOUR / 10);
    let told: Vec<(String, String)> = sent
        .iter()
        .filter(|one| matches!(one, Operation::CreateEvent { .. }))
        .map(|one| {
            let text = |key: &str| body_of(one)[key].as_str().unwrap().to_owned();
            (text("reason"), text("lastTimestamp"))
        })
        .collect();
    let at = |reason: &str| told.iter().find(|(told, _)| told == reason).map(|(_, at)| at.as_str());
    assert_eq!(at("NodeHasInsufficientMemory").map(|at| &at[..16]), Some("2026-01-01T00:02"), "{told:?}");
    // After the five minutes for which pressure holds on.
    assert_eq!(at("NodeHasSufficientMemory").map(|at| &at[..15]), Some("2026-01-01T01:0"), "{told:?}");
}

#[test]
fn before_the_bytes_of_the_day_are_known_what_an_earlier_process_said_of_them_stays() {
    let mut script = spent(10_500_000);
    script.pass(HOUR);
    let mut next = restarted(script);
    let counted = next.counted.take();
    let mut sent = next.pass(Duration::from_secs(30));
    assert_eq!(stored(&next, "MeteredBudgetLow"), Some("True"));
    next.counted = counted;
    sent.extend(next.pass(HOUR));
    assert_eq!(stored(&next, "MeteredBudgetLow"), Some("True"));
    let is_created = |one: &&Operation| matches!(one, Operation::CreateEvent { .. });
    let told: Vec<Value> = sent.iter().filter(is_created).map(|one| body_of(one)["reason"].clone()).collect();
    assert!(told.contains(&json!("Starting")) && !told.contains(&json!("DailyBytesSuffice")), "{told:?}");
}

#[test]
fn at_the_end_of_the_day_all_of_it_goes_on_by_itself_and_the_node_says_so() {
    let mut script = spent(10_500_000);
    script.press_memory(true);
    script.pass(24 * HOUR - script.up - Duration::from_secs(60));
    assert_eq!((stored(&script, "MemoryPressure"), stored(&script, "MeteredBudgetLow")), (Some("False"), Some("True")));
    let sent = script.pass(Duration::from_secs(150));
    assert_eq!((stored(&script, "MemoryPressure"), stored(&script, "MeteredBudgetLow")), (Some("True"), Some("False")));
    let reasons: Vec<Value> = sent
        .iter()
        .filter(|one| matches!(one, Operation::CreateEvent { .. }))
        .map(|one| body_of(one)["reason"].clone())
        .collect();
    assert_eq!(reasons, ["DailyBytesRunLow", "NodeHasInsufficientMemory", "DailyBytesSuffice"]);
    assert!(script.words().contains(&"put-off"));
}

#[test]
fn what_makes_the_node_ready_again_or_anew_is_never_put_off() {
    let mut script = spent(10_500_000);
    script.pass(HOUR);
    script.offline(HOUR / 10);
    assert_eq!(counts(&script.pass(Duration::from_secs(60)))[1], 1, "the report after a gap");
    assert_eq!(counts(&script.pass(HOUR))[1], 0);
    // Its Lease is gone: so may the Node be.
    script.play(Lane::Lease, refused(404, "NotFound"));
    assert_eq!(counts(&script.pass(Duration::from_secs(60)))[2], 1, "whether it is there is asked");
    assert_eq!(counts(&script.pass(HOUR))[2], 0);
    // A process that starts reports once, whatever was spent.
    let mut next = restarted(script);
    next.register();
    assert_eq!(counts(&next.pass(HOUR))[1..], [0, 0, 0]);
    assert_eq!(stored(&next, "MeteredBudgetLow"), Some("True"));
}

#[test]
fn other_settings_end_it_at_once() {
    let mut script = spent(10_500_000);
    script.press_memory(true);
    script.pass(HOUR);
    let read = |script: &mut Script, daily_bytes: Option<u64>| {
        let settings = Settings { daily_bytes, ..Settings::default() };
        let now = script.now();
        script.agent.handle(Input::Reloaded(Box::new(settings)), now);
        script.pass(HOUR / 10)
    };
    assert_eq!(counts(&read(&mut script, Some(RENEWALS + OTHERS)))[1..], [0, 0, 0], "the same once more");
    let sent = read(&mut script, None);
    assert_eq!(stored(&script, "MeteredBudgetLow"), Some("False"));
    assert_eq!(stored(&script, "MemoryPressure"), Some("True"));
    assert_eq!(counts(&sent)[3], 3);
    // And one that begins in the middle of a day.
    assert_eq!(counts(&read(&mut script, Some(RENEWALS + OTHERS)))[1..], [1, 0, 0], "that the bytes run low");
    assert_eq!(stored(&script, "MeteredBudgetLow"), Some("True"));
    let sent = read(&mut script, Some(RENEWALS + 20 * OTHERS));
    assert_eq!((counts(&sent)[3], stored(&script, "MeteredBudgetLow")), (2, Some("False")));
}
