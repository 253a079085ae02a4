//! Turns several exchanges of one connection loose on a server that answers, hangs, resets and leaves, over HTTP/2; those over
//! HTTP/1.1 are in `io::pool::tests` and `api::exchange::tests`.

mod watch;

use super::*;
use crate::api::http2_client::{self as server, CANCEL, Client, REFUSED_STREAM, Said};
use crate::api::{Class, Document, PatchAnswer, Refusal};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const VERSION: &[u8] = br#"{"gitVersion":"v1.36.3"}"#;

/// A connection, and what its server has heard.
struct Talk {
    ours: Exchanges,
    client: Client,
}

fn target() -> Target {
    Target {
        authority: "api.example:6443".to_owned(),
        path_prefix: String::new(),
        node_name: "n1".to_owned(),
        bearer_token: None,
    }
}

fn renewal() -> Operation {
    Operation::RenewLease { body: r#"{"spec":{}}"#.to_owned(), answer: PatchAnswer::Nothing }
}

impl Talk {
    fn new(saves_content: bool) -> Talk {
        let mut talk = Talk { ours: Exchanges::new(true, saves_content, AuditId::new(0)), client: Client::default() };
        talk.hear(&server::settings());
        talk
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.ours.receive(bytes.len(), &mut bytes.to_vec());
    }

    /// What the server reads of all that is sent now.
    fn said(&mut self) -> Vec<Said> {
        let mut bytes = Vec::new();
        if self.ours.has_output() {
            self.ours.take_output(&mut bytes);
        }
        self.client.read(&bytes)
    }

    /// Begins an exchange; the request as the server reads it, and what came before it.
    fn ask(&mut self, operation: &Operation) -> (u64, Said, Vec<Said>) {
        let number = self.ours.begin(operation, &target()).unwrap();
        let mut said = self.said();
        let place = said.iter().position(|one| matches!(one, Said::Request { .. })).unwrap();
        let after = said.split_off(place);
        let [request, after @ ..] = &after[..] else { panic!("no request") };
        said.extend_from_slice(after);
        (number, request.clone(), said)
    }

    fn end(&mut self, number: u64) -> Option<Result<Result<Document, Refusal>, NoAnswer>> {
        self.ours.take_end(number).map(|(end, _)| end.map(|answer| answer.result))
    }

    /// The end of an exchange that failed: its word, and whether the server has seen it.
    fn failure(&mut self, number: u64) -> (&'static str, bool) {
        let NoAnswer { failure, is_unseen } = self.end(number).unwrap().unwrap_err();
        (failure.word(), is_unseen)
    }
}

fn version() -> Document {
    Document::Version("v1.36.3".to_owned())
}

fn stream_of(request: &Said) -> u32 {
    let Said::Request { stream, .. } = request else { panic!("{request:?}") };
    *stream
}

#[test]
fn of_a_success_that_is_enough_no_content_is_let_through_and_the_reset_leaves_with_the_next_request() {
    let mut talk = Talk::new(true);
    let (number, first, before) = talk.ask(&renewal());
    let zero_window = (4, 0);
    assert!(matches!(&before[0], Said::Settings(settings) if settings.contains(&zero_window)), "{before:?}");
    assert!(!before.iter().any(|said| matches!(said, Said::Window { stream: 1.., .. })), "{before:?}");
    let head = [(":status", "200"), ("audit-id", first.field("audit-id")), ("content-type", PROTOBUF)];
    talk.hear(&server::headers(stream_of(&first), &head, false));
    assert_eq!(talk.end(number).unwrap().unwrap(), Ok(Document::Nothing));
    assert_eq!(talk.said(), [], "nothing leaves by itself");
    let (_, second, before) = talk.ask(&renewal());
    assert_eq!(before, [Said::Reset { stream: stream_of(&first), code: CANCEL }]);
    assert!(stream_of(&second) > stream_of(&first));
}

#[test]
fn what_is_read_has_a_window_from_the_beginning_and_a_refusal_when_it_comes() {
    let mut talk = Talk::new(true);
    let (number, request, after) = talk.ask(&Operation::ReadVersion);
    let stream = stream_of(&request);
    let opened =
        |said: &[Said]| said.iter().any(|said| matches!(said, Said::Window { stream: of, .. } if *of == stream));
    assert!(opened(&after), "{after:?}");
    talk.hear(&server::answer(&request, "200", JSON, VERSION));
    assert_eq!(talk.end(number).unwrap().unwrap(), Ok(version()));
    let (number, request, _) = talk.ask(&renewal());
    let stream = stream_of(&request);
    let body = br#"{"kind":"Status","reason":"Forbidden","message":"no"}"#;
    let whole = server::answer(&request, "403", JSON, body);
    let head_bytes = whole.len() - body.len() - 9;
    talk.hear(&whole[..head_bytes]);
    assert!(talk.end(number).is_none(), "it may explain itself");
    let said = talk.said();
    assert!(said.iter().any(|said| matches!(said, Said::Window { stream: of, .. } if *of == stream)), "{said:?}");
    talk.hear(&whole[head_bytes..]);
    let refusal = talk.end(number).unwrap().unwrap().unwrap_err();
    assert_eq!((refusal.class(), refusal.to_string().as_str()), (Class::Rights, "server answered 403 Forbidden: no"));
}

/// The metadata of a Node in protobuf, as long as this.
fn metadata(version: &str, filler_bytes: usize) -> Vec<u8> {
    let part = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8], bytes].concat();
    let filler = [&[0x8a, 1][..], &part(0, &vec![b'x'; filler_bytes])[1..]].concat();
    let fields = [part(0x0a, b"n1"), part(0x2a, b"u1"), part(0x32, version.as_bytes()), filler].concat();
    let kind = part(0x0a, &part(0x12, b"PartialObjectMetadata"));
    [b"k8s\0".to_vec(), kind, part(0x12, &part(0x0a, &fields))].concat()
}

#[test]
fn of_the_answer_to_a_report_the_version_is_let_through_and_the_rest_is_reset_at_once() {
    let report = Operation::PatchStatus { body: "{}".to_owned(), answer: PatchAnswer::Metadata };
    let (uid, resource_version) = ("u1".to_owned(), "7".to_owned());
    let known = Document::Metadata { uid, resource_version, lease_duration_seconds: None, transitions: 0 };
    let beginning_bytes = limits::METADATA_BEGINNING_BYTES as usize + "n1".len();
    for (version, filler_bytes, frames) in [("7", 900, 1), ("7", 900, 3), ("7", 9, 1), ("", 900, 1)] {
        let mut talk = Talk::new(true);
        let (number, request, after) = talk.ask(&report);
        let stream = stream_of(&request);
        assert!(after.contains(&Said::Window { stream, bytes: beginning_bytes as u32 }), "{after:?}");
        let head = [(":status", "200"), ("audit-id", request.field("audit-id")), ("content-type", PROTOBUF)];
        talk.hear(&server::headers(stream, &head, false));
        let whole = metadata(version, filler_bytes);
        let sent = &whole[..whole.len().min(beginning_bytes)];
        let is_whole = sent.len() == whole.len();
        for (place, frame) in sent.chunks(sent.len().div_ceil(frames)).enumerate() {
            assert!(talk.end(number).is_none());
            talk.hear(&server::data(stream, frame, is_whole && place + 1 == frames));
        }
        match version {
            "" => assert!(talk.end(number).unwrap().is_err(), "nobody knows what was written"),
            _ => assert_eq!(talk.end(number).unwrap().unwrap(), Ok(known.clone())),
        }
        assert_eq!(talk.said().contains(&Said::Reset { stream, code: CANCEL }), !is_whole);
    }
    let mut talk = Talk::new(true);
    let (number, request, _) = talk.ask(&report);
    let message = "others have written ".repeat(20);
    let body = format!(r#"{{"kind":"Status","reason":"Conflict","message":"{message}"}}"#);
    let head = [(":status", "409"), ("audit-id", request.field("audit-id")), ("content-type", JSON)];
    talk.hear(&server::headers(stream_of(&request), &head, false));
    assert!(opens(&talk.said(), &request), "a refusal is read whole");
    talk.hear(&server::data(stream_of(&request), body.as_bytes(), true));
    assert_eq!(talk.end(number).unwrap().unwrap().unwrap_err().class(), Class::Conflict);
}

#[test]
fn without_the_zero_window_everything_is_read_to_its_end() {
    let mut talk = Talk::new(false);
    let (number, request, _) = talk.ask(&renewal());
    let whole = server::answer(&request, "200", PROTOBUF, b"anything");
    talk.hear(&whole[..whole.len() - 1]);
    assert!(talk.end(number).is_none());
    talk.hear(&whole[whole.len() - 1..]);
    assert_eq!(talk.end(number).unwrap().unwrap(), Ok(Document::Nothing));
    assert!(talk.ask(&renewal()).2.iter().all(|said| !matches!(said, Said::Reset { .. })));
}

#[test]
fn a_head_that_came_along_with_what_was_said_of_another_stream_does_not_say_that_none_is_held_back() {
    let head = |request: &Said| {
        let fields = [(":status", "200"), ("audit-id", request.field("audit-id")), ("content-type", PROTOBUF)];
        server::headers(stream_of(request), &fields, false)
    };
    for is_first in [true, false] {
        let mut talk = Talk::new(true);
        let (_, other, _) = talk.ask(&Operation::ReadVersion);
        let (number, request, _) = talk.ask(&renewal());
        let whole = server::answer(&other, "200", JSON, VERSION);
        let both = if is_first { [head(&request), whole] } else { [whole, head(&request)] };
        talk.hear(&both.concat());
        assert_eq!(talk.end(number).unwrap().unwrap(), Ok(Document::Nothing));
        let (number, request, _) = talk.ask(&renewal());
        assert!(!talk.ours.may_lie_unread(number), "its head may be held back");
        talk.hear(&head(&request));
        assert_eq!(talk.end(number).unwrap().unwrap(), Ok(Document::Nothing));
        let (number, ..) = talk.ask(&renewal());
        assert!(talk.ours.may_lie_unread(number), "the one before came by itself");
    }
}

#[test]
fn a_head_that_came_when_more_was_asked_does_not_say_that_none_is_held_back() {
    let mut talk = Talk::new(true);
    let (_, first, _) = talk.ask(&renewal());
    let (number, ..) = talk.ask(&renewal());
    renewed(&mut talk, &first, b"");
    assert!(!talk.ours.may_lie_unread(number));
}

/// A success of a renewal, whose content its stream has no window for unless `content` is some.
fn renewed(talk: &mut Talk, request: &Said, content: &[u8]) {
    let head = [(":status", "200"), ("audit-id", request.field("audit-id")), ("content-type", PROTOBUF)];
    talk.hear(&server::headers(stream_of(request), &head, false));
    if !content.is_empty() {
        talk.hear(&server::data(stream_of(request), content, true));
    }
}

fn opens(said: &[Said], request: &Said) -> bool {
    said.iter().any(|said| matches!(said, Said::Window { stream, .. } if *stream == stream_of(request)))
}

#[test]
fn an_answer_that_takes_long_may_bring_content_and_after_two_of_them_each_may_from_the_beginning() {
    let mut talk = Talk::new(true);
    for late in 1..=2 {
        let (number, request, after) = talk.ask(&renewal());
        assert!(talk.ours.has_narrow_window(number) && !opens(&after, &request) && !talk.ours.holds_answers_back());
        talk.ours.open_window(number);
        assert!(opens(&talk.said(), &request) && !talk.ours.has_narrow_window(number));
        talk.ours.open_window(number);
        assert_eq!(talk.said(), [], "once");
        renewed(&mut talk, &request, b"");
        assert_eq!(talk.end(number).unwrap().unwrap(), Ok(Document::Nothing));
        assert_eq!(talk.ours.holds_answers_back(), late == 2);
    }
    for _ in 0..2 {
        let (number, request, after) = talk.ask(&renewal());
        assert!(!talk.ours.has_narrow_window(number) && opens(&after, &request), "{after:?}");
        renewed(&mut talk, &request, b"");
        assert!(talk.end(number).is_none(), "there is content to come");
        talk.hear(&server::data(stream_of(&request), b"anything", true));
        assert_eq!(talk.end(number).unwrap().unwrap(), Ok(Document::Nothing));
        assert!(talk.ours.holds_answers_back());
    }
}

#[test]
fn who_has_answered_without_a_window_is_slow_when_its_answers_take_long() {
    let mut talk = Talk::new(true);
    for is_slow in [true, false, true, true, true] {
        let (number, request, after) = talk.ask(&renewal());
        assert!(!opens(&after, &request));
        if is_slow {
            talk.ours.open_window(number);
        }
        // Its content may be on its way when nobody waits for it any more.
        renewed(&mut talk, &request, if is_slow { b"anything" } else { b"" });
        assert_eq!(talk.end(number).unwrap().unwrap(), Ok(Document::Nothing));
        assert!(!talk.ours.holds_answers_back() && !talk.ours.is_over());
    }
}

#[test]
fn a_window_that_opens_late_brings_a_refusal_with_its_reason_as_well() {
    let mut talk = Talk::new(true);
    let (number, request, _) = talk.ask(&renewal());
    talk.ours.open_window(number);
    talk.hear(&server::answer(&request, "403", JSON, br#"{"kind":"Status","reason":"Forbidden","message":"no"}"#));
    assert_eq!(talk.end(number).unwrap().unwrap().unwrap_err().to_string(), "server answered 403 Forbidden: no");
    let mut plain = Exchanges::new(false, true, AuditId::new(0));
    let number = plain.begin(&renewal(), &target()).unwrap();
    assert!(!plain.has_narrow_window(number), "HTTP/1.1 has none");
}

#[test]
fn answers_come_in_any_order_and_each_to_its_own_question() {
    let mut talk = Talk::new(true);
    let asked: Vec<_> = (0..3).map(|_| talk.ask(&Operation::ReadVersion)).collect();
    for (place, (number, request, _)) in asked.iter().enumerate().rev() {
        let body = format!(r#"{{"gitVersion":"v{place}"}}"#);
        talk.hear(&server::answer(request, "200", JSON, body.as_bytes()));
        assert_eq!(talk.end(*number).unwrap().unwrap(), Ok(Document::Version(format!("v{place}"))));
    }
    assert!(talk.ours.has_room());
}

/// D14 over HTTP/2.
#[test]
fn a_strangers_answer_is_none_and_its_connection_is_not_used_again() {
    let ours = "AAAAAAAAAAAA";
    for (status, audit_id, content_type) in
        [("200", "", PROTOBUF), ("200", "another", PROTOBUF), ("200", ours, "text/html"), ("404", "", JSON)]
    {
        let mut talk = Talk::new(true);
        let (number, request, _) = talk.ask(&renewal());
        let (other, other_request, _) = talk.ask(&Operation::ReadVersion);
        let mut head = vec![(":status", status), ("content-type", content_type)];
        head.extend((!audit_id.is_empty()).then_some(("audit-id", audit_id)));
        talk.hear(&server::headers(stream_of(&request), &head, false));
        assert_eq!(talk.failure(number), ("answer-unconfirmed", false), "{head:?}");
        assert!(talk.ours.is_over() && !talk.ours.has_room());
        talk.hear(&server::answer(&other_request, "200", JSON, VERSION));
        assert_eq!(talk.end(other).unwrap().unwrap(), Ok(version()), "what is under way goes on");
    }
    let mut talk = Talk::new(true);
    let (number, request, _) = talk.ask(&renewal());
    talk.hear(&server::headers(stream_of(&request), &[(":status", "302"), ("location", "http://portal/")], true));
    assert_eq!(talk.failure(number), ("redirected", false));
}

#[test]
fn a_request_that_the_server_did_not_look_at_may_be_sent_again_and_one_that_it_ended_may_not() {
    let mut talk = Talk::new(true);
    let (number, request, _) = talk.ask(&renewal());
    talk.hear(&server::reset(stream_of(&request), REFUSED_STREAM));
    assert_eq!(talk.failure(number), ("stream-reset", true));
    let (number, request, _) = talk.ask(&renewal());
    talk.hear(&server::reset(stream_of(&request), 2));
    assert_eq!(talk.failure(number), ("stream-reset", false));
    assert!(talk.ours.has_room(), "the connection itself is well");
}

#[test]
fn a_server_that_leaves_answers_what_it_has_taken_and_the_rest_may_be_sent_again() {
    let mut talk = Talk::new(true);
    let (first, first_request, _) = talk.ask(&Operation::ReadVersion);
    let (second, _, _) = talk.ask(&Operation::ReadVersion);
    talk.hear(&server::go_away(stream_of(&first_request), 0));
    assert!(talk.ours.is_over());
    assert_eq!(talk.failure(second), ("stream-reset", true));
    assert!(talk.end(first).is_none());
    talk.hear(&server::answer(&first_request, "200", JSON, VERSION));
    assert_eq!(talk.end(first).unwrap().unwrap(), Ok(version()));
    assert!(talk.ours.begin(&renewal(), &target()).is_err_and(|full| full.is_unseen));
}

#[test]
fn a_request_that_is_given_up_ends_its_stream_and_a_silent_connection_with_all_that_is_on_it() {
    let mut talk = Talk::new(true);
    let (hung, hung_request, _) = talk.ask(&Operation::ReadVersion);
    let (number, request, _) = talk.ask(&Operation::ReadVersion);
    talk.hear(&server::answer(&request, "200", JSON, VERSION));
    assert_eq!(talk.end(number).unwrap().unwrap(), Ok(version()));
    talk.ours.give_up(hung);
    assert!(talk.ours.has_room(), "something was heard meanwhile");
    let (hung, _, before) = talk.ask(&Operation::ReadVersion);
    assert!(before.contains(&Said::Reset { stream: stream_of(&hung_request), code: CANCEL }), "{before:?}");
    let (other, _, _) = talk.ask(&Operation::ReadVersion);
    talk.ours.give_up(hung);
    assert!(talk.ours.is_over() && talk.ours.is_broken());
    assert_eq!(talk.failure(other), ("connection-broken", true), "nobody knows whether the server has it");
}

#[test]
fn a_reply_cut_at_every_byte_is_an_unfinished_answer() {
    let head = |talk: &mut Talk| {
        let (number, request, _) = talk.ask(&Operation::ReadVersion);
        (number, server::answer(&request, "200", JSON, VERSION))
    };
    let length = head(&mut Talk::new(true)).1.len();
    for (cut, is_meant) in (0..length).flat_map(|cut| [(cut, false), (cut, true)]) {
        let mut talk = Talk::new(true);
        let (number, whole) = head(&mut talk);
        whole[..cut].iter().for_each(|byte| talk.hear(&[*byte]));
        talk.ours.end_of_stream(is_meant);
        let head_bytes = length - VERSION.len() - 9;
        assert_eq!(talk.failure(number), ("connection-closed", cut < head_bytes), "cut after {cut} bytes");
    }
}

#[test]
fn whatever_has_no_end_is_given_up_at_a_limit() {
    let mut talk = Talk::new(true);
    let (number, request, _) = talk.ask(&Operation::ReadVersion);
    let stream = stream_of(&request);
    let fields = [(":status", "200"), ("audit-id", "AAAAAAAAAAAA"), ("content-type", JSON)];
    talk.hear(&server::headers(stream, &fields, false));
    let piece = server::data(stream, &[b' '; 16 * 1024], false);
    let mut poured_bytes = 0;
    while !talk.ours.has_ended(number) {
        talk.hear(&piece);
        talk.said();
        poured_bytes += piece.len();
        assert!(poured_bytes < 2 * limits::REPLY_BODY_BYTES, "a body without an end");
    }
    assert_eq!(talk.failure(number), ("body-too-large", false));
    let mut talk = Talk::new(true);
    let (number, _, _) = talk.ask(&Operation::ReadVersion);
    let piece = server::ping().repeat(1000);
    let mut poured_bytes = 0;
    while !talk.ours.has_ended(number) {
        talk.hear(&piece);
        talk.said();
        poured_bytes += piece.len();
        assert!(poured_bytes < 2 * limits::EXCHANGE_BYTES, "pings without an end");
    }
    assert!(talk.ours.is_over());
}

#[test]
fn a_secret_of_a_supervisor_is_in_no_table() {
    let mut talk = Talk::new(true);
    let request = crate::api::SupervisorRequest {
        path: "/v1-k3s/config".to_owned(),
        headers: "k3s-Node-Name: n1\r\nk3s-Node-Password: secret\r\n".to_owned().into(),
        body: Vec::new(),
    };
    let (number, asked, _) = talk.ask(&Operation::AskSupervisor(request));
    assert_eq!((asked.field("k3s-node-name"), asked.field("k3s-node-password")), ("n1", "secret"));
    assert_eq!((asked.field(":method"), asked.field(":path")), ("GET", "/v1-k3s/config"));
    talk.hear(&server::answer(&asked, "200", "text/plain", b"PEM"));
    assert_eq!(talk.end(number).unwrap().unwrap(), Ok(Document::HandedOut(b"PEM".to_vec())));
}

#[test]
fn from_the_second_renewal_on_a_request_is_a_few_bytes_besides_its_body() {
    let mut talk = Talk::new(true);
    let mut lengths = Vec::new();
    for _ in 0..3 {
        let number = talk.ours.begin(&renewal(), &target()).unwrap();
        let mut bytes = Vec::new();
        talk.ours.take_output(&mut bytes);
        lengths.push(bytes.len());
        let said = talk.client.read(&bytes);
        let request = said.iter().find(|said| matches!(said, Said::Request { .. })).unwrap();
        let head = [(":status", "200"), ("audit-id", request.field("audit-id")), ("content-type", PROTOBUF)];
        talk.hear(&server::headers(stream_of(request), &head, false));
        assert_eq!(talk.end(number).unwrap().unwrap(), Ok(Document::Nothing));
    }
    let body_bytes = r#"{"spec":{}}"#.len();
    // RST_STREAM, the heads of HEADERS and DATA, eight fields of one byte each.
    assert_eq!(lengths[2], 13 + 9 + 8 + 9 + body_bytes, "{lengths:?}");
}
