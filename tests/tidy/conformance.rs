//! Turns `docs/conformance.md` into complaints: a behaviour without its row, a row without its test, a test that is not there.

use super::hold;
use super::source::Source;
use super::tree::{page, sources};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

const PAGE: &str = "docs/conformance.md";

/// Every behaviour of a kubelet's node side: the letters of its ID, and its numbers.
const BEHAVIOURS: &[(&str, RangeInclusive<u32>)] = &[
    ("TR", 1..=9),
    ("H2", 1..=7),
    ("ST", 1..=6),
    ("REG", 1..=11),
    ("INI", 1..=9),
    ("REC", 1..=6),
    ("SYN", 1..=9),
    ("UPD", 1..=4),
    ("CHG", 1..=4),
    ("PAT", 1..=7),
    ("FST", 1..=5),
    ("ADR", 1..=8),
    ("MI", 1..=10),
    ("VER", 1..=3),
    ("DEP", 1..=1),
    ("IMG", 1..=1),
    ("GOR", 1..=1),
    ("RTH", 1..=1),
    ("VLM", 1..=1),
    ("PRS", 0..=7),
    // Device plug-ins.
    ("DEV", 1..=6),
    // A condition of another agent of a node.
    ("NPD", 1..=2),
    // What no kubelet looks at: the board itself.
    ("BRD", 1..=10),
    ("RDY", 1..=8),
    ("VOL", 1..=1),
    ("SCH", 1..=1),
    ("SRC", 1..=10),
    ("ALC", 1..=6),
    ("EVI", 1..=12),
    ("LSE", 1..=16),
    ("EVT", 1..=9),
    ("SHD", 1..=3),
    // What people announce beforehand.
    ("ABS", 1..=1),
    ("TLS", 1..=19),
    // Of an identity from a token to its end, without a clock, of a fleet, and of the cluster's CA.
    ("JOIN", 1..=9),
    ("CSR", 1..=11),
    ("ROT", 1..=7),
    ("EXP", 1..=5),
    ("CLK", 1..=4),
    ("FLEET", 1..=3),
    ("CA", 1..=4),
    ("REV", 1..=3),
    // Of a join: what each case must end in.
    ("CASE", 1..=14),
    // Of the agents of k3s and rke2.
    ("K3S", 1..=6),
    ("CRT", 1..=1),
    ("NLC", 1..=6),
    ("AUT", 1..=14),
    // Where this program differs from a kubelet on purpose.
    ("D", 1..=14),
    // 15 is a shutdown.
    ("D", 16..=16),
];

/// Behaviours of what this program does not have yet, or never will: runtime, images, volumes, plug-ins, serving.
const OUT_OF_SCOPE: &[&str] = &["TR-8", "ST-1", "TLS-18", "K3S-4"];
const OUT_OF_SCOPE_LETTERS: &[&str] = &["IMG", "RTH", "VLM", "VOL", "SHD", "NLC"];

/// How a row's third column may begin. All but the first go on with a reason.
const VERDICTS: [&str; 4] = ["Same", "Different: ", "Not applicable: ", "Later: "];

/// `| ID | What happens | Here | Shown by |`
struct Row<'a> {
    id: &'a str,
    what: &'a str,
    here: &'a str,
    shown_by: &'a str,
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let cells = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        <[&str; 4]>::try_from(cells).ok()
    });
    let rows = cells.map(|[id, what, here, shown_by]| Row { id, what, here, shown_by });
    rows.filter(|row| row.id != "ID" && !row.id.starts_with('-')).collect()
}

fn all_ids() -> Vec<String> {
    let ids = |(letters, numbers): &(&str, RangeInclusive<u32>)| {
        let dash = if *letters == "D" { "" } else { "-" };
        numbers.clone().map(|number| format!("{letters}{dash}{number}")).collect::<Vec<_>>()
    };
    BEHAVIOURS.iter().flat_map(ids).collect()
}

fn is_in_scope(id: &str) -> bool {
    let letters = id.split('-').next().unwrap_or_default();
    !OUT_OF_SCOPE.contains(&id) && !OUT_OF_SCOPE_LETTERS.contains(&letters)
}

/// Every ID has exactly one row, and every row an ID.
fn every_id_once(page: &str) -> Vec<String> {
    let rows = rows(page);
    let ids = all_ids();
    let count = |id: &str| rows.iter().filter(|row| row.id == id).count();
    let wrong = ids.iter().filter(|id| count(id) != 1);
    let unknown = rows.iter().filter(|row| !ids.iter().any(|id| id == row.id));
    let wrong = wrong.map(|id| format!("{PAGE}: {id} has {} rows instead of one", count(id)));
    wrong.chain(unknown.map(|row| format!("{PAGE}: there is no behaviour {}", row.id))).collect()
}

/// Every row says what, whether, and why not.
fn every_row_is_complete(page: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for Row { id, what, here, shown_by } in rows(page) {
        let verdict = VERDICTS.iter().find(|verdict| here.starts_with(*verdict));
        let has_reason = verdict.is_some_and(|verdict| *verdict == "Same" || here.len() > verdict.len() + 3);
        if what.is_empty() || !has_reason {
            complaints.push(format!("{PAGE}: {id}: the third column is one of {VERDICTS:?}, then a reason"));
        }
        if is_in_scope(id) && here.starts_with("Later") {
            complaints.push(format!("{PAGE}: {id} is in scope: now, not later"));
        }
        if is_in_scope(id) && tests_named_in(shown_by).next().is_none() {
            complaints.push(format!("{PAGE}: {id} is in scope, and nothing shows it"));
        }
    }
    complaints
}

/// Every test that a row names is there.
fn every_test_exists(page: &str, sources: &[Source]) -> Vec<String> {
    let functions = sources.iter().flat_map(Source::functions).filter(|function| function.is_test);
    let known: BTreeSet<String> = functions.map(|function| function.path).collect();
    let named = rows(page).into_iter().flat_map(|row| tests_named_in(row.shown_by).map(move |test| (row.id, test)));
    let missing = named.filter(|(_, test)| !known.contains(*test));
    missing.map(|(id, test)| format!("{PAGE}: {id} names a test that is not there: {test}")).collect()
}

/// What stands in backticks: the paths of tests.
fn tests_named_in(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn the_page() -> String {
    page(PAGE).unwrap_or_else(|| panic!("{PAGE} is missing"))
}

#[test]
fn every_behaviour_of_a_kubelet_has_one_row() {
    hold(every_id_once(&the_page()));
}

#[test]
fn every_row_gives_a_reason_and_every_row_in_scope_a_test() {
    hold(every_row_is_complete(&the_page()));
}

#[test]
fn every_test_that_a_row_names_is_there() {
    hold(every_test_exists(&the_page(), sources()));
}

#[test]
fn a_row_that_is_missing_doubled_or_made_up_is_caught() {
    let whole: String = all_ids().iter().map(|id| format!("| {id} | x | Same | `t` |\n")).collect();
    assert_eq!(every_id_once(&whole), [""; 0]);
    let without = whole.replace("| LSE-5 |", "| LSE-50 |");
    assert_eq!(every_id_once(&without).len(), 2);
    assert_eq!(every_id_once(&format!("{whole}| D3 | x | Same | `t` |\n")).len(), 1);
}

#[test]
fn a_row_without_a_reason_or_a_test_is_caught() {
    let complaints = |row: &str| every_row_is_complete(row).len();
    assert_eq!(complaints("| REG-2 | x | Same | `t` |"), 0);
    assert_eq!(complaints("| REG-2 | x | Same |  |"), 1, "in scope, no test");
    assert_eq!(complaints("| IMG-1 | x | Later: with a container runtime |  |"), 0, "out of scope");
    assert_eq!(complaints("| REG-2 | x | Later: with certificate rotation | `t` |"), 1, "in scope");
    assert_eq!(complaints("| REG-2 | x | Different: | `t` |"), 1, "no reason");
    assert_eq!(complaints("| REG-2 | x | Perhaps | `t` |"), 1, "no verdict");
}

#[test]
fn a_test_that_is_not_there_is_caught() {
    let sources = [
        Source::new("src/node/patch.rs", "mod tests {\n#[test]\nfn one() {}\nfn no_test() {}\n}"),
        Source::new("tests/live/lease.rs", "fn all() { cases![&[], a_case] }\nfn a_case() {}\nfn no_case() {}"),
    ];
    let complaints = |shown_by: &str| every_test_exists(&format!("| D1 | x | Same | {shown_by} |"), &sources).len();
    assert_eq!(complaints("`node::patch::tests::one`, `live::lease::a_case`"), 0);
    assert_eq!(complaints("`node::patch::one`, `live::lease::no_case`"), 2);
    assert_eq!(complaints("`node::patch::tests::no_test`"), 1);
}
