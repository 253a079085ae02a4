//! Turns requests into bytes of HTTP/2, and a peer's bytes, cut anywhere, into answers; as a server, the other way round (RFC 9113,
//! RFC 7541).
//!
//! [`Connection`] is one connection, as its client or as its server. It owns no socket and knows no time, TLS, or Kubernetes: whoever has these
//! sends what [`Connection::take_output`] gives, hands over what comes to [`Connection::receive`], and then asks
//! [`Connection::next_event`] until there is none.
//!
//! ```text
//!  request or answer, open_window,
//!  reset, close                        ->  +------------+  ->  take_output   -> socket
//!  events                              <-  | Connection |  <-  receive       <- socket
//! ```
//!
//! **What it guarantees.** However the peer's bytes are cut, the events are the same. Each stream has at most one `Headers`
//! (after any number of interim answers that nobody sees), then `Data`, then at most one `Trailers`; the last of these has
//! `ends`, or is a `Reset`, and after it nothing comes. Content is as long as its `content-length`. Fields are those of 9113 8.2
//! and 8.3.2. A request is sent whole and in order, its DATA only as far as both windows of the peer go, and the rest when they
//! open; one that is refused before anybody looked at it says so ([`Code::REFUSED_STREAM`]).
//!
//! **What a peer cannot do.** Whatever it sends, no call panics and no memory grows past the `HTTP2_` limits of
//! `config/limits.rs`: a frame, a header block with its CONTINUATIONs, the list of fields that comes of it, interim answers,
//! frames that say nothing, frames that want a reply, bodies that wait for a window. A rule of 9113 that it breaks ends the stream
//! with RST_STREAM where the RFC asks for no more, and otherwise the connection with GOAWAY; both have the code that the RFC names.
//! PUSH_PROMISE is such a breach, as our SETTINGS forbid it. Frames and settings of unknown types, and priorities, are ignored.
//!
//! **Few bytes.** A field that comes again costs one or two bytes ([`Field::new`]). HEADERS and DATA of a request are in the output
//! together. With a stream window of 0 an answer's fields come and its content does not, unless a stream is given a window; a
//! stream that is done with then is reset in front of the next request ([`When::WithNext`]). Windows are returned when half of
//! them is used.
//!
//! **What it leaves to others.** Time: that no answer comes, or no ACK of our SETTINGS, is noticed by whoever has a clock, and
//! [`Connection::heard_frames`] says whether anything came. PING is answered and never sent. A request is taken for what it is: its
//! fields are not checked.
//!
//! A server answers with content that fits the windows and one frame, as an answer of gRPC that says little does; longer ones it does
//! not send. More requests at once than [`crate::config::limits::HTTP2_STREAMS`] it refuses before anybody looks at them.

mod connection;
mod error;
mod fields;
mod frame;
mod hpack;
mod message;
mod stream;

pub use self::connection::{Connection, Event, NotSent, Opening, When};
pub use self::error::{Code, Error};
pub use self::fields::{FieldList, Fields};
pub use self::hpack::{Decoder, Encoder, Field, Indexing};
pub use self::stream::StreamId;
