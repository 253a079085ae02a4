//! Turns writes into files of the state directory that a power cut leaves alone, and the journal there back into its bytes.
//!
//! Who holds the directory's lock (`flock` of the directory itself) owns the journal in it. The directory, because it stays
//! when the file is replaced, needs nothing to be created on a full or read-only disk, leaves nothing behind, and is let go
//! by the kernel however the process ends; `/proc/locks` knows by whom it is held, where a file with a number in it would
//! only know by whom it was.
//!
//! All files are opened below the directory's descriptor, never through a symbolic link. A call here may take as long as the
//! disk likes: a card that cleans itself up needs seconds, one that dies never answers. So the agent makes it on a thread of
//! its own, goes on from memory after ten seconds (`agent/memory.rs`), and begins no second write before the first has
//! come back. A process killed in such a write goes when the disk lets it.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, mkdir, unlinkat};

use super::disk_error;
use crate::agent::Notice;
use crate::config::limits;
use crate::journal::Write;

/// In the state directory.
pub const JOURNAL: &str = "journal";
/// Where servers were found, and when the newest certificate was issued.
pub const KNOWN_SERVERS: &str = "uplink";

/// A part of the file that is read at once, and so what one bad block costs.
const BLOCK_BYTES: usize = 4096;
/// What stands for a block that the disk does not give: nothing that the journal takes for free space.
const UNREADABLE: u8 = 0xFF;

/// The state directory, as far as it can be had.
pub struct Disk {
    directory_path: String,
    /// Locked by this process as long as it is open.
    directory: Option<File>,
    /// The journal, open for writing.
    journal: Option<File>,
    /// What is in the journal was read, or there was none: it may be replaced.
    was_read: bool,
}

impl Disk {
    /// The directory, where this process has its lock.
    pub fn own_directory(&self) -> Option<&File> {
        self.directory.as_ref()
    }

    /// Opens the directory, which is made if only it is missing, and reads the journal. The only error is that another
    /// process has it: that one goes on, so this one must not. With any other problem there is a disk that may work later,
    /// no bytes, and what is to be told.
    pub fn open(directory: &str) -> Result<(Disk, Vec<u8>, Option<Notice>), Notice> {
        let mut disk = Disk::closed(directory);
        match disk.take_directory().and_then(|()| disk.read()) {
            Ok(bytes) => {
                // Left by a power cut: never renamed, so never the journal.
                let _ = disk.remove_new(JOURNAL);
                // A disk that is read-only now says so once here, and again whenever it is written to.
                let problem = disk.open_for_writing().and_then(|()| disk.sync_found());
                Ok((disk, bytes, problem.err().filter(|error| error.word != disk_error::MISSING)))
            }
            Err(problem) if problem.word == disk_error::IN_USE => Err(problem),
            Err(problem) => Ok((disk, Vec::new(), Some(problem))),
        }
    }

    /// One that does not answer, and may later.
    pub fn silent(directory: &str) -> (Disk, Vec<u8>, Option<Notice>) {
        let disk = Disk::closed(directory);
        let problem = disk_error::silent(&disk.directory_path);
        (disk, Vec::new(), Some(problem))
    }

    fn closed(directory: &str) -> Disk {
        let directory_path = directory.trim_end_matches('/').to_owned();
        Disk { directory_path, directory: None, journal: None, was_read: false }
    }

    /// Does it to the file of this name, and comes back when it is on the disk. Only the journal is ever appended to.
    pub fn write(&mut self, name: &str, write: &Write) -> Result<(), Notice> {
        let written = self.write_here(name, write);
        if written.as_ref().is_err_and(|problem| problem.word == disk_error::MISSING) {
            // The directory was removed: one that is made anew is another one.
            (self.directory, self.journal, self.was_read) = (None, None, false);
        }
        written
    }

    fn write_here(&mut self, name: &str, write: &Write) -> Result<(), Notice> {
        self.take_directory()?;
        if name == JOURNAL && !self.was_read {
            // The directory came late, with a card or a mount: what it says must not be lost.
            if self.stat()?.is_some() {
                return Err(disk_error::unread(&self.path(JOURNAL)));
            }
            self.was_read = true;
        }
        match write {
            Write::Append { at_bytes, bytes } => self.append(*at_bytes, bytes),
            Write::Replace { bytes } if name == JOURNAL => {
                self.stat()?;
                self.journal = Some(self.replace(name, bytes)?);
                self.sync_directory()
            }
            Write::Replace { bytes } => {
                self.replace(name, bytes)?;
                self.sync_directory()
            }
        }
    }

    fn append(&mut self, at_bytes: u64, bytes: &[u8]) -> Result<(), Notice> {
        self.open_for_writing()?;
        let journal = self.journal.as_ref().ok_or_else(|| self.failed("write", JOURNAL, Errno::EBADF))?;
        let (named, opened) = (self.stat()?, fstat(journal));
        if named.map(|named| named.st_ino) != opened.ok().map(|opened| opened.st_ino) {
            // Somebody took it away: what is written into it now, nobody would find.
            self.journal = None;
            return Err(self.failed("append to", JOURNAL, Errno::ESTALE));
        }
        let written = journal.write_all_at(bytes, at_bytes).and_then(|()| journal.sync_data());
        written.map_err(|error| self.failed("write", JOURNAL, errno(&error)))
    }

    /// Writes a file beside the old one that takes its name when it is whole on the disk.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<File, Notice> {
        // It, or what somebody put there, has its own rights and may point elsewhere.
        let _ = self.remove_new(name);
        let new = new_name(name);
        let mut file = self.open_below(&new, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let written = written.map_err(|error| self.failed("write", &new, errno(&error))).and_then(|()| {
            let directory = self.directory()?;
            renameat(directory, new.as_str(), directory, name).map_err(|errno| self.failed("replace", name, errno))
        });
        if written.is_err() {
            // A full disk gets its blocks back.
            let _ = self.remove_new(name);
        }
        written.map(|()| file)
    }

    fn remove_new(&self, name: &str) -> Result<(), Notice> {
        let removed = unlinkat(self.directory()?, new_name(name).as_str(), UnlinkatFlags::NoRemoveDir);
        removed.map_err(|errno| self.failed("remove", &new_name(name), errno))
    }

    /// Has the directory and its lock, from now on.
    fn take_directory(&mut self) -> Result<(), Notice> {
        if self.directory.is_some() {
            return Ok(());
        }
        let path = self.directory_path.as_str();
        if !path.starts_with('/') {
            return Err(self.failed("open", "", Errno::ENOENT));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = match open(path, flags, Mode::empty()) {
            Err(Errno::ENOENT) => {
                mkdir(path, Mode::S_IRWXU).map_err(|errno| self.failed("make", "", errno))?;
                open(path, flags, Mode::empty())
            }
            opened => opened,
        };
        let directory = File::from(opened.map_err(|errno| self.failed("open", "", errno))?);
        let inode = directory.metadata().map_or(0, |metadata| metadata.ino());
        match directory.try_lock() {
            Ok(()) => {
                self.directory = Some(directory);
                Ok(())
            }
            Err(TryLockError::WouldBlock) => Err(disk_error::in_use(path, holder(inode))),
            Err(TryLockError::Error(error)) => Err(self.failed("lock", "", errno(&error))),
        }
    }

    fn directory(&self) -> Result<&File, Notice> {
        self.own_directory().ok_or_else(|| self.failed("open", "", Errno::ENOENT))
    }

    /// What has the journal's name, if anything. Only a plain file may.
    fn stat(&self) -> Result<Option<FileStat>, Notice> {
        match fstatat(self.directory()?, JOURNAL, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.failed("look at", JOURNAL, errno)),
            Ok(stat) => {
                let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
                let what = match kind {
                    SFlag::S_IFREG => return Ok(Some(stat)),
                    SFlag::S_IFDIR => "a directory",
                    SFlag::S_IFLNK => "a symbolic link",
                    SFlag::S_IFIFO => "a pipe",
                    _ => "no file",
                };
                Err(disk_error::not_a_file(&self.path(JOURNAL), what))
            }
        }
    }

    fn read(&mut self) -> Result<Vec<u8>, Notice> {
        let bytes = match self.stat()? {
            None => Vec::new(),
            Some(_) => {
                let file = self.open_below(JOURNAL, OFlag::O_RDONLY)?;
                read_blocks(&file).map_err(|error| self.failed("read", JOURNAL, errno(&error)))?
            }
        };
        self.was_read = true;
        Ok(bytes)
    }

    fn open_for_writing(&mut self) -> Result<(), Notice> {
        if self.journal.is_none() {
            self.journal = Some(self.open_below(JOURNAL, OFlag::O_RDWR)?);
        }
        Ok(())
    }

    /// What a process that was killed in a write left in the kernel's memory was read like the rest: from here on it is on
    /// the disk like the rest.
    fn sync_found(&self) -> Result<(), Notice> {
        let synced = self.journal.as_ref().map_or(Ok(()), File::sync_data);
        synced.map_err(|error| self.failed("sync", JOURNAL, errno(&error)))?;
        self.sync_directory()
    }

    fn sync_directory(&self) -> Result<(), Notice> {
        match self.directory()?.sync_all().map_err(|error| errno(&error)) {
            // Some file systems in user space have no such thing.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOSYS) => Ok(()),
            Err(errno) => Err(self.failed("sync", "", errno)),
        }
    }

    /// Never waits for the other end of a pipe, and never leaves the directory.
    fn open_below(&self, name: &str, flags: OFlag) -> Result<File, Notice> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let opened: Result<OwnedFd, Errno> = openat(self.directory()?, name, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        opened.map(File::from).map_err(|errno| self.failed("open", name, errno))
    }

    fn failed(&self, doing: &str, name: &str, errno: Errno) -> Notice {
        disk_error::refused(doing, &self.path(name), &self.directory_path, errno)
    }

    fn path(&self, name: &str) -> String {
        if name.is_empty() { self.directory_path.clone() } else { format!("{}/{name}", self.directory_path) }
    }
}

/// What a new file is called until it takes the name.
fn new_name(name: &str) -> String {
    format!("{name}.new")
}

/// The bytes of a journal that this process does not own, for somebody who wants to see them; a running agent may be
/// writing to it.
pub fn read_journal(path: &str) -> Result<Vec<u8>, Notice> {
    let directory = path.rsplit_once('/').map_or(".", |(directory, _)| directory);
    let failed = |errno| disk_error::refused("read", path, directory, errno);
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = File::from(open(path, flags, Mode::empty()).map_err(failed)?);
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Err(disk_error::not_a_file(path, "no file"));
    }
    read_blocks(&file).map_err(|error| failed(errno(&error)))
}

/// A block that cannot be read is damage and no more: what stands around it is worth having.
fn read_blocks(file: &File) -> io::Result<Vec<u8>> {
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(limits::JOURNAL_MOST_BYTES);
    let mut bytes = vec![0; size];
    let mut at = 0;
    for block in bytes.chunks_mut(BLOCK_BYTES) {
        match file.read_exact_at(block, at) {
            Ok(()) => {}
            // The file was replaced by a shorter one meanwhile, or the block is bad.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) if errno(&error) == Errno::EIO => block.fill(UNREADABLE),
            Err(error) => return Err(error),
        }
        at += block.len() as u64;
    }
    Ok(bytes)
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Who holds the lock on this inode: `1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF` in `/proc/locks`. `None` where the
/// kernel does not say, or the process is not to be seen from this container.
fn holder(inode: u64) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_flock = words.next() == Some("FLOCK");
        let pid = words.nth(2)?.parse().ok().filter(|pid| *pid > 0);
        let place = words.next()?.rsplit_once(':')?.1.parse::<u64>();
        pid.filter(|_| is_flock && place == Ok(inode))
    };
    locks.lines().find_map(of_line)
}
