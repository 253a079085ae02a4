//! Turns a write into a thread that does it: no heartbeat waits for a disk.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::clock;
use super::control;
use super::disk::{Disk, JOURNAL};
use super::disk_error;
use super::known_servers::KnownServers;
use super::reactor::Reactor;
use super::thread::Source;
use crate::agent::Notice;
use crate::config::Settings;
use crate::journal::{BootId, Journal, Write};
use crate::time::Up;

/// How long a start waits for the state directory: a card that cleans itself up needs seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at files, the state directory among them, and answers what is to be told of them, each with its machine word.
pub type LookAtFiles = Box<dyn FnOnce() -> Vec<(&'static str, String)> + Send>;

/// The disk of the agent, and what an earlier process left there: records to be told, and where servers were found; and the
/// socket there that commands ask over, where there can be one. The only error is that another process has the state directory.
pub fn open(
    reactor: &Reactor,
    settings: &Settings,
    boot: BootId,
    look: LookAtFiles,
) -> Result<(DiskWriter, Journal, KnownServers, Option<OwnedFd>), Notice> {
    let source = Source::new("state-directory", 1);
    let directory = settings.state_directory.clone();
    let read = source.ask(move || {
        let opened = Disk::open(&directory);
        let control = opened.as_ref().ok().and_then(|(disk, ..)| control::listen_in(disk.own_directory()?).ok());
        (opened, KnownServers::read(&directory), look(), control)
    });
    let answer = reactor.block_on(reactor.before(clock::up() + PATIENCE, read));
    let (opened, known, remarks, control) = match answer {
        Ok(Some(Ok(answer))) => answer,
        _ => (Ok(Disk::silent(&settings.state_directory)), KnownServers::default(), Vec::new(), None),
    };
    for (word, remark) in remarks {
        ::log::warn!(target: word, "{remark}");
    }
    let (disk, bytes, problem) = opened?;
    let (journal, found) = Journal::recover(&bytes, settings.journal_quota_bytes, boot);
    let path = format!("{}/{JOURNAL}", settings.state_directory);
    if !found.is_whole() {
        ::log::warn!(target: "journal-damaged", "{path}: {found}; everything else is there");
    } else if found.records > 0 {
        ::log::info!(target: "journal-recovered", "{path}: {found}");
    }
    let writer = DiskWriter::new(source, settings.state_directory.clone(), disk);
    problem.into_iter().for_each(|problem| writer.tell(&problem));
    Ok((writer, journal, known, control))
}

/// One write after the other.
pub struct DiskWriter {
    source: Source,
    /// Locked by the thread of a write.
    disk: Arc<Mutex<Disk>>,
    turn: smol::lock::Mutex<()>,
    /// What was last said of it; a problem is told once, not every ten minutes.
    told: Cell<Option<&'static str>>,
    failing: RefCell<Option<Failing>>,
    directory: String,
    /// When the write of the journal began that has not come back.
    began: Cell<Option<Up>>,
}

/// Writes of the journal in a row, ten seconds and more apart, that failed as on a disk that is broken.
struct Failing {
    count: u32,
    /// As the first one put it.
    problem: String,
}

/// One may be by chance.
const TELLING_FAILURES: u32 = 2;
/// A card that cleans itself up needs seconds.
const LONGEST_WRITE: Duration = Duration::from_secs(60);

impl DiskWriter {
    fn new(source: Source, directory: String, disk: Disk) -> DiskWriter {
        DiskWriter {
            source,
            disk: Arc::new(Mutex::new(disk)),
            turn: smol::lock::Mutex::default(),
            told: Cell::default(),
            failing: RefCell::default(),
            directory,
            began: Cell::default(),
        }
    }

    /// Whether whoever looks at the directory may wait for ever.
    pub fn is_silent(&self) -> bool {
        self.told.get() == Some(disk_error::SILENT)
    }

    /// Whether the file of this name is so on the disk now. While another write hangs, this one waits for it.
    pub async fn write(&self, name: &'static str, write: Write) -> bool {
        let _one = self.turn.lock().await;
        let disk = Arc::clone(&self.disk);
        self.began.set((name == JOURNAL).then(clock::up));
        let written = self.source.ask(move || Some(disk.lock().ok()?.write(name, &write))).await;
        self.began.set(None);
        if let (JOURNAL, Ok(Some(written))) = (name, &written) {
            self.note(written.as_ref().err());
        }
        match written {
            Ok(Some(Ok(()))) => {
                self.told.set(None);
                true
            }
            Ok(Some(Err(problem))) => {
                self.tell(&problem);
                false
            }
            // No memory for a thread: there may be some later.
            Ok(None) | Err(_) => false,
        }
    }

    /// What is wrong with a disk on which one write after the other fails, or one does not come back.
    pub fn failed_write(&self, now: Up) -> Option<String> {
        if self.began.get().is_some_and(|began| now - began >= LONGEST_WRITE) {
            return Some(disk_error::silent(&self.directory).text);
        }
        let failing = self.failing.borrow();
        failing.as_ref().filter(|failing| failing.count >= TELLING_FAILURES).map(|failing| failing.problem.clone())
    }

    /// How a write of the journal ended.
    fn note(&self, problem: Option<&Notice>) {
        let broken = problem.filter(|problem| matches!(problem.word, disk_error::READ_ONLY | disk_error::FAILING));
        let known = self.failing.take();
        self.failing.replace(broken.map(|problem| match known {
            Some(known) => Failing { count: known.count + 1, ..known },
            None => Failing { count: 1, problem: problem.text.clone() },
        }));
    }

    fn tell(&self, problem: &Notice) {
        let word = problem.word;
        if self.told.replace(Some(word)) != Some(word) {
            let consequence = "until then what happens is kept in memory only, and so is where the server is found";
            ::log::warn!(target: word, "{problem}; {consequence}");
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_disk_fails_when_two_writes_in_a_row_do_as_on_one_that_is_broken_or_one_takes_a_minute() {
        let (disk, ..) = Disk::silent("/state");
        let writer = DiskWriter::new(Source::new("state-directory", 1), "/state".to_owned(), disk);
        let end = |errno: Option<Errno>| {
            let problem = errno.map(|errno| disk_error::refused("write", "/state/journal", "/state", errno));
            writer.note(problem.as_ref());
            writer.failed_write(Up::BOOT)
        };
        for broken in [Errno::EIO, Errno::EROFS, Errno::ENXIO, Errno::EUCLEAN] {
            assert_eq!(end(Some(broken)), None, "one may be by chance");
            let said = end(Some(Errno::EIO)).unwrap();
            assert!(said.starts_with(&format!("cannot write /state/journal: {}", cause_of(broken))), "{said}");
            assert_eq!(end(Some(Errno::EROFS)), Some(said), "it stays the same");
            assert_eq!(end(None), None);
        }
        for other in [Errno::ENOSPC, Errno::EACCES, Errno::ENOENT, Errno::EMFILE] {
            assert_eq!([end(Some(other)), end(Some(other)), end(Some(other))], [None, None, None], "{other}");
        }
        assert_eq!([end(Some(Errno::EIO)), end(Some(Errno::ENOSPC)), end(Some(Errno::EIO))], [None, None, None]);
        let at = |seconds| Up::since_boot(Duration::from_secs(seconds));
        writer.began.set(Some(at(7)));
        assert_eq!(writer.failed_write(at(66)), None);
        assert_eq!(writer.failed_write(at(67)).map(|said| said.contains("/state does not answer")), Some(true));
    }

    fn cause_of(errno: Errno) -> String {
        super::super::file::cause(&errno.into())
    }
}
