//! Turns writes of the journal into what a disk holds after them, or after a power cut in the middle of one.
//!
//! What was synced stays. Of what was not, each sector of 512 bytes is there, or is not, or ends half way; a file that was
//! not synced has any length up to its own; a rename is there or not. What a write does not touch, it does not harm.

// Every user takes a part of it.
#![allow(dead_code)]

use nodepulse::journal::Write;

const SECTOR_BYTES: usize = 512;

/// A number below its argument, which is not 0: where the world goes one way or the other.
pub type Chance<'a> = &'a mut dyn FnMut(u64) -> u64;

/// The directory of the journal, as the next process finds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// The file; empty where there is none yet.
    pub journal: Vec<u8>,
    /// What a replacement left behind that was never renamed.
    pub aside: Option<Vec<u8>>,
}

/// Where in a write the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Before anything.
    Before,
    /// The bytes are on their way, nothing is synced.
    Writing,
    /// The new file is synced, its name is not (a replacement only).
    Renaming,
    /// Everything is synced; nobody was told.
    After,
}

impl Cut {
    pub const ALL: [Cut; 4] = [Cut::Before, Cut::Writing, Cut::Renaming, Cut::After];
}

/// What a disk does that lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// None: what it says is synced is.
    Honest,
    /// A sync that does nothing: what the last write changed is lost with the power.
    NotSynced,
    /// The new name is there before the new bytes.
    RenamedFirst,
    /// What was there a write ago comes back.
    OldBytes,
}

impl Disk {
    /// What a process that starts reads.
    pub fn read(&mut self) -> Vec<u8> {
        self.aside = None;
        self.journal.clone()
    }

    /// The whole write.
    pub fn write(&mut self, write: &Write) {
        self.aside = None;
        match write {
            Write::Append { at_bytes, bytes } => put(&mut self.journal, *at_bytes as usize, bytes),
            Write::Replace { bytes } => self.journal.clone_from(bytes),
        }
    }

    /// Whether all of this is there.
    pub fn holds(&self, write: &Write) -> bool {
        match write {
            Write::Append { at_bytes, bytes } => {
                let from = *at_bytes as usize;
                self.journal.get(from..from + bytes.len()) == Some(bytes)
            }
            Write::Replace { bytes } => self.journal == *bytes,
        }
    }

    /// The write up to a power cut, or up to an error that leaves as little certain.
    pub fn cut(&mut self, write: &Write, cut: Cut, chance: Chance<'_>) {
        match (cut, write) {
            (Cut::Before, _) => {}
            (Cut::After, _) => self.write(write),
            (Cut::Writing, Write::Append { at_bytes, bytes }) => {
                put_some(&mut self.journal, *at_bytes as usize, bytes, chance);
            }
            (Cut::Writing, Write::Replace { bytes }) => {
                let mut aside = vec![0; chance(bytes.len() as u64 + 1) as usize];
                put_some(&mut aside, 0, bytes, chance);
                self.aside = Some(aside);
            }
            (Cut::Renaming, Write::Append { .. }) => self.cut(write, Cut::Writing, chance),
            (Cut::Renaming, Write::Replace { bytes }) if chance(2) == 0 => self.aside = Some(bytes.clone()),
            (Cut::Renaming, Write::Replace { bytes }) => self.journal.clone_from(bytes),
        }
    }

    /// A write that was said to be synced, on a disk that lies, and then a power cut.
    pub fn lie(&mut self, write: &Write, lie: Lie, chance: Chance<'_>) {
        match (lie, write) {
            (Lie::Honest, _) => self.write(write),
            (Lie::OldBytes, _) => {}
            (Lie::NotSynced, Write::Append { .. }) => self.cut(write, Cut::Writing, chance),
            (Lie::NotSynced, Write::Replace { .. }) => self.cut(write, Cut::Renaming, chance),
            (Lie::RenamedFirst, Write::Append { .. }) => self.write(write),
            (Lie::RenamedFirst, Write::Replace { bytes }) => {
                self.journal = vec![0; bytes.len()];
                put_some(&mut self.journal, 0, bytes, chance);
            }
        }
    }
}

fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

/// Some of the sectors of `bytes`, in any order: each as it was, new, or half new. A file too short stays short.
fn put_some(file: &mut Vec<u8>, at: usize, bytes: &[u8], chance: Chance<'_>) {
    let grown = (at + bytes.len()).saturating_sub(file.len()) as u64;
    let length = file.len() + chance(grown + 1) as usize;
    file.resize(length, 0);
    let mut from = at;
    while from < at + bytes.len() {
        let sector_end = (from / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let whole = sector_end.min(at + bytes.len()) - from;
        let kept = match chance(4) {
            0 => 0,
            1 => chance(whole as u64) as usize,
            _ => whole,
        };
        let end = (from + kept).min(file.len());
        if from < end {
            file[from..end].copy_from_slice(&bytes[from - at..end - at]);
        }
        from += whole;
    }
}
