//! Turns the counters of the interface that the default route leads through into how well the board is connected.
//!
//! ```text
//! /sys/class/net/eth0/carrier_changes       4\n             up and down, since its driver was loaded
//! /sys/class/net/eth0/speed                 1000\n          Mb/s; -1, or an error: not known
//! /sys/class/net/eth0/statistics/rx_errors  0\n
//! /sys/class/net/wwan0/uevent               DEVTYPE=wwan\n  a modem
//! /proc/net/wireless                        wlan0: 0000   70.  -40.  -256  ...    quality, level in dBm, noise
//! ```

use std::time::Duration;

use super::facts::{Absent, Fact, Uplink, UplinkHistory, Why};
use super::network::INTERFACES;
use super::root::{OpenFile, Root};
use super::{attribute, routes};
use crate::config::limits::UPLINKS;
use crate::time::{Every, Up};

/// How far back changes are counted.
const LOOKED_BACK: Duration = Duration::from_secs(600);
/// After a boot, or once a device was plugged in, its carrier comes and goes.
const SETTLES: Duration = Duration::from_secs(120);
/// What an interface that does not know its speed may say for it, beside -1.
const SPEEDS_MBPS: std::ops::RangeInclusive<u64> = 1..=65_534;
/// Weaker than what any radio hears, dBm: not known.
const WEAKEST_DBM: i64 = -200;

/// The files of the interfaces that a default route led through, kept open.
#[derive(Debug)]
pub(super) struct UplinkFiles {
    minutes: Every,
    routes: Every,
    /// A carrier has come or gone, so that the route may have moved: the next look searches.
    has_moved: bool,
    carriers: Vec<Carrier>,
    /// When, and how many.
    changes: Vec<(Up, u64)>,
    /// Until then changes are of no account.
    settled_at: Up,
    link: Option<Link>,
}

#[derive(Debug)]
struct Carrier {
    interface: String,
    file: OpenFile,
    changes: u64,
}

/// The interface in use.
#[derive(Debug)]
struct Link {
    said: Uplink,
    is_modem: bool,
    is_wireless: bool,
    /// Errors and packets since its driver was loaded.
    counted: Option<(u64, u64)>,
}

impl UplinkFiles {
    pub(super) fn new() -> UplinkFiles {
        UplinkFiles {
            minutes: Every::MINUTE,
            routes: Every::TEN_MINUTES,
            has_moved: false,
            carriers: Vec::new(),
            changes: Vec::new(),
            settled_at: Up::BOOT + SETTLES,
            link: None,
        }
    }

    /// What is known of it; `None`: no default route has led through an interface with a carrier. To be asked with each look at
    /// the board; once a minute it reads a file for each interface, every ten minutes a few more.
    pub(super) fn look(&mut self, root: &Root, now: Up) -> Option<Fact<Uplink>> {
        let (is_due, is_minute) = (self.routes.is_due(now), self.minutes.is_due(now));
        let is_search = is_due || std::mem::take(&mut self.has_moved);
        if is_minute {
            self.has_moved = self.count_changes(root, now);
        }
        if is_search {
            self.find(root);
        }
        let interface = &self.link.as_ref()?.said.interface;
        if !self.is_watched(interface) {
            return Some(Err(Absent::new(&carrier_of(interface), Why::NoSuchFile)));
        }
        let link = self.link.as_mut()?;
        if is_search || is_minute {
            link.said.history.carrier_changes =
                self.changes.iter().map(|(_, changes)| *changes).fold(0, u64::saturating_add);
            link.listen(root, is_due);
        }
        Some(Ok(link.said.clone()))
    }

    /// From when on a look reads files that may be slow: drivers are asked for a speed, and interfaces may be new.
    pub(super) fn search_due(&self) -> Up {
        if self.has_moved { Up::BOOT } else { self.routes.next() }
    }

    /// Answers whether anything has changed.
    fn count_changes(&mut self, root: &Root, now: Up) -> bool {
        let (mut more, mut is_other) = (0_u64, false);
        self.carriers.retain_mut(|carrier| {
            let Ok(changes) = carrier.file.count(root) else {
                is_other = true;
                return false;
            };
            match changes.checked_sub(std::mem::replace(&mut carrier.changes, changes)) {
                Some(added) => more = more.saturating_add(added),
                // Plugged in again.
                None => is_other = true,
            }
            true
        });
        if is_other {
            self.settled_at = self.settled_at.max(now + SETTLES);
            if let Some(link) = &mut self.link {
                (link.counted, link.said.history.fastest_mbps) = (None, None);
            }
        }
        self.changes.retain(|(at, _)| now - *at < LOOKED_BACK);
        if more > 0 && now >= self.settled_at {
            self.changes.push((now, more));
        }
        more > 0 || is_other
    }

    /// Where there is no default route, the interface stays that of before: nobody sees what its carrier does meanwhile but us.
    fn find(&mut self, root: &Root) {
        let Some(interface) = default_interface(root) else { return };
        let folder = format!("{INTERFACES}/{interface}");
        for name in root.list(&folder).unwrap_or_default() {
            // What is below a bridge, a bond or a VLAN, but for what a program made.
            if let Some(below) = name.strip_prefix("lower_")
                && root.exists(&format!("{INTERFACES}/{below}/device"))
            {
                self.watch(root, below);
            }
        }
        self.watch(root, &interface);
        let before = self.link.take_if(|link| link.said.interface != interface);
        if self.link.is_some() || before.is_none() && !self.is_watched(&interface) {
            return;
        }
        let uevent = root.read_table(&format!("{folder}/uevent")).unwrap_or_default();
        let is_modem = uevent.lines().any(|line| line == "DEVTYPE=wwan");
        let moved_from = before.filter(|_| is_modem).and_then(|before| match before.is_modem {
            true => before.said.history.moved_from,
            false => Some(before.said.interface),
        });
        let is_wireless = signal_dbm(root, &interface).is_some();
        let history = UplinkHistory { moved_from, ..UplinkHistory::default() };
        let said = Uplink { interface, history, ..Uplink::default() };
        self.link = Some(Link { said, is_modem, is_wireless, counted: None });
    }

    fn watch(&mut self, root: &Root, interface: &str) {
        if self.is_watched(interface) {
            return;
        }
        let mut file = OpenFile::new(carrier_of(interface));
        let Ok(changes) = file.count(root) else { return };
        if self.carriers.len() == UPLINKS {
            self.carriers.clear();
        }
        self.carriers.push(Carrier { interface: interface.to_owned(), file, changes });
    }

    fn is_watched(&self, interface: &str) -> bool {
        self.carriers.iter().any(|known| known.interface == interface)
    }
}

impl Link {
    fn listen(&mut self, root: &Root, is_due: bool) {
        if is_due || self.counted.is_none() {
            self.measure(root);
        }
        if self.is_wireless {
            self.said.signal_dbm = signal_dbm(root, &self.said.interface);
        }
    }

    /// Its speed, and what has been lost since the last time.
    fn measure(&mut self, root: &Root) {
        let Link { said, counted, .. } = self;
        let number = |name: &str| {
            let text = root.read_text(&format!("{INTERFACES}/{}/{name}", said.interface));
            text.ok().and_then(|text| attribute::count(&text).ok())
        };
        let sum = |names: [&str; 2]| names.iter().filter_map(|name| number(name)).fold(0, u64::saturating_add);
        said.speed_mbps = number("speed").filter(|speed| SPEEDS_MBPS.contains(speed));
        said.history.fastest_mbps = said.history.fastest_mbps.max(said.speed_mbps);
        let now = (
            sum(["statistics/rx_errors", "statistics/tx_errors"]),
            sum(["statistics/rx_packets", "statistics/tx_packets"]),
        );
        let (errors, packets) = counted.replace(now).unwrap_or(now);
        // Drivers begin anew after 32 bits.
        (said.history.errors, said.history.packets) = (now.0.saturating_sub(errors), now.1.saturating_sub(packets));
    }
}

fn carrier_of(interface: &str) -> String {
    format!("{INTERFACES}/{interface}/carrier_changes")
}

/// Of several default routes the one with the lowest metric; of IPv6 where IPv4 has none.
fn default_interface(root: &Root) -> Option<String> {
    let table = |name: &str| root.read_namespace_table(name).unwrap_or_default();
    let mut found = routes::defaults_v4(&routes::routes_v4(&table("net/route")));
    if found.is_empty() {
        found = routes::defaults_v6(&table("net/ipv6_route"));
    }
    found.iter().min_by_key(|route| route.metric).map(|route| route.interface.clone())
}

/// Some drivers say percent.
fn signal_dbm(root: &Root, interface: &str) -> Option<i64> {
    let table = root.read_namespace_table("net/wireless").ok()?;
    let mut lines = table.lines().filter_map(|line| line.trim_start().split_once(':'));
    let (_, words) = lines.find(|(name, _)| *name == interface)?;
    let level: i64 = words.split_ascii_whitespace().nth(2)?.trim_end_matches('.').parse().ok()?;
    match level {
        1..=100 => Some(level / 2 - 100),
        0 => None,
        level => Some(level).filter(|level| (WEAKEST_DBM..0).contains(level)),
    }
}
