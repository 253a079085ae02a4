//! Turns any bytes into the text that they begin with.

/// Up to the first byte that is no UTF-8; a file that is not text is refused before it is parsed.
pub fn of(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
