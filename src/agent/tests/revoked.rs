//! A board whose identity an administrator has revoked: it says so, asks once an hour, and comes back (REV-1).

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// As the policy of `targets/kubernetes/revoked.yaml` answers.
fn revoked(code: u16) -> Result<Document, Refusal> {
    let message = "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'nodepulse-revoked' with binding 'nodepulse-revoked' \
                   denied request: this node's identity is revoked (ConfigMap kube-system/nodepulse-revoked)";
    let (reason, message) = ("Invalid".to_owned(), message.to_owned());
    Err(Refusal::Status(StatusError { code, reason, message, retry_after: None }))
}

/// What is asked in that time, where whatever would be written is refused so.
fn asked_within(script: &mut Script, span: Duration, answer: &Result<Document, Refusal>) -> usize {
    let (end, mut count) = (script.up + span, 0);
    while script.up < end {
        let (sent, until) = script.drain();
        if sent.is_empty() {
            script.up = script.up.max(until.as_duration()).min(end);
        }
        count += sent.len();
        for (ticket, operation) in sent {
            let is_read =
                matches!(operation, Operation::ReadVersion | Operation::ReadNode { .. } | Operation::ReadLease);
            let reply = if is_read { script.reply(&operation) } else { answer.clone() };
            script.answer(ticket, reply);
        }
    }
    count
}

fn told(script: &Script) -> Vec<&str> {
    script.said.iter().filter(|notice| notice.word == "revoked").map(|notice| notice.text.as_str()).collect()
}

#[test]
fn a_board_that_was_revoked_asks_once_an_hour_whatever_it_was_doing() {
    for is_registered in [false, true] {
        let mut script = Script::new();
        if is_registered {
            script.register();
            script.pass(HOUR);
        }
        // Until it hears of it, and what is under way then.
        let first = asked_within(&mut script, Duration::from_secs(60), &revoked(422));
        assert!(first <= 8, "{first} requests");
        let told_first = told(&script);
        assert_eq!(told_first.len(), 1, "{:?}", script.said);
        assert!(told_first[0].contains("-p '{\"data\":{\"n1\":null}}'"), "{told_first:?}");
        // A link that flaps is no reason to ask.
        for _ in 0..50 {
            let now = script.now();
            script.agent.handle(Input::LinkChanged, now);
            assert_eq!(asked_within(&mut script, Duration::from_secs(60), &revoked(422)), 0);
        }
        let day = asked_within(&mut script, HOUR * 24, &revoked(422));
        assert!((24..=24 * 4).contains(&day), "{day} requests in a day");
        assert!((23..=25).contains(&told(&script).len()), "{}", told(&script).len());
        assert!(script.probes.iter().rev().take(2).all(|at| script.up - *at < Duration::from_secs(30)), "it looks on");
    }
}

#[test]
fn a_board_that_may_write_again_is_a_node_within_the_hour_or_at_sighup() {
    for is_told in [false, true] {
        let mut script = Script::new();
        script.register();
        asked_within(&mut script, HOUR * 5, &revoked(422));
        let since = script.up;
        if is_told {
            let now = script.now();
            script.agent.handle(Input::Reloaded(Box::default()), now);
        }
        let (_, renewal) = script.play_healthy(Lane::Lease);
        assert!(matches!(renewal, Operation::RenewLease { .. } | Operation::ReadLease), "{renewal:?}");
        let waited = script.up - since;
        assert!(waited < if is_told { Duration::from_secs(1) } else { HOUR + HOUR / 20 }, "{waited:?}");
        let sent = script.pass(Duration::from_secs(60)).len();
        assert!((5..60).contains(&sent), "{sent} requests");
    }
}

#[test]
fn nothing_else_that_is_refused_is_a_revocation() {
    for refusal in [revoked(403), refused(422, "Invalid"), unconfirmed(422, None)] {
        let mut script = Script::new();
        script.register();
        let asked = asked_within(&mut script, HOUR, &refusal);
        assert!(asked > 100 && told(&script).is_empty(), "{asked} requests of {refusal:?}");
    }
}
