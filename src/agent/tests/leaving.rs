//! A machine that goes down: recorded, told in two requests within two seconds, and told later where it could not be (D15).

use super::outage::{kinds, settled, waiting};
use super::*;
use crate::node::Leaving;
use crate::probe::Why;
use crate::probe::facts::Absent;

const REBOOTED: BootId = BootId(0xb000_0000_0000_4000_8000_0000_0000_0002);

fn leave(script: &mut Script, kind: Leaving) {
    let now = script.now();
    script.agent.handle(Input::Leaving(kind), now);
}

/// Status, reason and time of a condition, as a report says it.
fn said(report: &Operation, kind: &str) -> [String; 3] {
    let body = body_of(report);
    let all = body["status"]["conditions"].as_array().unwrap();
    let one = all.iter().find(|one| one["type"] == kind).unwrap();
    ["status", "reason", "lastTransitionTime"].map(|key| one[key].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_shutdown_is_told_in_two_requests_after_its_record_and_then_the_process_ends() {
    let mut script = settled();
    script.disk.hangs = true;
    leave(&mut script, Leaving::PowerOff);
    let (sent, until) = script.drain();
    assert_eq!((sent.len(), until.as_duration() - script.up), (0, Duration::from_millis(500)), "the disk knows first");
    assert_eq!(kinds(&waiting(&script)), ["leaving"]);
    script.disk.hangs = false;
    let now = script.now();
    script.agent.handle(Input::Written { done: true }, now);
    let (mut sent, until) = script.drain();
    assert!(sent.len() == 2 && until.as_duration() - script.up <= Duration::from_secs(2));
    let at = script.now().wall.unwrap().to_seconds_stamp();
    let (event, report) = (sent.pop().unwrap(), sent.pop().unwrap());
    assert_eq!(said(&report.1, "Ready"), ["False", "KubeletNotReady", &at]);
    assert_eq!(said(&report.1, "PlannedAbsence"), ["True", "PowerOff", &at]);
    assert_eq!(body_of(&report.1)["status"].as_object().unwrap().len(), 2, "{:?}", report.1);
    assert_eq!(body_of(&event.1)["reason"], "Shutdown");
    assert!(!script.stopped);
    script.answer(report.0, Ok(metadata("rv2")));
    script.drain();
    assert!(!script.stopped);
    script.answer(event.0, Ok(Document::Nothing));
    assert_eq!(script.drain().0.len(), 0);
    assert!(script.stopped && waiting(&script).is_empty());
}

#[test]
fn a_server_that_hangs_is_waited_for_two_seconds_and_renewals_go_on() {
    let mut script = settled();
    leave(&mut script, Leaving::Reboot);
    let (sent, _) = script.drain();
    assert_eq!(sent.len(), 2);
    script.up += Duration::from_millis(1999);
    // One that was due.
    let renewals = script.drain().0.into_iter().filter(|(ticket, _)| ticket.lane() == Lane::Lease).count();
    assert!(renewals <= 1 && !script.stopped);
    script.up += Duration::from_millis(1);
    script.drain();
    assert!(script.stopped);
}

#[test]
fn without_a_link_it_is_recorded_and_told_by_the_next_process_with_its_time() {
    let mut script = settled();
    script.offline(Duration::from_secs(120));
    let at = script.now().wall.unwrap().to_seconds_stamp();
    leave(&mut script, Leaving::Reboot);
    assert_eq!((script.drain().0.len(), script.stopped), (0, true), "at once");
    let mut next = script.restart(REBOOTED, Duration::from_secs(20));
    next.register();
    let sent = next.pass(Duration::from_secs(120));
    let events = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. })).map(body_of);
    let shutdown = events.into_iter().find(|event| event["reason"] == "Shutdown").unwrap();
    assert_eq!(shutdown["lastTimestamp"], at.as_str());
}

#[test]
fn who_is_back_is_ready_and_present_whatever_became_of_the_shutdown() {
    let mut script = settled();
    leave(&mut script, Leaving::SoftReboot);
    for (ticket, operation) in script.drain().0 {
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
    }
    script.drain();
    let status = |script: &Script, kind: &str| {
        let conditions = &script.stored.as_ref().unwrap().status.conditions;
        conditions.iter().find(|one| one.kind == kind).map(|one| [one.status.clone(), one.reason.clone()])
    };
    assert_eq!(status(&script, "PlannedAbsence"), Some(["True".to_owned(), "SoftReboot".to_owned()]));
    // It was called off, and the service is started again in the same boot.
    let up = script.up + Duration::from_secs(5);
    let mut next = script.restart(BOOT, up);
    next.register();
    let sent = next.pass(Duration::from_secs(120));
    assert_eq!(status(&next, "PlannedAbsence"), Some(["False".to_owned(), "Present".to_owned()]));
    assert_eq!(status(&next, "Ready"), Some(["True".to_owned(), "KubeletReady".to_owned()]));
    let reasons: Vec<Value> = sent
        .iter()
        .filter(|one| matches!(one, Operation::CreateEvent { .. }))
        .map(|one| body_of(one)["reason"].clone())
        .collect();
    assert!(reasons.contains(&"AbsenceOver".into()) && reasons.contains(&"NodeReady".into()), "{reasons:?}");
}

#[test]
fn what_was_announced_is_told_again_after_the_shutdown_it_covers() {
    let mut script = settled();
    let now = script.now();
    let until = crate::config::absence::Until::After(Duration::from_secs(8 * 3600));
    script.agent.handle(Input::Away { until, reason: "sleeps".to_owned() }, now);
    script.pass(Duration::from_secs(5));
    leave(&mut script, Leaving::PowerOff);
    let (sent, _) = script.drain();
    let report = sent.iter().find(|(ticket, _)| ticket.lane() == Lane::Status).unwrap();
    assert_eq!(said(&report.1, "PlannedAbsence")[..2], ["True", "PowerOff"]);
    for (ticket, operation) in sent {
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
    }
    script.drain();
    let mut next = script.restart(REBOOTED, Duration::from_secs(20));
    next.register();
    next.pass(Duration::from_secs(60));
    let stored =
        next.stored.as_ref().unwrap().status.conditions.iter().find(|one| one.kind == "PlannedAbsence").unwrap();
    assert_eq!((stored.status.as_str(), stored.reason.as_str()), ("True", "Announced"), "it is not over yet");
}

#[test]
fn who_is_not_to_announce_it_ends_as_for_any_sigterm() {
    let mut script = Script::with(Settings { announce_shutdown: false, ..Settings::default() });
    script.register();
    script.pass(Duration::from_secs(30));
    leave(&mut script, Leaving::Reboot);
    assert_eq!((script.drain().0.len(), script.stopped), (0, true));
    assert!(waiting(&script).is_empty());
}

/// What logind says: the process goes on.
fn goes_down(script: &mut Script, kind: Leaving) {
    let now = script.now();
    script.agent.handle(Input::GoesDown(kind), now);
}

fn answer_all(script: &mut Script, sent: Vec<(Ticket, Operation)>) {
    for (ticket, operation) in sent {
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
    }
}

#[test]
fn logind_waits_until_the_server_has_it_and_renewals_go_on_until_sigterm() {
    let mut script = settled();
    script.disk.hangs = true;
    goes_down(&mut script, Leaving::Reboot);
    assert_eq!((script.drain().0.len(), script.releases), (0, 0), "the disk knows first");
    script.disk.hangs = false;
    let now = script.now();
    script.agent.handle(Input::Written { done: true }, now);
    let (mut sent, _) = script.drain();
    let lanes: Vec<Lane> = sent.iter().map(|(ticket, _)| ticket.lane()).collect();
    assert_eq!((lanes, script.releases), (vec![Lane::Status, Lane::Events], 0));
    assert_eq!(said(&sent[0].1, "PlannedAbsence")[..2], ["True", "Reboot"]);
    let event = sent.pop().unwrap();
    answer_all(&mut script, sent);
    script.drain();
    assert_eq!(script.releases, 0, "the event is not there yet");
    answer_all(&mut script, vec![event]);
    script.drain();
    assert_eq!((script.releases, script.stopped), (1, false));
    let told = script.pass(Duration::from_secs(60));
    assert!(told.len() >= 5 && told.iter().all(|one| matches!(one, Operation::RenewLease { .. })), "{told:?}");
    // Told twice, by another signal and by the end of the service.
    goes_down(&mut script, Leaving::Shutdown);
    leave(&mut script, Leaving::Shutdown);
    assert_eq!(script.drain().0.len(), 0);
    assert!(script.stopped && script.releases == 1 && waiting(&script).is_empty());
}

#[test]
fn a_server_that_hangs_holds_logind_for_two_seconds_and_no_link_for_none() {
    let mut script = settled();
    goes_down(&mut script, Leaving::PowerOff);
    let (sent, until) = script.drain();
    assert!(sent.len() == 2 && until.as_duration() - script.up <= Duration::from_secs(2));
    script.up += Duration::from_millis(1999);
    let renewals = script.drain().0.len();
    assert!(renewals <= 1 && script.releases == 0);
    script.up += Duration::from_millis(1);
    script.drain();
    assert_eq!((script.releases, script.stopped), (1, false));
    let now = script.now();
    script.agent.handle(Input::Stopping, now);
    script.drain();
    assert!(script.stopped, "all that could be told was tried");

    let mut script = settled();
    script.offline(Duration::from_secs(120));
    goes_down(&mut script, Leaving::PowerOff);
    let sent = script.drain().0;
    assert!(sent.iter().all(|(ticket, _)| ticket.lane() == Lane::Lease), "{sent:?}");
    assert_eq!((script.releases, kinds(&waiting(&script)).pop()), (1, Some("leaving")));
}

#[test]
fn sigterm_before_the_answers_waits_for_them_as_the_lock_does() {
    let mut script = settled();
    goes_down(&mut script, Leaving::PowerOff);
    let (sent, _) = script.drain();
    let now = script.now();
    script.agent.handle(Input::Stopping, now);
    script.drain();
    assert!(!script.stopped);
    answer_all(&mut script, sent);
    script.drain();
    assert!(script.stopped, "and the lock goes with the process");
}

#[test]
fn a_shutdown_that_was_called_off_leaves_a_node_that_is_ready_and_present_since_then() {
    for is_answered in [true, false] {
        let mut script = settled();
        goes_down(&mut script, Leaving::Reboot);
        let (sent, _) = script.drain();
        if is_answered {
            answer_all(&mut script, sent);
            script.pass(Duration::from_secs(30));
        } else {
            let now = script.now();
            script.agent.handle(Input::GoesOn, now);
            answer_all(&mut script, sent);
        }
        let at = script.now().wall.unwrap().to_seconds_stamp();
        let now = script.now();
        script.agent.handle(Input::GoesOn, now);
        let sent = script.pass(Duration::from_secs(30));
        let stored = script.stored.clone().unwrap();
        let one = |kind: &str| stored.status.conditions.iter().find(|one| one.kind == kind).unwrap();
        let (ready, absence) = (one("Ready"), one("PlannedAbsence"));
        assert_eq!([ready.status.as_str(), &ready.reason, &ready.last_transition_time], ["True", "KubeletReady", &at]);
        assert_eq!([absence.status.as_str(), &absence.reason], ["False", "Present"]);
        let events: Vec<Value> = sent
            .iter()
            .filter(|one| matches!(one, Operation::CreateEvent { .. }))
            .map(|one| body_of(one)["message"].clone())
            .collect();
        let cancellations = events.iter().filter(|one| *one == "Shutdown manager detected shutdown cancellation");
        assert_eq!(cancellations.count(), 1, "{events:?}");
        // And all is as before: another one is told like the first.
        goes_down(&mut script, Leaving::Halt);
        let report = script.drain().0.into_iter().find(|(ticket, _)| ticket.lane() == Lane::Status).unwrap();
        assert_eq!(said(&report.1, "PlannedAbsence")[..2], ["True", "Halt"]);
    }
}

#[test]
fn who_is_not_to_announce_it_holds_nobody_up_and_what_ends_goes_on_no_more() {
    let mut script = Script::with(Settings { announce_shutdown: false, ..Settings::default() });
    script.register();
    script.pass(Duration::from_secs(30));
    goes_down(&mut script, Leaving::Reboot);
    script.drain();
    assert_eq!((script.releases, script.stopped), (1, false));
    let mut script = settled();
    leave(&mut script, Leaving::Reboot);
    let now = script.now();
    script.agent.handle(Input::GoesOn, now);
    let (sent, _) = script.drain();
    answer_all(&mut script, sent);
    script.drain();
    assert!(script.stopped, "SIGTERM has come");
}

fn goes_on(script: &mut Script) {
    let now = script.now();
    script.agent.handle(Input::GoesOn, now);
}

/// Where the server has taken what it was told, and cannot be asked: Ready is so from then on.
#[test]
fn one_that_was_called_off_is_over_since_then_whatever_nobody_has_acknowledged_of_before() {
    let mut script = settled();
    let now = script.now();
    script.agent.handle(Input::GoesDown(Leaving::Reboot), now);
    while script.releases == 0 {
        script.pass(Duration::from_millis(100));
    }
    let went_down = said_of(&script, "Ready");
    assert_eq!(went_down[0], "False");
    script.pass(Duration::from_secs(5));
    goes_on(&mut script);
    script.offline(Duration::from_secs(70));
    let sent = script.pass(Duration::from_secs(20));
    let report = sent.iter().find(|sent| matches!(sent, Operation::PatchStatus { .. })).unwrap();
    let [status, _, since] = said(report, "Ready");
    assert!(status == "True" && since > went_down[2], "{since}, it went down at {}", went_down[2]);
    assert_eq!(said(report, "PlannedAbsence")[0], "False");
}

/// What the server has of it.
fn said_of(script: &Script, kind: &str) -> [String; 3] {
    let conditions = &script.stored.as_ref().unwrap().status.conditions;
    let one = conditions.iter().find(|one| one.kind == kind).unwrap();
    [&one.status, &one.reason, &one.last_transition_time].map(Clone::clone)
}

/// It is not read in the place of what asks the server to stop tracking who wrote what.
#[test]
fn one_that_is_called_off_before_the_node_is_registered_leaves_that_as_it_is() {
    let mut script = Script::new();
    script.facts.readings.memory = Err(Absent::new("sys/fs/cgroup/memory.stat", Why::Empty));
    script.play_healthy(Lane::Status);
    script.play(Lane::Status, refused(409, "AlreadyExists"));
    let mut node = registered_node();
    node.metadata.has_needless_managers = true;
    script.play(Lane::Status, Ok(Document::Node(Box::new(node))));
    let (ticket, operation) = script.next(Lane::Status);
    assert_eq!(operation, Operation::StripNode);
    let now = script.now();
    script.agent.handle(Input::GoesDown(Leaving::Reboot), now);
    script.drain();
    goes_on(&mut script);
    script.answer(ticket, unreachable());
    let report = loop {
        let (_, operation) = script.play_healthy(Lane::Status);
        if matches!(operation, Operation::PatchStatus { .. }) {
            break operation;
        }
    };
    let told = body_of(&report)["status"]["conditions"].to_string();
    assert!(!told.contains("Unknown"), "what cannot be read is what it was: {told}");
}

#[test]
fn what_departures_have_dated_is_no_other_programs() {
    let mut script = Script::with(Settings { node_watch: false, ..Settings::default() });
    script.register();
    script.pass(Duration::from_secs(30));
    for time in 0..3 {
        goes_down(&mut script, Leaving::Reboot);
        let (sent, _) = script.drain();
        answer_all(&mut script, sent);
        script.stored.as_mut().unwrap().metadata.resource_version = format!("dated{time}");
        script.pass(Duration::from_secs(120));
        goes_on(&mut script);
        script.pass(Duration::from_secs(120));
        assert_eq!(said_of(&script, "PlannedAbsence")[..2], ["False", "Present"], "{time}");
    }
    assert!(!script.words().contains(&"condition-left"));
}
