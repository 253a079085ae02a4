//! Turns a line of JSON that a command writes into what it asks of the agent that runs, and what came of that into the answer.
//!
//! ```text
//! {"do":"renew"}  ->  {"done":"a new certificate is in use, valid until ..."}, or {"failed":"..."}
//! {"do":"stop"}   ->  nothing: the connection ends with the process
//! {"do":"status"} ->  {"done":"{...}"}: JSON in a string (agent/overview.rs)
//! {"do":"cost"}   ->  {"done":"traffic ...\ncadence ...\nprocess ..."} (io/meter.rs)
//! {"do":"away","until":"2026-12-24T06:00:00Z","reason":"..."}  ->  {"done":"told 2026-12-24T06:00:00Z"}, or "kept ..." without a server
//! {"do":"back"}   ->  {"done":"told "}, or "kept ", or "none"
//! ```
//!
//! A socket in the state directory, which is the agent's own, for its user and root alone. One command after the other.

use std::cell::RefCell;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use serde_json::{Value, json};

use super::clock;
use super::inbox::Flag;
use super::reactor::{Reactor, Watched};
use crate::config::absence::Until;
use crate::config::limits::{CONTROL_ANSWER_BYTES, CONTROL_LINE_BYTES};

/// What a command may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    Renew,
    Stop,
    /// How the board fares.
    Status,
    /// What talking to the server has taken, and what it would at another cadence.
    Cost,
    /// The board is away until then, and why.
    Away {
        until: Until,
        reason: String,
    },
    Back,
}

impl Order {
    /// As one line of JSON, without its end.
    fn line(&self) -> Value {
        let (name, until, reason) = match self {
            Order::Renew => ("renew", None, None),
            Order::Stop => ("stop", None, None),
            Order::Status => ("status", None, None),
            Order::Cost => ("cost", None, None),
            Order::Away { until, reason } => ("away", Some(until.to_string()), Some(reason)),
            Order::Back => ("back", None, None),
        };
        json!({ "do": name, "until": until, "reason": reason })
    }

    fn parse(line: &Value) -> Option<Order> {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        Some(match text("do")? {
            "renew" => Order::Renew,
            "stop" => Order::Stop,
            "status" => Order::Status,
            "cost" => Order::Cost,
            "away" => Order::Away { until: Until::parse(text("until")?).ok()?, reason: text("reason")?.to_owned() },
            "back" => Order::Back,
            _ => return None,
        })
    }
}

const SOCKET: &str = "control";
/// Commands that wait for their turn.
const WAITING: i32 = 4;
/// Whoever connects says at once what they want.
const LINE_PATIENCE: Duration = Duration::from_secs(2);
/// How long the agent has for what it was asked; what takes longer goes on without anybody who waits.
const AGENT_PATIENCE: Duration = Duration::from_secs(45);
/// How long a command waits, also for its turn.
const COMMAND_PATIENCE: Duration = Duration::from_secs(60);
/// Where the kernel has no descriptor to give.
const PAUSE: Duration = Duration::from_secs(60);

/// Whatever the length of the directory's name: an address has room for 107 bytes.
fn path_in(directory: &File) -> String {
    format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd())
}

/// Listens in this directory, whose lock the caller has: what has the name is an earlier process's.
pub fn listen_in(directory: &File) -> io::Result<OwnedFd> {
    let path = path_in(directory);
    let _ = fs::remove_file(&path);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(path.as_str())?)?;
    // Nobody connects before it listens.
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    listen(&listener, Backlog::new(WAITING)?)?;
    Ok(listener)
}

/// The agent's end.
#[derive(Default)]
pub struct Control {
    /// Who waits for an answer.
    asking: RefCell<Option<Watched<UnixStream>>>,
    answered: Flag,
}

impl Control {
    /// Hands over what is asked, for as long as the process lives.
    pub async fn serve(&self, reactor: &Rc<Reactor>, listener: OwnedFd, ask: impl Fn(Order)) {
        let Ok(listener) = reactor.watch(UnixListener::from(listener)) else { return };
        loop {
            let accepted = listener.read_with(|listener| Ok(listener.accept()?.0)).await;
            let watched = accepted.and_then(|stream| {
                stream.set_nonblocking(true)?;
                reactor.watch(stream)
            });
            let Ok(stream) = watched else {
                reactor.sleep_until(clock::up() + PAUSE).await;
                continue;
            };
            let order = reactor.before(clock::up() + LINE_PATIENCE, read_order(&stream)).await.flatten();
            if order == Some(Order::Stop) {
                // Open until the kernel closes it with everything else.
                let _ = ManuallyDrop::new(stream);
                ask(Order::Stop);
                continue;
            }
            self.asking.replace(Some(stream));
            let Some(order) = order else {
                self.answer(Err("this agent does not know that command: is it of the same version?".to_owned()));
                continue;
            };
            self.answered.lower();
            ask(order);
            if reactor.before(clock::up() + AGENT_PATIENCE, self.answered.raised()).await.is_none() {
                self.answer(Err("that is still under way, and its end will be in the log".to_owned()));
            }
        }
    }

    /// What came of it. Whoever asked may not wait any more.
    pub fn answer(&self, told: Result<String, String>) {
        let line = match told {
            Ok(done) => json!({ "done": done }),
            Err(failed) => json!({ "failed": failed }),
        };
        if let Some(stream) = self.asking.take() {
            // There is room in a socket that nothing was written to.
            let _ = stream.get().write_all(format!("{line}\n").as_bytes());
            self.answered.raise();
        }
    }
}

async fn read_order(stream: &Watched<UnixStream>) -> Option<Order> {
    let (mut line, mut part) = (Vec::new(), [0; CONTROL_LINE_BYTES]);
    while !line.ends_with(b"\n") {
        let count = stream.read_with(|mut stream| stream.read(&mut part)).await.ok()?;
        line.extend_from_slice(part.get(..count).filter(|part| !part.is_empty())?);
        if line.len() > CONTROL_LINE_BYTES {
            return None;
        }
    }
    Order::parse(&serde_json::from_slice(&line).ok()?)
}

/// A command's end: the agent that listens in this directory, if one does.
pub fn connect(directory: &str) -> Option<UnixStream> {
    let directory = File::open(directory).ok()?;
    UnixStream::connect(path_in(&directory)).ok()
}

/// What came of it: `None` where the agent has ended before it said that.
pub fn ask(mut stream: UnixStream, order: &Order) -> io::Result<Option<Result<String, String>>> {
    stream.set_read_timeout(Some(COMMAND_PATIENCE))?;
    stream.write_all(format!("{}\n", order.line()).as_bytes())?;
    let mut line = Vec::new();
    stream.take(CONTROL_ANSWER_BYTES).read_to_end(&mut line)?;
    let line: Value = serde_json::from_slice(&line).unwrap_or_default();
    let text = |key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
    Ok(text("done").map(Ok).or_else(|| text("failed").map(Err)))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "commands are other processes")]
mod tests {
    use super::*;
    use crate::io::loopback::TempFolder;
    use std::cell::RefCell;
    use std::thread;

    /// Serves until `client`, on a thread of its own, has ended; what was asked. Each order is answered by `answer`.
    fn serve<T: Send + 'static>(
        answer: impl Fn(Order) -> Option<Result<String, String>>,
        client: impl FnOnce(&str) -> T + Send + 'static,
    ) -> (Vec<Order>, T) {
        let folder = TempFolder::new();
        // Longer than the address of a socket may be.
        let path = folder.path(&"a-long-name/".repeat(12));
        fs::create_dir_all(&path).unwrap();
        let listener = listen_in(&File::open(&path).unwrap()).unwrap();
        assert_eq!(fs::metadata(format!("{path}/{SOCKET}")).unwrap().permissions().mode() & 0o777, 0o600);
        let reactor = Reactor::new().unwrap();
        let (control, asked) = (Control::default(), RefCell::default());
        let ended = smol::channel::bounded::<()>(1);
        let client = thread::spawn(move || {
            let _ended = ended.0;
            client(&path)
        });
        let ask = |order| {
            Vec::push(&mut asked.borrow_mut(), Order::clone(&order));
            answer(order).into_iter().for_each(|told| control.answer(told));
        };
        let until = async {
            let _ = ended.1.recv().await;
        };
        let served = smol::future::or(until, control.serve(&reactor, listener, ask));
        reactor.block_on(served).unwrap();
        (asked.into_inner(), client.join().unwrap())
    }

    fn written(path: &str, bytes: &[u8]) -> String {
        let mut stream = connect(path).unwrap();
        stream.write_all(bytes).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn one_command_after_the_other_hears_what_came_of_it() {
        let (asked, heard) = serve(
            |order| (order == Order::Renew).then(|| Ok("it is \"renewed\"\nin two lines".to_owned())),
            |path| {
                let first = ask(connect(path).unwrap(), &Order::Renew).unwrap();
                let second = ask(connect(path).unwrap(), &Order::Renew).unwrap();
                (first, second)
            },
        );
        assert_eq!(asked, [Order::Renew, Order::Renew]);
        let done = Some(Ok("it is \"renewed\"\nin two lines".to_owned()));
        assert_eq!(heard, (done.clone(), done));
    }

    #[test]
    fn an_order_is_one_line_of_json_and_the_same_again() {
        let away =
            |until| Order::Away { until: Until::parse(until).unwrap(), reason: "sleeps \"at night\"".to_owned() };
        for order in [
            Order::Renew,
            Order::Stop,
            Order::Status,
            Order::Cost,
            Order::Back,
            away("2026-12-24T06:00:00Z"),
            away("1h30m"),
        ] {
            assert_eq!(Order::parse(&order.line()), Some(order));
        }
    }

    #[test]
    fn what_is_no_command_is_told_so_and_holds_up_nobody() {
        let (asked, heard) = serve(
            |_| Some(Err("why not".to_owned())),
            |path| {
                let silent = connect(path).unwrap();
                let gone = connect(path).unwrap();
                drop(gone);
                let endless = vec![b' '; 3 * CONTROL_LINE_BYTES];
                let wrong: [&[u8]; 8] = [
                    b"renew\n",
                    b"{\"do\":\"dance\"}\n",
                    b"{\"do\":7}\n",
                    b"[]\n",
                    b"\xff\n",
                    b"{\"do\":\"stop\"}x\n",
                    b"{\"do\":\"away\",\"until\":\"soon\",\"reason\":\"\"}\n",
                    b"{\"do\":\"away\",\"until\":\"8h\"}\n",
                ];
                for bytes in wrong {
                    assert!(written(path, bytes).starts_with("{\"failed\":\"this agent does not know"), "{bytes:?}");
                }
                let mut stream = connect(path).unwrap();
                let _ = stream.write_all(&endless);
                let heard = ask(connect(path).unwrap(), &Order::Renew).unwrap();
                drop(silent);
                heard
            },
        );
        assert_eq!((asked.as_slice(), heard), (&[Order::Renew][..], Some(Err("why not".to_owned()))));
    }

    #[test]
    fn the_socket_of_a_process_that_is_gone_is_nobody_and_makes_room() {
        let folder = TempFolder::new();
        let path = folder.path("");
        assert!(connect(&path).is_none());
        let directory = File::open(&path).unwrap();
        drop(listen_in(&directory).unwrap());
        assert!(fs::exists(folder.path(SOCKET)).unwrap() && connect(&path).is_none());
        let _listener = listen_in(&directory).unwrap();
        assert!(connect(&path).is_some());
    }
}
