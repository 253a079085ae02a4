//! Turns a board, and what the agent that runs on it tells of devices, into a page for people or JSON for programs.

use super::args::Sources;
use super::commands::Format;
use super::error::CliError;
use super::{document, load, status};
use crate::config::Settings;
use crate::probe::{Facts, Root, report};

/// What is printed, and what a person should know besides, one sentence each. `with_sources`: say where each line was read, too.
pub fn probe(
    sources: &Sources,
    root: &str,
    with_sources: bool,
    format: Format,
) -> Result<(String, Vec<String>), CliError> {
    let settings = load::settings(sources)?.settings;
    let (mut facts, mut remarks) = load::facts(root, &settings)?;
    if root == "/" {
        remarks.extend(add_plug_ins(&mut facts, &settings, sources));
    }
    let page = match format {
        Format::Text => report::to_text(&facts, with_sources.then(|| Root::new(root)).as_ref()),
        Format::Json => document(&report::to_json(&facts)),
    };
    Ok((page, remarks))
}

/// Device plug-ins register with the agent that runs, so what they tell is asked of it. Answers why that is not known.
fn add_plug_ins(facts: &mut Facts, settings: &Settings, sources: &Sources) -> Vec<String> {
    if !settings.device_plugins {
        return Vec::new();
    }
    let status = match status::status(sources) {
        Ok(status) => status,
        Err(error) => {
            let unknown = |why: String| format!("what device plug-ins tell is not known: {why}");
            return error.sentences.into_iter().map(unknown).collect();
        }
    };
    let readings = &mut facts.readings;
    for [name, all, usable] in status.resources() {
        let (Ok(all), Ok(usable)) = (all.parse::<u64>(), usable.parse()) else { continue };
        // What the settings name goes before, and was counted just now.
        if !readings.extended_resources.contains_key(name) {
            readings.extended_resources.insert(name.to_owned(), Ok(all));
            readings.unhealthy_devices.insert(name.to_owned(), all.saturating_sub(usable));
        }
    }
    Vec::new()
}
