//! Turns Debian's dbus-daemon and systemd-logind into a machine of their own: a private bus, a `/run` that is nobody else's, and
//! in the place of systemd a stub that says what it was asked to start, and starts nothing.

use super::super::cluster::Result;
use super::super::cluster::daemon::{Daemon, Home, wait_until};
use super::{SOON, now_us};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

pub const LOGIND: [&str; 2] = ["/usr/lib/systemd/systemd-logind", "/lib/systemd/systemd-logind"];

const CONFIGURATION: &str = r#"<busconfig><type>system</type><listen>unix:path=SOCKET</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="method_call"/><allow send_type="signal"/>
<allow send_requested_reply="true" send_type="method_return"/><allow send_requested_reply="true" send_type="error"/>
<allow receive_type="method_call"/><allow receive_type="signal"/><allow receive_type="method_return"/>
<allow receive_type="error"/></policy></busconfig>
"#;

/// Run in a mount namespace.
const START: &str = "mount -t tmpfs run /run && cd /run && mkdir -p systemd/system systemd/seats systemd/sessions systemd/users \
    systemd/inhibit && exec \"$1\"";

/// What the stub was told, and what it says.
#[derive(Default)]
pub struct Manager {
    /// Units that logind wanted started, and when, in microseconds since 1970.
    pub started: Vec<(u64, String)>,
    /// It refuses, so the shutdown is over before it began.
    pub refuses: bool,
    /// `SystemState`; empty: running.
    pub state: String,
}

/// The machine.
pub struct Machine {
    logind: Option<Daemon>,
    bus: Option<Daemon>,
    /// The last to go: it waits for whoever is in it.
    home: Home,
    pub manager: Arc<Mutex<Manager>>,
    starts: usize,
}

impl Machine {
    pub fn start() -> Result<Self> {
        let mut machine = Self { home: Home::new()?, bus: None, logind: None, manager: Arc::default(), starts: 0 };
        machine.start_again()?;
        Ok(machine)
    }

    fn socket(&self) -> String {
        self.home.path.join("bus").display().to_string()
    }

    /// As `DBUS_SYSTEM_BUS_ADDRESS` has it.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket())
    }

    /// The bus is killed, and with it goes logind, which systemd would start again.
    pub fn kill_bus(&mut self) -> Result<()> {
        if let Some(mut bus) = self.bus.take() {
            bus.kill()?;
        }
        self.logind = None;
        Ok(())
    }

    pub fn start_again(&mut self) -> Result<()> {
        let socket = self.socket();
        let _ = std::fs::remove_file(&socket);
        self.starts += 1;
        let file = self.home.write("bus.conf", &CONFIGURATION.replace("SOCKET", &socket))?;
        let words = ["dbus-daemon", "--nofork", "--nopidfile", "--config-file"].map(str::to_owned);
        let command: Vec<String> = words.into_iter().chain([file.display().to_string()]).collect();
        self.bus = Some(Daemon::start(&self.home, &format!("bus-{}", self.starts), &command)?);
        let stream =
            wait_until("the bus", SOON, || UnixStream::connect(&socket).map_err(|e| format!("{socket}: {e}")))?;
        serve(stream, Arc::clone(&self.manager))?;
        let program = LOGIND.into_iter().find(|path| std::path::Path::new(path).exists()).ok_or("no logind")?;
        let address = format!("DBUS_SYSTEM_BUS_ADDRESS={}", self.address());
        let command =
            ["env", &address, "unshare", "--mount", "--propagation", "private", "sh", "-c", START, "sh", program];
        let name = format!("logind-{}", self.starts);
        self.logind = Some(Daemon::start(&self.home, &name, &command.map(str::to_owned))?);
        wait_until("logind", SOON, || self.inhibitors().map(drop))
    }

    fn call(&self, words: &[&str]) -> Result<String> {
        const MANAGER: [&str; 3] =
            ["org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"];
        let mut command = Command::new("busctl");
        command.env("DBUS_SYSTEM_BUS_ADDRESS", self.address()).args(["--timeout=10", "call"]).args(MANAGER);
        let output = command.args(words).output().map_err(|e| format!("busctl: {e}"))?;
        let said = String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr });
        if output.status.success() { Ok(said.into_owned()) } else { Err(format!("{words:?}: {said}")) }
    }

    pub fn inhibitors(&self) -> Result<String> {
        self.call(&["ListInhibitors"])
    }

    pub fn is_held(&self) -> Result<bool> {
        Ok(self.inhibitors()?.contains("\"nodepulse\""))
    }

    pub fn wait_until_held(&self) -> Result<()> {
        wait_until("the lock", SOON, || if self.is_held()? { Ok(()) } else { Err(self.inhibitors()?) })
    }

    /// As `systemctl reboot` and a desktop ask for it. Answers when, in microseconds since 1970.
    pub fn reboot(&self) -> Result<u64> {
        let asked_at_us = now_us();
        self.call(&["Reboot", "b", "false"])?;
        Ok(asked_at_us)
    }

    pub fn manager(&self) -> std::sync::MutexGuard<'_, Manager> {
        self.manager.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the machine began to go down: logind waits for nobody any more.
    pub fn went_down_at_us(&self) -> Result<u64> {
        wait_until("logind to go on", SOON, || {
            let started = self.manager().started.clone();
            let found = started.iter().find(|(_, unit)| unit == "reboot.target");
            found.map(|(at_us, _)| *at_us).ok_or(format!("started: {started:?}"))
        })
    }
}

/// What of a message the stub goes by; all of this machine's own order of bytes (a little-endian one).
struct Call {
    serial: u32,
    sender: String,
    member: String,
    words: Vec<String>,
}

fn number(bytes: &[u8], at: usize) -> usize {
    let four = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    usize::try_from(u32::from_le_bytes(four)).unwrap_or(0)
}

fn text(bytes: &[u8], at: &mut usize) -> String {
    *at = at.next_multiple_of(4);
    let length = number(bytes, *at);
    let found = String::from_utf8_lossy(bytes.get(*at + 4..*at + 4 + length).unwrap_or_default()).into_owned();
    *at += 4 + length + 1;
    found
}

impl Call {
    /// The next method call; `None` at the end of the bus.
    fn read(stream: &mut UnixStream) -> Option<Call> {
        loop {
            let mut header = [0; 16];
            stream.read_exact(&mut header).ok()?;
            let (body, fields) = (number(&header, 4), number(&header, 12));
            let mut rest = vec![0; fields.next_multiple_of(8) + body];
            stream.read_exact(&mut rest).ok()?;
            let serial = u32::try_from(number(&header, 8)).ok()?;
            let mut call = Call { serial, sender: String::new(), member: String::new(), words: Vec::new() };
            let (mut at, mut signature) = (0, String::new());
            while at < fields {
                at = at.next_multiple_of(8);
                let (code, kind) = (rest[at], rest[at + 2]);
                at += 4;
                match kind {
                    b'g' => {
                        let length = usize::from(rest[at]);
                        signature = String::from_utf8_lossy(&rest[at + 1..at + 1 + length]).into_owned();
                        at += length + 2;
                    }
                    b'u' => at = at.next_multiple_of(4) + 4,
                    _ => match (code, text(&rest, &mut at)) {
                        (3, member) => call.member = member,
                        (7, sender) => call.sender = sender,
                        _ => {}
                    },
                }
            }
            let body = &rest[fields.next_multiple_of(8)..];
            let (mut at, is_text) = (0, |kind: &char| matches!(kind, 's' | 'o'));
            call.words = signature.chars().take_while(is_text).map(|_| text(body, &mut at)).collect();
            if header[1] == 1 {
                return Some(call);
            }
        }
    }
}

fn put(to: &mut Vec<u8>, text: &str) {
    to.resize(to.len().next_multiple_of(4), 0);
    to.extend(u32::try_from(text.len()).unwrap_or(0).to_le_bytes());
    to.extend(text.bytes().chain([0]));
}

/// A message of that kind: fields of text, then signature and body.
fn message(kind: u8, reply_to: u32, fields: &[(u8, u8, &str)], signature: &str, body: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for (code, kind, value) in fields {
        all.resize(all.len().next_multiple_of(8), 0);
        all.extend([*code, 1, *kind, 0]);
        put(&mut all, value);
    }
    if reply_to > 0 {
        all.resize(all.len().next_multiple_of(8), 0);
        all.extend([5, 1, b'u', 0]);
        all.extend(reply_to.to_le_bytes());
    }
    if !signature.is_empty() {
        all.resize(all.len().next_multiple_of(8), 0);
        all.extend([8, 1, b'g', 0, u8::try_from(signature.len()).unwrap_or(0)]);
        all.extend(signature.bytes().chain([0]));
    }
    let mut whole = vec![b'l', kind, 0, 1];
    for number in [u32::try_from(body.len()), Ok(1), u32::try_from(all.len())] {
        whole.extend(number.unwrap_or(0).to_le_bytes());
    }
    all.resize(all.len().next_multiple_of(8), 0);
    whole.extend(all);
    whole.extend(body);
    whole
}

/// Answers as systemd would, until the bus ends.
fn serve(mut stream: UnixStream, manager: Arc<Mutex<Manager>>) -> Result<()> {
    const BUS: &str = "org.freedesktop.DBus";
    let mut greeting = b"\0AUTH EXTERNAL 30\r\nBEGIN\r\n".to_vec();
    let to_bus = |member| [(1, b'o', "/org/freedesktop/DBus"), (2, b's', BUS), (3, b's', member), (6, b's', BUS)];
    greeting.extend(message(1, 0, &to_bus("Hello"), "", &[]));
    let mut name = Vec::new();
    put(&mut name, "org.freedesktop.systemd1");
    name.resize(name.len().next_multiple_of(4), 0);
    name.extend([0; 4]);
    greeting.extend(message(1, 0, &to_bus("RequestName"), "su", &name));
    stream.write_all(&greeting).map_err(|e| e.to_string())?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(|e| format!("the bus does not greet: {e}"))?;
        line.extend(byte);
    }
    std::thread::spawn(move || {
        while let Some(call) = Call::read(&mut stream) {
            let answer = answer(&call, &manager);
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    });
    Ok(())
}

fn answer(call: &Call, manager: &Mutex<Manager>) -> Vec<u8> {
    let mut manager = manager.lock().unwrap_or_else(PoisonError::into_inner);
    let mut body = Vec::new();
    let mut signature = "";
    let words: Vec<&str> = call.words.iter().map(String::as_str).collect();
    let mut variant = |value: &str| {
        body.extend(b"\x01s\0");
        put(&mut body, value);
    };
    match (call.member.as_str(), words.as_slice()) {
        ("StartUnit", [_, ..]) if manager.refuses => {
            let fields = [(4, b's', "org.freedesktop.systemd1.NoSuchUnit"), (6, b's', call.sender.as_str())];
            put(&mut body, "not today");
            return message(3, call.serial, &fields, "s", &body);
        }
        ("StartUnit", [unit, ..]) => {
            manager.started.push((now_us(), (*unit).to_owned()));
            signature = "o";
            put(&mut body, "/org/freedesktop/systemd1/job/1");
        }
        ("Get", [_, "SystemState"]) => {
            signature = "v";
            variant(if manager.state.is_empty() { "running" } else { &manager.state });
        }
        ("Get", [_, "LoadState"]) => {
            signature = "v";
            variant("loaded");
        }
        ("Get", [_, _]) => {
            signature = "v";
            variant("inactive");
        }
        _ => {}
    }
    message(2, call.serial, &[(6, b's', &call.sender)], signature, &body)
}
