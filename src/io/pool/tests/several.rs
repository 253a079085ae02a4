//! Several API servers of one cluster: the first that works is asked, and each of them when the others are dead.

use super::*;

/// The servers at these ports of 127.0.0.1, in that order.
fn at_ports(authority: &Authority, ports: &[u16]) -> Kubeconfig {
    let first = kubeconfig(authority, ports[0]);
    let others = ports[1..].iter().map(|port| Server { port: *port, ..first.server.clone() });
    Kubeconfig { other_servers: others.collect(), ..first }
}

fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn each_server_is_asked_when_those_before_it_are_dead_and_the_one_that_works_stays() {
    let authority = Authority::new();
    let (second, third) =
        (Listener::answering(&authority, version_reply()), Listener::answering(&authority, version_reply()));
    let pool = pool(at_ports(&authority, &[closed_port(), second.port, third.port]));
    assert_eq!(ask(&pool).result.unwrap_err().word(), "connect-failed");
    for _ in 0..3 {
        assert_eq!(ask(&pool).result, version());
    }
    assert_eq!((second.accepted(), third.accepted()), (1, 0), "over one connection to the second");
    assert_eq!(pool.current().server.port, second.port);
}

#[test]
fn a_server_of_another_ca_and_one_that_a_load_balancer_lost_give_way_to_the_next() {
    let authority = Authority::new();
    let strange = Listener::answering(&Authority::new(), version_reply());
    let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    let balancer = Listener::tls(config, |_, mut stream| {
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    let good = Listener::answering(&authority, version_reply());
    let pool = pool(at_ports(&authority, &[strange.port, balancer.port, good.port]));
    assert_eq!(ask(&pool).result.unwrap_err().word(), "tls-unknown-issuer");
    assert_eq!(ask(&pool).result.unwrap_err().word(), "answer-unconfirmed");
    assert_eq!(ask(&pool).result, version());
}

#[test]
fn a_server_that_refuses_stays_and_so_does_the_only_one() {
    let authority = Authority::new();
    let refusal = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}"#;
    let reply = format!(
        "HTTP/1.1 403 X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{refusal}",
        refusal.len()
    );
    let first = Listener::answering(&authority, reply.into_bytes());
    let second = Listener::answering(&authority, version_reply());
    let pool = pool(at_ports(&authority, &[first.port, second.port]));
    (0..3).for_each(|_| assert_eq!(ask(&pool).result.unwrap_err().word(), "http-403"));
    assert_eq!((first.accepted(), second.accepted()), (1, 0));
    let alone = super::pool(kubeconfig(&authority, closed_port()));
    (0..3).for_each(|_| assert_eq!(ask(&alone).result.unwrap_err().word(), "connect-failed"));
}

/// The servers behind it are in the same order after a reading that finds nothing new.
#[test]
fn credentials_that_are_read_again_change_nothing_about_whose_turn_it_is() {
    let authority = Authority::new();
    let second = Listener::answering(&authority, version_reply());
    let pool = pool(at_ports(&authority, &[closed_port(), second.port]));
    assert!(ask(&pool).result.is_err());
    assert_eq!(ask(&pool).result, version());
    pool.reactor.block_on(pool.reload()).unwrap().unwrap();
    assert_eq!(ask(&pool).result, version());
    assert_eq!(second.accepted(), 1);
}

/// So long have the servers not answered.
const LONG: Duration = Duration::from_secs(61);

#[test]
fn a_last_resort_is_asked_in_the_end_and_only_one_whose_certificate_is_for_its_address_is_believed() {
    let authority = Authority::new();
    let config = authority.server_config(&authority.sign(&["kubernetes"]));
    let unnamed = Listener::tls(config, |_, mut stream| {
        answer(&mut stream);
    });
    let good = Listener::answering(&authority, version_reply());
    let known = at_ports(&authority, &[closed_port(), unnamed.port, good.port]);
    let pool = pool(Kubeconfig { last_resorts: known.other_servers.clone(), other_servers: Vec::new(), ..known });
    for _ in 0..3 {
        assert_eq!(ask(&pool).result.unwrap_err().word(), "connect-failed");
    }
    let later = clock::up() + LONG;
    assert!(pool.turns.borrow_mut().failed(0, pool.places(), later));
    assert_eq!(ask(&pool).result.unwrap_err().word(), "tls-wrong-name");
    assert_eq!(ask(&pool).result.unwrap_err().word(), "connect-failed", "never two of them in a row");
    assert!(pool.turns.borrow_mut().failed(0, pool.places(), later + LONG * 5));
    assert_eq!(ask(&pool).result, version());
    assert_eq!(pool.servers().first().map(|server| server.port), Some(good.port), "what is in use comes first");
    assert_eq!(pool.servers().len(), 2);
    // What is learned while one is in use takes no connection away.
    let learned = Kubeconfig { last_resorts: known_with(&pool, good.port), ..pool.kubeconfig().as_ref().clone() };
    pool.reactor.block_on(pool.replace(learned)).unwrap().unwrap();
    assert_eq!((ask(&pool).result, good.accepted()), (version(), 1));
}

/// The last resorts without all but that one, at the place of the other.
fn known_with(pool: &Pool, port: u16) -> Vec<Server> {
    let known = pool.kubeconfig().last_resorts.clone();
    known.iter().map(|server| Server { port, ..server.clone() }).collect()
}

/// A server gives one ticket for each connection, and the next one costs a kilobyte less with it.
#[test]
fn a_server_that_cannot_be_connected_to_takes_no_ticket_of_the_one_that_can() {
    let authority = Authority::new();
    let mut config = rustls::ServerConfig::clone(&authority.server_config(&authority.sign(&["127.0.0.1"])));
    config.send_tls13_tickets = 1;
    let (kinds, seen) = mpsc::channel();
    let server = Listener::tls(Arc::new(config), move |number, mut stream| {
        if number == 1 {
            // It has seen better days: the next one is turned to.
            read_request(&mut stream);
            stream.write_all(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n").unwrap();
        } else {
            assert!(answer(&mut stream));
        }
        kinds.send(stream.conn.handshake_kind()).unwrap();
    });
    let pool = pool(at_ports(&authority, &[server.port, closed_port()]));
    assert_eq!(ask(&pool).result, version());
    let words = [(); 2].map(|()| {
        pool.drop_idle();
        ask(&pool).result.unwrap_err().word()
    });
    assert_eq!(words, ["answer-unconfirmed", "connect-failed"]);
    assert_eq!(ask(&pool).result, version());
    use rustls::HandshakeKind::{Full, Resumed};
    assert_eq!(seen.iter().take(3).flatten().collect::<Vec<_>>(), [Full, Resumed, Resumed]);
}

/// Nobody knows whether a server that is gone has done what it read.
#[test]
fn a_request_that_was_sent_once_is_not_called_unsent_for_want_of_a_second_connection() {
    let authority = Authority::new();
    let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move || {
        let (socket, _) = listener.accept().unwrap();
        let mut stream = Stream::new(rustls::ServerConnection::new(config).unwrap(), socket);
        assert!(answer(&mut stream));
        drop(listener);
        read_request(&mut stream);
    };
    let is_unsent = |answer: Answer| match answer.result {
        Err(Refusal::Failed(failure)) => (failure.word(), failure.is_unsent()),
        other => panic!("{other:?}"),
    };
    let pool = pool(kubeconfig(&authority, port));
    std::thread::scope(|scope| {
        scope.spawn(serve);
        assert_eq!(ask(&pool).result, version());
        assert_eq!(is_unsent(ask(&pool)), ("connection-broken", false));
    });
    assert_eq!(is_unsent(ask(&pool)), ("connect-failed", true));
}
