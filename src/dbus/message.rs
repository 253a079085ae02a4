//! Turns calls into messages of D-Bus, and the bytes of one message, in the order of either kind of processor, into its fields.
//!
//! ```text
//! 'l' or 'B', type, flags, 1   u32 length of body   u32 serial   u32 length of fields
//! fields, each aligned to 8: code, signature, value   padding to 8   body
//! ```

use super::Error;
use crate::config::limits::DBUS_MESSAGE_BYTES;

/// What each message begins with, its fields' length included.
pub const HEADER_BYTES: usize = 16;
const VERSION: u8 = 1;

pub const CALL: u8 = 1;
pub const RETURN: u8 = 2;
pub const ERROR: u8 = 3;
pub const SIGNAL: u8 = 4;

/// Codes of fields.
mod field {
    pub const PATH: u8 = 1;
    pub const INTERFACE: u8 = 2;
    pub const MEMBER: u8 = 3;
    pub const ERROR_NAME: u8 = 4;
    pub const REPLY_SERIAL: u8 = 5;
    pub const DESTINATION: u8 = 6;
    pub const SIGNATURE: u8 = 8;
    pub const DESCRIPTORS: u8 = 9;
}

/// A call whose arguments are strings, as all of ours are.
pub struct Call<'a> {
    pub destination: &'a str,
    pub path: &'a str,
    pub interface: &'a str,
    pub member: &'a str,
    pub arguments: &'a [&'a str],
}

impl Call<'_> {
    /// Appends it, in the order of bytes that almost every board has.
    pub fn write(&self, serial: u32, to: &mut Vec<u8>) {
        let (mut body, mut fields) = (Vec::new(), Vec::new());
        self.arguments.iter().for_each(|argument| put_text(&mut body, argument));
        let all = [
            (field::PATH, b'o', self.path),
            (field::DESTINATION, b's', self.destination),
            (field::INTERFACE, b's', self.interface),
            (field::MEMBER, b's', self.member),
        ];
        for (code, signature, value) in all {
            pad(&mut fields, 8);
            fields.extend([code, 1, signature, 0]);
            put_text(&mut fields, value);
        }
        if !self.arguments.is_empty() {
            pad(&mut fields, 8);
            let count = u8::try_from(self.arguments.len()).unwrap_or(u8::MAX);
            fields.extend([field::SIGNATURE, 1, b'g', 0, count]);
            fields.extend(self.arguments.iter().map(|_| b's'));
            fields.push(0);
        }
        to.extend([b'l', CALL, 0, VERSION]);
        for number in [length(&body), serial, length(&fields)] {
            to.extend(number.to_le_bytes());
        }
        pad(&mut fields, 8);
        to.extend(fields);
        to.extend(body);
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    pad(to, 4);
    to.extend(length(text.as_bytes()).to_le_bytes());
    to.extend(text.bytes());
    to.push(0);
}

/// How long the message is that begins here; `None`: that has not come yet.
pub fn length_of(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let is_message = matches!(header, [b'l' | b'B', CALL..=u8::MAX, _, VERSION, ..]);
    let mut numbers = Values { bytes: header, at: 4, is_big: header.first() == Some(&b'B') };
    let body = numbers.number().filter(|_| is_message).ok_or(Error::Malformed)?;
    numbers.at = 12;
    let fields = numbers.number().ok_or(Error::Malformed)?;
    if body.max(fields) > DBUS_MESSAGE_BYTES {
        return Err(Error::TooLarge);
    }
    let length = HEADER_BYTES + fields.next_multiple_of(8) + body;
    if length > DBUS_MESSAGE_BYTES { Err(Error::TooLarge) } else { Ok(Some(length)) }
}

/// A message of the bus; a field that it has not is empty, or zero.
#[derive(Default)]
pub struct Message<'a> {
    pub kind: u8,
    pub path: &'a str,
    pub interface: &'a str,
    pub member: &'a str,
    pub error_name: &'a str,
    pub destination: &'a str,
    pub signature: &'a str,
    pub reply_serial: usize,
    /// How many descriptors came along.
    pub descriptors: usize,
    pub body: Values<'a>,
}

impl<'a> Message<'a> {
    /// One of whole length.
    pub fn read(bytes: &'a [u8]) -> Result<Message<'a>, Error> {
        Message::fields(bytes).ok_or(Error::Malformed)
    }

    fn fields(bytes: &'a [u8]) -> Option<Message<'a>> {
        let is_big = bytes.first() == Some(&b'B');
        let mut message = Message { kind: *bytes.get(1)?, ..Message::default() };
        let fields = Values { bytes, at: 12, is_big }.number()?;
        let end = HEADER_BYTES.checked_add(fields)?;
        let mut values = Values { bytes: bytes.get(..end)?, at: HEADER_BYTES, is_big };
        while values.at < end {
            values.align(8)?;
            let code = values.byte()?;
            let signature = values.signature()?;
            let text = match code {
                field::PATH => Some((&mut message.path, "o")),
                field::INTERFACE => Some((&mut message.interface, "s")),
                field::MEMBER => Some((&mut message.member, "s")),
                field::ERROR_NAME => Some((&mut message.error_name, "s")),
                field::DESTINATION => Some((&mut message.destination, "s")),
                _ => None,
            };
            match (code, text) {
                (0, _) => return None,
                (_, Some((text, of))) => *text = values.text().filter(|_| signature == of)?,
                (field::SIGNATURE, _) => message.signature = values.signature().filter(|_| signature == "g")?,
                (field::REPLY_SERIAL, _) => message.reply_serial = values.number().filter(|_| signature == "u")?,
                (field::DESCRIPTORS, _) => message.descriptors = values.number().filter(|_| signature == "u")?,
                // What nobody knows yet is to be passed over.
                _ => values.skip(signature)?,
            }
        }
        let body = bytes.get(end.next_multiple_of(8)..)?;
        message.body = Values { bytes: body, at: 0, is_big };
        Some(message)
    }
}

/// What stands in a body or among fields, one value after the other; `None`: it does not.
#[derive(Default)]
pub struct Values<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big: bool,
}

impl<'a> Values<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub fn align(&mut self, to: usize) -> Option<()> {
        let padding = self.at.next_multiple_of(to) - self.at;
        self.take(padding)?.iter().all(|byte| *byte == 0).then_some(())
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub fn number(&mut self) -> Option<usize> {
        self.align(4)?;
        let bytes = *self.take(4)?.first_chunk()?;
        usize::try_from(if self.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }).ok()
    }

    pub fn boolean(&mut self) -> Option<bool> {
        self.number().filter(|number| *number <= 1).map(|number| number == 1)
    }

    fn text_of(&mut self, length: usize) -> Option<&'a str> {
        let (end, text) = self.take(length.checked_add(1)?)?.split_last()?;
        str::from_utf8(text).ok().filter(|text| *end == 0 && !text.contains('\0'))
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        self.text_of(length)
    }

    pub fn signature(&mut self) -> Option<&'a str> {
        let length = usize::from(self.byte()?);
        self.text_of(length)
    }

    /// Passes over one value that has no parts.
    fn skip(&mut self, signature: &str) -> Option<()> {
        let size = match signature {
            "s" | "o" => return self.text().map(drop),
            "g" => return self.signature().map(drop),
            "y" => 1,
            "n" | "q" => 2,
            "b" | "i" | "u" | "h" => 4,
            "x" | "t" | "d" => 8,
            _ => return None,
        };
        self.align(size)?;
        self.take(size).map(drop)
    }

    /// The string under this key of an `a{sv}`; `None` where it has none, or what comes before it has parts.
    pub fn entry(&mut self, wanted: &str) -> Option<&'a str> {
        let length = self.number()?;
        self.align(8)?;
        let end = self.at.checked_add(length)?;
        while self.at < end {
            self.align(8)?;
            let key = self.text()?;
            match self.signature()? {
                "s" if key == wanted => return self.text(),
                signature => self.skip(signature)?,
            }
        }
        None
    }
}

#[cfg(test)]
pub mod samples {
    //! Messages as a bus writes them, in either order of bytes, by code of its own.

    /// One value of a field or a body.
    pub enum Value<'a> {
        Number(u32),
        Text(&'a str),
        Signature(&'a str),
        /// An `a{sv}` of strings.
        Entries(&'a [(&'a str, &'a str)]),
        /// A variant with a string.
        Variant(&'a str),
    }

    pub struct Writer {
        pub bytes: Vec<u8>,
        pub is_big: bool,
    }

    impl Writer {
        fn align(&mut self, to: usize) {
            while !self.bytes.len().is_multiple_of(to) {
                self.bytes.push(0);
            }
        }

        fn number(&mut self, number: u32) {
            self.align(4);
            self.bytes.extend(if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() });
        }

        fn text(&mut self, text: &str) {
            self.number(u32::try_from(text.len()).unwrap());
            self.bytes.extend(text.bytes().chain([0]));
        }

        pub fn value(&mut self, value: &Value<'_>) {
            match value {
                Value::Number(number) => self.number(*number),
                Value::Text(text) => self.text(text),
                Value::Signature(text) => {
                    self.bytes.push(u8::try_from(text.len()).unwrap());
                    self.bytes.extend(text.bytes().chain([0]));
                }
                Value::Variant(text) => {
                    self.value(&Value::Signature("s"));
                    self.text(text);
                }
                Value::Entries(entries) => {
                    self.number(0);
                    let place = self.bytes.len() - 4;
                    self.align(8);
                    let start = self.bytes.len();
                    for (key, value) in *entries {
                        self.align(8);
                        self.text(key);
                        self.value(&Value::Variant(value));
                    }
                    let length = u32::try_from(self.bytes.len() - start).unwrap();
                    let length = if self.is_big { length.to_be_bytes() } else { length.to_le_bytes() };
                    self.bytes[place..place + 4].copy_from_slice(&length);
                }
            }
        }
    }

    /// `fields`: code, signature, value.
    pub fn message(is_big: bool, kind: u8, fields: &[(u8, &str, Value<'_>)], body: &[Value<'_>]) -> Vec<u8> {
        let mut written = Writer { bytes: Vec::new(), is_big };
        body.iter().for_each(|value| written.value(value));
        let body = written.bytes;
        let mut whole = Writer { bytes: vec![if is_big { b'B' } else { b'l' }, kind, 1, 1], is_big };
        whole.number(u32::try_from(body.len()).unwrap());
        whole.number(77);
        whole.number(0);
        for (code, signature, value) in fields {
            whole.align(8);
            whole.bytes.push(*code);
            whole.value(&Value::Signature(signature));
            whole.value(value);
        }
        let length = u32::try_from(whole.bytes.len() - 16).unwrap();
        let length = if is_big { length.to_be_bytes() } else { length.to_le_bytes() };
        whole.bytes[12..16].copy_from_slice(&length);
        whole.align(8);
        whole.bytes.extend(body);
        whole.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{Value, message};
    use super::*;

    #[test]
    fn what_a_bus_writes_is_read_in_either_order_of_bytes() {
        for is_big in [false, true] {
            let fields = [
                (1, "o", Value::Text("/org/freedesktop/login1")),
                (2, "s", Value::Text("org.freedesktop.login1.Manager")),
                (3, "s", Value::Text("PrepareForShutdown")),
                (7, "s", Value::Text(":1.7")),
                // Of some later version.
                (200, "u", Value::Number(5)),
                (8, "g", Value::Signature("ba{sv}")),
                (9, "u", Value::Number(2)),
                (5, "u", Value::Number(4)),
            ];
            let entries = [("other", "x"), ("type", "reboot")];
            let bytes = message(is_big, SIGNAL, &fields, &[Value::Number(1), Value::Entries(&entries)]);
            for end in 0..HEADER_BYTES {
                assert_eq!(length_of(&bytes[..end]), Ok(None));
            }
            assert_eq!(length_of(&bytes), Ok(Some(bytes.len())));
            let mut read = Message::read(&bytes).unwrap();
            assert_eq!((read.kind, read.path, read.member), (SIGNAL, "/org/freedesktop/login1", "PrepareForShutdown"));
            assert_eq!((read.signature, read.descriptors, read.reply_serial), ("ba{sv}", 2, 4));
            assert_eq!((read.body.boolean(), read.body.entry("type")), (Some(true), Some("reboot")));
            assert_eq!(read.body.at, read.body.bytes.len());
            let mut read = Message::read(&bytes).unwrap();
            assert_eq!((read.body.boolean(), read.body.entry("kind")), (Some(true), None));
        }
    }

    #[test]
    fn a_length_that_is_too_large_and_a_header_of_something_else_are_refused() {
        let good = message(false, RETURN, &[(5, "u", Value::Number(1))], &[]);
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = good.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            length_of(&changed)
        };
        for (at, byte) in [(0, b'H'), (0, b'b'), (1, 0), (3, 2), (3, 0)] {
            assert_eq!(with(at, &[byte]), Err(Error::Malformed), "{byte} at {at}");
        }
        let most = u32::try_from(DBUS_MESSAGE_BYTES).unwrap();
        for at in [4, 12] {
            for length in [u32::MAX, most + 1, most - 15] {
                assert_eq!(with(at, &length.to_le_bytes()), Err(Error::TooLarge), "{length} at {at}");
            }
        }
        assert_eq!(with(4, &(most - 24).to_le_bytes()), Ok(Some(DBUS_MESSAGE_BYTES)));
    }

    #[test]
    fn a_field_of_another_kind_or_beyond_its_place_is_refused() {
        for (code, signature, value) in [
            (1, "s", Value::Text("/")),
            (2, "o", Value::Text("x")),
            (3, "u", Value::Number(1)),
            (4, "g", Value::Signature("s")),
            (5, "s", Value::Text("4")),
            (6, "u", Value::Number(1)),
            (8, "s", Value::Text("b")),
            (9, "i", Value::Number(1)),
            (0, "u", Value::Number(1)),
            (99, "(u)", Value::Number(1)),
            (99, "", Value::Number(1)),
            (3, "s", Value::Text("a\0b")),
            // Longer than there is.
            (3, "s", Value::Number(9000)),
            (3, "s", Value::Number(u32::MAX)),
        ] {
            let bytes = message(false, SIGNAL, &[(code, signature, value)], &[]);
            assert!(Message::read(&bytes).is_err(), "{code} {signature}");
        }
        let mut bytes = message(false, SIGNAL, &[(3, "s", Value::Text("abc")), (3, "s", Value::Text("abc"))], &[]);
        assert!(Message::read(&bytes).is_ok());
        // Of the second text; padding follows.
        let end = 44;
        bytes[end - 2] = 0xff;
        assert!(Message::read(&bytes).is_err(), "no UTF-8");
        bytes[end - 2] = b'c';
        bytes[end - 1] = 1;
        assert!(Message::read(&bytes).is_err(), "no end");
    }
}
