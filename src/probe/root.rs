//! Turns a path below a root into the bytes, the lines or the names that are there, or why there are none.
//!
//! The only file of the probe that touches files; the others parse what is read here.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::attribute;
use super::facts::{Absent, Fact, FileSystem, Why, first_known};
use crate::config::limits;

/// The directory that every path of the probe is below: `/`, the mounted root of a host, or a capture of a machine.
///
/// Symbolic links are followed inside it: an absolute link starts again at the root, and `..` cannot leave it.
#[derive(Debug, Clone)]
pub struct Root {
    directory: PathBuf,
    kind: Kind,
}

/// Whose files these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `/`: of this process, its namespaces included.
    Own,
    /// The live root of a host, mounted into a container: its own namespaces are those of its first process.
    Mounted,
    /// `/proc` is plain files: what the kernel answers by system call is then not about the captured machine.
    Capture,
}

impl Root {
    /// The root at `directory`; one that does not exist has no facts.
    pub fn new(directory: impl Into<PathBuf>) -> Root {
        let directory = directory.into();
        if directory == Path::new("/") {
            return Root { directory, kind: Kind::Own };
        }
        let mut root = Root { directory, kind: Kind::Capture };
        // A link that leads out of a capture does not make it a host.
        let proc = root.resolve("/proc").and_then(|path| statfs(&path).map_err(io::Error::from));
        if proc.is_ok_and(|found| found.filesystem_type() == PROC_SUPER_MAGIC) {
            root.kind = Kind::Mounted;
        }
        root
    }

    /// Whether it is `/`, where this program itself runs.
    pub(super) fn is_own(&self) -> bool {
        self.kind == Kind::Own
    }

    /// What a file says, up to `most_bytes`, and whether it goes on. Never sized by `stat`, which lies about these. Drivers exist
    /// that answer a reader who waits for the end with EAGAIN for ever: what they said before is all.
    fn read(&self, path: &str, most_bytes: usize) -> Fact<(Vec<u8>, bool)> {
        let mut bytes = Vec::with_capacity(limits::ATTRIBUTE_BYTES);
        let end = self.open(path).and_then(|file| file.take(most_bytes as u64).read_to_end(&mut bytes));
        let is_cut = end.is_err() || bytes.len() == most_bytes;
        match end {
            Err(error) if bytes.is_empty() => Err(absent(path, &error)),
            _ => Ok((bytes, is_cut)),
        }
    }

    /// The bytes of one attribute; of more than two pages the beginning.
    pub fn read_attribute(&self, path: &str) -> Fact<Vec<u8>> {
        self.read(path, 2 * limits::ATTRIBUTE_BYTES).map(|(bytes, _)| bytes)
    }

    /// One attribute as text: trimmed, and without control characters. Nothing left is an absence of its own.
    pub fn read_text(&self, path: &str) -> Fact<String> {
        let text = attribute::text(&self.read_attribute(path)?);
        if text.is_empty() { Err(Absent::new(path, Why::Empty)) } else { Ok(text) }
    }

    /// The same, parsed.
    pub(super) fn read_as<T>(&self, path: &str, parse: impl FnOnce(String) -> Result<T, Why>) -> Fact<T> {
        parse(self.read_text(path)?).map_err(|why| Absent::new(path, why))
    }

    /// A file of lines, read to its end or to [`limits::TABLE_BYTES`], and then without the line that was cut.
    pub fn read_table(&self, path: &str) -> Fact<String> {
        self.read_lines(path).map(|(table, _)| table)
    }

    /// The same where what is missing would be missed: a longer file is none.
    pub(super) fn read_whole_table(&self, path: &str) -> Fact<String> {
        let (table, is_cut) = self.read_lines(path)?;
        let too_long = || Why::Implausible(format!("longer than {} bytes", limits::TABLE_BYTES));
        if is_cut { Err(Absent::new(path, too_long())) } else { Ok(table) }
    }

    /// A file that means something only as a whole; a longer one is none.
    pub(super) fn read_document(&self, path: &str, most_bytes: usize) -> Fact<Vec<u8>> {
        let (bytes, _) = self.read(path, most_bytes.saturating_add(1))?;
        let too_long = || Absent::new(path, Why::Implausible(format!("longer than {most_bytes} bytes")));
        if bytes.len() > most_bytes { Err(too_long()) } else { Ok(bytes) }
    }

    /// And whether it goes on.
    fn read_lines(&self, path: &str) -> Fact<(String, bool)> {
        let (bytes, is_cut) = self.read(path, limits::TABLE_BYTES)?;
        Ok((table_of(path, bytes, is_cut)?, is_cut))
    }

    /// A table about a namespace, such as `net/route`: of the first process of a host, else of this one (`/proc/net` is a link).
    pub(super) fn read_namespace_table(&self, name: &str) -> Fact<String> {
        let read = |directory: &str| self.read_table(&format!("{directory}/{name}"));
        let [first, second, third] = self.kind.namespaces();
        first_known(read(first), || first_known(read(second), || read(third)))
    }

    /// The names in a directory, numbers in them in numeric order (`cpu10` after `cpu9`), as the kernel's order is none.
    pub fn list(&self, path: &str) -> Fact<Vec<String>> {
        self.list_preferring(path, &|_| true)
    }

    /// The same; of more than [`limits::DIRECTORY_NAMES`] names those that matter, before any others.
    pub(super) fn list_preferring(&self, path: &str, matters: &dyn Fn(&str) -> bool) -> Fact<Vec<String>> {
        let read = || -> io::Result<Vec<String>> {
            let (mut found, mut others) = (Vec::new(), Vec::new());
            for entry in fs::read_dir(self.resolve(path)?)?.flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let list = if matters(&name) { &mut found } else { &mut others };
                if list.len() < limits::DIRECTORY_NAMES {
                    list.push(name);
                }
                if found.len() == limits::DIRECTORY_NAMES {
                    break;
                }
            }
            others.truncate(limits::DIRECTORY_NAMES - found.len());
            found.append(&mut others);
            Ok(found)
        };
        let mut names = read().map_err(|error| absent(path, &error))?;
        names.sort_unstable_by(|one, other| attribute::numeric_order(one, other));
        Ok(names)
    }

    /// How many names a directory has, counted no further than one more than `most`, and in no order those that are wanted.
    pub(super) fn names(
        &self,
        path: &str,
        most: usize,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Fact<(usize, Vec<String>)> {
        let read = || -> io::Result<(usize, Vec<String>)> {
            let (mut count, mut names) = (0, Vec::new());
            for entry in fs::read_dir(self.resolve(path)?)?.take(most.saturating_add(1)) {
                count += 1;
                names.extend(entry?.file_name().into_string().ok().filter(|name| is_wanted(name)));
            }
            Ok((count, names))
        };
        read().map_err(|error| absent(path, &error))
    }

    /// Whether a directory is there, at the end of all links.
    pub(super) fn is_directory(&self, path: &str) -> bool {
        self.resolve(path).is_ok_and(|path| path.is_dir())
    }

    /// Whether a file is there, at the end of all links; it may be unreadable.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.resolve(path).is_ok_and(|path| path.exists())
    }

    /// When a file, or a folder, was last written: Unix time, seconds.
    pub(super) fn modified_at(&self, path: &str) -> Option<i64> {
        self.resolve(path).and_then(fs::metadata).ok().map(|data| data.mtime())
    }

    /// Whether `directory` holds `name`, be it a link that leads nowhere.
    pub(super) fn has_entry(&self, directory: &str, name: &str) -> bool {
        self.resolve(directory).is_ok_and(|directory| fs::symlink_metadata(directory.join(name)).is_ok())
    }

    /// `path`, or as much of it as exists.
    pub(super) fn nearest_existing<'a>(&self, path: &'a str) -> &'a str {
        let mut nearest = path;
        while self.kind != Kind::Capture && !self.exists(nearest) {
            match nearest.trim_end_matches('/').rsplit_once('/') {
                Some((parent, _)) if !parent.is_empty() => nearest = parent,
                _ => return "/",
            }
        }
        nearest
    }

    /// A capture has files of a machine, but none of its disks.
    pub(super) fn has_disks(&self, path: &str) -> Fact<()> {
        let why = || Why::Implausible("the disk of a capture is not the machine's".to_owned());
        if self.kind == Kind::Capture { Err(Absent::new(path, why())) } else { Ok(()) }
    }

    /// `path`, which exists, without symbolic links, below the root.
    pub(super) fn real_path(&self, path: &str) -> Option<String> {
        let found = self.resolve(path).ok()?;
        let found = if self.is_own() { found.canonicalize().ok()? } else { found };
        let below = found.strip_prefix(&self.directory).unwrap_or(&found);
        Some(Path::new("/").join(below).to_string_lossy().into_owned())
    }

    /// The file system that holds `path` (SRC-8).
    pub(super) fn file_system(&self, path: &str) -> Fact<FileSystem> {
        self.has_disks(path)?;
        let found = self.resolve(path).and_then(|found| statvfs(&found).map_err(io::Error::from));
        found.map(|found| file_system_of(&found)).map_err(|error| absent(path, &error))
    }

    /// Whether the answers of the file system that holds `path` come over a network or from another process.
    pub(super) fn may_hang(&self, path: &str) -> bool {
        let kind = self.resolve(path).ok().and_then(|found| Some(statfs(&found).ok()?.filesystem_type().0));
        // As wide as the processor pleases, and signed on some; the numbers themselves have 32 bits.
        kind.is_some_and(|kind| REMOTE.contains(&(kind as u32)))
    }

    pub(super) fn open_log(&self, path: &str) -> Fact<LogFile> {
        self.open(path).map(LogFile).map_err(|error| absent(path, &error))
    }

    fn open(&self, path: &str) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.resolve(path)?)
    }

    /// The file that a path below the root means. At `/` that is the path itself, and costs nothing.
    fn resolve(&self, path: &str) -> io::Result<PathBuf> {
        if self.kind == Kind::Own {
            return Ok(PathBuf::from(path));
        }
        let mut found = self.directory.clone();
        let mut depth = 0_usize;
        let mut links = 0;
        let mut names = names_reversed(Path::new(path));
        while let Some(name) = names.pop() {
            if name == ".." {
                if depth > 0 {
                    found.pop();
                    depth -= 1;
                }
                continue;
            }
            found.push(&name);
            let Ok(target) = fs::read_link(&found) else {
                depth += 1;
                continue;
            };
            links += 1;
            if links > limits::SYMBOLIC_LINKS {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            found.pop();
            if target.is_absolute() {
                found.clone_from(&self.directory);
                depth = 0;
            }
            names.extend(names_reversed(&target));
        }
        Ok(found)
    }
}

/// A log, open: each reading goes on where the one before has ended.
#[derive(Debug)]
pub(super) struct LogFile(File);

impl LogFile {
    /// The next lines, whole, as many as fit into `page`: of `/dev/kmsg` one record. What it had to give up before anybody read
    /// it is left out. Breaks where there is nothing to read: whether that is only for now.
    pub(super) fn read<'a>(&mut self, page: &'a mut [u8]) -> ControlFlow<bool, &'a [u8]> {
        let length = match self.0.read(page) {
            Ok(0) => return ControlFlow::Break(true),
            Ok(length) => length,
            Err(error) => match error.raw_os_error() {
                Some(libc::EPIPE | libc::EINTR) => 0,
                code => return ControlFlow::Break(code == Some(libc::EAGAIN)),
            },
        };
        let lines = whole_lines(page.get(..length).unwrap_or_default());
        // A capture's page ends anywhere.
        let rest = i64::try_from(length - lines.len()).unwrap_or_default();
        if rest > 0 && (lines.is_empty() || self.0.seek_relative(-rest).is_err()) {
            return ControlFlow::Break(false);
        }
        ControlFlow::Continue(lines)
    }
}

impl Kind {
    /// Where tables of namespaces are, the right one first.
    fn namespaces(self) -> [&'static str; 3] {
        match self {
            Kind::Mounted => ["/proc/1", "/proc", "/proc/self"],
            Kind::Own | Kind::Capture => ["/proc", "/proc/self", "/proc/1"],
        }
    }
}

/// What a file of one value says, with room to spare.
const VALUE_BYTES: usize = 64;

/// A file that stays open, because opening it again every ten seconds would be two more system calls.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) path: Cow<'static, str>,
    file: Option<File>,
}

impl OpenFile {
    pub(super) fn new(path: impl Into<Cow<'static, str>>) -> OpenFile {
        OpenFile { path: path.into(), file: None }
    }

    /// Whether the kernel says that it has something else to say than it said last (`sysfs_notify`); few drivers do that.
    pub(super) fn has_news(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let mut asked = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        let answered = poll(&mut asked, PollTimeout::ZERO).is_ok();
        let [said] = asked.map(|one| one.revents());
        answered && said.is_some_and(|said| said.contains(PollFlags::POLLPRI))
    }

    /// What the file says now, as far as it fits into `page`: one system call. A handle that fails is opened again, once.
    pub(super) fn read<'a>(&mut self, root: &Root, page: &'a mut [u8]) -> Fact<&'a str> {
        let still_open = self.file.as_ref().and_then(|file| read_at(file, page, 0).ok()).filter(|length| *length > 0);
        let length = match still_open {
            Some(length) => length,
            None => {
                let file = root.open(&self.path).map_err(|error| absent(&self.path, &error))?;
                let length = read_at(&file, page, 0).map_err(|error| absent(&self.path, &error))?;
                self.file = Some(file);
                length
            }
        };
        let is_cut = length == page.len();
        let bytes = page.get(..length).unwrap_or_default();
        let bytes = if is_cut { whole_lines(bytes) } else { bytes };
        if bytes.is_empty() {
            return Err(Absent::new(&self.path, Why::Empty));
        }
        str::from_utf8(bytes).map_err(|_| Absent::new(&self.path, Why::Malformed("not UTF-8".to_owned())))
    }

    /// What a file of one value says now.
    pub(super) fn read_as<T>(&mut self, root: &Root, parse: impl FnOnce(&str) -> Result<T, Why>) -> Fact<T> {
        let mut page = [0; VALUE_BYTES];
        parse(self.read(root, &mut page)?).map_err(|why| Absent::new(&self.path, why))
    }

    /// One number that cannot be negative.
    pub(super) fn count(&mut self, root: &Root) -> Fact<u64> {
        self.read_as(root, attribute::count)
    }

    /// All that the file says now, as [`Root::read_table`] has it, by way of `page`: one system call for each page, and one
    /// more. A handle that fails is opened again the next time.
    pub(super) fn read_table(&mut self, root: &Root, page: &mut [u8]) -> Fact<String> {
        let failed = |error: io::Error| absent(&self.path, &error);
        let file = self.file.take().map_or_else(|| root.open(&self.path), Ok).map_err(failed)?;
        let mut bytes = Vec::new();
        let is_cut = loop {
            let length = read_at(&file, page, bytes.len() as u64).map_err(failed)?;
            bytes.extend_from_slice(page.get(..length).unwrap_or_default());
            if length == 0 || bytes.len() > limits::TABLE_BYTES {
                break length > 0;
            }
        };
        self.file = Some(file);
        table_of(&self.path, bytes, is_cut)
    }
}

/// Lines: without the last one, if that was cut.
fn table_of(path: &str, mut bytes: Vec<u8>, is_cut: bool) -> Fact<String> {
    if is_cut {
        bytes.truncate(whole_lines(&bytes).len());
    }
    if bytes.is_empty() {
        return Err(Absent::new(path, Why::Empty));
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// Without the line at the end that was cut.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    bytes.get(..end).unwrap_or_default()
}

fn names_reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    let mut names: Vec<_> = names.map(|part| part.as_os_str().to_owned()).collect();
    names.reverse();
    names
}

/// NFS, CIFS, SMB 2 and 1, FUSE, 9P, Ceph, AFS, Coda, Lustre, VirtualBox and autofs, as they stand in `linux/magic.h` and in
/// the sources of their drivers.
const REMOTE: [u32; 12] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x517b,
    0x6573_5546,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x7375_7245,
    0x0bd0_0bd0,
    0x786f_4256,
    0x0187,
];

fn file_system_of(found: &nix::sys::statvfs::Statvfs) -> FileSystem {
    let block_bytes = u64_of(found.fragment_size());
    FileSystem {
        capacity_bytes: block_bytes.saturating_mul(u64_of(found.blocks())),
        available_bytes: block_bytes.saturating_mul(u64_of(found.blocks_available())),
        inodes: u64_of(found.files()),
        inodes_free: u64_of(found.files_free()),
        read_only: found.flags().contains(FsFlags::ST_RDONLY),
    }
}

/// These are 32 bits wide on some processors and C libraries.
fn u64_of(number: impl Into<u64>) -> u64 {
    number.into()
}

fn absent(path: &str, error: &io::Error) -> Absent {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => Why::NoSuchFile,
        Some(libc::EACCES | libc::EPERM) => Why::NotPermitted,
        Some(errno) => Why::Errno(errno),
        None => Why::Malformed(error.to_string()),
    };
    Absent::new(path, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_a_mounted_host_is_that_of_its_first_process() {
        assert_eq!(Kind::Mounted.namespaces(), ["/proc/1", "/proc", "/proc/self"]);
        assert_eq!(Kind::Capture.namespaces(), ["/proc", "/proc/self", "/proc/1"]);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_has_the_file_system_of_its_nearest_parent() {
        let own = Root::new("/");
        for (path, nearest) in
            [("/usr/bin", "/usr/bin"), ("/usr/no/such/", "/usr"), ("/no-such", "/"), ("no-such", "/"), ("/", "/")]
        {
            assert_eq!(own.nearest_existing(path), nearest, "{path}");
        }
        assert_eq!(Root::new("/usr").nearest_existing("/no/such"), "/no/such", "a capture has no file system");
        let (found, expected) = (own.file_system("/usr").unwrap(), statvfs("/usr").unwrap());
        let bytes = |blocks| expected.fragment_size() * blocks;
        assert_eq!((found.capacity_bytes, found.inodes), (bytes(expected.blocks()), expected.files()));
        assert!(found.available_bytes > 1 && found.available_bytes <= found.capacity_bytes);
        assert!(found.inodes_free <= found.inodes);
    }

    #[test]
    fn a_root_is_ours_a_hosts_or_a_capture() {
        for (directory, kind) in [("/", Kind::Own), ("/proc/self/root", Kind::Mounted), ("/usr", Kind::Capture)] {
            assert_eq!(Root::new(directory).kind, kind, "{directory}");
        }
    }
}
