//! A board with a token of k3s or rke2: what its supervisor is asked, what each answer means, and how a certificate is renewed.

use rcgen::PublicKeyData;

use super::*;
use crate::config::kubeconfig::parse_server;
use crate::config::settings::{CaHash, Token};
use crate::identity::samples::{Key, leaf};
use crate::identity::supervisor::NodePassword;
use crate::identity::{IdentityError, Renewal, SigningRequest, pem, pin};

const HOUR: Duration = Duration::from_secs(3600);
const PASSWORD: &str = "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5";
/// `node:secret`, whatever user the token names.
const SHOWN: &str = "authorization: Basic bm9kZTpzZWNyZXQ=\r\n";

struct Case {
    script: Script,
    /// What `/cacerts` says.
    bundle: String,
    key: Key,
    port: u16,
    trust: Trust,
    /// What other lanes are answered, where that is not what a healthy server says.
    others: Option<Result<Document, Refusal>>,
}

impl Case {
    fn with(settings: Settings, port: u16) -> Case {
        let mut script = Script::with(settings);
        let now = script.now();
        script.agent.handle(Input::NotJoined, now);
        let bundle = pem::of_certificates(&[leaf("k3s-server-ca", &Key::new(), 2025, 2035).into()]);
        Case { script, bundle, key: Key::new(), port, trust: Trust::Token, others: None }
    }

    fn new() -> Case {
        Case::with(Settings::default(), 6443)
    }

    /// A registered Node whose certificate is due.
    fn due() -> Case {
        let mut case = Case { script: Script::new(), ..Case::new() };
        case.script.register();
        let renewal = Renewal::of(&leaf("n1", &Key::new(), 2025, 2027), None);
        let dates = CredentialDates { renewal, not_after: renewal.map(|of| of.end), ..CredentialDates::default() };
        let now = case.script.now();
        case.script.agent.handle(Input::Credentials(dates), now);
        case.script.pass(Duration::from_secs(30));
        case.make();
        case
    }

    /// Lets time pass until somebody asks what to join with, and says it.
    fn introduce(&mut self) {
        let asked = self.script.means_asked;
        while self.script.means_asked == asked {
            let (sent, until) = self.script.drain();
            assert!(sent.is_empty(), "{sent:?}");
            self.script.up = self.script.up.max(until.as_duration());
        }
        self.hand_over();
    }

    /// A Node that is answered so whatever it asks, until somebody asks what to join with, and that is said.
    fn since(&mut self, answer: &Result<Document, Refusal>) {
        self.others = Some(answer.clone());
        self.script.register();
        let renewal = Renewal::of(&leaf("n1", &Key::new(), 2024, 2046), None);
        let now = self.script.now();
        self.script.agent.handle(Input::Credentials(CredentialDates { renewal, ..CredentialDates::default() }), now);
        let known: CertificateDer<'static> = leaf("k3s-server-ca", &Key::new(), 2025, 2035).into();
        let servers = [parse_server("https://one:6443").unwrap(), parse_server("https://two:6443").unwrap()];
        self.script.cluster = Some((servers.to_vec(), vec![known].into()));
        self.script.supervisor = Some(self.port);
        let asked = self.script.means_asked;
        while self.script.means_asked == asked {
            let (sent, until) = self.script.drain();
            if sent.is_empty() {
                self.script.up = self.script.up.max(until.as_duration());
            }
            sent.into_iter().for_each(|(ticket, _)| self.script.answer(ticket, answer.clone()));
        }
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let nothing = CaHash { digest: [0; 32] };
        let Err(IdentityError::PinMismatch(found)) = pin::vouched_by_token(self.bundle.as_bytes(), nothing) else {
            panic!("a digest of zeros")
        };
        let hash = found[0].to_string().replace("sha256:", "");
        let token = Token::parse(&format!("K10{hash}::server:secret")).unwrap();
        let servers = ["one", "two"].map(|host| parse_server(&format!("https://{host}:{}", self.port)).unwrap());
        let means = Means { servers: servers.to_vec(), token, is_fleeting: false, trust: self.trust.clone() };
        let now = self.script.now();
        self.script.agent.handle(Input::Means(Ok(Box::new(means))), now);
    }

    /// Hands over the key that was asked for last.
    fn make(&mut self) {
        let request = Box::new(SigningRequest::new("n1", self.key.point()));
        let node_password = Some(NodePassword::new([0xa5; 16], self.port));
        let now = self.script.now();
        self.script.agent.handle(Input::RequestMade { request, signature: vec![0x30, 0], node_password }, now);
    }

    /// Answers the next request with this; says its verb, path and own lines.
    fn play(&mut self, result: Result<Document, Refusal>) -> (&'static str, String, String) {
        let operation = match self.others.clone() {
            None => self.script.play(Lane::Identity, result).1,
            Some(others) => self.play_while(result, &others),
        };
        let Operation::AskSupervisor(request) = &operation else { panic!("{operation:?}") };
        let is_proven = !matches!(self.script.access, Some(Access::Unverified { .. }));
        assert!(is_proven || request.headers.is_empty(), "{}", *request.headers);
        assert!(
            !matches!(self.script.access, Some(Access::Introduced { token: Some(_), .. })),
            "a bearer of a K10 token"
        );
        (operation.verb(), request.path.clone(), request.headers.to_string())
    }

    /// All other lanes are answered so.
    fn play_while(&mut self, result: Result<Document, Refusal>, others: &Result<Document, Refusal>) -> Operation {
        loop {
            let (sent, until) = self.script.drain();
            if sent.is_empty() {
                self.script.up = self.script.up.max(until.as_duration());
            }
            for (ticket, operation) in sent {
                let is_ours = ticket.lane() == Lane::Identity;
                self.script.answer(ticket, if is_ours { result.clone() } else { others.clone() });
                if is_ours {
                    return operation;
                }
            }
        }
    }

    fn bundle(&self) -> Result<Document, Refusal> {
        handed_out(&self.bundle)
    }

    /// As far as the request for a certificate.
    fn proven(&mut self) {
        self.introduce();
        self.play(self.bundle());
        self.play(self.bundle());
        self.play(handed_out(r#"{"HTTPSPort":6443,"SupervisorPort":6443}"#));
        self.play(handed_out(r#"["10.0.0.1:6443"]"#));
        self.words();
        self.make();
    }

    fn words(&mut self) -> Vec<&'static str> {
        let (sent, _) = self.script.drain();
        assert!(sent.is_empty(), "{sent:?}");
        self.script.words()
    }
}

fn handed_out(text: &str) -> Result<Document, Refusal> {
    Ok(Document::HandedOut(text.as_bytes().to_vec()))
}

fn certificate(node: &str, key: &Key) -> Result<Document, Refusal> {
    handed_out(&pem::of_certificates(&[leaf(node, key, 2026, 2028).into()]))
}

#[test]
fn a_token_of_k3s_brings_a_certificate_in_five_questions_and_nothing_secret_is_said_before_the_server_is_proven() {
    let mut case = Case::new();
    case.introduce();
    assert_eq!(case.play(case.bundle()), ("GET", "/cacerts".to_owned(), String::new()));
    assert!(matches!(case.script.access, Some(Access::Unverified { .. })));
    assert_eq!(case.play(case.bundle()), ("GET", "/cacerts".to_owned(), String::new()));
    assert!(matches!(&case.script.access, Some(Access::Introduced { authorities: Some(one), .. }) if one.len() == 1));
    let settings = case.play(handed_out(r#"{"HTTPSPort":6443,"SupervisorPort":6443}"#));
    assert_eq!(settings, ("GET", "/v1-k3s/config".to_owned(), SHOWN.to_owned()));
    assert_eq!(case.script.cluster, None);
    let servers = case.play(handed_out(r#"["10.0.0.1:6443","one:6443"]"#));
    assert_eq!(servers, ("GET", "/v1-k3s/apiservers".to_owned(), SHOWN.to_owned()));
    case.words();
    let (servers, authorities) = case.script.cluster.clone().unwrap();
    let servers: Vec<_> = servers.iter().map(Server::authority).collect();
    assert_eq!(servers, ["one:6443", "two:6443", "10.0.0.1:6443"], "the given ones first");
    assert_eq!((authorities.text(), case.script.supervisor), (case.bundle.clone(), Some(6443)));
    case.make();
    let (verb, path, headers) = case.play(certificate("n1", &case.key));
    assert_eq!((verb, path.as_str()), ("POST", "/v1-k3s/client-kubelet.crt"));
    assert_eq!(headers, format!("k3s-Node-Name: n1\r\nk3s-Node-Password: {PASSWORD}\r\n{SHOWN}"));
    case.script.play(Lane::Identity, refused(404, "NotFound"));
    assert!(matches!(case.script.access, Some(Access::Candidate { .. })), "the API server takes it");
    case.words();
    assert_eq!((case.script.kept.len(), case.script.keys_taken.len()), (1, 0));
    assert_eq!(case.script.keys_asked, [false]);
}

#[test]
fn rke2_has_its_api_on_another_port_and_an_older_server_knows_no_others() {
    let mut case = Case::with(Settings::default(), 9345);
    case.introduce();
    case.play(case.bundle());
    case.play(case.bundle());
    assert_eq!(case.play(handed_out(r#"{"HTTPSPort":6443,"SupervisorPort":9345}"#)).1, "/v1-rke2/config");
    assert_eq!(case.play(refused(404, "NotFound")).1, "/v1-rke2/apiservers");
    case.words();
    let servers: Vec<_> = case.script.cluster.clone().unwrap().0.iter().map(Server::authority).collect();
    assert_eq!((servers, case.script.supervisor), (vec!["one:6443".to_owned(), "two:6443".to_owned()], Some(9345)));
    case.make();
    assert_eq!(case.play(certificate("n1", &case.key)).1, "/v1-rke2/client-kubelet.crt");
}

#[test]
fn who_cannot_prove_to_be_the_server_of_the_token_never_hears_it() {
    let stranger = pem::of_certificates(&[leaf("stranger", &Key::new(), 2025, 2035).into()]);
    for (word, answer) in [
        ("pin-mismatch", handed_out(&stranger)),
        ("pin-mismatch", handed_out("<html>Please log in</html>")),
        ("supervisor-refused", refused(404, "NotFound")),
        ("supervisor-busy", refused(503, "ServiceUnavailable")),
        ("join-failing", unreachable()),
    ] {
        let mut case = Case::new();
        let mut moments = Vec::new();
        for _ in 0..6 {
            case.introduce();
            moments.push(case.script.up.as_secs());
            assert_eq!(case.play(answer.clone()).2, "");
        }
        assert!(case.words().contains(&word), "{word}: {:?}", case.script.words());
        assert!(moments[5] - moments[0] >= 10, "{word}: {moments:?}");
        assert_eq!((case.script.cluster, case.script.keys_asked.len()), (None, 0), "{word}");
        assert!(case.script.said.iter().all(|notice| !notice.text.contains("secret")), "the password is told");
    }
    // A server that has proven itself, and shows nothing then.
    let mut case = Case::new();
    case.introduce();
    case.play(case.bundle());
    case.play(handed_out("nothing"));
    assert!(case.words().contains(&"answer-malformed"), "{:?}", case.script.words());
}

#[test]
fn a_token_that_is_not_known_is_tried_again_soon_and_one_that_may_nothing_later() {
    for (code, word, pause_s) in [(401, "token-unknown", 5..20), (403, "supervisor-refused", 300..330)] {
        let mut case = Case::new();
        case.introduce();
        case.play(case.bundle());
        case.play(case.bundle());
        case.play(refused(code, "no"));
        let at = case.script.up;
        assert!(case.words().contains(&word), "{:?}", case.script.words());
        case.introduce();
        assert!(pause_s.contains(&(case.script.up - at).as_secs()), "{code}");
    }
}

#[test]
fn a_refused_certificate_has_its_word_and_the_next_try_finds_its_server_anew_with_the_same_key() {
    for (code, word) in [(401, "token-unknown"), (403, "node-password-differs"), (400, "supervisor-refused")] {
        let mut case = Case::new();
        case.proven();
        case.play(refused(code, "no"));
        assert!(case.words().contains(&word), "{:?}", case.script.words());
        case.proven();
        assert_eq!(case.play(certificate("n1", &case.key)).1, "/v1-k3s/client-kubelet.crt");
        assert_eq!(case.script.keys_asked, [false, false], "{word}");
    }
}

#[test]
fn a_busy_supervisor_is_asked_the_same_again_ever_more_rarely() {
    for code in [429, 500, 503] {
        let mut case = Case::new();
        case.proven();
        let within_a_minute = case.script.identity_requests_within(Duration::from_secs(60), &refused(code, "busy"));
        assert!((3..=8).contains(&within_a_minute), "{code}: {within_a_minute}");
        let within_a_day = case.script.identity_requests_within(HOUR * 24, &refused(code, "busy"));
        assert!((100..=200).contains(&within_a_day), "{code}: {within_a_day}");
        assert_eq!(case.script.keys_asked, [false]);
        assert_eq!(case.play(certificate("n1", &case.key)).1, "/v1-k3s/client-kubelet.crt");
    }
}

#[test]
fn a_key_that_all_agents_share_is_taken_only_where_the_settings_say_so() {
    let shared = Key::new();
    let mut text = pem::of_certificates(&[leaf("n1", &shared, 2026, 2028).into()]);
    pem::write(&mut text, pem::PRIVATE_KEY, &shared.pkcs8());
    let mut case = Case::new();
    case.proven();
    case.play(handed_out(&text));
    assert!(case.words().contains(&"shared-key"), "{:?}", case.script.words());
    assert_eq!((case.script.keys_taken.len(), case.script.kept.len()), (0, 0));
    let mut case = Case::with(Settings { k3s_shared_key: true, ..Settings::default() }, 6443);
    case.proven();
    case.play(handed_out(&text));
    case.script.play(Lane::Identity, refused(404, "NotFound"));
    case.words();
    let points: Vec<_> = case.script.keys_taken.iter().map(|key| key.point().map(<[u8]>::to_vec)).collect();
    assert_eq!((points, case.script.kept.len()), (vec![Some(shared.0.der_bytes().to_vec())], 1));
    assert!(case.script.words().contains(&"shared-key"), "it is told all the same");
}

#[test]
fn a_certificate_for_another_name_or_key_is_not_taken() {
    for wrong in [certificate("n2", &Case::new().key), certificate("n1", &Key::new()), handed_out("")] {
        let mut case = Case::new();
        case.proven();
        case.play(wrong);
        assert!(case.words().contains(&"wrong-certificate"), "{:?}", case.script.words());
        assert_eq!(case.script.identity_requests_within(HOUR - Duration::from_secs(1), &unreachable()), 0);
        assert_eq!(case.script.kept.len(), 0);
    }
}

#[test]
fn a_certificate_is_renewed_by_the_supervisor_that_is_shown_the_one_in_use() {
    let mut case = Case::due();
    let (verb, path, headers) = case.play(certificate("n1", &case.key));
    assert_eq!((verb, path.as_str()), ("POST", "/v1-k3s/client-kubelet.crt"));
    assert_eq!(headers, format!("k3s-Node-Name: n1\r\nk3s-Node-Password: {PASSWORD}\r\n"), "and no token");
    assert_eq!(case.script.access, Some(Access::Supervisor { port: 6443 }));
    assert_eq!(case.script.play(Lane::Identity, Ok(metadata("rv1"))).1, Operation::ProveCertificate);
    case.words();
    assert_eq!((case.script.kept.len(), case.script.means_asked), (1, 0));
}

/// The server's own reasons: the Node was deleted (401), or its password is another's (403). The certificate in use is good.
#[test]
fn a_renewal_that_is_refused_keeps_the_certificate_in_use_and_is_tried_ever_more_rarely_with_the_same_key() {
    for (code, word) in [(401, "certificate-refused"), (403, "node-password-differs"), (400, "supervisor-refused")] {
        let mut case = Case::due();
        let mut moments = Vec::new();
        for keys in 2..=5 {
            case.play(refused(code, "no"));
            moments.push(case.script.up.as_secs());
            assert!(case.words().contains(&word), "{:?}", case.script.words());
            while case.script.keys_asked.len() < keys {
                case.script.pass(Duration::from_secs(30));
            }
            case.make();
        }
        let pauses: Vec<_> = moments.windows(2).map(|pair| (pair[1] - pair[0]) / 60).collect();
        assert!(pauses[0] >= 5 && pauses[1] >= 2 * pauses[0] - 1, "{word}: {pauses:?} min");
        assert!(case.script.keys_asked.iter().all(|is_new| !is_new));
        assert_eq!((case.script.kept.len(), case.script.means_asked, case.script.reloads), (0, 0, 0), "{word}");
    }
}

/// The CA in use proves the server, and what it shows then is the bundle from then on.
#[test]
fn a_board_that_has_been_a_node_goes_back_with_its_token_and_asks_nobody_unproven() {
    let mut case = Case { script: Script::new(), ..Case::new() };
    case.since(&refused(401, "Unauthorized"));
    assert_eq!(case.play(case.bundle()).1, "/cacerts");
    assert!(
        matches!(&case.script.access, Some(Access::Introduced { authorities: None, .. })),
        "{:?}",
        case.script.access
    );
    assert_eq!(case.play(handed_out(r#"{"HTTPSPort":6443,"SupervisorPort":6443}"#)).2, SHOWN);
    case.play(handed_out("[]"));
    case.words();
    assert_eq!(case.script.cluster.clone().unwrap().1.text(), case.bundle);
    assert_eq!(case.script.keys_asked, [false]);
}

fn stranger() -> Result<Document, Refusal> {
    Err(Refusal::Failed(Failure::new("tls-unknown-issuer", "signed by nobody")))
}

/// CA-1: the supervisor shows it to nobody in particular, over a connection that the known CA verifies.
#[test]
fn each_week_a_supervisor_is_asked_for_its_cas_which_are_added_to_those_that_are_known() {
    let mut case = Case { script: Script::new(), port: 9345, ..Case::new() };
    case.script.register();
    let renewal = Renewal::of(&leaf("n1", &Key::new(), 2026, 2046), None);
    let now = case.script.now();
    case.script.agent.handle(Input::Credentials(CredentialDates { renewal, ..CredentialDates::default() }), now);
    let old: CertificateDer<'static> = leaf("rke2-server-ca", &Key::new(), 2025, 2035).into();
    let servers = vec![parse_server("https://one:6443").unwrap()];
    case.script.cluster = Some((servers.clone(), vec![old.clone()].into()));
    case.script.supervisor = Some(9345);
    for (shown, is_added) in [("nothing", false), ("both", true)] {
        case.script.agent.handle(Input::Reloaded(Box::default()), case.script.now());
        let shown =
            if is_added { pem::of_certificates(std::slice::from_ref(&old)) + &case.bundle } else { shown.to_owned() };
        assert_eq!(case.play(handed_out(&shown)), ("GET", "/cacerts".to_owned(), String::new()));
        let over = Some(vec![old.clone()]);
        let server = parse_server("https://one:9345").unwrap();
        assert_eq!(case.script.access, Some(Access::Introduced { server, authorities: over, token: None }));
        case.script.pass(Duration::from_secs(20));
        let (now_in_use, authorities) = case.script.cluster.clone().unwrap();
        assert_eq!((now_in_use == servers, case.script.supervisor), (true, Some(9345)), "all else stays");
        assert_eq!(authorities.shown.len(), if is_added { 2 } else { 1 });
        assert!(authorities.shown.contains(&old) && authorities.absent.is_empty());
    }
    assert!(case.script.words().contains(&"ca-added"));
}

/// CA-4: vouched for by the hash of a token, or by one of the settings; the token is said to nobody for that.
#[test]
fn another_ca_of_a_supervisor_is_believed_by_a_hash_and_else_told() {
    for is_pinned in [None, Some(false), Some(true)] {
        let mut case = Case { script: Script::new(), ..Case::new() };
        let shown = match is_pinned {
            // The token is one of the new CA.
            None => case.bundle.clone(),
            Some(_) => pem::of_certificates(&[leaf("k3s-server-ca", &Key::new(), 2025, 2035).into()]),
        };
        let new = pem::certificates(shown.as_bytes()).next().unwrap();
        let pins = if is_pinned == Some(true) { vec![pin::of(&new).unwrap()] } else { Vec::new() };
        case.trust = Trust::Pinned(pins);
        case.since(&stranger());
        let before = case.script.cluster.clone();
        assert_eq!(case.play(handed_out(&shown)), ("GET", "/cacerts".to_owned(), String::new()));
        assert!(matches!(case.script.access, Some(Access::Unverified { .. })), "{:?}", case.script.access);
        if is_pinned == Some(false) {
            case.words();
            let told =
                case.script.said.iter().find(|notice| notice.word == "ca-changed").map(|notice| notice.text.clone());
            let told = told.unwrap_or_default();
            assert!(told.ends_with(&format!("nodepulse join --ca-hash {}", pin::of(&new).unwrap())), "{told}");
            assert_eq!(case.script.cluster, before);
            continue;
        }
        assert_eq!(case.play(handed_out(&shown)), ("GET", "/cacerts".to_owned(), String::new()));
        let over = match &case.script.access {
            Some(Access::Introduced { authorities, token: None, .. }) => authorities.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(over, Some(vec![new.clone()]));
        case.script.pass(Duration::from_secs(20));
        let (servers, authorities) = case.script.cluster.clone().unwrap();
        assert_eq!((authorities, case.script.supervisor), (vec![new].into(), Some(6443)));
        assert_eq!(Some(servers), before.map(|(servers, _)| servers));
    }
}
