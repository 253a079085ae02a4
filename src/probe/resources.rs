//! Turns the extended resources of the settings into how many of each the board has.
//!
//! ```text
//! example.com/relay: 4                      4
//! example.com/usb: /dev/serial/by-id/usb-*  as many as there are names like usb-* in that folder; none without the folder
//! ```

use std::str::Chars;

use super::facts::{Absent, Fact, Why};
use super::root::Root;
use crate::config::limits;
use crate::config::settings::{ExtendedResources, ResourceSource, is_pattern};
use crate::config::text_map::TextMap;

/// How many of each there are now.
pub fn count(root: &Root, resources: &ExtendedResources) -> TextMap<Fact<u64>> {
    let mut counts = TextMap::new();
    for (name, source) in resources {
        counts.insert(name.clone(), count_of(root, source));
    }
    counts
}

fn count_of(root: &Root, source: &ResourceSource) -> Fact<u64> {
    let patterns = match source {
        ResourceSource::Count(count) => return Ok(u64::from(*count)),
        ResourceSource::Paths(patterns) => patterns,
    };
    let mut names_left = limits::RESOURCE_NAMES;
    // One that is like two patterns is one.
    let mut found = TextMap::new();
    for pattern in patterns {
        for path in paths_like(root, pattern, &mut names_left)? {
            // A map of texts is in the program already, a set of them is not.
            found.insert(path, String::new());
        }
    }
    Ok(found.len() as u64)
}

/// What is not there is like nothing; a folder that cannot be listed leaves the count unknown.
fn paths_like(root: &Root, pattern: &str, names_left: &mut usize) -> Fact<Vec<String>> {
    let mut found = vec![String::new()];
    let (parts, last) = pattern.rsplit_once('/').unwrap_or_default();
    for part in parts.split('/').skip(1).chain([last]) {
        let mut inside = Vec::new();
        for folder in found {
            if is_pattern(part) {
                let names = names_like(root, &folder, part, names_left)?;
                inside.extend(names.iter().map(|name| format!("{folder}/{name}")));
            } else {
                inside.push(format!("{folder}/{part}"));
            }
        }
        found = inside;
    }
    if !is_pattern(last) {
        found.retain(|path| path.rsplit_once('/').is_some_and(|(folder, name)| root.has_entry(folder, name)));
    }
    Ok(found)
}

fn names_like(root: &Root, folder: &str, part: &str, names_left: &mut usize) -> Fact<Vec<String>> {
    let listed = root.names(folder, *names_left, |name| is_like(name, part));
    let (count, names) = match listed {
        Err(Absent { why: Why::NoSuchFile, .. }) => return Ok(Vec::new()),
        listed => listed?,
    };
    let too_many = || Why::Implausible(format!("there are more than {} names to look at", limits::RESOURCE_NAMES));
    *names_left = names_left.checked_sub(count).ok_or_else(|| Absent::new(folder, too_many()))?;
    Ok(names)
}

/// As in a shell: `?` is any character, `*` any number of them; a dot at the beginning is only like itself. Only the last `*`
/// is ever tried again, so this takes at most the product of both lengths.
fn is_like(name: &str, part: &str) -> bool {
    if name.starts_with('.') && !part.starts_with('.') {
        return false;
    }
    let (mut name, mut part) = (name.chars(), part.chars());
    // What stands behind the last `*`, and the rest of the name that was compared with that.
    let mut after_star: Option<(Chars, Chars)> = None;
    loop {
        let (mut next_name, mut next_part) = (name.clone(), part.clone());
        match (next_part.next(), next_name.next()) {
            (Some('*'), _) => {
                after_star = Some((next_part.clone(), name.clone()));
                part = next_part;
                continue;
            }
            (None, None) => return true,
            (_, None) => return false,
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                (name, part) = (next_name, next_part);
                continue;
            }
            _ => {}
        }
        let Some((behind, rest)) = &mut after_star else { return false };
        rest.next();
        (name, part) = (rest.clone(), behind.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_like_a_pattern_as_in_a_shell() {
        for (name, part) in [
            ("ttyUSB0", "ttyUSB*"),
            ("ttyUSB", "ttyUSB*"),
            ("ttyUSB0", "tty???0"),
            ("a", "*"),
            ("abcbcd", "a*bcd"),
            ("aaab", "*a*b"),
            ("\u{e9}a", "?a"),
            (".x", ".*"),
            ("a*", "a*"),
            ("x.y", "x**y"),
        ] {
            assert!(is_like(name, part), "{name} {part}");
        }
        for (name, part) in [
            ("ttyS0", "ttyUSB*"),
            ("ttyUSB0", "ttyUSB"),
            ("tty", "tty?"),
            (".x", "*"),
            ("", "?"),
            ("abcd", "a*bc"),
            ("b", "*a*"),
        ] {
            assert!(!is_like(name, part), "{name} {part}");
        }
        // One that tried each `*` again would still be at it.
        assert!(!is_like(&"a".repeat(255), &("a*".repeat(100) + "b")));
    }
}
