//! What a person hears who wants a certificate's successor now (`nodepulse renew`).

use super::*;

impl Case {
    /// A person asks; what they have been told by now.
    fn ask(&mut self) -> Option<Result<String, String>> {
        let now = self.script.now();
        self.script.agent.handle(Input::Renew, now);
        self.told()
    }

    fn told(&mut self) -> Option<Result<String, String>> {
        for (ticket, operation) in self.script.drain().0 {
            if ticket.lane() == Lane::Identity {
                self.sent = Some((ticket, operation));
            } else {
                let reply = self.script.reply(&operation);
                self.script.answer(ticket, reply);
            }
        }
        assert!(self.script.told.len() < 2, "once is enough: {:?}", self.script.told);
        self.script.told.pop()
    }

    /// With a certificate that is due in years, of which a tenth of the life has gone.
    fn young() -> Case {
        Case::with(leaf("n1", &Key::new(), 2025, 2034))
    }
}

/// Of an error.
fn why(told: Option<Result<String, String>>) -> String {
    told.expect("nothing was told").expect_err("it was done")
}

#[test]
fn a_person_who_wants_a_successor_gets_it_at_once_and_is_told() {
    let mut case = Case::young();
    assert_eq!(case.script.keys_asked, [false; 0]);
    assert_eq!(case.ask(), None);
    assert_eq!(case.script.keys_asked, [false]);
    case.make();
    case.create();
    let certificate = leaf("n1", &case.key, 2026, 2036);
    case.play(case.issued(&certificate));
    case.play(Ok(metadata("rv1")));
    assert_eq!(case.told(), None, "not before it is in use");
    let dates = CredentialDates { renewal: Renewal::of(&certificate, Some(START)), ..CredentialDates::default() };
    let now = case.script.now();
    case.script.agent.handle(Input::Credentials(dates), now);
    let told = case.told().unwrap().unwrap();
    assert!(told.contains("a new certificate is in use, valid until 2036-01-01"), "{told}");
    // Never twice within a tenth of a life.
    let told = why(case.ask());
    assert!(told.contains("it is not renewed before 2027-01-01"), "{told}");
    assert_eq!(case.script.keys_asked, [false]);
}

#[test]
fn a_person_is_told_what_a_renewal_waits_for_and_what_it_came_to() {
    let denied = json!({ "conditions": [{ "type": "Denied", "reason": "KubectlDeny", "message": "no" }] });
    // Nobody approves it: said after some looks, and at once to whoever asks again.
    let mut case = Case::young();
    case.ask();
    case.make();
    assert_eq!(case.told(), None);
    case.create();
    for _ in 0..3 {
        assert_eq!(case.told(), None);
        case.play(case.shown(json!({})));
    }
    let told = why(case.told());
    assert!(told.contains(&format!("kubectl certificate approve {}", case.request.name())), "{told}");
    assert_eq!(case.ask(), None, "it looks first");
    case.play(case.shown(json!({})));
    assert!(why(case.told()).contains("waiting for approval"));
    case.play(case.shown(denied));
    assert_eq!(case.told(), None, "nobody waits any more");
    // An hour's pause is not a person's.
    assert_eq!(case.ask(), None);
    assert_eq!(case.script.keys_asked, [false, false]);
    case.make();
    case.play(refused(403, "Forbidden"));
    assert!(why(case.told()).contains("403"));
    assert_eq!(case.ask(), None);
    case.create();
    case.play(case.issued(&leaf("n2", &case.key, 2026, 2036)));
    assert!(why(case.told()).contains("n2"));
}

#[test]
fn without_renewals_of_the_lease_a_person_is_told_so_and_nothing_is_asked() {
    let mut case = Case::young();
    case.script.offline(Duration::from_secs(60));
    assert!(why(case.ask()).contains("no Lease is being renewed"));
    let mut joining = Script::new();
    let now = joining.now();
    joining.agent.handle(Input::NotJoined, now);
    joining.agent.handle(Input::Renew, now);
    joining.drain();
    assert_eq!((joining.told.len(), joining.keys_asked.len() + case.script.keys_asked.len()), (1, 0));
}
