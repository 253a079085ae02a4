//! Turns differences and the reasons for them into a verdict, and into a table for whoever reads the log.

use super::super::cluster::Result;
use super::differences::{Difference, Leaves, differences};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// A difference that is meant. Path and values may hold `*`; values may be alternatives with `|` between.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub at: &'static str,
    pub kubelet: &'static str,
    pub nodepulse: &'static str,
    /// D1 to D12 of the design, or what else makes us differ on purpose.
    pub why: &'static str,
    /// Not on every machine or in every run: it may go unused.
    pub sometimes: bool,
}

/// A difference that is always there: a row that nothing needs any more fails.
pub const fn row(at: &'static str, kubelet: &'static str, nodepulse: &'static str, why: &'static str) -> Row {
    Row { at, kubelet, nodepulse, why, sometimes: false }
}

/// A difference that depends on the machine or on who was faster.
pub const fn sometimes(at: &'static str, kubelet: &'static str, nodepulse: &'static str, why: &'static str) -> Row {
    Row { at, kubelet, nodepulse, why, sometimes: true }
}

impl Row {
    fn explains(&self, found: &Difference) -> bool {
        let any = |patterns: &str, text: &str| patterns.split('|').any(|pattern| matches(pattern, text));
        matches(self.at, &found.at) && any(self.kubelet, &found.kubelet) && any(self.nodepulse, &found.nodepulse)
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text
            .strip_prefix(start)
            .is_some_and(|text| (0..=text.len()).any(|n| text.get(n..).is_some_and(|tail| matches(rest, tail)))),
    }
}

/// So many things in which both agree are shown as well.
const SHOWN_WHOLE: usize = 40;

/// What the comparisons of this run have to say, in the order of their titles.
static REPORTS: Mutex<Vec<(&str, String, Result<()>)>> = Mutex::new(Vec::new());

/// The verdict, whose table is kept for `print_reports`.
pub fn judge(title: &'static str, kubelet: &Leaves, nodepulse: &Leaves, rows: &[Row]) -> Result<()> {
    let (text, verdict) = verdict(title, kubelet, nodepulse, rows);
    REPORTS.lock().unwrap_or_else(PoisonError::into_inner).push((title, text, verdict.clone()));
    verdict
}

/// The table; an error for a difference without a row, and for a row without a difference.
pub fn verdict(title: &str, kubelet: &Leaves, nodepulse: &Leaves, rows: &[Row]) -> (String, Result<()>) {
    let found = differences(kubelet, nodepulse);
    // The first row that fits is the one that counts.
    let reasons: Vec<Option<&Row>> = found.iter().map(|one| rows.iter().find(|row| row.explains(one))).collect();
    let same: Vec<_> = kubelet.iter().filter(|(at, value)| nodepulse.get(*at) == Some(value)).collect();
    let mut text = format!("{title}: {} the same, {} different\n", same.len(), found.len());
    if same.len() <= SHOWN_WHOLE {
        for (at, value) in same {
            let _ = writeln!(text, "  {at}: {}", cut(value, 90));
        }
    }
    text.push_str(&blocks(&found, &reasons));
    let unexplained = found.iter().zip(&reasons).filter(|(_, row)| row.is_none()).map(|(one, _)| {
        format!("no reason for {}: the kubelet has {}, nodepulse {}", one.at, one.kubelet, one.nodepulse)
    });
    let is_used = |row: &Row| reasons.iter().flatten().any(|used| std::ptr::eq(*used, row));
    let stale = rows.iter().filter(|row| !row.sometimes && !is_used(row));
    let stale = stale.map(|row| format!("stale: nothing differs as the row for {} says ({})", row.at, row.why));
    let wrong: Vec<String> = unexplained.chain(stale).collect();
    let verdict = if wrong.is_empty() { Ok(()) } else { Err(format!("{title}:\n{}", wrong.join("\n"))) };
    (text, verdict)
}

/// One block for each reason.
fn blocks(found: &[Difference], reasons: &[Option<&Row>]) -> String {
    let mut blocks: BTreeMap<&str, Vec<&Difference>> = BTreeMap::new();
    for (one, row) in found.iter().zip(reasons) {
        blocks.entry(row.map_or("NOBODY KNOWS WHY", |row| row.why)).or_default().push(one);
    }
    let mut text = String::new();
    for (why, block) in blocks {
        let _ = writeln!(text, "  because {why}");
        for Difference { at, kubelet, nodepulse } in block {
            let _ = writeln!(text, "    {at:<64} {:<30} {}", cut(kubelet, 50), cut(nodepulse, 50));
        }
    }
    text
}

fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Everything that was compared in this run; what is wrong comes last, where whoever sees only the end of a log finds it.
pub fn print_reports() {
    let mut reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    reports.sort();
    println!("What differs: where, what the kubelet has, what nodepulse has (- is nothing), below the reason\n");
    reports.iter().for_each(|(_, text, _)| println!("{text}"));
    reports.drain(..).filter_map(|(_, _, verdict)| verdict.err()).for_each(|wrong| println!("{wrong}"));
}
