//! What the agent may want of the API server: each wish is one request.

/// Requests of one lane are never in flight together; lanes do not wait for each other (LSE-16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Lease,
    /// Registration, and then NodeStatus.
    Status,
    Events,
}

/// One request. Bodies are JSON, made by `node`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// `GET /version`: what `kubeletVersion` follows, and the first `Date`.
    ReadVersion,
    CreateNode {
        body: String,
    },
    /// `heartbeat`: carries `timeout=10s` (TR-2).
    ReadNode {
        heartbeat: bool,
    },
    /// Strategic-merge PATCH of `nodes/NAME/status`.
    PatchStatus {
        body: String,
        answer: PatchAnswer,
        heartbeat: bool,
    },
    ReadLease,
    CreateLease {
        body: String,
    },
    /// Strategic-merge PATCH of the Lease; only the status code of the answer matters (D3).
    RenewLease {
        body: String,
    },
    CreateEvent {
        body: String,
    },
    PatchEvent {
        name: String,
        body: String,
    },
    /// SelfSubjectAccessReview, for `check`.
    ReviewAccess {
        body: String,
    },
}

/// How much of the Node a status PATCH wants back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchAnswer {
    /// The Node: the next base.
    Node,
    /// Its metadata only (uid, resourceVersion): an assertion that should change nothing.
    Metadata,
}
