//! The certificate's successor: when it is asked for, what each answer means, and what never happens meanwhile.

mod by_hand;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::identity::samples::{self, Key, leaf};
use crate::identity::{Renewal, SigningRequest, pem};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A registered agent, the key that it asks with, and the server's CertificateSigningRequest.
struct Case {
    script: Script,
    key: Key,
    request: SigningRequest,
    /// A request of the lane that went out while somebody looked at something else.
    sent: Option<(Ticket, Operation)>,
}

impl Case {
    /// With a certificate of 2025 and 2026, which is due since about August 2025: long before the script begins.
    fn due() -> Case {
        Case::with(leaf("n1", &Key::new(), 2025, 2027))
    }

    fn with(certificate: Vec<u8>) -> Case {
        let mut script = Script::new();
        script.register();
        let renewal = Renewal::of(&certificate, None).unwrap();
        let dates =
            CredentialDates { renewal: Some(renewal), not_after: Some(renewal.end), ..CredentialDates::default() };
        let now = script.now();
        script.agent.handle(Input::Credentials(dates), now);
        script.pass(Duration::from_secs(30));
        let key = Key::new();
        let request = SigningRequest::new("n1", key.point());
        Case { script, key, request, sent: None }
    }

    /// Hands over the key that was asked for last.
    fn make(&mut self) {
        let input = Input::RequestMade {
            request: Box::new(self.request.clone()),
            signature: vec![0x30, 0],
            node_password: None,
        };
        let now = self.script.now();
        self.script.agent.handle(input, now);
    }

    /// The request as the server shows it.
    fn shown(&self, status: Value) -> Result<Document, Refusal> {
        let packed = STANDARD.encode(self.request.pem(&[0x30, 0]));
        let object = json!({
            "metadata": { "name": self.request.name(), "uid": "csr-1", "resourceVersion": "5" },
            "spec": { "request": packed, "signerName": "kubernetes.io/kube-apiserver-client-kubelet" },
            "status": status,
        });
        Ok(Document::Protobuf(samples::protobuf(&object)))
    }

    /// The server has taken the request, and says no more of it.
    fn create(&mut self) -> (u128, Operation) {
        self.play(Ok(metadata("rv1")))
    }

    fn issued(&self, certificate: &[u8]) -> Result<Document, Refusal> {
        let mut text = String::new();
        pem::write(&mut text, pem::CERTIFICATE, certificate);
        let approved = json!([{ "type": "Approved", "reason": "AutoApproved", "message": "" }]);
        self.shown(json!({ "conditions": approved, "certificate": STANDARD.encode(text) }))
    }

    fn ours(&self) -> Vec<u8> {
        leaf("n1", &self.key, 2026, 2028)
    }

    fn words(&mut self) -> Vec<&'static str> {
        let (sent, _) = self.script.drain();
        assert!(sent.is_empty(), "{sent:?}");
        self.script.words()
    }

    fn play(&mut self, result: Result<Document, Refusal>) -> (u128, Operation) {
        let Some((ticket, operation)) = self.sent.take() else { return self.script.play(Lane::Identity, result) };
        self.script.answer(ticket, result);
        (self.script.up.as_millis(), operation)
    }
}

impl Script {
    /// Requests for an identity within a span, each answered so.
    pub(super) fn identity_requests_within(&mut self, span: Duration, result: &Result<Document, Refusal>) -> usize {
        let end = self.up + span;
        let mut count = 0;
        while self.up < end {
            let (sent, until) = self.drain();
            if sent.is_empty() {
                self.up = end.min(until.as_duration().max(self.up));
            }
            for (ticket, operation) in sent {
                let is_ours = ticket.lane() == Lane::Identity;
                count += usize::from(is_ours);
                let reply = if is_ours { result.clone() } else { self.reply(&operation) };
                self.answer(ticket, reply);
            }
        }
        count
    }
}

#[test]
fn a_certificate_that_is_due_has_a_successor_in_three_requests() {
    let mut case = Case::due();
    assert_eq!(case.script.keys_asked, [false], "a key that an earlier process left will do");
    case.make();
    let (_, create) = case.create();
    let Operation::CreateCertificateRequest { body } = create else { panic!("{create:?}") };
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["metadata"]["name"], case.request.name());
    assert_eq!(body["spec"]["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    let certificate = case.ours();
    let (_, read) = case.play(case.issued(&certificate));
    assert_eq!(read, Operation::ReadCertificateRequest { name: case.request.name(), metadata_only: false });
    assert_eq!(case.script.kept.len(), 0, "nobody has proved it");
    let (_, prove) = case.play(Ok(metadata("rv1")));
    assert_eq!(prove, Operation::ProveCertificate);
    let chain = vec![CertificateDer::from(certificate.clone())];
    assert_eq!(case.script.access, Some(Access::Candidate { chain: chain.clone() }));
    case.script.drain();
    assert_eq!(case.script.kept, [chain]);
    // It is in use: nothing more for a long time.
    let dates = CredentialDates { renewal: Renewal::of(&certificate, None), ..CredentialDates::default() };
    let now = case.script.now();
    case.script.agent.handle(Input::Credentials(dates), now);
    assert_eq!(case.script.identity_requests_within(DAY, &unreachable()), 0);
    assert_eq!(case.script.keys_asked, [false]);
    assert!(case.words().contains(&"certificate-renewed"), "{:?}", case.words());
}

#[test]
fn nothing_is_asked_before_30_percent_of_a_life_or_without_a_clock_or_without_renewals() {
    let mut case = Case::with(leaf("n1", &Key::new(), 2025, 2035));
    assert_eq!(case.script.identity_requests_within(DAY, &unreachable()), 0);
    assert_eq!(case.script.keys_asked, [false; 0]);
    let mut script = Script::with(Settings { rotate_certificates: false, ..Settings::default() });
    script.register();
    let dates =
        CredentialDates { renewal: Renewal::of(&leaf("n1", &Key::new(), 2025, 2027), None), ..Default::default() };
    let now = script.now();
    script.agent.handle(Input::Credentials(dates), now);
    script.pass(DAY);
    assert_eq!(script.keys_asked, [false; 0], "the settings say no");
}

#[test]
fn a_request_that_nobody_approves_is_looked_at_ever_more_rarely_and_told_of_once() {
    let mut case = Case::due();
    case.make();
    let start = case.script.up.as_millis();
    case.create();
    let mut looks = Vec::new();
    for _ in 0..6 {
        let (at, operation) = case.play(case.shown(json!({})));
        assert!(matches!(operation, Operation::ReadCertificateRequest { metadata_only: false, .. }), "{operation:?}");
        looks.push((at - start) / 1000);
    }
    assert_eq!(looks, [1, 3, 7, 15, 31, 63]);
    let seen = || Document::Metadata {
        uid: "csr-1".to_owned(),
        resource_version: "5".to_owned(),
        lease_duration_seconds: None,
        transitions: 0,
    };
    let (at, metadata_only) = case.play(Ok(seen()));
    assert!((117..=129).contains(&((at - start) / 1000)), "{at} from {start}");
    assert!(matches!(metadata_only, Operation::ReadCertificateRequest { metadata_only: true, .. }));
    let looks = case.script.identity_requests_within(HOUR * 22, &Ok(seen()));
    assert!((55 + 225..=70 + 300).contains(&looks), "{looks} in 22 hours");
    let told: Vec<_> = case.script.said.iter().filter(|notice| notice.word == "certificate-pending").collect();
    let commands =
        [&*format!("certificate approve {}", case.request.name()), "create clusterrolebinding nodepulse-renewal"];
    assert!(told.len() == 1 && commands.iter().all(|one| told[0].text.contains(&format!("kubectl {one}"))), "{told:?}");
    // Somebody has: the whole is read at once.
    let (_, changed) = case.play(Ok(metadata("rv9")));
    assert!(matches!(changed, Operation::ReadCertificateRequest { metadata_only: true, .. }));
    let at = case.script.up;
    let (_, whole) = case.play(case.issued(&case.ours()));
    assert!(matches!(whole, Operation::ReadCertificateRequest { metadata_only: false, .. }));
    assert_eq!(case.script.up, at);
}

#[test]
fn a_request_that_is_there_already_is_ours_or_a_trap() {
    let mut case = Case::due();
    case.make();
    case.play(refused(409, "AlreadyExists"));
    case.play(case.issued(&case.ours()));
    assert_eq!(case.play(Ok(metadata("rv1"))).1, Operation::ProveCertificate, "an earlier process asked for it");
    let mut case = Case::due();
    case.make();
    case.play(refused(409, "AlreadyExists"));
    let ours = std::mem::replace(&mut case.request, SigningRequest::new("n1", Key::new().point()));
    let theirs = case.issued(&case.ours());
    case.request = ours;
    case.play(theirs);
    assert!(case.words().contains(&"request-not-ours"), "{:?}", case.words());
    assert_eq!(case.script.identity_requests_within(HOUR - Duration::from_secs(1), &unreachable()), 0);
    case.script.pass(Duration::from_secs(30));
    assert_eq!(case.script.keys_asked, [false, true], "another key in an hour");
}

#[test]
fn a_request_that_the_cleaner_took_is_made_again_with_the_same_key() {
    let mut case = Case::due();
    case.make();
    case.create();
    case.play(refused(404, "NotFound"));
    let (_, again) = case.create();
    assert!(matches!(again, Operation::CreateCertificateRequest { .. }), "{again:?}");
    assert_eq!(case.script.keys_asked, [false]);
}

#[test]
fn a_request_that_was_denied_or_failed_is_repeated_after_1_2_4_hours_with_the_same_key() {
    for (kind, word) in [("Denied", "certificate-denied"), ("Failed", "certificate-failed")] {
        let mut case = Case::due();
        let status = json!({ "conditions": [
            { "type": "Approved", "reason": "AutoApproved", "message": "" },
            { "type": kind, "reason": "KubectlDeny", "message": "not this board" },
        ] });
        let mut moments = Vec::new();
        for keys in 1..=4 {
            while case.script.keys_asked.len() < keys {
                case.script.pass(Duration::from_secs(60));
            }
            case.make();
            case.create();
            moments.push(case.play(case.shown(status.clone())).0 / 60_000);
        }
        let hours: Vec<_> = moments.windows(2).map(|pair| (pair[1] - pair[0]) / 60).collect();
        assert_eq!(hours, [1, 2, 4], "{moments:?} min");
        assert_eq!(case.script.keys_asked, [false; 4]);
        let told = case.script.said.iter().find(|notice| notice.word == word).unwrap();
        assert!(told.text.contains("KubectlDeny: not this board"), "{}", told.text);
    }
}

#[test]
fn a_wrong_certificate_is_never_used_and_the_next_try_has_another_key_in_an_hour() {
    let others = Key::new();
    let wrong: [fn(&Case, &Key) -> Vec<u8>; 4] = [
        |_, others| leaf("n1", others, 2026, 2028),
        |case, _| leaf("n2", &case.key, 2026, 2028),
        |case, _| leaf("n1", &case.key, 2024, 2025),
        |_, _| b"nothing".to_vec(),
    ];
    for certificate in wrong {
        let mut case = Case::due();
        case.make();
        case.create();
        case.play(case.issued(&certificate(&case, &others)));
        assert!(case.words().contains(&"wrong-certificate"), "{:?}", case.words());
        assert_eq!(case.script.identity_requests_within(HOUR - Duration::from_secs(1), &unreachable()), 0);
        case.script.pass(Duration::from_secs(30));
        assert_eq!((case.script.keys_asked.as_slice(), case.script.kept.len()), (&[false, true][..], 0));
    }
}

#[test]
fn a_certificate_that_ends_before_the_one_in_use_is_not_used_and_not_asked_for_again_until_it_would_end_later() {
    let mut case = Case::with(leaf("n1", &Key::new(), 2020, 2030));
    case.make();
    case.create();
    case.play(case.issued(&leaf("n1", &case.key, 2026, 2027)));
    assert!(case.words().contains(&"certificate-shorter"), "{:?}", case.script.words());
    assert_eq!(case.script.identity_requests_within(DAY * 30, &unreachable()), 0);
    assert_eq!((case.script.keys_asked.len(), case.script.kept.len()), (1, 0));
}

#[test]
fn a_certificate_that_the_server_refuses_leaves_the_old_one_in_use() {
    let mut case = Case::due();
    case.make();
    case.create();
    case.play(case.issued(&case.ours()));
    case.play(refused(401, "Unauthorized"));
    assert!(case.words().contains(&"certificate-refused"), "{:?}", case.words());
    assert_eq!(case.script.identity_requests_within(HOUR - Duration::from_secs(1), &unreachable()), 0);
    assert_eq!(case.script.kept.len(), 0);
}

#[test]
fn a_certificate_that_waits_for_its_proof_keeps_no_board_from_looking_for_another_ca() {
    let untrusted = || Err(Refusal::Failed(Failure::new("tls-unknown-issuer", "signed by nobody")));
    let mut case = Case::due();
    case.make();
    case.create();
    case.play(case.issued(&case.ours()));
    let end = case.script.up + Duration::from_secs(300);
    while case.script.up < end && case.script.means_asked == 0 {
        let (sent, until) = case.script.drain();
        if sent.is_empty() {
            case.script.up = until.as_duration().max(case.script.up);
        }
        for (ticket, _) in case.sent.take().into_iter().chain(sent) {
            case.script.answer(ticket, untrusted());
        }
    }
    assert!(case.script.means_asked == 1 && case.script.has_other_ca, "it is proven for ever");
    assert_eq!((case.script.keys_asked.as_slice(), case.script.kept.len()), (&[false][..], 0));
}

/// A renewal that was denied waits for an hour, one that would be shorter for years: the token is the way back all the same.
#[test]
fn a_certificate_that_is_refused_while_its_renewal_rests_is_no_reason_to_wait() {
    for is_denied in [true, false] {
        let mut case = Case::with(leaf("n1", &Key::new(), 2020, if is_denied { 2027 } else { 2030 }));
        case.make();
        let denied = json!({ "conditions": [{ "type": "Denied", "reason": "KubectlDeny", "message": "" }] });
        let shorter = leaf("n1", &case.key, 2026, 2027);
        case.create();
        case.play(if is_denied { case.shown(denied) } else { case.issued(&shorter) });
        let patience = case.script.up + HOUR / 6;
        while case.script.up < patience && case.script.means_asked == 0 {
            let (sent, until) = case.script.drain();
            if sent.is_empty() {
                case.script.up = patience.min(until.as_duration().max(case.script.up));
            }
            for (ticket, _) in sent {
                case.script.answer(ticket, refused(401, "Unauthorized"));
            }
        }
        assert_eq!(case.script.means_asked, 1, "{:?}", case.script.words());
    }
}

#[test]
fn no_answer_is_waited_for_ever_longer_and_a_refusal_for_minutes_to_hours() {
    for (result, most) in [
        (unreachable(), 20),
        (refused(503, ""), 20),
        (refused(403, "Forbidden"), 8),
        (refused(422, "Invalid"), 8),
        (unconfirmed(200, None), 20),
        (refused_after(429, 100_000), 20),
    ] {
        let mut case = Case::due();
        case.make();
        let first_minute = case.script.identity_requests_within(Duration::from_secs(60), &result);
        assert!((1..=6).contains(&first_minute), "{first_minute} in the first minute of {result:?}");
        let day = case.script.identity_requests_within(HOUR, &result);
        assert!((1..=most).contains(&day), "{day} in an hour of {result:?}");
        let week = case.script.identity_requests_within(DAY * 2, &result);
        assert!(week > 3, "nothing gives up: {week} in two days of {result:?}");
    }
}

#[test]
fn after_an_outage_of_more_than_a_day_a_certificate_is_renewed_at_a_tenth_of_its_life() {
    let mut case = Case::with(leaf("n1", &Key::new(), 2025, 2032));
    assert_eq!(case.script.identity_requests_within(DAY, &unreachable()), 0);
    case.script.offline(DAY + HOUR);
    case.script.pass(Duration::from_secs(120));
    assert_eq!(case.script.keys_asked, [false], "14 percent are gone, and the next outage may be longer");
}

/// The server says 401 to everybody: only the token brings another certificate then (EXP-2).
#[test]
fn a_certificate_that_ends_while_its_successor_is_on_its_way_sends_its_board_back_to_the_token() {
    for is_made in [false, true] {
        let mut case = Case::due();
        case.make();
        if is_made {
            case.create();
        }
        let end = case.script.up + HOUR;
        while case.script.means_asked == 0 {
            assert!(case.script.up < end, "made {is_made}: nobody asks for the token: {:?}", case.script.words());
            let (sent, until) = case.script.drain();
            if sent.is_empty() {
                case.script.up = case.script.up.max(until.as_duration());
            }
            for (ticket, _) in sent {
                case.script.answer(ticket, refused(401, "Unauthorized"));
            }
        }
        assert_eq!((case.script.keys_asked.as_slice(), case.script.kept.len()), (&[false][..], 0), "the key waits");
    }
}

#[test]
fn a_certificate_that_did_not_come_into_use_is_asked_for_again_in_an_hour() {
    let mut case = Case::due();
    case.make();
    case.create();
    case.play(case.issued(&case.ours()));
    case.play(Ok(metadata("rv1")));
    case.script.drain();
    assert_eq!(case.script.kept.len(), 1);
    let (dates, now) = (case.script.agent.shared.credentials.dates(), case.script.now());
    case.script.agent.handle(Input::Credentials(dates), now);
    assert_eq!(case.script.identity_requests_within(HOUR - Duration::from_secs(1), &unreachable()), 0);
    case.script.pass(Duration::from_secs(30));
    assert_eq!(case.script.keys_asked, [false, false]);
}

/// Of which this process has seen two hours.
#[test]
fn an_outage_in_which_the_board_was_restarted_counts_from_its_beginning() {
    let mut case = Case::with(leaf("n1", &Key::new(), 2025, 2032));
    let dates = case.script.agent.shared.credentials.dates();
    case.script.offline(DAY);
    let mut script = case.script.restart(BootId(BOOT.0 + 1), Duration::from_secs(10));
    script.agent.handle(Input::Credentials(dates), script.now());
    script.offline(HOUR * 2);
    assert_eq!(script.keys_asked, [false; 0]);
    script.pass(Duration::from_secs(120));
    assert_eq!(script.keys_asked, [false], "14 percent are gone, and the next outage may be longer");
}
