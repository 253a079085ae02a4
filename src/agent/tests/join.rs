//! A board with a token: whom it asks in which order, what each answer means, and what is never said to whom.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::api::failure::CONNECT_FAILED;
use crate::config::kubeconfig::parse_server;
use crate::config::settings::{CaHash, Token};
use crate::identity::samples::{self, Key, leaf, signature};
use crate::identity::{Renewal, SigningRequest, files, pem, pin};

const TOKEN: &str = "abcdef.0123456789abcdef";
const HOUR: Duration = Duration::from_secs(3600);

/// What somebody answers who is asked which cluster it is.
type Answerer<'a> = &'a dyn Fn(&Case) -> Result<Document, Refusal>;

struct Case {
    script: Script,
    authority: CertificateDer<'static>,
    servers: Vec<Server>,
    trust: Option<Trust>,
}

impl Case {
    fn new() -> Case {
        let mut script = Script::new();
        let now = script.now();
        script.agent.handle(Input::NotJoined, now);
        let servers = ["https://one:6443", "https://two:6443"].map(|url| parse_server(url).unwrap());
        let authority = CertificateDer::from(leaf("kubernetes", &Key::new(), 2025, 2035));
        Case { script, authority, servers: servers.to_vec(), trust: None }
    }

    fn pinned(&self) -> Vec<CaHash> {
        vec![pin::of(&self.authority).unwrap()]
    }

    /// Lets time pass until somebody asks what to join with, and says it.
    fn introduce(&mut self) {
        let asked = self.script.means_asked;
        for _ in 0..1000 {
            let (sent, until) = self.script.drain();
            assert!(sent.is_empty(), "{sent:?}");
            if self.script.means_asked > asked {
                let trust = self.trust.clone().unwrap_or_else(|| Trust::Pinned(self.pinned()));
                let token = Token::parse(TOKEN).unwrap();
                let means = Means { servers: self.servers.clone(), token, is_fleeting: false, trust };
                let now = self.script.now();
                return self.script.agent.handle(Input::Means(Ok(Box::new(means))), now);
            }
            self.script.up = self.script.up.max(until.as_duration());
        }
        panic!("nobody asks");
    }

    fn info(&self, authorities: &[CertificateDer<'_>], secret: &str) -> Result<Document, Refusal> {
        let servers = [parse_server("https://10.0.0.1:6443").unwrap()];
        let kubeconfig = files::kubeconfig(
            &servers,
            &[],
            &authorities.iter().cloned().map(CertificateDer::into_owned).collect::<Vec<_>>().into(),
            None,
        );
        let signature = signature(&kubeconfig, ("abcdef", secret));
        let map = json!({ "data": { "kubeconfig": kubeconfig, "jws-kubeconfig-abcdef": signature } });
        Ok(Document::Json(map.to_string().into_bytes()))
    }

    fn signed(&self) -> Result<Document, Refusal> {
        self.info(std::slice::from_ref(&self.authority), "0123456789abcdef")
    }

    fn play(&mut self, result: Result<Document, Refusal>) -> (u128, Operation) {
        self.script.play(Lane::Identity, result)
    }

    fn words(&mut self) -> Vec<&'static str> {
        let (sent, _) = self.script.drain();
        assert!(sent.is_empty(), "{sent:?}");
        self.script.words()
    }

    /// As far as the request for a certificate.
    fn proven(&mut self) {
        self.introduce();
        self.play(self.signed());
        self.play(self.signed());
        self.play(refused(403, "Forbidden"));
    }

    fn is_token_said(&self) -> bool {
        matches!(&self.script.access, Some(Access::Introduced { token: Some(_), .. }))
    }
}

#[test]
fn a_board_with_a_token_asks_in_order_and_is_a_node_only_when_it_has_its_certificate() {
    let mut case = Case::new();
    case.introduce();
    let (_, discover) = case.play(case.signed());
    assert_eq!(discover, Operation::ReadClusterInfo);
    assert_eq!(case.script.access, Some(Access::Unverified { server: case.servers[0].clone() }));
    assert_eq!(case.script.cluster, None, "nobody is proven");
    let (_, confirm) = case.play(case.signed());
    let authorities = Some(vec![case.authority.clone()]);
    let introduced =
        |token| Access::Introduced { server: case.servers[0].clone(), authorities: authorities.clone(), token };
    assert_eq!((confirm, case.script.access.clone()), (Operation::ReadClusterInfo, Some(introduced(None))));
    let proven = introduced(Some(Token::parse(TOKEN).unwrap()));
    let (_, look) = case.play(refused(404, "NotFound"));
    assert_eq!((look, case.script.access.clone()), (Operation::ReadNode { heartbeat: false }, Some(proven.clone())));
    let (servers, authorities) = case.script.cluster.clone().unwrap();
    let hosts: Vec<_> = servers.iter().map(|server| server.host.as_str()).collect();
    assert_eq!((hosts, authorities), (vec!["one", "two", "10.0.0.1"], vec![case.authority.clone()].into()), "JOIN-7");
    assert!(case.words().iter().all(|word| *word != "registered"));
    let key = Key::new();
    let request = SigningRequest::new("n1", key.point());
    let now = case.script.now();
    case.script.agent.handle(
        Input::RequestMade { request: Box::new(request.clone()), signature: vec![0x30, 0], node_password: None },
        now,
    );
    let certificate = leaf("n1", &key, 2026, 2028);
    let (_, create) = case.play(Ok(metadata("rv1")));
    assert!(matches!(create, Operation::CreateCertificateRequest { .. }));
    assert_eq!(case.script.access, Some(proven), "the token asks for it");
    case.play(issued(&request, &certificate));
    case.play(refused(404, "NotFound"));
    assert!(matches!(case.script.access, Some(Access::Candidate { .. })));
    case.words();
    assert_eq!(case.script.kept.len(), 1);
    let dates = CredentialDates { renewal: Renewal::of(&certificate, None), ..CredentialDates::default() };
    let now = case.script.now();
    case.script.agent.handle(Input::Credentials(dates), now);
    case.script.register();
    assert!(case.script.words().contains(&"registered"));
}

#[test]
fn of_what_nobody_has_proven_only_pinned_certificates_are_kept() {
    let mut case = Case::new();
    case.introduce();
    let theirs = CertificateDer::from(leaf("attacker", &Key::new(), 2025, 2035));
    case.play(case.info(&[theirs, case.authority.clone()], "0123456789abcdef"));
    case.play(case.signed());
    let expected = Some(vec![case.authority.clone()]);
    assert!(
        matches!(&case.script.access, Some(Access::Introduced { authorities, token: None, .. }) if *authorities == expected)
    );
}

#[test]
fn whoever_is_not_proven_never_hears_the_token() {
    let theirs = || CertificateDer::from(leaf("attacker", &Key::new(), 2025, 2035));
    let mixed = |case: &Case| case.info(&[theirs()], "0123456789abcdef");
    let answers: [(&str, Answerer<'_>); 8] = [
        ("pin-mismatch", &mixed),
        ("signature-wrong", &|case| case.info(std::slice::from_ref(&case.authority), "0123456789abcdeg")),
        ("token-unknown", &|_| Ok(Document::Json(json!({ "data": { "kubeconfig": "" } }).to_string().into_bytes()))),
        ("answer-malformed", &|_| Ok(Document::Json(b"1".to_vec()))),
        ("anonymous-refused", &|_| refused(401, "Unauthorized")),
        ("anonymous-refused", &|_| refused(403, "Forbidden")),
        ("no-cluster-info", &|_| refused(404, "NotFound")),
        ("join-failing", &|_| unreachable()),
    ];
    for (word, answer) in answers {
        let mut case = Case::new();
        let mut moments = Vec::new();
        for _ in 0..6 {
            case.introduce();
            let result = answer(&case);
            moments.push(case.play(result).0);
            assert!(!case.is_token_said(), "{word}");
        }
        assert!(case.words().contains(&word), "{word}: {:?}", case.script.words());
        let line = case.script.agent.status_line();
        assert!(line.is_settled && line.text.starts_with("Node n1 is joining: "), "{}", line.text);
        let first_minute = moments.iter().filter(|at| **at < moments[0] + 60_000).count();
        assert!(first_minute <= 6, "{word}: {first_minute} in the first minute");
        assert_eq!(case.script.cluster, None, "{word}");
        let told = case.script.said.iter().filter(|notice| notice.word == word).count();
        assert!(told <= 3, "{word} is told {told} times");
        assert!(case.script.said.iter().all(|notice| !notice.text.contains("0123456789abcde")), "the secret is told");
    }
}

#[test]
fn servers_take_turns() {
    let mut case = Case::new();
    let mut hosts = Vec::new();
    for _ in 0..4 {
        case.introduce();
        case.play(unreachable());
        let Some(Access::Unverified { server }) = &case.script.access else { panic!("{:?}", case.script.access) };
        hosts.push(server.host.clone());
    }
    assert_eq!(hosts, ["one", "two", "one", "two"]);
}

#[test]
fn with_a_ca_nobody_unproven_is_asked_and_no_cluster_info_is_needed() {
    let mut case = Case::new();
    case.trust = Some(Trust::Given(vec![case.authority.clone()]));
    case.introduce();
    case.play(refused(401, "Unauthorized"));
    assert!(matches!(&case.script.access, Some(Access::Introduced { token: None, .. })));
    assert_eq!(case.play(refused(403, "Forbidden")).1, Operation::ReadNode { heartbeat: false });
    case.words();
    assert_eq!(case.script.keys_asked, [false]);
}

#[test]
fn a_name_that_another_board_is_ready_under_is_not_taken() {
    for (is_ready, serial, keys) in [(true, "another", 0), (false, "another", 1), (true, "c3dd000000000001", 1)] {
        let mut node = registered_node();
        let status = if is_ready { "True" } else { "Unknown" };
        node.status
            .conditions
            .iter_mut()
            .filter(|one| one.kind == "Ready")
            .for_each(|one| one.status = status.to_owned());
        node.metadata.annotations.insert("nodepulse.dev/board-serial".to_owned(), serial.to_owned());
        let mut case = Case::new();
        case.introduce();
        case.play(case.signed());
        case.play(case.signed());
        case.play(Ok(Document::Node(Box::new(node))));
        assert_eq!(case.words().contains(&"name-taken"), keys == 0, "{is_ready} {serial}");
        assert_eq!(case.script.keys_asked.len(), keys, "{is_ready} {serial}");
    }
}

#[test]
fn a_board_whose_network_knows_no_way_at_first_has_not_to_wait_for_minutes() {
    let mut case = Case::new();
    let nobody = || Err(Refusal::Failed(Failure::new(CONNECT_FAILED, "no way to there")));
    for _ in 0..12 {
        case.introduce();
        case.play(nobody());
    }
    case.script.agent.handle(Input::LinkChanged, case.script.now());
    let back = case.script.up;
    for _ in 0..4 {
        case.introduce();
        case.play(nobody());
    }
    // At once, and after pauses of at most 2, 4 and 8 s.
    assert!(case.script.up - back <= Duration::from_secs(14), "{:?}", case.script.up - back);
}

#[test]
fn a_token_that_dies_on_the_way_is_asked_for_again_and_the_key_stays() {
    let mut case = Case::new();
    case.proven();
    case.words();
    let request = SigningRequest::new("n1", Key::new().point());
    let now = case.script.now();
    case.script
        .agent
        .handle(Input::RequestMade { request: Box::new(request), signature: vec![0x30, 0], node_password: None }, now);
    case.play(refused(401, "Unauthorized"));
    assert!(case.words().contains(&"token-unknown"), "{:?}", case.script.words());
    case.proven();
    case.words();
    assert_eq!(case.script.keys_asked, [false, false]);
}

fn issued(request: &SigningRequest, certificate: &[u8]) -> Result<Document, Refusal> {
    let mut text = String::new();
    pem::write(&mut text, pem::CERTIFICATE, certificate);
    let object = json!({
        "metadata": { "uid": "csr-1", "resourceVersion": "5" },
        "spec": {
            "request": STANDARD.encode(request.pem(&[0x30, 0])),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        },
        "status": { "conditions": [{ "type": "Approved" }], "certificate": STANDARD.encode(text) },
    });
    Ok(Document::Protobuf(samples::protobuf(&object)))
}

/// Whatever becomes of the first request, a board goes on from the token.
#[test]
fn a_board_whose_first_request_is_denied_asks_again_from_the_token_on() {
    for (kind, waits) in [("Denied", 1), ("Failed", 1)] {
        let mut case = Case::new();
        for hours in [0, waits, waits * 2] {
            let since = case.script.up;
            case.proven();
            let waited = case.script.up - since;
            assert!(waited >= HOUR * hours && waited < HOUR * hours + HOUR / 10, "{waited:?}");
            case.words();
            let request = SigningRequest::new("n1", Key::new().point());
            let packed = STANDARD.encode(request.pem(&[0x30, 0]));
            let now = case.script.now();
            case.script.agent.handle(
                Input::RequestMade { request: Box::new(request), signature: vec![0x30, 0], node_password: None },
                now,
            );
            let conditions = json!([{ "type": "Approved" }, { "type": kind, "reason": "KubectlDeny" }]);
            let object = json!({
                "spec": { "request": packed, "signerName": "kubernetes.io/kube-apiserver-client-kubelet" },
                "status": { "conditions": conditions },
            });
            case.play(Ok(metadata("rv1")));
            case.play(Ok(Document::Protobuf(samples::protobuf(&object))));
            case.words();
        }
        // A person who has changed their mind says so.
        let since = case.script.up;
        case.script.agent.handle(Input::Reloaded(Box::default()), case.script.now());
        case.proven();
        assert!(case.script.up - since < Duration::from_secs(60), "{:?}", case.script.up - since);
    }
}

/// The cluster gets another CA while a request waits for its approval: its hash is known, and the key stays the same.
#[test]
fn a_board_that_waits_for_its_first_certificate_goes_by_its_pins_again_when_the_ca_is_another() {
    let stranger = || Err(Refusal::Failed(Failure::new("tls-unknown-issuer", "signed by nobody")));
    for is_polling in [false, true] {
        let mut case = Case::new();
        let old = case.authority.clone();
        case.proven();
        case.words();
        let request = SigningRequest::new("n1", Key::new().point());
        let made = Input::RequestMade { request: Box::new(request), signature: vec![0x30, 0], node_password: None };
        case.script.agent.handle(made, case.script.now());
        if is_polling {
            case.play(Ok(metadata("5")));
        }
        case.authority = leaf("kubernetes", &Key::new(), 2025, 2035).into();
        case.trust = Some(Trust::Pinned(vec![pin::of(&old).unwrap(), pin::of(&case.authority).unwrap()]));
        let began = case.script.up;
        case.play(stranger());
        case.introduce();
        assert!(case.script.up - began <= Duration::from_secs(310), "{:?}", case.script.up - began);
        case.play(case.signed());
        assert!(matches!(case.script.access, Some(Access::Unverified { .. })), "{:?}", case.script.access);
        case.play(case.signed());
        let over = match &case.script.access {
            Some(Access::Introduced { authorities, token: None, .. }) => authorities.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(over, Some(vec![case.authority.clone()]));
        case.play(refused(404, "NotFound"));
        case.words();
        assert_eq!(case.script.cluster.clone().unwrap().1, vec![case.authority.clone()].into());
        assert_eq!(case.script.keys_asked, [false, false], "the same key");
    }
}

/// A token needs a server that something proves, and says so.
#[test]
fn without_a_hash_a_board_asks_nobody_and_says_what_is_missing() {
    let mut case = Case::new();
    case.trust = Some(Trust::Pinned(Vec::new()));
    case.introduce();
    assert!(case.words().contains(&"no-pin"), "{:?}", case.script.words());
    assert_eq!(case.script.access, None);
}

/// A few requests with a certificate that is refused are enough to know; the files are read again before.
#[test]
fn a_node_whose_certificate_has_ended_goes_back_with_the_token_ever_more_rarely() {
    let mut script = Script::new();
    script.register();
    let renewal = Renewal::of(&leaf("n1", &Key::new(), 2024, 2025), None);
    let now = script.now();
    script.agent.handle(Input::Credentials(CredentialDates { renewal, ..CredentialDates::default() }), now);
    let mut case = Case { script, ..Case::new() };
    let (mut tries, mut with_certificate) = (Vec::new(), Vec::new());
    let began = case.script.up;
    let end = began + HOUR * 48;
    while case.script.up < end {
        let asked = case.script.means_asked;
        let (sent, until) = case.script.drain();
        if case.script.means_asked > asked {
            tries.push(case.script.up.as_secs());
            let token = Token::parse(TOKEN).unwrap();
            let trust = Trust::Pinned(Vec::new());
            let means = Means { servers: case.servers.clone(), token, is_fleeting: false, trust };
            let now = case.script.now();
            case.script.agent.handle(Input::Means(Ok(Box::new(means))), now);
            continue;
        }
        if sent.is_empty() {
            case.script.up = case.script.up.max(until.as_duration()).min(end);
        }
        for (ticket, operation) in sent {
            let is_ours = ticket.lane() == Lane::Identity;
            with_certificate.extend((!is_ours).then_some(case.script.up));
            assert!(!is_ours || operation == Operation::ReadClusterInfo, "{operation:?}");
            let nobody_knows = Document::Json(json!({ "data": { "kubeconfig": "" } }).to_string().into_bytes());
            let result = if is_ours { Ok(nobody_knows) } else { refused(401, "Unauthorized") };
            case.script.answer(ticket, result);
        }
    }
    // Somebody may put another one in its place: nothing that is refused says when to look.
    let reloads = case.script.reloads;
    assert!((48 * 60..=48 * 121).contains(&reloads), "{reloads} times in two days");
    let within = |from: u64, to: u64| tries.iter().filter(|at| (from * 3600..to * 3600).contains(*at)).count();
    assert!((60..=140).contains(&within(0, 24)), "{} on the first day", within(0, 24));
    assert!((15..=35).contains(&within(25, 48)), "{} on the second", within(25, 48));
    // A certificate that has ended by the server's own clock is of no use: that it is shown at all is for a clock that was wrong.
    let later = with_certificate.iter().filter(|at| **at > began + HOUR / 4).count();
    assert!((48..=48 * 8 * 3).contains(&later), "{later} requests with a certificate that has ended");
}

/// Signed for ten years, by a CA that the servers do not take any more; the signer gives a year by now.
#[test]
fn a_certificate_that_is_refused_gives_way_to_one_that_ends_before_it() {
    let mut script = Script::new();
    script.register();
    let (renewal, not_after) =
        (Renewal::of(&leaf("n1", &Key::new(), 2025, 2045), None), Some(START.plus(HOUR * 90_000)));
    let now = script.now();
    script.agent.handle(Input::Credentials(CredentialDates { renewal, not_after, ..CredentialDates::default() }), now);
    let mut case = Case { script, ..Case::new() };
    let (key, mut asked) = (Key::new(), case.script.means_asked);
    let mut steps = Vec::new();
    for _ in 0..1000 {
        let (sent, until) = case.script.drain();
        let now = case.script.now();
        if case.script.means_asked > asked {
            asked = case.script.means_asked;
            let (token, trust) = (Token::parse(TOKEN).unwrap(), Trust::Pinned(Vec::new()));
            let means = Means { servers: case.servers.clone(), token, is_fleeting: false, trust };
            case.script.agent.handle(Input::Means(Ok(Box::new(means))), now);
        } else if case.script.keys_asked.len() == 1 && !steps.contains(&"made") {
            steps.push("made");
            let request = Box::new(SigningRequest::new("n1", key.point()));
            let made = Input::RequestMade { request, signature: vec![0x30, 0], node_password: None };
            case.script.agent.handle(made, now);
        } else if sent.is_empty() {
            case.script.up = case.script.up.max(until.as_duration());
        }
        for (ticket, operation) in sent {
            let result = match operation {
                _ if ticket.lane() != Lane::Identity => refused(401, "Unauthorized"),
                Operation::ReadClusterInfo => case.signed(),
                Operation::CreateCertificateRequest { .. } => refused(409, "AlreadyExists"),
                Operation::ReadCertificateRequest { .. } => {
                    steps.push("read");
                    issued(&SigningRequest::new("n1", key.point()), &leaf("n1", &key, 2026, 2027))
                }
                Operation::ProveCertificate => {
                    steps.push("proven");
                    refused(404, "NotFound")
                }
                _ => refused(404, "NotFound"),
            };
            case.script.answer(ticket, result);
        }
        if !case.script.kept.is_empty() {
            break;
        }
    }
    assert_eq!((steps, case.script.kept.len()), (vec!["made", "read", "proven"], 1));
}
