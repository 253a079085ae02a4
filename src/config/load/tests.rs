//! What files and flags become, and that everything wrong is told at once, with its line and what is allowed.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::*;
use crate::config::join::PRINT_CA_HASH;
use crate::config::limits;
use crate::config::settings::{CaHash, NodeIp, Signal, Threshold, Token};
use crate::config::taint::{Effect, Taint};

const OURS: &str = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n";
const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const PATH: &str = "/etc/nodepulse/config.yaml";
const TOKEN: &str = "abcdef.0123456789abcdef";
const HASH: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn flags(flags: &[(&str, &str)]) -> Vec<(String, String)> {
    flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn load(head: &str, body: &str, given: &[(&str, &str)]) -> Loaded {
    let text = format!("{head}{body}");
    match settings(Some((PATH, &text)), &flags(given)) {
        Ok(loaded) => loaded,
        Err(problems) => panic!("{problems:?}"),
    }
}

fn problems(head: &str, body: &str, given: &[(&str, &str)]) -> Vec<String> {
    let text = format!("{head}{body}");
    let problems = settings(Some((PATH, &text)), &flags(given)).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

/// The one problem that a body makes; all in the same file.
fn problem(body: &str) -> String {
    let mut problems = problems(OURS, body, &[]);
    assert_eq!(problems.len(), 1, "{body}: {problems:?}");
    problems.remove(0).replace("/etc/nodepulse/", "")
}

#[test]
fn nothing_given_is_the_defaults() {
    let defaults = Loaded { settings: Settings::default(), notices: Vec::new() };
    assert_eq!(settings(None, &[]), Ok(defaults.clone()));
    for text in ["", "# all commented out\n", OURS, "---\n"] {
        assert_eq!(settings(Some((PATH, text)), &[]), Ok(defaults.clone()), "{text}");
    }
}

#[test]
fn the_quota_of_the_journal_is_a_quantity_within_bounds() {
    assert_eq!(load(OURS, "journalQuota: 1Mi\n", &[]).settings.journal_quota_bytes, 1 << 20);
    assert_eq!(load(OURS, "", &[("journal-quota", "20000")]).settings.journal_quota_bytes, 20_000);
    for wrong in ["15Ki", "2Mi", "-1", "much", ""] {
        let said = problem(&format!("journalQuota: \"{wrong}\"\n"));
        assert!(said.ends_with(&format!("must be a quantity from 16Ki to 1Mi, not {wrong:?}")), "{said}");
    }
}

#[test]
fn every_setting_is_read_from_a_file() {
    let every = include_str!("every-setting.yaml");
    let loaded = load(OURS, every, &[]).settings;
    // A soft threshold cannot be without its grace period, and one token is enough.
    let apart = ["evictionSoftGracePeriod", "tokenFile", "bootstrapKubeconfig"];
    for setting in SETTINGS.iter().filter(|setting| !apart.contains(&setting.name)) {
        let (key, mut is_its) = (setting.name.split('.').next(), false);
        let others = every.lines().filter(|line| {
            is_its = if line.starts_with([' ', '-']) { is_its } else { line.split(':').next() == key };
            !is_its
        });
        let others: Vec<&str> = others.collect();
        assert_ne!(load(OURS, &others.join("\n"), &[]).settings, loaded, "{} is not read", setting.name);
    }
    assert_eq!(loaded.kubeconfig.as_deref(), Some("/etc/nodepulse/node.kubeconfig"));
    let hosts: Vec<(&str, u16)> = loaded.servers.iter().map(|server| (&*server.host, server.port)).collect();
    assert_eq!(hosts, [("10.0.0.1", 6443), ("2001:db8::1", 6443)]);
    assert_eq!(loaded.token.as_ref().map(Token::as_str), Some("abcdef.0123456789abcdef"));
    assert_eq!(loaded.ca_hash, [CaHash::parse(HASH).unwrap()]);
    assert_eq!(loaded.ca_file.as_deref(), Some("/etc/nodepulse/ca.crt"));
    assert_eq!(loaded.certificate_lifetime, Some(Duration::from_secs(720 * 3600)));
    assert_eq!(loaded.hostname_override.as_deref(), Some("gate-7"));
    assert_eq!(loaded.node_ip, NodeIp::Two("192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()));
    assert_eq!(loaded.register_with_taints[1].effect, Effect::PreferNoSchedule);
    assert_eq!(loaded.extra_addresses[0], ("ExternalDNS".to_owned(), "gate-7.example.com".to_owned()));
    assert_eq!(loaded.node_status_report_frequency, Duration::from_secs(90));
    assert_eq!(loaded.eviction_hard[&Signal::MemoryAvailable], Threshold::Quantity(64 << 20));
    assert_eq!(loaded.reserved_system_cpus, Some(3));
}

#[test]
fn one_text_is_a_list_of_one_and_an_empty_one_is_none() {
    let loaded = load(OURS, "servers: k8s.lan:6443\nregisterWithTaints: a=b:NoExecute\ncaHash: ''\n", &[]).settings;
    assert_eq!(loaded.servers.iter().map(|server| &*server.host).collect::<Vec<_>>(), ["k8s.lan"]);
    assert_eq!((loaded.register_with_taints.len(), loaded.ca_hash.len()), (1, 0));
    let two = format!("{HASH},sha256:{}", "0".repeat(64));
    let given = [("ca-hash", two.as_str()), ("ca-hash", &format!("sha256:{}", "1".repeat(64)))];
    assert_eq!(load(OURS, &format!("caHash: {HASH}\n"), &given).settings.ca_hash.len(), 3);
}

#[test]
fn a_token_needs_to_be_told_which_server_may_have_it() {
    let token = format!("servers: https://10.0.0.1:6443\ntoken: {TOKEN}\n");
    let said = problem(&token);
    let start = "config.yaml:4: token: nothing says which server may have it: add caHash: sha256:HASH (--ca-hash)";
    assert!(said.starts_with(start) && said.ends_with(PRINT_CA_HASH), "{said}");
    for trust in [&format!("caHash: {HASH}"), "caFile: /ca.crt", "unsafeSkipCaVerification: true"] {
        assert!(load(OURS, &format!("{token}{trust}\n"), &[]).notices.is_empty(), "{trust}");
    }
    let of_k3s = format!("K10{}::node:secret", HASH.trim_start_matches("sha256:"));
    assert_eq!(load("", "", &[("token", &of_k3s)]).settings.token.unwrap().as_str(), of_k3s);
    let flagged = problems(OURS, "", &[("token", TOKEN)]).remove(0);
    assert!(flagged.starts_with("--token: nothing says which server may have it"), "{flagged}");
    let both = load(OURS, &format!("{token}unsafeSkipCaVerification: true\n"), &[("ca-hash", HASH)]);
    let told = "unsafeSkipCaVerification: has no effect: caHash says which server may have the token";
    assert_eq!(both.notices, [format!("{PATH}:5: {told}")]);
}

#[test]
fn of_two_tokens_one_must_go_and_a_flag_goes_before_any_in_the_file() {
    let token = format!("caHash: {HASH}\ntoken: {TOKEN}\n");
    let again = "token in line 4 brings a token as well: keep one of them";
    assert_eq!(problem(&format!("{token}tokenFile: t\n")), format!("config.yaml:5: tokenFile: {again}"));
    assert_eq!(
        problem(&format!("{token}bootstrapKubeconfig: b\n")),
        format!("config.yaml:5: bootstrapKubeconfig: {again}")
    );
    assert_eq!(
        problems(OURS, "", &[("bootstrap-kubeconfig", "b"), ("token-file", "t")]),
        ["--bootstrap-kubeconfig: --token-file brings a token as well: keep one of them"]
    );
    let settings = load(OURS, &token, &[("token-file", "t")]).settings;
    assert_eq!((settings.token, settings.token_file.as_deref()), (None, Some("t")));
    let settings = load(OURS, &token, &[("bootstrap-kubeconfig", "b")]).settings;
    assert_eq!((settings.token, settings.bootstrap_kubeconfig.as_deref()), (None, Some("b")));
    let settings =
        load(OURS, "bootstrapKubeconfig: b\ntokenFile: t\n", &[("token", TOKEN), ("ca-hash", HASH)]).settings;
    assert_eq!(
        (settings.token.unwrap().as_str(), settings.token_file, settings.bootstrap_kubeconfig),
        (TOKEN, None, None)
    );
}

#[test]
fn what_is_wrong_with_joining_is_told_with_its_line_and_never_shows_the_token() {
    for (body, text) in [
        (
            "servers: [http://10.0.0.1]",
            "servers[0]: http:// is refused: credentials would be sent unencrypted; write https://HOST:PORT",
        ),
        ("servers: [{a: b}]", "servers[0]: must be https://HOST:PORT, not a map"),
        ("servers: [api:1, 'https://API:1/']", "servers[1]: is in the list twice: keep one of them"),
        ("caHash: [{}]", "caHash[0]: must be sha256:HASH, not a map"),
        (
            "proxyURL: https://proxy",
            "proxyURL: a proxy by https:// is not supported, only one that knows CONNECT; write http://HOST:PORT (what goes through it is encrypted up to the API server)",
        ),
        ("certificateLifetime: 5m", "certificateLifetime: must be at least 600s, not 300s"),
        ("certificateLifetime: 700000h", "certificateLifetime: must be at most 2147483647s, not 2520000000s"),
        ("token: [a]", "token: must be a single value, not a list"),
    ] {
        assert_eq!(problem(body), format!("config.yaml:3: {text}"));
    }
    for secret in [
        "secret-0123456789abcdef",
        "abcdef.0123456789ABCDEF",
        "abcdef.01234 56789abcdef",
        "\"abcdef.\\n0123456789abcdef\"",
    ] {
        let said = problem(&format!("token: {secret}"));
        assert!(
            !said.contains("secret") && !said.contains("01234") && said.starts_with("config.yaml:3: token: "),
            "{said}"
        );
    }
    let many = format!("servers: [{}]", (1..=17).map(|index| format!("api:{index}")).collect::<Vec<_>>().join(", "));
    assert_eq!(problem(&many), "config.yaml:3: servers: has 17 entries; 16 are allowed");
    assert!(problem("caHash: [sha256:00]").contains("must be sha256: and 64 hexadecimal digits, not \"sha256:00\""));
}

#[test]
fn what_debug_prints_of_settings_shows_no_token() {
    let loaded = load(OURS, &format!("token: {TOKEN}\ncaHash: {HASH}\n"), &[]);
    let shown = format!("{loaded:?} {loaded:#?}");
    assert!(shown.contains("Token(..)") && !shown.contains("0123456789abcdef\""), "{shown}");
    assert!(!shown.contains(TOKEN));
}

#[test]
fn flags_win_over_the_file_setting_by_setting() {
    let body = "nodeLabels: {from: file}\nmaxPods: 20\nregisterWithTaints: [{key: file, effect: NoExecute}]\n";
    let given = [
        ("node-labels", "a=1,b"),
        ("register-with-taints", "one=x:NoSchedule"),
        ("node-labels", "a=2, c=3 "),
        ("register-with-taints", "two:NoExecute"),
        ("podless", "false"),
        ("node-ip", "10.0.0.1"),
        ("node-ip", "10.0.0.2"),
        ("eviction-hard", "memory.available<5%,nodefs.available<1Gi"),
        ("kube-reserved", "cpu=100m,memory=64Mi"),
        ("kubeconfig", "relative"),
        ("v", "4"),
    ];
    let Settings { node_labels, register_with_taints, node_ip, max_pods, eviction_hard, kubeconfig, verbosity, .. } =
        load(OURS, body, &given).settings;
    let labels: Vec<(&str, &str)> = node_labels.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(labels, [("a", "2"), ("b", ""), ("c", "3")]);
    let taint = |text| Taint::parse(text).unwrap();
    assert_eq!(register_with_taints, [taint("one=x:NoSchedule"), taint("two:NoExecute")]);
    assert_eq!(node_ip, NodeIp::One(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))));
    assert_eq!(max_pods, 20);
    assert_eq!(eviction_hard[&Signal::MemoryAvailable], Threshold::Percentage(5.0));
    assert_eq!(eviction_hard.len(), 2);
    assert_eq!(kubeconfig.as_deref(), Some("relative"));
    assert_eq!(verbosity, 4);
    assert!(load(OURS, body, &[("node-labels", "")]).settings.node_labels.is_empty());
}

#[test]
fn the_report_frequency_follows_the_update_frequency_only_within_a_file() {
    let report = |body, given: &[_]| load(OURS, body, given).settings.node_status_report_frequency.as_secs();
    assert_eq!(report("", &[]), 300);
    assert_eq!(report("nodeStatusUpdateFrequency: 20s", &[]), 20);
    assert_eq!(report("nodeStatusUpdateFrequency: 20s\nnodeStatusReportFrequency: 1m", &[]), 60);
    assert_eq!(report("", &[("node-status-update-frequency", "20s")]), 300);
    assert_eq!(report("nodeStatusUpdateFrequency: 20s", &[("node-status-update-frequency", "30s")]), 20);
}

#[test]
fn a_zero_in_a_file_is_the_default_where_a_kubelet_takes_it_so_and_a_flag_means_it() {
    const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let default = Settings::default();
    for kind in [OURS, KUBELET] {
        for zero in ["0s", "0h", "0ms", "0h0m0s", "0.0s"] {
            let body = format!(
                "nodeStatusUpdateFrequency: {zero}\nnodeStatusReportFrequency: {zero}\n\
                 evictionPressureTransitionPeriod: {zero}\nnodeLeaseDurationSeconds: 0\nmaxPods: 0\neventBurst: 0\n"
            );
            assert_eq!(load(kind, &body, &[]).settings, default, "{kind}{body}");
        }
        let flagged = load(kind, "", &[("eviction-pressure-transition-period", "0s")]).settings;
        assert_eq!(flagged.eviction_pressure_transition_period, Duration::ZERO);
        let faster = load(kind, "nodeStatusUpdateFrequency: 5s\nnodeStatusReportFrequency: 0ms", &[]).settings;
        assert_eq!(faster.node_status_report_frequency, Duration::from_secs(5));
    }
}

#[test]
fn the_file_that_kubeadm_writes_is_used_as_far_as_it_applies() {
    let loaded = load("", include_str!("kubeadm.yaml"), &[]);
    let container_runtime_endpoint = Some("/run/containerd/containerd.sock".to_owned());
    assert_eq!(loaded.settings, Settings { verbosity: 0, container_runtime_endpoint, ..Settings::default() });
    let [notice] = loaded.notices.as_slice() else { panic!("{:?}", loaded.notices) };
    assert!(notice.starts_with(
        "/etc/nodepulse/config.yaml: fields of the kubelet without meaning here, ignored: authentication, "
    ));
    assert!(
        notice.contains("clusterDNS") && notice.contains("logging.flushFrequency") && !notice.contains("verbosity")
    );
}

#[test]
fn a_kubelet_file_takes_only_what_the_kubelet_takes() {
    let loaded =
        load(KUBELET, "registerNode: false\nmaxPods: 30\nprotectKernelDefaults: true\n", &[("podless", "false")]);
    assert_eq!((loaded.settings.register_node, loaded.settings.max_pods), (false, 30));
    assert_eq!(
        problems(KUBELET, "podless: false\nnodeLabels: {a: b}\nmaxPod: 1\nnodelabels: {}\n", &[]),
        [
            "/etc/nodepulse/config.yaml:3: podless: is no field of kind KubeletConfiguration: use kind \
             NodePulseConfiguration, or the flag --podless",
            "/etc/nodepulse/config.yaml:4: nodeLabels: is no field of kind KubeletConfiguration: use kind \
             NodePulseConfiguration, or the flag --node-labels",
            "/etc/nodepulse/config.yaml:5: unknown key \"maxPod\": did you mean maxPods?",
            "/etc/nodepulse/config.yaml:6: unknown key \"nodelabels\": nodepulse help settings lists them",
        ]
    );
}

#[test]
fn every_problem_is_told_at_once_files_before_flags_in_order_of_lines() {
    let body = "\
nodeLables: {}
podless: maybe
nodeLeaseDurationSeconds: -1
nodeStatusUpdateFrequency: 10
registerWithTaints:
- {key: a, effect: NoSchedul}
nodeLabels:
  node-role.kubernetes.io/worker: ''
kubeReserved: {gpu: 1}
maxPods: 1
maxPods: 2
";
    assert_eq!(
        problems(OURS, body, &[("node-ip", "10.0.0.1,10.0.0.2"), ("kubeconfg", "x")]),
        [
            "/etc/nodepulse/config.yaml:3: unknown key \"nodeLables\": did you mean nodeLabels?",
            "/etc/nodepulse/config.yaml:4: podless: must be true or false, not \"maybe\"",
            "/etc/nodepulse/config.yaml:5: nodeLeaseDurationSeconds: must be a whole number from 1 to 2147483647, \
             not \"-1\"",
            "/etc/nodepulse/config.yaml:6: nodeStatusUpdateFrequency: \"10\" has no unit: write for example \
             10s, 1m30s or 5m",
            "/etc/nodepulse/config.yaml:8: registerWithTaints[0]: unknown effect \"NoSchedul\": use \
             NoSchedule, PreferNoSchedule or NoExecute",
            "/etc/nodepulse/config.yaml:10: nodeLabels.node-role.kubernetes.io/worker: a node may not set this \
             label on itself (NodeRestriction), every request would be refused; remove it here and let an administrator \
             run: kubectl label node NAME node-role.kubernetes.io/worker=",
            "/etc/nodepulse/config.yaml:11: kubeReserved.gpu: cannot be reserved: use cpu, memory, \
             ephemeral-storage, pid",
            "/etc/nodepulse/config.yaml:13: `maxPods` is already in line 12: keep one of them",
            "unknown flag \"kubeconfg\": did you mean kubeconfig?",
            "--node-ip: must be one IP address, or one IPv4 and one IPv6 address, neither of them 0.0.0.0 or ::",
        ]
    );
}

#[test]
fn kind_and_version_must_be_known() {
    let one = |text: &str| problems(text, "", &[]).join("\n");
    assert_eq!(
        one("maxPods: 1"),
        "/etc/nodepulse/config.yaml:1: kind: is missing: write \
         `apiVersion: nodepulse.dev/v1` and `kind: NodePulseConfiguration`"
    );
    assert!(one("kind: NodepulseConfig").contains(":1: kind: unknown kind"));
    assert!(one("kind: KubeletConfigurations").ends_with("did you mean KubeletConfiguration?"));
    assert!(one("apiVersion: v1\nkind: Config").contains("unknown kind \"Config\": write"));
    let old = "apiVersion: nodepulse.dev/v2\nkind: NodePulseConfiguration";
    assert_eq!(
        one(old),
        "/etc/nodepulse/config.yaml:1: apiVersion: must be nodepulse.dev/v1 for \
         kind NodePulseConfiguration, not \"nodepulse.dev/v2\""
    );
    assert_eq!(one("- a"), "/etc/nodepulse/config.yaml:1: must be a map of settings, not a list");
    assert_eq!(one("just text"), "/etc/nodepulse/config.yaml:1: must be a map of settings, not a single value");
}

#[test]
fn values_of_the_wrong_shape_are_refused_with_the_right_one() {
    for (body, text) in [
        ("maxPods: [1]", "config.yaml:3: maxPods: must be a single value, not a list"),
        ("maxPods: -1", "config.yaml:3: maxPods: must be a whole number from 0 to 2147483647, not \"-1\""),
        ("port: 65536", "config.yaml:3: port: must be a whole number from 0 to 65535, not \"65536\""),
        ("statusAssertFrequency: 10ms", "config.yaml:3: statusAssertFrequency: must be at least 1s, not 10ms"),
        ("nodeLabels: a=b", "config.yaml:3: nodeLabels: must be a map of KEY: VALUE, not a single value"),
        ("kubeReserved: []", "config.yaml:3: kubeReserved: must be a map of RESOURCE: QUANTITY, not a list"),
        (
            "registerWithTaints: {}",
            "config.yaml:3: registerWithTaints: must be a list of maps with key, value and effect, not a map",
        ),
        ("stateDirectory: ''", "config.yaml:3: stateDirectory: must be an absolute path"),
        ("providerID: \"a\\nb\"", "config.yaml:3: providerID: must be one line without control characters"),
        (
            "zone: -a-",
            "config.yaml:3: zone: becomes the value of a label, and the value may hold \
             only A-Z a-z 0-9 - _ . and must begin and end alphanumeric",
        ),
        ("cloudProvider: aws", "config.yaml:3: cloudProvider: must be external or empty, not \"aws\""),
        (
            "cgroupDriver: systemd",
            "config.yaml:3: cgroupDriver is a field of the kubelet that has no meaning without pods: remove it",
        ),
        (
            "logging: {verbosity: 11}",
            "config.yaml:3: logging.verbosity: must be a whole number from 0 to 10, not \"11\"",
        ),
        ("logging: 3", "config.yaml:3: unknown key \"logging\": nodepulse help settings lists them"),
        ("a: *b", "config.yaml:3: not YAML: while parsing node, found unknown anchor"),
    ] {
        assert_eq!(problem(body), text);
    }
}

#[test]
fn a_file_full_of_mistakes_does_not_flood_the_terminal() {
    let body: String = (0..4000).map(|index| format!("key{index}: 1\n")).collect();
    assert_eq!(problems(OURS, &body, &[("bad", "1")]).len(), limits::PROBLEMS);
}

#[test]
fn settings_without_effect_are_told() {
    let told = load(OURS, "maxPods: 20\nevictionHard: {containerfs.available: 15%}\nnodeIP: 10.0.0.1, foo\n", &[]);
    assert_eq!(
        told.notices,
        [
            "/etc/nodepulse/config.yaml:4: evictionHard.containerfs.available: has no effect: there are no \
             containers or pods of the agent here",
            "/etc/nodepulse/config.yaml:5: nodeIP: \"foo\" is not an IP address and is left out, as the kubelet does",
            "maxPods and podsPerCore have no effect as long as podless is true: capacity pods is 0",
        ]
        .map(str::to_owned)
    );
}

#[test]
fn the_table_tells_the_truth_about_defaults() {
    for setting in SETTINGS {
        if setting.name == "evictionHard" {
            continue; // D7's memory threshold has no text in a file.
        }
        let given = flags(&[(setting.flag, setting.default)]);
        let loaded = settings(None, &given).unwrap();
        assert_eq!(loaded.settings, Settings::default(), "{}", setting.name);
    }
    let given = flags(&[(
        "eviction-hard",
        "nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%,memory.available<100Mi",
    )]);
    let mut hard = settings(None, &given).unwrap().settings.eviction_hard;
    hard.insert(Signal::MemoryAvailable, Threshold::SmallBoardMemory).unwrap();
    assert_eq!(hard, Settings::default().eviction_hard);
}

#[test]
fn the_table_names_each_setting_once() {
    for (index, setting) in SETTINGS.iter().enumerate() {
        for other in &SETTINGS[..index] {
            assert!(setting.name != other.name && setting.flag != other.flag, "{}", setting.name);
        }
        assert!(!kubelet_fields::is_not_applicable(setting.name));
        assert!(setting.meaning.len() > 10 && !setting.meaning.ends_with('.'));
    }
}

#[test]
fn the_same_problem_of_one_line_is_told_once() {
    let text =
        "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nnodeLabels: &a {x: y}\nzone: [*a, *a, *a]\n";
    let problems = settings(Some(("c", text)), &[]).unwrap_err();
    let aliases: Vec<_> = problems.iter().filter(|problem| problem.text.contains("aliases")).collect();
    assert_eq!(aliases.len(), 1, "{problems:?}");
}
