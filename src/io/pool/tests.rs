//! Turns a pool loose on servers that answer, close, hang and come back.

mod http2;
mod network;
mod several;
mod unread;
mod watch;

use super::*;
use crate::api::Document;
use crate::io::known_servers::KnownServers;
use crate::io::loopback::{Authority, Listener, Silent, Stream, echoing, kubeconfig, read_request, version_reply};
use base64::Engine;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

fn pool(kubeconfig: Kubeconfig) -> Pool {
    let reactor = Reactor::new().unwrap();
    let resolver = Rc::new(Resolver::new(Rc::clone(&reactor), Rc::default()));
    Pool::new(reactor, resolver, CertificateClock::new(), kubeconfig, Successor::none("board"), Http::default())
}

fn ask(pool: &Pool) -> Answer {
    pool.reactor.block_on(pool.exchange(Operation::ReadVersion)).unwrap()
}

/// Answers the next request; false when there is none.
fn answer(stream: &mut Stream) -> bool {
    read_request(stream).is_some_and(|request| stream.write_all(&echoing(&request, &version_reply())).is_ok())
}

fn version() -> Result<Document, Refusal> {
    Ok(Document::Version("v1.36.3".to_owned()))
}

#[test]
fn exchanges_share_one_connection() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let pool = pool(kubeconfig(&authority, server.port));
    for _ in 0..3 {
        assert_eq!(ask(&pool).result, version());
    }
    assert_eq!(server.accepted(), 1);
    pool.drop_idle();
    assert_eq!(ask(&pool).result, version());
    assert_eq!(server.accepted(), 2);
}

#[test]
fn a_connection_that_the_server_closed_while_idle_costs_no_request() {
    let authority = Authority::new();
    let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    let server = Listener::tls(config, |_, mut stream| {
        assert!(answer(&mut stream));
    });
    let pool = pool(kubeconfig(&authority, server.port));
    // Whether its end is noticed before the request or by it; so much is had every ten seconds.
    for expected in 1..=2 {
        assert_eq!(ask(&pool).result, version());
        assert_eq!(server.accepted(), expected);
    }
}

#[test]
fn a_kept_connection_that_dies_with_the_request_is_replaced_once() {
    let authority = Authority::new();
    let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    let server = Listener::tls(config, |number, mut stream| {
        if number == 0 {
            assert!(answer(&mut stream));
        }
        // The second request is read and never answered.
        read_request(&mut stream);
    });
    let pool = pool(kubeconfig(&authority, server.port));
    assert_eq!(ask(&pool).result, version());
    let second = ask(&pool).result;
    assert_eq!(second, Err(Refusal::Failed(Failure::closed(0))));
    assert_eq!(server.accepted(), 2);
}

#[test]
fn a_server_that_lets_each_connection_die_gets_each_request_once_but_for_few() {
    let authority = Authority::new();
    let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    let (seen, requests) = mpsc::channel();
    let seen = std::sync::Mutex::new(seen);
    let server = Listener::tls(config, move |_, mut stream| {
        // The first is answered, the second read and never answered.
        let reply = version_reply();
        for answers in [true, false] {
            let Some(request) = read_request(&mut stream) else { return };
            seen.lock().unwrap().send(()).unwrap();
            if answers && stream.write_all(&echoing(&request, &reply)).is_err() {
                return;
            }
        }
    });
    let pool = pool(kubeconfig(&authority, server.port));
    let start = clock::up();
    let answered = (0..20).filter(|_| ask(&pool).result == version()).count();
    let spans = (clock::up() - start).as_secs() / crate::io::attempt::REPEAT_SPACING.as_secs() + 1;
    let sent = requests.try_iter().count() as u64;
    assert!((21..=20 + spans).contains(&sent), "{sent} requests for 20");
    assert!(answered >= 10, "{answered} answers");
}

#[test]
fn a_server_that_hangs_costs_its_deadline_and_its_connection() {
    let authority = Authority::new();
    let server = HangingServer::new(&authority);
    let pool = pool(kubeconfig(&authority, server.listener.port));
    server.hang(&pool);
    // One that hung is never used again: it would go on hanging.
    assert_eq!(ask(&pool).result, version());
}

/// Answers only when told to, until it is said to be well: from then on what is asked is answered at once.
struct HangingServer {
    listener: Listener,
    is_well: Arc<AtomicBool>,
    asked: mpsc::Receiver<()>,
    release: mpsc::Sender<()>,
}

impl HangingServer {
    fn new(authority: &Authority) -> HangingServer {
        let (ask, asked) = mpsc::channel();
        let (release, gate) = mpsc::channel();
        let gate = std::sync::Mutex::new(gate);
        let is_well = Arc::new(AtomicBool::new(false));
        let well = Arc::clone(&is_well);
        let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
        let listener = Listener::tls(config, move |_, mut stream| {
            while let Some(request) = read_request(&mut stream) {
                if !well.load(Ordering::SeqCst) {
                    let _ = ask.send(());
                    let _ = gate.lock().unwrap().recv();
                }
                let _ = stream.write_all(&echoing(&request, &version_reply()));
            }
        });
        HangingServer { listener, is_well, asked, release }
    }

    /// Waits until it has a request, which hangs; the next ones do not.
    async fn has_one(&self, pool: &Pool) {
        while self.asked.try_recv().is_err() {
            pool.reactor.sleep_until(clock::up() + Duration::from_millis(1)).await;
        }
        self.is_well.store(true, Ordering::SeqCst);
    }

    /// An exchange that ends at its deadline: on a slow machine perhaps not the first one gets as far as the server.
    fn hang(&self, pool: &Pool) {
        while self.asked.try_recv().is_err() {
            let hung = pool.exchange_within(Operation::ReadVersion, None, Duration::from_millis(300));
            let hung = pool.reactor.block_on(hung).unwrap().result;
            assert_eq!(hung, Err(Refusal::Failed(Failure::timed_out(Duration::from_millis(300)))));
        }
        self.is_well.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_lane_that_is_due_while_another_hangs_opens_a_second_connection_which_does_not_stay() {
    let authority = Authority::new();
    let server = HangingServer::new(&authority);
    let pool = pool(kubeconfig(&authority, server.listener.port));
    let executor = smol::LocalExecutor::new();
    let hung = executor.spawn(pool.exchange(Operation::ReadVersion));
    let both = async {
        server.has_one(&pool).await;
        let start = clock::up();
        assert_eq!(pool.exchange(Operation::ReadVersion).await.result, version());
        assert!(clock::up() - start >= PATIENCE, "it waits for the shared one first");
        assert_eq!(server.listener.accepted(), 2);
        server.release.send(()).unwrap();
        assert_eq!(hung.await.result, version());
        assert!(pool.kept.borrow().is_some() && !pool.attempts.have_connections());
        assert_eq!(pool.exchange(Operation::ReadVersion).await.result, version());
        assert_eq!(server.listener.accepted(), 2);
    };
    pool.reactor.block_on(executor.run(both)).unwrap();
}

#[test]
fn two_lanes_that_are_due_together_share_a_connection_that_does_not_hang() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let pool = pool(kubeconfig(&authority, server.port));
    let both = smol::future::zip(pool.exchange(Operation::ReadVersion), pool.exchange(Operation::ReadVersion));
    let (first, second) = pool.reactor.block_on(both).unwrap();
    assert_eq!((first.result, second.result), (version(), version()));
    assert_eq!(server.accepted(), 1);
}

#[test]
fn credentials_that_cannot_be_read_fail_each_request_until_they_can() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let good = kubeconfig(&authority, server.port);
    let folder = crate::io::loopback::TempFolder::new();
    let mut missing = good.clone();
    let path = folder.path("ca.crt");
    missing.certificate_authority = Some(crate::config::kubeconfig::Material::File(path));
    let pool = pool(missing);
    assert_eq!(word(&pool), "credentials-unreadable");
    folder.write("ca.crt", &authority.pem());
    assert_eq!(ask(&pool).result, version());
}

/// What the next request is refused with.
fn word(pool: &Pool) -> String {
    ask(pool).result.unwrap_err().word().into_owned()
}

fn reload(pool: &Pool) -> Result<CredentialDates, Failure> {
    pool.reactor.block_on(pool.reload()).unwrap()
}

fn replace(pool: &Pool, kubeconfig: Kubeconfig) -> Result<CredentialDates, Failure> {
    pool.reactor.block_on(pool.replace(kubeconfig)).unwrap()
}

#[test]
fn a_token_in_a_file_is_read_again_when_it_is_due_and_kept_when_it_cannot_be_read() {
    let (authority, folder) = (Authority::new(), crate::io::loopback::TempFolder::new());
    let path = folder.write("token", b"first\n");
    let mut kubeconfig = kubeconfig(&authority, 1);
    kubeconfig.credentials = Credentials::Token(Material::File(path.clone()));
    let pool = pool(kubeconfig);
    let token = || {
        pool.reactor.block_on(pool.ready()).unwrap().unwrap();
        pool.target(&pool.current().server).bearer_token.unwrap()
    };
    assert_eq!(token(), "first");
    folder.write("token", b"renewed");
    assert_eq!(token(), "first");
    let is_due = || pool.token_due.set(clock::up());
    is_due();
    assert_eq!(token(), "renewed");
    for broken in [&b"two words"[..], b""] {
        folder.write("token", broken);
        is_due();
        assert_eq!(token(), "renewed");
    }
    std::fs::remove_file(&path).unwrap();
    is_due();
    assert_eq!(token(), "renewed");
}

#[test]
fn what_stands_in_the_kubeconfig_itself_is_read_again_from_it_and_nothing_worse_taken() {
    let (authority, folder) = (Authority::new(), crate::io::loopback::TempFolder::new());
    let server = Listener::answering(&authority, version_reply());
    let text = |authority: &Authority| {
        let pem = base64::engine::general_purpose::STANDARD.encode(authority.pem());
        format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nclusters: [{{name: c, cluster: \
             {{server: 'https://127.0.0.1:{}', certificate-authority-data: {pem}}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n",
            server.port
        )
    };
    let path = folder.write("kubeconfig", text(&Authority::new()).as_bytes());
    let of_file = || Kubeconfig::parse(&std::fs::read_to_string(&path).unwrap(), &path).unwrap();
    let pool = pool(of_file());
    assert_eq!(word(&pool), "tls-unknown-issuer");
    folder.write("kubeconfig", text(&authority).as_bytes());
    reload(&pool).unwrap();
    assert_eq!(ask(&pool).result, version());
    let served = server.accepted();
    let no_ca = text(&authority).replace("certificate-authority-data: ", "certificate-authority-data: YQ==, x: ");
    for worse in ["", "kind: Config", &text(&authority)[..200], &no_ca] {
        folder.write("kubeconfig", worse.as_bytes());
        let _ = reload(&pool);
        assert_eq!(ask(&pool).result, version(), "{worse:?}");
    }
    assert_eq!(server.accepted(), served, "the connection stays");
}

#[test]
fn reloading_equal_credentials_keeps_the_connection_and_others_do_not() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let pool = pool(kubeconfig(&authority, server.port));
    assert_eq!(ask(&pool).result, version());
    reload(&pool).unwrap();
    assert_eq!(ask(&pool).result, version());
    assert_eq!(server.accepted(), 1);
    replace(&pool, kubeconfig(&Authority::new(), server.port)).unwrap();
    assert_eq!(word(&pool), "tls-unknown-issuer");
    assert_eq!(server.accepted(), 2);
}

#[test]
fn a_kubeconfig_whose_key_is_anothers_leaves_the_one_in_use() {
    let authority = Authority::new();
    let (server, other) = (Listener::answering(&authority, version_reply()), Listener::tcp(|_, _| {}));
    let pool = pool(kubeconfig(&authority, server.port));
    assert_eq!(ask(&pool).result, version());
    let mut wrong = kubeconfig(&authority, other.port);
    let crate::config::kubeconfig::Credentials::Certificate { key, .. } = &mut wrong.credentials else {
        panic!("certificate")
    };
    *key = crate::config::kubeconfig::Material::Data(authority.sign(&["another"]).key.serialize_pem().into_bytes());
    let refused = replace(&pool, wrong.clone()).unwrap_err().to_string();
    assert!(refused.contains("does not belong to the client certificate"), "{refused}");
    pool.drop_idle();
    assert_eq!(ask(&pool).result, version());
    assert_eq!((server.accepted(), other.accepted()), (2, 0), "the server that goes with them stays, too");
    // With nothing in use there is nothing to keep: what is named last is tried again.
    let fresh = self::pool(wrong.clone());
    assert!(replace(&fresh, wrong).is_err() && word(&fresh) == "credentials-unreadable");
}

/// A server with this `Date`, of a certificate that is valid from the first day of one year until that of another.
fn dated(authority: &Authority, date: &str, (from, until): (i32, i32)) -> Listener {
    let reply = String::from_utf8(version_reply()).unwrap();
    let reply = reply.replacen("\r\n", &format!("\r\nDate: {date}\r\n"), 1);
    let config = authority.server_config(&authority.sign_for_years(&["127.0.0.1"], from, until));
    Listener::tls(config, move |_, mut stream| {
        let mut next = || {
            let request = read_request(&mut stream)?;
            stream.write_all(&echoing(&request, reply.as_bytes())).ok()
        };
        while next().is_some() {}
    })
}

/// A process of a board in 1970 that has this state directory.
fn pool_in_1970(kubeconfig: Kubeconfig, state_directory: &str) -> Pool {
    let clock = CertificateClock::reading(|| (Wall::from_unix_seconds(12), false));
    let known = Rc::new(KnownServers::read(state_directory));
    known.issued().into_iter().for_each(|moment| clock.passed(moment));
    let reactor = Reactor::new().unwrap();
    let resolver = Rc::new(Resolver::new(Rc::clone(&reactor), known));
    Pool::new(reactor, resolver, clock, kubeconfig, Successor::none("board"), Http::default())
}

#[test]
fn one_date_of_2035_keeps_no_certificate_out_neither_now_nor_after_a_restart() {
    let (authority, folder) = (Authority::new(), crate::io::loopback::TempFolder::new());
    let wrong = dated(&authority, "Fri, 01 Jun 2035 00:00:00 GMT", (2026, 2046));
    let renewed = dated(&authority, "Thu, 17 Dec 2026 00:00:00 GMT", (2026, 2027));
    let pool = pool_in_1970(kubeconfig(&authority, wrong.port), &folder.path(""));
    let answer = ask(&pool);
    assert_eq!(
        (answer.result, answer.date.map(Wall::to_seconds_stamp).as_deref()),
        (version(), Some("2035-06-01T00:00:00Z"))
    );
    let known = pool.resolver.known_servers();
    assert_eq!(
        known.issued().map(Wall::to_seconds_stamp).as_deref(),
        Some("2026-01-01T00:00:00Z"),
        "when both sides were certified"
    );
    pool.reactor.block_on(known.worth_writing()).unwrap();
    folder.write("uplink", &known.to_bytes(known.days()));
    replace(&pool, kubeconfig(&authority, renewed.port)).unwrap();
    assert_eq!(ask(&pool).result, version(), "now");
    let restarted = pool_in_1970(kubeconfig(&authority, renewed.port), &folder.path(""));
    assert!(restarted.resolver.known_servers().issued().is_some());
    assert_eq!(ask(&restarted).result, version(), "after a restart");
}

#[test]
fn what_a_server_and_its_certificate_agree_on_is_past_from_then_on() {
    let (authority, folder) = (Authority::new(), crate::io::loopback::TempFolder::new());
    let later = dated(&authority, "Mon, 01 Feb 2044 00:00:00 GMT", (2044, 2046));
    let pool = pool_in_1970(kubeconfig(&authority, later.port), &folder.path(""));
    assert_eq!(ask(&pool).result, version());
    let stolen = dated(&authority, "Sun, 01 Feb 2043 00:00:00 GMT", (2042, 2044));
    replace(&pool, kubeconfig(&authority, stolen.port)).unwrap();
    assert_eq!(ask(&pool).result, version(), "it has not ended before that");
    let ended = dated(&authority, "Sat, 01 Feb 2042 00:00:00 GMT", (2042, 2043));
    replace(&pool, kubeconfig(&authority, ended.port)).unwrap();
    let refused = ask(&pool).result;
    assert_eq!(refused.unwrap_err().word(), "tls-certificate-expired");
}

#[test]
fn a_date_outside_the_life_of_the_servers_certificate_ends_the_connection_of_a_board_without_a_clock() {
    let authority = Authority::new();
    for date in ["Thu, 01 Jan 2099 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:12 GMT"] {
        let server = dated(&authority, date, (2026, 2046));
        let pool = pool_in_1970(kubeconfig(&authority, server.port), "/nowhere");
        for accepted in 1..=2 {
            let Err(Refusal::Failed(failure)) = ask(&pool).result else { panic!("{date}") };
            assert_eq!(failure.word(), "server-clock-wrong");
            let told = failure.to_string();
            assert!(told.contains("valid from 2026-01-01T00:00:00Z until 2046-01-01T00:00:00Z"), "{told}");
            assert_eq!(server.accepted(), accepted, "never used again");
        }
        assert_eq!(pool.resolver.known_servers().issued(), None);
        // One that has a clock knows who is wrong, and goes on.
        let pool = Pool { clock: CertificateClock::reading(|| (Wall::from_unix_seconds(1_800_000_000), true)), ..pool };
        pool.loaded.take();
        let answer = ask(&pool);
        assert_eq!((answer.result, answer.date), (version(), None), "{date}");
    }
}

#[test]
fn each_handshake_asks_the_kernel_anew() {
    use std::sync::atomic::{AtomicI64, Ordering};
    static YEARS: AtomicI64 = AtomicI64::new(130);
    let kernel = || (Wall::from_unix_seconds(YEARS.load(Ordering::SeqCst) * 365 * 86_400), true);
    let authority = Authority::new();
    let server = dated(&authority, "Fri, 01 Jan 2027 00:00:00 GMT", (2026, 2046));
    let pool = pool_in_1970(kubeconfig(&authority, server.port), "/nowhere");
    let pool = Pool { clock: CertificateClock::reading(kernel), ..pool };
    let refused = ask(&pool).result;
    assert_eq!(refused.unwrap_err().word(), "tls-certificate-expired");
    YEARS.store(57, Ordering::SeqCst);
    assert_eq!(ask(&pool).result, version(), "somebody set the clock");
}

#[test]
fn an_address_that_answers_and_one_that_does_not_are_told_apart_at_the_next_connection() {
    let authority = Authority::new();
    let server = HangingServer::new(&authority);
    let mut kubeconfig = kubeconfig(&authority, server.listener.port);
    kubeconfig.server.host = "localhost".to_owned();
    kubeconfig.tls_server_name = Some("127.0.0.1".to_owned());
    let pool = pool(kubeconfig);
    let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
    server.hang(&pool);
    let order = || {
        let addresses = pool.resolver.server_addresses("localhost", clock::up() + Duration::from_secs(10));
        pool.reactor.block_on(addresses).unwrap().unwrap()
    };
    assert_eq!(order().last(), Some(&loopback), "it hung");
    assert_eq!(ask(&pool).result, version());
    assert_eq!(pool.resolver.known_servers().addresses("localhost").unwrap()[0], loopback, "it answered");
}
