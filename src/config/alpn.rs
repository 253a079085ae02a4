//! Turns a setting into the protocol that is offered to API servers alone (RFC 7301), and says what is spoken with them.

use super::field::Field;
use super::problem::{Findings, Problem, quoted};

/// By its registered name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlpnProtocol {
    Http2,
    Http1,
}

/// What is spoken with an API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Http {
    /// That one and no other; `None`: what the server chooses.
    pub alpn_protocol: Option<AlpnProtocol>,
    /// Over HTTP/2 the server sends no content that nobody reads.
    pub zero_window: bool,
}

impl AlpnProtocol {
    /// The one we would rather have first.
    pub const ALL: [AlpnProtocol; 2] = [AlpnProtocol::Http2, AlpnProtocol::Http1];

    pub fn as_str(self) -> &'static str {
        match self {
            AlpnProtocol::Http2 => "h2",
            AlpnProtocol::Http1 => "http/1.1",
        }
    }
}

pub(super) fn alpn_protocol(field: &Field<'_>, _: &mut Findings) -> Result<Option<AlpnProtocol>, Problem> {
    let text = field.text()?.unwrap_or_default();
    let known = AlpnProtocol::ALL.into_iter().find(|protocol| protocol.as_str() == text);
    if known.is_some() || text.is_empty() {
        return Ok(known);
    }
    Err(field.problem(format!("must be h2 or http/1.1, not {}", quoted(text))))
}
