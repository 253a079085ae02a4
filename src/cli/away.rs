//! Turns the announcement of an absence into what the agent that runs made of it, or into what stands in its way.

use serde_json::{Value, json};

use super::args::Sources;
use super::commands::exit;
use super::error::CliError;
use super::{ask, load};
use crate::config::absence::{Until, check_reason};
use crate::io::control::Order;

/// What came of it.
pub struct Announced {
    /// `None`: the board is back.
    until: Option<String>,
    /// The server has it; otherwise it is kept until it can be told.
    is_told: bool,
    /// There was something to end.
    was_away: bool,
}

/// The board is away until then, and why.
pub fn away(until: Option<&str>, reason: Option<String>, sources: &Sources) -> Result<Announced, CliError> {
    let wrong = |option, text: &str, why| CliError::new(exit::USAGE, format!("{option} {text:?} {why}"));
    let (until, reason) = (until.unwrap_or_default(), reason.unwrap_or_default());
    let until = Until::parse(until).map_err(|why| wrong("--until", until, why))?;
    check_reason(&reason).map_err(|why| wrong("--reason", &reason, why))?;
    announce(&Order::Away { until, reason }, sources)
}

/// The board is back before its time.
pub fn back(sources: &Sources) -> Result<Announced, CliError> {
    announce(&Order::Back, sources)
}

fn announce(order: &Order, sources: &Sources) -> Result<Announced, CliError> {
    let directory = load::settings(sources)?.settings.state_directory;
    let silence = "the agent says nothing: nodepulse journal shows what it has kept";
    let done = ask::ask(ask::agent(&directory, "")?, order, silence)?;
    let (word, until) = done.split_once(' ').unwrap_or((&done, ""));
    let until = Some(until.to_owned()).filter(|until| !until.is_empty());
    Ok(Announced { until, is_told: word == "told", was_away: word != "none" })
}

impl Announced {
    /// For people.
    pub fn to_text(&self) -> String {
        let told = if self.is_told { "the server has it" } else { "kept, and told as soon as a server can be reached" };
        match &self.until {
            Some(until) => format!("away until {until}: {told}\n"),
            None if self.was_away => format!("back: {told}\n"),
            None => "no absence was announced\n".to_owned(),
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({ "awayUntil": self.until, "wasAway": self.was_away, "told": self.is_told })
    }
}
