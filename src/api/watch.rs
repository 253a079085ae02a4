//! Turns the content of a watch, cut anywhere, into what was written last: frames of a length and a `WatchEvent` in protobuf.
//!
//! ```text
//! length (4 bytes, big-endian)  WatchEvent { 1: type, 2: RawExtension { 1: "k8s\0" PartialObjectMetadata, or Status } }
//! ```

use super::answer::{Refusal, StatusError};
use super::failure::{Failure, cut};
use super::operation::Document;
use super::protobuf::{read_metadata, read_status};
use crate::config::limits;
use crate::protobuf::{Fields, Value};

/// What the server says of the Node while it is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// It is there in this version.
    Version {
        uid: String,
        resource_version: String,
        /// It follows the event that was told before it: none between them was left out.
        is_next: bool,
        /// How long the event was, with its length.
        bytes: usize,
    },
    Deleted {
        uid: String,
    },
}

impl Seen {
    /// Of several events only the last is told: what the Node was between is of no use.
    #[must_use]
    pub fn in_place_of(mut self, earlier: Option<Seen>) -> Seen {
        if let Seen::Version { is_next, .. } = &mut self {
            *is_next &= earlier.is_none();
        }
        self
    }
}

/// The events of one watch.
#[derive(Debug, Default)]
pub struct Events {
    /// Of the event that comes.
    input: Vec<u8>,
    /// How long the last one was with its length.
    last_bytes: usize,
}

/// Why a watch is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// The server says so in an event.
    Refused(Refusal),
    /// It says something else than a watch of ours brings.
    Failed(Failure),
}

const LENGTH_BYTES: usize = 4;
/// The word of a failure: the Node's metadata is longer than is worth watching.
pub const EVENT_TOO_LARGE: &str = "event-too-large";

impl Events {
    /// Takes content. Of several events that it completes only the last counts.
    pub fn take(&mut self, mut content: &[u8]) -> Result<Option<Seen>, Over> {
        let mut last = None;
        loop {
            let due_bytes = self.due_bytes()?;
            let (part, rest) = content.split_at_checked(due_bytes - self.input.len()).unwrap_or((content, &[]));
            self.input.extend_from_slice(part);
            content = rest;
            if self.input.len() < due_bytes {
                return Ok(last);
            }
            // Of its length alone nothing is read; the turn after it knows how long the whole is.
            if let Some(event) = self.input.get(LENGTH_BYTES..).filter(|_| self.due_bytes() == Ok(due_bytes)) {
                if let Some(seen) = read_event(event)? {
                    last = Some(seen.in_place_of(last));
                }
                (self.last_bytes, self.input) = (due_bytes, Vec::new());
            }
        }
    }

    /// How long the last event was with its length.
    pub(super) fn last_bytes(&self) -> usize {
        self.last_bytes
    }

    /// How long the event that comes is with its length, as far as that is known.
    fn due_bytes(&self) -> Result<usize, Over> {
        let Some(length) = self.input.first_chunk::<LENGTH_BYTES>() else { return Ok(LENGTH_BYTES) };
        match u32::from_be_bytes(*length) as usize {
            length if length <= limits::WATCH_EVENT_BYTES => Ok(LENGTH_BYTES + length),
            _ => Err(Over::Failed(Failure::new(
                EVENT_TOO_LARGE,
                format!("an event is longer than {} bytes", limits::WATCH_EVENT_BYTES),
            ))),
        }
    }
}

/// `Ok(None)` for an event that says nothing of the Node.
fn read_event(event: &[u8]) -> Result<Option<Seen>, Over> {
    let malformed = || Over::Failed(Failure::malformed("an event of the watch is none"));
    let (mut kind, mut object): (&[u8], &[u8]) = (&[], &[]);
    for field in Fields::of(event) {
        match field.ok_or_else(malformed)? {
            (1, Value::Bytes(bytes)) => kind = bytes,
            (2, Value::Bytes(extension)) => {
                for field in Fields::of(extension) {
                    if let (1, Value::Bytes(bytes)) = field.ok_or_else(malformed)? {
                        object = bytes;
                    }
                }
            }
            _ => {}
        }
    }
    match kind {
        b"ADDED" | b"MODIFIED" | b"DELETED" => {
            let Some(Document::Metadata { uid, resource_version, .. }) = read_metadata(object, false) else {
                return Err(malformed());
            };
            Ok(Some(match kind {
                b"DELETED" => Seen::Deleted { uid },
                _ => Seen::Version { uid, resource_version, is_next: true, bytes: LENGTH_BYTES + event.len() },
            }))
        }
        b"ERROR" => {
            let status = read_status(object).ok_or_else(malformed)?;
            let (reason, message) = (cut(&status.reason), cut(&status.message));
            Err(Over::Refused(Refusal::Status(StatusError { code: status.code, reason, message, retry_after: None })))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len() & 0x7f).unwrap();
        let length = if bytes.len() < 0x80 { vec![length] } else { vec![length | 0x80, (bytes.len() >> 7) as u8] };
        [&[number << 3 | 2], &length[..], bytes].concat()
    }

    fn object(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"meta.k8s.io/v1"), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &type_meta), field(2, raw), field(3, b""), field(4, b"")].concat()
    }

    fn event(kind: &str, object: &[u8]) -> Vec<u8> {
        let event = [field(1, kind.as_bytes()), field(2, &field(1, object))].concat();
        [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
    }

    fn of_node(kind: &str, uid: &str, version: &str) -> Vec<u8> {
        let metadata = [field(1, b"n1"), field(5, uid.as_bytes()), field(6, version.as_bytes())].concat();
        event(kind, &object("PartialObjectMetadata", &field(1, &metadata)))
    }

    fn version(kind: &str, uid: &str, version: &str) -> Seen {
        let bytes = of_node(kind, uid, version).len();
        Seen::Version { uid: uid.to_owned(), resource_version: version.to_owned(), is_next: true, bytes }
    }

    fn word(over: Over) -> String {
        match over {
            Over::Failed(failure) => failure.word().to_owned(),
            Over::Refused(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn events_say_which_version_there_is_and_that_there_is_none_any_more_however_they_are_cut() {
        let bytes = [
            of_node("ADDED", "u1", "7"),
            of_node("MODIFIED", "u1", "8"),
            of_node("BOOKMARK", "u1", "9"),
            of_node("DELETED", "u1", "10"),
            of_node("ADDED", "u2", "11"),
        ];
        let expected = [
            Some(version("ADDED", "u1", "7")),
            Some(version("MODIFIED", "u1", "8")),
            None,
            Some(Seen::Deleted { uid: "u1".to_owned() }),
            Some(version("ADDED", "u2", "11")),
        ];
        for size in [1, 2, 3, 4, 5, 7, 64, 1000] {
            let mut events = Events::default();
            for (bytes, expected) in bytes.iter().zip(&expected) {
                let seen: Vec<_> = bytes.chunks(size).filter_map(|part| events.take(part).unwrap()).collect();
                assert_eq!(seen.first(), expected.as_ref(), "in pieces of {size}");
            }
            assert_eq!(events.input.capacity(), 0, "nothing is kept between two events");
        }
        let all = bytes.concat();
        for cut in 0..all.len() {
            let mut events = Events::default();
            let (before, after) = (events.take(&all[..cut]).unwrap(), events.take(&all[cut..]).unwrap());
            let last = after.map(|after| after.in_place_of(before.clone())).or(before);
            let is_alone = version("ADDED", "u2", "11").in_place_of(expected[0].clone());
            assert_eq!(last, Some(is_alone), "only the last counts, cut at {cut}");
        }
    }

    #[test]
    fn an_error_of_the_server_is_its_refusal() {
        let mut status = [field(3, b"too old resource version"), field(4, b"Expired")].concat();
        status.extend([6 << 3, 0x9a, 0x03]);
        let over = Events::default().take(&event("ERROR", &object("Status", &status))).unwrap_err();
        assert_eq!(word(over), "server answered 410 Expired: too old resource version");
    }

    #[test]
    fn an_event_that_is_too_long_is_not_waited_for_and_one_that_fits_is_kept_no_longer_than_it_comes() {
        let length = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
        let over = Events::default().take(&length(limits::WATCH_EVENT_BYTES + 1)).unwrap_err();
        assert_eq!(word(over), "event-too-large");
        let mut events = Events::default();
        assert_eq!(events.take(&length(limits::WATCH_EVENT_BYTES)), Ok(None));
        for _ in 1..limits::WATCH_EVENT_BYTES {
            assert_eq!(events.take(b"\xff"), Ok(None));
        }
        assert!(events.input.len() < LENGTH_BYTES + limits::WATCH_EVENT_BYTES);
        assert_eq!(word(events.take(b"\xff").unwrap_err()), "reply-malformed");
    }

    #[test]
    fn whatever_else_comes_is_no_event_and_no_panic() {
        for wrong in [event("ADDED", b"k8s\0"), event("ADDED", &object("Status", b"")), event("ERROR", b"?")] {
            assert_eq!(word(Events::default().take(&wrong).unwrap_err()), "reply-malformed");
        }
        let whole = of_node("MODIFIED", "u1", "8");
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[place] ^= 1 << bit;
                let mut events = Events::default();
                let _ = (events.take(&bytes), events.take(&whole));
            }
        }
        assert_eq!(Events::default().take(&[0; 4]), Ok(None), "an event of nothing says nothing");
    }
}
