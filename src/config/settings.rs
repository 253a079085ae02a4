//! Every setting of the agent, one row each: its field, its default, and what files, flags, help, manual, the page of settings and
//! completions have to know of it.

use std::time::Duration;

use super::alpn::alpn_protocol;
use super::conditions::conditions;
use super::field::Field;
use super::join_values::{ca_hashes, certificate_lifetime, proxy, servers, token};
use super::kubeconfig::Server;
use super::limits;
use super::node_values::{
    address_list, cloud_metadata, cloud_provider, hostname, journal_quota, label_value, node_ip, node_labels,
};
use super::node_values::{reserved, reserved_cpus, taint_list};
use super::problem::{Findings, Problem};
use super::resources::extended_resources;
use super::taint::Taint;
use super::values::{
    MOST, absolute_path, at_least, boolean, daily_bytes, images, number, path, profile, text, unix_socket,
};
use super::yaml::{Content, Entry, Value};
use super::{eviction, eviction::periods, eviction::reclaims, eviction::thresholds};

pub use super::alpn::{AlpnProtocol, Http};
pub use super::conditions::{ConditionSetting, PerCondition};
pub use super::eviction::{PerSignal, Signal, Threshold};
pub use super::join_values::{CaHash, Token};
pub use super::node_values::{CloudMetadata, CloudProvider, Family, NAME_FACTS, NodeIp, Reserved};
pub use super::resources::{ExtendedResources, ResourceSource, is_pattern, lists_devices};
use super::text_map::TextMap;
pub use super::values::Profile;

/// One row of the table.
pub struct Setting {
    /// Key in the settings file. A dot means a key of a map: `logging.verbosity`.
    pub name: &'static str,
    /// Flag, without its dashes; one letter means one dash.
    pub flag: &'static str,
    /// For people, and but for `evictionHard` as a flag would say it; empty: none.
    pub default: &'static str,
    /// One sentence for the help text, without a full stop.
    pub meaning: &'static str,
    pub defined_by: DefinedBy,
    pub form: Form,
    /// Puts a value of the right form in its place; what is refused changes nothing.
    read: fn(&mut Settings, &Field<'_>, &mut Findings) -> Result<(), Problem>,
}

/// Whose documentation says what a setting means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinedBy {
    /// A field of the kubelet's configuration file: name, default and meaning are the kubelet's.
    Kubelet,
    /// Only a flag of the kubelet; here also a key of the file.
    KubeletFlag,
    Ours,
}

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// True or false; a flag without a value means true.
    Boolean,
    /// One line of text; what stands for it in the help.
    Single(&'static str),
    /// A map in a file, `KEY=VALUE,...` in a flag: what stands for a key, the separator, what stands for a value.
    Map(&'static str, char, &'static str),
    /// A list in a file, where a single text is a list of one, commas in a flag: what stands for an item in a flag, and in a file; how many are allowed.
    List(&'static str, &'static str, usize),
}

use Form::{Boolean, List, Map, Single};

/// Makes [`Settings`] with its defaults, and the table of its rows:
/// `FIELD: TYPE = DEFAULT, DEFINED-BY "key" "flag" "default for people", FORM, READER, "meaning";`
macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $value:expr,
        $defined_by:ident $name:literal $flag:literal $default:literal, $form:expr, $read:expr, $meaning:literal;)*) => {
        /// Checked settings: what every other module may rely on. Names, defaults and meaning are those of the kubelet
        /// wherever the kubelet has the field.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings {
            $(#[doc = $meaning] $(#[$doc])* pub $field: $type,)*
        }

        impl Default for Settings {
            fn default() -> Settings {
                Settings { $($field: $value,)* }
            }
        }

        /// In the order of the help text.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            flag: $flag,
            default: $default,
            meaning: $meaning,
            defined_by: DefinedBy::$defined_by,
            form: $form,
            read: |to, field, findings| put(&mut to.$field, field, findings, $read),
        },)*];
    };
}

fn put<T>(
    place: &mut T,
    field: &Field<'_>,
    findings: &mut Findings,
    read: impl Fn(&Field<'_>, &mut Findings) -> Result<T, Problem>,
) -> Result<(), Problem> {
    *place = read(field, findings)?;
    Ok(())
}

/// The shortest period: what is more often would be a load on the server that no board is worth.
const SECOND: Duration = Duration::from_secs(1);
/// No controller has less patience.
const GRACE: Duration = Duration::from_secs(10);
const TAINTS: Form = List("KEY=VALUE:EFFECT", "maps with key, value and effect", limits::TAINTS);
const SERVERS: Form = List("https://HOST:PORT", "https://HOST:PORT", limits::JOIN_SERVERS);
const CA_HASHES: Form = List("sha256:HASH", "sha256:HASH", limits::CA_HASHES);
const ADDRESSES: Form = List("TYPE=ADDRESS", "maps with type and address", limits::NODE_ADDRESSES);

settings! {
    /// `None` is stand-alone: nothing is sent (TR-9).
    kubeconfig: Option<String> = None, KubeletFlag "kubeconfig" "kubeconfig" "", Single("FILE"), path,
        "Server and credentials; else /etc/nodepulse/kubeconfig, if it is there";
    /// JOIN-7.
    servers: Vec<Server> = Vec::new(), Ours "servers" "servers" "", SERVERS, servers,
        "API servers to join where there is no kubeconfig, tried in this order, each https://HOST:PORT";
    token: Option<Token> = None, Ours "token" "token" "", Single("TOKEN"), token,
        "Bootstrap token to join with, of kubeadm (ID.SECRET) or of k3s (K10...)";
    token_file: Option<String> = None, Ours "tokenFile" "token-file" "", Single("FILE"), path,
        "File with the token, read again when needed; as a flag - is one line of standard input";
    /// JOIN-3; one may be of a key that is not yet in use (CA-4).
    ca_hash: Vec<CaHash> = Vec::new(), Ours "caHash" "ca-hash" "", CA_HASHES, ca_hashes,
        "Hash of the public key of the cluster's CA, as kubeadm prints it; the next CA's may stand beside it";
    /// JOIN-8.
    ca_file: Option<String> = None, Ours "caFile" "ca-file" "", Single("FILE"), path,
        "CA certificates of the cluster (PEM) instead of caHash, where it does not show them to everybody";
    /// JOIN-9.
    unsafe_skip_ca_verification: bool = false,
        Ours "unsafeSkipCaVerification" "unsafe-skip-ca-verification" "false", Boolean, boolean,
        "Without caHash and caFile: trust whoever knows the token (any board that has it could be the cluster)";
    bootstrap_kubeconfig: Option<String> = None,
        KubeletFlag "bootstrapKubeconfig" "bootstrap-kubeconfig" "", Single("FILE"), path,
        "Kubeconfig with server, CA and token to join with, instead of servers, token and caHash";
    proxy_url: Option<Server> = None, Ours "proxyURL" "proxy-url" "", Single("URL"), proxy,
        "HTTP proxy to join through, http://HOST:PORT; a kubeconfig names its own";
    /// ROT-1. A kubelet's default is false; kubeadm sets it.
    rotate_certificates: bool = true, Kubelet "rotateCertificates" "rotate-certificates" "true", Boolean, boolean,
        "Renew the client certificate, at a third of its life (a kubelet's own default is false)";
    /// `expirationSeconds` (CSR).
    certificate_lifetime: Option<Duration> = None,
        Ours "certificateLifetime" "certificate-lifetime" "", Single("DURATION"), certificate_lifetime,
        "How long a new certificate is to be valid, at least 10m; else as long as the cluster allows";
    keep_token: bool = true, Ours "keepToken" "keep-token" "true", Boolean, boolean,
        "Keep the token for the day when the certificate has expired; false: forget it once joined";
    /// K3S-2.
    k3s_shared_key: bool = false, Ours "k3sSharedKey" "k3s-shared-key" "false", Boolean, boolean,
        "Take a key that a k3s server older than 2025 gives to all its agents alike";
    /// Lower-cased (ST-6); may hold [`NAME_FACTS`].
    hostname_override: Option<String> = None, KubeletFlag "hostnameOverride" "hostname-override" "", Single("NAME"), hostname,
        "Name of the Node, such as edge-{serial} (also {mac}, {machine-id}, {hostname}); else its certificate's, else the host's";
    /// ADR-2.
    node_ip: NodeIp = NodeIp::Detect, KubeletFlag "nodeIP" "node-ip" "", Single("ADDRESS"), node_ip,
        "Address of the Node, or one IPv4 and one IPv6 with a comma; 0.0.0.0 or :: prefers that family";
    /// D9.
    node_labels: TextMap<String> = TextMap::new(),
        KubeletFlag "nodeLabels" "node-labels" "", Map("KEY", '=', "VALUE"), node_labels,
        "Labels of the Node at registration; keys that only an administrator may set are refused";
    register_node: bool = true, Kubelet "registerNode" "register-node" "true", Boolean, boolean,
        "Create the Node; false: wait until somebody else has created it";
    /// INI-3, REG-9; `podless` and `cloud_provider` add theirs.
    register_with_taints: Vec<Taint> = Vec::new(),
        Kubelet "registerWithTaints" "register-with-taints" "", TAINTS, taint_list,
        "Taints of a new Node, each key=value:effect; an existing Node keeps its own";
    /// Empty is not sent (INI-5).
    provider_id: String = String::new(), Kubelet "providerID" "provider-id" "", Single("ID"), text,
        "spec.providerID of a new Node";
    cloud_provider: CloudProvider = CloudProvider::None,
        KubeletFlag "cloudProvider" "cloud-provider" "", Single("external"), cloud_provider,
        "external: taint the new Node until a cloud controller has initialised it";
    cloud_metadata: CloudMetadata = CloudMetadata::None,
        Ours "cloudMetadata" "cloud-metadata" "none", Single("none|cloud-init"), cloud_metadata,
        "cloud-init: take region, zone and providerID from its instance data where nothing else says them; no metadata service is asked";
    instance_type: String = String::new(), Ours "instanceType" "instance-type" "", Single("TYPE"), label_value,
        "Label node.kubernetes.io/instance-type, as a cloud provider would set it";
    zone: String = String::new(), Ours "zone" "zone" "", Single("ZONE"), label_value,
        "Label topology.kubernetes.io/zone, as a cloud provider would set it";
    region: String = String::new(), Ours "region" "region" "", Single("REGION"), label_value,
        "Label topology.kubernetes.io/region, as a cloud provider would set it";
    extra_addresses: Vec<(String, String)> = Vec::new(),
        Ours "extraAddresses" "extra-addresses" "", ADDRESSES, address_list,
        "Addresses after the detected ones, each TYPE=ADDRESS with a type such as ExternalIP or ExternalDNS";
    /// REC-4, MI-7.
    extended_resources: ExtendedResources = ExtendedResources::new(),
        Ours "extendedResources" "extended-resources" "", Map("RESOURCE", '=', "NUMBER|PATTERN"), extended_resources,
        "Extended resources of the Node such as example.com/relay: a number, or how many paths are like patterns (docs/settings.md)";
    /// Its path; `None`: there is none, and the Node is Ready without.
    container_runtime_endpoint: Option<String> = None,
        Kubelet "containerRuntimeEndpoint" "container-runtime-endpoint" "", Single("SOCKET"), unix_socket,
        "Container runtime whose version and health the Node shows, such as unix:///run/containerd/containerd.sock";
    /// IMG-1.
    node_status_max_images: u32 = 0, Kubelet "nodeStatusMaxImages" "node-status-max-images" "0", Single("N"), images,
        "Images of the container runtime that the Node tells, the largest first; -1: as many as it may tell, 50";
    /// D8: true means capacity `pods: 0`, the taint twice and the label that keeps load balancers away.
    podless: bool = true, Ours "podless" "podless" "true", Boolean, boolean,
        "Keep pods away: capacity for 0 pods, taint nodepulse.dev/podless, no load balancer; false: maxPods";
    /// D1.
    reregister: bool = true, Ours "reregister" "reregister" "true", Boolean, boolean,
        "Register again when the Node was deleted; the kubelet never does";
    /// Before the cadences, which it sets.
    profile: Profile = Profile::Lan, Ours "profile" "profile" "lan", Single("lan|metered|satellite"), profile,
        "What the network is like: how often the board talks, where no setting below says so";
    node_monitor_grace_period: Duration = Duration::from_secs(50),
        Ours "nodeMonitorGracePeriod" "node-monitor-grace-period" "50s", Single("DURATION"), at_least(GRACE),
        "How long the controller manager waits for a renewal, as its option of that name says";
    node_lease_duration_seconds: u32 = 40,
        Kubelet "nodeLeaseDurationSeconds" "node-lease-duration-seconds" "40", Single("N"), number(1..=MOST),
        "How long a Lease lasts; it is renewed after a quarter of that";
    node_status_update_frequency: Duration = Duration::from_secs(10),
        Kubelet "nodeStatusUpdateFrequency" "node-status-update-frequency" "10s", Single("DURATION"), at_least(SECOND),
        "How often the board is read and changes are sent";
    node_status_report_frequency: Duration = Duration::from_secs(300),
        Kubelet "nodeStatusReportFrequency" "node-status-report-frequency" "5m0s", Single("DURATION"), at_least(SECOND),
        "How often an unchanged status is sent; nodeStatusUpdateFrequency, if only that is in the file";
    /// D4.
    status_assert_frequency: Duration = Duration::from_secs(60),
        Ours "statusAssertFrequency" "status-assert-frequency" "1m0s", Single("DURATION"), at_least(SECOND),
        "How often it is asked whether others wrote the Node, where it is not watched";
    /// `None`: no limit.
    daily_bytes: Option<u64> = None, Ours "dailyBytes" "daily-bytes" "", Single("BYTES"), daily_bytes,
        "How many bytes of IP a day may take: what can wait is put off when they run short, renewals never";
    /// D4.
    node_watch: bool = true, Ours "nodeWatch" "node-watch" "true", Boolean, boolean,
        "Over HTTP/2 watch the Node: what others write is answered at once, and not asked for";
    merge_default_eviction_settings: bool = false,
        Kubelet "mergeDefaultEvictionSettings" "merge-default-eviction-settings" "false", Boolean, boolean,
        "Keep the defaults of the signals that evictionHard does not name";
    /// EVI-1, D7.
    eviction_hard: PerSignal<Threshold> = PerSignal::from_iter(eviction::DEFAULTS),
        Kubelet "evictionHard" "eviction-hard"
        "nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5%, memory.available: the lesser of 100Mi and 10%",
        Map("SIGNAL", '<', "AMOUNT"), thresholds,
        "Limits below which a pressure condition becomes True; one key removes all defaults";
    /// BRD-1.
    conditions: PerCondition = PerCondition::new(),
        Ours "conditions" "conditions" "", Map("NAME", '=', "true|false|N"), conditions,
        "Conditions of the board itself, or reasons of theirs: false switches one off, true switches FirmwareThrottling on, a number moves its threshold";
    /// EVI-6.
    eviction_soft: PerSignal<Threshold> = PerSignal::new(),
        Kubelet "evictionSoft" "eviction-soft" "", Map("SIGNAL", '<', "AMOUNT"), thresholds,
        "As evictionHard; each signal needs a grace period, but its condition becomes True at once";
    eviction_soft_grace_period: PerSignal<Duration> = PerSignal::new(),
        Kubelet "evictionSoftGracePeriod" "eviction-soft-grace-period" "", Map("SIGNAL", '=', "DURATION"), periods,
        "How long a soft limit must be passed before evictionMinimumReclaim applies to it";
    eviction_minimum_reclaim: PerSignal<Threshold> = PerSignal::new(),
        Kubelet "evictionMinimumReclaim" "eviction-minimum-reclaim" "", Map("SIGNAL", '=', "AMOUNT"), reclaims,
        "How far above its limit a signal has to rise before its condition becomes False";
    eviction_pressure_transition_period: Duration = Duration::from_secs(300),
        Kubelet "evictionPressureTransitionPeriod" "eviction-pressure-transition-period" "5m0s",
        Single("DURATION"), at_least(Duration::ZERO),
        "How long a pressure condition stays True after the pressure has ended";
    kube_reserved: Reserved = Reserved::new(),
        Kubelet "kubeReserved" "kube-reserved" "", Map("RESOURCE", '=', "QUANTITY"), reserved,
        "Subtracted from allocatable: cpu, memory, ephemeral-storage, pid";
    system_reserved: Reserved = Reserved::new(),
        Kubelet "systemReserved" "system-reserved" "", Map("RESOURCE", '=', "QUANTITY"), reserved,
        "Also subtracted from allocatable: cpu, memory, ephemeral-storage, pid";
    /// Their number (ALC-3).
    reserved_system_cpus: Option<u32> = None,
        Kubelet "reservedSystemCPUs" "reserved-cpus" "", Single("CPUS"), reserved_cpus,
        "CPUs such as 0-3,5 to subtract from allocatable instead of reserved cpu";
    max_pods: u32 = 110, Kubelet "maxPods" "max-pods" "110", Single("N"), number(0..=MOST),
        "Capacity for pods; only with podless: false";
    pods_per_core: u32 = 0, Kubelet "podsPerCore" "pods-per-core" "0", Single("N"), number(0..=MOST),
        "Capacity for pods for each core, never more than maxPods; 0: maxPods alone counts";
    enable_controller_attach_detach: bool = true,
        Kubelet "enableControllerAttachDetach" "enable-controller-attach-detach" "true", Boolean, boolean,
        "Annotate the Node so that the controller never expects it to attach volumes";
    local_storage_capacity_isolation: bool = true,
        Kubelet "localStorageCapacityIsolation" "local-storage-capacity-isolation" "true", Boolean, boolean,
        "Report ephemeral-storage";
    /// DEP-1.
    port: u16 = 0, Kubelet "port" "port" "0", Single("N"), number(0..=65_535),
        "Port that the Node names as the kubelet's; 0, as nothing listens (a kubelet says 10250)";
    event_record_qps: u32 = 50, Kubelet "eventRecordQPS" "event-qps" "50", Single("N"), number(0..=MOST),
        "Events sent in a second; 0: no limit";
    event_burst: u32 = 100, Kubelet "eventBurst" "event-burst" "100", Single("N"), number(0..=MOST),
        "Events sent at once";
    alpn_protocol: Option<AlpnProtocol> = None, Ours "alpnProtocol" "alpn-protocol" "", Single("h2|http/1.1"), alpn_protocol,
        "The one protocol to speak with the API server; else HTTP/2, or HTTP/1.1 where the server chooses that";
    /// `SETTINGS_INITIAL_WINDOW_SIZE` is 0.
    http2_zero_window: bool = true, Ours "http2ZeroWindow" "http2-zero-window" "true", Boolean, boolean,
        "Over HTTP/2 let the server send no content that nobody reads; behind nginx that takes some seconds to be left off";
    /// SRC-8.
    state_directory: String = "/var/lib/nodepulse".to_owned(),
        Ours "stateDirectory" "state-directory" "/var/lib/nodepulse", Single("DIR"), absolute_path,
        "Where the agent keeps its files; the file system that holds it is the Node's ephemeral-storage";
    journal_quota_bytes: usize = 64 * 1024, Ours "journalQuota" "journal-quota" "64Ki", Single("BYTES"), journal_quota,
        "Largest size of the journal of what is not yet sent, 16Ki to 1Mi; when full, it drops the middle";
    announce_shutdown: bool = true, Ours "announceShutdown" "announce-shutdown" "true", Boolean, boolean,
        "Tell the server when the machine goes down or reboots (docs/conditions.md): the Node is not Ready at once, and that is planned";
    device_plugins: bool = false, Ours "devicePlugins" "device-plugins" "false", Boolean, boolean,
        "Let device plug-ins register, as with a kubelet, and tell of their devices as extended resources; from the next start on";
    kernel_events: bool = true, Ours "kernelEvents" "kernel-events" "true", Boolean, boolean,
        "Tell what the kernel logs of trouble as events: OOMKilling, TaskHung, KernelOops, Ext4Error, IOError (docs/conditions.md)";
    feature_labels: bool = true, Ours "featureLabels" "feature-labels" "true", Boolean, boolean,
        "Labels that say what the board is and has, with the names of node-feature-discovery (docs/labels.md)";
    board_serial_label: bool = false, Ours "boardSerialLabel" "board-serial-label" "false", Boolean, boolean,
        "A label with the serial number, nodepulse.dev/board-serial, to select a board by";
    sandbox: bool = true, Ours "sandbox" "sandbox" "true", Boolean, boolean,
        "After the start, give up every right that an agent never needs (SECURITY.md); false: keep them";
    verbosity: u8 = 2, Kubelet "logging.verbosity" "v" "2", Single("N"), number(0..=10),
        "How much is logged: 0 important changes, 2 every change, 4 and more each request";
}

impl Settings {
    /// How the API server is spoken with.
    pub fn http(&self) -> Http {
        Http { alpn_protocol: self.alpn_protocol, zero_window: self.http2_zero_window }
    }

    /// LSE-4.
    pub fn lease_renew_period(&self) -> Duration {
        Duration::from_millis(u64::from(self.node_lease_duration_seconds) * 250)
    }

    /// Whether they say how this board gets an identity by itself.
    pub fn can_join(&self) -> bool {
        !self.servers.is_empty() || self.bootstrap_kubeconfig.is_some()
    }

    /// Whether this condition of the board is not to be judged, or not for this reason.
    pub fn is_condition_off(&self, name: &str) -> bool {
        self.threshold(name, 0).is_none()
    }

    /// Of a condition of the board or one of its reasons, in its unit: `default` unless it was set. `None`: it is switched off.
    pub fn threshold(&self, name: &str, default: i64) -> Option<i64> {
        match self.conditions.get(name) {
            None | Some(ConditionSetting::On) => Some(default),
            Some(ConditionSetting::Off) => None,
            Some(ConditionSetting::Threshold(threshold)) => Some(*threshold),
        }
    }

    /// Whether the firmware of a Raspberry Pi is to be asked if it slows the board down: only where that was set, as its kernel
    /// warns of whoever does.
    pub fn asks_firmware(&self) -> bool {
        self.conditions.get("FirmwareThrottling") == Some(&ConditionSetting::On)
    }

    /// Whether a threshold asks for the number of PIDs: none does unless it was set (EVI-1).
    pub fn judges_pids(&self) -> bool {
        [&self.eviction_hard, &self.eviction_soft].iter().any(|all| all.contains_key(&Signal::PidAvailable))
    }
}

impl Setting {
    /// The setting of a key in the file.
    pub fn by_name(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// The setting of a flag, without its dashes.
    pub fn by_flag(flag: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.flag == flag)
    }

    /// `--node-labels`, `-v`.
    pub fn dashed_flag(&self) -> String {
        format!("{}{}", if self.flag.len() == 1 { "-" } else { "--" }, self.flag)
    }

    /// `--node-labels KEY=VALUE,...`, for the help; a truth value may be left out.
    pub fn usage(&self) -> String {
        let flag = self.dashed_flag();
        match self.form {
            Boolean => format!("{flag}[=true|false]"),
            Single(placeholder) => format!("{flag} {placeholder}"),
            Map(key, separator, value) => format!("{flag} {key}{separator}{value},..."),
            List(item, ..) => format!("{flag} {item},..."),
        }
    }

    /// Cuts a flag's text as the kubelet's flags do.
    pub(super) fn flag_value(&self, text: &str) -> Value {
        let value = |content| Value { line: 0, content };
        let one = |text: &str| value(Content::Text(text.to_owned()));
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        match self.form {
            Boolean | Single(_) => one(text),
            List(..) => value(Content::List(parts.map(one).collect())),
            Map(_, separator, _) => {
                let entry = |part: &str| {
                    let (key, text) = part.split_once(separator).unwrap_or((part, ""));
                    Entry { key: key.trim().to_owned(), line: 0, value: one(text) }
                };
                value(Content::Map(parts.map(entry).collect()))
            }
        }
    }

    /// Checks a value and puts it in its place, or keeps what is wrong with it.
    pub(super) fn read(&self, to: &mut Settings, field: &Field<'_>, findings: &mut Findings) {
        let list = self.list_of_one(field.value);
        let field = &Field { value: list.as_ref().unwrap_or(field.value), ..field.clone() };
        let checked = self.check_form(field.value).map_err(|wrong| field.problem(wrong));
        let read = checked.and_then(|()| (self.read)(to, field, findings));
        findings.accept(read);
    }

    /// A single text where a list belongs; nothing for an empty one.
    fn list_of_one(&self, value: &Value) -> Option<Value> {
        let (List(..), Some(text)) = (self.form, value.as_text()) else { return None };
        let items = if text.is_empty() { Vec::new() } else { vec![value.clone()] };
        Some(Value { line: value.line, content: Content::List(items) })
    }

    fn check_form(&self, value: &Value) -> Result<(), String> {
        let check_count = |count: usize, most: usize| match count > most {
            true => Err(format!("has {count} entries; {most} are allowed")),
            false => Ok(()),
        };
        match (self.form, &value.content) {
            (Map(..), Content::Map(entries)) => check_count(entries.len(), limits::NODE_LABELS),
            (List(.., most), Content::List(items)) => check_count(items.len(), most),
            (Map(key, _, of), _) => Err(format!("must be a map of {key}: {of}, not {}", value.kind())),
            (List(_, of, _), _) => Err(format!("must be a list of {of}, not {}", value.kind())),
            (_, Content::Text(text)) if text.trim().chars().any(char::is_control) => {
                Err("must be one line without control characters".to_owned())
            }
            (_, Content::Text(_)) => Ok(()),
            (_, Content::Map(_)) => {
                Err("must be a single value, not a map (a text that begins with { stands in quotes)".to_owned())
            }
            _ => Err(format!("must be a single value, not {}", value.kind())),
        }
    }
}
