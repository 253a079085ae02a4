//! Turns the loopback interface into the IP bytes of each request, ACKs included, both ways.
//!
//! Each client has an address of its own for the same server, or one of its own behind a cable, so an address tells whose
//! a packet is. A packet socket for IPv4 alone sees a packet when it arrives: on loopback each once. One for everything
//! sees what leaves as well: on a cable each once, where only one end of it is in this network.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;

use super::cluster::{AuditEntry, Result};

/// One packet of one client.
#[derive(Debug, Clone, Copy)]
struct Packet {
    at_us: u64,
    server: IpAddr,
    client: IpAddr,
    /// The client's, which says on which of its connections.
    port: u16,
    to_server: bool,
    ip_bytes: u64,
    payload: bool,
    /// It begins a connection.
    begins: bool,
}

/// What the packets of one connection took, in either direction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Connection {
    port: u16,
    /// It was begun meanwhile, not before.
    pub is_new: bool,
    /// Packets and bytes.
    pub to_server: (u64, u64),
    pub to_client: (u64, u64),
}

impl Connection {
    pub fn ip_bytes(&self) -> u64 {
        self.to_server.1 + self.to_client.1
    }
}

impl Packet {
    fn is_of(&self, address: IpAddr) -> bool {
        self.server == address || self.client == address
    }
}

/// What a capture sees each packet of once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    Loopback,
    EveryCable,
}

/// Everything seen since it was opened.
pub struct Capture {
    packets: Arc<Mutex<Vec<Packet>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// Needs root (CAP_NET_RAW). Keeps what goes to and from `port`.
    pub fn open(port: u16, sees: Sees) -> Result<Capture> {
        let text = |errno: Errno| format!("no packet socket: {errno}");
        let family = AddressFamily::Packet;
        let protocol = if sees == Sees::Loopback { SockProtocol::EthIp } else { SockProtocol::EthAll };
        let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol).map_err(text)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(text)?;
        setsockopt(&socket, sockopt::RcvBuf, &(4 << 20)).map_err(text)?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000)).map_err(text)?;
        let (packets, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (kept, stopped) = (Arc::clone(&packets), Arc::clone(&stop));
        let thread = std::thread::spawn(move || listen(&socket, port, &kept, &stopped));
        Ok(Capture { packets, stop, thread: Some(thread) })
    }

    /// IP bytes to and from `address` between two moments (microseconds since 1970).
    pub fn bytes(&self, address: IpAddr, from_us: u64, to_us: u64) -> u64 {
        let packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = packets.iter().filter(|p| p.is_of(address) && (from_us..to_us).contains(&p.at_us));
        wanted.map(|packet| packet.ip_bytes).sum()
    }

    /// The same, for each connection in the order of their first packets.
    pub fn connections(&self, address: IpAddr, from_us: u64, to_us: u64) -> Vec<Connection> {
        let packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = packets.iter().filter(|p| p.is_of(address) && (from_us..to_us).contains(&p.at_us));
        let mut all: Vec<Connection> = Vec::new();
        for packet in wanted {
            if !all.iter().any(|known| known.port == packet.port) {
                all.push(Connection { port: packet.port, ..Connection::default() });
            }
            let Some(connection) = all.iter_mut().find(|known| known.port == packet.port) else { continue };
            connection.is_new |= packet.begins;
            let way = if packet.to_server { &mut connection.to_server } else { &mut connection.to_client };
            *way = (way.0 + 1, way.1 + packet.ip_bytes);
        }
        all
    }

    /// The longest IP packet to or from `address` so far.
    pub fn longest_packet_bytes(&self, address: IpAddr) -> u64 {
        let packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        packets.iter().filter(|p| p.is_of(address)).map(|packet| packet.ip_bytes).max().unwrap_or(0)
    }

    /// Every exchange of one client, in order.
    ///
    /// An exchange begins with a segment that carries something to the server, after the server has said something on
    /// the same connection, and lasts until the next. What begins without a request of its own (a window update, a ping,
    /// news of a watch) belongs to the one before on that connection.
    pub fn exchanges(&self, address: IpAddr, audit: &[AuditEntry]) -> Vec<Exchange> {
        let packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connections: BTreeMap<u16, Vec<Packet>> = BTreeMap::new();
        for packet in packets.iter().filter(|packet| packet.is_of(address)) {
            connections.entry(packet.port).or_default().push(*packet);
        }
        let mut groups: Vec<(u16, Exchange)> = Vec::new();
        for (port, packets) in connections {
            groups.extend(turns(packets).into_iter().map(|exchange| (port, exchange)));
        }
        groups.sort_by_key(|(_, exchange)| exchange.at_us);
        for entry in audit {
            let begun = groups.iter_mut().take_while(|(_, group)| group.at_us <= entry.received_at_us);
            if let Some((_, group)) = begun.last() {
                group.requests.push(Kind::of(entry));
            }
        }
        // Stable: within one connection they stay in order.
        groups.sort_by_key(|(port, _)| *port);
        groups.dedup_by(|(port, group), (port_before, before)| {
            let joins = group.requests.is_empty() && port == port_before;
            if joins {
                before.ip_bytes += group.ip_bytes;
                before.packets += group.packets;
            }
            joins
        });
        groups.sort_by_key(|(_, exchange)| exchange.at_us);
        groups.into_iter().map(|(_, exchange)| exchange).collect()
    }
}

/// The exchanges of one connection, not yet named.
fn turns(mut packets: Vec<Packet>) -> Vec<Exchange> {
    packets.sort_by_key(|packet| packet.at_us);
    let mut groups: Vec<Exchange> = Vec::new();
    let mut server_spoke = true;
    for packet in packets {
        if packet.to_server && packet.payload && server_spoke {
            groups.push(Exchange { at_us: packet.at_us, ip_bytes: 0, packets: 0, requests: Vec::new() });
            server_spoke = false;
        }
        server_spoke |= !packet.to_server && packet.payload;
        if let Some(group) = groups.last_mut() {
            group.ip_bytes += packet.ip_bytes;
            group.packets += 1;
        }
    }
    groups
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic with anything that would be news here.
            let _ = thread.join();
        }
    }
}

/// One request and everything the wire carried for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    pub at_us: u64,
    pub ip_bytes: u64,
    pub packets: u64,
    /// What the server's audit log says it was; several where a client does not wait for the answer.
    pub requests: Vec<Kind>,
}

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Renewal,
    /// A status PATCH that carries heartbeat times.
    Report,
    /// A status PATCH without: nothing changes, and nothing is written.
    Assertion,
    Other,
}

impl Kind {
    /// What comes often first.
    pub const ALL: [Kind; 4] = [Kind::Renewal, Kind::Assertion, Kind::Report, Kind::Other];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Renewal => "renewal",
            Kind::Report => "report",
            Kind::Assertion => "assertion",
            Kind::Other => "another request",
        }
    }

    pub fn of(entry: &AuditEntry) -> Kind {
        let lease = entry.uri.contains("/leases/");
        let status = entry.uri.contains("/nodes/") && entry.uri.contains("/status");
        match entry.verb.as_str() {
            "update" | "patch" if lease => Kind::Renewal,
            "patch" if status && entry.body.to_string().contains("lastHeartbeatTime") => Kind::Report,
            "patch" if status => Kind::Assertion,
            _ => Kind::Other,
        }
    }
}

fn listen(socket: &OwnedFd, port: u16, kept: &Mutex<Vec<Packet>>, stopped: &AtomicBool) {
    // Headers are enough: their length fields tell the rest.
    let mut buffer = [0; 128];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    while !stopped.load(Ordering::Relaxed) {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let received = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::empty());
        let Ok(message) = received else { continue };
        let stamp = message.cmsgs().ok().and_then(|mut all| {
            all.find_map(|one| match one {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
                _ => None,
            })
        });
        let length = message.bytes;
        let packet = stamp.and_then(|stamp| parse(buffer.get(..length)?, port, stamp));
        kept.lock().unwrap_or_else(PoisonError::into_inner).extend(packet);
    }
}

fn parse(bytes: &[u8], port: u16, stamp: Duration) -> Option<Packet> {
    const TCP: u8 = 6;
    const SYN: u8 = 0x02;
    const SYN_ACK: u8 = 0x12;
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let four = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
    let six = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?));
    let first = *bytes.first()?;
    let (header, ip_bytes, protocol, source, destination) = match first >> 4 {
        4 => (usize::from(first & 15) * 4, u64::from(word(2)?), *bytes.get(9)?, four(12)?, four(16)?),
        6 => (40, 40 + u64::from(word(4)?), *bytes.get(6)?, six(8)?, six(24)?),
        _ => return None,
    };
    if protocol != TCP {
        return None;
    }
    let (from, to) = (word(header)?, word(header + 2)?);
    if from != port && to != port {
        return None;
    }
    let to_server = to == port;
    let tcp_header = usize::from(*bytes.get(header + 12)? >> 4) * 4;
    let payload = ip_bytes > u64::try_from(header + tcp_header).ok()?;
    let begins = to_server && *bytes.get(header + 13)? & SYN_ACK == SYN;
    let at_us = u64::try_from(stamp.as_micros()).ok()?;
    let (server, client, port) = if to_server { (destination, source, from) } else { (source, destination, to) };
    Some(Packet { at_us, server, client, port, to_server, ip_bytes, payload, begins })
}
