//! Turns a path into the bytes of the file there: a regular one, to its limit and no further, and without waiting for the
//! other end of a pipe or for news of the kernel.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use nix::libc;

/// Why there are none.
#[derive(Debug)]
pub enum Unreadable {
    Io(io::Error),
    /// What is there instead of a file.
    NotAFile(&'static str),
    TooLong {
        limit_bytes: usize,
    },
    NotText,
}

/// The same as text.
pub fn read_text(path: &str, limit_bytes: usize) -> Result<String, Unreadable> {
    String::from_utf8(read(path, limit_bytes)?).map_err(|_| Unreadable::NotText)
}

/// The whole file, or why not.
pub fn read(path: &str, limit_bytes: usize) -> Result<Vec<u8>, Unreadable> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).map_err(Unreadable::Io)?;
    let metadata = file.metadata().map_err(Unreadable::Io)?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let what = match () {
            () if kind.is_dir() => "a directory",
            () if kind.is_fifo() => "a pipe",
            () => "a device",
        };
        return Err(Unreadable::NotAFile(what));
    }
    // At once in its whole length: a buffer that grows leaves parts of a key behind.
    let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX).min(limit_bytes);
    let mut bytes = Vec::with_capacity(length + 1);
    file.take(limit_bytes as u64 + 1).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    if bytes.len() > limit_bytes { Err(Unreadable::TooLong { limit_bytes }) } else { Ok(bytes) }
}

/// What the system says of it: `Permission denied`, without the `(os error 13)` that tells nobody more. In the C library's own
/// words; those of nix would be there a second time.
pub fn cause(error: &io::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(" (os error").unwrap_or(text.len()));
    text
}

impl fmt::Display for Unreadable {
    /// To stand after `cannot read PATH: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Io(error) => f.write_str(&cause(error)),
            Unreadable::NotAFile(what) => write!(f, "it is {what}, not a regular file"),
            Unreadable::TooLong { limit_bytes } => write!(f, "it is longer than {limit_bytes} bytes"),
            Unreadable::NotText => f.write_str("it is not text in UTF-8"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::clock;
    use crate::io::loopback::TempFolder;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::time::Duration;

    #[test]
    fn nothing_but_a_file_is_read_and_nothing_is_waited_for() {
        let folder = TempFolder::new();
        let pipe = folder.path("pipe");
        mkfifo(pipe.as_str(), Mode::S_IRWXU).unwrap();
        let begun = clock::up();
        for (path, told) in [
            (pipe.as_str(), "it is a pipe, not a regular file"),
            (&folder.path(""), "it is a directory, not a regular file"),
            ("/dev/zero", "it is a device, not a regular file"),
            ("/proc/cpuinfo/x", "Not a directory"),
            ("/nonexistent", "No such file or directory"),
            (&folder.write("long", &[b'x'; 101]), "it is longer than 100 bytes"),
        ] {
            assert_eq!(read(path, 100).unwrap_err().to_string(), told, "{path}");
        }
        assert_eq!(read(&folder.write("whole", &[b'x'; 100]), 100).unwrap().len(), 100);
        // A regular file by its kind, whose reader waits for the next message of the kernel; not everybody may open it.
        for _ in 0..2 {
            let _ = read("/proc/kmsg", 1 << 20);
        }
        assert!(clock::up() - begun < Duration::from_secs(2));
    }
}
