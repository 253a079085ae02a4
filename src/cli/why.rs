//! Turns a condition, a machine word of the log, or nothing in particular into the chain of evidence: what the agent says of it, what
//! was read where, by what it is judged, and what to do.

mod remedies;

use std::fmt::Write;

use serde_json::{Value, json};

use super::args::Sources;
use super::commands::exit;
use super::error::CliError;
use super::load;
use super::status::{self, Status};
use crate::config::plain_text::line;
use crate::probe::{self, Root};
use remedies::{REMEDIES, Remedy, remedy};

/// What a person may ask for besides a condition and a word of the log.
const NOT_READY: &str = "NotReady";
const OFFLINE: &str = "offline";

/// What was asked for, each with its evidence.
pub struct Why {
    answers: Vec<Answer>,
    /// Where nothing was asked for in particular.
    is_of_all: bool,
}

struct Answer {
    topic: String,
    /// What the agent says of it.
    said: String,
    /// What the board shows now: lines of `probe`.
    values: Vec<String>,
    remedy: Option<&'static Remedy>,
}

/// `topic`: a condition, `NotReady`, `offline` or a machine word of the log; empty: all that is not as it should be.
pub fn why(topic: &str, sources: &Sources) -> Result<Why, CliError> {
    let (page, said) = match status::status(sources) {
        Ok(status) => (status, None),
        Err(error) => (Status::of(Value::Null), Some(error)),
    };
    let settings = load::settings(sources)?.settings;
    let (facts, _) = load::facts("/", &settings)?;
    let answers = answers(topic, &page, said.as_ref(), &probe::report::to_text(&facts, Some(&Root::new("/"))))?;
    Ok(Why { answers, is_of_all: topic.is_empty() })
}

/// `silence`: why the agent says nothing. `board`: the page of `probe`.
fn answers(topic: &str, page: &Status, silence: Option<&CliError>, board: &str) -> Result<Vec<Answer>, CliError> {
    let all = page.wrong();
    let topics = match (topic, silence) {
        ("", Some(error)) => return Err(error.clone()),
        ("", None) => all.iter().map(|(topic, _)| topic.as_str()).collect(),
        (NOT_READY, _) => vec!["Ready"],
        (OFFLINE, _) => vec![page.outage_word().unwrap_or(OFFLINE)],
        (topic, _) => vec![topic],
    };
    let answer = |topic: &str| {
        let remedy = remedy(topic);
        let name = remedy.map_or(topic, |remedy| remedy.topic);
        let found = all.iter().find(|(wrong, _)| wrong == name).map(|(_, said)| said.clone());
        let said = match (found, silence, remedy) {
            (Some(found), ..) => found,
            (None, _, None) if topic != OFFLINE => return Err(unknown(topic)),
            (None, Some(error), _) => error.sentences.join("; "),
            (None, None, Some(remedy)) if remedy.is_of_board() => {
                "the agent says that it is as it should be".to_owned()
            }
            (None, None, _) => page.summary(),
        };
        let names = remedy.map(|remedy| remedy.values).unwrap_or_default();
        let is_of =
            |line: &str, name: &str| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with(' '));
        let is_shown = |line: &&str| names.iter().any(|name| is_of(line, name));
        let values = board.lines().filter(is_shown).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        Ok(Answer { topic: name.to_owned(), said, values: values.collect(), remedy })
    };
    topics.into_iter().map(answer).collect()
}

fn unknown(topic: &str) -> CliError {
    let known: Vec<&str> = REMEDIES.iter().map(|remedy| remedy.topic).collect();
    CliError::new(exit::USAGE, format!("nothing is known of {topic:?}: {NOT_READY}, {OFFLINE}, {}", known.join(", ")))
}

impl Why {
    /// For people.
    pub fn to_text(&self) -> String {
        if self.is_of_all && self.answers.is_empty() {
            return "all is as it should be\n".to_owned();
        }
        let mut text = String::new();
        for answer in &self.answers {
            // What is said of a condition begins with its name.
            let topic = if answer.said.starts_with(&answer.topic) { "" } else { &format!("{}: ", line(&answer.topic)) };
            let _ = writeln!(text, "{topic}{}", line(&answer.said));
            for (what, value) in answer.lines() {
                let _ = writeln!(text, "  {what:<10} {}", line(&value));
            }
        }
        text
    }

    /// For programs: a list of objects, of which each text may be missing.
    pub fn to_json(&self) -> Value {
        let object = |answer: &Answer| {
            let remedy = answer.remedy.map(|remedy| [remedy.read_from, remedy.judged_by, remedy.to_do]);
            let [read_from, judged_by, to_do] = remedy.unwrap_or_default();
            json!({
                "topic": answer.topic, "said": answer.said, "now": answer.values,
                "readFrom": read_from, "judgedBy": judged_by, "toDo": to_do,
            })
        };
        self.answers.iter().map(object).collect()
    }
}

impl Answer {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines: Vec<_> = self.values.iter().map(|value| ("now", value.clone())).collect();
        if let Some(remedy) = self.remedy {
            let texts = [("read from", remedy.read_from), ("judged by", remedy.judged_by), ("to do", remedy.to_do)];
            lines.extend(
                texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(what, text)| (what, text.to_owned())),
            );
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::rules;

    #[test]
    fn every_condition_has_its_evidence_and_a_remedy() {
        for kind in rules::own() {
            let remedy = remedy(kind).unwrap_or_else(|| panic!("nothing to do about {kind}"));
            for text in [remedy.read_from, remedy.judged_by, remedy.to_do] {
                assert!(!text.is_empty() && !text.ends_with('.'), "{kind}: {text:?}");
            }
        }
    }

    #[test]
    fn every_exit_code_and_every_word_with_which_a_request_fails_has_a_remedy() {
        let mut words: Vec<String> = exit::ALL[1..].iter().map(|(code, _)| code.to_string()).collect();
        let sources: Vec<String> = sources("src/api").into_iter().chain(sources("src/io")).collect();
        for made in sources.iter().flat_map(|source| source.split("Failure::new(").skip(1)) {
            let first = made.trim_start().split([',', ')']).next().unwrap();
            let name = first.rsplit("::").next().unwrap();
            let constant = || {
                let start = format!("const {name}: &str = ");
                let found = sources.iter().filter_map(|source| source.split_once(&start)).map(|(_, rest)| rest);
                // A word, not a sentence.
                found.into_iter().find(|rest| !rest.split('"').nth(1).unwrap_or_default().contains(' '))
            };
            let text = if first.starts_with('"') { Some(first) } else { constant() };
            // The one that makes all of them has an argument.
            words.extend(text.and_then(|text| text.split('"').nth(1)).map(str::to_owned));
        }
        assert!(words.len() > 25, "{words:?}");
        let lacking: Vec<_> =
            words.iter().filter(|word| remedy(word).is_none_or(|remedy| remedy.to_do.is_empty())).collect();
        assert_eq!(lacking, Vec::<&String>::new());
    }

    /// Without their tests.
    fn sources(folder: &str) -> Vec<String> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut all = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                all.extend(sources(path.to_str().unwrap()));
            } else if !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(path).unwrap();
                all.push(text.split("#[cfg(test)]").next().unwrap().to_owned());
            }
        }
        all
    }

    fn of(said: Value, topic: &str) -> Result<String, CliError> {
        let page = Status::of(said);
        let board = "memory       1.9 GiB\navailable    1.1 GiB (proc)\ndisk         3 GiB\nkernel       6.12\nhealth\n  kernel log   XfsShutdown 1 times\n";
        answers(topic, &page, None, board).map(|answers| Why { answers, is_of_all: topic.is_empty() }.to_text())
    }

    fn pressed() -> Value {
        json!({"node": "edge-7", "state": "ready", "conditions": [{"type": "MemoryPressure", "status": "True", "told": true,
               "message": "kubelet has insufficient memory available"}]})
    }

    #[test]
    fn a_condition_is_told_with_what_it_was_read_from_by_what_it_is_judged_and_what_to_do() {
        let expected = "\
MemoryPressure True: kubelet has insufficient memory available
  now        memory 1.9 GiB
  now        available 1.1 GiB (proc)
  read from  the memory controller of /sys/fs/cgroup, else /proc/meminfo
";
        for topic in ["", "memorypressure"] {
            let text = of(pressed(), topic).unwrap();
            assert!(text.starts_with(expected) && text.contains("\n  to do      end what takes"), "{text}");
        }
        let well = of(pressed(), "DiskPressure").unwrap();
        assert!(
            well.starts_with("DiskPressure: the agent says that it is as it should be\n  now        disk 3 GiB\n"),
            "{well}"
        );
    }

    #[test]
    fn what_the_board_shows_may_have_two_words_for_a_name_and_stand_below_a_heading() {
        let text = of(pressed(), "XfsShutdown").unwrap();
        let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("  now ")).collect();
        assert_eq!(shown, ["  now        kernel log XfsShutdown 1 times"]);
    }

    #[test]
    fn an_outage_is_told_by_the_word_of_its_first_failure() {
        let said = json!({"node": "n", "state": "offline", "line": "offline: refused",
                          "offline": {"for": 45, "grace": 50, "word": "connect-failed"}});
        for topic in ["", OFFLINE] {
            let text = of(said.clone(), topic).unwrap();
            assert!(text.starts_with("connect-failed: offline: refused, for 45 s; with a grace of 50 s"), "{text}");
            assert!(text.contains("\n  to do      is the server up"), "{text}");
        }
        assert_eq!(of(json!({"state": "ready"}), "").unwrap(), "all is as it should be\n");
        assert_eq!(of(json!({"state": "ready"}), "nonsense").unwrap_err().code, exit::USAGE);
    }
}
