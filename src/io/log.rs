//! Turns notices into lines on standard error: with a priority for the journal, with a time for everyone else, and of what
//! repeats, or is too much for a minute, only the count.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::sys::stat::fstat;

use super::clock;
use super::stderr::Lines;
use crate::agent::Notice;
use crate::config::{limits, plain_text};
use crate::time::{Now, Up};

/// A line that says the same as the last one is left out for so long.
const REPEAT_SPAN: Duration = Duration::from_secs(300);
/// The span of [`limits::LOG_LINES`].
const CEILING_SPAN: Duration = Duration::from_secs(60);
/// What answers somebody who sent a signal: neither the same answer as before nor what else there is to tell hides it.
const ANSWERS: [&str; 3] = ["reloaded", "reload-refused", "credentials-refused"];
/// What was read at the start is told whole; from then on, others have a hand in what there is to tell.
static HAS_CEILING: AtomicBool = AtomicBool::new(false);

/// Sets the process's log up, once. `verbosity` as `-v`: 2 is the default, 4 and more say why the agent waits.
pub fn start(verbosity: u8) {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let layout = if is_standard_error(&stream) { Layout::Journal } else { Layout::Plain };
    let stderr = Stderr { layout, written: Mutex::default(), lines: Lines::new() };
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
    log::log!(target: notice.word, notice.level, "{notice}");
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
            (Layout::Plain, None) => format!("+{}s {name} {word}: {text}\n", now.up),
        }
    }
}

struct Stderr {
    layout: Layout,
    written: Mutex<Written>,
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
        let (word, mut text) = (record.target(), record.args().to_string());
        let most = HAS_CEILING.load(Ordering::Relaxed).then(most_lines);
        let Ok(mut written) = self.written.lock() else { return };
        if written.admit(word, &mut text, most, now.up) {
            self.lines.write(self.layout.line(record.level(), word, &text, now));
        }
    }

    fn flush(&self) {
        self.lines.flush();
    }
}

/// Somebody who asked for more is told more.
fn most_lines() -> usize {
    if log::max_level() <= LevelFilter::Info { limits::LOG_LINES } else { limits::DEBUG_LOG_LINES }
}

/// What was written lately: a server, a link or a disk that makes us talk must fill neither card nor SIM.
#[derive(Default)]
struct Written {
    /// When, and the words, of the lines of the last minute.
    lines: VecDeque<(Up, String)>,
    /// When, word and text of the last line.
    last: Option<(Up, String, String)>,
    left_out: u64,
}

impl Written {
    /// Whether this line may be written, of which a minute may have `most`; the next one says how many were left out. Four
    /// tenths of the minute are kept for words that were not in it yet: what is new is said while what repeats is left out.
    fn admit(&mut self, word: &str, text: &mut String, most: Option<usize>, now: Up) -> bool {
        self.lines.retain(|(at, _)| now - *at < CEILING_SPAN);
        let said = self.lines.iter().filter(|(_, written)| written == word).count();
        let is_answer = ANSWERS.contains(&word) && said < limits::LOG_ANSWERS;
        let is_full = most.is_some_and(|most| self.lines.len() >= if said == 0 { most } else { most / 5 * 3 });
        let is_same = self.last.as_ref().is_some_and(|(at, last_word, last_text)| {
            now - *at < REPEAT_SPAN && (last_word.as_str(), last_text) == (word, &*text)
        });
        if (is_full || is_same) && !is_answer {
            self.left_out += 1;
            return false;
        }
        self.last = Some((now, word.to_owned(), text.clone()));
        if most.is_some() {
            self.lines.push_back((now, word.to_owned()));
        }
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            text.push_str(&format!(" (left out before this line, as too many or the same as the last: {left_out})"));
        }
        true
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
        let mut written = Written::default();
        let mut admit = |word: &str, seconds| {
            let mut text = "x".to_owned();
            written.admit(word, &mut text, Some(limits::LOG_LINES), at(seconds)).then_some(text)
        };
        assert_eq!(admit("a", 0).as_deref(), Some("x"));
        for second in 1..=14 {
            assert_eq!(admit("a", second * 20), None);
        }
        let told = |count| Some(format!("x (left out before this line, as too many or the same as the last: {count})"));
        assert_eq!(admit("a", 300), told(14));
        assert_eq!(admit("a", 310), None);
        assert_eq!(admit("b", 320), told(1));
        assert_eq!(admit("a", 330).as_deref(), Some("x"), "something else was said meanwhile");
    }

    #[test]
    fn no_minute_has_more_lines_than_the_ceiling_and_a_new_word_comes_through() {
        let mut ceiling = Written::default();
        let mut written = Vec::new();
        for ms in (0..600_000).step_by(50) {
            let now = Up::since_boot(Duration::from_millis(ms));
            let word = format!("word-{}", ms / 50 % 3);
            written.extend(ceiling.admit(&word, &mut String::new(), Some(limits::LOG_LINES), now).then_some(ms));
        }
        for start in &written {
            let minute = written.iter().filter(|ms| (*start..start + 60_000).contains(*ms)).count();
            assert!(minute <= limits::LOG_LINES / 5 * 3, "{minute} lines from {start} ms on");
        }
        assert_eq!(written.len(), 10 * (limits::LOG_LINES / 5 * 3), "and not fewer");
        let mut text = "the first of its kind".to_owned();
        assert!(ceiling.admit("new", &mut text, Some(limits::LOG_LINES), at(600)));
        let left_out = 60_000 / 50 - limits::LOG_LINES / 5 * 3;
        assert!(
            text.starts_with("the first of its kind (left out ") && text.ends_with(&format!(": {left_out})")),
            "{text}"
        );
        let others =
            (0..100).filter(|n| ceiling.admit(&format!("n{n}"), &mut String::new(), Some(limits::LOG_LINES), at(600)));
        assert!(others.count() < limits::LOG_LINES, "not even for new words");
        assert!(ceiling.admit("word-0", &mut String::new(), Some(limits::LOG_LINES), at(661)));
    }

    #[test]
    fn whoever_sends_a_signal_is_answered_in_a_minute_that_is_full_and_not_without_end() {
        let mut written = Written::default();
        for number in 0..100 {
            written.admit(&format!("n{number}"), &mut String::new(), Some(limits::LOG_LINES), at(number / 10));
        }
        let answered =
            (0..100).filter(|_| written.admit("reloaded", &mut "done".to_owned(), Some(limits::LOG_LINES), at(10)));
        assert_eq!(answered.count(), limits::LOG_ANSWERS);
    }

    #[test]
    fn standard_error_is_the_journal_only_if_device_and_inode_say_so() {
        let file = fstat(std::io::stderr()).unwrap();
        assert!(is_standard_error(&format!("{}:{}", file.st_dev, file.st_ino)));
        assert!(!is_standard_error(&format!("{}:{}", file.st_dev, file.st_ino + 1)));
        assert!(!is_standard_error("") && !is_standard_error("8"));
    }
}
