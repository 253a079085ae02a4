//! A bus of a few lines: what is held, given back, and taken again.

#![allow(clippy::disallowed_methods, reason = "the bus is another thread, as it is another process in life")]

use std::io::{IoSlice, PipeReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use nix::sys::socket::{ControlMessage, sendmsg};

use super::super::loopback::TempFolder;
use super::*;
use crate::node::Leaving;

const GREETING: &[u8] = b"OK 1234deadbeef1234deadbeef1234dead\r\nAGREE_UNIX_FD\r\n";
/// The answer to our fourth call: the lock is the first descriptor that comes along.
const LOCKED: &[u8] = b"l\x02\x01\x01\x04\0\0\0\x07\0\0\0\x18\0\0\0\x05\x01u\0\x04\0\0\0\x08\x01g\0\x01h\0\0\x09\x01u\0\x01\0\0\0\0\0\0\0";

/// Lets a client in, and gives it a lock; answers the connection, and the end of a pipe that ends with the lock.
fn lend(listener: &UnixListener) -> (UnixStream, PipeReader) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut came = Vec::new();
    while !came.ends_with(b"delay\0") {
        let mut part = [0; 64];
        let count = stream.read(&mut part).unwrap();
        assert_ne!(count, 0, "it has hung up");
        came.extend_from_slice(&part[..count]);
    }
    assert!(came.starts_with(b"\0AUTH EXTERNAL "));
    let (held, lock) = io::pipe().unwrap();
    stream.write_all(GREETING).unwrap();
    let descriptors = [lock.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&descriptors)];
    sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(LOCKED)], &control, MsgFlags::empty(), None).unwrap();
    (stream, held)
}

/// `PrepareForShutdown(true)`.
fn goes_down() -> Vec<u8> {
    let mut fields: Vec<u8> = Vec::new();
    let texts = [
        (1, b'o', "/org/freedesktop/login1"),
        (2, b's', "org.freedesktop.login1.Manager"),
        (3, b's', "PrepareForShutdown"),
    ];
    for (code, kind, text) in texts {
        fields.resize(fields.len().next_multiple_of(8), 0);
        fields.extend([code, 1, kind, 0, u8::try_from(text.len()).unwrap(), 0, 0, 0]);
        fields.extend(text.bytes().chain([0]));
    }
    fields.resize(fields.len().next_multiple_of(8), 0);
    fields.extend(b"\x08\x01g\0\x01b\0");
    let length = u8::try_from(fields.len()).unwrap();
    fields.resize(fields.len().next_multiple_of(8), 0);
    [b"l\x04\x01\x01\x04\0\0\0\x09\0\0\0".as_slice(), &[length, 0, 0, 0], &fields, &[1, 0, 0, 0]].concat()
}

fn at(path: &str) -> Logind {
    let address = format!("tcp:host=here;unix:guid=1,path={path}");
    Logind::new(true, move |name| (name == ADDRESS).then(|| address.clone()))
}

#[test]
fn a_lock_is_taken_given_back_and_taken_again_after_a_bus_that_was_lost() {
    let folder = TempFolder::new();
    let path = folder.path("bus");
    let listener = UnixListener::bind(&path).unwrap();
    let (reactor, logind) = (Reactor::new().unwrap(), at(&path));
    let bus = thread::spawn(move || {
        let (mut first, mut held) = lend(&listener);
        first.write_all(&goes_down()).unwrap();
        let mut nothing = [0];
        assert_eq!(held.read(&mut nothing).unwrap(), 0, "given back");
        drop(first);
        // The bus ends in the middle of a shutdown: logind gives another lock only if there is none.
        lend(&listener)
    });
    let heard = RefCell::new(Vec::new());
    let tell = |input: Input| {
        if matches!(input, Input::GoesDown(_)) {
            logind.release();
        }
        heard.borrow_mut().push(format!("{input:?}"));
    };
    let until_both = async {
        while heard.borrow().len() < 2 {
            logind.turned(clock::up());
            reactor.sleep_until(clock::up() + Duration::from_millis(5)).await;
        }
    };
    reactor.block_on(logind.serve(&reactor, tell).or(until_both)).unwrap();
    let expected = [format!("{:?}", Input::GoesDown(Leaving::Shutdown)), format!("{:?}", Input::GoesOn)];
    assert_eq!(*heard.borrow(), expected);
    assert!(logind.lock.borrow().is_some() && logind.may_know_more());
    drop(bus.join().unwrap());
}

#[test]
fn systemd_that_does_not_answer_is_waited_for_a_fifth_of_a_second() {
    let folder = TempFolder::new();
    let path = folder.path("bus");
    let listener = UnixListener::bind(&path).unwrap();
    let (reactor, logind) = (Reactor::new().unwrap(), at(&path));
    let bus = thread::spawn(move || lend(&listener));
    let asked = async {
        while logind.lock.borrow().is_none() {
            reactor.sleep_until(clock::up() + Duration::from_millis(5)).await;
        }
        let began = clock::up();
        assert!(!logind.is_stopping(&reactor).await);
        assert!(clock::up() - began >= STATE_PATIENCE);
    };
    reactor.block_on(logind.serve(&reactor, |_| panic!("nothing was said")).or(asked)).unwrap();
    drop(bus.join().unwrap());
}

#[test]
fn without_a_bus_it_is_looked_for_ever_more_seldom_and_only_with_a_turn_of_the_loop() {
    let folder = TempFolder::new();
    let (reactor, logind) = (Reactor::new().unwrap(), at(&folder.path("bus")));
    let mut now = clock::up();
    let mut pauses = Vec::new();
    let turns = async {
        for _ in 0..12 {
            while logind.again_at.get().is_none() {
                smol::future::yield_now().await;
            }
            let pause = logind.again_at.get().unwrap() - clock::up();
            pauses.push(pause.as_secs_f64().ceil());
            logind.turned(now);
            now = now + LAST_PAUSE * 2;
            logind.turned(now);
        }
    };
    reactor.block_on(logind.serve(&reactor, |_| panic!("nothing was said")).or(turns)).unwrap();
    assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 512.0, 512.0]);
    assert!(!logind.may_know_more());
}

#[test]
fn who_is_not_to_announce_a_shutdown_opens_no_bus() {
    let folder = TempFolder::new();
    let path = folder.path("bus");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (reactor, address) = (Reactor::new().unwrap(), format!("unix:path={path}"));
    let logind = Logind::new(false, |_| Some(address.clone()));
    reactor.block_on(logind.serve(&reactor, |_| panic!("nothing was said"))).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(Logind::new(true, |_| None).path.as_deref(), Some(SOCKET));
}
