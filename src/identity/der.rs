//! Turns DER into its elements, and elements into DER (X.690).

pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OBJECT_IDENTIFIER: u8 = 0x06;
pub const PRINTABLE_STRING: u8 = 0x13;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// Tags and contents, up to the first that is cut.
pub fn elements(mut der: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(der)?;
        der = rest;
        Some((tag, content))
    })
}

/// Tag, content and what follows. Lengths of more than three bytes are not read.
pub fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Content of an element with this tag, and what follows.
pub fn expect(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|found| found.0 == tag).map(|(_, content, rest)| (content, rest))
}

/// The first element, tag and length included, and what follows.
pub fn whole(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, _, rest) = element(der)?;
    der.split_at_checked(der.len() - rest.len())
}

/// An element whose content is these parts, one after the other.
pub fn write(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut der = vec![tag];
    match u8::try_from(content.len()) {
        Ok(length @ 0..=0x7f) => der.push(length),
        _ => {
            let digits = content.len().to_be_bytes().into_iter().skip_while(|digit| *digit == 0);
            der.push(0x80 | digits.clone().count() as u8);
            der.extend(digits);
        }
    }
    der.extend(content);
    der
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_at_every_length() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000] {
            let content = vec![7; length];
            let der = write(SEQUENCE, &[&content[..length / 2], &content[length / 2..]]);
            let after = [der.as_slice(), b"rest"].concat();
            assert_eq!(element(&after), Some((SEQUENCE, content.as_slice(), &b"rest"[..])), "{length}");
            assert_eq!(whole(&after), Some((der.as_slice(), &b"rest"[..])));
            assert_eq!(element(&der[..der.len() - 1]), None);
        }
        assert_eq!(write(SEQUENCE, &[&[0; 0x80]])[..3], [0x30, 0x81, 0x80], "the shortest form of the length");
        assert_eq!(write(SEQUENCE, &[&[0; 0x7f]])[..2], [0x30, 0x7f]);
    }
}
