//! The codes around a word that a terminal colours, and text without them.

pub const BOLD: &str = "\x1b[1m";
pub const DIM: &str = "\x1b[2m";
pub const GREEN: &str = "\x1b[32m";
pub const RED: &str = "\x1b[31m";
pub const YELLOW: &str = "\x1b[33m";
/// An empty screen, from its first line on.
pub const CLEAR: &str = "\x1b[2J\x1b[H";
pub const RESET: &str = "\x1b[0m";

/// The same for a file, a pipe or a terminal without colours. Text from outside has no codes any more: `config::plain_text`
/// replaces them.
pub fn without(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    parts.fold(first.to_owned(), |plain, part| {
        // A code ends with its first letter.
        plain + part.split_once(|end: char| end.is_ascii_alphabetic()).map_or("", |(_, rest)| rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_no_code_and_every_word() {
        assert_eq!(without(&format!("{CLEAR}{BOLD}a{RESET}b [m]\n{GREEN}{RED}{YELLOW}{DIM}c{RESET}")), "ab [m]\nc");
    }
}
