//! Turns `os-release` into the name of the operating system (VER-1).
//!
//! ```text
//! PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
//! NAME="Debian GNU/Linux"
//! VERSION_ID="12"
//! ```

use super::attribute;

/// What os-release(5) says a file without `PRETTY_NAME` means.
const DEFAULT: &str = "Linux";

/// `PRETTY_NAME`, the last one as a shell would have it, with quotes and escapes undone; the kubelet takes off only `"`.
pub(super) fn pretty_name(text: &str) -> String {
    value(text, "PRETTY_NAME").unwrap_or_else(|| DEFAULT.to_owned())
}

/// The same of any key; `None`: there is none, or it says nothing.
pub(super) fn value(text: &str, key: &str) -> Option<String> {
    let lines = text.trim_start_matches('\u{FEFF}').lines();
    let value = lines.filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix('=')).next_back();
    Some(attribute::text(unquoted(value?).as_bytes())).filter(|value| !value.is_empty())
}

/// One word of shell: `'` takes all as it is, `"` lets a backslash escape `$ " \ `` ` ``, outside it escapes anything.
fn unquoted(value: &str) -> String {
    let mut plain = String::new();
    let mut quote = None;
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if character == open => quote = None,
            (Some('\''), _) => plain.push(character),
            (_, '\\') => match characters.next() {
                Some(escaped) if quote.is_none() || matches!(escaped, '$' | '"' | '\\' | '`') => plain.push(escaped),
                Some(kept) => plain.extend(['\\', kept]),
                None => plain.push('\\'),
            },
            _ => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_loses_its_quotes_and_escapes() {
        assert_eq!(
            pretty_name("ID=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)"
        );
        assert_eq!(pretty_name("PRETTY_NAME='It''s a \\ \"board\"'"), "Its a \\ \"board\"");
        assert_eq!(pretty_name("PRETTY_NAME=\"\\$5 \\\"gateway\\\" \\n\""), "$5 \"gateway\" \\n");
        assert_eq!(pretty_name("PRETTY_NAME=Buildroot\\ 2026"), "Buildroot 2026");
        assert_eq!(pretty_name("PRETTY_NAME='a \\\" b'"), "a \\\" b", "between these all is as it is");
    }

    #[test]
    fn a_byte_order_mark_and_carriage_returns_are_no_part_of_it() {
        assert_eq!(pretty_name("\u{FEFF}PRETTY_NAME=\"Poky 5.0\"\r\nID=poky\r\n"), "Poky 5.0");
    }

    #[test]
    fn the_last_assignment_wins() {
        assert_eq!(pretty_name("PRETTY_NAME=Old\nPRETTY_NAME=New\n"), "New");
    }

    #[test]
    fn a_file_without_the_key_means_linux() {
        assert_eq!(pretty_name("NAME=Alpine\n"), "Linux");
        assert_eq!(pretty_name("PRETTY_NAME=\"\"\n"), "Linux");
        assert_eq!(pretty_name("PRETTY_NAME=\"\\"), "\\");
    }
}
