//! Turns a mistyped word into the known one that was probably meant.

/// Longest word worth comparing, characters: a longer one is no typing mistake, and comparing costs its square.
const LONGEST_WORD: usize = 64;

/// The candidate with the fewest typing mistakes (a letter missing, added, wrong, or two swapped; case is free), if
/// that is at most a third of the word's letters.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = letters(word)?;
    candidates
        .into_iter()
        .filter_map(|candidate| Some((mistakes(&word, &letters(candidate)?), candidate)))
        .min_by_key(|(count, _)| *count)
        .filter(|(count, _)| *count <= (word.len() / 3).max(1))
        .map(|(_, candidate)| candidate)
}

fn letters(word: &str) -> Option<Vec<char>> {
    (word.len() <= LONGEST_WORD).then(|| word.chars().flat_map(char::to_lowercase).collect())
}

/// Optimal string alignment distance (Damerau and Levenshtein, no part edited twice).
fn mistakes(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    let mut left_previous = None;
    for (row, &left_letter) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        let mut right_previous = None;
        for (column, &right_letter) in right.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let replaced = at(&above, column) + usize::from(left_letter != right_letter);
            let mut least = replaced.min(at(&above, column + 1) + 1).min(at(&current, column) + 1);
            if left_previous == Some(right_letter) && right_previous == Some(left_letter) {
                least = least.min(at(&before, column.wrapping_sub(1)) + 1);
            }
            current.push(least);
            right_previous = Some(right_letter);
        }
        before = std::mem::replace(&mut above, current);
        left_previous = Some(left_letter);
    }
    above.last().copied().unwrap_or(0)
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
            assert_eq!(nearest(typed, KNOWN), Some(meant), "{typed}");
        }
    }

    #[test]
    fn a_word_unlike_all_others_has_no_neighbour() {
        for typed in ["", "x", "authorization", "\u{1f980}\u{1f980}\u{1f980}", &"nodeLabels".repeat(10)] {
            assert_eq!(nearest(typed, KNOWN), None, "{typed}");
        }
    }

    #[test]
    fn mistakes_are_counted_as_people_make_them() {
        for (left, right, expected) in
            [("ab", "ba", 1), ("", "abc", 3), ("abc", "", 3), ("abcd", "acbd", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(mistakes(&letters(left).unwrap(), &letters(right).unwrap()), expected, "{left} {right}");
        }
    }
}
