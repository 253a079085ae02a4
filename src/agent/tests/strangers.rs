//! What a stranger in front of the server, or a server gone wrong, can do: cost some time, and nothing else (D14).

use super::outage::{kinds, settled, waiting};
use super::*;
use crate::config::limits;

const MINUTE: Duration = Duration::from_secs(60);

/// Answers everything alike for so long; when each request was sent.
fn answer_all(
    script: &mut Script,
    span: Duration,
    result: impl Fn(&Operation) -> Option<Result<Document, Refusal>>,
) -> Vec<(Duration, Operation)> {
    let end = script.up + span;
    let mut sent_at = Vec::new();
    while script.up < end {
        let (sent, until) = script.drain();
        if sent.is_empty() {
            script.up = until.as_duration().min(end);
        }
        for (ticket, operation) in sent {
            let reply = result(&operation).unwrap_or_else(|| script.reply(&operation));
            // An answer takes a while.
            script.up += Duration::from_millis(1);
            script.answer(ticket, reply);
            sent_at.push((script.up, operation));
        }
    }
    sent_at
}

fn most_in_a_minute(times: &[Duration]) -> usize {
    let within = |first: usize| times[first..].iter().take_while(|later| **later <= times[first] + MINUTE).count();
    (0..times.len()).map(within).max().unwrap_or(0)
}

#[test]
fn a_proxy_that_refuses_everything_from_the_start_loses_no_record() {
    for code in [400, 403, 404, 405, 409, 413, 415, 422, 200, 502] {
        let mut script = Script::new();
        script.press_memory(true);
        let before = kinds(&waiting(&script));
        let sent = answer_all(&mut script, Duration::from_secs(600), |_| Some(unconfirmed(code, None)));
        assert!(
            sent.iter().all(|(_, operation)| matches!(operation, Operation::ReadVersion | Operation::ReadNode { .. })),
            "{code}: {sent:?}"
        );
        assert_eq!(kinds(&waiting(&script))[..before.len()], before, "{code}");
        assert!(!script.words().contains(&"event-dropped") && !script.words().contains(&"uplink-restored"), "{code}");
        let told = answer_all(&mut script, Duration::from_secs(120), |_| None);
        let starting = told
            .iter()
            .any(|(_, operation)| matches!(operation, Operation::CreateEvent { body } if body.contains("Starting")));
        assert!(starting && waiting(&script).is_empty(), "{code}: {told:?}");
    }
}

#[test]
fn a_strangers_404_deletes_nothing_and_its_200_renews_nothing() {
    for code in [404, 200] {
        let mut script = settled();
        // Not so long that status asks for itself.
        answer_all(&mut script, Duration::from_secs(50), |_| Some(unconfirmed(code, None)));
        assert!(!script.words().contains(&"node-deleted"), "{:?}", script.words());
        assert_eq!(kinds(&waiting(&script)), ["began"], "an outage like any other");
        let back = answer_all(&mut script, Duration::from_secs(20), |_| None);
        let back: Vec<Operation> = back.into_iter().map(|(_, operation)| operation).take(2).collect();
        assert!(matches!(back[..], [Operation::RenewLease { .. }, Operation::PatchStatus { .. }]), "{back:?}");
        assert!(script.words().contains(&"uplink-restored"));
    }
}

#[test]
fn a_stranger_may_ask_for_patience_within_the_ceilings() {
    let mut script = settled();
    let (first_ms, _) = script.play(Lane::Lease, unconfirmed(503, Some(3)));
    let (second_ms, _) = script.play(Lane::Lease, unconfirmed(503, Some(86_400)));
    let (third_ms, _) = script.play_healthy(Lane::Lease);
    assert_eq!([second_ms - first_ms, third_ms - second_ms], [3000, 7000]);
}

/// A right that is gone, a quota that is full, a namespace that ends.
#[test]
fn who_may_not_tell_asks_ever_more_rarely_and_forgets_nothing() {
    let mut script = settled();
    script.press_memory(true);
    let is_event =
        |operation: &Operation| matches!(operation, Operation::CreateEvent { .. } | Operation::PatchEvent { .. });
    let day = Duration::from_secs(86_400);
    let sent = answer_all(&mut script, day, |operation| is_event(operation).then(|| refused(403, "Forbidden")));
    let times: Vec<u64> =
        sent.iter().filter(|(_, operation)| is_event(operation)).map(|(at, _)| at.as_secs()).collect();
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.windows(2).all(|pair| pair[1] + 1 >= pair[0]), "{gaps:?}");
    assert!(gaps.last().is_some_and(|gap| (3600..3610).contains(gap)) && times.len() < 40, "{gaps:?}");
    assert_eq!(kinds(&waiting(&script)), ["changed"]);
    // Another certificate is a reason to ask at once.
    let not_after = Some(START.plus(day * 30));
    script.agent.handle(Input::Credentials(CredentialDates { not_after, ..Default::default() }), script.now());
    answer_all(&mut script, MINUTE, |_| None);
    assert!(waiting(&script).is_empty());
}

#[test]
fn a_version_that_only_strangers_answer_keeps_no_node_from_being_registered() {
    for result in [unconfirmed(502, None), unreachable(), refused(500, "")] {
        let mut script = Script::new();
        let sent = answer_all(&mut script, Duration::from_secs(10), |operation| match operation {
            Operation::ReadVersion => Some(result.clone()),
            Operation::ReadNode { .. } => Some(refused(404, "NotFound")),
            _ => None,
        });
        let created = sent.iter().find(|(_, operation)| matches!(operation, Operation::CreateNode { .. })).unwrap();
        let version = body_of(&created.1)["status"]["nodeInfo"]["kubeletVersion"].clone();
        assert!(version.as_str().unwrap().starts_with("v1.36.3-"), "what was tested with: {version}");
        assert!(script.words().contains(&"version-unknown") && script.words().contains(&"registered"));
        // Reports go on whatever becomes of the version, which is asked for ever more rarely.
        let sent = answer_all(&mut script, Duration::from_secs(3600), |operation| {
            (*operation == Operation::ReadVersion).then(|| result.clone())
        });
        let reports = sent
            .iter()
            .filter(|(_, operation)| matches!(operation, Operation::PatchStatus { answer, .. } if *answer != PatchAnswer::Nothing))
            .count();
        let versions = sent.iter().filter(|(_, operation)| *operation == Operation::ReadVersion).count();
        assert!(reports >= 11 && (3..8).contains(&versions), "{reports} reports, {versions} versions");
        let older = |operation: &Operation| {
            (*operation == Operation::ReadVersion).then(|| Ok(Document::Version("v1.34.1".to_owned())))
        };
        let sent = answer_all(&mut script, Duration::from_secs(86_400), older);
        let corrected = sent.iter().any(
            |(_, operation)| matches!(operation, Operation::PatchStatus { body, .. } if body.contains("v1.34.1-")),
        );
        assert!(corrected, "it follows as soon as somebody says it");
    }
}

#[test]
fn a_node_that_is_there_says_the_version_where_nobody_else_does() {
    let mut script = Script::new();
    let mut node = registered_node();
    node.status.node_info.kubelet_version = "v1.33.7-nodepulse.0.1.0".to_owned();
    let sent = answer_all(&mut script, Duration::from_secs(30), |operation| match operation {
        Operation::ReadVersion => Some(unconfirmed(302, None)),
        Operation::ReadNode { .. } => Some(Ok(Document::Node(Box::new(node.clone())))),
        _ => None,
    });
    assert!(
        !sent
            .iter()
            .any(|(_, operation)| matches!(operation, Operation::PatchStatus { body, .. } if body.contains("v1.36"))),
        "{sent:?}"
    );
}

/// Who knows its version, or refuses for want of rights, need not know Nodes.
#[test]
fn an_uplink_is_restored_when_a_server_that_knows_nodes_answers() {
    for result in [unconfirmed(404, None), refused(403, "Forbidden"), refused(500, ""), refused_after(429, 1)] {
        let mut script = Script::new();
        script.offline(Duration::from_secs(30));
        answer_all(&mut script, Duration::from_secs(30), |operation| {
            (*operation != Operation::ReadVersion).then(|| result.clone())
        });
        assert!(!script.words().contains(&"uplink-restored"), "{:?}", script.words());
        answer_all(&mut script, Duration::from_secs(60), |_| None);
        let words = script.words();
        let place = |word: &str| words.iter().position(|said| *said == word).unwrap();
        assert!(place("uplink-restored") <= place("registered"), "{words:?}");
    }
}

/// Everything that may be answered to every request, and by turns.
#[test]
fn no_answer_whatever_leads_to_more_than_sixty_requests_in_a_minute() {
    let codes = [400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504];
    let mut answers: Vec<Result<Document, Refusal>> = codes.iter().map(|code| refused(*code, "Somehow")).collect();
    answers.extend(codes.map(|code| unconfirmed(code, None)));
    answers.extend([
        refused_after(429, 0),
        refused_after(503, 0),
        unconfirmed(429, Some(0)),
        refused(409, "AlreadyExists"),
    ]);
    answers.extend([unreachable(), Ok(Document::Nothing), Ok(metadata("99"))]);
    for (number, answer) in answers.iter().enumerate() {
        for (from_start, by_turns) in [(true, false), (false, false), (true, true), (false, true)] {
            let mut script = if from_start { Script::new() } else { settled() };
            script.press_memory(true);
            let turn = std::cell::Cell::new(0);
            let sent = answer_all(&mut script, 4 * MINUTE, |_| {
                turn.set(turn.get() + 1);
                // By turns: this answer, another one, and a good one.
                match turn.get() % 3 {
                    1 if by_turns => Some(answers[turn.get() % answers.len()].clone()),
                    2 if by_turns => None,
                    _ => Some(answer.clone()),
                }
            });
            let times: Vec<Duration> = sent.into_iter().map(|(at, _)| at).collect();
            let most = most_in_a_minute(&times);
            assert!(most <= limits::REQUESTS_PER_MINUTE as usize, "answer {number} {answer:?}: {most} in a minute");
        }
    }
}

/// What a request for the Node meets where `nodes/status` alone is not found, or where somebody deletes each Node that is
/// made.
fn gone(operation: &Operation, is_node_there: bool) -> Option<Result<Document, Refusal>> {
    let is_status = matches!(operation, Operation::PatchStatus { .. });
    let is_of_node = matches!(operation, Operation::ReadNode { .. } | Operation::RenewLease { .. });
    match operation {
        Operation::CreateNode { .. } if is_node_there => Some(refused(409, "AlreadyExists")),
        _ => (is_status || is_of_node && !is_node_there).then(|| refused(404, "NotFound")),
    }
}

#[test]
fn a_node_that_is_gone_each_time_is_registered_ever_more_rarely_up_to_five_minutes() {
    for is_node_there in [true, false] {
        let mut script = settled();
        let sent = answer_all(&mut script, Duration::from_secs(7200), |operation| gone(operation, is_node_there));
        let is_made = |(_, operation): &&(Duration, Operation)| matches!(operation, Operation::CreateNode { .. });
        let made: Vec<u64> = sent.iter().filter(is_made).map(|(at, _)| at.as_secs()).collect();
        let gaps: Vec<u64> = made.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps[0] < 15 && gaps.iter().skip(6).all(|gap| (290..=330).contains(gap)), "{gaps:?}");
        let last_hour = sent.iter().filter(|(at, _)| *at > script.up - Duration::from_secs(3600));
        let is_renewal = |operation: &Operation| matches!(operation, Operation::RenewLease { .. });
        let renewals = last_hour.clone().filter(|(_, operation)| is_renewal(operation)).count();
        assert!(last_hour.count() - renewals < 60, "requests in the last hour but for renewals");
        // A Node that is there is kept alive all the while.
        assert_eq!(renewals > 340, is_node_there, "{renewals} renewals");
        assert!(script.agent.status_line().text.contains("tried again in 300 s"), "{:?}", script.agent.status_line());
        // Once it has been there for a while, the next deletion is healed at once.
        answer_all(&mut script, Duration::from_secs(1000), |_| None);
        let (deleted_ms, _) = script.play(Lane::Status, refused(404, "NotFound"));
        script.play(Lane::Status, refused(404, "NotFound"));
        let (made_ms, operation) = script.play_healthy(Lane::Status);
        assert!(matches!(operation, Operation::CreateNode { .. }) && made_ms == deleted_ms, "{operation:?}");
    }
}

#[test]
fn the_lease_has_its_share_of_requests_whatever_the_other_lanes_do() {
    let mut script = settled();
    let refuse =
        |operation: &Operation| (!matches!(operation, Operation::RenewLease { .. })).then(|| refused_after(429, 0));
    let sent = answer_all(&mut script, Duration::from_secs(600), refuse);
    let renewed: Vec<Duration> = sent
        .iter()
        .filter(|(_, operation)| matches!(operation, Operation::RenewLease { .. }))
        .map(|(at, _)| *at)
        .collect();
    let longest = renewed.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest < Duration::from_millis(10_450), "{longest:?} without a renewal");
}

#[test]
fn heartbeats_of_a_second_leave_room_for_the_status() {
    let second = Duration::from_secs(1);
    let settings = Settings {
        node_lease_duration_seconds: 4,
        node_status_update_frequency: second,
        status_assert_frequency: second * 2,
        ..Settings::default()
    };
    let mut script = Script::with(settings);
    let sent = answer_all(&mut script, MINUTE * 5, |_| None);
    let last = sent.iter().filter(|(at, _)| *at > MINUTE * 4);
    let asserted = last.filter(|(_, operation)| matches!(operation, Operation::PatchStatus { .. })).count();
    assert!(asserted >= 20, "{asserted} in the last minute");
}
