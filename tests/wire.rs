//! Turns everything that may come back over a wire loose on the client: each has its own clear failure, memory stays
//! bounded, and the next request works.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nodepulse::api::{Answer, Document, Failure, Operation, PatchAnswer, Refusal};
use nodepulse::config::kubeconfig::{Credentials, Kubeconfig, Material, Server};
use nodepulse::config::limits;
use nodepulse::config::{self, Settings};
use nodepulse::io::{Session, clock};
use nodepulse::node::patch::status_patch;

use nodepulse::http2;

#[path = "support/http2.rs"]
mod http2_client;
#[path = "support/loopback.rs"]
mod loopback;
#[path = "wire/http2.rs"]
mod over_http2;
use loopback::{Authority, Listener, Stream, TempFolder, echoing, json_reply, kubeconfig, read_request, version_reply};

fn open(kubeconfig: Kubeconfig) -> Session {
    let settings = Settings { state_directory: "/nonexistent".to_owned(), ..Settings::default() };
    Session::open(kubeconfig, &settings, "board").unwrap()
}

fn ask(session: &Session) -> Answer {
    session.ask(Operation::ReadVersion).unwrap()
}

fn failure(answer: Answer) -> Failure {
    match answer.result {
        Err(Refusal::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

/// Of a reply of so many bytes that was cut after each of them, two times each; the one after these is whole.
fn assert_unfinished(session: &Session, length: usize) {
    for cut in 0..length * 2 {
        let failure = failure(ask(session));
        assert_eq!(failure.word(), "connection-closed", "cut after {} bytes: {failure}", cut / 2);
    }
    assert_works(session);
}

fn assert_works(session: &Session) {
    assert_eq!(ask(session).result, Ok(Document::Version("v1.36.3".to_owned())));
}

/// A server whose first connections misbehave, one script each, which is given the request; every later one is good.
fn misbehaving(
    authority: &Authority,
    times: usize,
    script: impl Fn(usize, &str, &mut Stream) + Send + Sync + 'static,
) -> Listener {
    let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    Listener::tls(config, move |number, mut stream| {
        while let Some(request) = read_request(&mut stream) {
            if number < times {
                return script(number, &request, &mut stream);
            }
            stream.write_all(&echoing(&request, &version_reply())).unwrap();
        }
    })
}

/// What one bad answer leads to, and that the next request works.
fn failure_of(reply: &'static [u8]) -> Failure {
    let authority = Authority::new();
    let server = misbehaving(&authority, 1, move |_, request, stream| {
        let _ = stream.write_all(&echoing(request, reply));
    });
    let session = open(kubeconfig(&authority, server.port));
    let failure = failure(ask(&session));
    assert_works(&session);
    failure
}

/// Writes `piece` until the client has had enough, which it has long before [`POURED_BYTES`].
fn pour(stream: &mut Stream, piece: &[u8]) -> usize {
    let times = POURED_BYTES / piece.len();
    (0..times).find(|_| stream.write_all(piece).is_err()).unwrap_or(times) * piece.len()
}

/// More than the limits of the client and every buffer on the way hold.
const POURED_BYTES: usize = 64 << 20;

/// The most memory this process ever had, bytes.
fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_reply_cut_at_every_byte_is_an_unfinished_answer() {
    let authority = Authority::new();
    let length = echoing("audit-id: AAAAAAAAAAAA", &version_reply()).len();
    let server = misbehaving(&authority, length * 2, move |number, request, stream| {
        stream.write_all(&echoing(request, &version_reply())[..number / 2]).unwrap();
        if number % 2 == 1 {
            // Once with, once without the close_notify that tells an end from an accident.
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }
    });
    let session = open(kubeconfig(&authority, server.port));
    assert_unfinished(&session, length);
}

#[test]
fn headers_without_an_end_are_given_up_at_their_limit() {
    let authority = Authority::new();
    let server = misbehaving(&authority, 1, |_, _, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").unwrap();
        pour(stream, &[b'a'; 4096]);
    });
    let session = open(kubeconfig(&authority, server.port));
    let expected = Failure::header_too_large();
    assert_eq!(failure(ask(&session)), expected);
    assert_works(&session);
}

#[test]
fn a_body_of_a_gigabyte_is_given_up_at_its_limit_whether_it_is_read_or_not() {
    let authority = Authority::new();
    let server = misbehaving(&authority, 2, |_, request, stream| {
        let kind = if request.starts_with("GET") { "json" } else { "vnd.kubernetes.protobuf" };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/{kind}\r\nContent-Length: 1000000000\r\n\r\n");
        stream.write_all(&echoing(request, head.as_bytes())).unwrap();
        pour(stream, &[b' '; 16 * 1024]);
    });
    let session = open(kubeconfig(&authority, server.port));
    let before = peak_memory_bytes();
    let expected = Failure::body_too_large(limits::REPLY_BODY_BYTES);
    assert_eq!(failure(ask(&session)), expected);
    let unread = Operation::RenewLease { body: "{}".to_owned(), answer: PatchAnswer::Nothing };
    assert_eq!(failure(session.ask(unread).unwrap()), expected);
    assert!(peak_memory_bytes() - before < 16 << 20, "a gigabyte must not be kept");
    assert_works(&session);
}

#[test]
fn a_body_in_endless_chunks_is_given_up_at_its_limit() {
    let authority = Authority::new();
    let server = misbehaving(&authority, 1, |_, request, stream| {
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(&echoing(request, head)).unwrap();
        pour(stream, b"8\r\n        \r\n");
    });
    let session = open(kubeconfig(&authority, server.port));
    assert_eq!(failure(ask(&session)), Failure::body_too_large(limits::REPLY_BODY_BYTES));
    assert_works(&session);
}

/// What ends a reply that begins with `head` and then says `piece` for ever.
fn failure_of_flood(head: &'static str, piece: &'static [u8]) -> Failure {
    let authority = Authority::new();
    let (tell, told) = std::sync::mpsc::channel();
    let server = misbehaving(&authority, 1, move |_, request, stream| {
        let head = if head.is_empty() { Vec::new() } else { echoing(request, head.as_bytes()) };
        stream.write_all(&head).unwrap();
        let _ = tell.send(pour(stream, &piece.repeat(4096 / piece.len())));
    });
    let session = open(kubeconfig(&authority, server.port));
    let failure = failure(ask(&session));
    let poured_bytes = told.recv().unwrap();
    assert!(poured_bytes < POURED_BYTES / 2, "{head:?}: the client took {poured_bytes} bytes");
    assert_works(&session);
    failure
}

#[test]
fn whatever_has_no_end_is_given_up_at_a_limit() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = |text: &str| -> &'static str { Box::leak(format!("{CHUNKED}{text}").into_boxed_str()) };
    let no_end = "a line of its chunks has no end";
    let (header, body) = ("headers are longer than 16384 bytes", "body is longer than 262144 bytes");
    for (head, piece, expected) in [
        (chunked(""), &b"0"[..], "a chunk without its size"),
        (chunked("8;name="), b"x", no_end),
        (chunked("0\r\nX: "), b"x", no_end),
        (chunked("0\r\n"), b"X: y\r\n", "too many headers"),
        (chunked(""), b"1\r\n \r\n", body),
        (chunked(""), b"1;name=bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n \r\n", "more than 2097152 bytes came"),
        ("", b"HTTP/1.1 100 Continue\r\n\r\n", header),
        ("", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", header),
    ] {
        let start = clock::up();
        let told = failure_of_flood(head, piece).to_string();
        assert!(told.contains(expected), "{head:?}: {told}");
        let spent = clock::up() - start;
        assert!(spent < Duration::from_secs(5), "{head:?}: {spent:?}");
    }
}

#[test]
fn a_redirect_is_told_with_its_target() {
    let reply = b"HTTP/1.1 302 Found\r\nLocation: http://login.hotel/\r\nContent-Length: 0\r\n\r\n";
    let told = failure_of(reply).to_string();
    assert!(told.starts_with("redirected to http://login.hotel/: "), "{told}");
}

#[test]
fn a_page_of_a_captive_portal_is_not_an_answer() {
    let page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 12\r\n\r\n<html>Log in";
    let failure = failure_of(page);
    assert_eq!(failure.word(), "answer-unconfirmed", "{failure:?}");
}

/// Which of the two said it, a code does not tell; and only the one who said it is asked again over the same connection.
#[test]
fn a_refusal_of_a_proxy_is_not_one_of_the_api_server() {
    let authority = Authority::new();
    let status = |request: &str| {
        let body = r#"{"kind":"Status","reason":"NotFound","message":"no"}"#;
        let reply = json_reply("404 Not Found", body);
        if request.contains("board") { echoing(request, &reply) } else { reply }
    };
    let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    let server = Listener::tls(config, move |_, mut stream| {
        while let Some(request) = read_request(&mut stream) {
            stream.write_all(&status(&request)).unwrap();
        }
    });
    let session = open(kubeconfig(&authority, server.port));
    assert!(failure(ask(&session)).to_string().starts_with("answered 404 (application/json) without an Audit-Id: "));
    for _ in 0..2 {
        let answer = session.ask(Operation::ReadNode { heartbeat: false }).unwrap();
        assert!(matches!(answer.result, Err(Refusal::Status(status)) if status.code == 404));
    }
    assert_eq!(server.accepted(), 2);
}

#[test]
fn what_is_not_http_is_malformed() {
    let failure = failure_of(b"SSH-2.0-OpenSSH_9.2\r\n\r\n");
    assert_eq!(failure.word(), "reply-malformed");
}

#[test]
fn a_body_that_ends_with_the_connection_counts_only_if_tls_says_that_it_ended() {
    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"gitVersion\":\"v1.36.3\"}";
    let failure = failure_of(REPLY);
    assert_eq!(failure.word(), "connection-closed");
    let authority = Authority::new();
    let server = misbehaving(&authority, 1, |_, request, stream| {
        stream.write_all(&echoing(request, REPLY)).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
    assert_works(&open(kubeconfig(&authority, server.port)));
}

#[test]
fn a_connection_on_which_more_came_than_the_answer_is_not_used_again() {
    let authority = Authority::new();
    let server = misbehaving(&authority, 1, |_, request, stream| {
        let smuggled = json_reply("200 OK", r#"{"gitVersion":"v0.0.0-forged"}"#);
        stream.write_all(&[version_reply(), smuggled].map(|reply| echoing(request, &reply)).concat()).unwrap();
        read_request(stream);
    });
    let session = open(kubeconfig(&authority, server.port));
    assert_works(&session);
    assert_works(&session);
    assert_eq!(server.accepted(), 2);
}

#[test]
fn an_interceptor_is_not_trusted_and_the_true_server_is_afterwards() {
    let (authority, interceptor) = (Authority::new(), Authority::new());
    let true_config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    let false_config = interceptor.server_config(&interceptor.sign(&["127.0.0.1"]));
    let server = Listener::tcp(move |number, socket| {
        let config = if number == 0 { &false_config } else { &true_config };
        let connection = rustls::ServerConnection::new(config.clone()).unwrap();
        let mut stream = Stream::new(connection, socket);
        while let Some(request) = read_request(&mut stream) {
            stream.write_all(&echoing(&request, &version_reply())).unwrap();
        }
    });
    let session = open(kubeconfig(&authority, server.port));
    assert_eq!(failure(ask(&session)).word(), "tls-unknown-issuer");
    assert_works(&session);
}

#[test]
fn a_plain_http_port_and_a_port_that_hangs_up_are_told_apart() {
    let authority = Authority::new();
    let server = Listener::tcp(|number, mut socket| {
        let _ = socket.read(&mut [0; 2048]);
        if number == 0 {
            let _ =
                socket.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTPS request to an HTTP server.\n");
        }
    });
    let session = open(kubeconfig(&authority, server.port));
    let plain = failure(ask(&session)).to_string();
    assert!(plain.contains("does not speak TLS"), "{plain}");
    let silent = failure(ask(&session)).to_string();
    assert!(silent.contains("closed the connection during the handshake"), "{silent}");
}

#[test]
fn a_certificate_authority_that_is_a_directory_is_told_and_can_be_put_right_meanwhile() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let folder = TempFolder::new();
    let path = folder.path("ca.crt");
    std::fs::create_dir(&path).unwrap();
    let mut kubeconfig = kubeconfig(&authority, server.port);
    kubeconfig.certificate_authority = Some(Material::File(path.clone()));
    let session = open(kubeconfig);
    let told = failure(ask(&session)).to_string();
    assert!(told.contains(&path) && told.contains("is a directory"), "{told}");
    std::fs::remove_dir(&path).unwrap();
    folder.write("ca.crt", &authority.pem());
    assert_works(&session);
}

fn through_proxy(kubeconfig: Kubeconfig, proxy_port: u16) -> Kubeconfig {
    let proxy = Server { host: "127.0.0.1".to_owned(), port: proxy_port, path_prefix: String::new() };
    Kubeconfig { proxy: Some(proxy), ..kubeconfig }
}

#[test]
fn a_proxy_carries_the_connection_to_where_the_request_names() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let port = server.port;
    let proxy = Listener::tcp(move |_, mut near| {
        let request = read_request(&mut near).unwrap();
        assert!(request.starts_with(&format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n")), "{request}");
        let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
        near.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n").unwrap();
        let (mut near_in, mut far_out) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        loopback::in_background(move || drop(std::io::copy(&mut near_in, &mut far_out)));
        let _ = std::io::copy(&mut &far, &mut near);
    });
    let session = open(through_proxy(kubeconfig(&authority, server.port), proxy.port));
    assert_works(&session);
    assert_works(&session);
    assert_eq!((proxy.accepted(), server.accepted()), (1, 1));
}

#[test]
fn a_proxy_that_refuses_is_named_with_its_answer() {
    let authority = Authority::new();
    let proxy = Listener::tcp(|number, mut near| {
        read_request(&mut near);
        let _ = match number {
            0 => near.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"),
            1 => near.write_all(&[b'a'; 2 * limits::REPLY_HEADER_BYTES]),
            _ => Ok(()),
        };
    });
    let session = open(through_proxy(kubeconfig(&authority, 443), proxy.port));
    let address = format!("127.0.0.1:{}", proxy.port);
    let refused =
        |detail: &str| Failure::new("proxy-refused", format!("the proxy {address} refused the tunnel: {detail}"));
    assert_eq!(failure(ask(&session)), refused("HTTP/1.1 407 Proxy Authentication Required"));
    assert_eq!(failure(ask(&session)), refused("its answer is longer than 16384 bytes"));
    assert_eq!(failure(ask(&session)), refused("it closed the connection"));
}

/// Set for the second process of the test: the folder with its credentials, and the server's port.
const INSIDE: &str = "NODEPULSE_TEST_MEMORY";

/// Nodes that somebody made as costly as a reply may be.
fn monsters() -> Vec<String> {
    let many = |entry: &dyn Fn(usize) -> String| {
        let mut list = Vec::new();
        let mut length = 0;
        while length < limits::NODE_BODY_BYTES - 1000 {
            list.push(entry(list.len()));
            length += list[list.len() - 1].len() + 1;
        }
        list.join(",")
    };
    let map = || many(&|number| format!(r#""a{number:x}":"1""#));
    let text = |piece: &str| piece.repeat((limits::NODE_BODY_BYTES - 1000) / piece.len());
    vec![
        format!(r#"{{"metadata":{{"name":"board"}},"status":{{"capacity":{{{}}}}}}}"#, map()),
        format!(r#"{{"metadata":{{"name":"board","labels":{{{}}}}}}}"#, map()),
        format!(r#"{{"metadata":{{"name":"board","annotations":{{{}}}}}}}"#, map()),
        format!(r#"{{"metadata":{{"name":"board","annotations":{{"nodepulse.dev/a":"{}"}}}}}}"#, text("\\u0041")),
        format!(
            r#"{{"metadata":{{"name":"board"}},"status":{{"conditions":[{}]}}}}"#,
            many(&|_| r#"{"type":"a","status":"b"}"#.to_owned())
        ),
        format!(
            r#"{{"metadata":{{"name":"board"}},"spec":{{"taints":[{}]}}}}"#,
            many(&|number| format!(r#"{{"key":"a{number}","effect":"NoSchedule","x":[{{}}]}}"#))
        ),
        format!(r#"{{"metadata":{{"name":"board"}},"status":{{"images":[{}]}}}}"#, many(&|_| "{}".to_owned())),
        format!(r#"{{"metadata":{{"name":"board","x":{}}}}}"#, text("[")),
        format!(r#"{{"metadata":{{"name":"board","uid":"{}"}}}}"#, text("x")),
    ]
}

fn memory_inside(folder: &str) {
    let mut parts = folder.split(' ');
    let (folder, port) = (parts.next().unwrap(), parts.next().unwrap().parse().unwrap());
    let file = |name: &str| Material::File(format!("{folder}/{name}"));
    let session = open(Kubeconfig {
        server: Server { host: "127.0.0.1".to_owned(), port, path_prefix: String::new() },
        other_servers: Vec::new(),
        last_resorts: Vec::new(),
        certificate_authority: Some(file("ca.crt")),
        tls_server_name: None,
        proxy: None,
        credentials: Credentials::Anonymous,
        context: "test".to_owned(),
        path: String::new(),
    });
    let read = || match session.ask(Operation::ReadNode { heartbeat: false }).unwrap().result {
        Ok(Document::Node(node)) => Some(node),
        _ => None,
    };
    let warm = read().unwrap();
    drop(read().unwrap());
    let before_bytes = peak_memory_bytes();
    let mut base = warm;
    for number in 0..2 * monsters_count() {
        if let Some(node) = read() {
            base = node;
        }
        let mut wanted = base.clone();
        wanted.status.capacity.insert("cpu".to_owned(), "4".to_owned());
        let patch = status_patch(&base, &wanted);
        assert!(patch.len() < 1000, "{number}: a patch of {} bytes", patch.len());
    }
    let grown_bytes = peak_memory_bytes() - before_bytes;
    println!("a reply of any kind costs {grown_bytes} bytes of memory at most");
    assert!(grown_bytes <= 4 << 20, "{grown_bytes} bytes more");
}

fn monsters_count() -> usize {
    9
}

#[test]
fn a_node_of_any_kind_costs_four_megabytes_at_most() {
    if let Some(folder) = std::env::var_os(INSIDE) {
        return memory_inside(folder.to_str().unwrap());
    }
    let authority = Authority::new();
    let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    let monsters = monsters();
    assert_eq!(monsters.len(), monsters_count());
    let asked = AtomicUsize::new(0);
    let server = Listener::tls(config, move |_, mut stream| {
        while let Some(request) = read_request(&mut stream) {
            let small = r#"{"metadata":{"name":"board"}}"#.to_owned();
            let number = asked.fetch_add(1, Ordering::SeqCst);
            let body = if number < 2 { &small } else { &monsters[number % monsters.len()] };
            if stream.write_all(&echoing(&request, &json_reply("200 OK", body))).is_err() {
                return;
            }
        }
    });
    let folder = TempFolder::new();
    folder.write("ca.crt", &authority.pem());
    let mut inside = std::process::Command::new(std::env::current_exe().unwrap());
    inside.args(["--exact", "a_node_of_any_kind_costs_four_megabytes_at_most", "--nocapture"]);
    inside.env(INSIDE, format!("{} {}", folder.path(""), server.port));
    assert!(inside.status().unwrap().success());
}
