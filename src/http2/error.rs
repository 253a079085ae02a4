//! Turns rules that a peer broke into the codes that it is told (RFC 9113 7), and into sentences for our own log.

/// Why a stream or a connection ended. Any number may come; those that are sent have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    pub const NO_ERROR: Code = Code(0);
    pub const PROTOCOL_ERROR: Code = Code(1);
    pub const FLOW_CONTROL_ERROR: Code = Code(3);
    pub const STREAM_CLOSED: Code = Code(5);
    pub const FRAME_SIZE_ERROR: Code = Code(6);
    /// Nobody has looked at the request: it may be sent again.
    pub const REFUSED_STREAM: Code = Code(7);
    pub const CANCEL: Code = Code(8);
    pub const COMPRESSION_ERROR: Code = Code(9);
    pub const ENHANCE_YOUR_CALM: Code = Code(11);
    /// Whoever wants an answer has to ask over HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Code = Code(13);

    /// As the RFC calls it; empty for a number that it does not have.
    pub fn name(self) -> &'static str {
        const NAMES: &str = "NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED \
            FRAME_SIZE_ERROR REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM \
            INADEQUATE_SECURITY HTTP_1_1_REQUIRED";
        NAMES.split(' ').nth(self.0 as usize).unwrap_or_default()
    }
}

/// What ended a connection: it was told in a GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    /// What the peer did.
    pub why: &'static str,
}

/// A rule that the peer broke, and what ends over it (RFC 9113 5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Connection(Code, &'static str),
    /// The stream of the frame.
    Stream(Code, &'static str),
}

impl Fault {
    #[cfg(test)]
    pub(super) fn code(self) -> Code {
        let (Fault::Connection(code, _) | Fault::Stream(code, _)) = self;
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_called_as_in_the_rfc() {
        let names = [Code::NO_ERROR, Code::CANCEL, Code::HTTP_1_1_REQUIRED, Code(14), Code(u32::MAX)].map(Code::name);
        assert_eq!(names, ["NO_ERROR", "CANCEL", "HTTP_1_1_REQUIRED", "", ""]);
    }
}
