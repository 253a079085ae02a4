//! Holds `docs/settings.md` and the manual page against the tables of commands, options and settings.

use super::hold;
use super::tree::page;
use nodepulse::cli::commands::{COMMANDS, OPTIONS, exit};
use nodepulse::config::settings::{DefinedBy, SETTINGS, Setting};
use nodepulse::node::rules::own;

const TABLE: &str = "docs/settings.md";
const MANUAL: &str = "targets/nodepulse.8";
const ALERTS: &str = "targets/kubernetes/alerts.yaml";

/// Rows of the page's table of settings that are missing or name no setting.
fn table(text: &str, settings: &[Setting]) -> Vec<String> {
    let rows: Vec<String> = settings.iter().map(row).collect();
    let known = |line: &&str| rows.iter().any(|row| row == line);
    let made_up = text.lines().filter(|line| line.starts_with("| `") && !known(line));
    let missing = rows.iter().filter(|row| !text.lines().any(|line| line == **row));
    let missing = missing.map(|row| format!("{TABLE} lacks the row {row}"));
    missing.chain(made_up.map(|row| format!("{TABLE}: of no setting is the row {row}"))).collect()
}

fn row(setting: &Setting) -> String {
    let mark = if setting.defined_by == DefinedBy::Ours { " *" } else { "" };
    let default = if setting.default.is_empty() { String::new() } else { format!("`{}`", setting.default) };
    let (name, flag) = (setting.name, setting.dashed_flag());
    format!("| `{name}`{mark} | `{flag}` | {default} | {} |", setting.meaning)
}

/// Entries that the manual page lacks, and entries that it makes up.
fn manual(text: &str, settings: &[Setting]) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    entries.extend(COMMANDS.iter().map(|row| entry(row.usage, row.meaning)));
    entries.extend(OPTIONS.iter().map(|row| entry(row.usage, row.meaning)));
    entries.extend(exit::ALL.map(|(code, meaning)| entry(&code.to_string(), meaning)));
    for setting in settings {
        let mark = if setting.defined_by == DefinedBy::Ours { " *" } else { "" };
        let default =
            if setting.default.is_empty() { String::new() } else { format!(" Default: {}.", setting.default) };
        let tag = format!("{}  (key {}){mark}", setting.usage(), setting.name);
        entries.push(entry(&tag, &format!("{}.{default}", setting.meaning)));
    }
    let flags = text.lines().filter(|line| line.starts_with(".B \\-") && line.contains("(key ")).count();
    let too_many = (flags > settings.len()).then(|| format!("{MANUAL} has {flags} settings, not {}", settings.len()));
    let missing = entries.iter().filter(|entry| !text.contains(*entry));
    missing.map(|entry| format!("{MANUAL} lacks\n{entry}")).chain(too_many).collect()
}

fn entry(tag: &str, text: &str) -> String {
    format!(".TP\n.B {}\n{}\n", roff(tag), roff(text))
}

/// Text that roff prints as it stands: dashes that can be copied, no requests, no escapes.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq").replace('`', "\\(ga");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

/// Conditions that somebody who reads the alert rules would miss.
fn unalerted<'a>(rules: &str, conditions: impl Iterator<Item = &'a str>) -> Vec<String> {
    // In an expression, or in the list of those that have no alert.
    let names = |line: &str, kind: &str| {
        let mut words = line.split(|letter: char| !letter.is_ascii_alphanumeric());
        (line.contains("expr:") || line.contains("condition=") || line.starts_with("#   "))
            && words.any(|word| word == kind)
    };
    let missing = conditions.filter(|kind| !rules.lines().any(|line| names(line, kind)));
    missing.map(|kind| format!("{ALERTS}: no alert of {kind}, and no reason why")).collect()
}

#[test]
fn each_condition_has_an_alert_or_a_reason_why_it_has_none() {
    let rules = page(ALERTS).unwrap_or_default();
    hold(unalerted(&rules, own()));
    assert_eq!(unalerted(&rules, ["WaterInTheCabinet"].into_iter()).len(), 1);
}

#[test]
fn the_table_has_the_row_of_every_setting_and_no_other() {
    hold(table(&page(TABLE).unwrap_or_default(), SETTINGS));
}

#[test]
fn the_manual_explains_every_command_option_setting_and_exit_code() {
    let text = page(MANUAL).unwrap_or_default();
    hold(manual(&text, SETTINGS));
    let version = roff(env!("CARGO_PKG_VERSION"));
    assert!(
        text.starts_with(&format!(".TH NODEPULSE 8 \"\" \"nodepulse {version}\"")),
        "its first line names {version}"
    );
}

#[test]
fn a_setting_left_out_or_made_up_is_caught() {
    let (one, rest) = SETTINGS.split_first().unwrap();
    let of = |row: &str| format!("# Settings\n\n| Name | x |\n|---|---|\n{row}\n");
    let of_one = std::slice::from_ref(one);
    assert_eq!(table(&of(&row(one)), of_one), [""; 0]);
    assert_eq!(table(&of("| `podlike` | y |"), of_one).len(), 2);
    let text = page(MANUAL).unwrap_or_default();
    assert_eq!(manual(&text.replace("\\-\\-node\\-ip", "\\-\\-node\\-ib"), SETTINGS).len(), 1);
    assert_eq!(manual(&text, rest).len(), 1);
}
