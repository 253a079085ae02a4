//! Turns a write of the journal into a thread that does it: no heartbeat waits for a disk.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::disk::{Disk, JOURNAL};
use super::disk_error::DiskError;
use super::kept::Kept;
use super::reactor::Reactor;
use super::thread::{self, Source};
use crate::config::Settings;
use crate::journal::{BootId, Journal, Write};

/// How long a start waits for the state directory: a card that cleans itself up needs seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at files, the state directory among them, and answers what is to be told of them, each with its machine word.
pub type LookAtFiles = Box<dyn FnOnce() -> Vec<(&'static str, String)> + Send>;

/// The disk of the agent, and what an earlier process left there: records to be told, and where servers were found. The
/// only error is that another process has the state directory.
pub fn open(
    reactor: &Reactor,
    settings: &Settings,
    boot: BootId,
    look: LookAtFiles,
) -> Result<(DiskWriter, Journal, Kept), DiskError> {
    let directory = settings.state_directory.clone();
    let read = move || (Disk::open(&directory), Kept::read(&directory), look());
    let answer = reactor.block_on(Source::new("state-reader", PATIENCE).ask(reactor, read));
    let silent = || (Ok(Disk::silent(&settings.state_directory)), Kept::default(), Vec::new());
    let (opened, kept, remarks) = answer.ok().flatten().unwrap_or_else(silent);
    for (word, remark) in remarks {
        ::log::warn!(target: word, "{remark}");
    }
    let (disk, bytes, trouble) = opened?;
    let (journal, found) = Journal::recover(&bytes, settings.journal_quota_bytes, boot);
    let path = format!("{}/{JOURNAL}", settings.state_directory);
    if !found.is_whole() {
        ::log::warn!(target: "journal-damaged", "{path}: {found}; everything else is there");
    } else if found.records > 0 {
        ::log::info!(target: "journal-recovered", "{path}: {found}");
    }
    Ok((DiskWriter::new(disk, trouble.as_ref()), journal, kept))
}

/// One write at a time. While one hangs, further ones fail: the journal goes on from memory.
pub struct DiskWriter {
    /// `None` while the thread of a write has it.
    disk: RefCell<Option<Disk>>,
    /// What was last said of it; a trouble is told once, not every ten minutes.
    told: Cell<Option<&'static str>>,
}

impl DiskWriter {
    /// `trouble`: what [`Disk::open`] had to say, told now.
    fn new(disk: Disk, trouble: Option<&DiskError>) -> DiskWriter {
        let writer = DiskWriter { disk: RefCell::new(Some(disk)), told: Cell::new(None) };
        trouble.into_iter().for_each(|trouble| writer.tell(trouble));
        writer
    }

    /// Whether whoever looks at the directory may wait for ever.
    pub fn is_silent(&self) -> bool {
        self.told.get() == Some(DiskError::SILENT)
    }

    /// Whether it is on the disk now.
    pub async fn write(&self, write: Write) -> bool {
        let Some(disk) = self.disk.take() else { return false };
        let task = Arc::new(Mutex::new(Some((disk, write))));
        let taken = Arc::clone(&task);
        let begun = thread::begin("journal-writer", thread::WRITER_STACK_BYTES, move || {
            let (mut disk, write) = taken.lock().ok()?.take()?;
            let written = disk.write(&write);
            Some((disk, written))
        });
        let Ok(answer) = begun else {
            // No memory for a thread: there may be some later.
            self.disk.replace(task.lock().ok().and_then(|mut task| task.take()).map(|(disk, _)| disk));
            return false;
        };
        let Some((disk, written)) = answer.get().await.flatten() else { return false };
        self.disk.replace(Some(disk));
        match written {
            Ok(()) => self.told.set(None),
            Err(trouble) => {
                self.tell(&trouble);
                return false;
            }
        }
        true
    }

    fn tell(&self, trouble: &DiskError) {
        let word = trouble.word();
        if self.told.replace(Some(word)) != Some(word) {
            ::log::warn!(target: word, "{trouble}; until then what happens is kept in memory only");
        }
    }
}
