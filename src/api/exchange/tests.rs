//! Turns replies as servers, portals and broken lines send them into what one exchange makes of them.

use super::*;
use crate::api::{Class, Document, PatchAnswer, Refusal, StatusError, SupervisorRequest};
use crate::time::Wall;
use std::time::Duration;

fn target() -> Target {
    Target {
        authority: "api.example:6443".to_owned(),
        path_prefix: "/clusters/a".to_owned(),
        node_name: "n1".to_owned(),
        bearer_token: None,
    }
}

fn audit_id() -> AuditId {
    AuditId::new(0)
}

fn start(operation: Operation) -> Exchange {
    Exchange::start(operation, &target(), audit_id()).1
}

fn renewal() -> Operation {
    Operation::RenewLease { body: "{}".to_owned(), answer: PatchAnswer::Nothing }
}

fn created() -> Operation {
    Operation::CreateNode { body: "{}".to_owned() }
}

/// Feeds the bytes in pieces of `size`; the answer, and whether the connection may be used again.
fn feed(operation: Operation, reply: &[u8], size: usize) -> Result<(Answer, bool), Failure> {
    let mut exchange = start(operation);
    let mut input = Vec::new();
    for piece in reply.chunks(size) {
        input.extend_from_slice(piece);
        if let Progress::Done { answer, reusable } = exchange.feed(&mut input)? {
            assert!(input.is_empty(), "{} bytes are left", input.len());
            return Ok((answer, reusable));
        }
    }
    exchange.end_of_stream().map(|answer| (answer, false))
}

/// As `feed`, and the same whatever the pieces.
fn read(operation: &Operation, reply: &str) -> Result<(Answer, bool), Failure> {
    let whole = feed(operation.clone(), reply.as_bytes(), reply.len().max(1));
    for size in [1, 2, 7, 100] {
        assert_eq!(feed(operation.clone(), reply.as_bytes(), size), whole, "in pieces of {size}");
    }
    whole
}

fn with_length(head: &str, body: &str) -> String {
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

const JSON: &str = "HTTP/1.1 200 OK\r\nAudit-Id: AAAAAAAAAAAA\r\nContent-Type: application/json";
const PROTOBUF: &str = "HTTP/1.1 200 OK\r\nAudit-Id: AAAAAAAAAAAA\r\nContent-Type: application/vnd.kubernetes.protobuf";
const NODE: &str = r#"{"metadata":{"name":"n1","uid":"u1","resourceVersion":"7"}}"#;

fn refused(answer: Answer) -> StatusError {
    match answer.result {
        Err(Refusal::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

fn node_of(answer: Answer) -> (String, String) {
    match answer.result {
        Ok(Document::Node(node)) => (node.metadata.name, node.metadata.uid),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_written_whole_with_the_headers_it_needs() {
    let mut target = target();
    target.bearer_token = Some("secret".to_owned());
    let operation = Operation::PatchStatus { body: r#"{"a":1}"#.to_owned(), answer: PatchAnswer::Node };
    let text = String::from_utf8(Exchange::start(operation, &target, audit_id()).0).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), Some("PATCH /clusters/a/api/v1/nodes/n1/status?timeout=10s HTTP/1.1"));
    let headers: Vec<String> = lines.map(|line| line.split_once(':').unwrap().0.to_lowercase()).collect();
    for header in ["host", "user-agent", "accept", "audit-id", "content-type", "content-length", "authorization"] {
        assert_eq!(headers.iter().filter(|one| *one == header).count(), 1, "{header} in {headers:?}");
    }
    assert_eq!(headers.len(), 7, "{headers:?}");
    assert!(head.contains("Bearer secret") && head.contains("api.example:6443"), "{head}");
    assert_eq!(body, r#"{"a":1}"#);
    assert!(!format!("{target:?}").contains("secret"));
}

#[test]
fn every_request_brings_the_audit_id_of_its_connection() {
    for operation in [renewal(), created(), Operation::ReadLease, Operation::ReadVersion] {
        for (random, name) in [(0, "AAAAAAAAAAAA"), (u128::MAX, "____________")] {
            let bytes = Exchange::start(operation.clone(), &target(), AuditId::new(random)).0;
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.contains(&format!("\r\naudit-id: {name}\r\n")), "{text}");
        }
    }
}

#[test]
fn the_product_is_named_before_its_version() {
    let bytes = Exchange::start(Operation::ReadVersion, &target(), audit_id()).0;
    let text = String::from_utf8(bytes).unwrap().to_lowercase();
    assert!(text.contains(concat!("user-agent: nodepulse/", env!("CARGO_PKG_VERSION"), "\r\n")), "{text}");
    assert!(!text.contains("content-"), "a GET has no body: {text}");
}

#[test]
fn a_renewal_is_as_short_as_can_be() {
    let body = r#"{"spec":{"renewTime":"2026-01-01T00:00:00.123456Z"}}"#.to_owned();
    let operation = Operation::RenewLease { body, answer: PatchAnswer::Nothing };
    let target = Target { path_prefix: String::new(), ..target() };
    let bytes = Exchange::start(operation, &target, audit_id()).0;
    let expected = "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1 HTTP/1.1\r\n\
        host: api.example:6443\r\n\
        accept: application/vnd.kubernetes.protobuf\r\n\
        audit-id: AAAAAAAAAAAA\r\n\
        content-type: application/strategic-merge-patch+json\r\n\
        content-length: 52\r\n\
        \r\n\
        {\"spec\":{\"renewTime\":\"2026-01-01T00:00:00.123456Z\"}}";
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
}

#[test]
fn a_target_as_long_as_a_file_allows_still_fits_and_costs_no_more() {
    let long = |kind: &str| kind.repeat(limits::CREDENTIAL_FILE_BYTES);
    for target in [
        Target { bearer_token: Some(long("t")), ..target() },
        Target { path_prefix: "/".to_owned() + &"p".repeat(10_000), ..target() },
        Target { authority: "a".repeat(10_000), ..target() },
    ] {
        let (bytes, _) = Exchange::start(created(), &target, audit_id());
        assert!(bytes.len() > 10_000 && bytes.ends_with(b"\r\n\r\n{}"));
        assert!(bytes.capacity() - bytes.len() < 2048, "{} bytes for {}", bytes.capacity(), bytes.len());
    }
}

#[test]
fn a_node_is_read_from_a_body_of_known_length() {
    let (answer, reusable) = read(&created(), &with_length(JSON, NODE)).unwrap();
    assert_eq!(node_of(answer), ("n1".to_owned(), "u1".to_owned()));
    assert!(reusable);
}

#[test]
fn a_chunked_body_is_put_together() {
    let (first, second) = NODE.split_at(10);
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let reply = format!("{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n{}{}0\r\n\r\n", chunk(first), chunk(second));
    let (answer, reusable) = read(&created(), &reply).unwrap();
    assert_eq!(node_of(answer).0, "n1");
    assert!(reusable);
}

#[test]
fn a_body_may_end_with_the_connection_which_is_then_not_used_again() {
    let (answer, reusable) = read(&created(), &format!("{JSON}\r\n\r\n{NODE}")).unwrap();
    assert_eq!(node_of(answer).0, "n1");
    assert!(!reusable);
}

#[test]
fn a_server_that_closes_is_taken_at_its_word() {
    let closing = with_length(&format!("{JSON}\r\nConnection: close"), NODE);
    assert!(!read(&created(), &closing).unwrap().1);
    let old = with_length(&JSON.replace("HTTP/1.1", "HTTP/1.0"), NODE);
    assert!(!read(&created(), &old).unwrap().1);
}

#[test]
fn replies_before_the_reply_are_passed_over() {
    let reply = format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{}", with_length(JSON, NODE));
    assert_eq!(node_of(read(&created(), &reply).unwrap().0).0, "n1");
}

#[test]
fn a_reply_cut_at_any_byte_is_an_unfinished_answer() {
    let chunked = format!("{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{NODE}\r\n0\r\n\r\n", NODE.len());
    for reply in [with_length(JSON, NODE), chunked] {
        for end in 0..reply.len() {
            let cut = feed(created(), &reply.as_bytes()[..end], 1000);
            assert_eq!(cut.unwrap_err().word(), "connection-closed", "{end}");
        }
        assert!(feed(created(), reply.as_bytes(), 1000).is_ok());
    }
}

#[test]
fn a_closed_connection_says_whether_a_reply_had_begun() {
    let mut exchange = start(renewal());
    assert_eq!(exchange.received_bytes(), 0);
    let mut input = format!("{PROTOBUF}\r\nContent-Length: 5\r\n\r\nk").into_bytes();
    assert!(matches!(exchange.feed(&mut input), Ok(Progress::NeedMore)));
    assert!(exchange.received_bytes() > 0);
}

/// What ends the feeding of `piece` after `piece`, and how much was held by then.
fn pour(exchange: &mut Exchange, mut input: Vec<u8>, piece: &[u8]) -> (Option<Failure>, usize) {
    let failure = (0..=limits::NODE_BODY_BYTES / piece.len()).find_map(|_| {
        input.extend_from_slice(piece);
        exchange.feed(&mut input).err()
    });
    (failure, input.len())
}

#[test]
fn headers_without_an_end_are_given_up_at_the_limit() {
    let too_large = Failure::header_too_large();
    let (failure, held) = pour(&mut start(renewal()), b"HTTP/1.1 200 OK\r\nX-Filler: ".to_vec(), &[b'a'; 100]);
    assert_eq!(failure, Some(too_large));
    assert!(held < limits::REPLY_HEADER_BYTES + 200);
    let (failure, held) = pour(&mut start(renewal()), b"HTTP/1.1 200 OK\r\n".to_vec(), b"X-Filler: a\r\n");
    assert_eq!(failure.map(|failure| failure.word()), Some("reply-malformed"));
    assert!(held < limits::REPLY_HEADER_BYTES);
}

#[test]
fn a_body_without_an_end_is_given_up_at_the_limit_even_if_nobody_reads_it() {
    let renewed = (renewal(), PROTOBUF, limits::REPLY_BODY_BYTES);
    for (operation, head, limit_bytes) in [renewed, (created(), JSON, limits::NODE_BODY_BYTES)] {
        let head = format!("{head}\r\nContent-Length: 1000000000\r\n\r\n").into_bytes();
        let (failure, held) = pour(&mut start(operation), head, &[b' '; 1000]);
        assert!(held <= 1000, "{held} bytes are held");
        assert_eq!(failure, Some(Failure::body_too_large(limit_bytes)));
    }
}

#[test]
fn a_chunk_without_an_end_is_given_up() {
    let head = format!("{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let (failure, held) = pour(&mut start(created()), format!("{head}1;").into_bytes(), &[b'a'; 100]);
    assert_eq!(failure.map(|failure| failure.word()), Some("reply-malformed"));
    assert!(held <= limits::REPLY_HEADER_BYTES + 100, "{held} bytes are held");
}

#[test]
fn a_body_nobody_reads_is_not_kept() {
    let mut exchange = start(Operation::CreateEvent { body: "{}".to_owned() });
    let mut input = format!("{PROTOBUF}\r\nContent-Length: 250000\r\n\r\n").into_bytes();
    input.resize(input.len() + 200_000, b' ');
    assert!(matches!(exchange.feed(&mut input), Ok(Progress::NeedMore)));
    assert_eq!(exchange.reply.unwrap().kept.capacity(), 0);
}

#[test]
fn a_redirect_is_told_with_its_target() {
    for code in [301, 302, 307, 308] {
        let reply =
            format!("HTTP/1.1 {code} Moved\r\nLocation: http://portal.example/login\r\nContent-Length: 0\r\n\r\n");
        let told = read(&renewal(), &reply).unwrap_err().to_string();
        assert!(told.starts_with("redirected to http://portal.example/login: "), "{told}");
    }
    let long = format!("HTTP/1.1 302 Found\r\nLocation: /{}\r\nContent-Length: 0\r\n\r\n", "x".repeat(5000));
    assert!(read(&renewal(), &long).unwrap_err().to_string().len() < 350);
}

/// What a reply of these lines and this body lacks; it must be none.
fn lacks(operation: &Operation, lines: &[&str], body: &str) -> String {
    let head = lines.join("\r\n");
    let read = read(operation, &with_length(&head, body));
    let failure = read.err().filter(|failure| failure.word() == "answer-unconfirmed");
    let Some(failure) = failure else { panic!("{head}\n{body}\nis an answer to {operation:?}") };
    let text = failure.to_string();
    text.split_once(") without ").unwrap().1.split_once(": not the API server's own word").unwrap().0.to_owned()
}

/// D14: of the first 200 to the last 599 nothing counts that the API server did not say.
#[test]
fn what_is_not_the_api_servers_own_word_is_no_answer() {
    const JSON: &str = "Content-Type: application/json";
    const HTML: &str = "Content-Type: text/html; charset=utf-8";
    const PROTOBUF: &str = "Content-Type: application/vnd.kubernetes.protobuf";
    const OURS: &str = "Audit-Id: AAAAAAAAAAAA";
    const ANOTHER: &str = "Audit-Id: 5bd5bcd9-40e6-4b1f-9e40-5a1de28e9f4d";
    const STATUS: &str = r#"{"kind":"Status","reason":"NotFound","message":"no"}"#;
    let event = || Operation::CreateEvent { body: "{}".to_owned() };
    let review = || Operation::ReviewAccess { body: "{}".to_owned() };
    let operations = || [created(), renewal(), event(), review(), Operation::ReadLease, Operation::ReadVersion];
    for operation in operations() {
        let asked = if matches!(operation, Operation::RenewLease { .. } | Operation::CreateEvent { .. }) {
            PROTOBUF
        } else {
            JSON
        };
        for ok in ["HTTP/1.1 200 OK", "HTTP/1.1 201 Created"] {
            assert_eq!(lacks(&operation, &[ok, HTML], "<html>Please log in</html>"), "an Audit-Id");
            assert_eq!(lacks(&operation, &[ok, asked], NODE), "an Audit-Id");
            assert_eq!(lacks(&operation, &[ok, asked, ANOTHER], NODE), "our Audit-ID", "it belongs to somebody else");
            assert_eq!(lacks(&operation, &[ok, asked, &OURS[..21]], NODE), "our Audit-ID", "it is cut");
            assert_eq!(lacks(&operation, &[ok, HTML, OURS], NODE), "the content type that was asked for");
            assert_eq!(lacks(&operation, &[ok, OURS], NODE), "the content type that was asked for");
            let other = if asked == JSON { PROTOBUF } else { JSON };
            assert_eq!(lacks(&operation, &[ok, other, OURS], NODE), "the content type that was asked for");
        }
        for code in [400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504] {
            let line = format!("HTTP/1.1 {code} Somehow");
            assert_eq!(lacks(&operation, &[&line, HTML], "<html>Forbidden</html>"), "an Audit-Id");
            assert_eq!(lacks(&operation, &[&line, JSON], STATUS), "an Audit-Id");
            for body in ["", "{}", "[]", "404 page not found\n", r#"{"error":"not found"}"#, r#"{"kind":"Node"}"#] {
                let audit_id = if code < 429 { OURS } else { ANOTHER };
                assert_eq!(lacks(&operation, &[&line, JSON, audit_id], body), "a Status", "{body}");
            }
        }
    }
}

/// `http.Error` and the like of `k8s.io/apiserver` 1.36: too busy (max-in-flight, priority and fairness), shutting down, a
/// panic, and a time-out, whose Status lacks its kind.
#[test]
fn what_the_api_server_says_in_its_trouble_is_patience_and_no_more() {
    let busy = "Too many requests, please try again later.";
    let going = "The apiserver is shutting down, please try again later.";
    let panic = "This request caused apiserver to panic. Look in the logs for details.";
    let late = r#"{"metadata":{},"status":"Failure","message":"Timeout","reason":"Timeout","code":504}"#;
    let after = |seconds| Class::After(Duration::from_secs(seconds));
    for (status, retry_after, body, class, message) in [
        ("429 Too Many Requests", "1", busy, after(1), busy),
        ("429 Too Many Requests", "5", going, after(5), going),
        ("500 Internal Server Error", "", panic, Class::Error, panic),
        ("504 Gateway Timeout", "", late, Class::Error, "Timeout"),
    ] {
        let head = |audit_id: &str| {
            let lines = format!("Content-Type: text/plain; charset=utf-8\r\nRetry-After: {retry_after}");
            format!("HTTP/1.1 {status}\r\nAudit-Id: {audit_id}\r\n{lines}")
        };
        let body = format!("{body}\n");
        let (answer, reusable) = read(&renewal(), &with_length(&head("AAAAAAAAAAAA"), &body)).unwrap();
        assert!(reusable, "its connection stays");
        let refusal = answer.result.unwrap_err();
        assert_eq!((refusal.class(), refusal.is_of_content()), (class, false), "{refusal}");
        assert!(refusal.to_string().ends_with(message), "{refusal}");
        // The same by somebody who does not know our Audit-ID.
        let failure = read(&renewal(), &with_length(&head("BBBBBBBBBBBB"), &body)).unwrap_err();
        assert_eq!(Refusal::Failed(failure).class(), Class::Unreachable);
    }
}

#[test]
fn parameters_of_a_content_type_and_its_case_make_no_difference() {
    let head = JSON.replace("application/json", "Application/JSON; charset=utf-8");
    assert_eq!(node_of(read(&created(), &with_length(&head, NODE)).unwrap().0).0, "n1");
}

#[test]
fn an_answer_that_is_not_the_object_asked_for_is_no_success() {
    for body in ["{}", r#"{"metadata":{"name":""}}"#, "[]", "null", "{\"metadata\":", ""] {
        let failure = read(&created(), &with_length(JSON, body)).unwrap_err();
        assert_eq!(failure.word(), "reply-not-json", "{body}");
    }
    assert_eq!(read(&Operation::ReadVersion, &with_length(JSON, "{}")).unwrap_err().word(), "reply-not-json");
}

#[test]
fn an_assertion_is_answered_with_metadata_only() {
    let operation = Operation::PatchStatus { body: "{}".to_owned(), answer: PatchAnswer::Metadata };
    let body = "k8s\0\n\x17\x12\x15PartialObjectMetadata\x12\x09\n\x07*\x02u12\x017";
    let (answer, _) = read(&operation, &with_length(PROTOBUF, body)).unwrap();
    let (uid, resource_version) = ("u1".to_owned(), "7".to_owned());
    let metadata = Document::Metadata { uid, resource_version, lease_duration_seconds: None, transitions: 0 };
    assert_eq!(answer.result, Ok(metadata));
    assert_eq!(read(&operation, &with_length(PROTOBUF, NODE)).unwrap_err().word(), "reply-not-json");
}

#[test]
fn of_the_metadata_of_a_long_node_the_beginning_is_enough() {
    // uid, version, and managedFields (17) of a megabyte; each part says how long it is.
    let part = |tag: &[u8], length: usize| {
        let byte = |shift: usize| (length >> shift & 0x7f) as u8;
        [tag, &[byte(0) | 0x80, byte(7) | 0x80, byte(14) | 0x80, byte(21)]].concat()
    };
    let fields = [b"*\x02u12\x017".to_vec(), part(b"\x8a\x01", 1 << 20), vec![b'x'; 1 << 20]].concat();
    let object = [part(b"\n", fields.len()), fields].concat();
    let body = [b"k8s\0\n\x17\x12\x15PartialObjectMetadata".to_vec(), part(b"\x12", object.len()), object].concat();
    let mut reply = format!("{PROTOBUF}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    reply.extend_from_slice(&body[..limits::METADATA_BODY_BYTES + 4096]);
    for operation in
        [Operation::ReadMetadata, Operation::PatchStatus { body: "{}".to_owned(), answer: PatchAnswer::Metadata }]
    {
        let Ok(Progress::Done { answer, reusable }) = start(operation).feed(&mut reply.clone()) else {
            panic!("no end")
        };
        let (uid, resource_version) = ("u1".to_owned(), "7".to_owned());
        let metadata = Document::Metadata { uid, resource_version, lease_duration_seconds: None, transitions: 0 };
        assert_eq!((answer.result, reusable), (Ok(metadata), false), "the rest is on its way");
    }
}

fn refusing(status: &str) -> String {
    // It need not be ours: what is refused proves nothing but that somebody of that kind refuses.
    format!("HTTP/1.1 {status}\r\nAudit-Id: 5bd5bcd9-40e6-4b1f-9e40-5a1de28e9f4d\r\nContent-Type: application/json")
}

#[test]
fn a_refusal_keeps_reason_message_and_retry_after() {
    let body = r#"{"kind":"Status","reason":"TooManyRequests","message":"later"}"#;
    let head = refusing("429 Too Many Requests") + "\r\nRetry-After: 7";
    let (answer, reusable) = read(&renewal(), &with_length(&head, body)).unwrap();
    assert!(reusable, "a refusal is an answer");
    assert_eq!(answer.result.clone().unwrap_err().class(), Class::After(Duration::from_secs(7)));
    let status = refused(answer);
    assert_eq!((status.reason.as_str(), status.message.as_str()), ("TooManyRequests", "later"));
}

#[test]
fn a_retry_after_that_is_no_number_of_seconds_is_none() {
    for value in ["soon", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", ""] {
        let head = format!("{}\r\nRetry-After: {value}", refusing("503 Unavailable"));
        let body = r#"{"kind":"Status"}"#;
        assert_eq!(refused(read(&renewal(), &with_length(&head, body)).unwrap().0).retry_after, None, "{value}");
    }
}

#[test]
fn a_refusal_in_protobuf_is_understood() {
    let body = b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x12\x25\x1a\x16leases \"n1\" not found!\"\x08NotFound0\x94\x03";
    let head = refusing("404 Not Found").replace("json", "vnd.kubernetes.protobuf");
    let mut reply = format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    reply.extend_from_slice(body);
    let (answer, _) = feed(renewal(), &reply, 3).unwrap();
    let status = refused(answer);
    assert_eq!((status.reason.as_str(), status.message.as_str()), ("NotFound", "leases \"n1\" not found!"));
}

#[test]
fn a_refusal_of_something_that_is_no_api_server_says_so() {
    let page = with_length("HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html", "<html>nginx</html>");
    let text = read(&renewal(), &page).unwrap_err().to_string();
    assert!(text.starts_with("answered 502 (text/html) without an Audit-Id: not the API server's own word;"), "{text}");
}

#[test]
fn a_message_without_an_end_is_cut() {
    let text = "é".repeat(50_000);
    let body = format!(r#"{{"kind":"Status","message":"{text}","reason":"{text}"}}"#);
    let head = refusing("500 Internal Server Error");
    let status = refused(read(&renewal(), &with_length(&head, &body)).unwrap().0);
    assert_eq!([status.message, status.reason].map(|text| text.chars().count()), [limits::FOREIGN_TEXT_CHARS; 2]);
    let wrong = with_length(JSON, &format!(r#"{{"gitVersion":{{"{text}":1}}}}"#));
    let told = read(&Operation::ReadVersion, &wrong).unwrap_err().to_string();
    assert!(told.len() < 1000, "{told}");
    let unknown = with_length(JSON, &format!(r#"{{"metadata":"{text}"}}"#));
    let told = read(&created(), &unknown).unwrap_err().to_string();
    assert!(told.contains("invalid type") && told.len() < 1000, "{told}");
}

#[test]
fn the_servers_clock_comes_with_every_answer() {
    let date = "Date: Thu, 01 Jan 2026 00:00:00 GMT";
    let at = |head: &str| read(&renewal(), &with_length(head, r#"{"kind":"Status"}"#)).unwrap().0.date;
    assert_eq!(at(&format!("{PROTOBUF}\r\n{date}")), Some(Wall::from_unix_seconds(1_767_225_600)));
    let refusal = refusing("403 Forbidden");
    assert_eq!(at(&format!("{refusal}\r\n{date}")), Some(Wall::from_unix_seconds(1_767_225_600)));
    assert_eq!(at(&format!("{PROTOBUF}\r\nDate: yesterday")), None);
}

#[test]
fn what_is_not_http_is_malformed() {
    for reply in ["SSH-2.0-OpenSSH_9.2\r\n\r\n", "\0\0\0\0\0\0\0\0\r\n\r\n", "HTTP/1.1 abc OK\r\n\r\n"] {
        let failure = read(&renewal(), reply).unwrap_err();
        assert_eq!(failure.word(), "reply-malformed", "{reply:?}");
    }
}

#[test]
fn no_bytes_make_an_exchange_panic() {
    let reply = with_length(JSON, NODE).into_bytes();
    for place in 0..reply.len() {
        for bit in 0..8 {
            let mut bytes = reply.clone();
            bytes[place] ^= 1 << bit;
            let mut exchange = start(created());
            let mut input = bytes;
            if let Ok(Progress::NeedMore) = exchange.feed(&mut input) {
                assert!(exchange.received_bytes() <= reply.len());
                let _ = exchange.end_of_stream();
            }
        }
    }
}

#[test]
fn a_supervisor_is_shown_who_asks_and_knows_of_no_audit_id() {
    let headers = "k3s-Node-Name: n1\r\n".to_owned().into();
    let operation = Operation::AskSupervisor(SupervisorRequest { path: "/p".to_owned(), headers, body: vec![0xff] });
    let bytes = Exchange::start(operation.clone(), &target(), audit_id()).0;
    assert!(bytes.ends_with(b"\r\ncontent-length: 1\r\nk3s-Node-Name: n1\r\n\r\n\xff"), "{}", bytes.escape_ascii());
    let (answer, _) = read(&operation, &with_length("HTTP/1.1 200 OK\r\nContent-Type: text/plain", "PEM")).unwrap();
    assert_eq!(answer.result, Ok(Document::HandedOut(b"PEM".to_vec())));
    let (answer, _) = read(&operation, &with_length("HTTP/1.1 403 Forbidden", "no")).unwrap();
    assert_eq!((refused(answer.clone()).code, refused(answer).message), (403, "no".to_owned()));
}
