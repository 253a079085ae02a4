//! Every setting: the one table that files, flags, help, manual, README and completions follow.

use std::time::Duration;

use super::eviction;
use super::limits;
use super::node_values;
use super::setting::Kind::{Boolean, Directory, Duration as Span, File, List, Map, Number, Text};
use super::setting::{Setting, Whose};

/// The setting of a key in the file.
pub fn by_name(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The setting of a flag, without its dashes.
pub fn by_flag(flag: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.flag == flag)
}

/// The shortest period: what is more often would be a load on the server that no board is worth.
const SECOND: Duration = Duration::from_secs(1);
/// The API's own whole numbers.
const MOST: u32 = i32::MAX as u32;

/// A field of the kubelet's configuration file: its key, its flag, its default.
const fn kubelet(name: &'static str, flag: &'static str, default: &'static str) -> Setting {
    Setting::new(name, flag, default, Whose::Kubelet)
}

/// Only a flag of the kubelet.
const fn kubelet_flag(name: &'static str, flag: &'static str, default: &'static str) -> Setting {
    Setting::new(name, flag, default, Whose::KubeletFlag)
}

const fn ours(name: &'static str, flag: &'static str, default: &'static str) -> Setting {
    Setting::new(name, flag, default, Whose::Ours)
}

/// In the order of the help text, and of reading: what `evictionHard` depends on stands before it.
pub const SETTINGS: &[Setting] = &[
    kubelet_flag("kubeconfig", "kubeconfig", "")
        .means("Server and credentials; else /etc/nodepulse/kubeconfig, if it is there")
        .is(File(|to, path| to.kubeconfig = Some(path).filter(|path| !path.is_empty()))),
    kubelet_flag("hostnameOverride", "hostname-override", "")
        .means("Name of the Node; else the one in its client certificate (system:node:NAME), else the host's")
        .is(Text("NAME", node_values::hostname)),
    kubelet_flag("nodeIP", "node-ip", "")
        .means("Address of the Node, or one IPv4 and one IPv6 with a comma; 0.0.0.0 or :: prefers that family")
        .is(Text("ADDRESS", node_values::node_ip)),
    kubelet_flag("nodeLabels", "node-labels", "")
        .means("Labels of the Node at registration; keys that only an administrator may set are refused")
        .is(Map("KEY", '=', "VALUE", node_values::node_labels)),
    kubelet("registerNode", "register-node", "true")
        .means("Create the Node; false: wait until somebody else has created it")
        .is(Boolean(|to, value| to.register_node = value)),
    kubelet("registerWithTaints", "register-with-taints", "")
        .means("Taints of a new Node, each key=value:effect; an existing Node keeps its own")
        .is(List("KEY=VALUE:EFFECT", "maps with key, value and effect", limits::TAINTS, node_values::taints)),
    kubelet("providerID", "provider-id", "")
        .means("spec.providerID of a new Node")
        .is(Text("ID", node_values::provider_id)),
    kubelet_flag("cloudProvider", "cloud-provider", "")
        .means("external: taint the new Node until a cloud controller has initialised it")
        .is(Text("external", node_values::cloud_provider)),
    ours("instanceType", "instance-type", "")
        .means("Label node.kubernetes.io/instance-type, as a cloud would set it")
        .is(Text("TYPE", |to, text, _| node_values::label_value(&mut to.instance_type, text))),
    ours("zone", "zone", "")
        .means("Label topology.kubernetes.io/zone, as a cloud would set it")
        .is(Text("ZONE", |to, text, _| node_values::label_value(&mut to.zone, text))),
    ours("region", "region", "")
        .means("Label topology.kubernetes.io/region, as a cloud would set it")
        .is(Text("REGION", |to, text, _| node_values::label_value(&mut to.region, text))),
    ours("extraAddresses", "extra-addresses", "")
        .means("Addresses after the detected ones, each TYPE=ADDRESS with a type such as ExternalIP or ExternalDNS")
        .is(List("TYPE=ADDRESS", "maps with type and address", limits::NODE_ADDRESSES, node_values::extra_addresses)),
    ours("podless", "podless", "true")
        .means("Keep pods away: capacity for 0 pods, taint nodepulse.dev/podless, no load balancer; false: maxPods")
        .is(Boolean(|to, value| to.podless = value)),
    ours("reregister", "reregister", "true")
        .means("Register again when the Node was deleted; the kubelet never does")
        .is(Boolean(|to, value| to.reregister = value)),
    kubelet("nodeLeaseDurationSeconds", "node-lease-duration-seconds", "40")
        .means("How long a Lease lasts; it is renewed after a quarter of that")
        .is(Number(1..=MOST, |to, number| to.node_lease_duration_seconds = number)),
    kubelet("nodeStatusUpdateFrequency", "node-status-update-frequency", "10s")
        .means("How often the board is read and changes are sent")
        .is(Span(SECOND, |to, span| to.node_status_update_frequency = span)),
    kubelet("nodeStatusReportFrequency", "node-status-report-frequency", "5m0s")
        .means("How often an unchanged status is sent; nodeStatusUpdateFrequency, if only that is in the file")
        .is(Span(SECOND, |to, span| to.node_status_report_frequency = span)),
    ours("statusAssertFrequency", "status-assert-frequency", "1m0s")
        .means("How often conditions are asserted without a change, which heals what others wrote (no watch)")
        .is(Span(SECOND, |to, span| to.status_assert_frequency = span)),
    kubelet("mergeDefaultEvictionSettings", "merge-default-eviction-settings", "false")
        .means("Keep the defaults of the signals that evictionHard does not name")
        .is(Boolean(|to, value| to.eviction.merge_defaults = value)),
    kubelet("evictionHard", "eviction-hard", eviction::DEFAULT_TEXT)
        .means("Below which a pressure condition is True; one key drops all defaults")
        .is(Map("SIGNAL", '<', "AMOUNT", eviction::hard)),
    kubelet("evictionSoft", "eviction-soft", "")
        .means("As evictionHard; each signal needs a grace period, and raises its condition at once all the same")
        .is(Map("SIGNAL", '<', "AMOUNT", eviction::soft)),
    kubelet("evictionSoftGracePeriod", "eviction-soft-grace-period", "")
        .means("How long a soft threshold has to be met until evictionMinimumReclaim applies to it")
        .is(Map("SIGNAL", '=', "DURATION", eviction::soft_grace_period)),
    kubelet("evictionMinimumReclaim", "eviction-minimum-reclaim", "")
        .means("How far above its threshold a signal has to rise before its condition ends")
        .is(Map("SIGNAL", '=', "AMOUNT", eviction::minimum_reclaim)),
    kubelet("evictionPressureTransitionPeriod", "eviction-pressure-transition-period", "5m0s")
        .means("How long a pressure condition stays True after the last pressure")
        .is(Span(Duration::ZERO, |to, span| to.eviction.pressure_transition_period = span)),
    kubelet("kubeReserved", "kube-reserved", "")
        .means("Taken off allocatable: cpu, memory, ephemeral-storage, pid")
        .is(Map("RESOURCE", '=', "QUANTITY", |to, entries, report| {
            to.kube_reserved = node_values::reserved(entries, report);
        })),
    kubelet("systemReserved", "system-reserved", "")
        .means("Taken off allocatable as well: cpu, memory, ephemeral-storage, pid")
        .is(Map("RESOURCE", '=', "QUANTITY", |to, entries, report| {
            to.system_reserved = node_values::reserved(entries, report);
        })),
    kubelet("reservedSystemCPUs", "reserved-cpus", "")
        .means("CPUs such as 0-3,5 to take off allocatable instead of reserved cpu")
        .is(Text("CPUS", node_values::reserved_cpus)),
    kubelet("maxPods", "max-pods", "110")
        .means("Capacity for pods; only with podless: false")
        .is(Number(0..=MOST, |to, number| to.max_pods = number)),
    kubelet("podsPerCore", "pods-per-core", "0")
        .means("Capacity for pods for each core, never more than maxPods; 0: maxPods alone counts")
        .is(Number(0..=MOST, |to, number| to.pods_per_core = number)),
    kubelet("enableControllerAttachDetach", "enable-controller-attach-detach", "true")
        .means("Annotate the Node so that the controller never expects it to attach volumes")
        .is(Boolean(|to, value| to.enable_controller_attach_detach = value)),
    kubelet("localStorageCapacityIsolation", "local-storage-capacity-isolation", "true")
        .means("Report ephemeral-storage")
        .is(Boolean(|to, value| to.local_storage_capacity_isolation = value)),
    kubelet("port", "port", "0")
        .means("Port that the Node names as the kubelet's; 0, as nothing listens (a kubelet says 10250)")
        .is(Number(0..=65_535, |to, number| to.port = number as u16)),
    kubelet("eventRecordQPS", "event-qps", "50")
        .means("Events sent in a second; 0: no limit")
        .is(Number(0..=MOST, |to, number| to.event_record_qps = number)),
    kubelet("eventBurst", "event-burst", "100")
        .means("Events sent at once")
        .is(Number(0..=MOST, |to, number| to.event_burst = number)),
    ours("stateDirectory", "state-directory", "/var/lib/nodepulse")
        .means("Where the agent keeps its files; the file system that holds it is the Node's ephemeral-storage")
        .is(Directory(|to, path| to.state_directory = path)),
    ours("journalQuota", "journal-quota", "64Ki")
        .means("Most bytes of the journal of what happened and is not yet told, 16Ki to 1Mi; full, it drops the middle")
        .is(Text("BYTES", node_values::journal_quota)),
    ours("sandbox", "sandbox", "true")
        .means("Once everything is open, give up what an agent never needs (SECURITY.md); false: nothing is given up")
        .is(Boolean(|to, value| to.sandbox = value)),
    kubelet("logging.verbosity", "v", "2")
        .means("How much is logged: 0 changes that matter, 2 every change, 4 and more each request")
        .is(Number(0..=10, |to, number| to.verbosity = number as u8)),
];
