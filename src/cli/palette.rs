//! Turns "is this a terminal?" into the codes around a word.

/// What stands before and after a coloured word; all empty where nobody sees colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Palette {
    pub bold: &'static str,
    pub dim: &'static str,
    pub good: &'static str,
    pub bad: &'static str,
    pub warning: &'static str,
    pub reset: &'static str,
}

impl Palette {
    /// Colours on a terminal, plain text elsewhere. The caller knows about `NO_COLOR` and `TERM=dumb`.
    pub const fn for_terminal(is_terminal: bool) -> Palette {
        if is_terminal {
            Palette {
                bold: "\x1b[1m",
                dim: "\x1b[2m",
                good: "\x1b[32m",
                bad: "\x1b[31m",
                warning: "\x1b[33m",
                reset: "\x1b[0m",
            }
        } else {
            Palette { bold: "", dim: "", good: "", bad: "", warning: "", reset: "" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_never_gets_an_escape() {
        let Palette { bold, dim, good, bad, warning, reset } = Palette::for_terminal(false);
        assert_eq!([bold, dim, good, bad, warning, reset].concat(), "");
        assert!(Palette::for_terminal(true).bold.starts_with('\x1b'));
    }
}
