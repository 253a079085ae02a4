//! One connection for all that is asked over HTTP/2, whatever hangs there, and another one as soon as it is of no use.

use super::*;
use crate::api::PatchAnswer;
use crate::api::http2_client::{self as server, Client, Said};
use crate::config::settings::AlpnProtocol;
use std::io::Read;

/// What a server does with a request, the how-manieth of its connection.
pub(super) enum Does {
    Answers,
    AnswersWhole,
    Hangs,
    /// Until its stream has a window.
    HoldsBack,
    /// Says that it has not looked at it, nor will at any other.
    Leaves,
    Ends,
}

/// Runs for every request with the numbers of its connection and of the request there; answers to what hung come when they are
/// released.
pub(super) fn serving(
    authority: &Authority,
    script: impl Fn(usize, usize, &Said) -> Does + Send + Sync + 'static,
) -> (Listener, mpsc::Receiver<(usize, Said)>) {
    let mut config = authority.server_config(&authority.sign(&["127.0.0.1"])).as_ref().clone();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let (tell, told) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let listener = Listener::tls(Arc::new(config), move |number, mut stream| {
        while stream.conn.is_handshaking() {
            if stream.conn.complete_io(&mut stream.sock).is_err() {
                return;
            }
        }
        if stream.conn.alpn_protocol() != Some(b"h2") {
            return while answer(&mut stream) {};
        }
        let (mut client, mut requests, mut bytes) = (Client::default(), 0, [0; 4096]);
        let (mut held, mut has_window) = (Vec::new(), false);
        if stream.write_all(&server::settings()).is_err() {
            return;
        }
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            for said in client.read(&bytes[..count]) {
                let _ = tell.lock().unwrap().send((number, said.clone()));
                if let Said::Settings(settings) = &said {
                    has_window = !settings.contains(&(4, 0));
                }
                let (said, does) = match said {
                    Said::Request { .. } => {
                        let does = script(number, requests, &said);
                        requests += 1;
                        (said, does)
                    }
                    Said::Window { stream: widened, .. } => {
                        let place = held
                            .iter()
                            .position(|held| matches!(held, Said::Request { stream, .. } if *stream == widened));
                        let Some(place) = place else { continue };
                        (held.remove(place), Does::AnswersWhole)
                    }
                    _ => continue,
                };
                let Said::Request { stream: id, .. } = said else { continue };
                let reply = match does {
                    Does::HoldsBack if !has_window => {
                        held.push(said);
                        continue;
                    }
                    Does::AnswersWhole | Does::HoldsBack => {
                        server::answer(&said, "200", "application/vnd.kubernetes.protobuf", b"anything")
                    }
                    Does::Answers if said.field("accept").contains("protobuf") => {
                        let head = [(":status", "200"), ("audit-id", said.field("audit-id"))];
                        let kind = ("content-type", "application/vnd.kubernetes.protobuf");
                        server::headers(id, &[head[0], head[1], kind], false)
                    }
                    Does::Answers => server::answer(&said, "200", "application/json", br#"{"gitVersion":"v1.36.3"}"#),
                    Does::Hangs => Vec::new(),
                    Does::Leaves => server::go_away(id - 2, 0),
                    Does::Ends => return,
                };
                if stream.write_all(&reply).is_err() {
                    return;
                }
            }
        }
    });
    (listener, told)
}

pub(super) fn renewal() -> Operation {
    Operation::RenewLease { body: "{}".to_owned(), answer: PatchAnswer::Nothing }
}

/// To it no content comes that nobody reads.
pub(super) fn saving(kubeconfig: Kubeconfig) -> Pool {
    let pool = pool(kubeconfig);
    pool.speak(Http { zero_window: true, ..Http::default() });
    pool
}

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn what_is_asked_at_the_same_time_and_later_goes_over_one_connection() {
    let authority = Authority::new();
    let (server, _) = serving(&authority, |_, _, _| Does::Answers);
    let pool = saving(kubeconfig(&authority, server.port));
    for _ in 0..3 {
        let both = smol::future::zip(pool.exchange(Operation::ReadVersion), pool.exchange(renewal()));
        let (first, second) = pool.reactor.block_on(both).unwrap();
        assert_eq!((first.result, second.result), (version(), Ok(Document::Nothing)));
    }
    assert_eq!(server.accepted(), 1);
}

/// As behind nginx.
#[test]
fn who_answers_no_stream_without_a_window_is_remembered_and_no_answer_is_lost() {
    let authority = Authority::new();
    let (server, told) = serving(&authority, |_, _, _| Does::HoldsBack);
    let pool = saving(kubeconfig(&authority, server.port));
    let windows = || told.try_iter().filter(|(_, said)| matches!(said, Said::Window { stream: 1.., .. })).count();
    for _ in 0..3 {
        assert_eq!(pool.reactor.block_on(pool.exchange(renewal())).unwrap().result, Ok(Document::Nothing));
    }
    assert_eq!((server.accepted(), windows()), (1, 3));
    pool.drop_idle();
    assert_eq!(pool.reactor.block_on(pool.exchange(renewal())).unwrap().result, Ok(Document::Nothing));
    assert_eq!((server.accepted(), windows()), (2, 0), "each stream of that one has a window as it is");
}

/// LSE-16.
#[test]
fn a_request_that_hangs_costs_others_neither_time_nor_a_connection_and_its_stream_is_reset() {
    let authority = Authority::new();
    let (server, told) = serving(&authority, |_, number, _| if number == 0 { Does::Hangs } else { Does::Answers });
    let pool = saving(kubeconfig(&authority, server.port));
    let executor = smol::LocalExecutor::new();
    let hung = executor.spawn(pool.exchange_within(Operation::ReadVersion, None, Duration::from_secs(5)));
    let renewals = async {
        while !told.try_iter().any(|(_, said)| matches!(said, Said::Request { .. })) {
            pool.reactor.sleep_until(clock::up() + Duration::from_millis(1)).await;
        }
        let mut count = 0;
        while !hung.is_finished() {
            assert_eq!(pool.exchange(renewal()).await.result, Ok(Document::Nothing));
            count += 1;
            pool.reactor.sleep_until(clock::up() + Duration::from_millis(100)).await;
        }
        assert!(count > 1);
        assert_eq!(hung.await.result.unwrap_err().word(), "timed-out");
        assert_eq!(pool.exchange(renewal()).await.result, Ok(Document::Nothing));
    };
    pool.reactor.block_on(executor.run(renewals)).unwrap();
    assert_eq!(server.accepted(), 1);
    let resets = |(_, said)| matches!(said, Said::Reset { stream: 1, code: server::CANCEL });
    assert!(told.into_iter().take_while(|_| true).any(resets), "it goes on for nobody");
}

#[test]
fn a_connection_on_which_nothing_was_heard_ends_with_the_request_that_hung() {
    let authority = Authority::new();
    // The first connection dies after its first answer.
    let (server, _) = serving(
        &authority,
        |connection, number, _| if connection == 0 && number > 0 { Does::Hangs } else { Does::Answers },
    );
    let pool = pool(kubeconfig(&authority, server.port));
    assert_eq!(ask(&pool).result, version());
    let long = pool.exchange_within(Operation::ReadVersion, None, Duration::from_secs(60));
    let short = pool.exchange_within(renewal(), None, SHORT);
    let start = clock::up();
    let (long, short) = pool.reactor.block_on(smol::future::zip(long, short)).unwrap();
    assert_eq!(short.result, Err(Refusal::Failed(Failure::timed_out(SHORT))));
    assert_eq!(long.result, version(), "asked again over a new one");
    assert!(clock::up() - start < Duration::from_secs(50));
    assert_eq!(server.accepted(), 2);
}

#[test]
fn a_server_that_leaves_gets_what_it_did_not_look_at_over_another_connection() {
    let authority = Authority::new();
    let leaves = |connection, number, _: &Said| match (connection, number) {
        (0, 1) => Does::Leaves,
        _ => Does::Answers,
    };
    let (server, told) = serving(&authority, leaves);
    let pool = pool(kubeconfig(&authority, server.port));
    for _ in 0..3 {
        assert_eq!(ask(&pool).result, version());
    }
    assert_eq!(server.accepted(), 2);
    drop(pool);
    let requests = told.try_iter().filter(|(_, said)| matches!(said, Said::Request { .. })).count();
    assert_eq!(requests, 4, "one of three was sent twice, and looked at once");
}

#[test]
fn a_kept_connection_that_dies_with_the_request_is_replaced_once() {
    let authority = Authority::new();
    let (server, _) = serving(&authority, |_, number, _| if number == 0 { Does::Answers } else { Does::Ends });
    let pool = pool(kubeconfig(&authority, server.port));
    for accepted in 1..=2 {
        assert_eq!(ask(&pool).result, version());
        assert_eq!(server.accepted(), accepted);
    }
}

#[test]
fn a_setting_offers_one_protocol_alone() {
    let authority = Authority::new();
    let (both, requests) = serving(&authority, |_, _, _| Does::Answers);
    let http1 = Listener::answering(&authority, version_reply());
    let pool = pool(kubeconfig(&authority, both.port));
    let only = |alpn_protocol| pool.speak(Http { alpn_protocol: Some(alpn_protocol), ..Http::default() });
    for (alpn_protocol, of_http2) in [(AlpnProtocol::Http1, 0), (AlpnProtocol::Http2, 1)] {
        only(alpn_protocol);
        assert_eq!(ask(&pool).result, version());
        let said = requests.try_iter().filter(|(_, said)| matches!(said, Said::Request { .. })).count();
        assert_eq!(said, of_http2, "{alpn_protocol:?}");
    }
    assert_eq!(both.accepted(), 2);
    replace(&pool, kubeconfig(&authority, http1.port)).unwrap();
    assert_eq!(word(&pool), "alpn-refused");
    only(AlpnProtocol::Http1);
    assert_eq!(ask(&pool).result, version());
}

#[test]
fn another_network_takes_the_connection_of_a_path_that_is_gone_and_what_is_under_way_begins_anew() {
    let authority = Authority::new();
    let (server, told) =
        serving(&authority, |connection, _, _| if connection == 0 { Does::Hangs } else { Does::Answers });
    let pool = pool(kubeconfig(&authority, server.port));
    let executor = smol::LocalExecutor::new();
    let hung =
        [executor.spawn(pool.exchange(Operation::ReadVersion)), executor.spawn(pool.exchange(Operation::ReadVersion))];
    let change = async {
        let mut requests = 0;
        while requests < hung.len() {
            requests += told.try_iter().filter(|(_, said)| matches!(said, Said::Request { .. })).count();
            pool.reactor.sleep_until(clock::up() + Duration::from_millis(1)).await;
        }
        pool.network_changed(&|_| false);
        for hung in hung {
            assert_eq!(hung.await.result, version());
        }
    };
    pool.reactor.block_on(executor.run(change)).unwrap();
    assert_eq!(server.accepted(), 2);
}
