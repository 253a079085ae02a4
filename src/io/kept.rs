//! Turns what was learned of the server into a small file and back: where it was found, for a start while DNS is down,
//! and when the newest certificate was issued that a server of ours proved itself with, or took from us: a moment that is
//! past, for a start in 1970 (D11).
//!
//! ```text
//! nodepulse uplink 1
//! issued 2026-11-21T09:30:00Z
//! address kubernetes.example.com 10.0.0.1
//! address kubernetes.example.com fd00::1
//! sum 1f2e3d4c
//! ```
//!
//! A board may run for ten years on one card, so almost nothing is worth a write: a server at an address that the file
//! does not have, an hour after the last write at the earliest, and a certificate that is a day newer. Everything else
//! rides with the next of these.
//!
//! 0.1.0 kept the server's own dates, as `past`. One that was wrong locked the board out, so they are not read any more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::future::poll_fn;
use std::net::IpAddr;
use std::path::PathBuf;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::file;
use crate::config::limits;
use crate::journal::checksum::crc32c;
use crate::time::Wall;

/// In the state directory.
pub const FILE_NAME: &str = "uplink";
const FIRST_LINE: &str = "nodepulse uplink 1";
/// What is newer by this is worth a write: certificates are dated in days.
const ISSUED_STEP: Duration = Duration::from_secs(24 * 3600);

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Content {
    issued: Option<Wall>,
    /// By name of the server or proxy; the address that worked last comes first.
    servers: BTreeMap<String, Vec<IpAddr>>,
}

/// What is known of servers now, and what of it is on disk.
#[derive(Default)]
pub struct Kept {
    /// `None`: nothing is read or written.
    path: Option<PathBuf>,
    known: RefCell<Content>,
    on_disk: RefCell<Content>,
    writer: Cell<Option<Waker>>,
}

impl Kept {
    /// Reads the file of a state directory. None, an unreadable one and any bytes at all are the same as an empty one.
    pub fn read(state_directory: &str) -> Kept {
        let path = PathBuf::from(state_directory).join(FILE_NAME);
        let bytes = path.to_str().and_then(|path| file::read(path, limits::KEPT_FILE_BYTES).ok());
        let known = bytes.and_then(|bytes| Content::parse(&bytes)).unwrap_or_default();
        let on_disk = RefCell::new(known.clone());
        Kept { path: Some(path), known: RefCell::new(known), on_disk, writer: Cell::default() }
    }

    pub fn path(&self) -> Option<&PathBuf> {
        self.path.as_ref()
    }

    /// A moment that is known to be past.
    pub fn past(&self) -> Option<Wall> {
        self.known.borrow().issued
    }

    /// Where a server was found last, the address that worked last first.
    pub fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        self.known.borrow().servers.get(host).cloned()
    }

    /// DNS says where a server is. The address that worked last stays first, also if DNS does not name it any more.
    pub fn found(&self, host: &str, addresses: &[IpAddr]) {
        let mut known = self.known.borrow_mut();
        let last = known.servers.get(host).and_then(|old| old.first()).copied();
        let mut addresses = addresses.to_vec();
        // Stable: only that one moves.
        addresses.sort_by_key(|ip| Some(*ip) != last);
        if let Some(last) = last.filter(|last| addresses.first() != Some(last)) {
            addresses.insert(0, last);
        }
        addresses.truncate(limits::SERVER_ADDRESSES);
        // Two for each kubeconfig that this process has seen; the file has room for these.
        if known.servers.len() < limits::KEPT_SERVERS || known.servers.contains_key(host) {
            known.servers.insert(host.to_owned(), addresses);
        }
    }

    /// A server answered at this address.
    pub fn worked(&self, host: &str, ip: IpAddr) {
        if let Some(addresses) = self.known.borrow_mut().servers.get_mut(host) {
            addresses.sort_by_key(|other| *other != ip);
        }
        self.wake();
    }

    /// A certificate was issued then, which is past by the server's clock as well.
    pub fn passed(&self, issued: Wall) {
        let mut known = self.known.borrow_mut();
        known.issued = known.issued.max(Some(issued));
        drop(known);
        self.wake();
    }

    /// The bytes to be written, as soon as there is something worth it.
    pub async fn worth_writing(&self) -> Vec<u8> {
        poll_fn(|context| {
            if self.is_worth_writing() {
                return Poll::Ready(self.known.borrow().to_bytes());
            }
            self.writer.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await
    }

    /// These bytes are on disk now.
    pub fn written(&self, bytes: &[u8]) {
        if let Some(content) = Content::parse(bytes) {
            self.on_disk.replace(content);
        }
    }

    fn is_worth_writing(&self) -> bool {
        let (known, on_disk) = (self.known.borrow(), self.on_disk.borrow());
        let is_new = |(host, addresses): (&String, &Vec<IpAddr>)| {
            addresses.first().is_some_and(|ip| !on_disk.servers.get(host).is_some_and(|old| old.contains(ip)))
        };
        let is_later = match (known.issued, on_disk.issued) {
            (Some(now), Some(then)) => now.since(then) >= ISSUED_STEP,
            (now, _) => now.is_some(),
        };
        self.path.is_some() && (is_later || known.servers.iter().any(is_new))
    }

    fn wake(&self) {
        if let Some(writer) = self.writer.take() {
            if self.is_worth_writing() { writer.wake() } else { self.writer.set(Some(writer)) }
        }
    }
}

impl Content {
    fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{FIRST_LINE}\n");
        // Writing to a string cannot fail.
        if let Some(issued) = self.issued {
            let _ = writeln!(text, "issued {}", issued.to_seconds_stamp());
        }
        for (host, addresses) in &self.servers {
            for ip in addresses {
                let _ = writeln!(text, "address {host} {ip}");
            }
        }
        let sum = crc32c(&[text.as_bytes()]);
        let _ = writeln!(text, "sum {sum:08x}");
        text.into_bytes()
    }

    /// `None` for anything that was not written by [`Content::to_bytes`] and kept to the last bit.
    fn parse(bytes: &[u8]) -> Option<Content> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= limits::KEPT_FILE_BYTES)?;
        let (body, sum) = text.strip_suffix('\n')?.rsplit_once("\nsum ")?;
        let body = text.get(..=body.len())?;
        if u32::from_str_radix(sum, 16).ok()? != crc32c(&[body.as_bytes()]) {
            return None;
        }
        let mut content = Content::default();
        let rest = body.strip_prefix(FIRST_LINE)?.strip_prefix('\n')?;
        for line in rest.lines() {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["issued", stamp] => content.issued = Some(Wall::parse_stamp(stamp)?),
                ["address", host, ip] => {
                    let addresses = content.servers.entry((*host).to_owned()).or_default();
                    addresses.push(ip.parse().ok()?);
                }
                // Another version may keep more.
                _ => {}
            }
        }
        let is_small = content.servers.len() <= limits::KEPT_SERVERS
            && content.servers.values().all(|addresses| addresses.len() <= limits::SERVER_ADDRESSES);
        is_small.then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::loopback::TempFolder;
    use crate::io::{aside, clock, reactor::Reactor};

    const DAY_SECONDS: i64 = 24 * 3600;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    fn stamp(day: i64) -> Wall {
        Wall::from_unix_seconds(1_795_219_200 + day * DAY_SECONDS)
    }

    fn full() -> Kept {
        let kept = Kept { path: Some(PathBuf::from("/nowhere")), ..Kept::default() };
        kept.found("kubernetes.example.com", &ips(&["10.0.0.1", "fd00::1", "10.0.0.2"]));
        kept.worked("kubernetes.example.com", ips(&["fd00::1"])[0]);
        kept.passed(stamp(0));
        kept
    }

    /// The bytes that are worth writing now, if any; they are written.
    fn write(kept: &Kept) -> Option<Vec<u8>> {
        let reactor = Reactor::new().unwrap();
        let soon = clock::up() + Duration::from_millis(5);
        let bytes = reactor.block_on(reactor.before(soon, kept.worth_writing())).unwrap()?;
        kept.written(&bytes);
        Some(bytes)
    }

    #[test]
    fn what_was_learned_is_read_again_with_the_address_that_worked_first() {
        let folder = TempFolder::new();
        let directory = folder.path("");
        assert_eq!(Kept::read(&directory).past(), None);
        aside::replace(folder.path(FILE_NAME).as_ref(), &write(&full()).unwrap()).unwrap();
        let kept = Kept::read(&directory);
        assert_eq!(kept.addresses("kubernetes.example.com"), Some(ips(&["fd00::1", "10.0.0.1", "10.0.0.2"])));
        assert_eq!(kept.past(), Some(stamp(0)));
        assert_eq!(write(&kept), None, "it is on disk already");
    }

    /// What 0.1.0 wrote after one answer of the year 2035: it kept every certificate out that ends before.
    #[test]
    fn a_date_that_an_earlier_version_kept_is_not_believed_and_its_addresses_are() {
        let folder = TempFolder::new();
        let body = "nodepulse uplink 1\npast 2035-06-01T00:00:00Z\naddress kubernetes.example.com 10.0.0.1\n";
        let sum = crc32c(&[body.as_bytes()]);
        folder.write(FILE_NAME, format!("{body}sum {sum:08x}\n").as_bytes());
        let kept = Kept::read(&folder.path(""));
        assert_eq!((kept.past(), kept.addresses("kubernetes.example.com")), (None, Some(ips(&["10.0.0.1"]))));
        kept.passed(stamp(0));
        let written = String::from_utf8(write(&kept).unwrap()).unwrap();
        assert!(written.contains("issued 2026-") && !written.contains("2035"), "{written}");
    }

    #[test]
    fn what_is_known_already_is_not_written_again() {
        let kept = full();
        assert!(write(&kept).is_some());
        kept.passed(stamp(0).plus(ISSUED_STEP - Duration::from_secs(1)));
        kept.worked("kubernetes.example.com", ips(&["10.0.0.2"])[0]);
        kept.found("kubernetes.example.com", &ips(&["10.0.0.2", "10.0.0.3"]));
        assert_eq!(write(&kept), None, "an address that DNS rotates, and a certificate of the same day");
        kept.worked("kubernetes.example.com", ips(&["10.0.0.3"])[0]);
        assert!(write(&kept).is_some(), "a server where the file has none");
        kept.passed(stamp(2));
        assert!(write(&kept).is_some(), "a certificate of another day");
        kept.passed(stamp(1));
        assert_eq!((kept.past(), write(&kept)), (Some(stamp(2)), None), "time does not go back");
    }

    #[test]
    fn a_file_changed_in_any_bit_or_cut_anywhere_says_nothing() {
        let bytes = full().known.borrow().to_bytes();
        assert!(Content::parse(&bytes).is_some());
        for end in 0..bytes.len() {
            assert_eq!(Content::parse(&bytes[..end]), None, "cut at {end}");
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[end] ^= 1 << bit;
                let read = Content::parse(&changed);
                // Only the case of the sum's own digits may change without harm.
                assert!(read.is_none() || changed.eq_ignore_ascii_case(&bytes), "bit {bit} of {end}: {read:?}");
            }
        }
        for strange in [&b""[..], b"\n", b"sum ", b"\nsum 0\n", &[0xff; 100], &[b'\n'; 100_000]] {
            assert_eq!(Content::parse(strange), None);
        }
    }

    #[test]
    fn a_file_without_an_end_and_a_directory_are_no_file() {
        let folder = TempFolder::new();
        std::os::unix::fs::symlink("/dev/zero", folder.path(FILE_NAME)).unwrap();
        assert_eq!(Kept::read(&folder.path("")).known.into_inner(), Content::default());
        assert_eq!(Kept::read("/dev/null").known.into_inner(), Content::default());
        std::fs::remove_file(folder.path(FILE_NAME)).unwrap();
        nix::unistd::mkfifo(folder.path(FILE_NAME).as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(Kept::read(&folder.path("")).known.into_inner(), Content::default());
    }

    #[test]
    fn the_fullest_file_has_room() {
        let kept = full();
        for number in 0..9 {
            let host = format!("{number}{}", "x".repeat(252));
            let many: Vec<IpAddr> =
                (0..40_u16).map(|last| IpAddr::from([0xfd00, 1, 2, 3, 4, 5, 6, 0x1000 + last])).collect();
            kept.found(&host, &many);
        }
        let bytes = kept.known.borrow().to_bytes();
        assert!(bytes.len() <= limits::KEPT_FILE_BYTES, "{}", bytes.len());
        assert_eq!(Content::parse(&bytes), Some(kept.known.borrow().clone()));
    }
}
