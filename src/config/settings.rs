//! The settings of the agent, checked: what every other module may rely on.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

#[cfg(doc)]
use super::limits;
use super::quantity::Quantity;
use super::taint::Taint;

/// Checked settings. Names, defaults and meaning are those of the kubelet wherever the kubelet has the
/// field; the rest is explained where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `--hostname-override`: the Node's name instead of the host's; trimmed and lower-cased (ST-6).
    pub hostname_override: Option<String>,
    pub register_node: bool,
    /// Only at creation (INI-3, REG-9). Holds what the user asked for; `podless` and `cloud_provider` add theirs.
    pub register_with_taints: Vec<Taint>,
    /// `--node-labels`, already checked against NodeRestriction's list (D9).
    pub node_labels: BTreeMap<String, String>,
    pub node_ip: NodeIp,
    pub cloud_provider: CloudProvider,
    /// `spec.providerID`; empty is not sent (INI-5).
    pub provider_id: String,
    /// What a cloud provider would have said: label `node.kubernetes.io/instance-type`, `topology.kubernetes.io/zone`
    /// and `/region`; empty is not sent.
    pub instance_type: String,
    pub zone: String,
    pub region: String,
    /// Addresses appended after the kubelet's own (`ExternalIP`, `ExternalDNS`, ...), in order.
    pub extra_addresses: Vec<(String, String)>,

    pub node_status_update_frequency: Duration,
    pub node_status_report_frequency: Duration,
    /// Ours (D4): how often the conditions are asserted without a change, healing what others wrote. Default 60 s.
    pub status_assert_frequency: Duration,
    pub node_lease_duration_seconds: u32,

    /// Ours (D8): nothing may be scheduled here. True (the default): capacity `pods: 0`, the taint
    /// `nodepulse.dev/podless` twice and the label that keeps load balancers away. False: `max_pods`, none of the rest.
    pub podless: bool,
    /// Ours (D1): register again when the Node was deleted. Default true; the kubelet never does.
    pub reregister: bool,
    pub max_pods: u32,
    pub pods_per_core: u32,
    pub eviction: Eviction,
    pub kube_reserved: BTreeMap<String, Quantity>,
    pub system_reserved: BTreeMap<String, Quantity>,
    /// Number of CPUs in `reservedSystemCPUs`; overrides the cpu reservations (ALC-3).
    pub reserved_system_cpus: Option<u32>,
    pub enable_controller_attach_detach: bool,
    pub local_storage_capacity_isolation: bool,
    /// `daemonEndpoints.kubeletEndpoint.Port`: 0, as nothing listens, unless `port` is set (DEP-1).
    pub port: u16,
    pub event_record_qps: u32,
    pub event_burst: u32,

    /// Path of the kubeconfig; `None` is stand-alone: nothing is sent (TR-9).
    pub kubeconfig: Option<String>,
    /// Ours: where the agent keeps its files; its file system is the Node's `ephemeral-storage` (SRC-8).
    /// Default `/var/lib/nodepulse`.
    pub state_directory: String,
    /// Ours: most bytes of the journal in the state directory, from [`limits::JOURNAL_LEAST_BYTES`] to
    /// [`limits::JOURNAL_MOST_BYTES`]. Default 64 KiB.
    pub journal_quota_bytes: usize,
    /// `-v`: 0 to 10.
    pub verbosity: u8,
    /// Give up what an agent never needs once everything is open.
    pub sandbox: bool,
}

/// `--node-ip` (ADR-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeIp {
    /// Not given: detect, IPv4 first.
    Detect,
    /// `0.0.0.0` or `::`: detect, this family first.
    Family(Family),
    One(IpAddr),
    /// One IPv4 and one IPv6, in the order given.
    Two(IpAddr, IpAddr),
}

/// Address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// `--cloud-provider`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudProvider {
    None,
    /// `external`: taint, annotation and addresses as INI-3, ADR-3 and ADR-4.
    External,
}

/// The signals that pressure conditions are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    MemoryAvailable,
    NodefsAvailable,
    NodefsInodesFree,
    PidAvailable,
}

/// One threshold: pressure when the signal is strictly below it (EVI-5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// Bytes, inodes or PIDs.
    Quantity(i64),
    /// Of the capacity, 0 < percentage < 100, computed as EVI-5 / ALC-2 (`f32`, truncated).
    Percentage(f32),
    /// D7's default for memory: min(100 Mi, 10 % of the capacity), at least 8 Mi.
    SmallBoardMemory,
}

/// Thresholds and their hysteresis (EVI-1..8).
#[derive(Debug, Clone, PartialEq)]
pub struct Eviction {
    /// Whether `hard` keeps the defaults of the signals that are not given.
    pub merge_defaults: bool,
    pub hard: BTreeMap<Signal, Threshold>,
    /// A soft threshold raises the condition at once (EVI-6), whatever its grace period.
    pub soft: BTreeMap<Signal, Threshold>,
    pub soft_grace_period: BTreeMap<Signal, Duration>,
    pub minimum_reclaim: BTreeMap<Signal, Threshold>,
    pub pressure_transition_period: Duration,
}

impl Eviction {
    /// Whether a threshold asks for the number of PIDs: none does unless it was set (EVI-1).
    pub fn judges_pids(&self) -> bool {
        [&self.hard, &self.soft].into_iter().any(|thresholds| thresholds.contains_key(&Signal::PidAvailable))
    }
}

impl Default for Eviction {
    /// EVI-1, with D7's memory threshold; no PID threshold.
    fn default() -> Eviction {
        Eviction {
            merge_defaults: false,
            hard: BTreeMap::from([
                (Signal::MemoryAvailable, Threshold::SmallBoardMemory),
                (Signal::NodefsAvailable, Threshold::Percentage(10.0)),
                (Signal::NodefsInodesFree, Threshold::Percentage(5.0)),
            ]),
            soft: BTreeMap::new(),
            soft_grace_period: BTreeMap::new(),
            minimum_reclaim: BTreeMap::new(),
            pressure_transition_period: Duration::from_secs(300),
        }
    }
}

impl Settings {
    /// LSE-4.
    pub fn lease_renew_period(&self) -> Duration {
        Duration::from_secs(u64::from(self.node_lease_duration_seconds)) / 4
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            hostname_override: None,
            register_node: true,
            register_with_taints: Vec::new(),
            node_labels: BTreeMap::new(),
            node_ip: NodeIp::Detect,
            cloud_provider: CloudProvider::None,
            provider_id: String::new(),
            instance_type: String::new(),
            zone: String::new(),
            region: String::new(),
            extra_addresses: Vec::new(),
            node_status_update_frequency: Duration::from_secs(10),
            node_status_report_frequency: Duration::from_secs(300),
            status_assert_frequency: Duration::from_secs(60),
            node_lease_duration_seconds: 40,
            podless: true,
            reregister: true,
            max_pods: 110,
            pods_per_core: 0,
            eviction: Eviction::default(),
            kube_reserved: BTreeMap::new(),
            system_reserved: BTreeMap::new(),
            reserved_system_cpus: None,
            enable_controller_attach_detach: true,
            local_storage_capacity_isolation: true,
            port: 0,
            event_record_qps: 50,
            event_burst: 100,
            kubeconfig: None,
            state_directory: "/var/lib/nodepulse".to_owned(),
            journal_quota_bytes: 64 * 1024,
            verbosity: 2,
            sandbox: true,
        }
    }
}
