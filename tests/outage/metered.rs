//! Turns every packet on a board's cable into the bytes that its agent has to answer for.

use super::super::agent::Launch;
use super::super::cluster::{Cluster, NodeIdentity, Result, wait_until};
use super::super::requests::{SOON, is_renewal, wait_until_ready};
use super::Case;
use super::site::{Site, run};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt};
use serde_json::Value;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

pub fn cases() -> Vec<Case> {
    cases![
        cost_says_what_a_capture_sees_over_ipv4,
        cost_says_what_a_capture_sees_over_ipv6,
        cost_says_what_a_capture_sees_where_requests_are_lost,
    ]
}

/// A renewal each second.
const RENEWALS: usize = 25;

/// Packets between one board and the server, counted by the kernel of whoever captures; nothing is read before it is asked for.
struct Capture {
    socket: OwnedFd,
    board: IpAddr,
    port: u16,
    bytes: u64,
    /// Of the board that carry something, and of those that only acknowledge.
    requests: usize,
    acknowledgements: usize,
}

impl Capture {
    fn open(board: IpAddr, port: u16) -> Result<Self> {
        let text = |errno: Errno| format!("no packet socket: {errno}");
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll).map_err(text)?;
        // What all cases say meanwhile comes here too, as root may ask for.
        setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20)).map_err(text)?;
        Ok(Self { socket, board, port, bytes: 0, requests: 0, acknowledgements: 0 })
    }

    /// IP bytes so far, both ways, headers included.
    fn bytes(&mut self) -> Result<u64> {
        let mut buffer = [0; 128];
        loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
                Ok(length) => drop(self.take(&buffer, length)),
                Err(Errno::EAGAIN) => return Ok(self.bytes),
                // Whoever captures too slowly knows nothing.
                Err(errno) => return Err(format!("the capture failed: {errno}")),
            }
        }
    }

    fn take(&mut self, packet: &[u8; 128], length: usize) -> Option<()> {
        const TCP: u8 = 6;
        let (source, destination, protocol, header) = match packet[0] >> 4 {
            4 => {
                let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap_or_default());
                (address(12), address(16), packet[9], usize::from(packet[0] & 15) * 4)
            }
            6 => {
                let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap_or_default());
                (address(8), address(24), packet[6], 40)
            }
            _ => return None,
        };
        let port = |at: usize| u16::from_be_bytes([packet[header + at], packet[header + at + 1]]);
        let is_request = source == self.board;
        let is_ours = is_request || destination == self.board;
        if !is_ours || protocol != TCP || ![port(0), port(2)].contains(&self.port) {
            return None;
        }
        self.bytes += length as u64;
        let headers = header + usize::from(packet[header + 12] >> 4) * 4;
        self.requests += usize::from(is_request && length > headers);
        self.acknowledgements += usize::from(is_request && length == headers);
        Some(())
    }

    /// Until one more of these has been seen.
    fn wait_for_one_more(&mut self, what: &str, of: impl Fn(&Self) -> usize) -> Result<()> {
        self.bytes()?;
        let before = of(self);
        wait_until(what, SOON, || {
            self.bytes()?;
            if of(self) > before { Ok(()) } else { Err("none yet".to_owned()) }
        })
    }
}

/// Of all days: it may be midnight.
fn sum(cost: &Value, of: impl Fn(&Value) -> u64) -> u64 {
    cost["days"].as_array().into_iter().flatten().map(of).sum()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Lives in a site of its own, with a capture from before its start; at the end both are compared.
fn compare(
    cluster: &Cluster,
    hint: &str,
    is_ipv6: bool,
    percent: u64,
    meanwhile: impl Fn(&Site, &mut Capture) -> Result<()>,
) -> Result<()> {
    let (site, node) = (Site::new(cluster)?, cluster.node(hint)?);
    let board =
        if is_ipv6 { Ipv6Addr::new(0xfd77, site.number(), 0, 0, 0, 0, 0, 2).into() } else { site.address(0).into() };
    let host = if is_ipv6 { "[fd77::1]" } else { "10.77.0.1" };
    // As on a true cable: on one of software the kernel hands over several packets as one.
    site.inside(&["ip", "link", "set", "eth0", "gso_max_segs", "1"])?;
    run(&["ip", "link", "set", &site.near(0), "gso_max_segs", "1"])?;
    let mut capture = Capture::open(board, cluster.api.port)?;
    let kubeconfig = site.kubeconfig(&node, &cluster.api, host)?;
    let start = || Launch::quick(&node).kubeconfig(&kubeconfig).inside(site.pid()).start(cluster);
    let mut agent = start()?;
    wait_until_ready(cluster, &node)?;
    meanwhile(&site, &mut capture)?;
    wait_for_renewals(cluster, &node, &mut capture)?;
    // Between two looks at the capture, as the agent does not stand still.
    let before = capture.bytes()?;
    let said = agent.cost(&[])?;
    let after = capture.bytes()?;
    assert_eq!(said["isRunning"], true, "{said:#}");
    let whole = sum(&said, |day| number(&day["bytes"]));
    let names = sum(&said, |day| number(&day["purposes"]["names"]["bytes"]));
    let connections = sum(&said, |day| number(&day["sentBytes"]) + number(&day["receivedBytes"]));
    assert_eq!(whole - names, connections, "what is said of purposes makes the kernel's sum: {said:#}");
    let each = |purpose: &str| {
        let of = |what: &str| sum(&said, |day| number(&day["purposes"][purpose][what]));
        format!("{purpose} {}", of("bytes") / of("count").max(1))
    };
    eprintln!("  {hint}: on average {}", ["lease", "assertion", "status", "handshake"].map(each).join(", "));
    eprintln!("  {hint}: the capture has {before} to {after} bytes, cost says {connections}");
    let (least, most) = (before * (100 - percent), after * (100 + percent));
    assert!((least..=most).contains(&(connections * 100)), "{before} to {after}, not {connections}: {said:#}");
    let renewals = sum(&said, |day| number(&day["purposes"]["lease"]["count"]));
    assert!(renewals >= RENEWALS as u64, "{said:#}");
    assert!(said["process"]["peakMemoryKiB"].as_u64() > Some(500), "{said:#}");
    assert_eq!(said["thirtyDaysAsSet"], Value::Null, "it runs with these settings");
    // A renewal each twenty seconds instead of each second.
    let rarely = agent.cost(&["--node-lease-duration-seconds", "80"])?;
    let of_lease = |when: &str| number(&rarely[when]["purposes"]["lease"]["bytes"]);
    let [often, rarely] = ["thirtyDays", "thirtyDaysAsSet"].map(of_lease);
    assert!(rarely > 0 && rarely < often / 4, "{rarely} and {often}");
    assert_eq!(agent.stop()?, 0);
    let kept = agent.cost(&[])?;
    assert_eq!(kept["isRunning"], false, "{kept:#}");
    let all = |said: &Value| sum(said, |day| number(&day["bytes"]));
    assert!(all(&kept) >= whole, "nothing is lost by an orderly end: {kept:#}");
    // The next process goes on.
    let mut next = start()?;
    wait_until("more than was kept", SOON, || {
        let said = next.cost(&[])?;
        if said["isRunning"] == true && all(&said) > all(&kept) { Ok(()) } else { Err(format!("{said:#}")) }
    })?;
    next.check()
}

/// The capture is read meanwhile: of what does not fit where it waits to be read, nothing says that it is missing.
fn wait_for_renewals(cluster: &Cluster, node: &NodeIdentity, capture: &mut Capture) -> Result<()> {
    wait_until("so many renewals", 6 * SOON, || {
        capture.bytes()?;
        let renewals = cluster.audit_of(node)?.iter().filter(|e| is_renewal(e)).count();
        if renewals >= RENEWALS { Ok(()) } else { Err(format!("{renewals} of them")) }
    })
}

fn cost_says_what_a_capture_sees_over_ipv4(cluster: &Cluster) -> Result<()> {
    compare(cluster, "metered", false, 2, |_, _| Ok(()))
}

fn cost_says_what_a_capture_sees_over_ipv6(cluster: &Cluster) -> Result<()> {
    compare(cluster, "metered-6", true, 2, |_, _| Ok(()))
}

/// Each time from when nothing is under way until a request is lost: the kernel sends it again. What comes for a connection that
/// was given up meanwhile, or a second time, no kernel counts for us: on a slow machine some percent of so short a life.
fn cost_says_what_a_capture_sees_where_requests_are_lost(cluster: &Cluster) -> Result<()> {
    compare(cluster, "metered-lossy", false, 10, |site, capture| {
        let board = site.address(0).to_string();
        for _ in 0..2 {
            capture.wait_for_one_more("an acknowledgement", |seen| seen.acknowledgements)?;
            site.swallow(&[&["from", &board]])?;
            let lost = capture.wait_for_one_more("a request", |seen| seen.requests);
            site.swallow_no_more(&[&["from", &board]])?;
            lost?;
        }
        Ok(())
    })
}
