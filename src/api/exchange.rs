//! One request and its reply, as bytes in and bytes out (HTTP/1.1 over `ureq-proto`).

use super::answer::Answer;
use super::failure::Failure;
use super::wish::Wish;

/// Where requests go, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
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
pub struct Exchange {
    _wish: Wish,
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
    pub fn start(_wish: Wish, _target: &Target) -> Result<(Vec<u8>, Exchange), Failure> {
        Err(Failure::Malformed { detail: String::new() })
    }

    /// Takes reply bytes; `input` may end anywhere. Bytes are consumed from the front of `input`.
    pub fn feed(&mut self, _input: &mut Vec<u8>) -> Result<Progress, Failure> {
        Ok(Progress::NeedMore)
    }

    /// The peer closed: a reply that ends with the connection is complete now, any other is not.
    pub fn end_of_stream(self) -> Result<Answer, Failure> {
        Err(Failure::Closed { received_bytes: 0 })
    }
}
