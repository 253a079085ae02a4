//! Turns random happenings on a machine into the facts that a probe of it would find.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nodepulse::probe::facts::{
    Absent, DefaultRoute, Facts, FileSystem, Interface, InterfaceAddress, Machine, MemorySource, MemoryUse, Network,
    Pids, Readings, Why,
};

use super::random::Random;

const MEBIBYTE: u64 = 1 << 20;
const MEMORY_BYTES: u64 = 1900 * MEBIBYTE;
const DISK_BYTES: u64 = 8192 * MEBIBYTE;

/// A board with an uplink.
#[derive(Debug, Clone)]
pub struct Board {
    pub facts: Facts,
}

impl Board {
    pub fn new(random: &mut Random) -> Board {
        let absent = |path: &str| Absent { path: path.to_owned(), why: Why::NoSuchFile };
        let machine = Machine {
            hostname: Ok("edge-1".to_owned()),
            machine_id: Ok("8c5b0f1e0d7c4a559e0b6f2f3f1f6a02".to_owned()),
            system_uuid: Err(absent("sys/class/dmi/id/product_uuid")),
            boot_id: Ok(boot_id(0)),
            architecture: Ok("arm64".to_owned()),
            kernel_release: Ok("6.12.48-v8".to_owned()),
            os_image: Ok("Debian GNU/Linux 13 (trixie)".to_owned()),
            board_model: Ok("Raspberry Pi 4 Model B Rev 1.4".to_owned()),
            board_compatible: Ok(vec!["raspberrypi,4-model-b".to_owned(), "brcm,bcm2711".to_owned()]),
            board_serial: Ok("10000000abcdef01".to_owned()),
            mac_address: Ok("dc:a6:32:ab:cd:01".to_owned()),
            passed_over: Vec::new(),
            cpu_count: Ok(4),
            memory_total_bytes: Ok(MEMORY_BYTES),
            swap_total_bytes: if random.per_mille(500) { Ok(0) } else { Err(absent("proc/meminfo")) },
            reset_reason: Err(absent("sys/class/watchdog")),
            hugepages: Vec::new(),
        };
        let readings = Readings {
            memory: Ok(MemoryUse { available_bytes: 900 * MEBIBYTE, source: MemorySource::CgroupV2 }),
            node_file_system: Ok(disk()),
            pids: Ok(Pids { limit: 32_768, used: 200 }),
        };
        Board { facts: Facts { machine, readings, network: uplink(Some(10), None) } }
    }

    /// Something changes. Answers what, for the trace.
    pub fn change(&mut self, random: &mut Random) -> &'static str {
        let readings = &mut self.facts.readings;
        match random.below(13) {
            0 => {
                let available_bytes = random.between(1, 90) * MEBIBYTE;
                readings.memory = Ok(MemoryUse { available_bytes, source: MemorySource::CgroupV2 });
                "memory runs low"
            }
            1 => {
                let available_bytes = random.between(300, 1500) * MEBIBYTE;
                readings.memory = Ok(MemoryUse { available_bytes, source: MemorySource::CgroupV2 });
                "memory is plenty"
            }
            2 => self.set_disk_bytes(random.between(0, 600) * MEBIBYTE, "the disk fills up"),
            3 => self.set_disk_bytes(random.between(2000, 6000) * MEBIBYTE, "the disk is cleaned"),
            4 | 12 => {
                readings.memory = Err(Absent { path: "proc/meminfo".to_owned(), why: odd(random) });
                "memory cannot be read"
            }
            9 => {
                readings.node_file_system = Err(Absent { path: "var/lib/nodepulse".to_owned(), why: odd(random) });
                "the disk cannot be read"
            }
            10 => {
                let absent = Absent { path: "proc/cpuinfo".to_owned(), why: odd(random) };
                self.facts.machine.cpu_count = Err(absent.clone());
                self.facts.machine.memory_total_bytes = Err(absent);
                "neither CPUs nor memory can be counted"
            }
            11 => {
                self.make_readable();
                "what could not be read can be"
            }
            5 => {
                self.facts.network = uplink(None, None);
                "the address is gone"
            }
            6 => {
                self.facts.network = uplink(Some(random.between(2, 250) as u8), Some(1));
                "an IPv6 address joins a new IPv4 one"
            }
            _ => {
                self.facts.network = uplink(Some(random.between(2, 250) as u8), None);
                "the address changes"
            }
        }
    }

    /// At peace, what can be read can be read: the truth is then one.
    pub fn make_readable(&mut self) {
        let Facts { machine, readings, .. } = &mut self.facts;
        if readings.memory.is_err() {
            let available_bytes = 900 * MEBIBYTE;
            readings.memory = Ok(MemoryUse { available_bytes, source: MemorySource::CgroupV2 });
        }
        if readings.node_file_system.is_err() {
            readings.node_file_system = Ok(disk());
        }
        machine.cpu_count = Ok(4);
        machine.memory_total_bytes = Ok(MEMORY_BYTES);
        if self.facts.network.default_routes.is_empty() {
            self.facts.network = uplink(Some(10), None);
        }
    }

    /// Another boot of the same board.
    pub fn restart(&mut self, boot: u64) {
        self.facts.machine.boot_id = Ok(boot_id(boot));
    }

    fn set_disk_bytes(&mut self, bytes: u64, what: &'static str) -> &'static str {
        if let Ok(disk) = &mut self.facts.readings.node_file_system {
            disk.available_bytes = bytes;
        }
        what
    }
}

fn disk() -> FileSystem {
    let (inodes, inodes_free) = (500_000, 400_000);
    let (capacity_bytes, available_bytes) = (DISK_BYTES, DISK_BYTES / 2);
    FileSystem { capacity_bytes, available_bytes, inodes, inodes_free, read_only: false }
}

/// What is wrong with an odd file, another at each time.
fn odd(random: &mut Random) -> Why {
    match random.below(4) {
        0 => Why::Errno(5),
        1 => Why::Empty,
        2 => Why::Malformed(format!("{} is no number", random.below(1000))),
        _ => Why::Implausible(format!("{} is more than there is", random.below(1000))),
    }
}

fn boot_id(boot: u64) -> String {
    format!("5e3f1c3a-0000-4000-8000-{boot:012x}")
}

/// Both addresses that a dual-stack board is configured with, always there.
pub const DUAL_STACK: (IpAddr, IpAddr) =
    (IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1)));

fn uplink(v4: Option<u8>, v6: Option<u16>) -> Network {
    let mut addresses = Vec::new();
    let mut add = |ip: IpAddr| addresses.push(InterfaceAddress { ip, unusable: false, second_choice: false });
    add_if(v4.map(|last| Ipv4Addr::new(192, 168, 7, last).into()), &mut add);
    add_if(v6.map(|last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()), &mut add);
    let interface = |name: &str, addresses| Interface {
        name: name.to_owned(),
        up: true,
        running: true,
        loopback: false,
        point_to_point: false,
        addresses,
    };
    let fixed = [DUAL_STACK.0, DUAL_STACK.1];
    let fixed = fixed.map(|ip| InterfaceAddress { ip, unusable: false, second_choice: false }).to_vec();
    let route = |is_v6| DefaultRoute { interface: "eth0".to_owned(), gateway: None, is_v6, metric: 100 };
    let mut default_routes = Vec::new();
    default_routes.extend(v4.map(|_| route(false)));
    default_routes.extend(v6.map(|_| route(true)));
    Network {
        interfaces: vec![interface("eth0", addresses), interface("vpn0", fixed)],
        default_routes,
        node_name_addresses: Vec::new(),
    }
}

fn add_if(ip: Option<IpAddr>, add: &mut impl FnMut(IpAddr)) {
    if let Some(ip) = ip {
        add(ip);
    }
}
