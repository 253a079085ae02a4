//! Turns chance into what a person asked of the agent: plain numbers, which the judge reads, and `settings` says to the agent.

use super::random::Random;

const MEBIBYTE: i64 = 1 << 20;
pub const SECOND_US: u64 = 1_000_000;

/// Names are those of the kubelet's settings where it has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub register_node: bool,
    pub reregister: bool,
    pub podless: bool,
    pub node_labels: Vec<(&'static str, &'static str)>,
    /// Key, value, effect.
    pub taints: Vec<(&'static str, &'static str, &'static str)>,
    pub node_ip: NodeIp,
    pub provider_id: &'static str,
    pub instance_type: &'static str,
    pub zone: &'static str,
    pub region: &'static str,
    /// Type and address.
    pub extra_addresses: Vec<(&'static str, &'static str)>,
    pub update_us: u64,
    pub report_us: u64,
    pub assert_us: u64,
    pub lease_s: u32,
    pub max_pods: u32,
    pub pods_per_core: u32,
    pub attach_detach: bool,
    pub isolates_storage: bool,
    pub port: u16,
    pub kube_reserved: Reserved,
    pub system_reserved: Reserved,
    pub eviction: Eviction,
    pub journal_quota_bytes: usize,
    /// A budget for each day: so many bytes for all but renewals.
    pub others_bytes: Option<u64>,
    /// The Node is watched instead of asserted.
    pub watches: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeIp {
    Detect,
    PreferV6,
    Both,
}

/// What is taken off allocatable; 0 takes nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserved {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub storage_bytes: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Eviction {
    pub thresholds: Vec<Threshold>,
    pub transition_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    pub signal: Signal,
    pub below: Amount,
    /// How much more than that ends it.
    pub reclaim: Option<Amount>,
    /// `None`: a hard one.
    pub grace_us: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    Memory,
    Disk,
    Inodes,
    Pids,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    Count(i64),
    Percent(f32),
    /// D7: the lesser of 100Mi and a tenth of memory, at least 8Mi.
    SmallBoard,
}

impl Default for Eviction {
    /// EVI-1, with D7.
    fn default() -> Eviction {
        let hard = |signal, below| Threshold { signal, below, reclaim: None, grace_us: None };
        let thresholds = vec![
            hard(Signal::Memory, Amount::SmallBoard),
            hard(Signal::Disk, Amount::Percent(10.0)),
            hard(Signal::Inodes, Amount::Percent(5.0)),
        ];
        Eviction { thresholds, transition_us: 300 * SECOND_US }
    }
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            register_node: true,
            reregister: true,
            podless: true,
            node_labels: Vec::new(),
            taints: Vec::new(),
            node_ip: NodeIp::Detect,
            provider_id: "",
            instance_type: "",
            zone: "",
            region: "",
            extra_addresses: Vec::new(),
            update_us: 10 * SECOND_US,
            report_us: 300 * SECOND_US,
            assert_us: 60 * SECOND_US,
            lease_s: 40,
            max_pods: 110,
            pods_per_core: 0,
            attach_detach: true,
            isolates_storage: true,
            port: 0,
            kube_reserved: Reserved::default(),
            system_reserved: Reserved::default(),
            eviction: Eviction::default(),
            journal_quota_bytes: 64 << 10,
            others_bytes: None,
            watches: false,
        }
    }
}

impl Wanted {
    pub fn new(random: &mut Random) -> Wanted {
        let register_node = random.per_mille(900);
        let mut wanted = Wanted {
            register_node,
            // Where nobody registers, an administrator does, and never takes it back.
            reregister: random.per_mille(900) && register_node,
            podless: random.per_mille(700),
            node_ip: random.pick(&[NodeIp::Detect, NodeIp::Detect, NodeIp::PreferV6, NodeIp::Both]),
            update_us: random.pick(&[10, 10, 10, 5, 20]) * SECOND_US,
            report_us: random.pick(&[300, 300, 300, 20, 60, 120]) * SECOND_US,
            assert_us: random.pick(&[20, 40, 60]) * SECOND_US,
            lease_s: random.pick(&[40, 40, 40, 20, 60, 100]),
            pods_per_core: random.pick(&[0, 0, 10]),
            max_pods: random.pick(&[110, 30]),
            attach_detach: random.per_mille(800),
            isolates_storage: random.per_mille(900),
            port: random.pick(&[0, 0, 10_250]),
            provider_id: random.pick(&["", "", "edge://roof/7"]),
            instance_type: random.pick(&["", "", "pi-4"]),
            zone: random.pick(&["", "", "harbour"]),
            region: random.pick(&["", "", "north"]),
            eviction: eviction(random),
            journal_quota_bytes: random.pick(&[16 << 10, 64 << 10]),
            ..Wanted::default()
        };
        if random.per_mille(300) {
            wanted.node_labels.push(("example.com/site", "roof"));
        }
        if random.per_mille(300) {
            wanted.taints.push(("example.com/edge", "", "NoSchedule"));
        }
        if random.per_mille(200) {
            wanted.extra_addresses.push(("ExternalIP", "203.0.113.7"));
        }
        if random.per_mille(300) {
            wanted.kube_reserved = Reserved { cpu_milli: 250, memory_bytes: 16 * MEBIBYTE, storage_bytes: 0 };
            wanted.system_reserved = Reserved { cpu_milli: 100, memory_bytes: 0, storage_bytes: 11 * MEBIBYTE + 7 };
        }
        wanted
    }
}

fn eviction(random: &mut Random) -> Eviction {
    let mut eviction = Eviction::default();
    if random.per_mille(400) {
        let below = random.pick(&[Amount::Count(100 * MEBIBYTE), Amount::Count(20 * MEBIBYTE), Amount::Percent(12.5)]);
        eviction.thresholds[0].below = below;
    }
    if random.per_mille(300) {
        eviction.thresholds[1].below =
            random.pick(&[Amount::Percent(15.0), Amount::Percent(3.5), Amount::Count(64 * MEBIBYTE)]);
    }
    if random.per_mille(300) {
        let reclaim = random.pick(&[Amount::Percent(5.0), Amount::Count(30 * MEBIBYTE)]);
        eviction.thresholds[0].reclaim = Some(reclaim);
        eviction.thresholds[1].reclaim = Some(reclaim);
    }
    if random.per_mille(300) {
        let below = Amount::Count(1000);
        eviction.thresholds.push(Threshold { signal: Signal::Pids, below, reclaim: None, grace_us: None });
    }
    if random.per_mille(200) {
        let grace_us = Some(random.pick(&[5, 30, 90]) * SECOND_US);
        let reclaim = eviction.thresholds[0].reclaim;
        eviction.thresholds.push(Threshold { signal: Signal::Memory, below: Amount::Percent(20.0), reclaim, grace_us });
    }
    eviction.transition_us = random.pick(&[0, 5, 30]) * SECOND_US;
    eviction
}
