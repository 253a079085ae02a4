//! Turns the bytes of a journal into what a person or a program wants to know of it. Nothing is locked, nothing written.

use std::fmt::Write;

use serde_json::{Value, json};

use super::args::Sources;
use super::colour::{BOLD, DIM, RESET, YELLOW};
use super::commands::{Picture, exit};
use super::error::CliError;
use super::load;
use super::timeline::Timeline;
use crate::config::limits;
use crate::config::plain_text::line;
use crate::io::clock;
use crate::io::disk::{JOURNAL, read_journal};
use crate::io::disk_error;
use crate::journal::record::times;
use crate::journal::{BootId, Happened, Journal, Moment, Record, Recovery};
use crate::time::Wall;

/// One journal, read.
pub struct JournalFile {
    path: String,
    /// `None`: there is no such file.
    size_bytes: Option<usize>,
    journal: Journal,
    found: Recovery,
}

/// The journal of `file`, or else of the state directory of the settings, where a missing file is the same as an empty one.
pub fn read(file: Option<&str>, sources: &Sources) -> Result<JournalFile, CliError> {
    let path = match file {
        Some(path) => path.to_owned(),
        None => format!("{}/{JOURNAL}", load::settings(sources)?.settings.state_directory),
    };
    let bytes = match read_journal(&path) {
        Err(error) if error.word == disk_error::MISSING && file.is_none() => None,
        read => Some(read?),
    };
    Ok(JournalFile::of(path, bytes.as_deref()))
}

/// What waits, or what events of a server tell, as a picture.
pub fn drawn(
    picture: Picture,
    file: Option<&str>,
    from_events: Option<&str>,
    sources: &Sources,
) -> Result<String, CliError> {
    let now = clock::now().wall;
    let timeline = match from_events {
        Some(path) => {
            let text = load::events(path)?;
            Timeline::of_events(&text, now).map_err(|why| CliError::new(exit::USAGE, format!("{path}: {why}")))?
        }
        // Of another card nobody knows what came after.
        None => Timeline::of_records(read(file, sources)?.waiting(), now.filter(|_| file.is_none())),
    };
    Ok(match picture {
        Picture::Text => timeline.to_text(has_utf8()),
        Picture::Svg => timeline.to_svg(),
    })
}

/// By the locale, as every program knows it.
fn has_utf8() -> bool {
    let mut set =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os).filter(|value| !value.is_empty());
    set.next().is_some_and(|value| {
        let value = value.to_string_lossy().to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

impl JournalFile {
    fn of(path: String, bytes: Option<&[u8]>) -> JournalFile {
        // With the largest quota nothing is dropped in the reading.
        let (journal, found) = Journal::recover(bytes.unwrap_or_default(), limits::JOURNAL_MOST_BYTES, BootId(0));
        JournalFile { path, size_bytes: bytes.map(<[u8]>::len), journal, found }
    }

    /// What only the next process wants to know waits for nothing.
    fn waiting(&self) -> impl Iterator<Item = &Record> {
        self.journal.waiting().filter(|record| record.what.is_shown())
    }

    /// For people: how much waits and since when, what is wrong with the file, then each record.
    pub fn to_text(&self) -> String {
        let Some(size_bytes) = self.size_bytes else {
            return format!("nothing waits: there is no {} yet\n", line(&self.path));
        };
        let size = format!("{} KiB, {}", size_bytes.div_ceil(1024), line(&self.path));
        let mut text = match self.waiting().next() {
            None => format!("{BOLD}nothing waits{RESET}: the server knows everything ({size})\n"),
            Some(first) => {
                let since = when(&first.at);
                format!(
                    "{BOLD}{} waiting to be sent{RESET}, the first of {since} ({size})\n",
                    number_of_records(self.found.records)
                )
            }
        };
        if !self.found.is_whole() {
            let whole = self.found.to_string();
            let damage = whole.split_once("; ").map_or("", |(_, damage)| damage);
            let _ = writeln!(text, "{YELLOW}damaged{RESET}: {damage}; everything else is here");
        }
        let width = self.waiting().map(|record| when(&record.at).len()).max().unwrap_or(0);
        for Record { sequence, at, what, .. } in self.waiting() {
            let (number, when, (.., sentence)) = (sequence.0, when(at), described(what));
            let _ = writeln!(text, "{DIM}{number:>8}{RESET}  {when:width$}  {}", line(&sentence));
        }
        text
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "path": self.path,
            "sizeBytes": self.size_bytes,
            "damage": {
                "cutBytes": self.found.cut_bytes,
                "unreadablePlaces": self.found.skipped,
                "framesOfNewerVersions": self.found.unknown_versions,
            },
            "lastBoot": self.journal.last_boot().map(|boot| boot.to_string()),
            "records": self.waiting().map(record).collect::<Vec<Value>>(),
        })
    }
}

fn number_of_records(records: usize) -> String {
    if records == 1 { "1 record".to_owned() } else { format!("{records} records") }
}

/// The wall time, or how long after which boot.
fn when(at: &Moment) -> String {
    let boot = || at.boot.to_string().chars().take(8).collect::<String>();
    at.wall.map_or_else(|| format!("{} s after boot {}", at.up, boot()), Wall::to_seconds_stamp)
}

/// What happened: its kind and fields for programs, a sentence for people.
fn described(what: &Happened) -> (&'static str, Value, String) {
    let because = |cause: &str| if cause.is_empty() { String::new() } else { format!(" ({cause})") };
    match what {
        Happened::ConditionChanged { condition, from, to, reason } => {
            let (from, to) = (from.word(), to.word());
            let fields = json!({"condition": **condition, "from": from, "to": to, "reason": **reason});
            ("ConditionChanged", fields, format!("{condition} {from} -> {to}{}", because(reason)))
        }
        Happened::OutageBegan { cause } => {
            let sentence = format!("the API server was reached for the last time{}", because(cause));
            ("OutageBegan", json!({"cause": **cause}), sentence)
        }
        Happened::OutageEnded { cause, changes, dropped } => {
            let fields = json!({"cause": **cause, "changes": changes, "dropped": dropped});
            let sentence = format!("the API server was reached again: {changes} changes, {dropped} dropped");
            ("OutageEnded", fields, sentence + &because(cause))
        }
        Happened::ProcessStarted => ("ProcessStarted", json!({}), "nodepulse started".to_owned()),
        Happened::Trouble { reason, text, count } => {
            let fields = json!({"reason": **reason, "text": **text, "count": count});
            ("Trouble", fields, format!("{reason}: {text}{}", times(*count)))
        }
        Happened::KernelRead { .. } => ("KernelRead", json!({}), "the kernel's log is read".to_owned()),
        Happened::ProcessRuns { .. } => ("ProcessRuns", json!({}), "nodepulse runs".to_owned()),
        Happened::BoardRebooted { old, reason } => {
            let fields = json!({"oldBoot": old.to_string(), "reason": **reason});
            ("BoardRebooted", fields, format!("the board rebooted from {old}{}", because(reason)))
        }
        Happened::ClockSet { wall } => {
            ("ClockSet", json!({"learned": wall.to_micro_stamp()}), format!("the time became known: {wall}"))
        }
        Happened::Leaving { kind } => {
            ("Leaving", json!({"reason": **kind}), format!("the machine was about to go down{}", because(kind)))
        }
        Happened::AbsenceAnnounced { until, reason } => {
            let until = until.to_seconds_stamp();
            let sentence = format!("the board is away until {until}{}", because(reason));
            ("AbsenceAnnounced", json!({"until": until, "reason": **reason}), sentence)
        }
        Happened::Dropped { count } => {
            ("Dropped", json!({"count": count}), format!("{} removed to make room", number_of_records(*count as usize)))
        }
    }
}

fn record(record: &Record) -> Value {
    let (kind, mut value, _) = described(&record.what);
    let more = json!({
        "kind": kind,
        "sequence": record.sequence.0,
        "boot": record.at.boot.to_string(),
        "secondsSinceBoot": record.at.up.as_duration().as_secs_f64(),
        "time": record.at.wall.map(Wall::to_micro_stamp),
    });
    if let (Some(fields), Value::Object(more)) = (value.as_object_mut(), more) {
        fields.extend(more);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::colour::without;
    use crate::journal::Status;
    use crate::journal::Write as DiskWrite;
    use crate::journal::record::cut;
    use crate::time::{Now, Up};
    use std::time::Duration;

    const BOOT: BootId = BootId(0x9f0a_d4e4_5f5c_4c5e_9d5f_0f8c_1d4f_2a11);

    fn bytes() -> Vec<u8> {
        let (mut journal, _) = Journal::recover(&[], 65_536, BOOT);
        let mut now = Now { up: Up::BOOT, wall: None };
        for what in [
            Happened::ProcessStarted,
            Happened::BoardRebooted { old: BootId(1), reason: cut("watchdog") },
            Happened::OutageBegan { cause: cut("no-route") },
            Happened::ConditionChanged {
                condition: cut("MemoryPressure"),
                from: Status::False,
                to: Status::True,
                reason: cut("KubeletHasInsufficientMemory"),
            },
            Happened::OutageEnded { cause: cut(""), changes: 1, dropped: 0 },
            Happened::ClockSet { wall: Wall::from_unix_seconds(1_800_000_000) },
            Happened::Dropped { count: 7 },
        ] {
            journal.add(now, what);
            now.up = now.up + Duration::from_millis(12_300);
            now.wall = Some(Wall::from_unix_seconds(1_767_225_600).plus(now.up.as_duration()));
        }
        let Some(DiskWrite::Replace { bytes }) = journal.next_write(now.up) else { panic!("no file") };
        bytes
    }

    fn plain(file: &JournalFile) -> String {
        without(&file.to_text())
    }

    #[test]
    fn people_see_first_how_much_waits_and_since_when() {
        let file = JournalFile::of("/var/lib/nodepulse/journal".to_owned(), Some(&bytes()));
        let expected = "\
7 records waiting to be sent, the first of 0.0 s after boot 9f0ad4e4 (16 KiB, /var/lib/nodepulse/journal)
       1  0.0 s after boot 9f0ad4e4  nodepulse started
       2  2026-01-01T00:00:12Z       the board rebooted from 00000000-0000-0000-0000-000000000001 (watchdog)
       3  2026-01-01T00:00:24Z       the API server was reached for the last time (no-route)
       4  2026-01-01T00:00:36Z       MemoryPressure False -> True (KubeletHasInsufficientMemory)
       5  2026-01-01T00:00:49Z       the API server was reached again: 1 changes, 0 dropped
       6  2026-01-01T00:01:01Z       the time became known: 2027-01-15T08:00:00Z
       7  2026-01-01T00:01:13Z       7 records removed to make room
";
        assert_eq!(plain(&file), expected);
    }

    #[test]
    fn a_journal_without_records_and_none_at_all_say_that_nothing_waits() {
        let none = JournalFile::of("/j".to_owned(), None);
        assert_eq!(plain(&none), "nothing waits: there is no /j yet\n");
        let empty = JournalFile::of("/j".to_owned(), Some(&[]));
        assert_eq!(plain(&empty), "nothing waits: the server knows everything (0 KiB, /j)\n");
        assert_eq!(none.to_json()["sizeBytes"], Value::Null);
    }

    #[test]
    fn damage_is_said_before_the_records() {
        let mut bytes = bytes();
        let size = bytes.len();
        bytes[5000..5003].copy_from_slice(b"xyz");
        let file = JournalFile::of("/j".to_owned(), Some(&bytes));
        let text = plain(&file);
        assert_eq!(text.lines().nth(1), Some("damaged: 1 place that cannot be read; everything else is here"));
        assert_eq!(file.to_json()["damage"]["unreadablePlaces"], 1);
        let cut = JournalFile::of("/j".to_owned(), Some(&bytes[..size - 40]));
        assert_eq!(cut.to_json()["damage"]["cutBytes"], 3);
    }

    #[test]
    fn programs_get_every_field() {
        let value = JournalFile::of("/j".to_owned(), Some(&bytes())).to_json();
        assert_eq!(value["lastBoot"], "9f0ad4e4-5f5c-4c5e-9d5f-0f8c1d4f2a11");
        assert_eq!(
            value["records"][3],
            json!({
                "sequence": 4, "boot": "9f0ad4e4-5f5c-4c5e-9d5f-0f8c1d4f2a11", "secondsSinceBoot": 36.9,
                "time": "2026-01-01T00:00:36.900000Z", "kind": "ConditionChanged", "condition": "MemoryPressure",
                "from": "False", "to": "True", "reason": "KubeletHasInsufficientMemory",
            })
        );
        let kinds: Vec<&str> = value["records"].as_array().unwrap().iter().filter_map(|r| r["kind"].as_str()).collect();
        let expected = [
            "ProcessStarted",
            "BoardRebooted",
            "OutageBegan",
            "ConditionChanged",
            "OutageEnded",
            "ClockSet",
            "Dropped",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(value["records"][0]["time"], Value::Null);
    }
}
