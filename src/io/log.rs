//! Turns notices into lines on standard error: with a priority for the journal, with a time for everyone else, equal ones
//! counted, and never more of them than the ceiling allows.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::sys::stat::fstat;

use super::clock;
use super::stderr::Lines;
use crate::agent::{Notice, notice};
use crate::config::{limits, plain_text};
use crate::time::{Now, Up};

/// Equal lines within this span are counted instead of printed.
const REPEAT_SPAN: Duration = Duration::from_secs(300);
/// The span of [`limits::LOG_LINES`].
const CEILING_SPAN: Duration = Duration::from_secs(60);
/// What was read at the start is told whole; from then on, others have a hand in what there is to tell.
static HAS_CEILING: AtomicBool = AtomicBool::new(false);

/// Sets the process's log up, once. `verbosity` as `-v`: 2 is the default, 4 and more say why the agent waits.
pub fn start(verbosity: u8) {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let layout = if is_standard_error(&stream) { Layout::Journal } else { Layout::Plain };
    let stderr = Stderr { layout, admission: Mutex::default(), lines: Lines::new() };
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

/// From now on no more lines are written than [`limits::LOG_LINES`] a minute.
pub fn set_ceiling() {
    HAS_CEILING.store(true, Ordering::Relaxed);
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
    admission: Mutex<(Repeats, Ceiling)>,
    lines: Lines,
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
        let (level, word, text) = (record.level(), record.target(), record.args().to_string());
        let Ok(mut admission) = self.admission.lock() else { return };
        let (repeats, ceiling) = &mut *admission;
        let admitted = repeats.admit(level, word, &text, now.up);
        let itself = admitted.print.then(|| (level, word.to_owned(), text));
        for (level, word, mut text) in admitted.before.into_iter().chain(itself) {
            if !HAS_CEILING.load(Ordering::Relaxed) || ceiling.admit(&word, &mut text, most_lines(), now.up) {
                self.lines.write(self.layout.line(level, &word, &text, now));
            }
        }
    }

    fn flush(&self) {
        self.lines.flush();
    }
}

/// Somebody who asked for more is told more.
fn most_lines() -> usize {
    if log::max_level() <= LevelFilter::Info { limits::LOG_LINES } else { limits::LOG_LINES_OF_DEBUGGING }
}

/// How many lines any minute has: a server, a link or a disk that makes us talk must fill neither card nor SIM.
#[derive(Default)]
struct Ceiling {
    /// The lines of the last minute.
    written: VecDeque<(Up, String)>,
    left_out: u64,
}

impl Ceiling {
    /// Whether this line may be written; the first to be written again says how many were not. Four tenths of the minute
    /// are kept for words that were not in it yet: what is new is said while what repeats is left out.
    fn admit(&mut self, word: &str, text: &mut String, most: usize, now: Up) -> bool {
        while self.written.front().is_some_and(|(at, _)| now - *at >= CEILING_SPAN) {
            self.written.pop_front();
        }
        let is_new = self.written.iter().all(|(_, written)| written != word);
        let most = if is_new { most } else { most / 5 * 3 };
        if self.written.len() >= most {
            self.left_out += 1;
            return false;
        }
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            text.push_str(&format!(" ({left_out} lines before this one were left out: too many in a minute)"));
        }
        self.written.push_back((now, word.to_owned()));
        true
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
    fn no_minute_has_more_lines_than_the_ceiling_and_a_new_word_comes_through() {
        let mut ceiling = Ceiling::default();
        let mut written = Vec::new();
        for ms in (0..600_000).step_by(50) {
            let now = Up::since_boot(Duration::from_millis(ms));
            let word = format!("word-{}", ms / 50 % 3);
            written.extend(ceiling.admit(&word, &mut String::new(), limits::LOG_LINES, now).then_some(ms));
        }
        for start in &written {
            let minute = written.iter().filter(|ms| (*start..start + 60_000).contains(*ms)).count();
            assert!(minute <= limits::LOG_LINES / 5 * 3, "{minute} lines from {start} ms on");
        }
        assert_eq!(written.len(), 10 * (limits::LOG_LINES / 5 * 3), "and not fewer");
        let mut text = "the first of its kind".to_owned();
        assert!(ceiling.admit("new", &mut text, limits::LOG_LINES, at(600)));
        let left_out = 60_000 / 50 - limits::LOG_LINES / 5 * 3;
        assert_eq!(
            text,
            format!("the first of its kind ({left_out} lines before this one were left out: too many in a minute)")
        );
        let others =
            (0..100).filter(|n| ceiling.admit(&format!("n{n}"), &mut String::new(), limits::LOG_LINES, at(600)));
        assert!(others.count() < limits::LOG_LINES, "not even for new words");
        assert!(ceiling.admit("word-0", &mut String::new(), limits::LOG_LINES, at(661)));
    }

    #[test]
    fn standard_error_is_the_journal_only_if_device_and_inode_say_so() {
        let file = fstat(std::io::stderr()).unwrap();
        assert!(is_standard_error(&format!("{}:{}", file.st_dev, file.st_ino)));
        assert!(!is_standard_error(&format!("{}:{}", file.st_dev, file.st_ino + 1)));
        assert!(!is_standard_error("") && !is_standard_error("8"));
    }
}
