//! A watch over the connection that everything else goes over: what it tells, and what ends it.

use super::*;
use crate::api::http2_client::{self as server, Client, Said};
use crate::api::{Lane, PatchAnswer, Seen};
use std::io::Read;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A server that says this to each request, by the number of its connection and the stream of the watch there.
fn saying(
    authority: &Authority,
    script: impl Fn(usize, Option<u32>, &Said) -> Vec<u8> + Send + Sync + 'static,
) -> Listener {
    let mut config = authority.server_config(&authority.sign(&["127.0.0.1"])).as_ref().clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Listener::tls(Arc::new(config), move |number, mut stream| {
        let (mut client, mut watch, mut bytes) = (Client::default(), None, [0; 4096]);
        if stream.write_all(&server::settings()).is_err() {
            return;
        }
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            for said in client.read(&bytes[..count]) {
                let Said::Request { stream: id, .. } = &said else { continue };
                if said.field(":path").contains("watch") {
                    watch = Some(*id);
                }
                if stream.write_all(&script(number, watch, &said)).is_err() {
                    return;
                }
            }
        }
    })
}

/// What is asked is answered, a watch begun with this version; a renewal brings the one after it.
fn healthy(watch: Option<u32>, said: &Said, version: &str) -> Vec<u8> {
    let head = |id| {
        let kind = if watch == Some(id) { "application/json" } else { PROTOBUF };
        let head = [(":status", "200"), ("audit-id", said.field("audit-id")), ("content-type", kind)];
        server::headers(id, &head, false)
    };
    let Said::Request { stream, .. } = said else { panic!("{said:?}") };
    match said.field(":method") {
        _ if watch == Some(*stream) => [head(*stream), server::data(*stream, &event(version), false)].concat(),
        "PATCH" => {
            let next = watch.map(|watch| server::data(watch, &event(&format!("{version}0")), false));
            [next.unwrap_or_default(), head(*stream)].concat()
        }
        _ => server::answer(said, "200", "application/json", br#"{"gitVersion":"v1.36.3"}"#),
    }
}

fn event(version: &str) -> Vec<u8> {
    let object = format!(r#"{{"kind":"Table","metadata":{{"resourceVersion":"{version}"}},"rows":[]}}"#);
    (format!(r#"{{"type":"MODIFIED","object":{object}}}"#) + "\n").into_bytes()
}

fn renewal() -> Operation {
    Operation::RenewLease { body: "{}".to_owned(), answer: PatchAnswer::Nothing }
}

/// To it no content comes that nobody reads.
fn saving(authority: &Authority, server: &Listener) -> Pool {
    let pool = pool(kubeconfig(authority, server.port));
    pool.speak(Http { zero_window: true, ..Http::default() });
    pool
}

/// A watch under way, what it told, and how it ended.
#[derive(Default)]
struct Watch {
    told: RefCell<Vec<String>>,
    end: RefCell<Option<String>>,
}

impl Watch {
    async fn run(&self, pool: &Pool) {
        let tell = |seen| {
            let Seen::Version { resource_version, .. } = seen else { panic!("{seen:?}") };
            self.told.borrow_mut().push(resource_version);
        };
        let end = pool.watch(&Operation::WatchNode, &tell).await.result.unwrap_err();
        self.end.replace(Some(end.word().into_owned()));
    }

    async fn until(&self, pool: &Pool, is_so: impl Fn(&Watch) -> bool) {
        let give_up = clock::up() + Duration::from_secs(10);
        while !is_so(self) {
            assert!(clock::up() < give_up, "{:?} {:?}", self.told, self.end);
            pool.reactor.sleep_until(clock::up() + Duration::from_millis(1)).await;
        }
    }

    async fn tells(&self, pool: &Pool, versions: &[&str]) {
        self.until(pool, |watch| *watch.told.borrow() == versions).await;
    }

    async fn ends(&self, pool: &Pool) -> Option<String> {
        self.until(pool, |watch| watch.end.borrow().is_some()).await;
        self.end.take()
    }
}

/// Runs what is asked beside a watch over the kept connection.
fn beside_a_watch(pool: &Pool, asked: impl AsyncFnOnce(&Watch)) {
    let watch = Watch::default();
    let both = async {
        assert_eq!(pool.exchange(Operation::ReadVersion).await.result, version());
        smol::future::zip(watch.run(pool), asked(&watch)).await;
    };
    pool.reactor.block_on(both).unwrap();
}

#[test]
fn a_watch_tells_of_each_event_over_the_connection_in_use_until_it_is_ended() {
    let authority = Authority::new();
    let server = saying(&authority, |_, watch, said| healthy(watch, said, "7"));
    let pool = saving(&authority, &server);
    beside_a_watch(&pool, async |watch| {
        watch.tells(&pool, &["7"]).await;
        assert!(pool.exchange(renewal()).await.result.is_ok());
        watch.tells(&pool, &["7", "70"]).await;
        pool.end_watch();
        assert_eq!(watch.ends(&pool).await.as_deref(), Some("connection-closed"));
        assert!(pool.exchange(renewal()).await.result.is_ok());
    });
    assert_eq!(server.accepted(), 1, "what ends a watch ends nothing else");
}

#[test]
fn after_goaway_a_watch_goes_on_until_there_is_another_connection() {
    let authority = Authority::new();
    let server = saying(&authority, |number, watch, said| {
        let Said::Request { stream, .. } = said else { panic!("{said:?}") };
        let leaves = number == 0 && said.field(":method") == "PATCH";
        let goaway = if leaves { server::go_away(*stream, 0) } else { Vec::new() };
        [goaway, healthy(watch, said, "7")].concat()
    });
    let pool = saving(&authority, &server);
    beside_a_watch(&pool, async |watch| {
        watch.tells(&pool, &["7"]).await;
        assert!(pool.exchange(renewal()).await.result.is_ok());
        watch.tells(&pool, &["7", "70"]).await;
        assert!(pool.kept.borrow().is_none() && watch.end.borrow().is_none());
        assert_eq!(pool.exchange(Operation::ReadVersion).await.result, version());
        assert_eq!(watch.ends(&pool).await.as_deref(), Some("connection-closed"));
    });
    assert_eq!(server.accepted(), 2);
    beside_a_watch(&pool, async |watch| {
        watch.tells(&pool, &["7"]).await;
        pool.end_watch();
    });
    assert_eq!(server.accepted(), 2, "the next is over that one");
}

/// A server that ends so many connections before it looks at the watch that is asked for over them.
fn not_looking(authority: &Authority, connections: usize) -> Listener {
    saying(authority, move |number, watch, said| {
        let Said::Request { stream, .. } = said else { panic!("{said:?}") };
        match watch {
            Some(watch) if watch == *stream && number < connections => server::go_away(watch - 2, 0),
            _ => healthy(watch, said, "7"),
        }
    })
}

fn is_over(pool: &Pool) -> bool {
    pool.kept.borrow().as_ref().is_some_and(|kept| kept.is_over())
}

#[test]
fn a_watch_that_nobody_looked_at_before_goaway_begins_once_more_over_the_next_connection() {
    let authority = Authority::new();
    let server = not_looking(&authority, 1);
    let pool = saving(&authority, &server);
    beside_a_watch(&pool, async |watch| {
        watch.until(&pool, |_| is_over(&pool)).await;
        assert!(server.accepted() == 1 && watch.end.borrow().is_none(), "it opens none: {:?}", watch.end);
        assert_eq!(pool.exchange(Operation::ReadVersion).await.result, version());
        watch.tells(&pool, &["7"]).await;
        pool.end_watch();
    });
    assert_eq!(server.accepted(), 2);

    let server = not_looking(&authority, 2);
    let pool = saving(&authority, &server);
    beside_a_watch(&pool, async |watch| {
        watch.until(&pool, |_| is_over(&pool)).await;
        assert_eq!(pool.exchange(Operation::ReadVersion).await.result, version());
        assert_eq!(watch.ends(&pool).await.as_deref(), Some("stream-reset"), "not for ever");
    });

    let server = not_looking(&authority, 1);
    let pool = saving(&authority, &server);
    beside_a_watch(&pool, async |watch| {
        watch.until(&pool, |_| is_over(&pool)).await;
        pool.end_watch();
        assert_eq!(watch.ends(&pool).await.as_deref(), Some("connection-closed"), "while it waits, too");
    });
}

#[test]
fn a_connection_that_is_given_up_ends_the_watch_with_it() {
    let authority = Authority::new();
    let server = saying(&authority, |_, watch, said| healthy(watch, said, "7"));
    let pool = saving(&authority, &server);
    let give_up: [&dyn Fn(); 2] = [&|| pool.drop_idle(), &|| pool.network_changed(&|_| false)];
    for give_up in give_up {
        beside_a_watch(&pool, async |watch| {
            watch.tells(&pool, &["7"]).await;
            pool.network_changed(&|_| true);
            pool.reactor.sleep_until(clock::up() + Duration::from_millis(20)).await;
            assert!(watch.end.borrow().is_none(), "its path still works");
            give_up();
            assert_eq!(watch.ends(&pool).await.as_deref(), Some("connection-closed"));
        });
    }
    assert_eq!(server.accepted(), 2);
}

#[test]
fn a_server_that_goes_ends_it_and_without_a_connection_or_over_http1_there_is_none() {
    let authority = Authority::new();
    let server = saying(&authority, |_, watch, said| healthy(watch, said, "7"));
    let no_pool = pool(kubeconfig(&authority, server.port));
    let watch = Watch::default();
    no_pool.reactor.block_on(watch.run(&no_pool)).unwrap();
    assert_eq!((watch.end.take().as_deref(), server.accepted()), (Some("not-sent"), 0));
    let http1 = Listener::answering(&authority, version_reply());
    let pool = pool(kubeconfig(&authority, http1.port));
    beside_a_watch(&pool, async |watch| assert_eq!(watch.ends(&pool).await.as_deref(), Some("not-sent")));
    assert_eq!(http1.accepted(), 1);
}

#[test]
fn every_other_lane_finds_room_beside_a_watch() {
    // Lanes are few: whoever adds one comes here.
    let lanes = [Lane::Lease, Lane::Status, Lane::Events, Lane::Identity];
    assert_eq!(lanes.len(), super::super::watch::OTHER_LANES);
}
