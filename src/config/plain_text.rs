//! Turns text from outside (servers, certificates, files of the board) into text that a terminal or a log shows as it is.
//!
//! What could move the cursor, end a line, change the direction of reading or be invisible becomes `\n`, `\u001b` and the like,
//! which is also how JSON writes it. Every place where text leaves the program (`io::log`, `io::notify`, `cli`) calls this.

use std::borrow::Cow;

/// One line, whatever is in `text`.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Whole lines written by this program, with text from outside only after [`line()`] or as JSON: line breaks stay.
pub fn page(text: &str) -> Cow<'_, str> {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, may_stay: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |character: char| is_hidden(character) && !may_stay(character);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            plain if !is_bad(plain) => shown.push(plain),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            hidden => hidden.encode_utf16(&mut [0; 2]).iter().for_each(|unit| shown += &format!("\\u{unit:04x}")),
        }
    }
    Cow::Owned(shown)
}

/// Controls, ends of lines, marks of direction, and what has no width (Unicode 17, general categories Cc, Cf, Zl, Zp, as far
/// as they occur in no word of any language but as an accident).
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_ends_turns_or_hides_is_written_out() {
        for (text, shown) in [
            ("a\nb\r\tc", r"a\nb\r\tc"),
            ("\x1b[2Jx\x07\0\x7f", r"\u001b[2Jx\u0007\u0000\u007f"),
            ("\u{9b}31m \u{85}", r"\u009b31m \u0085"),
            ("\u{2028}\u{2029}", r"\u2028\u2029"),
            ("\u{202e}\u{2066}\u{200f}\u{61c}", r"\u202e\u2066\u200f\u061c"),
            ("a\u{200b}b\u{feff}\u{ad}", r"a\u200bb\ufeff\u00ad"),
            ("\u{e0041}", r"\udb40\udc41"),
        ] {
            assert_eq!(line(text), shown);
            assert_eq!(line(shown), shown, "what is written out stays so");
        }
    }

    #[test]
    fn words_of_every_language_stay_and_cost_nothing() {
        for text in ["Größe 5 µs", "Плата", "板子", "لوحة", "🍓 Pi", "a\u{301}", r"C:\new"] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn a_page_keeps_its_lines_and_stays_the_same_json() {
        assert_eq!(page("a\n\tb\x1b[2J\r\n"), "a\n\tb\\u001b[2J\\r\n");
        let value = serde_json::Value::from("x\u{9b}\u{202e}\u{7f}y\n");
        let shown = page(&value.to_string()).into_owned();
        assert!(shown.is_ascii());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
