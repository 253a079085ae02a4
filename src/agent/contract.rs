//! What the agent is told, and what it answers.

use std::time::Duration;

use zeroize::Zeroizing;

use super::notice::Notice;
use crate::api::traffic::Day;
use crate::api::{Answer, Lane, Operation, Seen};
use crate::config::Settings;
use crate::config::absence::Until;
use crate::config::kubeconfig::Server;
use crate::config::settings::{CaHash, Token};
use crate::identity::files::PrivateKey;
use crate::identity::supervisor::NodePassword;
use crate::identity::{Bundle, CertificateDer, Renewal, SigningRequest};
use crate::journal::Write;
use crate::node::Leaving;
use crate::probe::{Machine, Network, Readings};
use crate::time::{Up, Wall};

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The deadline of [`Output::Wait`] passed, or the process just started.
    Woke,
    /// The answer to [`Output::Probe`]. Without `board`, machine and network are those of the last one that had them.
    Looked { readings: Box<Readings>, board: Option<Box<(Machine, Network)>> },
    /// What the network has taken: of today and of the day before, by the board's own clock, and of this process since its
    /// start. Before the first look at the board on a day, and before each where there is a budget (`dailyBytes`).
    Counted { days: Box<[Day; 2]>, by_process_bytes: u64 },
    /// The end of the request that carried this ticket.
    Answered(Ticket, Answer),
    /// An event of the watch that is in flight ([`Operation::WatchNode`]).
    Seen(Seen),
    /// An address, a route or a carrier changed: worth trying at once.
    LinkChanged,
    /// SIGHUP: new settings; credentials were read before.
    Reloaded(Box<Settings>),
    /// There is no certificate and no token to be a Node with: the board has to join first (JOIN-*).
    NotJoined,
    /// The answer to [`IdentityStep::ReadMeans`]; the error says what is missing.
    Means(Result<Box<Means>, String>),
    /// What the client certificate says of itself, at start and after each [`Output::ReloadCredentials`].
    Credentials(CredentialDates),
    /// The answer to [`IdentityStep::ReadCluster`]; `None` where somebody else gave the kubeconfig, and keeps it.
    Cluster(Option<JoinedCluster>),
    /// The answer to [`IdentityStep::MakeRequest`].
    RequestMade {
        request: Box<SigningRequest>,
        /// DER of the ECDSA signature of what it asks.
        signature: Vec<u8>,
        /// Where the certificates of this cluster come from a supervisor (K3S-2).
        node_password: Option<NodePassword>,
    },
    /// A person wants the certificate's successor now (ROT-2); answer with [`Output::Told`].
    Renew,
    /// A person announces that the board is away until then, and why; answer with [`Output::Told`]: `told` or `kept`, and the
    /// time that was announced.
    Away { until: Until, reason: String },
    /// The absence that was announced is over; answer with [`Output::Told`]: `told`, `kept`, or `none` where none was announced.
    Back,
    /// The end of [`Output::Write`]: all of it is on the disk, or who knows what.
    Written { done: bool },
    /// logind holds the end of the machine back for us: it is told, and [`Output::ReleaseLock`] follows; all goes on until
    /// [`Input::Stopping`], or [`Input::GoesOn`].
    GoesDown(Leaving),
    /// The machine goes on after all.
    GoesOn,
    /// SIGTERM of a machine that goes down: it is told, and then the same as [`Input::Stopping`].
    Leaving(Leaving),
    /// SIGTERM: [`Output::Stopped`] follows, as soon as nothing is left to write.
    Stopping,
}

/// Validity of the client certificate in use; all `None` for a token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CredentialDates {
    /// First second in which the certificate is valid.
    pub not_before: Option<Wall>,
    /// Last second in which the certificate is valid.
    pub not_after: Option<Wall>,
    /// When its successor is due (ROT-1); `None` where it is no certificate of this Node.
    pub renewal: Option<Renewal>,
}

/// The cluster that a board has joined by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedCluster {
    /// API servers, the one in use first.
    pub servers: Vec<Server>,
    /// What is asked where none of those answers (JOIN-7).
    pub last_resorts: Vec<Server>,
    pub authorities: Bundle,
    /// Port of the supervisor beside them, where one gives out the certificates.
    pub supervisor: Option<u16>,
}

/// What a board joins a cluster with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means {
    /// API servers, in the order in which they are asked; never empty.
    pub servers: Vec<Server>,
    pub token: Token,
    /// It stands in no file: whoever wants it later has to keep it.
    pub is_fleeting: bool,
    pub trust: Trust,
}

impl Means {
    /// What is to be kept of them: the token, and in each line after it a hash.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(format!("{}\n", self.token.as_str()));
        if let Trust::Pinned(pins) = &self.trust {
            pins.iter().for_each(|pin| *text += &format!("{pin}\n"));
        }
        text
    }
}

/// By what a board that joins knows the cluster's CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// By the hash of its key (JOIN-3); by none, where a token of k3s has a hash, or people are to be told which CA there is.
    Pinned(Vec<CaHash>),
    /// It has it (JOIN-8).
    Given(Vec<CertificateDer<'static>>),
    /// By nothing: whoever knows the token is the cluster (JOIN-9).
    Token,
}

/// Over what a request of the identity lane goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The connection of all lanes.
    InUse,
    /// A connection like it, with this certificate (the leaf first) and the key of the last request.
    Candidate { chain: Vec<CertificateDer<'static>> },
    /// To the supervisor at this port of the API server, with the certificate in use (K3S-6).
    Supervisor { port: u16 },
    /// To this server, which nobody has proven: it hears nothing that is secret, and nothing it says is believed for that
    /// reason alone (JOIN-1).
    Unverified { server: Server },
    /// To this server, proven by these CAs, or by those in use: with the token, or without any credential.
    Introduced { server: Server, authorities: Option<Vec<CertificateDer<'static>>>, token: Option<Token> },
}

/// What to do next.
#[must_use = "an output that is dropped is an action that never happens"]
#[derive(Debug)]
pub enum Output {
    /// Read the board again and hand the facts back.
    Probe {
        /// What the container runtime is to be told of the addresses of pods; `None`: nothing new.
        pod_cidr: Option<String>,
    },
    /// Send this; answer with the same ticket, exactly once.
    Send(Ticket, Operation),
    /// End the watch that is in flight: its answer says so.
    EndWatch,
    /// What the identity lane wants; it wants the next only when it has heard of this one.
    Identity(IdentityStep),
    /// Read certificate, key or token again.
    ReloadCredentials,
    /// Close idle connections that nothing was heard on for so long: what they lead to may be gone.
    DropConnections { unheard_for: Duration },
    /// Bring this to the disk; answer with [`Input::Written`], exactly once.
    Write(Write),
    /// The machine need not wait for us any more: the server knows, or cannot be told now.
    ReleaseLock,
    /// Nothing is left to do: the process may end. Comes once, after [`Input::Stopping`].
    Stopped,
    /// What came of [`Input::Renew`], [`Input::Away`] or [`Input::Back`], or why nothing does, in one sentence.
    Told(Result<String, String>),
    /// Something a person wants to know.
    Say(Notice),
    /// Nothing to do until then, or until an input.
    Wait {
        /// The deadline, on the boot-time clock.
        until: Up,
        /// Why then.
        because: Because,
    },
}

/// What the identity lane wants beyond a request over the connection of all lanes.
#[derive(Debug)]
pub enum IdentityStep {
    /// Send this over another connection; answer with the same ticket, exactly once.
    Send(Ticket, Access, Operation),
    /// Read what the settings, and the files that they name, say to join with; answer with [`Input::Means`].
    ReadMeans {
        /// The CA in use is that of no server any more.
        has_other_ca: bool,
    },
    /// Say which cluster the board has joined; answer with [`Input::Cluster`].
    ReadCluster,
    /// From now on the cluster is this.
    UseCluster {
        /// API servers, the one to use first; empty: only the CAs are others, and all else is as it was.
        servers: Vec<Server>,
        /// Whom to trust.
        authorities: Bundle,
        /// Port of the supervisor that gives out its certificates, if one does: it is to be shown a password of this board.
        supervisor: Option<u16>,
    },
    /// From now on these are asked where no other server answers.
    UseLastResorts(Vec<Server>),
    /// Make a key with its request for a certificate, or find those that an earlier process left; answer with
    /// [`Input::RequestMade`].
    MakeRequest {
        /// Another key than those that there are.
        is_new: bool,
    },
    /// From now on this is the key of the last request: it came with the certificate (K3S-2).
    TakeKey(PrivateKey),
    /// Keep this certificate (the leaf first) with the key of the last request, and use it from now on; answer with
    /// [`Input::Credentials`].
    KeepCertificate {
        chain: Vec<CertificateDer<'static>>,
        /// When it was received, as far as that is known.
        received: Option<Wall>,
    },
}

/// A request in flight; made by the agent, given back once with the answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) lane: Lane,
    pub(super) number: u64,
    pub(super) sent: Up,
    pub(super) answer_by: Option<Up>,
}

impl Ticket {
    /// Until then nobody waits for the answer, which may lie unread; one that has come by then is given back then. `None`: it
    /// is waited for.
    pub fn answer_by(&self) -> Option<Up> {
        self.answer_by
    }

    /// Which lane is occupied until this comes back.
    pub fn lane(&self) -> Lane {
        self.lane
    }
}

/// Why a deadline is when it is: one line for the log and for `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Because {
    /// What happens then.
    pub what: &'static str,
    /// What the server or the network said last, when that is why.
    pub after: Option<String>,
}
