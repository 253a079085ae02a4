//! One connection to a bus, message by message; streams cut at every byte.

use super::super::message::samples::{Value, message};
use super::*;

const OK: &[u8] = b"OK 1234deadbeef1234deadbeef1234dead\r\nAGREE_UNIX_FD\r\n";

fn answer(is_big: bool, kind: u8, serial: u32, more: Vec<(u8, &str, Value<'_>)>, body: &[Value<'_>]) -> Vec<u8> {
    let mut fields = vec![(5, "u", Value::Number(serial)), (7, "s", Value::Text(":1.2"))];
    fields.extend(more);
    message(is_big, kind, &fields, body)
}

fn locked(is_big: bool, serial: u32) -> Vec<u8> {
    let more = vec![(8, "g", Value::Signature("h")), (9, "u", Value::Number(1))];
    answer(is_big, RETURN, serial, more, &[Value::Number(0)])
}

fn failed(serial: u32, name: &str, text: &str) -> Vec<u8> {
    let more = vec![(4, "s", Value::Text(name)), (8, "g", Value::Signature("s"))];
    answer(false, ERROR, serial, more, &[Value::Text(text)])
}

fn signal_to<'a>(destination: Option<&'a str>, member: &'a str, signature: &'a str, body: &[Value<'_>]) -> Vec<u8> {
    let mut fields = vec![
        (1, "o", Value::Text(LOGIND_PATH)),
        (2, "s", Value::Text(MANAGER)),
        (3, "s", Value::Text(member)),
        (7, "s", Value::Text(":1.3")),
        (8, "g", Value::Signature(signature)),
    ];
    fields.extend(destination.map(|name| (6, "s", Value::Text(name))));
    message(false, SIGNAL, &fields, body)
}

fn signal(goes_down: bool) -> Vec<u8> {
    signal_to(None, WITHOUT_KIND, "b", &[Value::Number(u32::from(goes_down))])
}

fn signal_with(goes_down: bool, entries: &[(&str, &str)]) -> Vec<u8> {
    signal_to(None, WITH_KIND, "ba{sv}", &[Value::Number(u32::from(goes_down)), Value::Entries(entries)])
}

/// A client of this process's beginning, and what comes of these bytes in pieces of that size.
fn heard_in(bytes: &[u8], step: usize) -> (Vec<Taken>, Option<Error>) {
    let (mut client, _) = Client::new(0);
    let mut all = Vec::new();
    for part in [OK, bytes].concat().chunks(step) {
        client.received(part);
        loop {
            match client.take() {
                Ok(Some(taken)) => all.push(taken),
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            }
        }
    }
    (all, None)
}

fn events(bytes: &[u8]) -> Vec<Event> {
    let (all, error) = heard_in(bytes, usize::MAX);
    assert_eq!(error, None);
    all.into_iter().filter_map(|taken| taken.event).collect()
}

#[test]
fn the_greeting_is_what_was_measured() {
    let (mut client, bytes) = Client::new(0);
    let lines = b"\0AUTH EXTERNAL 30\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n";
    assert!(bytes.starts_with(lines));
    assert!(Client::new(1000).1.starts_with(b"\0AUTH EXTERNAL 31303030\r\n"));
    let mut rest = &bytes[lines.len()..];
    let mut messages = Vec::new();
    while let Some(length) = length_of(rest).unwrap() {
        messages.push(&rest[..length]);
        rest = &rest[length..];
    }
    let sizes: Vec<usize> = messages.iter().map(|message| message.len()).collect();
    assert_eq!(sizes, [128, 296, 308, 242]);
    let mut inhibit =
        b"l\x01\0\x01\x5a\0\0\0\x04\0\0\0\x82\0\0\0\x01\x01o\0\x17\0\0\0/org/freedesktop/login1\0".to_vec();
    inhibit.extend(
        b"\x06\x01s\0\x16\0\0\0org.freedesktop.login1\0\0\x02\x01s\0\x1e\0\0\0org.freedesktop.login1.Manager\0\0",
    );
    inhibit.extend(b"\x03\x01s\0\x07\0\0\0Inhibit\0\x08\x01g\0\x04ssss\0\0\0\0\0\0\0");
    inhibit.extend(
        b"\x08\0\0\0shutdown\0\0\0\0\x09\0\0\0nodepulse\0\0\0\x29\0\0\0Tell the cluster that this node goes down\0\0\0",
    );
    inhibit.extend(b"\x05\0\0\0delay\0");
    assert_eq!(messages[3], inhibit);
    assert_eq!(client.ask_state()[8], 5, "its serial");
}

#[test]
fn the_lock_comes_in_either_order_of_bytes_and_is_the_first_descriptor() {
    for is_big in [false, true] {
        let hello = answer(is_big, RETURN, 1, vec![(8, "g", Value::Signature("s"))], &[Value::Text(":1.9")]);
        let bytes = [hello, locked(is_big, 4)].concat();
        let expected =
            vec![Taken { descriptors: 0, event: None }, Taken { descriptors: 1, event: Some(Event::Locked) }];
        assert_eq!(heard_in(&bytes, usize::MAX), (expected, None));
    }
    for (signature, count, index) in [("u", 1, 0), ("h", 0, 0), ("h", 2, 0), ("h", 1, 1)] {
        let more = vec![(8, "g", Value::Signature(signature)), (9, "u", Value::Number(count))];
        let bytes = answer(false, RETURN, 4, more, &[Value::Number(index)]);
        assert_eq!(heard_in(&bytes, usize::MAX).1, Some(Error::Malformed), "{signature} {count} {index}");
    }
}

#[test]
fn each_refusal_is_known_by_its_name() {
    let refused = |name: &str| match events(&failed(4, name, "Permission denied")).pop() {
        Some(Event::NotLocked(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let words = |name: &str| format!("{name}: Permission denied");
    assert_eq!(refused("org.freedesktop.login1.OperationInProgress"), Refusal::InProgress);
    for name in ["AccessDenied", "InteractiveAuthorizationRequired"] {
        let name = format!("org.freedesktop.DBus.Error.{name}");
        assert_eq!(refused(&name), Refusal::Denied(words(&name)));
    }
    let name = "org.freedesktop.DBus.Error.ServiceUnknown";
    assert_eq!(refused(name), Refusal::Unavailable(words(name)));
    for serial in [1, 2, 3] {
        let (_, error) = heard_in(&failed(serial, name, "Permission denied"), usize::MAX);
        assert_eq!(error, Some(Error::Refused(words(name))), "nothing would be heard");
    }
}

#[test]
fn a_shutdown_is_told_once_with_its_kind_where_that_is_known() {
    let kinds = [
        ("poweroff", Leaving::PowerOff),
        ("reboot", Leaving::Reboot),
        ("halt", Leaving::Halt),
        ("kexec", Leaving::Kexec),
        ("soft-reboot", Leaving::SoftReboot),
        ("nap", Leaving::Shutdown),
    ];
    for (word, kind) in kinds {
        let bytes = [signal_with(true, &[("other", "x"), ("type", word)]), signal(true)].concat();
        assert_eq!(events(&bytes), [Event::GoesDown(kind)]);
    }
    assert_eq!(events(&signal_with(true, &[])), [Event::GoesDown(Leaving::Shutdown)]);
    // Before systemd 255, and called off.
    let bytes = [signal(false), signal(true), signal_with(false, &[("type", "reboot")]), signal(false)].concat();
    assert_eq!(events(&bytes), [Event::GoesDown(Leaving::Shutdown), Event::GoesOn]);
}

#[test]
fn what_somebody_else_sends_to_us_alone_is_no_word_of_logind() {
    let body = [Value::Number(1)];
    assert_eq!(events(&signal_to(Some(":1.9"), WITHOUT_KIND, "b", &body)), []);
    assert_eq!(events(&signal_to(None, "PrepareForSleep", "b", &body)), []);
    assert_eq!(events(&signal_to(None, WITHOUT_KIND, "u", &body)), []);
    assert_eq!(events(&signal_to(None, WITHOUT_KIND, "b", &[Value::Number(2)])), [], "neither yes nor no");
    assert_eq!(events(&signal_to(None, WITHOUT_KIND, "b", &[])), []);
    // An answer that nobody waits for, and a call.
    assert_eq!(events(&[locked(false, 9), message(false, CALL, &[], &[])].concat()), []);
    // Twice the same answer: the second one is nobody's.
    assert_eq!(events(&[locked(false, 4), locked(false, 4)].concat()), [Event::Locked]);
}

#[test]
fn the_state_of_systemd_is_stopping_or_it_is_not() {
    let state = |bytes: Vec<u8>| {
        let (mut client, _) = Client::new(0);
        client.ask_state();
        client.received(&[OK, &bytes].concat());
        client.take().unwrap().and_then(|taken| taken.event)
    };
    let said = |value: Value<'_>| answer(false, RETURN, 5, vec![(8, "g", Value::Signature("v"))], &[value]);
    for (word, is_stopping) in [("stopping", true), ("running", false), ("degraded", false)] {
        assert_eq!(state(said(Value::Variant(word))), Some(Event::SystemState { is_stopping }));
    }
    let unknown = Some(Event::SystemState { is_stopping: false });
    assert_eq!(state(said(Value::Number(1))), unknown);
    assert_eq!(state(failed(5, "org.freedesktop.DBus.Error.ServiceUnknown", "")), unknown);
}

#[test]
fn who_is_not_let_in_hears_why_and_a_line_has_an_end() {
    let (mut client, _) = Client::new(0);
    client.received(b"REJECTED EXTERNAL\r\n");
    assert_eq!(client.take(), Err(Error::Refused("REJECTED EXTERNAL".to_owned())));
    let (mut client, _) = Client::new(0);
    client.received(&[b'O'; DBUS_LINE_BYTES]);
    assert_eq!(client.take(), Ok(None));
    client.received(b"KK");
    assert_eq!(client.take(), Err(Error::TooLarge));
    let (mut client, _) = Client::new(0);
    client.received(&[&[b'O'; DBUS_LINE_BYTES + 1], b"\r\n".as_slice()].concat());
    assert_eq!(client.take(), Err(Error::TooLarge));
    // No descriptors here.
    let (mut client, _) = Client::new(0);
    client.received(b"OK 12\r\nERROR\r\n");
    client.received(&signal(true));
    assert_eq!(client.take().unwrap().and_then(|taken| taken.event), Some(Event::GoesDown(Leaving::Shutdown)));
}

#[test]
fn a_stream_says_the_same_cut_at_every_byte_and_ends_nowhere_in_a_panic() {
    let hello = answer(true, RETURN, 1, vec![(8, "g", Value::Signature("s"))], &[Value::Text(":1.9")]);
    let bytes =
        [hello, locked(false, 4), signal_with(true, &[("type", "kexec")]), signal(true), signal(false)].concat();
    let whole = heard_in(&bytes, usize::MAX);
    assert_eq!((whole.0.len(), &whole.1), (5, &None));
    for step in 1..bytes.len() {
        assert_eq!(heard_in(&bytes, step), whole, "in pieces of {step}");
    }
    // Each byte another one: refused, or something else, and never more than there is.
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            assert!(heard_in(&changed, usize::MAX).0.len() <= 6);
        }
    }
}
