//! Turns sockets of runtimes that are there, silent, closed or not there into what a look says, and how long it takes.

use std::fs;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};

use super::super::loopback::TempFolder;
use super::*;

const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A refusal of both questions of the first look: HEADERS with END_STREAM of `:status` 200 and `grpc-status` 2.
const REFUSED: &[u8] =
    b"\0\0\x10\x01\x05\0\0\0\x01\x88\0\x0bgrpc-status\x012\0\0\x10\x01\x05\0\0\0\x03\x88\0\x0bgrpc-status\x012";

fn look(runtime: &mut ContainerRuntime) -> (probe::ContainerRuntime, Duration) {
    let reactor = Reactor::new().unwrap();
    let began = clock::up();
    let said = reactor.block_on(runtime.look(&reactor, &Asked::default())).unwrap().unwrap();
    (said, clock::up() - began)
}

fn at(path: &str) -> ContainerRuntime {
    ContainerRuntime::at(path.to_owned())
}

/// What people are told of one that cannot be asked, which is found without waiting.
fn trouble(path: &str) -> String {
    let (said, took) = look(&mut at(path));
    assert!(took < PATIENCE, "{took:?}");
    said.trouble.unwrap()
}

#[test]
fn one_that_is_not_there_is_named_at_once_with_what_to_do() {
    let folder = TempFolder::new();
    let path = folder.path("runtime.sock");
    assert!(trouble(&path).ends_with("there is no such socket: the runtime does not run, or has another one"));
    drop(UnixListener::bind(&path).unwrap());
    assert!(trouble(&path).ends_with("nobody listens there: the runtime does not run"));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    assert!(trouble(&path).starts_with(&format!("{path}: ")), "a plain file");
}

#[test]
fn one_that_answers_in_time_is_heard_with_the_same_look() {
    let folder = TempFolder::new();
    let path = folder.path("runtime.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut runtime = at(&path);
    // What it says is there before it is asked: nothing of it is waited for.
    runtime.ask();
    let mut peer: UnixStream = listener.accept().unwrap().0;
    peer.write_all(&[SETTINGS, REFUSED].concat()).unwrap();
    let (said, took) = look(&mut runtime);
    assert!(took < PATIENCE, "{took:?}");
    assert_eq!(said.trouble.as_deref(), Some("Status: HTTP 200 (code 2 of gRPC)"));
    drop(peer);
    drop(listener);
    assert!(look(&mut runtime).0.trouble.unwrap().ends_with("nobody listens there: the runtime does not run"));
}

#[test]
fn one_that_says_nothing_is_waited_for_once_and_for_half_a_second() {
    let folder = TempFolder::new();
    let path = folder.path("runtime.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let mut runtime = at(&path);
    let (said, took) = look(&mut runtime);
    assert!(took >= PATIENCE, "{took:?}");
    assert_eq!(said.trouble.as_deref(), Some("it has not answered yet"));
    let (_, took) = look(&mut runtime);
    assert!(took < PATIENCE, "looks go on without it: {took:?}");
}

#[test]
fn what_is_no_runtime_is_left_and_asked_again() {
    let folder = TempFolder::new();
    let path = folder.path("runtime.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut runtime = at(&path);
    for _ in 0..2 {
        runtime.ask();
        listener.accept().unwrap().0.write_all(b"-ERR unknown command 'PRI'\r\n").unwrap();
        runtime.read();
        assert!(runtime.socket.is_none());
    }
}
