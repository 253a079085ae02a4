//! Turns a mistyped word into the known one that was probably meant.

use super::problem::quoted;

/// Longest word worth comparing, characters: a longer one is no typing mistake, and comparing costs its square.
const LONGEST_WORD: usize = 64;

/// `unknown WHAT "WORD"`, with the known word that was probably meant, or else with what to do.
pub fn unknown(what: &str, word: &str, known: &mut dyn Iterator<Item = &str>, otherwise: &str) -> String {
    let shown = quoted(word);
    match nearest(word, known) {
        Some(near) => format!("unknown {what} {shown}: did you mean {near}?"),
        None => format!("unknown {what} {shown}: {otherwise}"),
    }
}

/// The candidate with the fewest typing mistakes (a letter missing, added, wrong, or two swapped; case is free), if
/// that is at most a third of the word's letters.
fn nearest<'a>(word: &str, candidates: &mut dyn Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST_WORD {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let mistakes = |candidate: &str| strsim::osa_distance(&word, &candidate.to_ascii_lowercase());
    let nearest = candidates.map(|candidate| (mistakes(candidate), candidate)).min_by_key(|(count, _)| *count);
    nearest.filter(|(count, _)| *count <= (word.chars().count() / 3).max(1)).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["nodeLabels", "nodeIP", "maxPods", "registerNode"];

    #[test]
    fn the_nearest_known_word_is_named() {
        for (typed, meant) in [
            ("nodeLables", "nodeLabels"),
            ("nodelabels", "nodeLabels"),
            ("NodeIp", "nodeIP"),
            ("maxPod", "maxPods"),
            ("registerNodes", "registerNode"),
        ] {
            assert_eq!(nearest(typed, &mut KNOWN.into_iter()), Some(meant), "{typed}");
        }
    }

    #[test]
    fn a_word_unlike_all_others_has_no_neighbour() {
        for typed in ["", "x", "authorization", "\u{1f980}\u{1f980}\u{1f980}", &"nodeLabels".repeat(10)] {
            assert_eq!(nearest(typed, &mut KNOWN.into_iter()), None, "{typed}");
        }
    }
}
