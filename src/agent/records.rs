//! Turns what happens into records that outlive the process, and a record's two clock readings into the time it was.
//!
//! What is told waits for the disk ([`Records::must_wait`]): a change is on it before anybody hears of it, or a power cut
//! in between would leave the server with a change that the board knows nothing of. Heartbeats wait for nothing.

use std::fmt;
use std::time::Duration;

use super::clock::apart;
use super::notice::{Level, Notice};
use crate::journal::record::{Text, cut};
use crate::journal::{Happened, Journal, Moment, Record, Sequence, Write};
use crate::probe::KernelPlaces;
use crate::time::{Now, Up, Wall};

/// The journal, and what hangs on it.
pub(super) struct Records {
    journal: Journal,
    /// Record of the highest number.
    newest: Option<Sequence>,
    /// Since when something waits for what is not on disk.
    waits_since: Option<Up>,
    /// The last write failed, and that was said.
    has_failed: bool,
    is_writing: bool,
    /// What there was to tell of the start is not all told yet.
    is_starting: bool,
}

/// When something happened, as far as anybody can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordTime {
    At(Wall),
    /// The board had no clock, and lost its power before it learned the time: not before this.
    NotBefore(Wall),
}

/// A disk that has owed an answer for so long is one that failed: from memory we go on.
const LONGEST_WRITE: Duration = Duration::from_secs(10);
/// A record's time is worth correcting when it is off by more: what stamps on objects are held to as well.
const CLOCK_ERROR: Duration = Duration::from_secs(10);

impl Records {
    pub(super) fn new(journal: Journal) -> Records {
        Records { journal, newest: None, waits_since: None, has_failed: false, is_writing: false, is_starting: true }
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Everything that is not told yet, in the order in which it happened: that of the numbers, never that of a clock.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Record> {
        self.journal.waiting()
    }

    /// `at`: when it happened, with the best wall time there is.
    pub(super) fn record(&mut self, at: Now, what: Happened) -> Record {
        let sequence = self.journal.add(at, what.clone());
        self.newest = Some(sequence);
        Record { sequence, at: self.moment(at), what }
    }

    /// `at`, as a record would have it.
    pub(super) fn moment(&self, at: Now) -> Moment {
        Moment { boot: self.journal.boot(), up: at.up, wall: at.wall }
    }

    /// The server has accepted what was told of it; of a clock that was learned there is nothing to tell.
    pub(super) fn forget(&mut self, sequence: Sequence) {
        self.journal.forget(sequence);
        while let Some(done) = self.idle_clock() {
            self.journal.forget(done);
        }
    }

    /// Those of them that wait for an event, or are there for the times of those.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Record> {
        self.waiting().filter(|record| record.what.is_pending())
    }

    /// Until when the board is away, as was announced, and why.
    pub(super) fn announced(&self) -> Option<(Wall, &str)> {
        let announced = self.waiting().filter_map(|record| match &record.what {
            Happened::AbsenceAnnounced { until, reason } => Some((*until, reason.as_str())),
            _ => None,
        });
        announced.last()
    }

    /// What was announced is over, or something else is announced. Answers whether there was anything.
    pub(super) fn end_absence(&mut self) -> bool {
        self.end(|what| matches!(what, Happened::AbsenceAnnounced { .. })).is_some()
    }

    /// What holds until something ends it does so no more: of this kind there is never more than one. Answers its record.
    fn end(&mut self, is_it: fn(&Happened) -> bool) -> Option<Record> {
        let found = self.waiting().find(|record| is_it(&record.what)).cloned()?;
        self.journal.take_back(found.sequence);
        Some(found)
    }

    /// A process begins, or goes on. Answers the record of one that nobody had told to stop.
    pub(super) fn begin_run(&mut self, now: Now) -> Option<Record> {
        let former = self.end_run();
        self.record(now, Happened::ProcessRuns { risk: Text::new() });
        former
    }

    /// What the board would go down by now, if it does.
    pub(super) fn run_at_risk(&mut self, risk: &str, now: Now) {
        let is_other = |what: &Happened| matches!(what, Happened::ProcessRuns { risk: known } if known != risk);
        if self.waiting().any(|record| is_other(&record.what)) {
            self.end_run();
            self.record(now, Happened::ProcessRuns { risk: cut(risk) });
        }
    }

    /// Somebody has told the process to stop. Answers the record that it ran.
    pub(super) fn end_run(&mut self) -> Option<Record> {
        self.end(|what| matches!(what, Happened::ProcessRuns { .. }))
    }

    /// All that the kernel told until there is recorded.
    pub(super) fn kernel_read(&mut self, until: KernelPlaces, now: Now) {
        self.end(|what| matches!(what, Happened::KernelRead { .. }));
        self.record(now, Happened::KernelRead { until });
    }

    /// It has accepted what was told of one that waits on.
    pub(super) fn keep_told(&mut self) {
        self.journal.was_told();
    }

    /// What was learned of a clock that no waiting record needs.
    fn idle_clock(&self) -> Option<Sequence> {
        let is_clock = |record: &&Record| matches!(record.what, Happened::ClockSet { .. });
        let needs = |clock: &Record| {
            let mut others = self.pending().filter(|record| !is_clock(record));
            others.any(|record| record.at.boot == clock.at.boot && record.sequence < clock.sequence)
        };
        self.waiting().filter(is_clock).find(|clock| !needs(clock)).map(|clock| clock.sequence)
    }

    /// Something happened, or is over, that is not on disk yet, and the disk works.
    pub(super) fn has_unwritten(&self) -> bool {
        self.newest.is_some_and(|newest| !self.journal.is_synced(newest)) || self.journal.owes_a_write()
    }

    /// Whether what tells of a change must wait because the change is not on disk; the disk is then asked at once.
    pub(super) fn must_wait(&mut self, now: Up) -> bool {
        // A disk that failed is not waited for, but while it is tried again it may be back.
        if !(self.has_unwritten() || self.has_failed && self.is_writing) {
            self.waits_since = None;
            return false;
        }
        now - *self.waits_since.get_or_insert(now) < LONGEST_WRITE
    }

    /// Until when [`Records::must_wait`] may say so, and when a write is due that nobody waits for.
    pub(super) fn deadline(&self, now: Up) -> Option<Up> {
        let longest = self.waits_since.map(|since| since + LONGEST_WRITE).filter(|until| now < *until);
        [longest, self.journal.write_due()].into_iter().flatten().min()
    }

    /// What the disk has to do now.
    pub(super) fn next_write(&mut self, now: Up) -> Option<Write> {
        let is_due = self.journal.write_due().is_some_and(|due| due <= now);
        // That something was told rides with the next write. A board that loses its power once a day would tell each start
        // a day late again, when the server has forgotten the event that it had: of starts it is worth a write.
        let has_started = self.is_starting && self.pending().next().is_none();
        self.is_starting &= !has_started;
        if self.waits_since.is_some() || is_due || has_started { self.last_write(now) } else { None }
    }

    /// The same for a process that ends: everything.
    pub(super) fn last_write(&mut self, now: Up) -> Option<Write> {
        let write = self.journal.next_write(now);
        self.is_writing |= write.is_some();
        write
    }

    /// A write is under way.
    pub(super) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// How the last write ended. Answers what to say of it.
    pub(super) fn written(&mut self, done: bool, now: Up) -> Option<Notice> {
        self.journal.written(done, now);
        self.is_writing = false;
        // Whoever waits for what was added meanwhile waits on: not once more for so long.
        self.waits_since = self.waits_since.filter(|_| done && self.has_unwritten());
        if std::mem::replace(&mut self.has_failed, !done) != done {
            return None;
        }
        Some(if done {
            Notice::new(Level::Info, "journal-writable", "the journal is written to disk again")
        } else {
            let text = "the journal cannot be written: what changes while the server cannot be reached is kept in \
                        memory only and lost with the process, until stateDirectory can be written";
            Notice::new(Level::Warn, "journal-unwritable", text)
        })
    }

    /// The wall time of `at`, where `stamp` is that of `now`; `None` where nobody can know it.
    pub(super) fn wall_of(&self, at: Moment, stamp: Wall, now: Up) -> Option<Wall> {
        let is_this_boot = at.boot == self.journal.boot() && at.up <= now;
        // Where the kernel does not say which boot this is, no two are known to be the same.
        if is_this_boot && (at.boot.0 != 0 || at.wall.is_none()) {
            return Some(stamp.minus(now - at.up));
        }
        let wall = self.learned(at).or(at.wall)?;
        // A clock that nobody ever put right may have been ahead.
        Some(wall.min(self.end_of_boot(at, stamp, now).unwrap_or(stamp)))
    }

    /// The same, or before when it was in any case.
    pub(super) fn latest_wall_of(&self, at: Moment, stamp: Wall, now: Up) -> Option<Wall> {
        self.wall_of(at, stamp, now).or_else(|| self.end_of_boot(at, stamp, now))
    }

    /// Of a moment in an earlier boot: that was over when this one began.
    fn end_of_boot(&self, at: Moment, stamp: Wall, now: Up) -> Option<Wall> {
        (at.boot.0 != 0 && at.boot != self.journal.boot()).then(|| stamp.minus(now - Up::BOOT))
    }

    /// By the clock that was learned in the same boot.
    fn learned(&self, at: Moment) -> Option<Wall> {
        let clocks = self.waiting().filter(|record| record.at.boot == at.boot);
        let clocks = clocks.filter_map(|record| match record.what {
            Happened::ClockSet { wall } => Some(wall.carried(record.at.up, at.up)),
            _ => None,
        });
        clocks.last()
    }

    /// When `record` happened.
    pub(super) fn time_of(&self, record: &Record, stamp: Wall, now: Up) -> RecordTime {
        if let Some(wall) = self.wall_of(record.at, stamp, now) {
            return RecordTime::At(wall);
        }
        let earlier = self.waiting().take_while(|other| other.sequence < record.sequence);
        let known = earlier.filter_map(|other| self.wall_of(other.at, stamp, now)).max();
        // Without any the present is as good a guess as the past.
        RecordTime::NotBefore(known.unwrap_or(stamp))
    }

    /// The server told the time. Where records of this boot wait that the board's own clock dated wrong or not at all, it
    /// is kept with them: after the next boot nobody could say it any more.
    pub(super) fn learn_clock(&mut self, server: Wall, now: Up) {
        let is_off = |record: &Record| {
            let wall = self.learned(record.at).or(record.at.wall);
            wall.is_none_or(|wall| apart(wall, server.minus(now - record.at.up)) > CLOCK_ERROR)
        };
        let boot = self.journal.boot();
        let mut of_this_boot = self.pending().filter(|record| record.at.boot == boot && record.at.up <= now);
        let is_needed = of_this_boot.any(|record| !matches!(record.what, Happened::ClockSet { .. }) && is_off(record));
        drop(of_this_boot);
        if is_needed {
            self.journal.add(Now { up: now, wall: Some(server) }, Happened::ClockSet { wall: server });
        }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.waiting()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::BootId;

    #[test]
    fn a_disk_that_is_slow_again_and_again_holds_nothing_back_for_longer_than_one_that_never_answers() {
        let mut records = Records::new(Journal::recover(&[], 65_536, BootId(1)).0);
        let at = |seconds| Now { up: Up::since_boot(Duration::from_secs(seconds)), wall: None };
        let changes = |records: &mut Records, seconds| {
            records
                .record(at(seconds), Happened::ClockSet { wall: Wall::parse_stamp("2026-01-01T00:00:00Z").unwrap() });
            records.must_wait(at(seconds).up)
        };
        assert!(changes(&mut records, 0) && records.next_write(at(0).up).is_some());
        assert!(changes(&mut records, 5));
        records.written(true, at(6).up);
        assert!(records.must_wait(at(6).up) && records.next_write(at(6).up).is_some(), "what came meanwhile");
        assert!(changes(&mut records, 9));
        assert!(!records.must_wait(at(10).up), "ten seconds in all");
        records.written(true, at(12).up);
        assert!(records.next_write(at(12).up).is_some());
        records.written(true, at(13).up);
        assert!(changes(&mut records, 14), "and then it is waited for again");
    }

    #[test]
    fn the_servers_time_is_kept_where_the_boards_clock_has_dated_a_record_wrong_or_not_at_all() {
        let server = Wall::from_unix_seconds(1_767_225_600);
        let ahead = |seconds| Some(server.plus(Duration::from_secs(seconds)));
        for (dated, is_kept) in
            [(None, true), (ahead(0), false), (ahead(9), false), (ahead(11), true), (ahead(86_400), true)]
        {
            let mut records = Records::new(Journal::recover(&[], 65_536, BootId(1)).0);
            let up = Up::since_boot(Duration::from_secs(20));
            records.record(Now { up, wall: dated }, Happened::ProcessStarted);
            let waiting = |records: &Records| records.pending().count();
            let before = waiting(&records);
            records.learn_clock(server, up);
            assert_eq!(waiting(&records) > before, is_kept, "{dated:?}");
        }
    }
}
