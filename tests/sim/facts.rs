//! Turns a board into the facts that a probe of it would find: the words of the agent for it.

use std::net::IpAddr;

use nodepulse::probe::Facts;
use nodepulse::probe::facts::{
    Absent, ContainerRuntime, DefaultRoute, Features, FileSystem, HandlerFeatures, Health, Hugepages, Interface,
    InterfaceAddress, Machine, MemorySource, MemoryUse, Network, Pids, Readings, RuntimeFeatures, RuntimeHandler,
    WallClock, Why,
};

use super::board::{Board, Clock, DUAL_STACK, Odd};

/// What the kernel and the image of every board call themselves.
pub const KERNEL: &str = "6.12.48-v8";
pub const IMAGE: &str = "Debian GNU/Linux 13 (trixie)";

pub fn facts(board: &Board, name: &str) -> Facts {
    let missing = |path: &str| Absent::new(path, Why::NoSuchFile);
    let text = |value: &Option<String>, path: &str| value.clone().ok_or_else(|| missing(path));
    let counted = |path: &str| board.uncounted.map_or(Ok(()), |odd| Err(absent(path, odd)));
    let machine = Machine {
        hostname: Ok(name.to_owned()),
        machine_id: text(&board.machine_id, "etc/machine-id"),
        system_uuid: text(&board.system_uuid, "sys/class/dmi/id/product_uuid"),
        boot_id: Ok(board.boot_id.clone()),
        architecture: Ok(board.architecture.to_owned()),
        kernel_release: Ok(KERNEL.to_owned()),
        os_image: Ok(IMAGE.to_owned()),
        board_model: Ok("Raspberry Pi 4 Model B Rev 1.4".to_owned()),
        board_compatible: Ok(vec!["raspberrypi,4-model-b".to_owned(), "brcm,bcm2711".to_owned()]),
        board_serial: text(&board.serial, "proc/device-tree/serial-number"),
        mac_address: text(&board.mac, "sys/class/net"),
        passed_over: Vec::new(),
        cpu_count: counted("proc/cpuinfo").map(|()| board.cpus),
        memory_total_bytes: counted("proc/meminfo").map(|()| board.memory_bytes),
        swap_total_bytes: board.swap_bytes.ok_or_else(|| missing("proc/meminfo")),
        reset_reason: Err(missing("sys/class/watchdog")),
        hugepages: (board.hugepages.iter())
            .map(|(page_size_bytes, pages)| Hugepages { page_size_bytes: *page_size_bytes, pages: *pages })
            .collect(),
        features: board.labels.as_ref().map(|labels| Features {
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
            left_out: Vec::new(),
        }),
    };
    Facts { machine, readings: readings(board), network: network(board) }
}

pub fn readings(board: &Board) -> Readings {
    let memory = board.memory_available_bytes.map_err(|odd| absent("proc/meminfo", odd));
    let disk = board.disk.map_err(|odd| absent("var/lib/nodepulse", odd));
    let pids = board.pids.map_err(|odd| absent("proc/loadavg", odd));
    Readings {
        memory: memory.map(|available_bytes| MemoryUse { available_bytes, source: MemorySource::CgroupV2 }),
        node_file_system: disk.map(|disk| FileSystem {
            capacity_bytes: disk.capacity_bytes,
            available_bytes: disk.available_bytes,
            inodes: disk.inodes,
            inodes_free: disk.inodes_free,
            read_only: disk.read_only,
        }),
        made_read_only: Ok(board.made_read_only.then(|| "/var".to_owned())),
        pids: pids.map(|pids| Pids { limit: pids.limit, used: pids.used }),
        health: Health { wall_clock: wall_clock(board.clock), ..Health::default() },
        unhealthy_devices: board.unhealthy().map(|(name, count)| (name.to_owned(), count)).collect(),
        extended_resources: board.devices.iter().map(|(name, count)| ((*name).to_owned(), Ok(*count))).collect(),
        container_runtime: board.runtime.map(runtime),
        image_file_system: None,
    }
}

/// One that is ready, or says nothing at all: that is known to be down, as a kubelet calls it.
fn runtime(patch: Option<u32>) -> ContainerRuntime {
    let said = patch.map_or("Unknown".to_owned(), |patch| format!("2.2.{patch}"));
    let handler = |name: &str| RuntimeHandler { name: name.to_owned(), features: HandlerFeatures::default() };
    // From one version on it knows another handler, and has something to say of groups.
    let handlers = ["", "kata", "runc"].into_iter().filter(|name| *name != "kata" || patch > Some(7)).map(handler);
    ContainerRuntime {
        version: format!("containerd://{said}"),
        handlers: handlers.collect(),
        problems: patch.is_none().then(|| "container runtime is down".to_owned()).into_iter().collect(),
        features: patch.map(|patch| RuntimeFeatures { supplemental_groups_policy: patch > 8 }),
        ..ContainerRuntime::default()
    }
}

fn wall_clock(clock: Clock) -> Option<Result<WallClock, Absent>> {
    let said = |is_unset| Some(Ok(WallClock { is_unset, is_synchronised: !is_unset, most_off_us: 900 }));
    match clock {
        Clock::Untold => None,
        Clock::Right | Clock::Flaps(false) => said(false),
        Clock::Unset | Clock::Flaps(true) => said(true),
        Clock::Unreadable(odd) => Some(Err(absent("adjtimex", odd))),
    }
}

fn absent(path: &str, odd: Odd) -> Absent {
    let why = match odd {
        Odd::NoAnswer => Why::Errno(5),
        Odd::Empty => Why::Empty,
        Odd::Malformed(number) => Why::Malformed(format!("{number} is no number")),
        Odd::Implausible(number) => Why::Implausible(format!("{number} is more than there is")),
    };
    Absent::new(path, why)
}

fn network(board: &Board) -> Network {
    let usable = |ip: IpAddr| InterfaceAddress { ip, unusable: false, second_choice: false };
    let interface = |name: &str, addresses| Interface {
        name: name.to_owned(),
        up: true,
        running: true,
        loopback: false,
        point_to_point: false,
        addresses,
    };
    let uplink = [board.address_v4(), board.address_v6()];
    let routes = uplink.iter().flatten().map(|ip| DefaultRoute {
        interface: "eth0".to_owned(),
        gateway: None,
        is_v6: ip.is_ipv6(),
        metric: 100,
    });
    Network {
        interfaces: vec![
            interface("eth0", uplink.into_iter().flatten().map(usable).collect()),
            interface("vpn0", [DUAL_STACK.0, DUAL_STACK.1].map(usable).to_vec()),
        ],
        default_routes: routes.collect(),
        node_name_addresses: Vec::new(),
    }
}
