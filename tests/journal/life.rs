//! Turns a seed into the life of a journal: changes, deliveries, writes, errors, kills and power cuts.

use std::collections::BTreeSet;
use std::time::Duration;

use nodepulse::journal::record::cut;
use nodepulse::journal::{BootId, Happened, Journal, Sequence, Status, Write};
use nodepulse::time::{Now, Up, Wall};

use super::disk::{Cut, Disk, Lie};
use super::oracle::{Oracle, story};
use super::random::Random;

const QUOTAS: [usize; 3] = [16 * 1024, 20_000, 64 * 1024];
const LIVES: u64 = 60;
const LIVES_PER_LIE: u64 = 200;

struct Life {
    random: Random,
    disk: Disk,
    lie: Lie,
    oracle: Oracle,
    journal: Journal,
    quota_bytes: usize,
    boot: BootId,
    up: Duration,
    /// Every name that an event could have got.
    names: BTreeSet<(BootId, Sequence)>,
    newest_synced: Sequence,
    power_cuts: usize,
    replacements: usize,
}

type Outcome = Result<(), String>;

impl Life {
    fn new(seed: u64, lie: Lie) -> Life {
        let mut random = Random::new(seed);
        let quota_bytes = random.pick(&QUOTAS);
        let boot = BootId(1);
        let (journal, _) = Journal::recover(&[], quota_bytes, boot);
        let (disk, oracle, names) = Default::default();
        let (newest_synced, up) = (Sequence(0), Duration::from_secs(9));
        let (power_cuts, replacements) = (0, 0);
        #[rustfmt::skip]
        let life = Life {
            random, disk, lie, oracle, journal, quota_bytes, boot, up, names, newest_synced, power_cuts, replacements,
        };
        life
    }

    fn live(&mut self, steps: usize) -> Outcome {
        for _ in 0..steps {
            self.up += Duration::from_millis(1 + self.random.below(600_000));
            match self.random.below(100) {
                0..55 => self.add()?,
                55..68 => self.forget(),
                68..95 => self.write()?,
                95..97 => self.restart(false)?,
                _ => self.restart(true)?,
            }
            self.stays_within_bounds()?;
        }
        Ok(())
    }

    fn now(&mut self) -> Now {
        let wall = Wall::from_unix_seconds(1_800_000_000).plus(self.up);
        Now { up: Up::since_boot(self.up), wall: (!self.random.per_mille(200)).then_some(wall) }
    }

    fn happened(&mut self) -> Happened {
        let condition = self.random.pick(&["MemoryPressure", "DiskPressure", "Ready", "a-condition-of-somebody-else"]);
        let reason = self.random.pick(&["KubeletReady", "KubeletHasDiskPressure", "\u{e4}\u{f5}", ""]);
        let statuses = [Status::True, Status::False, Status::Unknown];
        let (from, to) = (self.random.pick(&statuses), self.random.pick(&statuses));
        match self.random.below(20) {
            0 => Happened::OutageBegan { cause: cut("no-route") },
            1 => Happened::OutageEnded { cause: cut("no-route"), changes: 3, dropped: self.random.below(9) as u32 },
            2 => Happened::ProcessStarted,
            3 => Happened::BoardRebooted { old: BootId(self.boot.0 - 1), reason: cut("watchdog") },
            4 => Happened::ClockSet { wall: Wall::from_unix_us(self.random.next().cast_signed()) },
            5 => Happened::AbsenceAnnounced {
                until: Wall::from_unix_us(self.random.next().cast_signed()),
                reason: cut(reason),
            },
            _ => Happened::ConditionChanged { condition: cut(condition), from, to, reason: cut(reason) },
        }
    }

    fn add(&mut self) -> Outcome {
        let burst = if self.random.per_mille(20) { 1 + self.random.below(400) } else { 1 };
        for _ in 0..burst {
            self.up += Duration::from_millis(1);
            let (now, what) = (self.now(), self.happened());
            let before = self.journal.waiting().last().map(|record| record.sequence);
            let sequence = self.journal.add(now, what);
            let is_newest = self.journal.waiting().last().map(|record| record.sequence) == Some(sequence);
            if !is_newest || before.is_some_and(|before| before >= sequence) || sequence <= self.newest_synced {
                return Err(format!("{sequence:?} is not the newest"));
            }
            if !self.names.insert((self.boot, sequence)) {
                return Err(format!("{sequence:?} comes twice in one boot"));
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        let count = if self.random.per_mille(100) { self.random.below(300) } else { self.random.below(4) };
        for _ in 0..count {
            let waits = self.journal.waiting().count() as u64;
            let place = if self.random.per_mille(900) { 0 } else { self.random.below(waits) };
            let Some(sequence) = self.journal.waiting().nth(place as usize).map(|record| record.sequence) else {
                return;
            };
            self.journal.forget(sequence);
        }
    }

    fn write(&mut self) -> Outcome {
        let now = Up::since_boot(self.up);
        let due = self.journal.write_due().is_some_and(|due| due <= now);
        if !due && self.random.per_mille(300) {
            return Ok(());
        }
        let Some(write) = self.journal.next_write(now) else { return Ok(()) };
        if self.journal.next_write(now).is_some() {
            return Err("two writes in flight".to_owned());
        }
        self.is_well_formed(&write)?;
        self.oracle.begins(story(&self.journal));
        if self.random.per_mille(300) {
            self.add()?;
        }
        if self.random.per_mille(300) {
            self.forget();
        }
        let random = &mut self.random;
        let cut = random.pick(&Cut::ALL);
        match random.below(100) {
            0..70 => {
                self.disk.write(&write);
                self.acknowledged()
            }
            70..82 => {
                self.disk.cut(&write, cut, &mut |end| random.below(end));
                self.journal.written(false, now);
                self.oracle.ends(false);
                Ok(())
            }
            82..94 => {
                self.disk.cut(&write, cut, &mut |end| random.below(end));
                self.restart(true)
            }
            _ => {
                self.disk.lie(&write, self.lie, &mut |end| random.below(end));
                self.acknowledged()?;
                self.restart(true)
            }
        }
    }

    fn acknowledged(&mut self) -> Outcome {
        self.journal.written(true, Up::since_boot(self.up));
        self.oracle.ends(true);
        let lost = self.oracle.synced.keys().find(|sequence| !self.journal.is_synced(**sequence));
        let newest = self.oracle.synced.keys().next_back().copied().unwrap_or(self.newest_synced);
        self.newest_synced = self.newest_synced.max(newest);
        // A record of dropped ones that has grown in the meantime is not on disk as it is.
        lost.filter(|lost| story(&self.journal).get(lost) == self.oracle.synced.get(lost))
            .map_or(Ok(()), |lost| Err(format!("{lost:?} was written and is not said to be synced")))
    }

    fn is_well_formed(&mut self, write: &Write) -> Outcome {
        match write {
            Write::Append { at_bytes, bytes } if *at_bytes as usize + bytes.len() > self.disk.journal.len() => {
                Err(format!("an append to {} bytes ends behind them", self.disk.journal.len()))
            }
            Write::Append { .. } => Ok(()),
            Write::Replace { bytes } => {
                self.replacements += 1;
                let is_right = bytes.len() % 4096 == 0 && bytes.len() <= self.quota_bytes;
                is_right.then_some(()).ok_or_else(|| format!("a file of {} bytes", bytes.len()))
            }
        }
    }

    /// A kill, or the power: with it the boot changes.
    fn restart(&mut self, is_reboot: bool) -> Outcome {
        self.power_cuts += usize::from(is_reboot);
        if is_reboot {
            self.boot = BootId(self.boot.0 + 1);
            self.up = Duration::from_millis(self.random.below(60_000));
        }
        let bytes = self.disk.read();
        let (journal, recovery) = Journal::recover(&bytes, self.quota_bytes, self.boot);
        let found = story(&journal);
        self.oracle.judge(&found)?;
        if recovery.records != found.len() || recovery.skipped > 16 {
            return Err(format!("{recovery:?} of {} records", found.len()));
        }
        let again = story(&Journal::recover(&bytes, self.quota_bytes, self.boot).0);
        if again != found {
            return Err("the same bytes say two things".to_owned());
        }
        let newest = found.keys().next_back().copied().unwrap_or(Sequence(0));
        self.newest_synced = self.newest_synced.max(newest);
        self.oracle = Oracle { synced: found, maybe: Vec::new() };
        self.journal = journal;
        Ok(())
    }

    fn stays_within_bounds(&self) -> Outcome {
        let waiting = self.journal.waiting().count();
        let is_in_order = self.journal.waiting().is_sorted_by_key(|record| record.sequence);
        (waiting <= 256 && is_in_order).then_some(()).ok_or_else(|| format!("{waiting} wait"))
    }
}

fn lives() -> u64 {
    std::env::var("LIVES").ok().and_then(|text| text.parse().ok()).unwrap_or(LIVES)
}

#[test]
fn no_power_cut_loses_what_was_synced_or_brings_back_what_was_forgotten() {
    let (mut power_cuts, mut replacements) = (0, 0);
    for seed in 0..lives() {
        let mut life = Life::new(seed, Lie::Honest);
        if let Err(what) = life.live(300) {
            panic!("life {seed}: {what}");
        }
        power_cuts += life.power_cuts;
        replacements += life.replacements;
    }
    assert!(power_cuts > 5 * lives() as usize && replacements > lives() as usize, "{power_cuts} {replacements}");
}

#[test]
fn a_disk_that_lies_is_noticed() {
    for lie in [Lie::NotSynced, Lie::RenamedFirst, Lie::OldBytes] {
        let noticed = (0..LIVES_PER_LIE).any(|seed| Life::new(seed, lie).live(300).is_err());
        assert!(noticed, "{lie:?}");
    }
}
