//! Turns nghttpd, a server of another author in another language, into a peer over a socket on loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, process, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nodepulse::http2::{Code, Connection, Event, Field, Opening, StreamId, When};

use super::left_out;

const FILE_BYTES: usize = 200_000;

/// A running server. It pads its frames, sends trailers, says back what it is sent, and serves one file.
struct Server {
    process: Child,
    folder: PathBuf,
    socket: TcpStream,
}

impl Server {
    /// `None` where it is not installed.
    fn start(test: &str) -> Option<Server> {
        let is_there = Command::new("nghttpd").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !is_there {
            left_out::leave_out(&format!("http2::nghttpd::{test}"), "apt-get install nghttp2-server (Debian)");
            return None;
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("nghttpd-{test}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), file()).unwrap();
        // Somebody may take the free port before the server does; then it ends, and another one is tried.
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut process = Command::new("timeout")
                .args(["300", "nghttpd", "--no-tls", "--echo-upload", "--padding=9", "--trailer=x-end: yes"])
                .args(["--address=127.0.0.1", "--htdocs"])
                .arg(&folder)
                .arg(port.to_string())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            while process.try_wait().unwrap().is_none() {
                if let Ok(socket) = TcpStream::connect(("127.0.0.1", port)) {
                    socket.set_read_timeout(Some(Duration::from_secs(100))).unwrap();
                    return Some(Server { process, folder, socket });
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("nghttpd does not start");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM);
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn file() -> Vec<u8> {
    (0..FILE_BYTES).map(|place| (place % 251) as u8).collect()
}

/// What came on one stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    status: u16,
    content: Vec<u8>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
    is_over: bool,
}

struct Client {
    server: Server,
    connection: Connection,
}

impl Client {
    fn new(server: Server, stream_window: u32) -> Client {
        Client { server, connection: Connection::client(stream_window) }
    }

    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> StreamId {
        let fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")];
        self.connection.request(&fields.map(|(name, value)| Field::new(name, value)), body, 0).unwrap()
    }

    fn send(&mut self) {
        let mut output = Vec::new();
        self.connection.take_output(&mut output);
        self.server.socket.write_all(&output).unwrap();
    }

    /// Goes on until the fields of a stream have come, or all of it.
    fn answer(&mut self, of: StreamId, whole: bool) -> Answer {
        let mut answer = Answer::default();
        loop {
            while let Some(event) = self.connection.next_event().unwrap() {
                match event {
                    Event::Headers { stream, status, ends, .. } if stream == of => {
                        (answer.status, answer.is_over) = (status, ends);
                    }
                    Event::Data { stream, bytes, ends } if stream == of => {
                        answer.content.extend_from_slice(bytes);
                        answer.is_over = ends;
                    }
                    Event::Trailers { stream, fields } if stream == of => {
                        answer.trailers = fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                        answer.is_over = true;
                    }
                    event => panic!("{event:?}"),
                }
                if answer.is_over || !whole {
                    return answer;
                }
            }
            self.send();
            let mut buffer = [0; 5000];
            let count = self.server.socket.read(&mut buffer).unwrap();
            assert!(count > 0, "the server closed the connection");
            self.connection.receive(&buffer[..count]);
        }
    }
}

#[test]
fn a_long_answer_comes_whole_and_its_windows_are_returned() {
    let Some(server) = Server::start("a_long_answer") else { return };
    let mut client = Client::new(server, 20_000);
    let stream = client.ask("GET", "/file", b"");
    let answer = client.answer(stream, true);
    assert_eq!((answer.status, answer.content == file()), (200, true));
    assert_eq!(answer.trailers, [(b"x-end".to_vec(), b"yes".to_vec())]);
    let stream = client.ask("GET", "/none", b"");
    let answer = client.answer(stream, true);
    assert_eq!((answer.status, answer.content.is_empty()), (404, false));
}

#[test]
fn a_long_request_waits_for_windows_and_comes_back_as_it_was() {
    let Some(server) = Server::start("a_long_request") else { return };
    let mut client = Client::new(server, 65_535);
    let body = file().repeat(3);
    let stream = client.ask("POST", "/echo", &body);
    let answer = client.answer(stream, true);
    assert_eq!((answer.status, answer.content == body), (200, true));
}

#[test]
fn with_a_window_of_nothing_only_the_fields_come_and_the_reset_rides_in_front_of_the_next_request() {
    let Some(server) = Server::start("a_window_of_nothing") else { return };
    let mut client = Client::new(server, 0);
    for _ in 0..200 {
        let stream = client.ask("GET", "/file", b"");
        assert_eq!(client.answer(stream, false).status, 200);
        client.connection.reset(stream, Code::CANCEL, When::WithNext);
    }
    // A refusal is worth reading: its stream is given a window.
    let stream = client.ask("GET", "/none", b"");
    assert_eq!(client.answer(stream, false).status, 404);
    client.connection.open_window(stream, 1000);
    assert!(client.answer(stream, true).content.starts_with(b"<html>"));
    assert_eq!((client.connection.opening(), client.connection.open_streams()), (Opening::Now, 0));
    client.connection.close();
    client.send();
    let mut rest = Vec::new();
    client.server.socket.read_to_end(&mut rest).unwrap();
}
