//! Renewals whose answers nobody waits for: which, until when, and what it changes.

use super::disk::waiting;
use super::*;

const PERIOD: Duration = Duration::from_secs(10);

/// Its Lease is held, and all is well.
fn held(settings: Settings) -> Script {
    let mut script = Script::with(settings);
    script.register();
    script.play_healthy(Lane::Lease);
    script.play_healthy(Lane::Lease);
    script
}

/// When the next renewal is sent, and how long its answer may lie unread; it is kept in the script's hands.
fn next_renewal(script: &mut Script) -> (Duration, Option<Duration>, Ticket, Operation) {
    let (ticket, operation) = script.next(Lane::Lease);
    (script.up, ticket.answer_by().map(Up::as_duration), ticket, operation)
}

/// What was sent meanwhile; time stops at the end of `span`.
fn silence(script: &mut Script, until: Duration) -> Vec<(Duration, Lane)> {
    let mut sent = Vec::new();
    while script.up < until {
        let (now, next) = script.drain();
        script.up = script.up.max(next.as_duration()).min(until);
        for (ticket, operation) in now {
            sent.push((script.up, ticket.lane()));
            let reply = script.reply(&operation);
            script.answer(ticket, reply);
        }
    }
    sent
}

/// When it began, as the record says.
fn outage_from_the_next_renewal_on(script: &mut Script) -> Duration {
    let (_, answer_by, ticket, _) = next_renewal(script);
    script.up = answer_by.unwrap();
    script.answer_unreachable(ticket);
    script.offline(Duration::from_secs(60));
    let mut records = script.agent.shared.records.waiting();
    let began = records.find(|record| matches!(record.what, Happened::OutageBegan { .. }));
    began.expect("an outage").at.up.as_duration()
}

#[test]
fn the_answer_to_a_renewal_may_lie_there_until_the_next_one_goes_out_in_the_moment_it_is_read() {
    let mut script = held(Settings::default());
    let mut last: Option<Duration> = None;
    for _ in 0..20 {
        let (sent, answer_by, ticket, operation) = next_renewal(&mut script);
        assert_eq!(last.unwrap_or(sent), sent, "in the moment in which the answer before was read");
        let answer_by = answer_by.expect("nobody waits for it");
        assert!((PERIOD..PERIOD * 104 / 100).contains(&(answer_by - sent)), "{:?}", answer_by - sent);
        assert!(silence(&mut script, answer_by).iter().all(|(_, lane)| *lane != Lane::Lease));
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
        last = Some(answer_by);
    }
}

#[test]
fn one_that_is_read_sooner_changes_nothing_about_the_next() {
    let mut script = held(Settings::default());
    let (sent, answer_by, ticket, operation) = next_renewal(&mut script);
    silence(&mut script, sent + Duration::from_secs(3));
    let reply = script.reply(&operation);
    script.answer(ticket, reply);
    assert_eq!(Some(next_renewal(&mut script).0), answer_by);
}

#[test]
fn an_answer_is_waited_for_while_something_is_to_be_learned_from_it() {
    let is_waited_for = |script: &mut Script| {
        let (_, answer_by, ticket, operation) = next_renewal(script);
        let reply = script.reply(&operation);
        script.answer(ticket, reply);
        answer_by.is_none()
    };
    let mut script = Script::new();
    for stage in ["it is looked for", "it is made ours"] {
        assert!(is_waited_for(&mut script), "{stage}");
    }
    assert!(!is_waited_for(&mut script));
    for refusal in [unreachable(), refused(503, ""), refused(404, "NotFound"), refused(403, "Forbidden")] {
        script.play(Lane::Lease, refusal);
        assert!(is_waited_for(&mut script), "after a failure");
        while is_waited_for(&mut script) {}
    }
    // Its duration is another from now on.
    let settings = Settings { node_lease_duration_seconds: 36, ..Settings::default() };
    script.agent.handle(Input::Reloaded(Box::new(settings)), script.now());
    assert!(is_waited_for(&mut script), "it is written anew");
    assert!(!is_waited_for(&mut script));
}

#[test]
fn where_the_controller_has_not_the_patience_of_five_periods_it_is_waited_for() {
    for (lease_seconds, grace_seconds, is_unhurried) in
        [(40, 50, true), (41, 50, false), (44, 50, false), (96, 120, true), (100, 120, false), (4, 50, true)]
    {
        let settings = Settings {
            node_lease_duration_seconds: lease_seconds,
            node_monitor_grace_period: Duration::from_secs(grace_seconds),
            ..Settings::default()
        };
        let mut script = held(settings);
        assert_eq!(next_renewal(&mut script).1.is_some(), is_unhurried, "{lease_seconds} of {grace_seconds}");
    }
}

#[test]
fn one_that_was_lost_is_sent_again_when_its_answer_should_be_read_and_ready_is_asserted() {
    let mut script = held(Settings::default());
    let (_, answer_by, ticket, _) = next_renewal(&mut script);
    silence(&mut script, answer_by.unwrap());
    script.answer_unreachable(ticket);
    let (again, answer_by, ..) = next_renewal(&mut script);
    assert_eq!((Some(again), answer_by), (Some(script.up), None), "at once, and its answer is waited for");
}

#[test]
fn an_outage_that_is_noticed_late_began_with_the_last_renewal_that_was_done() {
    let mut script = held(Settings::default());
    let (sent, answer_by, ticket, operation) = next_renewal(&mut script);
    silence(&mut script, answer_by.unwrap());
    let reply = script.reply(&operation);
    script.answer(ticket, reply);
    // Or with a report that was answered since.
    let began = outage_from_the_next_renewal_on(&mut script);
    assert!((sent..=sent + PERIOD).contains(&began), "{began:?}, sent {sent:?}");
}

#[test]
fn what_lay_there_says_nothing_of_a_later_moment_than_what_was_heard_since() {
    let mut script = held(Settings::default());
    let (sent, answer_by, ticket, operation) = next_renewal(&mut script);
    let heard = sent + Duration::from_secs(8);
    script.up = heard;
    script.agent.shared.outage.heard(Up::since_boot(heard));
    script.up = answer_by.unwrap();
    let reply = script.reply(&operation);
    script.answer(ticket, reply);
    assert!(outage_from_the_next_renewal_on(&mut script) >= heard);
}

/// A portal that answers everything: that it did so is read late, and is true since then.
#[test]
fn a_stranger_that_was_read_late_was_there_since_the_request() {
    for (result, since_ms) in [(unconfirmed(200, None), 0), (unreachable(), 10_000)] {
        let mut script = held(Settings::default());
        let (sent, answer_by, ticket, _) = next_renewal(&mut script);
        script.up = answer_by.unwrap();
        script.answer(ticket, result);
        let lost_since = script.agent.shared.outage.lost_since().unwrap().as_duration();
        assert_eq!((lost_since - sent).as_millis(), since_ms);
    }
}

#[test]
fn the_date_of_an_answer_that_lay_there_puts_no_clock_back() {
    let mut script = held(Settings::default());
    script.has_clock = false;
    for _ in 0..3 {
        let (sent, answer_by, ticket, operation) = next_renewal(&mut script);
        silence(&mut script, answer_by.unwrap());
        let (date, result) = (Some(script.booted.plus(sent)), script.reply(&operation));
        let now = script.now();
        script.agent.handle(Input::Answered(ticket, Answer { date, result }), now);
        assert_eq!(script.agent.shared.stamp(now), Some(script.booted.plus(script.up)));
    }
}

/// A healthy server that answers in 30 ms, and answers read late: when the process is woken.
#[test]
fn in_peace_the_process_is_woken_once_a_renewal() {
    const LATENCY: Duration = Duration::from_millis(30);
    let mut script = held(Settings::default());
    let (mut wakes, mut renewals, mut assertions) = (Vec::new(), 0, 0);
    let mut answers: Vec<(Duration, Ticket, Operation)> = Vec::new();
    let end = script.up + Duration::from_secs(3600);
    while script.up < end {
        let (sent, until) = script.drain();
        for (ticket, operation) in sent {
            renewals += u32::from(ticket.lane() == Lane::Lease);
            assertions += u32::from(ticket.lane() == Lane::Status);
            let at = ticket.answer_by().map_or(script.up + LATENCY, Up::as_duration);
            answers.push((at, ticket, operation));
        }
        let until = answers.iter().map(|(at, ..)| *at).min().unwrap_or(until.as_duration()).min(until.as_duration());
        if until > script.up {
            wakes.push(until);
        }
        script.up = script.up.max(until);
        while let Some(place) = answers.iter().position(|(at, ..)| *at <= script.up) {
            let (_, ticket, operation) = answers.remove(place);
            let reply = script.reply(&operation);
            script.answer(ticket, reply);
        }
    }
    let wakes = wakes.len() as u32;
    assert!(wakes <= renewals + assertions + 1, "{wakes} wakes, {renewals} renewals, {assertions} requests of status");
}

/// What an outage left is told beside no heartbeat; a renewal whose answer nobody waits for is none.
#[test]
fn what_waits_to_be_told_does_not_wait_for_an_answer_that_may_lie_there() {
    let mut script = held(Settings::default());
    script.offline(Duration::from_secs(60));
    script.press_memory(true);
    script.offline(Duration::from_secs(60));
    let (mut lying, mut told, end) = (Vec::new(), 0, script.up + Duration::from_secs(120));
    while script.up < end {
        let (sent, until) = script.drain();
        script.up = script.up.max(until.as_duration()).min(end);
        for (ticket, operation) in sent {
            if let Some(answer_by) = ticket.answer_by() {
                lying.push((answer_by.as_duration(), ticket, operation));
                continue;
            }
            told += u32::from(ticket.lane() == Lane::Events && !lying.is_empty());
            let reply = script.reply(&operation);
            script.answer(ticket, reply);
        }
        while let Some(place) = lying.iter().position(|(answer_by, ..)| *answer_by <= script.up) {
            let (_, ticket, operation) = lying.remove(place);
            let reply = script.reply(&operation);
            script.answer(ticket, reply);
        }
    }
    assert!(told > 0 && waiting(&script).is_empty(), "{told}");
}
