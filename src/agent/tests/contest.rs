//! Which board gives way to which (D10): the board of the script, and another one that only the server sees.

use super::*;
use crate::node::identity::BOARD_SERIAL;

/// The Node as the other board would write it.
fn theirs() -> Node {
    let mut node = registered_node();
    node.metadata.annotations.insert(BOARD_SERIAL.to_owned(), "of-another-board".to_owned());
    node
}

fn working() -> Script {
    let mut script = Script::new();
    script.register();
    script.pass(Duration::from_secs(30));
    script
}

fn replacements(sent: &[Operation]) -> Vec<Value> {
    let created = sent.iter().filter(|operation| matches!(operation, Operation::CreateEvent { .. })).map(body_of);
    created.filter(|body| body["reason"] == "NodeReplaced").collect()
}

fn writes(sent: &[Operation]) -> usize {
    sent.iter().filter(|operation| operation.verb() != "GET").count()
}

/// Answers the looks at the Lease.
fn look<const LOOKS: usize>(script: &mut Script, renewed: [&str; LOOKS]) {
    for renew_time in renewed {
        let mut stored = lease(Some("uid1"));
        stored.spec.renew_time = renew_time.to_owned();
        stored.spec.lease_transitions = Some(script.transitions);
        let (_, operation) = script.play(Lane::Status, Ok(Document::Lease(Box::new(stored))));
        assert_eq!(operation, Operation::ReadLease);
    }
}

const ONE: &str = "2026-01-01T00:10:00.000000Z";
const LATER: &str = "2026-01-01T00:10:10.000000Z";

/// The next renewal is answered as after somebody else took the Lease.
fn lose_the_lease(script: &mut Script) {
    let (ticket, renewal) = script.next(Lane::Lease);
    assert!(matches!(renewal, Operation::RenewLease { .. }));
    script.transitions += 1;
    let reply = script.reply(&renewal);
    script.answer(ticket, reply);
}

/// The next renewal is answered without content, or refused. Answers its body.
fn renew_unread(script: &mut Script) -> Value {
    let (ticket, renewal) = script.next(Lane::Lease);
    let reply = script.reply(&renewal);
    script.answer(ticket, reply.map(|_| Document::Nothing));
    body_of(&renewal)
}

#[test]
fn of_answers_without_content_each_second_tests_who_holds_the_lease_and_each_thirtieth_shows_it() {
    let mut script = working();
    let mut asked = Vec::new();
    for _ in 0..60 {
        let (ticket, renewal) = script.next(Lane::Lease);
        let Operation::RenewLease { answer, .. } = &renewal else { panic!("{renewal:?}") };
        let reply = script.reply(&renewal);
        let reply = if *answer == PatchAnswer::Nothing { reply.map(|_| Document::Nothing) } else { reply };
        script.answer(ticket, reply);
        asked.push((body_of(&renewal).is_array(), *answer));
    }
    let shown: Vec<usize> = (0..60).filter(|at| asked[*at].1 != PatchAnswer::Nothing).collect();
    assert!(shown.len() == 2 && shown[1] - shown[0] == 30, "{shown:?}");
    let unseen = &asked[shown[0]..=shown[1]];
    assert!(unseen.windows(2).all(|two| two.iter().any(|(tests, answer)| *tests || *answer != PatchAnswer::Nothing)));
    assert_eq!(unseen.iter().filter(|(tests, _)| *tests).count(), 14);
}

#[test]
fn a_board_that_reads_no_answers_knows_that_its_lease_was_taken_when_a_renewal_is_refused_and_writes_nothing_more() {
    for renewals in 1..6 {
        let mut script = working();
        (0..renewals).for_each(|_| drop(renew_unread(&mut script)));
        script.transitions += 1;
        let sent = (0..3).find(|_| renew_unread(&mut script).is_array()).expect("one that tests");
        assert!(sent < 2, "{sent}");
        assert_eq!(script.play_healthy(Lane::Lease).1, Operation::ReadLease);
        let (_, next) = script.play(Lane::Status, Ok(Document::Node(Box::new(theirs()))));
        assert_eq!(next, Operation::ReadNode { heartbeat: true });
        assert!(script.words().contains(&"lease-taken"), "{:?}", script.words());
    }
}

#[test]
fn the_first_renewal_after_a_silence_tests_who_holds_the_lease_so_that_a_board_that_was_replaced_writes_nothing() {
    for renewals in 1..5 {
        for is_asleep in [false, true] {
            let mut script = working();
            (0..renewals).for_each(|_| drop(renew_unread(&mut script)));
            if is_asleep {
                script.up += Duration::from_secs(16);
            } else {
                (0..6).for_each(|_| drop(script.play(Lane::Lease, unreachable())));
            }
            script.transitions += 1;
            assert!(renew_unread(&mut script).is_array(), "{renewals}, {is_asleep}");
            let (mut sent, _) = script.drain();
            let (ticket, operation) = sent.pop().expect("a look at the Lease");
            assert!(operation == Operation::ReadLease && sent.is_empty(), "{renewals}, {is_asleep}: {sent:?}");
            let reply = script.reply(&operation);
            script.answer(ticket, reply);
            let (_, next) = script.play(Lane::Status, Ok(Document::Node(Box::new(theirs()))));
            assert_eq!(next, Operation::ReadNode { heartbeat: true });
            assert!(script.words().contains(&"lease-taken"), "{:?}", script.words());
        }
    }
}

#[test]
fn a_renewal_that_is_refused_for_another_reason_is_sent_again_as_before() {
    let mut script = working();
    (0..2).for_each(|_| drop(renew_unread(&mut script)));
    script.play(Lane::Lease, refused(422, "Invalid"));
    assert_eq!(script.play_healthy(Lane::Lease).1, Operation::ReadLease);
    assert!(matches!(script.play_healthy(Lane::Lease).1, Operation::RenewLease { .. }));
    assert!(!script.words().contains(&"lease-taken"));
}

#[test]
fn a_board_whose_lease_another_took_writes_nothing_more_and_asks_every_five_minutes() {
    let mut script = working();
    lose_the_lease(&mut script);
    let lost_at = script.up;
    assert_eq!(
        script.play(Lane::Status, Ok(Document::Node(Box::new(theirs())))).1,
        Operation::ReadNode { heartbeat: true }
    );
    assert_eq!(script.up, lost_at, "at once");
    look(&mut script, [ONE, LATER]);
    assert!(script.up - lost_at < Duration::from_secs(20));
    let sent = script.pass(Duration::from_secs(295));
    assert_eq!(sent, [], "neither Lease nor status nor events");
    assert!(script.words().contains(&"name-taken"));
    let standing = script.agent.status_line();
    assert!(standing.text.contains("of-another-board") && standing.text.contains("holds the name n1"), "{standing:?}");
    assert_eq!(
        script.play(Lane::Status, Ok(Document::Node(Box::new(theirs())))).1,
        Operation::ReadNode { heartbeat: true }
    );
    look(&mut script, [LATER, LATER]);
    let sent = script.pass(Duration::from_secs(30));
    assert!(script.words().contains(&"stranger-gone"));
    assert!(sent.contains(&Operation::ReadLease) && writes(&sent) > 3, "{sent:?}");
    let report = sent.iter().find(|operation| matches!(operation, Operation::PatchStatus { .. })).unwrap();
    assert_eq!(body_of(report)["metadata"]["annotations"][BOARD_SERIAL], "c3dd000000000001");
    let told = replacements(&sent);
    assert_eq!(told.len(), 1, "{sent:?}");
    assert_eq!(
        told[0]["message"],
        "Node n1 is this board from now on; before, it was another board (serial number of-another-board, ours is \
         c3dd000000000001)"
    );
}

#[test]
fn a_twin_that_differs_in_nothing_is_noticed_by_its_renewals_and_said_to_be_one() {
    let mut script = working();
    lose_the_lease(&mut script);
    script.play_healthy(Lane::Status);
    look(&mut script, [ONE, LATER]);
    assert_eq!(writes(&script.pass(Duration::from_secs(290))), 0);
    let said = script.said.iter().find(|notice| notice.word == "name-taken").unwrap();
    assert!(said.text.contains("tell them not apart"), "{said:?}");
}

#[test]
fn a_renewal_of_ours_that_came_late_is_nobody_elses() {
    let mut script = working();
    lose_the_lease(&mut script);
    script.play_healthy(Lane::Status);
    look(&mut script, [LATER, ONE, ONE]);
    let sent = script.pass(Duration::from_secs(30));
    assert!(writes(&sent) > 3);
    assert_eq!(replacements(&sent), Vec::<Value>::new(), "nobody knows of a twin that it is another board");
    assert!(script.words().contains(&"stranger-gone") && !script.words().contains(&"name-taken"));
    // One that goes on from there is another's.
    let mut script = working();
    lose_the_lease(&mut script);
    script.play_healthy(Lane::Status);
    look(&mut script, [LATER, ONE, LATER]);
    assert_eq!(writes(&script.pass(Duration::from_secs(290))), 0);
    assert!(script.words().contains(&"name-taken"));
}

#[test]
fn a_renewal_that_comes_while_its_holder_is_looked_at_is_nobody_elses_if_this_board_sent_it() {
    for answered_after in [0, 1, 2, 14] {
        let mut script = working();
        let (ticket, renewal) = script.next(Lane::Lease);
        script.answer(ticket, unreachable());
        let written = body_of(&renewal)["spec"]["renewTime"].as_str().unwrap().to_owned();
        (0..answered_after).for_each(|_| drop(renew_unread(&mut script)));
        lose_the_lease(&mut script);
        script.play_healthy(Lane::Status);
        look(&mut script, ["2026-01-01T00:00:00.000000Z", &written, &written]);
        assert!(writes(&script.pass(Duration::from_secs(30))) > 3, "{answered_after}");
        assert!(!script.words().contains(&"name-taken"));
    }
}

#[test]
fn a_lease_of_any_duration_is_looked_at_again_before_the_controller_loses_patience() {
    for (seconds, least, most) in [(40, 16, 20), (1, 3, 7), (3600, 50, 54), (i32::MAX, 50, 54), (-1, 3, 7)] {
        let mut script = working();
        lose_the_lease(&mut script);
        script.play_healthy(Lane::Status);
        let mut stored = lease(Some("uid1"));
        (stored.spec.renew_time, stored.spec.lease_duration_seconds) = (ONE.to_owned(), Some(seconds.into()));
        let asked_at = script.play(Lane::Status, Ok(Document::Lease(Box::new(stored)))).0;
        let (again_at, operation) = script.play_healthy(Lane::Status);
        assert_eq!(operation, Operation::ReadLease);
        assert!((least * 1000..most * 1000).contains(&(again_at - asked_at)), "{seconds}: {asked_at} {again_at}");
    }
}

#[test]
fn wherever_the_node_is_read_its_writer_is_looked_at() {
    // The answer to a report.
    let mut script = working();
    script.press_memory(true);
    let (ticket, report) = script.next(Lane::Status);
    assert!(matches!(report, Operation::PatchStatus { .. }));
    script.answer(ticket, Ok(Document::Node(Box::new(theirs()))));
    assert_eq!(script.next(Lane::Status).1, Operation::ReadLease, "after a report");
    // A look after a surprise.
    let mut script = working();
    let surprise = loop {
        let (ticket, operation) = script.next(Lane::Status);
        match operation {
            Operation::PatchStatus { answer: PatchAnswer::Nothing, .. } => {
                script.answer(ticket, Ok(metadata("another")));
            }
            Operation::ReadNode { .. } => break ticket,
            other => panic!("{other:?}"),
        }
    };
    script.answer(surprise, Ok(Document::Node(Box::new(theirs()))));
    assert_eq!(script.next(Lane::Status).1, Operation::ReadLease, "after a surprise");
    // The first look of one that may not register.
    let mut script = Script::with(Settings { register_node: false, ..Settings::default() });
    script.play_healthy(Lane::Status);
    script.play(Lane::Status, Ok(Document::Node(Box::new(theirs()))));
    assert_eq!(script.next(Lane::Status).1, Operation::ReadLease, "without registerNode");
    assert!(script.pass(Duration::from_secs(15)).is_empty(), "and nothing is written meanwhile");
}

#[test]
fn a_node_that_is_gone_when_its_holder_is_asked_about_is_registered() {
    let mut script = working();
    lose_the_lease(&mut script);
    script.play(Lane::Status, refused(404, "NotFound"));
    assert_eq!(script.play(Lane::Status, refused(404, "NotFound")).1, Operation::ReadNode { heartbeat: false });
    assert!(matches!(script.play_healthy(Lane::Status).1, Operation::CreateNode { .. }));
}

#[test]
fn a_question_that_is_refused_is_asked_again_ever_more_rarely_and_nothing_is_written_before_its_answer() {
    let mut script = working();
    lose_the_lease(&mut script);
    let times: Vec<_> = (0..6).map(|_| script.play(Lane::Status, refused(503, "")).0).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [1000, 2000, 4000, 7000, 7000]);
    assert_eq!(script.play_healthy(Lane::Status).1, Operation::ReadNode { heartbeat: true });
}

#[test]
fn a_node_without_the_boards_name_gets_it_with_the_next_look() {
    let mut script = working();
    let mut bare = registered_node();
    bare.metadata.annotations.retain(|key, _| !key.starts_with("nodepulse.dev/board"));
    script.press_memory(true);
    let (ticket, _) = script.next(Lane::Status);
    script.answer(ticket, Ok(Document::Node(Box::new(bare))));
    script.facts.network.interfaces.clear();
    let named = loop {
        let (_, operation) = script.play_healthy(Lane::Status);
        if let Operation::PatchStatus { answer: PatchAnswer::Node, .. } = &operation {
            break body_of(&operation);
        }
    };
    assert_eq!(named["metadata"]["annotations"][BOARD_SERIAL], "c3dd000000000001", "{named}");
}

#[test]
fn a_board_without_any_name_says_so_once() {
    let mut script = Script::new();
    let absent = || Err(Absent::new("/etc/machine-id", Why::NoSuchFile));
    let machine = &mut script.facts.machine;
    (machine.machine_id, machine.board_serial, machine.mac_address) = (absent(), absent(), absent());
    script.register();
    script.pass(Duration::from_secs(60));
    assert_eq!(script.words().iter().filter(|word| **word == "nameless-board").count(), 1);
}

#[test]
fn a_server_that_asked_for_patience_is_not_asked_whose_node_it_is_before() {
    let mut script = working();
    let (ticket, _) = script.next(Lane::Status);
    // Meanwhile it turns out that the Lease was taken.
    lose_the_lease(&mut script);
    script.answer(ticket, refused_after(500, 5));
    let answered_at = script.up;
    let (_, operation) = script.next(Lane::Status);
    assert_eq!(operation, Operation::ReadNode { heartbeat: true });
    assert!(script.up - answered_at >= Duration::from_secs(5), "{:?}", script.up - answered_at);
}

/// The Lease was deleted, made again by a POST that was refused all the same, and adopted; then deleted once more, and `after`
/// the POST it counts from 0.
fn fallen(after: Duration) -> Script {
    let mut script = working();
    script.play(Lane::Lease, refused(404, "NotFound"));
    let (_, created) = script.play(Lane::Lease, refused(500, "InternalError"));
    assert!(matches!(created, Operation::CreateLease { .. }), "{created:?}");
    let created_at = script.up;
    script.transitions = 0;
    script.play(Lane::Lease, refused(409, "AlreadyExists"));
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    assert_eq!(script.transitions, 1);
    script.pass(after - (script.up - created_at));
    script.transitions = 0;
    script
}

#[test]
fn a_lease_that_a_late_post_of_this_process_made_again_is_adopted_and_not_taken_for_another_boards() {
    for is_read in [true, false] {
        let mut script = fallen(Duration::from_secs(60));
        let adopts = |operation: &Operation| match operation {
            Operation::RenewLease { body, .. } => body.contains(r#""leaseTransitions":1"#),
            _ => false,
        };
        let adopted = (0..5).find(|_| {
            let (ticket, operation) = script.next(Lane::Lease);
            let reply = script.reply(&operation);
            let is_unread = !is_read && matches!(operation, Operation::RenewLease { .. });
            script.answer(ticket, if is_unread { reply.map(|_| Document::Nothing) } else { reply });
            adopts(&operation)
        });
        assert!(adopted.is_some(), "{is_read}: {:?}", script.words());
        assert!(!script.words().contains(&"lease-taken"), "{is_read}: {:?}", script.words());
    }
}

#[test]
fn a_lease_that_counts_from_0_long_after_the_last_post_is_another_boards() {
    let mut script = fallen(Duration::from_secs(310));
    // A test that is refused, and the look after it.
    (0..2).for_each(|_| drop(script.play_healthy(Lane::Lease)));
    assert!(script.words().contains(&"lease-taken"), "{:?}", script.words());
}
