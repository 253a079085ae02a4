//! What was recorded, and the server knows more of: whose time a condition has.

use super::container_runtime::{NO_NETWORK, runtime, says};
use super::disk::{kinds, on_disk, waiting};
use super::outage::settled;
use super::*;
use crate::journal::Record;
use crate::node::Leaving;

/// A board whose journal says that memory is short. That it is over was told, and its record is lost.
fn with_a_lost_record() -> Script {
    let mut script = settled();
    script.offline(Duration::from_secs(30));
    script.press_memory(true);
    script.offline(Duration::from_secs(30));
    assert_eq!(kinds(&on_disk(&script)), ["began", "changed"]);
    script.disk.fails = true;
    script.pass(Duration::from_secs(60));
    script.press_memory(false);
    script.pass(Duration::from_secs(400));
    script.disk.fails = false;
    script
}

#[test]
fn a_record_older_than_what_the_server_has_is_not_told_as_the_present() {
    // The last: the Node's is not later, and only seems to be, as two processes were told the time by a server and the
    // second one has an earlier one.
    for (pressed, later_s, behind_ms) in [
        (Some(true), None, 0),
        (Some(false), None, 0),
        (Some(false), Some(2), 0),
        (None, None, 0),
        (Some(true), Some(1), 0),
        (Some(true), Some(0), 900),
    ] {
        let script = with_a_lost_record();
        let up = script.up + Duration::from_secs(5);
        let mut script = script.restart(BOOT, up);
        script.booted = script.booted.minus(Duration::from_millis(behind_ms));
        match pressed {
            Some(pressed) => script.press_memory(pressed),
            None => script.facts.readings.memory = Err(Absent::new("sys/fs/cgroup/memory.stat", Why::Empty)),
        }
        let mut stored = script.stored.clone().unwrap();
        let recorded = on_disk(&script)[1].at.wall.unwrap();
        if let Some(later_s) = later_s {
            let later = Wall::from_unix_seconds(recorded.unix_seconds() + later_s);
            stored.status.conditions[0].last_transition_time = later.to_seconds_stamp();
            script.stored = Some(stored.clone());
        }
        let memory = stored.status.conditions[0].clone();
        assert_eq!(memory.status, "False");
        while script.play_healthy(Lane::Status).1 != Operation::ReadVersion {}
        script.play(Lane::Status, refused(409, "AlreadyExists"));
        script.play(Lane::Status, Ok(Document::Node(Box::new(stored))));
        let looked = script.wall(0).unwrap().to_seconds_stamp();
        while !matches!(script.play_healthy(Lane::Status).1, Operation::PatchStatus { .. }) {}
        let told = &script.stored.unwrap().status.conditions[0];
        let expected = match pressed {
            Some(true) if behind_ms != 0 => {
                ("True", recorded.minus(Duration::from_millis(behind_ms)).to_seconds_stamp())
            }
            Some(true) => ("True", looked),
            _ => ("False", memory.last_transition_time),
        };
        assert_eq!((told.status.as_str(), told.last_transition_time.clone()), expected);
    }
}

#[test]
fn what_was_seen_to_change_before_the_node_was_read_did_so_then_whatever_an_old_record_says() {
    let script = with_a_lost_record();
    let stored = script.stored.clone().unwrap();
    let mut script = script.restart(BootId(2), Duration::from_secs(20));
    script.offline(Duration::from_secs(30));
    for pressed in [true, false] {
        script.press_memory(pressed);
        script.offline(Duration::from_secs(330));
    }
    let changed = waiting(&script).last().unwrap().at.wall.unwrap().to_seconds_stamp();
    while script.play_healthy(Lane::Status).1 != Operation::ReadVersion {}
    script.play(Lane::Status, refused(409, "AlreadyExists"));
    script.play(Lane::Status, Ok(Document::Node(Box::new(stored))));
    while !matches!(script.play_healthy(Lane::Status).1, Operation::PatchStatus { .. }) {}
    let memory = &script.stored.unwrap().status.conditions[0];
    assert_eq!((memory.status.as_str(), memory.last_transition_time.clone()), ("False", changed));
}

#[test]
fn what_a_process_took_for_a_change_for_want_of_a_lost_record_is_none_to_the_next_one() {
    let mut script = with_a_lost_record();
    let stored = script.stored.clone().unwrap();
    for _ in 0..2 {
        let up = script.up + Duration::from_secs(5);
        script = script.restart(BOOT, up);
        while script.play_healthy(Lane::Status).1 != Operation::ReadVersion {}
        assert_eq!(kinds(&waiting(&script)).iter().filter(|&&kind| kind == "changed").count(), 2);
        script.play(Lane::Status, refused(409, "AlreadyExists"));
        script.play(Lane::Status, Ok(Document::Node(Box::new(stored.clone()))));
        while !matches!(script.play_healthy(Lane::Status).1, Operation::PatchStatus { .. }) {}
        let [told, before] = [script.stored.as_ref().unwrap(), &stored].map(|node| &node.status.conditions[0]);
        assert_eq!((&*told.status, &told.last_transition_time), ("False", &before.last_transition_time));
    }
}

/// The one before it is told first, and then nothing on the disk says from what the last one changed.
#[test]
fn a_record_whose_forerunner_was_told_is_no_change_where_the_server_has_that_status_since_before() {
    let script = with_a_lost_record();
    let stored = script.stored.clone().unwrap();
    let up = script.up + Duration::from_secs(5);
    let mut script = script.restart(BOOT, up);
    let read = |script: &mut Script| {
        while script.play_healthy(Lane::Status).1 != Operation::ReadVersion {}
        script.play(Lane::Status, refused(409, "AlreadyExists"));
        script.play(Lane::Status, Ok(Document::Node(Box::new(stored.clone()))));
    };
    read(&mut script);
    let changes = |records: Vec<Record>| kinds(&records).iter().filter(|&&kind| kind == "changed").count();
    while changes(waiting(&script)) > 1 {
        script.pass(Duration::from_millis(100));
    }
    script.offline(Duration::from_secs(60));
    assert_eq!(changes(on_disk(&script)), 1);
    let up = script.up + Duration::from_secs(5);
    let mut script = script.restart(BOOT, up);
    read(&mut script);
    while !matches!(script.play_healthy(Lane::Status).1, Operation::PatchStatus { .. }) {}
    let [told, before] = [script.stored.as_ref().unwrap(), &stored].map(|node| &node.status.conditions[0]);
    assert_eq!((&*told.status, &told.last_transition_time), ("False", &before.last_transition_time));
}

#[test]
fn a_node_that_was_made_while_it_looked_otherwise_is_put_right_now_and_not_with_the_time_of_before() {
    let mut script = settled();
    says(&mut script, runtime(&[NO_NETWORK]));
    script.pass(Duration::from_secs(30));
    says(&mut script, runtime(&[]));
    script.offline(Duration::from_secs(30));
    let mut stored = script.stored.clone().unwrap();
    let ready = stored.status.conditions.iter_mut().find(|one| one.kind == "Ready").unwrap();
    assert_eq!(ready.status, "False");
    let made = script.wall(0).unwrap().to_seconds_stamp();
    ready.last_transition_time.clone_from(&made);
    script.stored = Some(stored.clone());
    // It is gone, and made anew by a request whose answer is lost.
    let is_asked =
        |script: &mut Script, refusal| matches!(script.play(Lane::Status, refusal).1, Operation::ReadNode { .. });
    while !is_asked(&mut script, refused(404, "NotFound")) {}
    script.play(Lane::Status, refused(409, "AlreadyExists"));
    script.play(Lane::Status, Ok(Document::Node(Box::new(stored))));
    while !matches!(script.play_healthy(Lane::Status).1, Operation::PatchStatus { .. }) {}
    let all = &script.stored.as_ref().unwrap().status.conditions;
    let ready = all.iter().find(|one| one.kind == "Ready").unwrap();
    assert_eq!(ready.status, "True");
    assert!(ready.last_transition_time >= made, "{ready:?} of a Node made at {made}");
}

/// It was told to nobody that the machine was to go down, as there was no server: what waits to be told stays as it is.
#[test]
fn a_change_that_waits_for_a_server_is_told_once_with_its_time_though_a_shutdown_was_called_off() {
    let mut script = settled();
    script.offline(Duration::from_secs(30));
    says(&mut script, runtime(&[NO_NETWORK]));
    script.offline(Duration::from_secs(30));
    let changed = on_disk(&script).last().unwrap().at.wall.unwrap().to_seconds_stamp();
    let now = script.now();
    script.agent.handle(Input::GoesDown(Leaving::Reboot), now);
    script.offline(Duration::from_secs(5));
    let now = script.now();
    script.agent.handle(Input::GoesOn, now);
    script.offline(Duration::from_secs(60));
    let sent = script.pass(Duration::from_secs(120));
    let is_told =
        |one: &&Operation| matches!(one, Operation::CreateEvent { .. }) && body_of(one)["reason"] == "NodeNotReady";
    let told: Vec<_> = sent.iter().filter(is_told).map(|one| body_of(one)["firstTimestamp"].clone()).collect();
    assert_eq!(told, [changed.as_str()]);
    let all = &script.stored.as_ref().unwrap().status.conditions;
    let ready = all.iter().find(|one| one.kind == "Ready").unwrap();
    assert_eq!([&ready.status, &ready.last_transition_time], ["False", &changed]);
}

#[test]
fn what_changed_after_the_node_was_made_did_so_whatever_was_believed_of_the_servers_clock_then() {
    const WAY: Duration = Duration::from_secs(4);
    let mut script = Script::new();
    script.clock_error_seconds = 34_560_000;
    let (ticket, operation) = loop {
        let (ticket, operation) = script.next(Lane::Status);
        if matches!(operation, Operation::CreateNode { .. }) {
            break (ticket, operation);
        }
        // So that a look comes soon after the Node.
        script.offline(Duration::from_secs(9));
        // A server whose clock is put right a moment later.
        let answer = Answer { date: script.wall(8), result: script.reply(&operation) };
        script.agent.handle(Input::Answered(ticket, answer), script.now());
    };
    let reply = script.reply(&operation);
    script.press_memory(true);
    script.offline(WAY);
    let pressed = waiting(&script).last().unwrap().at.up;
    script.answer(ticket, reply);
    script.pass(Duration::from_secs(60));
    let memory = &script.stored.as_ref().unwrap().status.conditions[0];
    assert_eq!(memory.status, "True");
    let told = script.said.iter().filter(|notice| notice.text.contains("NodeHasInsufficientMemory"));
    assert_eq!(told.count(), 1, "nothing has changed since: {}", memory.last_transition_time);
    // By the server's clock, as far as it was known when this was told.
    let late =
        Wall::parse_stamp(&memory.last_transition_time).unwrap().since(script.booted.plus(pressed.as_duration()));
    assert!(late <= WAY, "{late:?}");
}
