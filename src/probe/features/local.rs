//! Turns the files that an owner puts into `features.d` into features, in the format of node-feature-discovery.
//!
//! ```text
//! # a comment
//! relays=4                               feature.node.kubernetes.io/relays=4
//! example.com/calibrated                 example.com/calibrated=true
//! # +expiry-time=2027-01-01T00:00:00Z    holds for the lines after it
//! # +no-label                            holds for the next line, which is none
//! ```

use super::super::attribute;
use super::super::facts::{Absent, Why};
use super::super::root::Root;
use super::{Feature, whole_key};
use crate::config::limits;
use crate::time::Wall;

const DIRECTORY: &str = "/etc/kubernetes/node-feature-discovery/features.d";
const DIRECTIVE: &str = "# +";

/// Of all files; what a later one says of the same name goes before. Hidden ones are left alone.
pub(super) fn features(root: &Root, wall: Option<Wall>, left_out: &mut Vec<Absent>) -> Vec<Feature> {
    let mut names = root.list(DIRECTORY).unwrap_or_default();
    names.retain(|name| !name.starts_with('.'));
    names.sort_unstable();
    let mut found = Vec::new();
    for path in names.iter().rev().map(|name| [DIRECTORY, "/", name].concat()).filter(|path| !root.is_directory(path)) {
        if found.len() > limits::FEATURE_LABELS {
            break;
        }
        match root.read_document(&path, limits::FEATURE_FILE_BYTES) {
            Ok(text) => found.append(&mut of_file(&path, &String::from_utf8_lossy(&text), wall, left_out)),
            Err(absent) => left_out.push(absent),
        }
    }
    found
}

/// The last line of a name goes before.
fn of_file(path: &str, text: &str, wall: Option<Wall>, left_out: &mut Vec<Absent>) -> Vec<Feature> {
    let mut found: Vec<Feature> = Vec::new();
    let mut leave_out = |line: &str, why: &str| {
        if left_out.len() < limits::FEATURES_LEFT_OUT {
            left_out.push(Absent::new(path, Why::Malformed(format!("{}: {why}", attribute::shortened(line)))));
        }
    };
    let (mut expires, mut is_skipped) = (None, false);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(directive) = line.strip_prefix(DIRECTIVE) {
            match directive.split_once('=').unwrap_or((directive, "")) {
                ("expiry-time", time) => match Wall::parse_stamp(time.trim()) {
                    Some(moment) => expires = Some(moment),
                    None => leave_out(line, "no time of RFC 3339"),
                },
                ("no-label", _) => is_skipped = true,
                ("no-feature", _) => {}
                _ => leave_out(line, "no directive of features.d"),
            }
            continue;
        }
        let is_over = expires.zip(wall).is_some_and(|(expires, wall)| expires < wall);
        if line.starts_with('#') || is_over {
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or((line, "true"));
        let key = whole_key(name);
        found.retain(|known| known.key != key);
        if !std::mem::take(&mut is_skipped) && found.len() <= limits::FEATURE_LABELS {
            found.push(Feature { path: path.to_owned(), key, value: value.to_owned() });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::NFD;
    use super::*;

    fn labels(text: &str, now: Option<&str>) -> (Vec<String>, usize) {
        let mut left_out = Vec::new();
        let found = of_file("/f", text, now.map(|now| Wall::parse_stamp(now).unwrap()), &mut left_out);
        let short = |one: &Feature| format!("{}={}", one.key.strip_prefix(NFD).unwrap_or(&one.key), one.value);
        (found.iter().map(short).collect(), left_out.len())
    }

    #[test]
    fn a_line_is_a_label_and_one_without_a_value_is_true() {
        let text = "# relays of the board\nrelays=4\n\n  example.com/calibrated \nformula=a=b\nrelays=8\n";
        assert_eq!(labels(text, None).0, ["example.com/calibrated=true", "formula=a=b", "relays=8"]);
    }

    #[test]
    fn a_line_ends_with_its_time_and_without_a_clock_none_does() {
        let text = "always\n# +expiry-time=2026-11-27T12:00:00Z\nold\n# +expiry-time=2026-11-27T14:00:00+01:00\nnew\n";
        assert_eq!(labels(text, Some("2026-11-27T12:00:01Z")).0, ["always", "new"].map(|name| format!("{name}=true")));
        assert_eq!(labels(text, None).0.len(), 3);
        assert_eq!(
            labels("# +expiry-time=tomorrow\nstays\n", Some("2026-11-27T12:00:01Z")),
            (vec!["stays=true".to_owned()], 1)
        );
    }

    #[test]
    fn a_feature_that_is_to_be_no_label_is_none() {
        assert_eq!(labels("a\n# +no-label\na\n# +no-feature\nb\n", None).0, ["b=true"]);
        assert_eq!(labels("# +no-such\nb\n", None), (vec!["b=true".to_owned()], 1));
    }
}
