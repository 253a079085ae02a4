//! The cluster's CA changes: what is learnt of it beforehand, what is believed when no server has the known one, and what never is
//! (CA-1, CA-2, CA-4).

mod last_resorts;

use serde_json::json;

use super::*;
use crate::config::kubeconfig::parse_server;
use crate::config::settings::{CaHash, Token};
use crate::identity::samples::{self, Key, leaf, signature};
use crate::identity::{Renewal, files, pin};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const SECRET: &str = "0123456789abcdef";

type Authority = CertificateDer<'static>;
/// What is answered over a connection of its own.
type Answerer<'a> = &'a dyn Fn(&Access) -> Result<Document, Refusal>;
/// What the identity lane asks over another connection than that of all.
type Asked = (Duration, Access);

fn authority() -> Authority {
    leaf("kubernetes", &Key::new(), 2025, 2035).into()
}

fn pin_of(authority: &Authority) -> CaHash {
    pin::of(authority).unwrap()
}

fn stranger() -> Result<Document, Refusal> {
    Err(Refusal::Failed(Failure::new("tls-unknown-issuer", "the server's certificate is signed by nobody")))
}

/// cluster-info with these CAs, signed with that secret.
fn info(authorities: &[&Authority], secret: &str) -> Result<Document, Refusal> {
    let authorities: Vec<Authority> = authorities.iter().map(|one| (*one).clone()).collect();
    let kubeconfig =
        files::kubeconfig(&[parse_server("https://10.0.0.1:6443").unwrap()], &[], &authorities.into(), None);
    let signature = signature(&kubeconfig, ("abcdef", secret));
    let map = json!({ "data": { "kubeconfig": kubeconfig, "jws-kubeconfig-abcdef": signature } });
    Ok(Document::Json(map.to_string().into_bytes()))
}

/// A board that has joined, whose certificate is good for years.
struct Case {
    script: Script,
    old: Authority,
    new: Authority,
    servers: Vec<Server>,
    trust: Result<Trust, String>,
    /// The control plane's own addresses; none: nobody may read them.
    listed: Vec<&'static str>,
    /// How often they were asked for.
    endpoints_asked: usize,
}

impl Case {
    fn new() -> Case {
        Case::with(Settings::default())
    }

    /// With few heartbeats, for months.
    fn slow() -> Case {
        let rarely = HOUR * 6;
        Case::with(Settings {
            node_lease_duration_seconds: 4 * 6 * 3600,
            node_status_update_frequency: rarely,
            node_status_report_frequency: rarely,
            ..Settings::default()
        })
    }

    fn with(settings: Settings) -> Case {
        let mut script = Script::with(settings);
        script.register();
        let renewal = Renewal::of(&leaf("n1", &Key::new(), 2026, 2046), None);
        let now = script.now();
        script.agent.handle(Input::Credentials(CredentialDates { renewal, ..CredentialDates::default() }), now);
        let (old, new) = (authority(), authority());
        let servers = ["https://one:6443", "https://two:6443"].map(|url| parse_server(url).unwrap());
        script.cluster = Some((servers.to_vec(), vec![old.clone()].into()));
        Case {
            script,
            old,
            new,
            servers: servers.to_vec(),
            trust: Ok(Trust::Pinned(Vec::new())),
            listed: Vec::new(),
            endpoints_asked: 0,
        }
    }

    fn bundle(&self) -> Bundle {
        self.script.cluster.clone().unwrap().1
    }

    /// Lets time pass. `other`: what is answered over other connections; `usual`: over that of all lanes, unless a healthy
    /// server's answer is.
    fn live(
        &mut self,
        span: Duration,
        usual: Option<fn() -> Result<Document, Refusal>>,
        other: Answerer<'_>,
    ) -> Vec<Asked> {
        let (end, mut asked) = (self.script.up + span, Vec::new());
        while self.script.up < end {
            let means = self.script.means_asked;
            let (sent, until) = self.script.drain();
            if self.script.means_asked > means {
                assert!(self.script.has_other_ca);
                let now = self.script.now();
                self.script.agent.handle(Input::Means(self.means()), now);
            } else if sent.is_empty() {
                self.script.up = self.script.up.max(until.as_duration()).min(end);
            }
            for (ticket, operation) in sent {
                let result = match (ticket.lane(), usual) {
                    (Lane::Identity, _) if operation == Operation::ReadEndpoints => self.endpoints(),
                    (Lane::Identity, _) => {
                        assert_eq!(operation, Operation::ReadClusterInfo);
                        let access = self.script.access.take().unwrap();
                        assert!(!matches!(access, Access::Introduced { token: Some(_), .. }), "the token is said");
                        asked.push((self.script.up, access.clone()));
                        other(&access)
                    }
                    (_, Some(usual)) => usual(),
                    _ => self.script.reply(&operation),
                };
                self.script.answer(ticket, result);
            }
        }
        asked
    }

    fn endpoints(&mut self) -> Result<Document, Refusal> {
        assert_eq!(self.script.access.take(), Some(Access::InUse));
        self.endpoints_asked += 1;
        if self.listed.is_empty() {
            return refused(403, "Forbidden");
        }
        Ok(Document::Protobuf(samples::endpoints(&self.listed, &[("https", 6443)])))
    }

    fn means(&self) -> Result<Box<Means>, String> {
        let token = Token::parse(&format!("abcdef.{SECRET}")).unwrap();
        let trust = self.trust.clone()?;
        Ok(Box::new(Means { servers: self.servers.clone(), token, is_fleeting: false, trust }))
    }

    fn told(&self, word: &str) -> Vec<&str> {
        self.script.said.iter().filter(|notice| notice.word == word).map(|notice| notice.text.as_str()).collect()
    }
}

impl Script {
    fn joined(&self) -> Option<JoinedCluster> {
        let supervisor = self.supervisor;
        let joined = self.cluster.clone();
        let last_resorts = self.last_resorts.clone();
        joined.map(|(servers, authorities)| JoinedCluster { servers, last_resorts, authorities, supervisor })
    }

    pub(super) fn identity_step(&mut self, step: IdentityStep) {
        match step {
            IdentityStep::Send(..) => unreachable!("it is a request like others"),
            IdentityStep::ReadMeans { has_other_ca } => {
                self.means_asked += 1;
                self.has_other_ca = has_other_ca;
            }
            IdentityStep::ReadCluster => self.agent.handle(Input::Cluster(self.joined()), self.now()),
            IdentityStep::UseCluster { servers, authorities, supervisor } => {
                self.use_cluster(servers, authorities, supervisor);
            }
            IdentityStep::UseLastResorts(servers) => self.last_resorts = servers,
            IdentityStep::MakeRequest { is_new } => self.keys_asked.push(is_new),
            IdentityStep::TakeKey(key) => self.keys_taken.push(key),
            IdentityStep::KeepCertificate { chain, .. } => self.kept.push(chain),
        }
    }

    fn use_cluster(&mut self, servers: Vec<Server>, authorities: Bundle, supervisor: Option<u16>) {
        match &mut self.cluster {
            Some((_, before)) if servers.is_empty() => *before = authorities,
            _ => (self.cluster, self.supervisor) = (Some((servers, authorities)), supervisor),
        }
    }
}

fn over(access: &Access) -> Option<&[Authority]> {
    match access {
        Access::Introduced { authorities, token: None, .. } => authorities.as_deref(),
        _ => None,
    }
}

#[test]
fn each_week_the_cluster_is_asked_for_its_cas_by_nobody_over_those_that_are_known() {
    let mut case = Case::slow();
    let (old, new) = (case.old.clone(), case.new.clone());
    let asked = case.live(HOUR * 2, None, &|_| info(&[&old, &new], "nobody's business"));
    assert_eq!(asked.len(), 1, "{asked:?}");
    let (first, access) = &asked[0];
    assert!((MINUTE * 10..=MINUTE * 71).contains(first), "{first:?}");
    assert_eq!(over(access), Some(&[old.clone()][..]));
    assert_eq!(case.bundle(), vec![old.clone(), new.clone()].into());
    let told = case.told("ca-added");
    assert!(told.len() == 1 && told[0].contains(&pin_of(&new).to_string()), "{told:?}");
    let asked = case.live(DAY * 30, None, &|_| info(&[&old, &new], SECRET));
    assert!((3..=5).contains(&asked.len()), "{asked:?}");
    assert_eq!(over(&asked[0].1), Some(&[old, new][..]));
    assert_eq!(case.told("ca-added").len(), 1);
    case.script.agent.handle(Input::Reloaded(Box::default()), case.script.now());
    assert_eq!(case.live(MINUTE, None, &|_| refused(403, "Forbidden")).len(), 1, "a person need not wait");
}

#[test]
fn where_cluster_info_is_shown_to_nobody_it_is_asked_for_each_month_and_an_answer_of_nonsense_changes_nothing() {
    for (answer, days, least, most) in [
        (refused(401, "Unauthorized"), 35, 1, 2),
        (Ok(Document::Json(b"{}".to_vec())), 15, 2, 3),
        (info(&[], SECRET), 15, 2, 3),
        (stranger(), 2, 40, 54),
    ] {
        let mut case = Case::slow();
        let before = case.bundle();
        let asked = case.live(DAY * days, None, &|_| answer.clone());
        assert!((least..=most).contains(&asked.len()), "{} of {answer:?}", asked.len());
        assert_eq!(case.bundle(), before);
    }
    let mut case = Case::slow();
    case.script.cluster = None;
    assert_eq!(case.live(DAY, None, &|_| unreachable()), [], "a kubeconfig that was given is left alone");
    let mut case = Case::new();
    assert_eq!(case.live(HOUR * 3, Some(unreachable), &|_| unreachable()), [], "only over a connection that works");
}

#[test]
fn one_server_with_another_ca_is_a_reason_to_look_in_a_minute_and_not_again_for_an_hour() {
    let mut case = Case::new();
    let (old, new) = (case.old.clone(), case.new.clone());
    case.live(HOUR * 2, None, &|_| info(&[&old], SECRET));
    let mut looks = Vec::new();
    for _ in 0..20 {
        let at = case.script.up;
        // One renewal meets it, and the next works.
        case.script.play(Lane::Lease, stranger());
        let asked = case.live(MINUTE * 3, None, &|_| info(&[&old, &new], SECRET));
        looks.extend(asked.into_iter().map(|(moment, _)| moment - at));
    }
    assert!(looks[0] >= MINUTE && looks[0] < MINUTE * 3, "{looks:?}");
    assert_eq!(looks.len(), 1 + 20 * 3 / 60, "{looks:?}");
    assert_eq!(case.told("ca-added").len(), 1);
}

#[test]
fn a_ca_is_dropped_after_90_days_and_only_if_the_others_verify_the_server() {
    for needs_old in [false, true] {
        let mut case = Case::slow();
        let (old, new) = (case.old.clone(), case.new.clone());
        let absent_since = Some(START.minus(DAY * 85));
        let bundle = Bundle { shown: vec![new.clone()], absent: vec![old.clone()], absent_since };
        case.script.cluster = Some((case.servers.clone(), bundle));
        let answer = |access: &Access| match over(access) {
            Some(over) if over.contains(&old) || !needs_old => info(&[&new], SECRET),
            _ => stranger(),
        };
        case.live(DAY * 4, None, &answer);
        assert_eq!((case.bundle().shown.len(), case.bundle().absent.len()), (1, 1));
        let asked = case.live(DAY * 11, None, &answer);
        assert!(asked.iter().any(|(_, access)| over(access) == Some(&[new.clone()][..])), "{asked:?}");
        let kept = if needs_old { vec![new.clone(), old.clone()] } else { vec![new.clone()] };
        assert_eq!(case.bundle().all(), kept);
        assert!(case.told("ca-changed").is_empty() && case.told("ca-added").is_empty());
    }
}

#[test]
fn when_no_server_has_the_known_ca_one_that_is_pinned_takes_its_place() {
    let mut case = Case::new();
    let (new, theirs) = (case.new.clone(), authority());
    case.trust = Ok(Trust::Pinned(vec![pin_of(&case.old), pin_of(&new)]));
    // Whoever is not proven may say more than there is.
    let asked = case.live(MINUTE, Some(stranger), &|access| match access {
        Access::Unverified { .. } => info(&[&theirs, &new], SECRET),
        _ => info(&[&new], SECRET),
    });
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[0].1, Access::Unverified { server: case.servers[0].clone() });
    assert_eq!(over(&asked[1].1), Some(&[new.clone()][..]), "only what is pinned proves");
    let (servers, bundle) = case.script.cluster.clone().unwrap();
    assert_eq!(bundle, vec![new.clone()].into(), "the old one is trusted no more");
    let hosts: Vec<_> = servers.iter().map(|server| server.host.as_str()).collect();
    assert_eq!(hosts, ["one", "two", "10.0.0.1"]);
    assert!(case.told("ca-added")[0].contains(&pin_of(&new).to_string()));
    // It does not help: not again and again.
    let again = case.live(MINUTE * 30, Some(stranger), &|_| info(&[&new], SECRET));
    let at: Vec<_> = again.iter().map(|(at, access)| (at.as_secs(), over(access).is_some())).collect();
    assert!((8..=14).contains(&again.len()), "{at:?}");
    let proven = case.live(HOUR, None, &|_| info(&[&new], SECRET));
    assert!(proven.len() == 1 && over(&proven[0].1).is_some(), "it is taken again: {proven:?}");
    assert_eq!(case.told("ca-added").len(), 1, "the same is no news");
}

#[test]
fn a_ca_that_nobody_announced_is_told_with_its_hash_and_the_old_one_stays() {
    for (secret, verdict) in [(SECRET, "signed with this"), ("0123456789abcdeg", "not signed with this")] {
        let mut case = Case::new();
        let (before, new) = (case.bundle(), case.new.clone());
        case.trust = Ok(Trust::Pinned(vec![pin_of(&case.old)]));
        let asked = case.live(HOUR, Some(stranger), &|_| info(&[&new], secret));
        assert!(asked.iter().all(|(_, access)| matches!(access, Access::Unverified { .. })));
        let first_minute = asked.iter().filter(|(at, _)| *at < asked[0].0 + MINUTE).count();
        assert!(first_minute <= 3, "{first_minute} in the first minute");
        assert!((12..=30).contains(&asked.len()), "{} in an hour", asked.len());
        let told = case.told("ca-changed");
        let (hash, command) = (pin_of(&new), format!("nodepulse join --ca-hash {}", pin_of(&new)));
        assert!(told[0].contains(&format!("the cluster shows {hash}, {verdict}")), "{}", told[0]);
        assert!(told[0].ends_with(&command), "{}", told[0]);
        assert!(told.len() <= 7, "{} times", told.len());
        assert_eq!(case.bundle(), before);
        // It is the old one again: nobody asks any more.
        case.live(MINUTE * 10, None, &|_| refused(403, "Forbidden"));
        assert_eq!(case.live(HOUR * 3, None, &|_| refused(403, "Forbidden")), []);
    }
}

/// An administrator who changes the CA does one thing after the other.
#[test]
fn a_cluster_that_is_half_through_with_its_new_ca_is_asked_again_soon_and_a_signature_that_came_is_told() {
    let mut case = Case::new();
    let new = case.new.clone();
    case.trust = Ok(Trust::Pinned(vec![pin_of(&new)]));
    let unsigned = || {
        let Ok(Document::Json(body)) = info(&[&new], SECRET) else { panic!("cluster-info") };
        Ok(Document::Json(String::from_utf8(body).unwrap().replace("jws-kubeconfig-abcdef", "other").into_bytes()))
    };
    // Nobody signs with a token that has ended: a hash vouches for that CA, and for no other one.
    let theirs = authority();
    let both = || {
        let Ok(Document::Json(body)) = info(&[&theirs, &new], SECRET) else { panic!("cluster-info") };
        Ok(Document::Json(String::from_utf8(body).unwrap().replace("jws-kubeconfig-abcdef", "other").into_bytes()))
    };
    let asked = case.live(MINUTE, Some(stranger), &|_| both());
    assert_eq!((asked.len(), over(&asked[1].1)), (2, Some(&[new.clone()][..])), "{asked:?}");
    assert_eq!(case.bundle(), vec![new.clone()].into());

    let mut case = Case::new();
    case.live(MINUTE, Some(stranger), &|_| unsigned());
    case.live(MINUTE * 6, Some(stranger), &|_| info(&[&new], SECRET));
    let told = case.told("ca-changed");
    assert!(told.len() == 2 && told[1].contains(", signed with"), "{told:?}");
}

#[test]
fn what_is_pinned_is_believed_only_with_the_signature_and_from_a_server_that_it_proves() {
    let (new, theirs) = (authority(), authority());
    let answers: [(&str, Answerer<'_>); 5] = [
        ("signature-wrong", &|_| info(&[&new], "0123456789abcdeg")),
        ("join-failing", &|access| if over(access).is_some() { stranger() } else { info(&[&theirs, &new], SECRET) }),
        ("signature-wrong", &|access| info(&[&new], if over(access).is_some() { "0123456789abcdeg" } else { SECRET })),
        ("answer-malformed", &|_| Ok(Document::Json(b"1".to_vec()))),
        ("join-failing", &|_| unreachable()),
    ];
    for (word, answer) in answers {
        let mut case = Case::new();
        case.trust = Ok(Trust::Pinned(vec![pin_of(&new)]));
        let before = case.bundle();
        case.live(HOUR, Some(stranger), answer);
        assert!(!case.told(word).is_empty(), "{word}: {:?}", case.script.words());
        assert_eq!(case.bundle(), before, "{word}");
    }
}

#[test]
fn a_ca_in_a_file_is_as_good_as_a_pin_and_without_a_token_people_are_told() {
    let mut case = Case::new();
    let new = case.new.clone();
    case.trust = Ok(Trust::Given(vec![new.clone()]));
    let asked = case.live(MINUTE, Some(stranger), &|_| refused(403, "Forbidden"));
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!((over(&asked[0].1), case.bundle()), (Some(&[new.clone()][..]), vec![new.clone()].into()));

    let mut case = Case::new();
    case.trust = Ok(Trust::Given(vec![case.old.clone()]));
    let before = case.bundle();
    case.live(MINUTE * 5, Some(stranger), &|access| {
        if over(access).is_some() { stranger() } else { info(&[&new], SECRET) }
    });
    assert!(case.told("ca-changed")[0].contains(&pin_of(&new).to_string()), "{:?}", case.script.words());
    assert_eq!(case.bundle(), before);

    let mut case = Case::new();
    case.trust = Err("there is no token".to_owned());
    assert_eq!(case.live(HOUR, Some(stranger), &|_| unreachable()), []);
    assert!(case.told("ca-changed")[0].ends_with("there is no token"));
}

/// What a board asks with a certificate that has ended and a token that is not valid, and what it is answered.
fn waiting(case: &mut Case, span: Duration, info: &dyn Fn(&Access) -> Result<Document, Refusal>, lanes: Answer401) {
    let end = case.script.up + span;
    while case.script.up < end {
        let means = case.script.means_asked;
        let (sent, until) = case.script.drain();
        if case.script.means_asked > means {
            let now = case.script.now();
            case.script.agent.handle(Input::Means(case.means()), now);
        } else if sent.is_empty() {
            case.script.up = case.script.up.max(until.as_duration()).min(end);
        }
        for (ticket, operation) in sent {
            let result = match ticket.lane() {
                Lane::Identity if operation == Operation::ReadEndpoints => case.endpoints(),
                Lane::Identity => {
                    assert_eq!(operation, Operation::ReadClusterInfo);
                    info(&case.script.access.take().unwrap())
                }
                _ => lanes(),
            };
            case.script.answer(ticket, result);
        }
    }
}

type Answer401 = fn() -> Result<Document, Refusal>;

fn without_signature(authorities: &[&Authority]) -> Result<Document, Refusal> {
    let Ok(Document::Json(body)) = info(authorities, SECRET) else { panic!("cluster-info") };
    Ok(Document::Json(String::from_utf8(body).unwrap().replace("jws-kubeconfig-abcdef", "other").into_bytes()))
}

fn unauthorized() -> Result<Document, Refusal> {
    refused(401, "Unauthorized")
}

/// A board whose certificate has ended, by the clock of its server as well.
fn ended() -> Case {
    let mut case = Case::new();
    let renewal = Renewal::of(&leaf("n1", &Key::new(), 2024, 2025), None);
    let now = case.script.now();
    case.script.agent.handle(Input::Credentials(CredentialDates { renewal, ..CredentialDates::default() }), now);
    case
}

/// EXP-3 may take months until somebody makes the token valid again: the cluster's CA does not wait for that.
#[test]
fn a_board_that_waits_with_a_dead_token_learns_another_ca_beforehand_as_each_other_board() {
    let mut case = ended();
    let (old, new) = (case.old.clone(), case.new.clone());
    waiting(&mut case, HOUR * 2, &|_| without_signature(&[&old, &new]), unauthorized);
    assert_eq!(case.bundle(), vec![old, new].into());
    assert_eq!(case.told("ca-added").len(), 1);
    assert!(!case.told("token-unknown").is_empty());
}

/// The next try comes after 7.5 to 22.5 minutes, and takes seconds, not the time in which other lanes try what has ended.
#[test]
fn a_board_that_waits_with_a_dead_token_finds_a_ca_that_it_has_the_hash_of_with_its_next_try() {
    let mut case = ended();
    let (old, new) = (case.old.clone(), case.new.clone());
    waiting(&mut case, MINUTE * 5, &|_| without_signature(&[&old]), unauthorized);
    case.trust = Ok(Trust::Pinned(vec![pin_of(&old), pin_of(&new)]));
    let (began, mut found, is_taken) = (case.script.up, None, std::cell::Cell::new(false));
    while found.is_none() && case.script.up < began + HOUR {
        let answer = |access: &Access| match access {
            Access::Introduced { authorities: Some(over), .. } if over.contains(&new) => {
                is_taken.set(true);
                without_signature(&[&new])
            }
            Access::Introduced { .. } if !is_taken.get() => stranger(),
            _ => without_signature(&[&new]),
        };
        waiting(&mut case, Duration::from_secs(10), &answer, stranger);
        found = case.bundle().shown.contains(&new).then(|| case.script.up - began);
    }
    assert!(found.is_some_and(|found| found <= MINUTE * 24), "{found:?}");
    // The certificate has ended all the same, and now it is the token's turn at once.
    waiting(&mut case, MINUTE, &|_| without_signature(&[&new]), unauthorized);
    assert!(
        case.script.said.iter().rposition(|one| one.word == "token-unknown")
            > case.script.said.iter().position(|one| one.word == "ca-added")
    );
    assert!(case.told("ca-changed").is_empty());
}
