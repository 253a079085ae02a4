//! Turns the content of a watch, cut anywhere, into what was written last: a line of JSON for each event.
//!
//! ```text
//! {"type":"MODIFIED","object":{"kind":"Table","metadata":{"resourceVersion":"264"},"rows":[{"cells":["edge-7","Ready",...]}],...}}
//! {"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}
//! ```
//!
//! Of a row nothing is read: that there is another version is what is wanted. It is a tenth as long as the metadata of a Node
//! with the labels of its board, and as long for each Node; the first of a watch comes with the headings, 3.6 KB.

use serde_json::Value;

use super::answer::{Refusal, StatusError};
use super::failure::{Failure, cut};
use crate::config::limits;

/// What the server says of the Node while it is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// It is there in this version.
    Version {
        resource_version: String,
        /// It was changed, and this follows the event that was told before it: none between them was left out.
        is_next: bool,
    },
    /// It is not there since this version, which is that of its end.
    Deleted { resource_version: String },
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
    /// How long the last one was with its end.
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

/// The word of a failure: no row is as long as that; a server that makes none sends whole Nodes.
pub const EVENT_TOO_LARGE: &str = "event-too-large";

impl Events {
    /// Takes content. Of several events that it completes only the last counts.
    pub fn take(&mut self, mut content: &[u8]) -> Result<Option<Seen>, Over> {
        let mut last = None;
        while let Some(end) = content.iter().position(|&byte| byte == b'\n') {
            let (part, rest) = content.split_at(end);
            self.keep(part)?;
            let event = std::mem::take(&mut self.input);
            self.last_bytes = event.len() + 1;
            content = rest.get(1..).unwrap_or_default();
            if let Some(seen) = read_event(&event)? {
                last = Some(seen.in_place_of(last));
            }
        }
        self.keep(content)?;
        Ok(last)
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), Over> {
        if self.input.len() + part.len() > limits::WATCH_EVENT_BYTES {
            let text = format!("an event is longer than {} bytes", limits::WATCH_EVENT_BYTES);
            return Err(Over::Failed(Failure::new(EVENT_TOO_LARGE, text)));
        }
        self.input.extend_from_slice(part);
        Ok(())
    }

    /// How long the last event was with its end.
    pub(super) fn last_bytes(&self) -> usize {
        self.last_bytes
    }
}

/// `Ok(None)` for an event that says nothing of the Node.
fn read_event(event: &[u8]) -> Result<Option<Seen>, Over> {
    let malformed = || Over::Failed(Failure::malformed("an event of the watch is none"));
    let event: Value = serde_json::from_slice(event).map_err(|_| malformed())?;
    let text = |path: &str| event.pointer(path).and_then(Value::as_str);
    let resource_version = || {
        let version = text("/object/metadata/resourceVersion").filter(|version| !version.is_empty());
        version.map(str::to_owned).ok_or_else(malformed)
    };
    match text("/type").ok_or_else(malformed)? {
        kind @ ("ADDED" | "MODIFIED") => {
            // One that was made anew is none that a report of ours has changed.
            Ok(Some(Seen::Version { resource_version: resource_version()?, is_next: kind == "MODIFIED" }))
        }
        "DELETED" => Ok(Some(Seen::Deleted { resource_version: resource_version()? })),
        "ERROR" => {
            let code = event.pointer("/object/code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
            let [reason, message] =
                ["/object/reason", "/object/message"].map(|path| cut(text(path).unwrap_or_default()));
            let code = code.filter(|_| text("/object/kind") == Some("Status")).ok_or_else(malformed)?;
            Err(Over::Refused(Refusal::Status(StatusError { code, reason, message, retry_after: None })))
        }
        // What may come one day, and tells of nothing that we know.
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a real server writes it, but for the headings of the first.
    fn row(kind: &str, version: &str) -> Vec<u8> {
        let cells = r#"["n1","Ready","\u003cnone\u003e","4s","v1.36.3","192.0.2.2","\u003cnone\u003e","Debian GNU/Linux 12 (bookworm)"]"#;
        format!(
            r#"{{"type":"{kind}","object":{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"columnDefinitions":null,"rows":[{{"cells":{cells},"object":null}}]}}}}
"#
        )
        .into_bytes()
    }

    fn version(version: &str, is_next: bool) -> Seen {
        Seen::Version { resource_version: version.to_owned(), is_next }
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
            row("ADDED", "7"),
            row("MODIFIED", "8"),
            row("BOOKMARK", "9"),
            row("DELETED", "10"),
            row("MODIFIED", "11"),
        ];
        let expected = [
            Some(version("7", false)),
            Some(version("8", true)),
            None,
            Some(Seen::Deleted { resource_version: "10".to_owned() }),
            Some(version("11", true)),
        ];
        for size in [1, 2, 3, 4, 5, 7, 64, 1000] {
            let mut events = Events::default();
            for (bytes, expected) in bytes.iter().zip(&expected) {
                let seen: Vec<_> = bytes.chunks(size).filter_map(|part| events.take(part).unwrap()).collect();
                assert_eq!(seen.first(), expected.as_ref(), "in pieces of {size}");
                assert_eq!(events.last_bytes(), bytes.len());
            }
            assert_eq!(events.input.capacity(), 0, "nothing is kept between two events");
        }
        let all = bytes.concat();
        for cut in 0..all.len() {
            let mut events = Events::default();
            let (before, after) = (events.take(&all[..cut]).unwrap(), events.take(&all[cut..]).unwrap());
            let last = after.map(|after| after.in_place_of(before.clone())).or(before);
            assert_eq!(last, Some(version("11", false)), "only the last counts, cut at {cut}");
        }
    }

    #[test]
    fn an_error_of_the_server_is_its_refusal() {
        let status = r#"{"kind":"Status","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#;
        let event = format!(r#"{{"type":"ERROR","object":{status}}}"#) + "\n";
        let over = Events::default().take(event.as_bytes()).unwrap_err();
        assert_eq!(word(over), "server answered 410 Expired: too old resource version");
    }

    #[test]
    fn an_event_that_is_too_long_is_not_waited_for_and_one_that_fits_is_kept_no_longer_than_it_comes() {
        for bytes in [1, 1000] {
            let mut events = Events::default();
            for _ in 0..limits::WATCH_EVENT_BYTES / bytes {
                assert_eq!(events.take(&vec![b' '; bytes]), Ok(None));
            }
            assert!(events.input.len() <= limits::WATCH_EVENT_BYTES);
            assert_eq!(word(events.take(&[b' '; 1000]).unwrap_err()), "event-too-large");
        }
        let mut events = Events::default();
        assert_eq!(events.take(&vec![b' '; limits::WATCH_EVENT_BYTES]), Ok(None));
        assert_eq!(word(events.take(b"\n").unwrap_err()), "reply-malformed");
    }

    #[test]
    fn whatever_else_comes_is_no_event_and_no_panic() {
        for wrong in [
            "",
            "{}",
            "[1]",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"MODIFIED","object":{"kind":"Table","metadata":{"resourceVersion":""}}}"#,
            r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":7}}}"#,
            r#"{"type":"ERROR","object":{"code":410}}"#,
            r#"{"type":"ERROR","object":{"kind":"Status","code":99999}}"#,
        ] {
            let event = [wrong, "\n"].concat();
            assert_eq!(word(Events::default().take(event.as_bytes()).unwrap_err()), "reply-malformed", "{wrong}");
        }
        let whole = row("MODIFIED", "8");
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[place] ^= 1 << bit;
                let mut events = Events::default();
                let _ = (events.take(&bytes), events.take(&whole));
            }
        }
    }
}
