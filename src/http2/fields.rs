//! Turns the fields of a header block, as they are decoded, into one bounded list to look things up in.

use crate::config::limits;

/// What a field counts for besides its name and its value (RFC 9113 6.5.2, `SETTINGS_MAX_HEADER_LIST_SIZE`).
const FIELD_BYTES: usize = 32;

/// The list of one block after another, in the same memory. It keeps no more than [`limits::HTTP2_FIELDS_BYTES`].
#[derive(Debug, Default)]
pub struct FieldList {
    bytes: Vec<u8>,
    /// Lengths of names and values.
    lengths: Vec<(usize, usize)>,
    /// There were more than are kept.
    is_cut: bool,
}

impl FieldList {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
        self.is_cut = false;
    }

    pub(super) fn push(&mut self, name: &[u8], value: &[u8]) {
        let fields = self.lengths.len() + 1;
        let counted_bytes = self.bytes.len() + name.len() + value.len() + FIELD_BYTES * fields;
        self.is_cut |= counted_bytes > limits::HTTP2_FIELDS_BYTES;
        if !self.is_cut {
            self.bytes.extend_from_slice(name);
            self.bytes.extend_from_slice(value);
            self.lengths.push((name.len(), value.len()));
        }
    }

    /// Whether some are missing.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub fn all(&self) -> Fields<'_> {
        Fields { bytes: &self.bytes, lengths: &self.lengths }
    }
}

/// Fields of an answer or of its trailers, in the order in which they came. Names are in lower case.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    lengths: &'a [(usize, usize)],
}

impl<'a> Fields<'a> {
    /// Name and value of each.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.bytes;
        self.lengths.iter().map_while(move |(name, value)| {
            let (field, later) = rest.split_at_checked(name + value)?;
            rest = later;
            field.split_at_checked(*name)
        })
    }

    /// What all fields of this name say.
    pub fn get_all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |field| field.0 == name.as_bytes()).map(|field| field.1)
    }

    /// What the first field of this name says.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.get_all(name).next()
    }
}
