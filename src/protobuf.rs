//! Turns a message of protobuf into its fields, one after the other, whatever it is a message of.
//!
//! ```text
//! field = varint (number << 3 | wire type), then: 0 varint, 1 eight bytes, 2 varint length and so many bytes, 5 four bytes
//! ```

/// What stands in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Number(u64),
    /// A text, a message, or a list of numbers.
    Bytes(&'a [u8]),
    /// Of a fixed size, which nothing here reads.
    Other,
}

/// The fields of one message, each with its number; `None` where the bytes stop making sense, and then nothing further does.
pub struct Fields<'a> {
    left: &'a [u8],
    /// The last of them may be shorter than it says.
    is_cut: bool,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let field = self.read_field();
        if field.is_none() {
            self.left = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    /// Of a whole message.
    pub fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { left: message, is_cut: false }
    }

    /// Of the beginning of a message.
    pub fn of_beginning(message: &'a [u8]) -> Fields<'a> {
        Fields { left: message, is_cut: true }
    }

    fn read_field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.read_varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.read_varint()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let length = usize::try_from(self.read_varint()?).ok()?;
                Value::Bytes(self.take(if self.is_cut { length.min(self.left.len()) } else { length })?)
            }
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    /// Of what is behind the head of a field; of a number nothing.
    fn read_length(&mut self) -> Option<u64> {
        let tag = self.read_varint()?;
        match tag & 7 {
            0 => self.read_varint().map(|_| 0),
            1 => Some(8),
            2 => self.read_varint(),
            5 => Some(4),
            _ => Some(u64::MAX),
        }
    }

    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.left.split_at_checked(length)?;
        self.left = rest;
        Some(taken)
    }
}

/// Number and length of a field, bytes at most.
const HEAD_BYTES: usize = 20;

/// How many bytes the first field of a message has of which this is the beginning; `None`: that has not come yet. What makes no
/// sense never ends.
pub fn first_field_bytes(beginning: &[u8]) -> Option<u64> {
    let mut fields = Fields::of(beginning);
    match fields.read_length() {
        Some(length) => Some(length.saturating_add((beginning.len() - fields.left.len()) as u64)),
        None => (beginning.len() >= HEAD_BYTES).then_some(u64::MAX),
    }
}

/// Appends a field that holds these bytes.
pub fn put_bytes(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    let mut length = bytes.len();
    while length > 0x7f {
        message.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_wire_type_are_found() {
        let message = b"\x08\x96\x01\x12\x02hi\x19AAAAAAAA\x25AAAA\xa2\x06\0";
        let all: Vec<_> = Fields::of(message).collect();
        let (number, text, empty) = (Value::Number(150), Value::Bytes(b"hi"), Value::Bytes(b""));
        let expected = [(1, number), (2, text), (3, Value::Other), (4, Value::Other), (100, empty)];
        assert_eq!(all, expected.map(Some));
    }

    #[test]
    fn the_first_field_of_a_beginning_has_its_length_as_soon_as_its_head_has_come() {
        for (beginning, length) in [
            (&b""[..], None),
            (b"\x0a", None),
            (b"\x0a\x80", None),
            (b"\x0a\x80\x01", Some(131)),
            (b"\x0a\x80\x01and more", Some(131)),
            (b"\x08\x96", None),
            (b"\x08\x96\x01\x08", Some(3)),
            (b"\x19", Some(9)),
            (b"\x25AA", Some(5)),
            (b"\x0b", Some(u64::MAX)),
            (&[0xff; 19], None),
            (&[0xff; 20], Some(u64::MAX)),
        ] {
            assert_eq!(first_field_bytes(beginning), length, "{beginning:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_ends_the_message() {
        // A group, a length beyond the message, a varint of eleven bytes, one that is cut.
        for message in [&b"\x0b"[..], b"\x12\x05hi", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08\x96"] {
            assert_eq!(Fields::of(message).collect::<Vec<_>>(), [None], "{message:?}");
        }
        let cut: Vec<_> = Fields::of_beginning(b"\x12\x05hi").collect();
        assert_eq!(cut, [Some((2, Value::Bytes(b"hi")))]);
    }

    #[test]
    fn a_field_of_any_length_is_read_as_it_was_written() {
        for length in [0, 1, 127, 128, 300, 70_000] {
            let (mut message, text) = (Vec::new(), vec![b'x'; length]);
            put_bytes(&mut message, 3, &text);
            let all: Vec<_> = Fields::of(&message).collect();
            assert_eq!(all, [Some((3, Value::Bytes(&text)))], "{length}");
        }
    }
}
