//! Turns nothing into a board, a Node and settings for the tests of this module: a small agent of four cores.

use std::net::IpAddr;

use crate::config::Settings;
use crate::node::board::{Board, Update};
use crate::node::desired::{initial, updated};
use crate::node::judgement::Judgement;
use crate::node::object::{Condition, Node, Status};
use crate::node::remembered::Remembered;
use crate::node::rules::{COUNT, Wanted};
use crate::probe::facts::{
    DefaultRoute, FileSystem, Health, Hugepages, Interface, InterfaceAddress, MemorySource, MemoryUse, Pids,
};
use crate::probe::{Absent, Fact, Facts, Machine, Network, Readings, Why};
use crate::time::Wall;

pub(crate) const START: Wall = Wall::from_unix_seconds(1_767_225_600);
pub(crate) const START_STAMP: &str = "2026-01-01T00:00:00Z";
pub(crate) const LATER: Wall = Wall::from_unix_seconds(1_767_225_900);
pub(crate) const LATER_STAMP: &str = "2026-01-01T00:05:00Z";

/// No pressure, Ready, and without sensors of its own.
pub(crate) static ALL_WELL: [Wanted; COUNT] = [
    WELL,
    WELL,
    WELL,
    WELL,
    WELL,
    WELL,
    WELL,
    NO_SENSOR,
    NO_SENSOR,
    NO_SENSOR,
    NO_SENSOR,
    NO_SENSOR,
    NO_SENSOR,
    NO_SENSOR,
    NO_SENSOR,
    NO_SENSOR,
    NO_SENSOR,
    WELL,
    well(Status::True),
];
const WELL: Wanted = well(Status::False);
const NO_SENSOR: Wanted =
    Wanted::new(Judgement { status: Status::Unknown, message: None, reason: None, is_sure: false });

const fn well(status: Status) -> Wanted {
    Wanted::new(Judgement { status, message: None, reason: None, is_sure: true })
}

pub(crate) fn absent<T>() -> Fact<T> {
    Err(Absent { path: "proc/nothing".to_owned(), why: Why::NoSuchFile })
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn interface(name: &str, addresses: &[&str]) -> Interface {
    let addresses =
        addresses.iter().map(|text| InterfaceAddress { ip: ip(text), unusable: false, second_choice: false });
    Interface {
        name: name.to_owned(),
        up: true,
        running: true,
        loopback: name == "lo",
        point_to_point: false,
        addresses: addresses.collect(),
    }
}

pub(crate) fn route(interface: &str, is_v6: bool, metric: u32) -> DefaultRoute {
    DefaultRoute { interface: interface.to_owned(), gateway: None, is_v6, metric }
}

/// Four cores, 16 GB, a disk of 100 GiB, `eth0` with 10.0.0.1.
pub(crate) fn facts() -> Facts {
    let text = |text: &str| Ok(text.to_owned());
    Facts {
        machine: Machine {
            hostname: text("edge-1"),
            machine_id: text("0123456789abcdef0123456789abcdef"),
            system_uuid: text("1b4e28ba-2fa1-11d2-883f-0016d3cca427"),
            boot_id: text("boot-1"),
            architecture: text("riscv64"),
            kernel_release: text("6.1.0"),
            os_image: text("Debian GNU/Linux 12 (bookworm)"),
            board_model: text("Raspberry Pi 4 Model B Rev 1.1"),
            board_compatible: Ok(vec!["raspberrypi,4-model-b".to_owned(), "brcm,bcm2711".to_owned()]),
            board_serial: text("10000000abcdef12"),
            mac_address: text("dc:a6:32:ab:cd:ef"),
            passed_over: Vec::new(),
            cpu_count: Ok(4),
            memory_total_bytes: Ok(16_265_484 * 1024),
            swap_total_bytes: Ok(0),
            reset_reason: text("PowerLoss"),
            hugepages: vec![Hugepages { page_size_bytes: 2 * 1024 * 1024, pages: 0 }],
            features: None,
        },
        readings: Readings {
            memory: Ok(MemoryUse { available_bytes: 8 << 30, source: MemorySource::CgroupV2 }),
            node_file_system: Ok(FileSystem {
                capacity_bytes: 107_362_627_584,
                available_bytes: 50 << 30,
                inodes: 1_000_000,
                inodes_free: 500_000,
                read_only: false,
            }),
            made_read_only: Ok(None),
            pids: Ok(Pids { limit: 4096, used: 100 }),
            health: Health::default(),
            extended_resources: Default::default(),
            unhealthy_devices: Default::default(),
            container_runtime: None,
            image_file_system: None,
        },
        network: Network {
            interfaces: vec![interface("lo", &["127.0.0.1", "::1"]), interface("eth0", &["10.0.0.1", "fe80::1"])],
            default_routes: vec![route("eth0", false, 100)],
            node_name_addresses: Vec::new(),
        },
    }
}

/// As a kubelet: 110 pods and no taint.
pub(crate) fn settings() -> Settings {
    Settings { podless: false, ..Settings::default() }
}

pub(crate) fn board<'a>(settings: &'a Settings, facts: &'a Facts, stamp: Wall) -> Board<'a> {
    Board { settings, facts, name: "edge-1", kubelet_version: "v1.36.2", conditions: &ALL_WELL, stamp }
}

/// The Node of that agent as the server has it since [`START`].
pub(crate) fn node() -> Node {
    initial(&board(&settings(), &facts(), START), &Remembered::default()).node
}

/// One run at [`LATER`] over `base`.
pub(crate) fn run(base: &Node, settings: &Settings, facts: &Facts) -> Update {
    updated(base, &board(settings, facts, LATER), &mut Remembered::default(), false)
}

pub(crate) fn condition<'a>(node: &'a Node, kind: &str) -> &'a Condition {
    node.status.conditions.iter().find(|one| one.kind == kind).unwrap()
}

pub(crate) fn condition_mut<'a>(node: &'a mut Node, kind: &str) -> &'a mut Condition {
    node.status.conditions.iter_mut().find(|one| one.kind == kind).unwrap()
}

/// A condition of somebody else.
pub(crate) fn foreign_condition() -> Condition {
    Condition {
        kind: "FrequentKubeletRestart".to_owned(),
        status: "False".to_owned(),
        last_heartbeat_time: "2025-12-31T00:00:00Z".to_owned(),
        last_transition_time: "2025-12-31T00:00:00Z".to_owned(),
        reason: "KernelHasNoDeadlock".to_owned(),
        message: "kernel has no deadlock".to_owned(),
    }
}
