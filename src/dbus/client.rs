//! Turns one connection to the bus into what logind says of the machine: greeting, two subscriptions, the lock; later the lock
//! again, or the state of systemd.
//!
//! ```text
//! greeting -> "OK ..." -> "AGREE_UNIX_FD" -> messages: answers to our calls, and signals
//! ```

use std::num::NonZeroUsize;

use super::Error;
use super::message::{CALL, Call, ERROR, HEADER_BYTES, Message, RETURN, SIGNAL, length_of};
use crate::config::limits::DBUS_LINE_BYTES;
use crate::node::Leaving;

const BUS: &str = "org.freedesktop.DBus";
const LOGIND: &str = "org.freedesktop.login1";
const LOGIND_PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
/// Tells since systemd 255, before the other one, which way the machine goes down: `ba{sv}`.
const WITH_KIND: &str = "PrepareForShutdownWithMetadata";
/// The same as `b`.
const WITHOUT_KIND: &str = "PrepareForShutdown";

/// What the bus has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The lock is the first descriptor of this message: as long as it is open, the machine waits for us, some seconds at most.
    Locked,
    NotLocked(Refusal),
    /// The machine is about to go down.
    GoesDown(Leaving),
    /// It goes on.
    GoesOn,
    /// By systemd, the machine is going down (`stopping`), or it is not, or nobody can say.
    SystemState {
        is_stopping: bool,
    },
}

/// Why there is no lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The machine is going down already.
    InProgress,
    /// We may not have it: the error's own words.
    Denied(String),
    /// There is no logind, or it has none to give now: the error's own words.
    Unavailable(String),
}

/// One message that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// How many of the descriptors that came are its.
    pub descriptors: usize,
    pub event: Option<Event>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Authentication,
    Descriptors,
    Messages,
}

/// Our end of one connection.
#[derive(Debug)]
pub struct Client {
    received: Vec<u8>,
    stage: Stage,
    serial: u32,
    /// Serials of the calls whose answers are waited for.
    inhibit: Option<NonZeroUsize>,
    state: Option<NonZeroUsize>,
    goes_down: bool,
}

impl Client {
    /// And what is to be sent at once: who we are (the number of our user), and all that is asked at the beginning.
    pub fn new(user: u32) -> (Client, Vec<u8>) {
        let (received, stage) = (Vec::new(), Stage::Authentication);
        let mut client = Client { received, stage, serial: 0, inhibit: None, state: None, goes_down: false };
        let hex: String = user.to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        let mut text = format!("\0AUTH EXTERNAL {hex}\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n").into_bytes();
        client.call_bus("Hello", &[], &mut text);
        for member in [WITHOUT_KIND, WITH_KIND] {
            let rule =
                format!("type='signal',sender='{LOGIND}',path='{LOGIND_PATH}',interface='{MANAGER}',member='{member}'");
            client.call_bus("AddMatch", &[&rule], &mut text);
        }
        text.extend(client.inhibit());
        (client, text)
    }

    fn call(&mut self, call: &Call<'_>, to: &mut Vec<u8>) -> Option<NonZeroUsize> {
        self.serial = self.serial.wrapping_add(1).max(1);
        call.write(self.serial, to);
        usize::try_from(self.serial).ok().and_then(NonZeroUsize::new)
    }

    fn call_bus(&mut self, member: &str, arguments: &[&str], to: &mut Vec<u8>) {
        let path = "/org/freedesktop/DBus";
        self.call(&Call { destination: BUS, path, interface: BUS, member, arguments }, to);
    }

    /// Asks for the lock: [`Event::Locked`] or [`Event::NotLocked`] follows.
    pub fn inhibit(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let arguments = ["shutdown", "nodepulse", "Tell the cluster that this node goes down", "delay"];
        let call = Call {
            destination: LOGIND,
            path: LOGIND_PATH,
            interface: MANAGER,
            member: "Inhibit",
            arguments: &arguments,
        };
        self.inhibit = self.call(&call, &mut bytes);
        bytes
    }

    /// Asks whether the machine goes down: [`Event::SystemState`] follows.
    pub fn ask_state(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let call = Call {
            destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.DBus.Properties",
            member: "Get",
            arguments: &["org.freedesktop.systemd1.Manager", "SystemState"],
        };
        self.state = self.call(&call, &mut bytes);
        bytes
    }

    /// What came, cut anywhere.
    pub fn received(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// The next message, once it is whole.
    pub fn take(&mut self) -> Result<Option<Taken>, Error> {
        while self.stage != Stage::Messages {
            let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") else {
                return if self.received.len() > DBUS_LINE_BYTES { Err(Error::TooLarge) } else { Ok(None) };
            };
            let line: Vec<u8> = self.received.drain(..end + 2).take(end).collect();
            self.greeted(&line)?;
        }
        let Some(length) = length_of(&self.received)?.filter(|length| self.received.len() >= *length) else {
            return Ok(None);
        };
        let later = self.received.split_off(length.max(HEADER_BYTES));
        let bytes = std::mem::replace(&mut self.received, later);
        self.read(Message::read(&bytes)?).map(Some)
    }

    fn greeted(&mut self, line: &[u8]) -> Result<(), Error> {
        if line.len() > DBUS_LINE_BYTES {
            return Err(Error::TooLarge);
        }
        self.stage = match self.stage {
            Stage::Authentication if line.starts_with(b"OK ") => Stage::Descriptors,
            Stage::Authentication => return Err(Error::Refused(String::from_utf8_lossy(line).into_owned())),
            // A bus that passes no descriptors gives no lock, and says so when that is asked for.
            _ => Stage::Messages,
        };
        Ok(())
    }

    fn read(&mut self, mut message: Message<'_>) -> Result<Taken, Error> {
        let is_answer = matches!(message.kind, RETURN | ERROR);
        let serial = NonZeroUsize::new(message.reply_serial).filter(|_| is_answer);
        let event = if serial.is_some() && serial == self.inhibit {
            self.inhibit = None;
            Some(answer_to_inhibit(&mut message)?)
        } else if serial.is_some() && serial == self.state {
            self.state = None;
            let state = (message.kind == RETURN && message.signature == "v")
                .then(|| message.body.signature().filter(|signature| *signature == "s").and(message.body.text()));
            Some(Event::SystemState { is_stopping: state.flatten() == Some("stopping") })
        } else {
            match message.kind {
                // To the first three calls, without which nothing would be heard.
                ERROR => return Err(Error::Refused(words_of(&mut message))),
                SIGNAL => self.signal(&mut message),
                // Nobody has anything to ask of us, and an answer that nobody waits for is none.
                CALL | RETURN => None,
                _ => None,
            }
        };
        Ok(Taken { descriptors: message.descriptors, event })
    }

    /// What came because we asked for all such signals of logind, so it has no destination: anybody may send us one that has.
    fn signal(&mut self, message: &mut Message<'_>) -> Option<Event> {
        let is_logind = (message.path, message.interface, message.destination) == (LOGIND_PATH, MANAGER, "");
        let kind = match (message.member, message.signature) {
            (WITHOUT_KIND, "b") => "",
            (WITH_KIND, "ba{sv}") => "type",
            _ => return None,
        };
        let goes_down = message.body.boolean().filter(|_| is_logind)?;
        if goes_down == std::mem::replace(&mut self.goes_down, goes_down) {
            return None;
        }
        if !goes_down {
            return Some(Event::GoesOn);
        }
        let word = if kind.is_empty() { None } else { message.body.entry(kind) };
        Some(Event::GoesDown(word.map_or(Leaving::Shutdown, Leaving::parse)))
    }
}

fn answer_to_inhibit(message: &mut Message<'_>) -> Result<Event, Error> {
    if message.kind == RETURN {
        // The index of the one descriptor that comes along.
        let is_lock = message.signature == "h" && message.descriptors == 1 && message.body.number() == Some(0);
        return if is_lock { Ok(Event::Locked) } else { Err(Error::Malformed) };
    }
    Ok(Event::NotLocked(match message.error_name {
        "org.freedesktop.login1.OperationInProgress" => Refusal::InProgress,
        "org.freedesktop.DBus.Error.AccessDenied" | "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired" => {
            Refusal::Denied(words_of(message))
        }
        _ => Refusal::Unavailable(words_of(message)),
    }))
}

/// Name and text of an error.
fn words_of(message: &mut Message<'_>) -> String {
    let text = message.body.text().filter(|_| message.signature.starts_with('s'));
    format!("{}: {}", message.error_name, text.unwrap_or_default())
}

#[cfg(test)]
mod tests;
