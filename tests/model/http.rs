//! Turns request bytes into a request, and a response into the bytes Go's `net/http` would write.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Go buffers this much before it knows the length; a longer body is chunked.
const GO_BUFFERS_BYTES: usize = 2048;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// One HTTP/1.1 request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The first request in `bytes` and its length, `None` while it is not complete, `Err` when it never will be.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, String> {
        let Some(head_bytes) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return if bytes.len() > 64 * 1024 { Err("endless header".to_owned()) } else { Ok(None) };
        };
        let head = std::str::from_utf8(&bytes[..head_bytes]).map_err(|error| error.to_string())?;
        let mut lines = head.split("\r\n");
        let request_line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, "HTTP/1.1"] = request_line[..] else {
            return Err(format!("malformed request line {request_line:?}"));
        };
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(|| format!("malformed header line {line:?}"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query.split('&').filter(|pair| !pair.is_empty());
        let query = query.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let mut request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            headers,
            body: Vec::new(),
        };
        if request.headers.iter().filter(|(name, _)| name == "host").count() != 1 {
            return Err("exactly one Host header is required".to_owned());
        }
        if request.header("transfer-encoding").is_some() {
            return Err("a chunked request: the agent never sends one".to_owned());
        }
        let body_bytes = request.header("content-length").unwrap_or("0").parse::<usize>();
        let body_bytes = body_bytes.map_err(|error| format!("Content-Length: {error}"))?;
        let end = head_bytes + 4 + body_bytes;
        let Some(body) = bytes.get(head_bytes + 4..end) else { return Ok(None) };
        request.body = body.to_vec();
        Ok(Some((request, end)))
    }

    /// The first header of this name (given in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// One HTTP/1.1 response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub code: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// What goes onto the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.code, reason_phrase(self.code));
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let chunked = self.body.len() > GO_BUFFERS_BYTES;
        if chunked {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
            let _ = write!(head, "{:x}\r\n", self.body.len());
        } else {
            let _ = write!(head, "Content-Length: {}\r\n\r\n", self.body.len());
        }
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        if chunked {
            bytes.extend_from_slice(b"\r\n0\r\n\r\n");
        }
        bytes
    }
}

/// The `Date` header: IMF-fixdate.
pub fn http_date(unix_us: i64) -> String {
    let stamp = super::stamp::seconds(unix_us);
    let days = unix_us.div_euclid(86_400_000_000);
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    let month = MONTHS[stamp[5..7].parse::<usize>().unwrap_or(1) - 1];
    [weekday, ", ", &stamp[8..10], " ", month, " ", &stamp[0..4], " ", &stamp[11..19], " GMT"].concat()
}

fn reason_phrase(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        410 => "Gone",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_only_when_it_is_complete() {
        let bytes = b"PATCH /a/b?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}rest";
        for end in 0..bytes.len() - 4 {
            assert_eq!(Request::parse(&bytes[..end]), Ok(None), "cut at {end}");
        }
        let (request, used) = Request::parse(bytes).unwrap().unwrap();
        assert_eq!((used, request.body.as_slice()), (bytes.len() - 4, &b"{}"[..]));
        assert_eq!(request.query.get("timeout").map(String::as_str), Some("10s"));
    }

    #[test]
    fn a_request_without_host_is_malformed() {
        assert!(Request::parse(b"GET / HTTP/1.1\r\n\r\n").is_err());
        assert!(Request::parse(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n").is_err());
    }

    #[test]
    fn a_long_body_is_chunked_and_a_short_one_is_not() {
        let mut response = Response { code: 200, headers: Vec::new(), body: vec![b'x'; 2048] };
        assert!(String::from_utf8(response.to_bytes()).unwrap().contains("Content-Length: 2048\r\n"));
        response.body.push(b'x');
        let text = String::from_utf8(response.to_bytes()).unwrap();
        assert!(text.contains("Transfer-Encoding: chunked\r\n\r\n801\r\n") && text.ends_with("\r\n0\r\n\r\n"));
    }

    #[test]
    fn the_date_is_what_go_prints() {
        assert_eq!(http_date(784_111_777_000_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(1_767_225_600_999_999), "Thu, 01 Jan 2026 00:00:00 GMT");
    }
}
