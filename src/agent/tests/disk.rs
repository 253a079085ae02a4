//! Turns what the agent writes into the bytes of a disk in memory.

use crate::journal::Write;

/// A disk in memory.
#[derive(Default)]
pub struct Disk {
    pub bytes: Vec<u8>,
    pub fails: bool,
    /// Writes are neither done nor fail.
    pub hangs: bool,
    pub hides_the_board: bool,
    pub writes: usize,
}

impl Disk {
    pub fn write(&mut self, write: &Write) -> bool {
        self.writes += 1;
        if self.fails {
            return false;
        }
        match write {
            Write::Append { at_bytes, bytes } => {
                let at = usize::try_from(*at_bytes).unwrap();
                let end = self.bytes.len().max(at + bytes.len());
                self.bytes.resize(end, 0);
                self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Write::Replace { bytes } => self.bytes.clone_from(bytes),
        }
        true
    }
}
