//! Turns what the agent has counted into what its network bills: today, yesterday and in thirty days, by purpose.

use std::time::Duration;

use serde_json::{Value, json};

use super::args::Sources;
use super::colour::{BOLD, RESET};
use super::error::CliError;
use super::{ask, load};
use crate::api::traffic::{Cadence, Day, PURPOSES, Purpose};
use crate::config::budget::SERVER_KEEPS;
use crate::io::control::{self, Order};
use crate::io::kept_days;

const DAY_SECONDS: u64 = 24 * 3600;
const MONTH_SECONDS: u64 = 30 * DAY_SECONDS;
/// What a connection costs where none was counted: TCP, TLS 1.3 with an ECDSA certificate on both sides, the settings of HTTP/2.
const HANDSHAKE_BYTES: u64 = 4000;
/// So many connections may have ended by chance.
const FEW: u64 = 10;
/// What is made of less says little: a start costs more than what follows.
const LITTLE_SECONDS: u64 = 3600;

/// What is known.
pub struct Cost {
    /// Today, as far as anybody knows what day it is, and the day before.
    days: [Day; 2],
    /// Thirty days like these.
    month: Day,
    /// The same at the cadence of these settings, where the agent has another.
    as_set: Option<Day>,
    /// How often these settings make it talk.
    cadence: Cadence,
    /// A silence that something on the way has forgotten connections after.
    forgotten: Option<Duration>,
    /// The Node was watched, and a server ends no connection with a watch for being silent.
    is_watched: bool,
    /// Which these settings allow for a day.
    daily_bytes: Option<u64>,
    /// Since its start; `None`: it does not run.
    process: Option<Process>,
    directory: String,
}

/// What the agent itself has used.
struct Process {
    seconds: u64,
    peak_kib: u64,
    cpu_ms: u64,
    switches: u64,
    written_bytes: u64,
}

/// From the agent that runs, or else from its file.
pub fn cost(sources: &Sources) -> Result<Cost, CliError> {
    let settings = load::settings(sources)?.settings;
    let directory = settings.state_directory.clone();
    let wanted = Cadence::of(&settings);
    let Some(agent) = control::connect(&directory) else {
        let days = kept_days(&directory);
        let counted = both(&days);
        return Ok(Cost {
            forgotten: silence_forgotten(&counted, wanted),
            is_watched: is_watched(&counted),
            month: counted.for_seconds(MONTH_SECONDS),
            days,
            as_set: None,
            cadence: wanted,
            daily_bytes: settings.daily_bytes,
            process: None,
            directory,
        });
    };
    let told = ask::ask(agent, &Order::Cost, "the agent does not say: is it of the same version?")?;
    let (days, month) = Default::default();
    let daily_bytes = settings.daily_bytes;
    let (as_set, process, forgotten, is_watched) = (None, None, None, false);
    let mut cost =
        Cost { days, month, as_set, cadence: wanted, forgotten, is_watched, daily_bytes, process, directory };
    let mut days = cost.days.iter_mut();
    let mut cadence = None;
    for line in told.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["traffic", numbers @ ..] => {
                if let (Some(day), Some(read)) = (days.next(), Day::parse(numbers)) {
                    *day = read;
                }
            }
            ["cadence", spans @ ..] => cadence = Cadence::parse(spans),
            ["process", numbers @ ..] => cost.process = Process::parse(numbers),
            _ => {}
        }
    }
    let counted = both(&cost.days);
    let changed = cadence.filter(|cadence| *cadence != wanted);
    cost.forgotten = silence_forgotten(&counted, cadence.unwrap_or(wanted));
    cost.is_watched = self::is_watched(&counted);
    cost.as_set = changed.map(|now| self::as_set(&counted, now, wanted).for_seconds(MONTH_SECONDS));
    cost.month = counted.for_seconds(MONTH_SECONDS);
    Ok(cost)
}

/// How many connections end in so long, because renewals are further apart than a server, or what is on the way, keeps one that
/// is silent.
fn reconnects(cadence: Cadence, forgotten: Option<Duration>, is_watched: bool, seconds: u64) -> u64 {
    let is_kept =
        (is_watched || cadence.renewal <= SERVER_KEEPS) && forgotten.is_none_or(|silence| cadence.renewal < silence);
    if is_kept { 0 } else { seconds / cadence.renewal.as_secs().max(1) }
}

/// The period of renewals, where each second one at least was counted with a connection of its own though a server keeps one for
/// longer. Such a renewal is sent twice.
fn silence_forgotten(counted: &Day, cadence: Cadence) -> Option<Duration> {
    let count = |purpose: Purpose| counted.sums.get(purpose as usize).map_or(0, |sum| sum.count);
    let (renewals, connections) = (count(Purpose::Lease), count(Purpose::Handshake));
    let is_each_new = connections >= FEW && connections.saturating_mul(4) > renewals;
    (is_each_new && (is_watched(counted) || cadence.renewal <= SERVER_KEEPS)).then_some(cadence.renewal)
}

fn is_watched(counted: &Day) -> bool {
    counted.sums.get(Purpose::Watch as usize).is_some_and(|sum| sum.count > 0)
}

/// What was counted at another cadence, with the connections that it needs.
fn as_set(counted: &Day, now: Cadence, wanted: Cadence) -> Day {
    let mut day = counted.at(now, wanted);
    let forgotten = silence_forgotten(counted, now);
    let [is, will] = [now, wanted].map(|cadence| reconnects(cadence, forgotten, is_watched(counted), counted.seconds));
    if let Some(sum) = day.of(Purpose::Handshake) {
        // Who has kept one connection all the time has seen none made.
        let each = sum.bytes.checked_div(sum.count).unwrap_or(HANDSHAKE_BYTES);
        sum.count = sum.count.saturating_sub(is) + will;
        sum.bytes = each.saturating_mul(sum.count);
    }
    day
}

fn both([today, before]: &[Day; 2]) -> Day {
    today.clone().with(before)
}

impl Process {
    fn parse(words: &[&str]) -> Option<Process> {
        let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
        let [seconds, peak_kib, cpu_ms, switches, written_bytes] = *numbers.first_chunk()?;
        Some(Process { seconds, peak_kib, cpu_ms, switches, written_bytes })
    }
}

impl Cost {
    /// What there is for a day, and what is left of it.
    fn budget(&self) -> Option<(u64, u64)> {
        let [today, _] = &self.days;
        self.daily_bytes.map(|daily_bytes| (daily_bytes, daily_bytes.saturating_sub(today.bytes())))
    }

    /// For people: what matters first stands first.
    pub fn to_text(&self) -> String {
        let [today, before] = &self.days;
        let counted = today.seconds + before.seconds;
        let mut text = String::new();
        if self.process.is_none() {
            let directory = &self.directory;
            text += &format!(
                "No agent runs with {directory} that this user may ask; this is what was kept there last.\n\n"
            );
        }
        let name = |day: &Day, name: &str| match (self.process.is_some(), day.number) {
            (_, 0) => format!("{name} (no date)"),
            (true, _) => name.to_owned(),
            (false, _) => day.date(),
        };
        let (today_name, today_size) = (name(today, "today"), size(today.bytes()));
        text += &format!("{BOLD}{today_name:<12}{today_size:>10}{RESET} in {}\n", span(today.seconds));
        if let Some((daily_bytes, left_bytes)) = self.budget() {
            text += &format!("{:<12}{:>10} left of {} (dailyBytes)\n", "", size(left_bytes), size(daily_bytes));
        }
        if before.seconds > 0 {
            text +=
                &format!("{:<12}{:>10} in {}\n", name(before, "yesterday"), size(before.bytes()), span(before.seconds));
        }
        let little = if counted < LITTLE_SECONDS { ", which says little yet: a start costs more" } else { "" };
        text += &format!(
            "{:<12}{:>10} if they are like the last {}{little}\n",
            "30 days",
            size(self.month.bytes()),
            span(counted)
        );
        if let Some(as_set) = &self.as_set {
            text += &format!("{:<12}{:>10} with these settings\n", "", size(as_set.bytes()));
        }
        text += &self.reconnects_text().unwrap_or_default();
        let columns =
            ["times today", "today", "yesterday", "30 days", if self.as_set.is_some() { "so set" } else { "" }];
        let row = |name: &str, cells: [String; 5]| {
            let cells: String = cells.iter().map(|cell| format!("{cell:>13}")).collect();
            format!("{name:<12}{cells}").trim_end().to_owned() + "\n"
        };
        text += "\n";
        text += &row("", columns.map(str::to_owned));
        for (place, purpose) in PURPOSES.iter().enumerate() {
            let of = |day: &Day| day.sums.get(place).copied().unwrap_or_default();
            let bytes = |day: &Day| size(of(day).bytes);
            let as_set = self.as_set.as_ref().map(bytes).unwrap_or_default();
            text +=
                &row(purpose, [of(today).count.to_string(), bytes(today), bytes(before), bytes(&self.month), as_set]);
        }
        let (sent, received, packets, repeated) =
            (size(today.sent_bytes), size(today.received_bytes), today.packets, today.repeated);
        text +=
            &format!("\ntoday {sent} sent, {received} received; {packets} packets, {repeated} of them sent again\n");
        if let Some(Process { seconds, peak_kib, cpu_ms, switches, written_bytes }) = &self.process {
            let (seconds, written, cpu_s) = (span(*seconds), size(*written_bytes), cpu_ms / 1000);
            text += &format!("this process in {seconds}: {peak_kib} KiB of memory at most, {cpu_s} s of processor,\n");
            text += &format!("{switches} wake-ups, {written} to disk\n");
        }
        text + "Bytes are those of IP packets, both ways; days are those of UTC.\n"
    }

    /// How many handshakes these settings make, and who makes them so.
    fn reconnects_text(&self) -> Option<String> {
        let reconnects @ 1.. = reconnects(self.cadence, self.forgotten, self.is_watched, DAY_SECONDS) else {
            return None;
        };
        let period = self.cadence.renewal.as_secs();
        let (who, silence, until) = match self.forgotten {
            Some(silence) => ("A NAT or firewall forgets a connection", silence, "more often there may be"),
            None => ("An API server ends a connection that was", SERVER_KEEPS, "up to every 90 s there are"),
        };
        let silence = silence.as_secs();
        Some(format!(
            "{who} silent for {silence} s: with a renewal every\n\
             {period} s there are {reconnects} handshakes a day; {until} none.\n"
        ))
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "isRunning": self.process.is_some(),
            "days": self.days.iter().filter(|day| day.seconds > 0).map(of_day).collect::<Vec<Value>>(),
            "thirtyDays": of_sums(&self.month),
            "dailyBytes": self.daily_bytes,
            "leftBytes": self.budget().map(|(_, left_bytes)| left_bytes),
            "reconnectsPerDay": reconnects(self.cadence, self.forgotten, self.is_watched, DAY_SECONDS),
            "thirtyDaysAsSet": self.as_set.as_ref().map(of_sums),
            "process": self.process.as_ref().map(|of| json!({
                "seconds": of.seconds,
                "peakMemoryKiB": of.peak_kib,
                "processorMs": of.cpu_ms,
                "contextSwitches": of.switches,
                "writtenBytes": of.written_bytes,
            })),
        })
    }
}

fn of_day(day: &Day) -> Value {
    let mut value = of_sums(day);
    let more = json!({
        "date": (day.number != 0).then(|| day.date()),
        "sentBytes": day.sent_bytes,
        "receivedBytes": day.received_bytes,
        "packets": day.packets,
        "packetsSentAgain": day.repeated,
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

fn of_sums(day: &Day) -> Value {
    let sums = PURPOSES.iter().zip(day.sums);
    let sums = sums.map(|(name, sum)| ((*name).to_owned(), json!({"count": sum.count, "bytes": sum.bytes})));
    json!({"seconds": day.seconds, "bytes": day.bytes(), "purposes": Value::Object(sums.collect())})
}

/// `1.05 kB`, in the units of bills.
fn size(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{}.{:02} {name}", bytes / unit, bytes % unit * 100 / unit),
        None => format!("{bytes} B"),
    }
}

/// `4 h 32 min`.
fn span(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes} min"),
        (_, 0) => format!("{hours} h"),
        _ => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::colour::without;
    use super::*;
    use crate::api::traffic::Sum;

    fn cost() -> Cost {
        let mut today =
            Day { number: 20_779, seconds: 16_320, sent_bytes: 900_000, received_bytes: 730_000, ..Day::default() };
        (today.packets, today.repeated) = (5000, 3);
        today.of(Purpose::Lease).into_iter().for_each(|sum| *sum = Sum { count: 1632, bytes: 1_630_000 });
        let mut before = Day { number: 20_778, seconds: DAY_SECONDS, ..Day::default() };
        before.of(Purpose::Lease).into_iter().for_each(|sum| *sum = Sum { count: 8640, bytes: 9_063_360 });
        let days = [today, before];
        let process =
            Process { seconds: 102_720, peak_kib: 1956, cpu_ms: 8_432, switches: 31_000, written_bytes: 8192 };
        let directory = "/var/lib/nodepulse".to_owned();
        let month = both(&days).for_seconds(MONTH_SECONDS);
        let cadence = Cadence::of(&crate::config::Settings::default());
        let (as_set, forgotten, is_watched, daily_bytes) = (None, None, false, None);
        Cost { month, days, as_set, cadence, forgotten, is_watched, daily_bytes, process: Some(process), directory }
    }

    #[test]
    fn what_a_person_wants_to_know_stands_first_on_one_screen() {
        let mut cost = cost();
        cost.as_set = Some(Day::default());
        let text = without(&cost.to_text());
        let first: Vec<&str> = text.lines().take(4).collect();
        assert_eq!(
            first,
            [
                "today          1.63 MB in 4 h 32 min",
                "yesterday      9.06 MB in 24 h",
                "30 days      269.83 MB if they are like the last 28 h 32 min",
                "                   0 B with these settings",
            ]
        );
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("5000 packets, 3 of them sent again"), "{text}");
        assert!(!text.contains("90 s"), "{text}");
        assert!(
            text.contains("1956 KiB of memory at most, 8 s of processor,\n31000 wake-ups, 8.19 kB to disk"),
            "{text}"
        );
    }

    #[test]
    fn what_is_left_of_a_budget_stands_below_what_was_taken_of_it() {
        let mut cost = cost();
        assert_eq!((&cost.to_json()["dailyBytes"], &cost.to_json()["leftBytes"]), (&Value::Null, &Value::Null));
        cost.daily_bytes = Some(5_000_000);
        let text = without(&cost.to_text());
        assert_eq!(text.lines().nth(1), Some("               3.37 MB left of 5.00 MB (dailyBytes)"));
        assert!(text.lines().count() <= 24, "{text}");
        assert_eq!(cost.to_json()["leftBytes"], 3_370_000);
        cost.daily_bytes = Some(1_000_000);
        assert_eq!(cost.to_json()["leftBytes"], 0);
    }

    #[test]
    fn where_each_renewal_needs_a_connection_it_is_said_how_many_and_from_which_period_on() {
        let mut cost = cost();
        cost.as_set = Some(Day::default());
        cost.cadence.renewal = Duration::from_secs(240);
        let text = without(&cost.to_text());
        let expected = "An API server ends a connection that was silent for 90 s: with a renewal every\n\
                        240 s there are 360 handshakes a day; up to every 90 s there are none.\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(cost.to_json()["reconnectsPerDay"], 360);
        cost.is_watched = true;
        assert_eq!(cost.to_json()["reconnectsPerDay"], 0, "a server ends none that has a watch");
    }

    #[test]
    fn where_something_on_the_way_forgets_connections_sooner_than_a_server_it_is_said_as_counted() {
        let metered = Cadence {
            renewal: Duration::from_secs(48),
            assertion: Duration::from_secs(600),
            report: Duration::from_secs(3600),
        };
        let every = |seconds| Cadence { renewal: Duration::from_secs(seconds), ..metered };
        let counted = |renewals, connections| {
            let mut day = Day { seconds: DAY_SECONDS, ..Day::default() };
            for (purpose, count) in [(Purpose::Lease, renewals), (Purpose::Handshake, connections)] {
                day.of(purpose).into_iter().for_each(|sum| *sum = Sum { count, bytes: 4000 * count });
            }
            day
        };
        // Each renewal is lost and sent again; or a server was restarted now and then.
        let behind = counted(2980, 1490);
        assert_eq!(silence_forgotten(&behind, metered), Some(metered.renewal));
        assert_eq!(silence_forgotten(&counted(1800, 300), metered), None);
        assert_eq!(silence_forgotten(&counted(4, 3), metered), None, "a start");
        assert_eq!(silence_forgotten(&counted(360, 360), every(240)), None, "the server does");
        let mut watched = counted(360, 360);
        watched.of(Purpose::Watch).into_iter().for_each(|sum| sum.count = 40);
        assert_eq!(silence_forgotten(&watched, every(240)), Some(Duration::from_secs(240)), "it would not");
        let mut cost =
            Cost { cadence: metered, forgotten: Some(metered.renewal), as_set: Some(behind.clone()), ..cost() };
        let text = without(&cost.to_text());
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let expected = "A NAT or firewall forgets a connection silent for 48 s: with a renewal every\n\
                        48 s there are 1800 handshakes a day; more often there may be none.\n";
        assert!(text.contains(expected), "{text}");
        assert_eq!(cost.to_json()["reconnectsPerDay"], 1800);
        cost.cadence = every(20);
        assert_eq!(cost.to_json()["reconnectsPerDay"], 0);
        let handshakes = |wanted| as_set(&behind, metered, wanted).of(Purpose::Handshake).map(|sum| sum.count);
        assert_eq!((handshakes(every(20)), handshakes(every(80))), (Some(0), Some(1080)));
    }

    #[test]
    fn with_renewals_further_apart_than_a_server_keeps_a_connection_each_makes_its_own() {
        let lan = Cadence::of(&crate::config::Settings::default());
        let every = |seconds| Cadence { renewal: Duration::from_secs(seconds), ..lan };
        let handshakes = |counted: (u64, u64), now, wanted| {
            let mut day = Day { seconds: DAY_SECONDS, ..Day::default() };
            day.of(Purpose::Handshake).into_iter().for_each(|sum| (sum.count, sum.bytes) = counted);
            as_set(&day, now, wanted).of(Purpose::Handshake).map(|sum| (sum.count, sum.bytes))
        };
        assert_eq!(handshakes((2, 7000), lan, every(240)), Some((362, 362 * 3500)));
        assert_eq!(handshakes((0, 0), lan, every(240)), Some((360, 360 * HANDSHAKE_BYTES)), "none was counted");
        assert_eq!(handshakes((2, 7000), lan, every(90)), Some((2, 7000)));
        assert_eq!(handshakes((361, 361 * 3500), every(240), lan), Some((1, 3500)), "only that of the start is left");
        assert_eq!(handshakes((361, 361 * 3500), every(240), every(480)), Some((181, 181 * 3500)));
    }

    #[test]
    fn without_an_agent_it_is_said_and_days_have_their_dates() {
        let text = without(&Cost { process: None, ..cost() }.to_text());
        assert!(text.starts_with("No agent runs with /var/lib/nodepulse"), "{text}");
        assert!(text.contains("2026-11-22     1.63 MB in 4 h 32 min\n2026-11-21     9.06 MB"), "{text}");
    }

    #[test]
    fn a_program_gets_bytes() {
        let value = cost().to_json();
        assert_eq!(value["days"][0]["purposes"]["lease"], json!({"count": 1632, "bytes": 1_630_000}));
        assert_eq!((&value["days"][1]["date"], &value["days"][1]["bytes"]), (&json!("2026-11-21"), &json!(9_063_360)));
        assert_eq!(value["process"]["writtenBytes"], 8192);
        assert_eq!(value["thirtyDaysAsSet"], Value::Null);
        assert_eq!(value["thirtyDays"]["seconds"], MONTH_SECONDS);
    }

    #[test]
    fn sizes_are_those_of_bills() {
        let sizes = [0, 999, 1000, 1049, 999_999, 14_150_000, 1_000_000_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1.00 kB", "1.04 kB", "999.99 kB", "14.15 MB", "1.00 GB"]);
        assert_eq!([0, 59, 60, 3600, 5400].map(span), ["0 s", "59 s", "1 min", "1 h", "1 h 30 min"]);
    }
}
