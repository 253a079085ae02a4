//! Turns chance into a board, and into what befalls it: plain numbers, which the judge reads, and `facts` says to the agent.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::random::Random;

pub const MEBIBYTE: u64 = 1 << 20;
/// A kernel counts memory in KiB.
const PAGE_BYTES: u64 = 4096;
const USB: &str = "example.com/usb";
const RELAY: &str = "example.com/relay";
const CAMERA_LABEL: &str = "feature.node.kubernetes.io/usb-0e_046d_0825.present";
const COUNT_LABEL: &str = "nodepulse.dev/scales";
const KERNEL_LABEL: &str = "feature.node.kubernetes.io/kernel-version.full";
/// What a board may say of itself.
pub const LABELS: [&str; 3] = [CAMERA_LABEL, COUNT_LABEL, KERNEL_LABEL];
/// What changes, the first ones more often: thresholds are the matter of conditions.
const CHANGES: [u64; 27] = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6, 7, 8, 9, 10, 11, 11, 12, 13, 14, 15];
/// From a router to a small server.
const MEMORIES_MIB: [u64; 7] = [58, 94, 427, 921, 1900, 7812, 32_000];
const DISKS_MIB: [u64; 5] = [48, 900, 8192, 29_000, 250_000];

/// A board with an uplink.
#[derive(Debug, Clone, PartialEq)]
pub struct Board {
    pub machine_id: Option<String>,
    pub system_uuid: Option<String>,
    pub serial: Option<String>,
    pub mac: Option<String>,
    pub boot_id: String,
    pub architecture: &'static str,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub swap_bytes: Option<u64>,
    /// Bytes of a page, and how many pages there are.
    pub hugepages: Vec<(u64, u64)>,
    /// Why neither CPUs nor memory can be counted just now.
    pub uncounted: Option<Odd>,
    pub memory_available_bytes: Result<u64, Odd>,
    pub disk: Result<Disk, Odd>,
    pub pids: Result<Pids, Odd>,
    /// The kernel met an error on the card, and takes no more writes to it before the next boot mends it.
    pub made_read_only: bool,
    /// What the kernel says of its clock, where it ever does.
    pub clock: Clock,
    pub has_clock: bool,
    /// Extended resources of the settings, and how many there are.
    pub devices: BTreeMap<&'static str, u64>,
    /// What its labels are to say of it, by their whole names; `None`: nobody wants to know.
    pub labels: Option<BTreeMap<&'static str, String>>,
    /// The container runtime of the settings: the last number of its version, and `None` as long as it does not say.
    pub runtime: Option<Option<u32>>,
    /// Last parts of the addresses that the uplink has.
    pub v4: Option<u8>,
    pub v6: Option<u16>,
    /// As it is when it can be read again.
    pub whole_disk: Disk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub capacity_bytes: u64,
    pub available_bytes: u64,
    /// 0: no limit.
    pub inodes: u64,
    pub inodes_free: u64,
    /// By design: always full.
    pub read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pids {
    pub limit: u64,
    pub used: u64,
}

/// A sensor that not every board has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// This board has none.
    Untold,
    Right,
    /// It was never set.
    Unset,
    /// With each look another one, and what it is now.
    Flaps(bool),
    Unreadable(Odd),
}

/// What is wrong with an odd file, another at each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Odd {
    NoAnswer,
    Empty,
    Malformed(u64),
    Implausible(u64),
}

impl Odd {
    fn new(random: &mut Random) -> Odd {
        match random.below(4) {
            0 => Odd::NoAnswer,
            1 => Odd::Empty,
            2 => Odd::Malformed(random.below(1000)),
            _ => Odd::Implausible(random.below(1000)),
        }
    }
}

impl Board {
    pub fn new(random: &mut Random) -> Board {
        let memory_bytes = random.pick(&MEMORIES_MIB) * MEBIBYTE + random.below(200) * PAGE_BYTES;
        let capacity_bytes = random.pick(&DISKS_MIB) * MEBIBYTE + random.below(1000) * 512;
        let inodes = random.pick(&[0, 12_000, 500_000, 15_000_000]);
        let whole_disk = Disk {
            capacity_bytes,
            available_bytes: capacity_bytes / 2,
            inodes,
            inodes_free: inodes / 5 * 4,
            read_only: random.per_mille(60),
        };
        let mut text = |odds: u64, length: usize| random.per_mille(odds).then(|| hex(random, length));
        let (machine_id, system_uuid) = (text(900, 32), text(300, 32));
        let serial = text(800, 16);
        let mac = text(800, 10).map(|digits| {
            let pairs: Vec<&str> = (0..5).map(|place| &digits[place * 2..place * 2 + 2]).collect();
            format!("dc:{}", pairs.join(":"))
        });
        let hugepages = random.pick(&[&[][..], &[(2 << 20, 0)], &[(2 << 20, 3), (1 << 30, 0)], &[(64 << 10, 16)]]);
        Board {
            machine_id,
            system_uuid,
            serial,
            mac,
            boot_id: boot_id(0),
            architecture: random.pick(&["arm64", "arm", "amd64", "riscv64", "386", "loong64"]),
            cpus: random.pick(&[1, 2, 4, 8, 64]),
            memory_bytes,
            swap_bytes: random.pick(&[None, Some(0), Some(100 << 20), Some(104_853_504)]),
            hugepages: hugepages.to_vec(),
            uncounted: None,
            memory_available_bytes: Ok(memory_bytes / 2),
            disk: Ok(whole_disk),
            pids: Ok(Pids { limit: random.pick(&[4_096, 32_768, 4_194_304]), used: 200 }),
            // One board in ten.
            made_read_only: (memory_bytes / PAGE_BYTES).is_multiple_of(10),
            // Two in three.
            clock: match memory_bytes / PAGE_BYTES % 3 {
                0 => Clock::Untold,
                1 => Clock::Right,
                _ => Clock::Unset,
            },
            has_clock: !(memory_bytes / PAGE_BYTES).is_multiple_of(3),
            // One in three.
            devices: BTreeMap::from_iter(
                [(USB, 1), (RELAY, 4)].into_iter().filter(|_| memory_bytes / PAGE_BYTES % 3 == 1),
            ),
            // Three in five.
            labels: (memory_bytes / PAGE_BYTES % 5 > 1)
                .then(|| BTreeMap::from([(KERNEL_LABEL, "6.12.48".to_owned()), (CAMERA_LABEL, "true".to_owned())])),
            // One in four.
            runtime: (memory_bytes / PAGE_BYTES).is_multiple_of(4).then_some(Some(9)),
            v4: Some(10),
            v6: None,
            whole_disk,
        }
    }

    /// Something changes. Answers what, for the trace.
    pub fn change(&mut self, random: &mut Random) -> &'static str {
        match random.pick(&CHANGES) {
            0 => {
                self.memory_available_bytes = Ok(random.between(1, self.memory_bytes / 24));
                "memory runs low"
            }
            1 => {
                self.memory_available_bytes = Ok(random.between(self.memory_bytes / 4, self.memory_bytes / 5 * 4));
                "memory is plenty"
            }
            2 => {
                // As much as thresholds commonly ask for, or a little more or less.
                let edge = random.pick(&[
                    100 * MEBIBYTE,
                    self.memory_bytes / 10,
                    self.memory_bytes / 8,
                    self.memory_bytes / 7,
                    8 * MEBIBYTE,
                ]);
                let bytes = (edge + random.between(0, 2)).saturating_sub(1);
                self.memory_available_bytes = Ok(bytes.min(self.memory_bytes));
                "memory is about at its threshold"
            }
            3 => self.change_disk(
                |disk, random| disk.available_bytes = random.below(disk.capacity_bytes / 14),
                random,
                "the disk fills up",
            ),
            4 => self.change_disk(
                |disk, _| disk.available_bytes = disk.capacity_bytes / 2,
                random,
                "the disk is cleaned",
            ),
            5 => self.change_disk(
                |disk, random| disk.available_bytes = disk.capacity_bytes / 100 * random.between(8, 17),
                random,
                "the disk is about at its threshold",
            ),
            6 => self.change_disk(
                |disk, random| disk.inodes_free = random.below(disk.inodes / 25 + 1),
                random,
                "inodes run low",
            ),
            7 => self.change_disk(|disk, _| disk.inodes_free = disk.inodes / 2, random, "inodes are plenty"),
            8 => {
                self.memory_available_bytes = Err(Odd::new(random));
                "memory cannot be read"
            }
            9 => {
                self.disk = Err(Odd::new(random));
                "the disk cannot be read"
            }
            10 => {
                self.uncounted = Some(Odd::new(random));
                "neither CPUs nor memory can be counted"
            }
            11 => {
                self.make_readable();
                "what could not be read can be"
            }
            12 => self.change_addresses(None, None, "the address is gone"),
            13 => self.change_addresses(
                Some(random.between(2, 250) as u8),
                Some(1),
                "an IPv6 address joins a new IPv4 one",
            ),
            14 => self.change_pids(random),
            _ => self.change_addresses(Some(random.between(2, 250) as u8), None, "the address changes"),
        }
    }

    /// A device plug-in tells of those on USB: every second one is not healthy.
    pub fn unhealthy(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let found = self.devices.iter().filter(|(name, count)| **name == USB && **count > 1);
        found.map(|(name, count)| (*name, count / 2))
    }

    /// The same with a device more, up to three, then none, and another runtime, or one that says nothing.
    pub fn change_and_plug(&mut self, random: &mut Random) -> &'static str {
        self.devices.entry(USB).and_modify(|count| *count = (*count + 1) % 4);
        if let Some(labels) = &mut self.labels {
            // The camera comes and goes, and an owner's program counts what hangs on the board.
            if labels.remove(CAMERA_LABEL).is_none() {
                labels.insert(CAMERA_LABEL, "true".to_owned());
            }
            labels.insert(COUNT_LABEL, (labels.len() * 7 % 5).to_string());
        }
        self.clock = match self.clock {
            Clock::Untold => Clock::Untold,
            Clock::Right => Clock::Unset,
            Clock::Unset => Clock::Unreadable(Odd::Empty),
            Clock::Unreadable(_) => Clock::Flaps(false),
            Clock::Flaps(_) => Clock::Right,
        };
        if let Some(version) = &mut self.runtime {
            *version = version.map_or(Some(7), |patch| (patch < 9).then_some(patch + 1));
        }
        self.change(random)
    }

    fn change_addresses(&mut self, v4: Option<u8>, v6: Option<u16>, what: &'static str) -> &'static str {
        (self.v4, self.v6) = (v4, v6);
        what
    }

    fn change_pids(&mut self, random: &mut Random) -> &'static str {
        if let Ok(pids) = &mut self.pids {
            pids.used = random.pick(&[200, pids.limit / 2, pids.limit - 100, pids.limit - 1001, pids.limit - 1000]);
        }
        if random.per_mille(100) {
            self.pids = Err(Odd::new(random));
        }
        "other threads run"
    }

    fn change_disk(
        &mut self,
        change: fn(&mut Disk, &mut Random),
        random: &mut Random,
        what: &'static str,
    ) -> &'static str {
        if let Ok(disk) = &mut self.disk {
            change(disk, random);
        }
        what
    }

    /// What makes it Ready: CPUs, memory and storage can be read, and its container runtime is not down.
    pub fn means(&self) -> [bool; 2] {
        [self.uncounted.is_none() && self.disk.is_ok(), self.has_runtime()]
    }

    /// As far as it is to have one.
    pub fn has_runtime(&self) -> bool {
        self.runtime != Some(None)
    }

    /// The next look comes.
    pub fn looked_at(&mut self) {
        if let Clock::Flaps(is_unset) = &mut self.clock {
            *is_unset = !*is_unset;
        }
    }

    /// At peace, what can be read can be read: the truth is then one.
    pub fn make_readable(&mut self) {
        if let Clock::Flaps(_) | Clock::Unreadable(_) = self.clock {
            self.clock = Clock::Right;
        }
        self.memory_available_bytes = Ok(self.memory_available_bytes.unwrap_or(self.memory_bytes / 2));
        self.disk = Ok(self.disk.unwrap_or(self.whole_disk));
        self.pids = Ok(self.pids.unwrap_or(Pids { limit: 32_768, used: 200 }));
        self.uncounted = None;
        if self.v4.is_none() {
            (self.v4, self.v6) = (Some(10), None);
        }
    }

    /// Another boot of the same board.
    pub fn restart(&mut self, boot: u64) {
        self.boot_id = boot_id(boot);
        // Its driver may be there with one boot, and not with the next.
        self.clock = match self.clock {
            _ if !self.has_clock => Clock::Untold,
            Clock::Untold => Clock::Right,
            _ if boot.is_multiple_of(3) => Clock::Untold,
            clock => clock,
        };
        // Somebody wrote other settings meanwhile.
        self.devices.remove(RELAY);
        self.labels.iter_mut().for_each(|labels| drop(labels.insert(KERNEL_LABEL, format!("6.12.{boot}"))));
        self.made_read_only = false;
    }

    /// Where packets for everybody leave, and by what address.
    pub fn address_v4(&self) -> Option<IpAddr> {
        self.v4.map(|last| Ipv4Addr::new(192, 168, 7, last).into())
    }

    pub fn address_v6(&self) -> Option<IpAddr> {
        self.v6.map(|last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into())
    }
}

/// Both addresses that a dual-stack board is configured with, always there.
pub const DUAL_STACK: (IpAddr, IpAddr) =
    (IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1)));

fn boot_id(boot: u64) -> String {
    format!("5e3f1c3a-0000-4000-8000-{boot:012x}")
}

fn hex(random: &mut Random, length: usize) -> String {
    let digits: String = (0..length.div_ceil(16)).map(|_| format!("{:016x}", random.next())).collect();
    digits[..length].to_owned()
}
