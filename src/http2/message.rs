//! Turns the fields of a request or an answer into what is known of it, or into the rule of RFC 9113 8 that they break.

use super::fields::Fields;

/// Fields that speak of one connection of HTTP/1.1, and mean nothing here (RFC 9113 8.2.2).
const OF_CONNECTION: [&[u8]; 5] = [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];

/// The status of an answer, 100 to 999, final or not.
pub(super) fn status(fields: Fields<'_>) -> Result<u16, &'static str> {
    let mut status = None;
    let mut is_head = true;
    for (name, value) in fields.iter() {
        if name != b":status" {
            is_head = false;
            check_field(name, value)?;
            continue;
        }
        let digits = <[u8; 3]>::try_from(value).ok().filter(|digits| digits.iter().all(u8::is_ascii_digit));
        let [hundreds, tens, ones] = digits.ok_or("a status is no number of three digits")?.map(|digit| digit - b'0');
        if !is_head || status.is_some() || hundreds == 0 {
            return Err("a status comes twice, late, or is below 100");
        }
        status = Some(u16::from(hundreds) * 100 + u16::from(tens) * 10 + u16::from(ones));
    }
    status.ok_or("an answer has no status")
}

/// A request has its pseudo-fields first, each once, and the three that every request needs (RFC 9113 8.3.1); CONNECT, which has
/// fewer, is not for this.
pub(super) fn check_request(fields: Fields<'_>) -> Result<(), &'static str> {
    const NEEDED: [&[u8]; 3] = [b":method", b":scheme", b":path"];
    let mut found: [usize; 4] = [0; 4];
    let mut is_head = true;
    for (name, value) in fields.iter() {
        if !name.starts_with(b":") {
            is_head = false;
            check_field(name, value)?;
            if name == b"te" && value != b"trailers" {
                return Err("a request wants codings of HTTP/1.1");
            }
            continue;
        }
        let place =
            NEEDED.iter().position(|needed| *needed == name).or((name == b":authority").then_some(NEEDED.len()));
        let count = place.and_then(|place| found.get_mut(place)).ok_or("a request has an unknown pseudo-field")?;
        *count += 1;
        if !is_head || *count > 1 {
            return Err("a pseudo-field comes twice, or late");
        }
        // Its value is that of a field; only its name is not.
        check_field(b"value", value)?;
        if value.is_empty() && name != b":authority" {
            return Err("a pseudo-field says nothing");
        }
    }
    if found.starts_with(&[1; 3]) { Ok(()) } else { Err("a request has no method, scheme or path") }
}

/// Trailers are fields like others, and no pseudo-fields.
pub(super) fn check_trailers(fields: Fields<'_>) -> Result<(), &'static str> {
    fields.iter().try_for_each(|(name, value)| check_field(name, value))
}

/// Name and value of one field that is no pseudo-field (RFC 9113 8.2.1).
fn check_field(name: &[u8], value: &[u8]) -> Result<(), &'static str> {
    let is_allowed = |byte: &u8| matches!(byte, 0x21..=0x39 | 0x3b..=0x40 | 0x5b..=0x7e);
    if name.is_empty() || !name.iter().all(is_allowed) {
        return Err("a field has a name that is not allowed");
    }
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) || is_blank(value.first()) || is_blank(value.last()) {
        return Err("a field has a value that is not allowed");
    }
    if OF_CONNECTION.contains(&name) {
        return Err("a field speaks of a connection of HTTP/1.1");
    }
    Ok(())
}

/// How much content the fields announce, bytes; `None` where they say nothing, or where none belongs to the status.
pub(super) fn content_length(status: u16, fields: Fields<'_>) -> Result<Option<u64>, &'static str> {
    let mut lengths = fields.get_all("content-length");
    let Some(length) = lengths.next().filter(|_| status != 304) else { return Ok(None) };
    let digits = str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length_bytes = digits.and_then(|digits| digits.parse().ok()).filter(|_| lengths.all(|other| other == length));
    length_bytes.map(Some).ok_or("its length is no number, or two")
}

#[cfg(test)]
mod tests {
    use super::super::fields::FieldList;
    use super::*;

    fn list(fields: &[(&str, &str)]) -> FieldList {
        let mut list = FieldList::default();
        fields.iter().for_each(|(name, value)| list.push(name.as_bytes(), value.as_bytes()));
        list
    }

    fn status_of(fields: &[(&str, &str)]) -> Result<u16, &'static str> {
        status(list(fields).all())
    }

    #[test]
    fn an_answer_has_one_status_and_it_comes_first() {
        assert_eq!(status_of(&[(":status", "200")]), Ok(200));
        assert_eq!(status_of(&[(":status", "999"), ("a", "")]), Ok(999));
        for fields in [
            &[][..],
            &[("a", "b")],
            &[(":status", "200"), (":status", "200")],
            &[("a", "b"), (":status", "200")],
            &[(":status", "200"), (":path", "/")],
            &[(":status", "")],
            &[(":status", "20")],
            &[(":status", "2000")],
            &[(":status", "+20")],
            &[(":status", "099")],
        ] {
            assert!(status_of(fields).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn a_request_has_each_of_its_pseudo_fields_once_and_first() {
        let whole = [(":method", "POST"), (":scheme", "http"), (":path", "/a/b")];
        let check = |fields: &[(&str, &str)]| check_request(list(fields).all());
        let with = |more: (&'static str, &'static str)| [&whole[..], &[more]].concat();
        assert_eq!(check(&whole), Ok(()));
        assert_eq!(check(&with((":authority", ""))), Ok(()), "what grpc-go may say of a socket");
        assert_eq!(check(&with(("te", "trailers"))), Ok(()));
        for more in [
            (":path", "/"),
            (":status", "200"),
            (":protocol", "x"),
            ("te", "gzip"),
            ("Name", "x"),
            ("connection", "close"),
        ] {
            assert!(check(&with(more)).is_err(), "{more:?}");
        }
        for missing in 0..3 {
            let mut fields = whole.to_vec();
            fields.remove(missing);
            assert!(check(&fields).is_err(), "{fields:?}");
            fields.push(("a", "b"));
            fields.push(whole[missing]);
            assert!(check(&fields).is_err(), "late: {fields:?}");
        }
        assert!(check(&[(":method", "POST"), (":scheme", "http"), (":path", "")]).is_err());
        assert!(check(&[(":method", "PO\0ST"), (":scheme", "http"), (":path", "/")]).is_err());
        assert!(check(&[]).is_err());
    }

    #[test]
    fn names_and_values_hold_what_they_may() {
        for (name, value) in [("x-y_z.1!", "a  b\tc"), ("~", ""), ("a", "\u{e9}"), ("te", "gzip")] {
            assert_eq!(check_trailers(list(&[(name, value)]).all()), Ok(()), "{name}");
        }
        for (name, value) in [
            ("", "a"),
            ("Name", "a"),
            ("na me", "a"),
            ("na:me", "a"),
            (":status", "200"),
            ("\u{7f}", "a"),
            ("\u{e9}", "a"),
            ("a", "b\0"),
            ("a", "b\rc"),
            ("a", "b\nc"),
            ("a", " b"),
            ("a", "b\t"),
            ("connection", "close"),
            ("keep-alive", "1"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
        ] {
            assert!(check_trailers(list(&[(name, value)]).all()).is_err(), "{name}: {value:?}");
            assert!(status_of(&[(":status", "200"), (name, value)]).is_err(), "{name}: {value:?}");
        }
    }

    #[test]
    fn a_length_is_one_number() {
        let of = |status, lengths: &[&str]| {
            let fields: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
            content_length(status, list(&fields).all())
        };
        assert_eq!(of(200, &[]), Ok(None));
        assert_eq!(of(200, &["0"]), Ok(Some(0)));
        assert_eq!(of(200, &["12", "12"]), Ok(Some(12)));
        assert_eq!(of(304, &["12"]), Ok(None), "what the answer to a GET would have");
        for lengths in [&["12", "13"][..], &["+1"], &["-1"], &[""], &["a"], &["18446744073709551616"]] {
            assert!(of(200, lengths).is_err(), "{lengths:?}");
        }
    }
}
