//! Turns lines into bytes on standard error for which nobody waits: a collector that hangs, a full pipe or a dying disk
//! costs lines, which are counted, and no heartbeat.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::thread;
use crate::config::limits;

/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(500);

/// A stream that may block, and the lines on their way into it.
pub struct Lines {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// The helper has ended.
    done: Condvar,
    /// A descriptor of its own: that of the standard library has a lock, which a panic takes too.
    stream: Option<File>,
}

#[derive(Default)]
struct Queue {
    /// Each with the number of lines that were lost before it.
    lines: VecDeque<(u64, String)>,
    /// Lines that were lost behind those.
    lost: u64,
    /// The helper thread writes.
    is_written: bool,
}

impl Lines {
    pub fn new() -> Lines {
        Lines::into(std::io::stderr().as_fd().try_clone_to_owned().ok().map(File::from))
    }

    fn into(stream: Option<File>) -> Lines {
        Lines { shared: Arc::new(Shared { queue: Mutex::default(), done: Condvar::new(), stream }) }
    }

    /// `line` ends with a newline.
    pub fn write(&self, mut line: String) {
        if line.len() > limits::LOG_LINE_BYTES {
            line.truncate(line.floor_char_boundary(limits::LOG_LINE_BYTES - 1));
            line.push('\n');
        }
        let mut queue = self.shared.lock();
        if queue.lines.len() >= limits::LOG_LINES_WAITING {
            queue.lost += 1;
            return;
        }
        let lost = std::mem::take(&mut queue.lost);
        queue.lines.push_back((lost, line));
        if std::mem::replace(&mut queue.is_written, true) {
            return;
        }
        drop(queue);
        let shared = Arc::clone(&self.shared);
        let begun = thread::start("log-writer", Box::new(move || shared.write_all()));
        if begun.is_err() {
            let mut queue = self.shared.lock();
            queue.is_written = false;
            queue.lost += queue.lines.drain(..).count() as u64;
        }
    }

    /// Waits for the lines under way, but not for long.
    pub fn flush(&self) {
        let queue = self.shared.lock();
        let _ = self.shared.done.wait_timeout_while(queue, LAST_LINES, |queue| queue.is_written);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until there is nothing left.
    fn write_all(&self) {
        let mut queue = self.lock();
        while let Some((lost, line)) = queue.lines.pop_front() {
            drop(queue);
            let line = if lost == 0 { line } else { format!("{lost} lines were lost here\n{line}") };
            let is_written = self.stream.as_ref().is_some_and(|mut stream| stream.write_all(line.as_bytes()).is_ok());
            queue = self.lock();
            queue.lost += if is_written { 0 } else { lost + 1 };
        }
        queue.is_written = false;
        self.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::clock;
    use nix::unistd::pipe;
    use std::io::Read;

    fn lines() -> (File, Lines) {
        let (reader, writer) = pipe().unwrap();
        (File::from(reader), Lines::into(Some(File::from(writer))))
    }

    #[test]
    fn a_pipe_that_nobody_empties_costs_lines_and_no_time_and_they_are_counted() {
        let (mut reader, lines) = lines();
        let text = "x".repeat(999);
        let start = clock::up();
        for _ in 0..300 {
            lines.write(format!("{text}\n"));
        }
        lines.flush();
        assert!(clock::up() - start < Duration::from_secs(5), "somebody waited for the pipe");
        let mut got = String::new();
        let mut buffer = [0; 4096];
        let mut read_some = |got: &mut String| {
            let count = reader.read(&mut buffer).unwrap();
            got.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        };
        while lines.shared.lock().is_written {
            read_some(&mut got);
        }
        lines.write("the last one\n".to_owned());
        while !got.ends_with("the last one\n") {
            read_some(&mut got);
        }
        let written = got.lines().filter(|line| **line == text).count();
        assert!((limits::LOG_LINES_WAITING..300).contains(&written), "{written} lines");
        let told = got.lines().filter_map(|line| line.strip_suffix(" lines were lost here")?.parse::<usize>().ok());
        assert_eq!(written + told.sum::<usize>(), 300);
    }

    #[test]
    fn a_line_is_cut_at_its_limit_and_ends_like_every_line() {
        let (mut reader, lines) = lines();
        lines.write(format!("{}\n", "\u{20ac}".repeat(100_000)));
        lines.flush();
        drop(lines);
        let mut got = String::new();
        reader.read_to_string(&mut got).unwrap();
        assert!(got.ends_with("\u{20ac}\n") && got.len() <= limits::LOG_LINE_BYTES, "{}", got.len());
    }

    #[test]
    fn a_stream_that_takes_nothing_costs_its_lines() {
        let (reader, lines) = lines();
        drop(reader);
        lines.write("one\n".to_owned());
        lines.write("two\n".to_owned());
        lines.flush();
        assert_eq!(lines.shared.lock().lost, 2);
    }
}
