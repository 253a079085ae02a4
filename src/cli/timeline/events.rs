//! Turns what `kubectl get events -o json` prints into what happened to one Node.

use std::fmt;

use serde_json::Value;

use super::{OUTAGE, REBOOT, START, State, Timeline, state_of};
use crate::node::rules;
use crate::time::Wall;

/// Why nothing can be drawn of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventsError {
    NotJson(String),
    /// There is no list of items in it.
    NoList,
    /// Those are of more than one Node.
    ManyNodes(Vec<String>),
}

impl fmt::Display for EventsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let like = "kubectl get events --field-selector involvedObject.kind=Node,involvedObject.name=NAME -o json";
        match self {
            EventsError::NotJson(why) => write!(f, "it is not JSON: {why}; it should be what this prints: {like}"),
            EventsError::NoList => write!(f, "it is no list of events; it should be what this prints: {like}"),
            EventsError::ManyNodes(names) => {
                write!(f, "it has events of the Nodes {}; one at a time: {like}", names.join(", "))
            }
        }
    }
}

impl Timeline {
    /// Of the Node whose events these are; what is no event of ours is left out.
    pub fn of_events(text: &str, now: Option<Wall>) -> Result<Timeline, EventsError> {
        // Of bytes, as everywhere: a second reader, of texts, is 5 KB of the program.
        let list: Value =
            serde_json::from_slice(text.as_bytes()).map_err(|error| EventsError::NotJson(error.to_string()))?;
        let items = list.get("items").and_then(Value::as_array).ok_or(EventsError::NoList)?;
        let mut names: Vec<&str> = items.iter().filter_map(node_of).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > 1 {
            return Err(EventsError::ManyNodes(names.into_iter().map(str::to_owned).collect()));
        }
        let mut timeline = Timeline::default();
        let ours = items.iter().filter(|event| node_of(event).is_some());
        let mut told: Vec<(i64, &Value)> = ours.flat_map(|event| times_of(event).map(move |at| (at, event))).collect();
        // That the server was reached again is the last of its second.
        told.sort_by_key(|(at, event)| (*at, event.get("reason").is_some_and(|reason| reason == "UplinkRestored")));
        for (at, event) in told {
            timeline.tell(at, event);
        }
        timeline.moments.extend(now.filter(|_| !timeline.moments.is_empty()).map(Wall::unix_seconds));
        Ok(timeline)
    }

    fn tell(&mut self, at: i64, event: &Value) {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("reason") {
            "Rebooted" => self.point(REBOOT, at),
            "Starting" => self.point(START, at),
            "UplinkRestored" => {
                let seconds = lasted(text("message")).unwrap_or(0);
                self.change(OUTAGE, State::Well, at - seconds, State::Bad);
                self.change(OUTAGE, State::Bad, at, State::Well);
                // The controller told that it was not; the report that ended that tells nothing, as the board has not seen it.
                if self.rows.iter().any(|row| row.name == "Ready") {
                    self.change("Ready", State::Bad, at, State::Well);
                }
            }
            reason => {
                if let Some((condition, status)) = rules::told_by(reason) {
                    let state = state_of(condition, status);
                    // What it was before the first that is told: well, or else nobody knows, as a process that begins tells as well
                    // what it found.
                    let before = if state == State::Well { State::Unknown } else { State::Well };
                    self.change(condition, before, at, state);
                }
            }
        }
    }
}

fn node_of(event: &Value) -> Option<&str> {
    let about = event.get("involvedObject").filter(|about| about.get("kind").is_some_and(|kind| kind == "Node"))?;
    about.get("name").and_then(Value::as_str)
}

/// Of an event that was told again, the first time and the last.
fn times_of(event: &Value) -> impl Iterator<Item = i64> {
    let stamp = |key: &str| event.get(key).and_then(Value::as_str).and_then(Wall::parse_stamp).map(Wall::unix_seconds);
    let (first, last) = (stamp("firstTimestamp"), stamp("lastTimestamp"));
    first.into_iter().chain(last.filter(|last| Some(*last) != first))
}

/// Seconds in `... again after 3 min: ...`.
fn lasted(message: &str) -> Option<i64> {
    let (_, rest) = message.split_once(" again after ")?;
    let mut words = rest.split([' ', ':']);
    let (number, unit) = (words.next()?.parse::<i64>().ok()?, words.next()?);
    let seconds = match unit {
        "ms" => return Some(number / 1000),
        "s" => 1,
        "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(seconds)
}
