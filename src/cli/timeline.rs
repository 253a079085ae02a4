//! Turns what happened to a board into a picture: outages, starts and conditions beside each other, along one axis of time.

mod events;
mod svg;

use std::fmt::Write;

use super::colour::{BOLD, RESET};
use crate::config::plain_text::line;
use crate::journal::{Happened, Record, Status};
use crate::time::Wall;

/// What is drawn, from the first moment that is known to the last.
#[derive(Debug, Default)]
pub struct Timeline {
    rows: Vec<Row>,
    /// Seconds since 1970.
    moments: Vec<i64>,
    /// What happened at a time that nobody knows.
    undated: usize,
}

/// One condition, or one thing that happens again and again.
#[derive(Debug)]
struct Row {
    name: String,
    /// Before the first change.
    before: State,
    changes: Vec<(i64, State)>,
    /// What is over in a moment.
    points: Vec<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Well,
    Unknown,
    Bad,
}

const OUTAGE: &str = "outage";
const REBOOT: &str = "reboot";
const START: &str = "start";
const ABSENCE: &str = "announced absence";
/// Of a terminal.
const WIDTH: usize = 80;
/// What stands behind a row: how long it was bad, or how often it happened.
const SUM: usize = 8;

/// What a cell is drawn as.
struct Signs {
    well: char,
    unknown: char,
    bad: char,
    point: char,
}

const SIGNS: Signs = Signs { well: '·', unknown: '░', bad: '█', point: '▲' };
const PLAIN_SIGNS: Signs = Signs { well: '.', unknown: '?', bad: '#', point: '^' };

impl Timeline {
    /// From what waits in a journal, up to `now`, where that is known.
    pub fn of_records<'a>(records: impl Iterator<Item = &'a Record>, now: Option<Wall>) -> Timeline {
        let mut timeline = Timeline::default();
        for record in records {
            match record.at.wall {
                Some(wall) => timeline.add(&record.what, wall.unix_seconds()),
                None => timeline.undated += 1,
            }
        }
        timeline.moments.extend(now.filter(|_| !timeline.moments.is_empty()).map(Wall::unix_seconds));
        timeline
    }

    fn add(&mut self, what: &Happened, at: i64) {
        match what {
            Happened::ConditionChanged { condition, from, to, .. } => {
                let before = state_of(condition, *from);
                self.change(condition, before, at, state_of(condition, *to));
            }
            Happened::OutageBegan { .. } => self.change(OUTAGE, State::Well, at, State::Bad),
            Happened::OutageEnded { .. } => self.change(OUTAGE, State::Bad, at, State::Well),
            Happened::ProcessStarted => self.point(START, at),
            Happened::BoardRebooted { .. } => self.point(REBOOT, at),
            Happened::AbsenceAnnounced { until, .. } => {
                self.change(ABSENCE, State::Well, at, State::Bad);
                self.change(ABSENCE, State::Bad, until.unix_seconds(), State::Well);
            }
            Happened::Leaving { .. } | Happened::ClockSet { .. } | Happened::Dropped { .. } => self.moments.push(at),
            Happened::Trouble { reason, .. } => self.point(reason, at),
            Happened::ProcessRuns { .. } | Happened::KernelRead { .. } => {}
        }
    }

    fn change(&mut self, name: &str, before: State, at: i64, state: State) {
        self.on_row(name, before, at, |row| row.changes.push((at, state)));
    }

    fn point(&mut self, name: &str, at: i64) {
        self.on_row(name, State::Well, at, |row| row.points.push(at));
    }

    fn on_row(&mut self, name: &str, before: State, at: i64, add: impl FnOnce(&mut Row)) {
        self.moments.push(at);
        if self.rows.iter().all(|row| row.name != name) {
            self.rows.push(Row { name: name.to_owned(), before, changes: Vec::new(), points: Vec::new() });
        }
        if let Some(row) = self.rows.iter_mut().find(|row| row.name == name) {
            add(row);
        }
    }

    /// First and last moment, so far apart that each second has a column.
    fn span(&self) -> Option<(i64, i64)> {
        let (first, last) = (*self.moments.iter().min()?, *self.moments.iter().max()?);
        Some((first, last.max(first + 120)))
    }

    /// For people, in lines of eighty columns. `is_utf8`: whether the terminal can show more than ASCII.
    pub fn to_text(&self, is_utf8: bool) -> String {
        let Some((first, last)) = self.span() else {
            return format!("{BOLD}nothing to draw{RESET}{}\n", self.undated_text());
        };
        let signs = if is_utf8 { SIGNS } else { PLAIN_SIGNS };
        let name = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let cells = WIDTH.saturating_sub(name + 2 + SUM).max(1) as i64;
        let seconds = last - first;
        let mut text = format!("{BOLD}{} to {}{RESET}, ", stamp(first), stamp(last));
        let _ = writeln!(text, "{} a column{}", length((seconds / cells).max(1)), self.undated_text());
        for row in &self.rows {
            let spans = row.spans(first, last);
            let _ = write!(text, "{:name$}  ", line(&row.name));
            for cell in 0..cells {
                let (from, to) = (first + cell * seconds / cells, first + (cell + 1) * seconds / cells);
                // The last moment has no cell of its own.
                let is_here = |at: &i64| (from..to).contains(at) || *at == last && to == last;
                let covers = |(begun, over, _): &&(i64, i64, State)| *begun < to.max(from + 1) && *over > from;
                let state = spans.iter().filter(covers).map(|(.., state)| *state).max();
                text.push(match state {
                    _ if row.points.iter().any(is_here) => signs.point,
                    Some(State::Bad) => signs.bad,
                    Some(State::Unknown) => signs.unknown,
                    _ => signs.well,
                });
            }
            let _ = writeln!(text, "{:>SUM$}", row.sum(first, last));
        }
        let Signs { unknown, bad, point, .. } = signs;
        let _ = writeln!(text, "{bad} so   {unknown} nobody knows   {point} once");
        text
    }

    fn undated_text(&self) -> String {
        if self.undated == 0 { String::new() } else { format!("; {} at a time that nobody knows", self.undated) }
    }
}

impl Row {
    /// Since when until when it was not well.
    fn spans(&self, first: i64, last: i64) -> Vec<(i64, i64, State)> {
        let mut changes = self.changes.clone();
        // A clock that was set puts them out of order.
        changes.sort_by_key(|(at, _)| *at);
        let starts = [(first, self.before)].into_iter().chain(changes.iter().copied());
        let ends = changes.iter().map(|(at, _)| *at).chain([last]);
        let all = starts.zip(ends).map(|((from, state), to)| (from.clamp(first, last), to.clamp(first, last), state));
        all.filter(|(from, to, state)| *state != State::Well && from < to).collect()
    }

    /// How long it was bad, or how often it happened.
    fn sum(&self, first: i64, last: i64) -> String {
        if !self.points.is_empty() {
            return format!("{} x", self.points.len());
        }
        let bad = self.spans(first, last).into_iter().filter(|(.., state)| *state == State::Bad);
        length(bad.map(|(from, to, _)| to - from).sum())
    }
}

/// Of Ready it is False that is bad, of all others True.
fn state_of(condition: &str, status: Status) -> State {
    match status {
        Status::Unknown => State::Unknown,
        status if (status == Status::True) == (condition == "Ready") => State::Well,
        _ => State::Bad,
    }
}

fn stamp(at: i64) -> String {
    Wall::from_unix_seconds(at).to_seconds_stamp()
}

/// In the unit that has it in the fewest figures.
fn length(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::record::cut;
    use crate::journal::{BootId, Moment, Sequence};
    use crate::time::Up;
    use serde_json::{Value, json};

    const START_S: i64 = 1_767_225_600;

    fn records(all: Vec<(Option<i64>, Happened)>) -> Vec<Record> {
        let moment = |wall: Option<i64>| wall.map(|seconds| Wall::from_unix_seconds(START_S + seconds));
        let numbered = all.into_iter().zip(1..);
        let record = |((at, what), number)| Record {
            sequence: Sequence(number),
            at: Moment { boot: BootId(1), up: Up::BOOT, wall: moment(at) },
            what,
        };
        numbered.map(record).collect()
    }

    fn changed(condition: &str, from: Status, to: Status) -> Happened {
        Happened::ConditionChanged { condition: cut(condition), from, to, reason: cut("") }
    }

    fn drawn(all: Vec<(Option<i64>, Happened)>, now: Option<i64>) -> String {
        let now = now.map(|seconds| Wall::from_unix_seconds(START_S + seconds));
        super::super::colour::without(&Timeline::of_records(records(all).iter(), now).to_text(false))
    }

    fn day_of_trouble() -> Vec<(Option<i64>, Happened)> {
        vec![
            (None, Happened::ProcessStarted),
            (Some(0), Happened::BoardRebooted { old: BootId(7), reason: cut("") }),
            (Some(3_600), Happened::OutageBegan { cause: cut("timeout") }),
            (Some(7_200), changed("Undervoltage", Status::False, Status::True)),
            (Some(10_800), changed("Undervoltage", Status::True, Status::Unknown)),
            (Some(14_400), changed("Undervoltage", Status::Unknown, Status::False)),
            (Some(18_000), Happened::OutageEnded { cause: cut("timeout"), changes: 3, dropped: 0 }),
            (Some(18_000), changed("Ready", Status::True, Status::False)),
        ]
    }

    #[test]
    fn a_day_is_drawn_with_what_it_was_before_and_what_it_still_is() {
        let expected = "\
2026-01-01T00:00:00Z to 2026-01-01T06:00:00Z, 6 min a column; 1 at a time that nobody knows
reboot        ^.........................................................     1 x
outage        .........########################################.........     4 h
Undervoltage  ...................##########??????????...................  60 min
Ready         ................................................##########  60 min
# so   ? nobody knows   ^ once
";
        assert_eq!(drawn(day_of_trouble(), Some(21_600)), expected);
    }

    #[test]
    fn nothing_one_moment_and_a_clock_that_went_back_are_drawn_as_well() {
        assert_eq!(drawn(vec![], Some(5)), "nothing to draw\n");
        assert_eq!(
            drawn(vec![(None, Happened::ProcessStarted)], None),
            "nothing to draw; 1 at a time that nobody knows\n"
        );
        let once = drawn(vec![(Some(0), Happened::ProcessStarted)], None);
        assert!(once.lines().nth(1).is_some_and(|row| row.starts_with("start  ^") && row.ends_with("1 x")), "{once}");
        let back = vec![
            (Some(100), Happened::OutageBegan { cause: cut("") }),
            (Some(40), Happened::OutageEnded { cause: cut(""), changes: 0, dropped: 0 }),
        ];
        assert!(drawn(back, Some(200)).lines().all(|row| row.chars().count() <= WIDTH));
    }

    #[test]
    fn the_picture_has_each_span_with_its_times_and_no_markup_of_others() {
        let mut all = day_of_trouble();
        all.push((Some(20_000), changed("<script>", Status::False, Status::True)));
        let svg = Timeline::of_records(records(all).iter(), None).to_svg();
        assert!(svg.contains("<title>2026-01-01T01:00:00Z to 2026-01-01T05:00:00Z, 4 h</title>"), "{svg}");
        assert!(svg.contains("&lt;script&gt;") && !svg.contains("<script>"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    fn event(reason: &str, message: &str, first: &str, last: &str) -> Value {
        json!({"involvedObject": {"kind": "Node", "name": "edge-1"}, "reason": reason, "message": message,
            "firstTimestamp": first, "lastTimestamp": last})
    }

    #[test]
    fn events_of_a_node_draw_what_they_tell_and_those_of_others_nothing() {
        let pod = json!({"involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Rebooted",
            "firstTimestamp": "2020-01-01T00:00:00Z"});
        let back = "Node edge-1 reached the API server again after 2 h: timeout; 0 changes of conditions meanwhile";
        let (noon, one, two) = ("2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z", "2026-01-01T14:00:00Z");
        let items = json!([
            pod,
            event("UplinkRestored", back, two, two),
            event("NodeNotReady", "", one, one),
            event("NodeHasSufficientPID", "", noon, noon),
            event("NodeHasDiskPressure", "", noon, noon),
            event("NodeHasNoDiskPressure", "", two, two),
            event("Starting", "", "2026-01-01T10:00:00Z", "2026-01-01T13:00:00Z"),
            event("Scheduled", "", noon, "no time"),
        ]);
        let text = json!({"kind": "List", "items": items}).to_string();
        let timeline = Timeline::of_events(&text, Some(Wall::from_unix_seconds(START_S + 16 * 3600))).unwrap();
        let text = super::super::colour::without(&timeline.to_text(true));
        let expected = "\
2026-01-01T10:00:00Z to 2026-01-01T16:00:00Z, 6 min a column
start         ▲····························▲····························     2 x
PIDPressure   ░░░░░░░░░░░░░░░░░░░░······································     0 s
DiskPressure  ···················████████████████████···················     2 h
Ready         ·····························██████████···················  60 min
outage        ···················████████████████████···················     2 h
█ so   ░ nobody knows   ▲ once
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_no_list_of_one_nodes_events_is_said_with_the_command_that_makes_one() {
        let of = |text: &str| Timeline::of_events(text, None).unwrap_err().to_string();
        assert!(of("<html>").starts_with("it is not JSON: ") && of("<html>").contains("kubectl get events"));
        assert!(of("{}").starts_with("it is no list of events"));
        let other = json!({"involvedObject": {"kind": "Node", "name": "edge-2"}});
        let two = json!({"items": [event("Starting", "", "", ""), other]}).to_string();
        assert!(of(&two).starts_with("it has events of the Nodes edge-1, edge-2; one at a time"));
    }
}
