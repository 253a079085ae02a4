//! Turns what the agent that runs says of itself into one screen: how the board fares, since when, and why.

use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;

use super::args::Sources;
use super::colour::{BOLD, GREEN, RED, RESET, YELLOW, without};
use super::error::CliError;
use super::{ask, load};
use crate::config::plain_text::line;
use crate::io::clock;
use crate::io::control::Order;
use crate::time::{InWords, Wall};

/// What it said: the objects of agent/overview.rs and io/run/overview.rs.
pub struct Status {
    said: Value,
    now: Option<Wall>,
}

/// Asks the agent that runs.
pub fn status(sources: &Sources) -> Result<Status, CliError> {
    let directory = load::settings(sources)?.settings.state_directory;
    let besides = "; nodepulse journal shows what waits to be told, nodepulse identity its certificate";
    let told = ask::ask(
        ask::agent(&directory, besides)?,
        &Order::Status,
        "the agent does not say: is it of the same version?",
    )?;
    Ok(Status::of(serde_json::from_slice(told.as_bytes()).unwrap_or_default()))
}

/// Between two screens of `--watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(2);

#[allow(clippy::disallowed_methods, reason = "a command that shows something again has no loop to stop")]
pub fn pause() {
    std::thread::sleep(WATCH_PERIOD);
}

impl Status {
    /// For programs.
    pub fn to_json(&self) -> Value {
        self.said.clone()
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = self.headline();
        let mut say = |what: &str, value: String| {
            let _ = writeln!(text, "  {what:<12} {}", line(&value));
        };
        if let Some(lease) = self.object("/lease") {
            say("renewal", renewal(lease));
        }
        if let Some(next) = self.object("/next") {
            let after = text_of(next, "/after").map(|after| format!(", after: {after}")).unwrap_or_default();
            let what = text_of(next, "/what").unwrap_or_default();
            say("next", format!("in {}: {what}{after}", span(next, "/in")));
        }
        let conditions = self.said.pointer("/conditions").and_then(Value::as_array).filter(|all| !all.is_empty());
        match conditions {
            None => say("conditions", "none that should not be".to_owned()),
            Some(all) => all.iter().for_each(|condition| say("condition", self.condition(condition))),
        }
        for [name, all, usable] in self.resources() {
            let usable = if usable == all { String::new() } else { format!(", of which {usable} can be used") };
            say("resource", format!("{name}: {all}{usable}"));
        }
        say("clock", self.clock());
        if let Some(certificate) = self.object("/certificate") {
            let renewed = text_of(certificate, "/renewed")
                .map_or("never renewed: rotateCertificates is false".to_owned(), |due| {
                    format!("renewed from {due} on")
                });
            say("certificate", format!("ends {}, {renewed}", text_of(certificate, "/ends").unwrap_or_default()));
        }
        say("journal", self.journal());
        if let Some(refused) = text_of(&self.said, "/refused") {
            say("settings", refused.to_owned());
        }
        let version = text_of(&self.said, "/version").unwrap_or_default();
        say("version", format!("{version}, running for {}", span(&self.said, "/runs")));
        text
    }

    /// What it said is `said`; null where no agent says anything.
    pub fn of(said: Value) -> Status {
        Status { said, now: clock::now().wall }
    }

    /// The extended resources of its Node: name, how many there are, and how many of them can be used.
    pub fn resources(&self) -> impl Iterator<Item = [&str; 3]> {
        let all = self.said.pointer("/resources").and_then(Value::as_array).into_iter().flatten();
        all.map(|one| ["/name", "/capacity", "/allocatable"].map(|key| text_of(one, key).unwrap_or_default()))
    }

    /// How it fares, in a line without colours.
    pub fn summary(&self) -> String {
        without(&self.headline()).trim_end().replace("\n  offline     ", ",")
    }

    /// With which machine word no server was found, while none is.
    pub fn outage_word(&self) -> Option<&str> {
        text_of(&self.said, "/offline/word")
    }

    /// All that is not as it should be: a condition, the word of an outage or the state, and what is said of it.
    pub fn wrong(&self) -> Vec<(String, String)> {
        let topic = match text_of(&self.said, "/state") {
            None | Some("ready") => None,
            Some("not-ready") => Some("Ready"),
            state => self.outage_word().or(state),
        };
        let mut all: Vec<_> = topic.map(|topic| (topic.to_owned(), self.summary())).into_iter().collect();
        for condition in self.said.pointer("/conditions").and_then(Value::as_array).into_iter().flatten() {
            all.push((text_of(condition, "/type").unwrap_or_default().to_owned(), self.condition(condition)));
        }
        all
    }

    /// How it fares.
    fn headline(&self) -> String {
        let name = line(text_of(&self.said, "/node").unwrap_or_default());
        let since = text_of(&self.said, "/ready/since").map(|stamp| self.since(stamp)).unwrap_or_default();
        match text_of(&self.said, "/state") {
            Some("ready") => format!("{BOLD}{GREEN}Node {name} is Ready{RESET}{since}\n"),
            Some("not-ready") => {
                let message = line(text_of(&self.said, "/ready/message").unwrap_or_default());
                format!("{BOLD}{RED}Node {name} is not Ready{RESET}{since}: {message}\n")
            }
            Some(state) => {
                let colour = if state == "offline" { RED } else { YELLOW };
                let told = line(text_of(&self.said, "/line").unwrap_or_default());
                format!("{BOLD}{colour}{told}{RESET}{}\n", self.given_up())
            }
            None => format!("{YELLOW}the agent says nothing of itself{RESET}\n"),
        }
    }

    /// Where no server is found: for how long, and what the cluster makes of that.
    fn given_up(&self) -> String {
        let Some(offline) = self.object("/offline") else { return String::new() };
        let [lost, grace] =
            ["/for", "/grace"].map(|key| offline.pointer(key).and_then(Value::as_u64).unwrap_or_default());
        // The cluster counts from the last renewal that it has.
        let silent = self.said.pointer("/lease/renewedAgo").and_then(Value::as_u64).unwrap_or(lost);
        let judged = if silent > grace { "has made its Ready Unknown by now" } else { "still waits for its renewals" };
        let lost = InWords(Duration::from_secs(lost));
        format!("\n  {:<12} for {lost}; with a grace of {grace} s the cluster {judged}", "offline")
    }

    /// ` since 2026-11-20T08:14:03Z (3 days)`
    fn since(&self, stamp: &str) -> String {
        let span = self.now.zip(Wall::parse_stamp(stamp)).map(|(now, then)| format!(" ({})", InWords(now.since(then))));
        format!(" since {}{}", line(stamp), span.unwrap_or_default())
    }

    fn condition(&self, condition: &Value) -> String {
        let [kind, status, message] =
            ["/type", "/status", "/message"].map(|key| text_of(condition, key).unwrap_or_default());
        let since = text_of(condition, "/since").map(|stamp| self.since(stamp)).unwrap_or_default();
        let is_told = condition.pointer("/told").and_then(Value::as_bool).unwrap_or_default();
        let untold = if is_told { "" } else { " (the server does not have that yet)" };
        format!("{kind} {status}{since}: {message}{untold}")
    }

    fn clock(&self) -> String {
        match self.said.pointer("/clock/ahead").and_then(Value::as_i64) {
            None => "not compared with a server's yet".to_owned(),
            Some(-1..=1) => "as the server's".to_owned(),
            Some(ahead) => {
                let word = if ahead > 0 { "ahead of" } else { "behind" };
                format!("{} s {word} the server's", ahead.unsigned_abs())
            }
        }
    }

    fn journal(&self) -> String {
        let since = text_of(&self.said, "/journal/since").map(|stamp| self.since(stamp)).unwrap_or_default();
        match self.said.pointer("/journal/records").and_then(Value::as_u64) {
            None | Some(0) => "nothing waits: the server knows everything".to_owned(),
            Some(1) => format!("one record waits to be told{since}"),
            Some(records) => format!("{records} records wait to be told{since}"),
        }
    }

    fn object(&self, key: &str) -> Option<&Value> {
        self.said.pointer(key).filter(|value| value.is_object())
    }
}

fn renewal(lease: &Value) -> String {
    let sent = lease.pointer("/sentAgo").filter(|sent| sent.is_u64());
    let sent = sent.map(|_| format!(", one more sent {} ago", span(lease, "/sentAgo"))).unwrap_or_default();
    format!("acknowledged {} ago{sent}; every {}", span(lease, "/renewedAgo"), span(lease, "/period"))
}

fn text_of<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.pointer(key).and_then(Value::as_str)
}

/// Of so many seconds.
fn span(value: &Value, key: &str) -> String {
    let seconds = value.pointer(key).and_then(Value::as_u64).unwrap_or_default();
    if seconds == 0 { "0 s".to_owned() } else { InWords(Duration::from_secs(seconds)).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(said: Value) -> String {
        without(&Status { said, now: Wall::parse_stamp("2026-11-23T12:00:00Z") }.to_text())
    }

    fn well() -> Value {
        json!({
            "node": "edge-7", "state": "ready", "line": "Node edge-7: Lease renewed every 10 s",
            "ready": {"status": "True", "since": "2026-11-20T08:14:03Z", "message": "kubelet is posting ready status"},
            "lease": {"renewedAgo": 14, "sentAgo": 4, "period": 10},
            "offline": null, "conditions": [],
            "certificate": {"ends": "2027-11-01T00:00:00Z", "renewed": "2027-08-01T00:00:00Z"},
            "clock": {"ahead": 0}, "journal": {"records": 0, "since": null}, "watched": false,
            "next": {"in": 6, "what": "Lease renewal", "after": null}, "runs": 270_000, "refused": null, "version": "0.1.0",
        })
    }

    #[test]
    fn a_board_that_fares_well_is_told_on_one_screen() {
        let expected = "\
Node edge-7 is Ready since 2026-11-20T08:14:03Z (3 days)
  renewal      acknowledged 14 s ago, one more sent 4 s ago; every 10 s
  next         in 6 s: Lease renewal
  conditions   none that should not be
  clock        as the server's
  certificate  ends 2027-11-01T00:00:00Z, renewed from 2027-08-01T00:00:00Z on
  journal      nothing waits: the server knows everything
  version      0.1.0, running for 3 days
";
        assert_eq!(text(well()), expected);
    }

    #[test]
    fn an_outage_says_what_the_cluster_makes_of_it_what_waits_and_why_it_is_tried_again() {
        let mut said = well();
        for (key, value) in [
            ("state", json!("offline")),
            ("line", json!("offline: cannot connect to 192.0.2.7:6443: refused")),
            ("offline", json!({"for": 45, "grace": 50})),
            ("lease", json!({"renewedAgo": 65, "sentAgo": 4, "period": 10})),
            ("journal", json!({"records": 3, "since": "2026-11-23T11:48:00Z"})),
            ("clock", json!({"ahead": -340})),
            ("next", json!({"in": 0, "what": "Lease renewal", "after": "cannot connect to 192.0.2.7:6443: refused"})),
            (
                "resources",
                json!([{"name": "example.com/relay", "capacity": "4", "allocatable": "4"},
                       {"name": "example.com/usb", "capacity": "3", "allocatable": "2"}]),
            ),
            ("refused", json!("settings of SIGHUP are not in use: podless: 7 is no boolean")),
            (
                "conditions",
                json!([{"type": "MemoryPressure", "status": "True", "since": "2026-11-23T11:59:00Z", "told": false,
                        "message": "kubelet has insufficient memory available"}]),
            ),
        ] {
            said[key] = value;
        }
        let text = text(said);
        for line in [
            "offline: cannot connect to 192.0.2.7:6443: refused\n",
            "  offline      for 45 s; with a grace of 50 s the cluster has made its Ready Unknown by now\n",
            "  next         in 0 s: Lease renewal, after: cannot connect to 192.0.2.7:6443: refused\n",
            "  condition    MemoryPressure True since 2026-11-23T11:59:00Z (60 s): kubelet has insufficient memory available \
             (the server does not have that yet)\n",
            "  resource     example.com/relay: 4\n",
            "  resource     example.com/usb: 3, of which 2 can be used\n",
            "  clock        340 s behind the server's\n",
            "  journal      3 records wait to be told since 2026-11-23T11:48:00Z (12 min)\n",
            "  settings     settings of SIGHUP are not in use: podless: 7 is no boolean\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_left_out_and_nothing_that_a_terminal_would_obey_comes_through() {
        let said = json!({"node": "n\u{1b}[31m", "state": "joining", "line": "Node n is joining: \u{1b}[2Jasking"});
        let shown = Status { said, now: None }.to_text();
        assert!(shown.contains("is joining: ") && !shown.contains("\u{1b}[2J"), "{shown:?}");
        assert!(!shown.contains("certificate") && !shown.contains("renewal"), "{shown}");
        assert!(text(Value::Null).starts_with("the agent says nothing of itself\n"));
    }
}
