//! Turns the key of a file or the name of a flag into its setting: the one table that files, flags, help, manual,
//! README and completions follow.

use std::time::Duration;

use super::duration;
use super::eviction;
use super::limits;
use super::node_values;
use super::quantity::Quantity;
use super::scalars::{boolean, bytes, number, path, set, span, text};
use super::setting::{Setting, Shape, Whose};
use super::settings::CloudProvider;
use super::yaml::Value;

/// The setting of a key in the file.
pub fn by_name(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The setting of a flag, without its dashes.
pub fn by_flag(flag: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.flag == flag)
}

/// The shortest period: what is more often would be a load on the server that no board is worth.
const LEAST_PERIOD: Duration = Duration::from_secs(1);
/// The API's own whole numbers.
const MOST: u32 = i32::MAX as u32;

/// Every setting, in the order of the help text.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "kubeconfig",
        flag: "kubeconfig",
        shape: Shape::File,
        default: "",
        meaning: "Server and credentials; else /etc/nodepulse/kubeconfig, if it is there",
        whose: Whose::KubeletFlag,
        read: |draft, value, report| {
            let path = path(value, report).map(|path| Some(path).filter(|path| !path.is_empty()));
            set(&mut draft.settings.kubeconfig, path);
        },
        print: |settings| Value::text(settings.kubeconfig.as_deref().unwrap_or("")),
    },
    Setting {
        name: "hostnameOverride",
        flag: "hostname-override",
        shape: Shape::Text("NAME"),
        default: "",
        meaning: "Name of the Node; else the one in its client certificate (system:node:NAME), else the host's",
        whose: Whose::KubeletFlag,
        read: |draft, value, report| set(&mut draft.settings.hostname_override, node_values::hostname(value, report)),
        print: |settings| Value::text(settings.hostname_override.as_deref().unwrap_or("")),
    },
    Setting {
        name: "nodeIP",
        flag: "node-ip",
        shape: Shape::Text("ADDRESS"),
        default: "",
        meaning: "Address of the Node, or one IPv4 and one IPv6 with a comma; 0.0.0.0 or :: prefers that family",
        whose: Whose::KubeletFlag,
        read: |draft, value, report| set(&mut draft.settings.node_ip, node_values::node_ip(value, report)),
        print: |settings| Value::text(&node_values::print_node_ip(&settings.node_ip)),
    },
    Setting {
        name: "nodeLabels",
        flag: "node-labels",
        shape: Shape::Map('='),
        default: "",
        meaning: "Labels of the Node at registration; keys that only an administrator may set are refused",
        whose: Whose::KubeletFlag,
        read: |draft, value, report| set(&mut draft.settings.node_labels, node_values::node_labels(value, report)),
        print: |settings| Value::map(settings.node_labels.iter().map(|(key, value)| (key.clone(), value.clone()))),
    },
    Setting {
        name: "registerNode",
        flag: "register-node",
        shape: Shape::Boolean,
        default: "true",
        meaning: "Create the Node; false: wait until somebody else has created it",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.register_node, boolean(value, report)),
        print: |settings| Value::text(&settings.register_node.to_string()),
    },
    Setting {
        name: "registerWithTaints",
        flag: "register-with-taints",
        shape: Shape::List("KEY=VALUE:EFFECT,..."),
        default: "",
        meaning: "Taints of a new Node, each key=value:effect; an existing Node keeps its own",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.register_with_taints, node_values::taints(value, report)),
        print: |settings| {
            Value::list(settings.register_with_taints.iter().map(|taint| {
                let parts = [("key", &*taint.key), ("value", &*taint.value), ("effect", taint.effect.word())];
                Value::map(parts.map(|(name, text)| (name.to_owned(), text.to_owned())))
            }))
        },
    },
    Setting {
        name: "providerID",
        flag: "provider-id",
        shape: Shape::Text("ID"),
        default: "",
        meaning: "spec.providerID of a new Node",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.provider_id, text(value, report)),
        print: |settings| Value::text(&settings.provider_id),
    },
    Setting {
        name: "cloudProvider",
        flag: "cloud-provider",
        shape: Shape::Text("external"),
        default: "",
        meaning: "external: taint the new Node until a cloud controller has initialised it",
        whose: Whose::KubeletFlag,
        read: |draft, value, report| {
            set(&mut draft.settings.cloud_provider, node_values::cloud_provider(value, report))
        },
        print: |settings| {
            Value::text(match settings.cloud_provider {
                CloudProvider::None => "",
                CloudProvider::External => "external",
            })
        },
    },
    Setting {
        name: "instanceType",
        flag: "instance-type",
        shape: Shape::Text("TYPE"),
        default: "",
        meaning: "Label node.kubernetes.io/instance-type, as a cloud would set it",
        whose: Whose::Ours,
        read: |draft, value, report| set(&mut draft.settings.instance_type, node_values::label_value(value, report)),
        print: |settings| Value::text(&settings.instance_type),
    },
    Setting {
        name: "zone",
        flag: "zone",
        shape: Shape::Text("ZONE"),
        default: "",
        meaning: "Label topology.kubernetes.io/zone, as a cloud would set it",
        whose: Whose::Ours,
        read: |draft, value, report| set(&mut draft.settings.zone, node_values::label_value(value, report)),
        print: |settings| Value::text(&settings.zone),
    },
    Setting {
        name: "region",
        flag: "region",
        shape: Shape::Text("REGION"),
        default: "",
        meaning: "Label topology.kubernetes.io/region, as a cloud would set it",
        whose: Whose::Ours,
        read: |draft, value, report| set(&mut draft.settings.region, node_values::label_value(value, report)),
        print: |settings| Value::text(&settings.region),
    },
    Setting {
        name: "extraAddresses",
        flag: "extra-addresses",
        shape: Shape::List("TYPE=ADDRESS,..."),
        default: "",
        meaning: "Addresses after the detected ones, each TYPE=ADDRESS with a type such as ExternalIP or ExternalDNS",
        whose: Whose::Ours,
        read: |draft, value, report| {
            set(&mut draft.settings.extra_addresses, node_values::extra_addresses(value, report));
        },
        print: |settings| {
            Value::list(settings.extra_addresses.iter().map(|(kind, address)| {
                Value::map([("type".to_owned(), kind.clone()), ("address".to_owned(), address.clone())])
            }))
        },
    },
    Setting {
        name: "podless",
        flag: "podless",
        shape: Shape::Boolean,
        default: "true",
        meaning: "Keep pods away: capacity for 0 pods, taint nodepulse.dev/podless, no load balancer; false: maxPods",
        whose: Whose::Ours,
        read: |draft, value, report| set(&mut draft.settings.podless, boolean(value, report)),
        print: |settings| Value::text(&settings.podless.to_string()),
    },
    Setting {
        name: "reregister",
        flag: "reregister",
        shape: Shape::Boolean,
        default: "true",
        meaning: "Register again when the Node was deleted; the kubelet never does",
        whose: Whose::Ours,
        read: |draft, value, report| set(&mut draft.settings.reregister, boolean(value, report)),
        print: |settings| Value::text(&settings.reregister.to_string()),
    },
    Setting {
        name: "nodeLeaseDurationSeconds",
        flag: "node-lease-duration-seconds",
        shape: Shape::Number,
        default: "40",
        meaning: "How long a Lease lasts; it is renewed after a quarter of that",
        whose: Whose::Kubelet,
        read: |draft, value, report| {
            set(&mut draft.settings.node_lease_duration_seconds, number(value, 1..=MOST, report));
        },
        print: |settings| Value::text(&settings.node_lease_duration_seconds.to_string()),
    },
    Setting {
        name: "nodeStatusUpdateFrequency",
        flag: "node-status-update-frequency",
        shape: Shape::Duration,
        default: "10s",
        meaning: "How often the board is read and changes are sent",
        whose: Whose::Kubelet,
        read: |draft, value, report| {
            set(&mut draft.settings.node_status_update_frequency, span(value, LEAST_PERIOD, report));
        },
        print: |settings| Value::text(&duration::print(settings.node_status_update_frequency)),
    },
    Setting {
        name: "nodeStatusReportFrequency",
        flag: "node-status-report-frequency",
        shape: Shape::Duration,
        default: "5m0s",
        meaning: "How often an unchanged status is sent; nodeStatusUpdateFrequency, if only that is in the file",
        whose: Whose::Kubelet,
        read: |draft, value, report| {
            set(&mut draft.settings.node_status_report_frequency, span(value, LEAST_PERIOD, report));
        },
        print: |settings| Value::text(&duration::print(settings.node_status_report_frequency)),
    },
    Setting {
        name: "statusAssertFrequency",
        flag: "status-assert-frequency",
        shape: Shape::Duration,
        default: "1m0s",
        meaning: "How often conditions are asserted without a change, which heals what others wrote (no watch)",
        whose: Whose::Ours,
        read: |draft, value, report| {
            set(&mut draft.settings.status_assert_frequency, span(value, LEAST_PERIOD, report));
        },
        print: |settings| Value::text(&duration::print(settings.status_assert_frequency)),
    },
    Setting {
        name: "evictionHard",
        flag: "eviction-hard",
        shape: Shape::Map('<'),
        default: "nodefs.available: 10%, nodefs.inodesFree: 5%, memory.available: the lesser of 100Mi and 10%",
        meaning: "Below which a pressure condition is True; one key drops all defaults",
        whose: Whose::Kubelet,
        read: eviction::hard,
        print: |settings| eviction::print_hard(&settings.eviction),
    },
    Setting {
        name: "mergeDefaultEvictionSettings",
        flag: "merge-default-eviction-settings",
        shape: Shape::Boolean,
        default: "false",
        meaning: "Keep the defaults of the signals that evictionHard does not name",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.merge_default_eviction_settings, boolean(value, report)),
        print: |settings| Value::text(&eviction::merges_defaults(&settings.eviction).to_string()),
    },
    Setting {
        name: "evictionSoft",
        flag: "eviction-soft",
        shape: Shape::Map('<'),
        default: "",
        meaning: "As evictionHard; each signal needs a grace period, and raises its condition at once all the same",
        whose: Whose::Kubelet,
        read: eviction::soft,
        print: |settings| eviction::print_thresholds(&settings.eviction.soft),
    },
    Setting {
        name: "evictionSoftGracePeriod",
        flag: "eviction-soft-grace-period",
        shape: Shape::Map('='),
        default: "",
        meaning: "How long a soft threshold has to be met until evictionMinimumReclaim applies to it",
        whose: Whose::Kubelet,
        read: eviction::soft_grace_period,
        print: |settings| eviction::print_periods(&settings.eviction.soft_grace_period),
    },
    Setting {
        name: "evictionMinimumReclaim",
        flag: "eviction-minimum-reclaim",
        shape: Shape::Map('='),
        default: "",
        meaning: "How far above its threshold a signal has to rise before its condition ends",
        whose: Whose::Kubelet,
        read: eviction::minimum_reclaim,
        print: |settings| eviction::print_thresholds(&settings.eviction.minimum_reclaim),
    },
    Setting {
        name: "evictionPressureTransitionPeriod",
        flag: "eviction-pressure-transition-period",
        shape: Shape::Duration,
        default: "5m0s",
        meaning: "How long a pressure condition stays True after the last pressure",
        whose: Whose::Kubelet,
        read: |draft, value, report| {
            set(&mut draft.settings.eviction.pressure_transition_period, span(value, Duration::ZERO, report));
        },
        print: |settings| Value::text(&duration::print(settings.eviction.pressure_transition_period)),
    },
    Setting {
        name: "kubeReserved",
        flag: "kube-reserved",
        shape: Shape::Map('='),
        default: "",
        meaning: "Taken off allocatable: cpu, memory, ephemeral-storage, pid",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.kube_reserved, node_values::reserved(value, report)),
        print: |settings| {
            Value::map(settings.kube_reserved.iter().map(|(key, value)| (key.clone(), value.to_string())))
        },
    },
    Setting {
        name: "systemReserved",
        flag: "system-reserved",
        shape: Shape::Map('='),
        default: "",
        meaning: "Taken off allocatable as well: cpu, memory, ephemeral-storage, pid",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.system_reserved, node_values::reserved(value, report)),
        print: |settings| {
            Value::map(settings.system_reserved.iter().map(|(key, value)| (key.clone(), value.to_string())))
        },
    },
    Setting {
        name: "reservedSystemCPUs",
        flag: "reserved-cpus",
        shape: Shape::Text("CPUS"),
        default: "",
        meaning: "CPUs such as 0-3,5 to take off allocatable instead of reserved cpu",
        whose: Whose::Kubelet,
        read: |draft, value, report| {
            set(&mut draft.settings.reserved_system_cpus, node_values::cpu_count(value, report))
        },
        print: |settings| match settings.reserved_system_cpus {
            Some(count) if count > 0 => Value::text(&format!("0-{}", count - 1)),
            _ => Value::text(""),
        },
    },
    Setting {
        name: "maxPods",
        flag: "max-pods",
        shape: Shape::Number,
        default: "110",
        meaning: "Capacity for pods; only with podless: false",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.max_pods, number(value, 0..=MOST, report)),
        print: |settings| Value::text(&settings.max_pods.to_string()),
    },
    Setting {
        name: "podsPerCore",
        flag: "pods-per-core",
        shape: Shape::Number,
        default: "0",
        meaning: "Capacity for pods for each core, never more than maxPods; 0: maxPods alone counts",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.pods_per_core, number(value, 0..=MOST, report)),
        print: |settings| Value::text(&settings.pods_per_core.to_string()),
    },
    Setting {
        name: "enableControllerAttachDetach",
        flag: "enable-controller-attach-detach",
        shape: Shape::Boolean,
        default: "true",
        meaning: "Annotate the Node so that the controller never expects it to attach volumes",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.enable_controller_attach_detach, boolean(value, report)),
        print: |settings| Value::text(&settings.enable_controller_attach_detach.to_string()),
    },
    Setting {
        name: "localStorageCapacityIsolation",
        flag: "local-storage-capacity-isolation",
        shape: Shape::Boolean,
        default: "true",
        meaning: "Report ephemeral-storage",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.local_storage_capacity_isolation, boolean(value, report)),
        print: |settings| Value::text(&settings.local_storage_capacity_isolation.to_string()),
    },
    Setting {
        name: "port",
        flag: "port",
        shape: Shape::Number,
        default: "0",
        meaning: "Port that the Node names as the kubelet's; 0, as nothing listens (a kubelet says 10250)",
        whose: Whose::Kubelet,
        read: |draft, value, report| {
            let port = number(value, 0..=u32::from(u16::MAX), report).and_then(|port| u16::try_from(port).ok());
            set(&mut draft.settings.port, port);
        },
        print: |settings| Value::text(&settings.port.to_string()),
    },
    Setting {
        name: "eventRecordQPS",
        flag: "event-qps",
        shape: Shape::Number,
        default: "50",
        meaning: "Events sent in a second; 0: no limit",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.event_record_qps, number(value, 0..=MOST, report)),
        print: |settings| Value::text(&settings.event_record_qps.to_string()),
    },
    Setting {
        name: "eventBurst",
        flag: "event-burst",
        shape: Shape::Number,
        default: "100",
        meaning: "Events sent at once",
        whose: Whose::Kubelet,
        read: |draft, value, report| set(&mut draft.settings.event_burst, number(value, 0..=MOST, report)),
        print: |settings| Value::text(&settings.event_burst.to_string()),
    },
    Setting {
        name: "stateDirectory",
        flag: "state-directory",
        shape: Shape::Directory,
        default: "/var/lib/nodepulse",
        meaning: "Where the agent keeps its files; the file system that holds it is the Node's ephemeral-storage",
        whose: Whose::Ours,
        read: |draft, value, report| match path(value, report) {
            Some(path) if !path.starts_with('/') => report.refuse(value, "must be an absolute path"),
            path => set(&mut draft.settings.state_directory, path),
        },
        print: |settings| Value::text(&settings.state_directory),
    },
    Setting {
        name: "journalQuota",
        flag: "journal-quota",
        shape: Shape::Text("BYTES"),
        default: "64Ki",
        meaning: "Most bytes of the journal of what happened and is not yet told, 16Ki to 1Mi; full, it drops the middle",
        whose: Whose::Ours,
        read: |draft, value, report| {
            let allowed = limits::JOURNAL_LEAST_BYTES..=limits::JOURNAL_MOST_BYTES;
            set(&mut draft.settings.journal_quota_bytes, bytes(value, allowed, report));
        },
        print: |settings| Value::text(&Quantity::from_bytes(settings.journal_quota_bytes as u64).to_string()),
    },
    Setting {
        name: "sandbox",
        flag: "sandbox",
        shape: Shape::Boolean,
        default: "true",
        meaning: "Once everything is open, give up what an agent never needs (SECURITY.md); false: nothing is given up",
        whose: Whose::Ours,
        read: |draft, value, report| set(&mut draft.settings.sandbox, boolean(value, report)),
        print: |settings| Value::text(&settings.sandbox.to_string()),
    },
    Setting {
        name: "logging.verbosity",
        flag: "v",
        shape: Shape::Number,
        default: "2",
        meaning: "How much is logged: 0 changes that matter, 2 every change, 4 and more each request",
        whose: Whose::Kubelet,
        read: |draft, value, report| {
            let verbosity = number(value, 0..=10, report).and_then(|verbosity| u8::try_from(verbosity).ok());
            set(&mut draft.settings.verbosity, verbosity);
        },
        print: |settings| Value::text(&settings.verbosity.to_string()),
    },
];
