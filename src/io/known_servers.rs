//! Turns what was learned of the server into a small file and back: where it was found, for a start while DNS is down,
//! and when the newest certificate was issued that a server of ours proved itself with, or took from us: a moment that is
//! past, for a start in 1970 (D11).
//!
//! ```text
//! nodepulse uplink 1
//! issued 2026-11-21T09:30:00Z
//! address kubernetes.example.com 10.0.0.1
//! address kubernetes.example.com fd00::1
//! traffic 20778 86400 5212345 8934567 26451 2 8640 9063360 ...
//! sum 1f2e3d4c
//! ```
//!
//! A board may run for ten years on one card, so almost nothing is worth a write: a server at an address that the file
//! does not have, an hour after the last write at the earliest, and a certificate that is a day newer. Everything else
//! rides with the next of these, the traffic of today and of the day before above all; and that alone goes along with what
//! is written to the journal, a quarter of a day after the last write at the earliest, and with an orderly end of the process.
//!
//! 0.1.0 kept the server's own dates, as `past`. One that was wrong locked the board out, so they are not read any more.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use heapless::LinearMap;

use super::clock;
use super::disk::KNOWN_SERVERS;
use super::file;
use super::inbox::Flag;
use crate::api::traffic::Day;
use crate::config::limits;
use crate::journal::checksum::crc32c;
use crate::time::{Up, Wall};

const FIRST_LINE: &str = "nodepulse uplink 1";
/// What is newer by this is worth a write: certificates are dated in days.
const ISSUED_STEP: Duration = Duration::from_secs(24 * 3600);
/// How often what changes all the time goes along with other writes.
const RIDE_SPACING: Duration = Duration::from_secs(6 * 3600);

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Content {
    issued: Option<Wall>,
    /// By name of the server or proxy; the address that worked last comes first.
    servers: LinearMap<String, Vec<IpAddr>, { limits::REMEMBERED_SERVERS }>,
    /// Today, and the day before.
    days: [Day; 2],
}

/// What is known of servers now, and what of it is on disk.
#[derive(Default)]
pub struct KnownServers {
    known: RefCell<Content>,
    on_disk: RefCell<Content>,
    /// Something came that is worth a write.
    news: Flag,
    /// The disk was written to, for another reason.
    may_ride: Cell<bool>,
    written_at: Cell<Up>,
}

impl KnownServers {
    /// Reads the file of a state directory. None, an unreadable one and any bytes at all are the same as an empty one.
    pub fn read(state_directory: &str) -> KnownServers {
        let bytes = file::read(&format!("{state_directory}/{KNOWN_SERVERS}"), limits::REMEMBERED_SERVERS_BYTES);
        let known = bytes.ok().and_then(|bytes| Content::parse(&bytes)).unwrap_or_default();
        let on_disk = RefCell::new(known.clone());
        let written_at = Cell::new(clock::up());
        KnownServers { known: RefCell::new(known), on_disk, written_at, ..KnownServers::default() }
    }

    /// What the last processes counted: of their last day, and of the day before.
    pub fn days(&self) -> [Day; 2] {
        self.known.borrow().days.clone()
    }

    /// When the newest certificate was issued: a moment that is known to be past.
    pub fn issued(&self) -> Option<Wall> {
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
        if let Some(last) = last {
            put_first(&mut addresses, last);
        }
        addresses.truncate(limits::SERVER_ADDRESSES);
        // Two for each kubeconfig that this process has seen; the file has room for these.
        let _ = known.servers.insert(host.to_owned(), addresses);
    }

    /// A server answered at this address.
    pub fn worked(&self, host: &str, ip: IpAddr) {
        if let Some(addresses) = self.known.borrow_mut().servers.get_mut(host)
            && addresses.contains(&ip)
        {
            put_first(addresses, ip);
        }
        self.tell_news();
    }

    /// A certificate was issued then, which is past by the server's clock as well.
    pub fn certificate_issued(&self, issued: Wall) {
        let mut known = self.known.borrow_mut();
        known.issued = known.issued.max(Some(issued));
        drop(known);
        self.tell_news();
    }

    /// Ends as soon as there is something worth a write.
    pub async fn worth_writing(&self) {
        while !self.is_worth_writing() && !self.may_ride.get() {
            self.news.raised().await;
        }
    }

    /// All that there is to keep, and what was counted until now.
    pub fn to_bytes(&self, days: [Day; 2]) -> Vec<u8> {
        let mut known = self.known.borrow_mut();
        known.days = days;
        known.to_bytes()
    }

    /// Something else was written to the same disk.
    pub fn disk_written(&self, now: Up) {
        if now - self.written_at.get() >= RIDE_SPACING {
            self.may_ride.set(true);
            self.news.raise();
        }
    }

    /// These bytes are on disk now.
    pub fn written(&self, bytes: &[u8]) {
        if let Some(content) = Content::parse(bytes) {
            self.on_disk.replace(content);
        }
        self.written_at.set(clock::up());
        self.may_ride.set(false);
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
        is_later || known.servers.iter().any(is_new)
    }

    fn tell_news(&self) {
        if self.is_worth_writing() {
            self.news.raise();
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
        for day in self.days.iter().filter(|day| **day != Day::default()) {
            let _ = writeln!(text, "traffic {}", day.to_line());
        }
        let sum = crc32c(&[text.as_bytes()]);
        let _ = writeln!(text, "sum {sum:08x}");
        text.into_bytes()
    }

    /// `None` for anything that was not written by [`Content::to_bytes`] and kept to the last bit.
    fn parse(bytes: &[u8]) -> Option<Content> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= limits::REMEMBERED_SERVERS_BYTES)?;
        let (body, sum) = text.strip_suffix('\n')?.rsplit_once("\nsum ")?;
        let body = text.get(..=body.len())?;
        if u32::from_str_radix(sum, 16).ok()? != crc32c(&[body.as_bytes()]) {
            return None;
        }
        let mut content = Content::default();
        let mut days = content.days.iter_mut();
        let rest = body.strip_prefix(FIRST_LINE)?.strip_prefix('\n')?;
        for line in rest.lines() {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["issued", stamp] => content.issued = Some(Wall::parse_stamp(stamp)?),
                ["address", host, ip] => {
                    let ip = ip.parse().ok()?;
                    match content.servers.get_mut(*host) {
                        Some(addresses) => addresses.push(ip),
                        None => drop(content.servers.insert((*host).to_owned(), vec![ip]).ok()?),
                    }
                }
                ["traffic", numbers @ ..] => {
                    if let (Some(day), Some(read)) = (days.next(), Day::parse(numbers)) {
                        *day = read;
                    }
                }
                // Another version may keep more.
                _ => {}
            }
        }
        let is_small = content.servers.values().all(|addresses| addresses.len() <= limits::SERVER_ADDRESSES);
        is_small.then_some(content)
    }
}

/// The others stay in their order.
fn put_first(addresses: &mut Vec<IpAddr>, ip: IpAddr) {
    addresses.retain(|other| *other != ip);
    addresses.insert(0, ip);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::disk::Disk;
    use crate::io::loopback::TempFolder;
    use crate::io::{clock, reactor::Reactor};
    use crate::journal;

    const DAY_SECONDS: i64 = 24 * 3600;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    fn stamp(day: i64) -> Wall {
        Wall::from_unix_seconds(1_795_219_200 + day * DAY_SECONDS)
    }

    fn full() -> KnownServers {
        let known = KnownServers::default();
        known.found("kubernetes.example.com", &ips(&["10.0.0.1", "fd00::1", "10.0.0.2"]));
        known.worked("kubernetes.example.com", ips(&["fd00::1"])[0]);
        known.certificate_issued(stamp(0));
        known
    }

    /// The bytes that are worth writing now, if any; they are written.
    fn write(known: &KnownServers) -> Option<Vec<u8>> {
        let reactor = Reactor::new().unwrap();
        let soon = clock::up() + Duration::from_millis(5);
        reactor.block_on(reactor.before(soon, known.worth_writing())).unwrap()?;
        let bytes = known.to_bytes(known.days());
        known.written(&bytes);
        Some(bytes)
    }

    #[test]
    fn what_was_learned_is_read_again_with_the_address_that_worked_first() {
        let folder = TempFolder::new();
        let directory = folder.path("");
        assert_eq!(KnownServers::read(&directory).issued(), None);
        let (mut disk, ..) = Disk::open(&directory).unwrap();
        disk.write(KNOWN_SERVERS, &journal::Write::Replace { bytes: write(&full()).unwrap() }).unwrap();
        let known = KnownServers::read(&directory);
        assert_eq!(known.addresses("kubernetes.example.com"), Some(ips(&["fd00::1", "10.0.0.1", "10.0.0.2"])));
        assert_eq!(known.issued(), Some(stamp(0)));
        assert_eq!(write(&known), None, "it is on disk already");
    }

    /// What 0.1.0 wrote after one answer of the year 2035: it kept every certificate out that ends before.
    #[test]
    fn a_date_that_an_earlier_version_wrote_is_not_believed_and_its_addresses_are() {
        let folder = TempFolder::new();
        let body = "nodepulse uplink 1\npast 2035-06-01T00:00:00Z\naddress kubernetes.example.com 10.0.0.1\n";
        let sum = crc32c(&[body.as_bytes()]);
        folder.write(KNOWN_SERVERS, format!("{body}sum {sum:08x}\n").as_bytes());
        let known = KnownServers::read(&folder.path(""));
        assert_eq!((known.issued(), known.addresses("kubernetes.example.com")), (None, Some(ips(&["10.0.0.1"]))));
        known.certificate_issued(stamp(0));
        let written = String::from_utf8(write(&known).unwrap()).unwrap();
        assert!(written.contains("issued 2026-") && !written.contains("2035"), "{written}");
    }

    #[test]
    fn what_is_known_already_is_not_written_again() {
        let known = full();
        assert!(write(&known).is_some());
        known.certificate_issued(stamp(0).plus(ISSUED_STEP - Duration::from_secs(1)));
        known.worked("kubernetes.example.com", ips(&["10.0.0.2"])[0]);
        known.found("kubernetes.example.com", &ips(&["10.0.0.2", "10.0.0.3"]));
        assert_eq!(write(&known), None, "an address that DNS rotates, and a certificate of the same day");
        known.worked("kubernetes.example.com", ips(&["10.0.0.3"])[0]);
        assert!(write(&known).is_some(), "a server where the file has none");
        known.certificate_issued(stamp(2));
        assert!(write(&known).is_some(), "a certificate of another day");
        known.certificate_issued(stamp(1));
        assert_eq!((known.issued(), write(&known)), (Some(stamp(2)), None), "time does not go back");
    }

    #[test]
    fn traffic_goes_along_with_other_writes_a_few_times_a_day_and_after_a_restart_the_day_goes_on() {
        let folder = TempFolder::new();
        let known = full();
        assert!(write(&known).is_some());
        let day = |bytes| Day { number: 20_779, seconds: 60, sent_bytes: bytes, ..Day::default() };
        let bytes = known.to_bytes([day(7), Day::default()]);
        folder.write(KNOWN_SERVERS, &bytes);
        assert_eq!(KnownServers::read(&folder.path("")).days(), [day(7), Day::default()]);
        assert_eq!(write(&known), None, "what is counted is worth no write");
        let written = known.written_at.get();
        known.disk_written(written + (RIDE_SPACING - Duration::from_secs(1)));
        assert_eq!(write(&known), None, "the journal was written to, and this file not long ago");
        known.disk_written(written + RIDE_SPACING);
        assert!(write(&known).is_some());
        assert_eq!(write(&known), None, "once");
        let newer = String::from_utf8(bytes).unwrap().replace("traffic 20779", "traffic today");
        let body = newer.rsplit_once("sum ").unwrap().0;
        folder.write(KNOWN_SERVERS, format!("{body}sum {:08x}\n", crc32c(&[body.as_bytes()])).as_bytes());
        let read = KnownServers::read(&folder.path(""));
        assert!(read.days() == <[Day; 2]>::default() && read.issued().is_some(), "another version's way to say it");
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
        std::os::unix::fs::symlink("/dev/zero", folder.path(KNOWN_SERVERS)).unwrap();
        assert_eq!(KnownServers::read(&folder.path("")).known.into_inner(), Content::default());
        assert_eq!(KnownServers::read("/dev/null").known.into_inner(), Content::default());
        std::fs::remove_file(folder.path(KNOWN_SERVERS)).unwrap();
        nix::unistd::mkfifo(folder.path(KNOWN_SERVERS).as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(KnownServers::read(&folder.path("")).known.into_inner(), Content::default());
    }

    #[test]
    fn the_fullest_file_has_room() {
        let known = full();
        for number in 0..9 {
            let host = format!("{number}{}", "x".repeat(252));
            let many: Vec<IpAddr> =
                (0..40_u16).map(|last| IpAddr::from([0xfd00, 1, 2, 3, 4, 5, 6, 0x1000 + last])).collect();
            known.found(&host, &many);
        }
        let bytes = known.known.borrow().to_bytes();
        assert!(bytes.len() <= limits::REMEMBERED_SERVERS_BYTES, "{}", bytes.len());
        assert_eq!(Content::parse(&bytes), Some(known.known.borrow().clone()));
    }
}
