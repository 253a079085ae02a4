//! Turns fields into header blocks and header blocks into fields: HPACK (RFC 7541), both directions.

mod huffman;
mod table;
#[cfg(test)]
mod tests;

use self::table::{ENTRY_BYTES, Found, Table};
use super::fields::FieldList;
use crate::config::limits;

/// Size of a dynamic table that nobody has said anything of (RFC 9113 6.5.2).
pub(super) const DEFAULT_TABLE_BYTES: usize = 4096;

/// What a table of the peer may remember of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    /// Name and value: whenever the field comes again, it costs one or two bytes.
    Indexed,
    /// Nothing, as this value does not come again.
    Once,
    /// Nothing, and nobody on the way may either (RFC 7541 7.1.3).
    Never,
}

/// One field of a request. Its name is in lower case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: &'a str,
    pub value: &'a str,
    pub indexing: Indexing,
}

impl<'a> Field<'a> {
    /// One that comes again with the next request.
    pub fn new(name: &'a str, value: &'a str) -> Field<'a> {
        Field { name, value, indexing: Indexing::Indexed }
    }

    /// One whose value is new each time.
    pub fn once(name: &'a str, value: &'a str) -> Field<'a> {
        Field { name, value, indexing: Indexing::Once }
    }

    /// One that no table may hold, the peer's or any on the way.
    pub fn never(name: &'a str, value: &'a str) -> Field<'a> {
        Field { name, value, indexing: Indexing::Never }
    }
}

impl std::fmt::Debug for Field<'_> {
    /// Never prints the value: it may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Field({}, {:?})", self.name, self.indexing)
    }
}

/// Makes the header blocks of one connection, in the order in which they are sent.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// The smallest limit since the last block, if it was changed: the next block begins with it.
    lowered_to_bytes: Option<usize>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder { table: Table::new(DEFAULT_TABLE_BYTES), lowered_to_bytes: None }
    }
}

impl Encoder {
    /// The peer's `SETTINGS_HEADER_TABLE_SIZE`; more than [`limits::HTTP2_TABLE_BYTES`] is not used.
    pub fn set_table_bytes(&mut self, peer: usize) {
        let limit = peer.min(limits::HTTP2_TABLE_BYTES);
        if limit != self.table.limit_bytes() {
            self.lowered_to_bytes = Some(limit.min(self.lowered_to_bytes.unwrap_or(limit)));
            self.table.set_limit(limit);
        }
    }

    /// Appends one block.
    pub fn encode(&mut self, fields: &[Field<'_>], block: &mut Vec<u8>) {
        if let Some(least) = self.lowered_to_bytes.take() {
            let last = self.table.limit_bytes();
            if least < last {
                write_integer(0x20, 5, least, block);
            }
            write_integer(0x20, 5, last, block);
        }
        for field in fields {
            self.encode_field(field, block);
        }
    }

    fn encode_field(&mut self, field: &Field<'_>, block: &mut Vec<u8>) {
        let (name, value) = (field.name.as_bytes(), field.value.as_bytes());
        let found = self.table.find(name, value);
        let (pattern, prefix_bits) = match (field.indexing, found) {
            (Indexing::Indexed | Indexing::Once, Found::Field(index)) => return write_integer(0x80, 7, index, block),
            (Indexing::Never, _) => (0x10, 4),
            // It would push out all others, and stay away itself.
            _ if name.len() + value.len() + ENTRY_BYTES > self.table.limit_bytes() => (0, 4),
            (Indexing::Once, _) => (0, 4),
            (Indexing::Indexed, _) => (0x40, 6),
        };
        let (Found::Field(index) | Found::Name(index)) = found;
        write_integer(pattern, prefix_bits, index, block);
        if index == 0 {
            write_text(name, block);
        }
        write_text(value, block);
        if pattern == 0x40 {
            self.table.add(name, value);
        }
    }
}

/// Reads the header blocks of one connection, in the order in which they came.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// What the peer may let the table grow to.
    agreed_bytes: usize,
    /// Name and value of the literal that is read.
    literal: Vec<u8>,
}

impl Decoder {
    /// With a table of the size that the peer was told.
    pub fn new(table_bytes: usize) -> Decoder {
        Decoder { table: Table::new(table_bytes), agreed_bytes: table_bytes, literal: Vec::new() }
    }

    /// Puts the fields of one whole block into `fields`, in the place of what it held. The block is read to its end even where
    /// the list is longer than `fields` may be, as the next one builds on it. After an error the connection cannot go on.
    pub fn decode(&mut self, block: &[u8], fields: &mut FieldList) -> Result<(), &'static str> {
        fields.clear();
        let mut reader = Reader { left: block };
        let mut may_resize = true;
        while let Some(first) = reader.left.first() {
            let is_resize = first & 0xe0 == 0x20;
            if is_resize && !may_resize {
                return Err("a table size stands behind a field");
            }
            may_resize = is_resize;
            match first {
                0x80.. => {
                    let (name, value) = self.table.get(reader.integer(7)?).ok_or(NO_ENTRY)?;
                    fields.push(name, value);
                }
                _ if is_resize => {
                    let limit = reader.integer(5)?;
                    if limit > self.agreed_bytes {
                        return Err("a table size is above the one that was agreed");
                    }
                    self.table.set_limit(limit);
                }
                _ => self.literal(&mut reader, first & 0x40 != 0, fields)?,
            }
        }
        Ok(())
    }

    fn literal(
        &mut self,
        reader: &mut Reader<'_>,
        is_indexed: bool,
        fields: &mut FieldList,
    ) -> Result<(), &'static str> {
        self.literal.clear();
        match reader.integer(if is_indexed { 6 } else { 4 })? {
            0 => reader.text(&mut self.literal)?,
            index => self.literal.extend_from_slice(self.table.get(index).ok_or(NO_ENTRY)?.0),
        }
        let name_bytes = self.literal.len();
        reader.text(&mut self.literal)?;
        let (name, value) = self.literal.split_at_checked(name_bytes).unwrap_or_default();
        fields.push(name, value);
        if is_indexed {
            self.table.add(name, value);
        }
        Ok(())
    }
}

/// Appends an integer (RFC 7541 5.1) whose first byte begins with `pattern`.
fn write_integer(pattern: u8, prefix_bits: u32, value: usize, block: &mut Vec<u8>) {
    let most = (1 << prefix_bits) - 1;
    let Some(mut rest) = value.checked_sub(most) else { return block.push(pattern | value as u8) };
    block.push(pattern | most as u8);
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// Appends a text in its shorter form (RFC 7541 5.2). No symbol is so short that two of them fit into a byte.
fn write_text(text: &[u8], block: &mut Vec<u8>) {
    let coded_bytes = if text.len() > 2 { huffman::coded_bytes(text) } else { usize::MAX };
    if coded_bytes <= text.len() {
        write_integer(0x80, 7, coded_bytes, block);
        huffman::encode(text, block);
    } else {
        write_integer(0, 7, text.len(), block);
        block.extend_from_slice(text);
    }
}

const NO_ENTRY: &str = "an index stands for nothing";
const CUT: &str = "a header block ends within a field";

/// What is left of a block.
struct Reader<'a> {
    left: &'a [u8],
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (byte, left) = self.left.split_first().ok_or(CUT)?;
        self.left = left;
        Ok(*byte)
    }

    fn integer(&mut self, prefix_bits: u32) -> Result<usize, &'static str> {
        let most = (1 << prefix_bits) - 1;
        let mut value = usize::from(self.byte()?) & most;
        if value < most {
            return Ok(value);
        }
        // Three more bytes say more than any length or index here may be.
        for shift in [0, 7, 14] {
            let byte = usize::from(self.byte()?);
            value += (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number of a header block is too long")
    }

    fn text(&mut self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        let is_coded = self.left.first().is_some_and(|first| *first >= 0x80);
        let length = self.integer(7)?;
        let (bytes, left) = self.left.split_at_checked(length).ok_or(CUT)?;
        self.left = left;
        if is_coded {
            return huffman::decode(bytes, text).ok_or("a text is not in the Huffman code");
        }
        text.extend_from_slice(bytes);
        Ok(())
    }
}
