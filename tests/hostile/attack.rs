//! Turns one line of the table into everything that a case needs to know: what is done, to which requests, and what
//! must hold all the same.

use super::server::{Going, Hit, Stream};
use std::io;
use std::net::TcpStream;
use std::path::Path;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Version,
    ReadNode,
    CreateNode,
    /// PATCH of `nodes/status`.
    Status,
    ReadLease,
    CreateLease,
    /// PATCH of the Lease.
    Renew,
    Event,
    Other,
}

impl Kind {
    pub fn of(method: &str, path: &str) -> Kind {
        let tail = |prefix: &str| path.strip_prefix(prefix).map(|rest| rest.trim_matches('/').to_owned());
        let node = tail("/api/v1/nodes");
        let lease = tail("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
        match (method, node, lease) {
            ("GET", Some(_), _) => Kind::ReadNode,
            ("POST", Some(_), _) => Kind::CreateNode,
            ("PATCH", Some(_), _) => Kind::Status,
            ("GET", _, Some(_)) => Kind::ReadLease,
            ("POST", _, Some(_)) => Kind::CreateLease,
            ("PATCH" | "PUT", _, Some(_)) => Kind::Renew,
            ("GET", ..) if path == "/version" => Kind::Version,
            _ if path.starts_with("/api/v1/namespaces/default/events") => Kind::Event,
            _ => Kind::Other,
        }
    }
}

/// Every request.
pub const ALL: &[Kind] = &[
    Kind::Version,
    Kind::ReadNode,
    Kind::CreateNode,
    Kind::Status,
    Kind::ReadLease,
    Kind::CreateLease,
    Kind::Renew,
    Kind::Event,
    Kind::Other,
];
/// Everything but the Lease, whose renewals must go on meanwhile.
pub const NOT_THE_LEASE: &[Kind] =
    &[Kind::Version, Kind::ReadNode, Kind::CreateNode, Kind::Status, Kind::Event, Kind::Other];
pub const LEASE: &[Kind] = &[Kind::ReadLease, Kind::CreateLease, Kind::Renew];
pub const EVENTS: &[Kind] = &[Kind::Event];
pub const NODE: &[Kind] = &[Kind::ReadNode, Kind::CreateNode, Kind::Status];
pub const STATUS: &[Kind] = &[Kind::Status];
pub const VERSION: &[Kind] = &[Kind::Version];

/// What is done while the attack is on.
#[derive(Clone, Copy)]
pub enum Act {
    /// Nothing: the attack is a file or a pipe of the board itself, or there is none.
    Nothing,
    /// Instead of the answer to a request that is hit. An error, or the end of the attack, ends the connection.
    Answer(fn(&Hit, &mut Stream) -> io::Result<()>),
    /// On a new connection once TLS is up; requests are served after it, if it lets the connection live.
    Session(fn(&mut Stream, &Going) -> io::Result<()>),
    /// On a new connection instead of TLS.
    Connection(fn(TcpStream, &Going) -> io::Result<()>),
}

/// What must be true of the renewals that the server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewals {
    /// The gap limit holds all through the attack.
    GoOn,
    /// None can be expected while it lasts: the limit holds from its end on.
    ComeBack,
    /// The same, with this limit, seconds: what happens again and again is answered ever more rarely.
    ComeBackWithin(u64),
    /// None can be accepted: a status with a new heartbeat counts as well.
    OrHeartbeats,
}

/// When the attack begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    /// A renewal was accepted.
    Peace,
    /// From the start, and the agent is stopped and started again in the middle of it.
    StartAndAgain,
    /// A renewal was accepted; the agent is stopped and started again in the middle of it.
    PeaceAndAgain,
}

/// What must hold besides the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The Node is there so many seconds after the start, attack or not.
    RegisteredWithin(u64),
    /// No request of this kind is sent while the attack is on.
    Never(Kind),
    /// So many events of this reason are with the server within a minute after the end of the attack.
    Told(&'static str, usize),
    /// The Node is reported Ready by the end.
    Ready,
}

/// How the program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    Plain,
    /// Its standard error is a pipe that is full and that nobody reads while the attack is on.
    FullPipe,
    /// The server has a name with three addresses; the attack is on the first two, on connections to them.
    ThreeAddresses,
    /// The way to the server leads through an HTTP proxy, which is what is attacked.
    Proxy,
}

/// A change of the board's own files.
pub type Change = fn(&Path) -> Result<(), String>;

/// One line of the table.
pub struct Attack {
    pub name: &'static str,
    pub act: Act,
    pub hits: &'static [Kind],
    pub from: From,
    pub renewals: Renewals,
    pub holds: &'static [Hold],
    /// How long it is on.
    pub seconds: u64,
    pub launch: Launch,
    /// Done to the folder of the board before the first start.
    pub prepare: Option<Change>,
    /// Done when the attack begins; SIGHUP follows.
    pub strike: Option<Change>,
    /// The server's certificate is replaced by one for a week when the attack ends.
    pub new_certificate: bool,
    /// TLS tickets that the server sends after each handshake while the attack is on.
    pub tickets: usize,
    /// More lines of the settings file.
    pub settings: &'static str,
}

/// What a line says only where it differs.
pub const USUAL: Attack = Attack {
    name: "",
    act: Act::Nothing,
    hits: ALL,
    from: From::Peace,
    renewals: Renewals::GoOn,
    holds: &[],
    seconds: 30,
    launch: Launch::Plain,
    prepare: None,
    strike: None,
    new_certificate: false,
    tickets: 2,
    settings: "",
};
