//! Turns one operation into request bytes and the reply's bytes into an answer: HTTP/1.1 over `ureq-proto`, no socket.
//!
//! ```text
//! start -> Head --headers--> Body --last byte--> Done
//!            \______________ Failure ___________/
//! ```

use ureq_proto::BodyMode;
use ureq_proto::client::state::{RecvBody, RecvResponse};
use ureq_proto::client::{Call, RecvResponseResult, SendRequestResult};
use ureq_proto::http::{HeaderMap, HeaderValue, Request, Response, Version, header};

use super::answer::{Answer, Head};
use super::failure::{Failure, cut};
use super::operation::{AuditId, Operation};
use crate::config::limits;

#[cfg(test)]
mod tests;

/// Product token of this program, and its name as a field manager (TR-4).
pub const USER_AGENT: &str = concat!("nodepulse/", env!("CARGO_PKG_VERSION"));

/// What a request is called in the server's audit log.
pub(super) const AUDIT_ID: &str = "audit-id";

/// Where requests go, and as whom.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// `Host` header: `Server::authority`.
    pub authority: String,
    /// `Server::path_prefix`.
    pub path_prefix: String,
    /// The Node's name, which is also the Lease's.
    pub node_name: String,
    /// `Authorization: Bearer`, when the kubeconfig has a token.
    pub bearer_token: Option<String>,
}

/// A request in flight.
#[derive(Debug)]
pub struct Exchange {
    operation: Operation,
    audit_id: AuditId,
    state: State,
    received_bytes: usize,
}

#[derive(Debug)]
enum State {
    Head(Box<Call<RecvResponse>>),
    Body(Body),
    Finished,
}

#[derive(Debug)]
struct Body {
    /// `None`: this reply has none.
    call: Option<Box<Call<RecvBody>>>,
    head: Head,
    kept: Vec<u8>,
    length_bytes: usize,
    /// The server will close the connection after this reply.
    closes: bool,
}

impl Body {
    fn ends_with_connection(&self) -> bool {
        self.call.as_ref().is_some_and(|call| matches!(call.body_mode(), BodyMode::CloseDelimited))
    }

    /// What is worth knowing of an answer this long stands at its beginning.
    fn is_enough(&self, operation: &Operation) -> bool {
        operation.wants_metadata() && self.head.is_success() && self.kept.len() > limits::METADATA_BODY_BYTES
    }

    fn is_complete(&self) -> bool {
        !self.ends_with_connection() && self.call.as_ref().is_none_or(|call| call.can_proceed())
    }
}

/// What feeding reply bytes led to.
#[derive(Debug)]
pub enum Progress {
    NeedMore,
    /// `reusable`: the connection may carry another exchange.
    Done {
        answer: Answer,
        reusable: bool,
    },
}

impl Exchange {
    /// The whole request, ready to be written in one piece, and the exchange that waits for its reply.
    /// `audit_id` is the connection's.
    pub fn start(operation: Operation, target: &Target, audit_id: AuditId) -> Result<(Vec<u8>, Exchange), Failure> {
        let request = build_request(&operation, target, &audit_id)?;
        let mut call = Call::new(request).map_err(malformed)?.proceed();
        let body = operation.body().unwrap_or_default();
        let mut bytes = vec![0; request_head_limit(target) + body.len()];
        let mut written = call.write(&mut bytes).map_err(malformed)?;
        let call = match call.proceed().map_err(malformed)? {
            Some(SendRequestResult::SendBody(mut call)) => {
                let room = bytes.get_mut(written..).unwrap_or_default();
                written += call.write(body.as_bytes(), room).map_err(malformed)?.1;
                call.proceed()
            }
            Some(SendRequestResult::RecvResponse(call)) => Some(call),
            Some(SendRequestResult::Await100(_)) | None => None,
        };
        let Some(call) = call else {
            return Err(Failure::malformed("the request does not fit its buffer"));
        };
        bytes.truncate(written);
        let state = State::Head(Box::new(call));
        Ok((bytes, Exchange { operation, audit_id, state, received_bytes: 0 }))
    }

    /// Whether any byte of the reply has come: before that, a closed connection says nothing about the request.
    pub fn has_begun(&self) -> bool {
        self.received_bytes > 0
    }

    /// Bytes of the reply that were understood so far.
    pub fn received_bytes(&self) -> usize {
        self.received_bytes
    }

    /// Takes reply bytes; `input` may end anywhere. What was understood is removed from the front of `input`, and what
    /// is left is never more than [`limits::REPLY_HEADER_BYTES`].
    pub fn feed(&mut self, input: &mut Vec<u8>) -> Result<Progress, Failure> {
        let before = self.received_bytes;
        let progress = self.advance(input);
        input.drain(..self.received_bytes - before);
        progress
    }

    fn advance(&mut self, mut input: &[u8]) -> Result<Progress, Failure> {
        loop {
            let before = self.received_bytes;
            let moved = match std::mem::replace(&mut self.state, State::Finished) {
                State::Head(call) => self.read_head(call, input)?,
                State::Body(body) => self.read_body(body, input)?,
                State::Finished => {
                    return Err(Failure::malformed("bytes after the end of the reply"));
                }
            };
            input = input.get(self.received_bytes - before..).unwrap_or_default();
            if let State::Body(body) = &self.state
                && (body.is_complete() || body.is_enough(&self.operation))
            {
                let reusable = !body.closes && body.is_complete();
                return self.finish().map(|answer| Progress::Done { answer, reusable });
            }
            if !moved && input.len() <= limits::REPLY_HEADER_BYTES {
                return Ok(Progress::NeedMore);
            }
            if !moved {
                return Err(Failure::malformed("a line of its chunks has no end"));
            }
        }
    }

    /// The peer closed: a reply that ends with the connection is complete now, any other is not.
    pub fn end_of_stream(&mut self) -> Result<Answer, Failure> {
        match &self.state {
            State::Body(body) if body.ends_with_connection() => self.finish(),
            _ => Err(Failure::closed(self.received_bytes)),
        }
    }

    fn read_head(&mut self, mut call: Box<Call<RecvResponse>>, input: &[u8]) -> Result<bool, Failure> {
        let (used, response) = call.try_response(input, false).map_err(malformed)?;
        self.received_bytes += used;
        let unread = if used > 0 { 0 } else { input.len() };
        if self.received_bytes + unread > limits::REPLY_HEADER_BYTES {
            return Err(Failure::header_too_large());
        }
        let Some(response) = response else {
            // Informational replies (1xx) are consumed without being the reply.
            self.state = State::Head(call);
            return Ok(used > 0);
        };
        if response.status().is_redirection() {
            return Err(redirected(&response));
        }
        let closes = asks_to_close(response.headers()) || response.version() != Version::HTTP_11;
        let call = match call.proceed() {
            Some(RecvResponseResult::RecvBody(call)) => Some(Box::new(call)),
            _ => None,
        };
        let head = Head::of(&response, &self.audit_id);
        head.confirm(&self.operation)?;
        self.state = State::Body(Body { call, head, kept: Vec::new(), length_bytes: 0, closes });
        Ok(true)
    }

    fn read_body(&mut self, mut body: Body, input: &[u8]) -> Result<bool, Failure> {
        let Some(call) = &mut body.call else {
            return Err(Failure::malformed("a body where there is none"));
        };
        let mut chunk = [0; 2048];
        let (used, read) = call.read(input, &mut chunk).map_err(malformed)?;
        self.received_bytes += used;
        body.length_bytes += read;
        let limit_bytes = self.operation.body_limit_bytes();
        if body.length_bytes > limit_bytes {
            return Err(Failure::body_too_large(limit_bytes));
        }
        if self.operation.reads_success_body() || !body.head.is_success() {
            body.kept.extend_from_slice(chunk.get(..read).unwrap_or_default());
        }
        self.state = State::Body(body);
        Ok(used > 0)
    }

    fn finish(&mut self) -> Result<Answer, Failure> {
        match std::mem::replace(&mut self.state, State::Finished) {
            State::Body(body) => body.head.into_answer(&self.operation, &body.kept),
            State::Head(_) | State::Finished => Err(Failure::closed(self.received_bytes)),
        }
    }
}

fn build_request(operation: &Operation, target: &Target, audit_id: &AuditId) -> Result<Request<()>, Failure> {
    let path = operation.path(&target.node_name);
    let uri = format!("https://{}{}{path}", target.authority, target.path_prefix);
    let mut request = Request::builder()
        .method(operation.verb())
        .uri(uri)
        .header(header::ACCEPT, HeaderValue::from_static(operation.accept()))
        .header(AUDIT_ID, audit_id.as_bytes());
    if operation.names_the_program() {
        request = request.header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    }
    if let Some(body) = operation.body() {
        let content_type = HeaderValue::from_static(operation.content_type());
        request = request.header(header::CONTENT_TYPE, content_type).header(header::CONTENT_LENGTH, body.len());
    }
    if let Some(token) = &target.bearer_token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    request.body(()).map_err(|error| Failure::malformed(error))
}

/// Room for the request line and headers: everything but these three is short and of our own making.
fn request_head_limit(target: &Target) -> usize {
    let token = target.bearer_token.as_deref().unwrap_or_default();
    2048 + [&target.authority, &target.path_prefix, token].map(str::len).iter().sum::<usize>()
}

fn asks_to_close(headers: &HeaderMap) -> bool {
    let says_close = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
    headers.get_all(header::CONNECTION).iter().any(says_close)
}

fn redirected(response: &Response<()>) -> Failure {
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    let location: String = location.unwrap_or("nowhere").chars().take(200).collect();
    let between = "an API server never does, a captive portal or proxy stands between";
    Failure::new("redirected", format!("redirected to {location}: {between}"))
}

fn malformed(error: ureq_proto::Error) -> Failure {
    Failure::malformed(cut(&error.to_string()))
}

impl std::fmt::Debug for Target {
    /// Never prints the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({}{} as {})", self.authority, self.path_prefix, self.node_name)
    }
}
