//! Turns the bytes of exchanges into sums by purpose and day, and these into a line of text and back.
//!
//! ```text
//! traffic DAY SECONDS SENT RECEIVED PACKETS REPEATED   EXCHANGES BYTES   EXCHANGES BYTES ...
//! ```
//!
//! DAY counts from 1970-01-01, 0 while nobody knows the date; then a pair for each purpose, in their order. Bytes are those of
//! IP packets, headers, acknowledgements and repeats included: what the operator of a network bills.

use std::fmt::Write;
use std::time::Duration;

use super::operation::{Operation, PatchAnswer};
use crate::config::Settings;
use crate::time::Wall;

/// What bytes were for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Lease,
    /// The Node: registered, read, reported.
    Status,
    /// Statuses that are only stated, which notices what others wrote (D4).
    Assertion,
    Events,
    /// To join, and another certificate.
    Identity,
    /// Connections: made, proven, ended, or tried in vain.
    Handshake,
    /// Look-ups of names, by the length of question and answer: the kernel does not count them for us.
    Names,
    /// The Node is watched, which notices what others wrote in the place of assertions (D4).
    Watch,
}

/// What each is called, in their order.
pub const PURPOSES: [&str; 8] = ["lease", "status", "assertion", "events", "identity", "handshake", "names", "watch"];

const SECONDS_PER_DAY: i64 = 24 * 3600;
/// Before the pairs.
const NUMBERS: usize = 6;

/// What one purpose took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Requests, connections or look-ups.
    pub count: u64,
    pub bytes: u64,
}

/// What one day took; days are those of UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Day {
    /// Since 1970-01-01; 0: nobody knows.
    pub number: i64,
    /// For how long of it was counted.
    pub seconds: u64,
    /// By the kernel's count, both ways.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub packets: u64,
    /// Of the packets that were sent, so many had been sent before.
    pub repeated: u64,
    pub sums: [Sum; PURPOSES.len()],
}

/// The day of this moment.
pub fn day_of(wall: Option<Wall>) -> i64 {
    wall.map_or(0, |wall| wall.unix_seconds().div_euclid(SECONDS_PER_DAY))
}

impl Day {
    pub fn of(&mut self, purpose: Purpose) -> Option<&mut Sum> {
        self.sums.get_mut(purpose as usize)
    }

    /// Of all purposes.
    pub fn bytes(&self) -> u64 {
        self.sums.iter().map(|sum| sum.bytes).sum()
    }

    /// `2026-11-22`.
    pub fn date(&self) -> String {
        let stamp = Wall::from_unix_seconds(self.number.saturating_mul(SECONDS_PER_DAY)).to_seconds_stamp();
        stamp.split('T').next().unwrap_or_default().to_owned()
    }

    /// What stands behind `traffic `.
    pub fn to_line(&self) -> String {
        let Day { number, seconds, sent_bytes, received_bytes, packets, repeated, sums } = self;
        let mut line = format!("{number} {seconds} {sent_bytes} {received_bytes} {packets} {repeated}");
        for Sum { count, bytes } in sums {
            // Writing to a string cannot fail.
            let _ = write!(line, " {count} {bytes}");
        }
        line
    }

    /// `None` for anything else than such a line. Another version may have more purposes, or fewer.
    pub fn parse(words: &[&str]) -> Option<Day> {
        let mut numbers = Vec::with_capacity(words.len());
        for word in words.iter().take(NUMBERS + 2 * PURPOSES.len()) {
            numbers.push(word.parse::<u64>().ok()?);
        }
        let ([number, seconds, sent_bytes, received_bytes, packets, repeated], pairs) =
            numbers.split_first_chunk::<NUMBERS>()?;
        let number = i64::try_from(*number).ok()?;
        let mut day = Day {
            number,
            seconds: *seconds,
            sent_bytes: *sent_bytes,
            received_bytes: *received_bytes,
            packets: *packets,
            repeated: *repeated,
            ..Day::default()
        };
        for (sum, pair) in day.sums.iter_mut().zip(pairs.chunks_exact(2)) {
            if let [count, bytes] = pair {
                *sum = Sum { count: *count, bytes: *bytes };
            }
        }
        Some(day)
    }
}

/// How often what is sent without a reason of its own is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cadence {
    pub renewal: Duration,
    pub assertion: Duration,
    pub report: Duration,
}

impl Cadence {
    pub fn of(settings: &Settings) -> Cadence {
        Cadence {
            renewal: settings.lease_renew_period(),
            assertion: settings.status_assert_frequency,
            report: settings.node_status_report_frequency,
        }
    }

    /// Milliseconds, in their order.
    pub fn to_line(self) -> String {
        [self.renewal, self.assertion, self.report].map(|span| span.as_millis().to_string()).join(" ")
    }

    pub fn parse(words: &[&str]) -> Option<Cadence> {
        let [renewal, assertion, report] = words else { return None };
        let span = |word: &str| word.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        Some(Cadence { renewal: span(renewal)?, assertion: span(assertion)?, report: span(report)? })
    }

    /// How many renewals, assertions and unchanged reports there are in so long, and events of a watch that tell of these. A
    /// report states what an assertion would.
    fn counts(self, span: Duration) -> [(Purpose, u64); 4] {
        let [renewals, assertions, reports] =
            [self.renewal, self.assertion, self.report].map(|period| span.as_millis() / period.as_millis().max(1));
        let small = |count: u128| u64::try_from(count).unwrap_or(u64::MAX);
        [
            (Purpose::Lease, small(renewals)),
            (Purpose::Assertion, small(assertions.saturating_sub(reports))),
            (Purpose::Status, small(reports)),
            (Purpose::Watch, small(reports)),
        ]
    }
}

impl Day {
    /// What it would have been at another cadence: what has no cadence stays as it was, and each exchange as long as it is.
    pub fn at(&self, now: Cadence, then: Cadence) -> Day {
        let span = Duration::from_secs(self.seconds);
        let mut day = self.clone();
        for ((purpose, is), (_, will)) in now.counts(span).into_iter().zip(then.counts(span)) {
            // A Node that is watched is asserted now and then, at no cadence.
            let has_cadence = |count: u64| count > 0 && (purpose != Purpose::Assertion || count > is / 2);
            if let Some(Sum { count, bytes }) = day.of(purpose).filter(|sum| has_cadence(sum.count)) {
                let others = count.saturating_sub(is);
                let next = others + will;
                *bytes = bytes.saturating_mul(next) / *count;
                *count = next;
            }
        }
        day
    }

    /// Both together.
    pub fn with(mut self, other: &Day) -> Day {
        self.seconds += other.seconds;
        for (sum, other) in self.sums.iter_mut().zip(other.sums) {
            sum.count += other.count;
            sum.bytes += other.bytes;
        }
        self
    }

    /// So many seconds of days like this.
    pub fn for_seconds(&self, seconds: u64) -> Day {
        let grown = |number: u64| number.saturating_mul(seconds).checked_div(self.seconds).unwrap_or(0);
        let mut day = Day { seconds, ..Day::default() };
        day.sums = self.sums.map(|sum| Sum { count: grown(sum.count), bytes: grown(sum.bytes) });
        day
    }
}

/// Cuts `total` into parts that stand to each other as `weights` do and make `total` together; without any weight, into none.
pub fn shares<const N: usize>(total: u64, weights: [u64; N]) -> [u64; N] {
    let whole: u64 = weights.iter().sum();
    let (mut weight_so_far, mut given) = (0, 0);
    weights.map(|weight| {
        weight_so_far += weight;
        let due = total.saturating_mul(weight_so_far).checked_div(whole).unwrap_or(0);
        let share = due - given;
        given = due;
        share
    })
}

impl Operation {
    /// What its bytes are for.
    pub fn purpose(&self) -> Purpose {
        match self {
            Self::ReadLease | Self::CreateLease { .. } | Self::RenewLease { .. } | Self::DeleteLease => Purpose::Lease,
            Self::PatchStatus { answer: PatchAnswer::Nothing, .. } => Purpose::Assertion,
            Self::WatchNode => Purpose::Watch,
            Self::ReadVersion
            | Self::CreateNode { .. }
            | Self::StripNode
            | Self::CreateCsiNode { .. }
            | Self::ReadNode { .. }
            | Self::ReadMetadata
            | Self::PatchStatus { .. }
            | Self::ListPods
            | Self::ReviewAccess { .. } => Purpose::Status,
            Self::CreateEvent { .. } | Self::PatchEvent { .. } => Purpose::Events,
            Self::CreateCertificateRequest { .. }
            | Self::ReadCertificateRequest { .. }
            | Self::ProveCertificate
            | Self::ReadClusterInfo
            | Self::ReadEndpoints
            | Self::AskSupervisor(_) => Purpose::Identity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day() -> Day {
        let mut day = Day { number: 20_779, seconds: 3600, sent_bytes: 10, received_bytes: 20, ..Day::default() };
        (day.packets, day.repeated) = (6, 1);
        day.of(Purpose::Lease).into_iter().for_each(|sum| *sum = Sum { count: 2, bytes: 25 });
        day.of(Purpose::Names).into_iter().for_each(|sum| *sum = Sum { count: 1, bytes: 5 });
        day
    }

    #[test]
    fn a_day_is_a_line_and_back() {
        let line = day().to_line();
        assert_eq!(line, "20779 3600 10 20 6 1 2 25 0 0 0 0 0 0 0 0 0 0 1 5 0 0");
        let parse = |line: &str| Day::parse(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(parse(&line), Some(day()));
        assert_eq!((day().bytes(), day().date()), (30, "2026-11-22".to_owned()));
        assert_eq!(parse(&format!("{line} 7 8 x")), Some(day()), "a version with more purposes");
        let fewer = parse("20779 3600 10 20 6 1 2 25").unwrap();
        assert_eq!(fewer.bytes(), 25);
        for wrong in
            ["", "1 2 3 4 5", "-1 2 3 4 5 6", "1 2 3 4 5 x", "1 2 3 4 5 6 7 -8", "18446744073709551615 1 1 1 1 1"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn shares_make_the_whole_and_stand_to_each_other_as_weights() {
        assert_eq!(shares(100, [1, 0, 3]), [25, 0, 75]);
        assert_eq!(shares(100, [1, 1, 1]).iter().sum::<u64>(), 100);
        assert_eq!(shares(7, [u64::from(u32::MAX), 1, 1]).iter().sum::<u64>(), 7);
        assert_eq!(shares(7, [0, 0]), [0, 0]);
    }

    #[test]
    fn another_cadence_changes_what_has_one_and_leaves_the_rest() {
        let second = Duration::from_secs;
        let lan = Cadence { renewal: second(10), assertion: second(60), report: second(300) };
        let metered = Cadence { renewal: second(20), assertion: second(600), report: second(3600) };
        let mut day = Day { number: 1, seconds: 86_400, ..Day::default() };
        let sums = [(8640, 8_640_000), (300, 300_000), (1152, 2_304_000), (5, 5000), (0, 0), (2, 8000), (0, 0), (0, 0)];
        day.sums = sums.map(|(count, bytes)| Sum { count, bytes });
        assert_eq!(day.at(lan, lan), day);
        let other = day.at(lan, metered);
        // Twelve reports of a change, or of a start, stay.
        let expected = [(4320, 4_320_000), (36, 36_000), (120, 240_000), (5, 5000), (0, 0), (2, 8000), (0, 0), (0, 0)];
        assert_eq!(other.sums, expected.map(|(count, bytes)| Sum { count, bytes }));
        let mut watched = day.clone();
        for (purpose, count, bytes) in [(Purpose::Assertion, 3, 3000), (Purpose::Watch, 300, 210_000)] {
            watched.of(purpose).into_iter().for_each(|sum| *sum = Sum { count, bytes });
        }
        let mut other = watched.at(lan, metered);
        let mut of = |purpose| other.of(purpose).map(|sum| (sum.count, sum.bytes));
        assert_eq!((of(Purpose::Assertion), of(Purpose::Watch)), (Some((3, 3000)), Some((36, 25_200))));
        let month = day.for_seconds(30 * 86_400);
        assert_eq!((month.bytes(), month.seconds), (30 * day.bytes(), 30 * 86_400));
        assert_eq!(day.clone().with(&day).bytes(), 2 * day.bytes());
        assert_eq!(Day::default().for_seconds(86_400).bytes(), 0);
        assert_eq!(Cadence::parse(&lan.to_line().split(' ').collect::<Vec<_>>()), Some(lan));
        assert_eq!(Cadence::parse(&["1", "2"]), None);
        assert_eq!(Cadence::parse(&["1", "0", "2"]), None);
    }

    #[test]
    fn each_purpose_has_a_name() {
        assert_eq!(PURPOSES.get(Purpose::Watch as usize), Some(&"watch"));
        assert_eq!(PURPOSES.get(Purpose::Lease as usize), Some(&"lease"));
        assert_eq!(day_of(Some(Wall::from_unix_seconds(86_399 + 86_400))), 1);
        assert_eq!(day_of(None), 0);
    }
}
