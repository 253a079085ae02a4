//! Turns everything that happens in a world into one number, and, when somebody wants to read it, into lines.

use std::fmt::Write;

/// FNV-1a over what happened; two runs of a seed must agree in it.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
    now_us: u64,
}

impl Trace {
    pub fn new(keep_lines: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: keep_lines.then(Vec::new), now_us: 0 }
    }

    pub fn at(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    pub fn keeps_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// What tells two runs apart.
    pub fn mix(&mut self, bytes: &[u8]) {
        self.mix_word(self.now_us);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix_word(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            self.mix_word(u64::from_le_bytes(padded));
        }
    }

    fn mix_word(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// What a person reads; made only when somebody does.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        let now_us = self.now_us;
        if let Some(lines) = &mut self.lines {
            let mut text = String::new();
            let _ = write!(text, "{:>10.3} s  {}", now_us as f64 / 1e6, line());
            lines.push(text);
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
