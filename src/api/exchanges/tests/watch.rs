//! Turns a watch loose on a server that goes on, ends, refuses and falls silent, beside exchanges that end.

use super::*;

const EVENTS: &str = "application/json";

/// An event that says `version`.
fn event(version: &str) -> Vec<u8> {
    let object = format!(r#"{{"kind":"Table","metadata":{{"resourceVersion":"{version}"}},"rows":[]}}"#);
    (format!(r#"{{"type":"MODIFIED","object":{object}}}"#) + "\n").into_bytes()
}

fn seen(version: &str, is_next: bool) -> Seen {
    Seen::Version { resource_version: version.to_owned(), is_next }
}

/// A watch that the server has begun.
fn watching(talk: &mut Talk) -> (u64, u32) {
    let (number, request, said) = talk.ask(&Operation::WatchNode);
    let opened = Said::Window { stream: stream_of(&request), bytes: limits::WATCH_WINDOW_BYTES };
    assert!(said.contains(&opened), "{said:?}");
    assert!(!talk.ours.goes_on(number));
    let head = [(":status", "200"), ("audit-id", request.field("audit-id")), ("content-type", EVENTS)];
    talk.hear(&server::headers(stream_of(&request), &head, false));
    assert!(talk.ours.goes_on(number) && !talk.ours.has_seen(number));
    (number, stream_of(&request))
}

#[test]
fn a_watch_tells_of_each_event_and_others_are_answered_beside_it_until_it_ends() {
    let mut talk = Talk::new(true);
    let (watch, stream) = watching(&mut talk);
    for version in ["7", "8"] {
        talk.hear(&server::data(stream, &event(version), false));
        let (told, event_bytes, bytes) = talk.ours.take_seen(watch).unwrap();
        assert_eq!((told, event_bytes), (seen(version, true), event(version).len()));
        assert!(bytes > event(version).len());
        assert_eq!(talk.ours.take_seen(watch), None, "once");
        let (renewed_number, request, _) = talk.ask(&renewal());
        renewed(&mut talk, &request, b"");
        assert!(talk.end(renewed_number).unwrap().is_ok());
    }
    talk.hear(&server::data(stream, &[event("9"), event("10")].concat(), true));
    assert_eq!(talk.ours.take_seen(watch).map(|(seen, ..)| seen), Some(seen("10", false)), "the last of several");
    assert_eq!(talk.end(watch).unwrap().unwrap(), Ok(Document::Nothing));
}

#[test]
fn what_a_watch_brought_is_asked_for_again_and_has_no_end() {
    let mut talk = Talk::new(true);
    let (watch, stream) = watching(&mut talk);
    let many = event("7").repeat(100);
    let (mut sent_bytes, mut windows_bytes) = (0, u64::from(limits::WATCH_WINDOW_BYTES));
    while sent_bytes < 2 * limits::EXCHANGE_BYTES as u64 {
        talk.hear(&server::data(stream, &many, false));
        sent_bytes += many.len() as u64;
        for said in talk.said() {
            match said {
                Said::Window { stream: of, bytes } if of == stream => windows_bytes += u64::from(bytes),
                _ => {}
            }
        }
        assert!(windows_bytes - sent_bytes <= u64::from(limits::WATCH_WINDOW_BYTES));
        assert_eq!(talk.ours.take_seen(watch).map(|(seen, ..)| seen), Some(seen("7", false)));
    }
    assert!(!talk.ours.has_ended(watch) && talk.ours.has_room());
}

#[test]
fn a_watch_that_is_given_up_ends_nothing_else_and_silence_is_found_out_by_what_has_an_answer() {
    let mut talk = Talk::new(true);
    for begins in [false, true] {
        let watch = match begins {
            true => watching(&mut talk).0,
            false => talk.ask(&Operation::WatchNode).0,
        };
        talk.ours.give_up(watch);
        assert!(talk.ours.has_room() && !talk.ours.is_broken());
    }
    assert_eq!(talk.said(), [], "nothing is sent for its sake");
    let (watch, stream) = watching(&mut talk);
    let (number, _, _) = talk.ask(&renewal());
    talk.hear(&server::data(stream, &event("7"), false));
    talk.ours.give_up(number);
    assert!(talk.ours.is_broken(), "an event is no answer: somebody on the way may have kept it");
    assert_eq!(talk.failure(watch).0, "connection-broken");
}

#[test]
fn a_watch_that_is_refused_or_says_something_else_ends_alone() {
    let mut talk = Talk::new(true);
    let (watch, request, _) = talk.ask(&Operation::WatchNode);
    talk.hear(&server::answer(&request, "403", JSON, br#"{"kind":"Status","reason":"Forbidden","message":"no"}"#));
    let refusal = talk.end(watch).unwrap().unwrap().unwrap_err();
    assert_eq!((refusal.class(), refusal.to_string().as_str()), (Class::Rights, "server answered 403 Forbidden: no"));
    let (watch, stream) = watching(&mut talk);
    for part in [limits::WATCH_EVENT_BYTES, 1] {
        talk.hear(&server::data(stream, &vec![b' '; part], false));
    }
    let refusal = talk.end(watch).unwrap().unwrap().unwrap_err();
    assert_eq!(refusal.word(), "event-too-large");
    let (_, _, said) = talk.ask(&renewal());
    assert!(said.contains(&Said::Reset { stream, code: CANCEL }), "{said:?}");
}

#[test]
fn a_watch_goes_over_http2_alone_and_leaves_room_for_everything_else() {
    let talk = Talk::new(true);
    assert!(talk.ours.has_room_beside_a_watch(limits::HTTP2_STREAMS - 1));
    assert!(!talk.ours.has_room_beside_a_watch(limits::HTTP2_STREAMS));
    let mut few = Talk::new(true);
    let at_most_four = [0, 3, 0, 0, 0, 4];
    few.hear(&server::frame(4, 0, 0, &at_most_four));
    assert!(few.ours.has_room_beside_a_watch(3) && !few.ours.has_room_beside_a_watch(4));
    assert!(!Exchanges::new(false, true, AuditId::new(0)).has_room_beside_a_watch(0));
}
