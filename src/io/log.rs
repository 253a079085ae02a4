//! Turns notices into lines on standard error: with a priority for the journal, with a time for everyone else.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{SFlag, fstat};

use super::clock;
use crate::agent::{Notice, notice};
use crate::config::plain_text;
use crate::time::{Now, Up};

/// Equal lines within this span are counted instead of printed.
const REPEAT_SPAN: Duration = Duration::from_secs(300);

/// Sets the process's log up, once. `verbosity` as `-v`: 2 is the default, 4 and more say why the agent waits.
pub fn start(verbosity: u8) {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let layout = if is_standard_error(&stream) { Layout::Journal } else { Layout::Plain };
    let is_socket = fstat(std::io::stderr())
        .is_ok_and(|file| SFlag::from_bits_truncate(file.st_mode) & SFlag::S_IFMT == SFlag::S_IFSOCK);
    let stderr = Stderr { layout, is_socket, repeats: Mutex::default(), lost: AtomicU64::new(0) };
    // A second start in one process keeps the first log.
    let _ = log::set_logger(Box::leak(Box::new(stderr)));
    set_verbosity(verbosity);
}

/// After SIGHUP.
pub fn set_verbosity(verbosity: u8) {
    log::set_max_level(match verbosity {
        0 => LevelFilter::Error,
        1 => LevelFilter::Warn,
        2..=3 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    });
}

/// One line for one notice.
pub fn say(notice: &Notice) {
    let level = match notice.level {
        notice::Level::Error => Level::Error,
        notice::Level::Warning => Level::Warn,
        notice::Level::Info => Level::Info,
        notice::Level::Debug => Level::Debug,
    };
    log::log!(target: notice.word, level, "{notice}");
}

/// `JOURNAL_STREAM` is `device:inode` of the journal's socket; standard error may have been redirected since.
fn is_standard_error(stream: &str) -> bool {
    fstat(std::io::stderr()).is_ok_and(|file| format!("{}:{}", file.st_dev, file.st_ino) == stream)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// `<4>word: text`, read by the journal (`sd-daemon(3)`).
    Journal,
    /// `2026-01-01T00:00:00Z warn word: text`, or `+12.3s` since boot while the time is unknown.
    Plain,
}

impl Layout {
    fn line(self, level: Level, word: &str, text: &str, now: Now) -> String {
        let text = plain_text::line(text);
        let (name, priority) = match level {
            Level::Error => ("error", 3),
            Level::Warn => ("warn", 4),
            Level::Info => ("info", 6),
            Level::Debug | Level::Trace => ("debug", 7),
        };
        match (self, now.wall) {
            (Layout::Journal, _) => format!("<{priority}>{word}: {text}\n"),
            (Layout::Plain, Some(wall)) => format!("{wall} {name} {word}: {text}\n"),
            (Layout::Plain, None) => format!("+{:.1}s {name} {word}: {text}\n", now.up.as_duration().as_secs_f64()),
        }
    }
}

struct Stderr {
    layout: Layout,
    /// The journal's, or another log collector's.
    is_socket: bool,
    repeats: Mutex<Repeats>,
    /// Lines that standard error did not take.
    lost: AtomicU64,
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        // Libraries say what they send byte by byte, tokens included: whatever the verbosity, they have no say.
        let is_ours =
            record.module_path().is_some_and(|path| path.split("::").next() == Some(env!("CARGO_CRATE_NAME")));
        if !is_ours || !self.enabled(record.metadata()) {
            return;
        }
        let now = clock::now();
        let text = record.args().to_string();
        let admitted = match self.repeats.lock() {
            Ok(mut repeats) => repeats.admit(record.level(), record.target(), &text, now.up),
            Err(_) => Admitted { before: None, print: true },
        };
        if let Some((level, word, count)) = admitted.before {
            self.write(&self.layout.line(level, &word, &count, now));
        }
        if admitted.print {
            self.write(&self.layout.line(record.level(), record.target(), &text, now));
        }
    }

    fn flush(&self) {}
}

impl Stderr {
    fn write(&self, line: &str) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let line = if lost == 0 { line.to_owned() } else { format!("{lost} lines were lost here\n{line}") };
        let stderr = std::io::stderr();
        let sent = if self.is_socket {
            // A journal that hangs must not stop the Lease: a socket is never waited for.
            send(stderr.as_raw_fd(), line.as_bytes(), MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL).is_ok()
        } else {
            stderr.lock().write_all(line.as_bytes()).is_ok()
        };
        if !sent {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

/// Counts lines that say the same as the one before.
#[derive(Default)]
struct Repeats {
    last: Option<Last>,
}

struct Last {
    level: Level,
    word: String,
    text: String,
    printed: Up,
    unsaid: u32,
}

/// What to print for one line: first the count of what was held back, then the line itself or nothing.
struct Admitted {
    before: Option<(Level, String, String)>,
    print: bool,
}

impl Repeats {
    fn admit(&mut self, level: Level, word: &str, text: &str, now: Up) -> Admitted {
        match &mut self.last {
            Some(last) if last.word == word && last.text == text => {
                last.unsaid += 1;
                let due = now - last.printed >= REPEAT_SPAN;
                let before = due.then(|| last.take_count(now));
                Admitted { before, print: false }
            }
            last => {
                let fresh = Last { level, word: word.to_owned(), text: text.to_owned(), printed: now, unsaid: 0 };
                let old = last.replace(fresh);
                let before = old.filter(|old| old.unsaid > 0).map(|mut old| old.take_count(now));
                Admitted { before, print: true }
            }
        }
    }
}

impl Last {
    fn take_count(&mut self, now: Up) -> (Level, String, String) {
        let span = (now - self.printed).as_secs();
        let times = if self.unsaid == 1 { "time" } else { "times" };
        let count = format!("the same {} more {times} in {span} s: {}", self.unsaid, self.text);
        (self.unsaid, self.printed) = (0, now);
        (self.level, self.word.clone(), count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Wall;

    fn at(seconds: u64) -> Up {
        Up::since_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn the_journal_gets_a_priority_and_everyone_else_a_time() {
        let unset = Now { up: Up::since_boot(Duration::from_millis(123_449)), wall: None };
        let set = Now { wall: Some(Wall::from_unix_seconds(1_767_225_600)), ..unset };
        let line = |layout: Layout, now| layout.line(Level::Warn, "lease-late", "two\nlines\u{202e}", now);
        assert_eq!(line(Layout::Journal, set), "<4>lease-late: two\\nlines\\u202e\n");
        assert_eq!(line(Layout::Plain, set), "2026-01-01T00:00:00Z warn lease-late: two\\nlines\\u202e\n");
        assert_eq!(line(Layout::Plain, unset), "+123.4s warn lease-late: two\\nlines\\u202e\n");
    }

    #[test]
    fn a_line_that_repeats_is_counted_and_the_count_is_said() {
        let mut repeats = Repeats::default();
        assert!(repeats.admit(Level::Warn, "a", "x", at(0)).print);
        for second in 1..=14 {
            let admitted = repeats.admit(Level::Warn, "a", "x", at(second * 20));
            assert!(!admitted.print && admitted.before.is_none());
        }
        let due = repeats.admit(Level::Warn, "a", "x", at(300));
        assert_eq!(due.before.unwrap().2, "the same 15 more times in 300 s: x");
        assert!(!repeats.admit(Level::Warn, "a", "x", at(310)).print);
        let other = repeats.admit(Level::Info, "b", "y", at(320));
        assert_eq!(other.before.unwrap(), (Level::Warn, "a".to_owned(), "the same 1 more time in 20 s: x".to_owned()));
        assert!(other.print);
    }

    #[test]
    fn standard_error_is_the_journal_only_if_device_and_inode_say_so() {
        let file = fstat(std::io::stderr()).unwrap();
        assert!(is_standard_error(&format!("{}:{}", file.st_dev, file.st_ino)));
        assert!(!is_standard_error(&format!("{}:{}", file.st_dev, file.st_ino + 1)));
        assert!(!is_standard_error("") && !is_standard_error("8"));
    }
}
