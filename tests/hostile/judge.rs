//! Turns what a server and a board's surroundings saw into the figures of one attack, and figures into complaints.

use super::attack::{Attack, Hold, Renewals};
use super::board::{Observed, WATCHDOG};
use super::server::{Record, Seen};
use std::time::{Duration, Instant};

/// A renewal is never later than this, nor longer after the end of an attack on it.
pub const RENEWAL: Duration = Duration::from_secs(15);
/// Requests, and connections that bring none, in any minute.
pub const REQUESTS_PER_MINUTE: usize = 60;
pub const LINES_PER_MINUTE: usize = 20;
/// Resident memory above that of a board in peace.
pub const MEMORY_KIB: u64 = 4 * 1024;
/// From SIGTERM to the end of the process.
pub const END: Duration = Duration::from_secs(3);
/// From the start until the service manager hears that it is over.
pub const START: Duration = Duration::from_secs(25);
/// The agent's own largest request is a third of that.
const REQUEST_BYTES: usize = 32 * 1024;

const MINUTE: Duration = Duration::from_secs(60);

/// When what was done.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub started: Instant,
    pub struck: Instant,
    pub ended: Instant,
}

/// The figures of one attack.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Between two renewals while the attack was on, or from its end to the next.
    pub gap: Option<Duration>,
    pub requests: usize,
    pub lines: usize,
    /// Above peace.
    pub memory_kib: u64,
    /// Between two signs of life to the service manager.
    pub watchdog: Duration,
    pub largest_request_bytes: usize,
    pub end: Option<Duration>,
    pub hits: usize,
}

impl Figures {
    pub fn of(attack: &Attack, record: &Record, seen: &Observed, times: Times, peace_kib: u64) -> Figures {
        let mut requests: Vec<Instant> = record.seen.iter().map(|seen| seen.at).collect();
        requests.sort();
        Figures {
            gap: gap(attack, record, times),
            requests: most_in_a_minute(&requests),
            lines: seen.lines.iter().map(|lines| most_in_a_minute(lines)).max().unwrap_or_default(),
            memory_kib: seen.peak_kib.saturating_sub(peace_kib),
            watchdog: longest_gap(times.started, &seen.alive, times.ended),
            largest_request_bytes: record.seen.iter().map(|seen| seen.bytes).max().unwrap_or_default(),
            end: None,
            hits: 0,
        }
    }

    /// The worse of both, figure by figure.
    pub fn or(self, other: &Figures) -> Figures {
        Figures {
            gap: self.gap.max(other.gap),
            requests: self.requests.max(other.requests),
            lines: self.lines.max(other.lines),
            memory_kib: self.memory_kib.max(other.memory_kib),
            watchdog: self.watchdog.max(other.watchdog),
            largest_request_bytes: self.largest_request_bytes.max(other.largest_request_bytes),
            end: self.end.max(other.end),
            hits: self.hits.max(other.hits),
        }
    }

    pub fn complaints(&self, attack: &Attack) -> Vec<String> {
        let mut complaints = Vec::new();
        match self.gap {
            Some(gap) if gap > longest_gap_of(attack) => {
                complaints.push(format!("{:.1} s without a renewal", gap.as_secs_f64()))
            }
            Some(_) => {}
            None => complaints.push("no renewal at all".to_owned()),
        }
        if self.requests > REQUESTS_PER_MINUTE {
            complaints.push(format!("{} requests in a minute", self.requests));
        }
        if self.lines > LINES_PER_MINUTE {
            complaints.push(format!("{} log lines in a minute", self.lines));
        }
        if self.memory_kib > MEMORY_KIB {
            complaints.push(format!("{} KiB above peace", self.memory_kib));
        }
        if self.watchdog > WATCHDOG {
            complaints.push(format!("{:.1} s without a sign of life", self.watchdog.as_secs_f64()));
        }
        if self.largest_request_bytes > REQUEST_BYTES {
            complaints.push(format!("a request of {} bytes", self.largest_request_bytes));
        }
        if self.end.is_some_and(|end| end > END) {
            complaints.push(format!("{:.1} s from SIGTERM to the end", self.end.unwrap_or_default().as_secs_f64()));
        }
        if self.hits == 0 {
            complaints.push("the attack hit nothing".to_owned());
        }
        complaints
    }
}

/// What a line allows.
pub fn longest_gap_of(attack: &Attack) -> Duration {
    match attack.renewals {
        Renewals::ComeBackWithin(seconds) => Duration::from_secs(seconds),
        _ => RENEWAL,
    }
}

fn gap(attack: &Attack, record: &Record, times: Times) -> Option<Duration> {
    let mut signs = record.renewals.clone();
    if attack.renewals == Renewals::OrHeartbeats {
        signs.extend(&record.heartbeats);
        signs.sort();
    }
    let after = signs.iter().find(|sign| **sign >= times.ended)?;
    let back = after.duration_since(times.ended);
    if matches!(attack.renewals, Renewals::ComeBack | Renewals::ComeBackWithin(_)) {
        return Some(back);
    }
    // The first renewal makes a beginning: before it there may have been no Node.
    let first = *signs.first()?;
    let from = first.max(times.struck);
    let since = signs.iter().copied().rfind(|sign| *sign <= from).unwrap_or(from);
    let during: Vec<Instant> = signs.iter().copied().filter(|sign| *sign > since && sign <= after).collect();
    Some(longest_gap(since, &during, *after))
}

fn longest_gap(from: Instant, moments: &[Instant], to: Instant) -> Duration {
    let inside = moments.iter().copied().filter(|moment| (from..=to).contains(moment));
    let marks: Vec<Instant> = [from].into_iter().chain(inside).chain([to]).collect();
    marks.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

fn most_in_a_minute(moments: &[Instant]) -> usize {
    let within = |(place, first): (usize, &Instant)| {
        moments[place..].iter().take_while(|moment| **moment - *first < MINUTE).count()
    };
    moments.iter().enumerate().map(within).max().unwrap_or_default()
}

/// What of a line's own conditions the server's record contradicts.
pub fn broken_holds(attack: &Attack, record: &Record, seen: &Observed, times: Times) -> Vec<String> {
    let broken = |hold: &Hold| match hold {
        Hold::RegisteredWithin(seconds) => {
            let limit = times.started + Duration::from_secs(*seconds);
            let on_time = record.registered.is_some_and(|at| at <= limit);
            (!on_time).then(|| format!("no Node within {seconds} s of the start"))
        }
        Hold::Never(kind) => {
            let is_meant = |seen: &&Seen| seen.kind == Some(*kind) && (times.struck..times.ended).contains(&seen.at);
            let count = record.seen.iter().filter(is_meant).count();
            (count > 0).then(|| format!("{count} requests {kind:?}, and there should be none"))
        }
        Hold::Told(..) | Hold::Ready => None,
    };
    let late = seen.ready.is_none_or(|at| at > times.started + START);
    let late = late.then(|| format!("the service manager did not hear READY=1 within {} s", START.as_secs()));
    attack.holds.iter().filter_map(broken).chain(late).collect()
}

/// Each figure beyond its limit is noticed, and none on it.
pub fn notices_what_is_wrong() -> Result<(), String> {
    let good = Figures {
        gap: Some(RENEWAL),
        requests: REQUESTS_PER_MINUTE,
        lines: LINES_PER_MINUTE,
        memory_kib: MEMORY_KIB,
        watchdog: WATCHDOG,
        largest_request_bytes: REQUEST_BYTES,
        end: Some(END),
        hits: 1,
    };
    let a_bit = Duration::from_millis(1);
    let bad = [
        Figures { gap: None, ..good.clone() },
        Figures { gap: Some(RENEWAL + a_bit), ..good.clone() },
        Figures { requests: REQUESTS_PER_MINUTE + 1, ..good.clone() },
        Figures { lines: LINES_PER_MINUTE + 1, ..good.clone() },
        Figures { memory_kib: MEMORY_KIB + 1, ..good.clone() },
        Figures { watchdog: WATCHDOG + a_bit, ..good.clone() },
        Figures { largest_request_bytes: REQUEST_BYTES + 1, ..good.clone() },
        Figures { end: Some(END + a_bit), ..good.clone() },
        Figures { hits: 0, ..good.clone() },
    ];
    let usual = super::attack::USUAL;
    assert_eq!(good.complaints(&usual), [""; 0]);
    for figures in bad {
        assert_eq!(figures.complaints(&usual).len(), 1, "{figures:?}");
    }
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let times = Times { started: start, struck: at(20), ended: at(50) };
    let with = |renewals: &[u64], manner: Renewals| {
        let attack = Attack { renewals: manner, ..super::attack::USUAL };
        let record = Record { renewals: renewals.iter().map(|s| at(*s)).collect(), ..Record::default() };
        gap(&attack, &record, times).map(|gap| gap.as_secs())
    };
    assert_eq!(with(&[5, 15, 25, 35, 45, 55, 99], Renewals::GoOn), Some(10));
    assert_eq!(with(&[5, 15, 55], Renewals::GoOn), Some(40));
    assert_eq!(with(&[35, 40, 70], Renewals::GoOn), Some(30), "from the first on");
    assert_eq!(with(&[5, 15, 55], Renewals::ComeBack), Some(5));
    assert_eq!(with(&[5, 15, 45], Renewals::ComeBack), None);
    let crowd: Vec<Instant> = (0..100).map(|number| start + Duration::from_millis(700) * number).collect();
    assert_eq!(most_in_a_minute(&crowd), 86);
    assert_eq!(longest_gap(at(0), &[at(3), at(10)], at(15)), Duration::from_secs(7));
    Ok(())
}
