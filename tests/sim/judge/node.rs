//! Turns a board and what a person asked into the Node that the server must have, and a stored Node into what is wrong with it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::board::{Board, DUAL_STACK, LABELS};
use super::super::cut_short::CUT_SHORT;
use super::super::facts::{IMAGE, KERNEL};
use super::super::wanted::{NodeIp, Signal, Wanted};
use super::conditions::CLOCK;
use super::thresholds::units;
use crate::model::controller::condition;

type Judged = Result<(), String>;

/// Everything that is needed to say what the Node is.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub name: &'a str,
    pub board: &'a Board,
    pub wanted: &'a Wanted,
}

/// All of ours, their statuses being what they may be: status, reason, message, event (PRS-1 to PRS-6, RDY-1, NPD-1).
pub const WORDS: [(&str, &str, &str, &str, &str); 15] = [
    (
        "MemoryPressure",
        "True",
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
        "NodeHasInsufficientMemory",
    ),
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
        "NodeHasSufficientMemory",
    ),
    ("DiskPressure", "True", "KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
    (
        "PIDPressure",
        "True",
        "KubeletHasInsufficientPID",
        "kubelet has insufficient PID available",
        "NodeHasInsufficientPID",
    ),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
    ("ReadonlyFilesystem", "True", "FilesystemIsReadOnly", "Filesystem is read-only: /var", "FilesystemIsReadOnly"),
    (
        "ReadonlyFilesystem",
        "False",
        "FilesystemIsNotReadOnly",
        "Filesystem is not read-only",
        "FilesystemIsNotReadOnly",
    ),
    (CLOCK, "True", "ClockUnset", "Nobody keeps the clock right: it is before this program was built", "NTPIsDown"),
    (CLOCK, "False", "NTPIsUp", "The clock is kept right", "NTPIsUp"),
    (CLOCK, "Unknown", "ClockUnreadable", "", "ClockUnreadable"),
    (CUT_SHORT, "True", "Unknown", "The board went down while nobody had shut it down", CUT_SHORT),
    (
        CUT_SHORT,
        "False",
        "NoUnexpectedReboot",
        "The board did not go down unexpectedly in 24 hours",
        "NoUnexpectedReboot",
    ),
    ("Ready", "False", "KubeletNotReady", "container runtime is down", "NodeNotReady"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status", "NodeReady"),
];

impl Expected<'_> {
    /// What anybody sees with kubectl, once the board and the link have been quiet for a while.
    pub fn judge(&self, node: &Value) -> Judged {
        self.judge_names(node)?;
        self.judge_resources(&node["status"])?;
        self.judge_addresses(&node["status"]["addresses"])?;
        self.judge_info(&node["status"]["nodeInfo"])?;
        self.judge_runtime(&node["status"])?;
        let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
        if *port != self.wanted.port { Err(format!("the port is {port}")) } else { Ok(()) }
    }

    /// UPD-2, NLC-5 and D10: what is put right whoever made the Node.
    fn judge_names(&self, node: &Value) -> Judged {
        let architecture = self.board.architecture;
        for (key, value) in [
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", architecture),
        ] {
            same(key, &node["metadata"]["labels"][key], Some(value))?;
        }
        self.judge_labels(&node["metadata"])?;
        let (serial, mac) = (self.board.serial.as_deref(), self.board.mac.as_deref());
        // A board without a machine-id gets one from what else tells it apart, and says so.
        let source = serial.map(|_| "board-serial").or(mac.map(|_| "mac-address"));
        let source = source.filter(|_| self.board.machine_id.is_none());
        let devices: Vec<&str> = self.board.devices.keys().copied().collect();
        let devices = devices.join(",");
        for (key, value) in [
            ("nodepulse.dev/extended-resources", Some(devices.as_str()).filter(|devices| !devices.is_empty())),
            ("nodepulse.dev/board-serial", serial),
            ("nodepulse.dev/board-mac", mac),
            ("nodepulse.dev/machine-id-derived-from", source),
        ] {
            same(key, &node["metadata"]["annotations"][key], value)?;
        }
        Ok(())
    }

    /// What the board is and has, that only, and the annotation that says so.
    fn judge_labels(&self, metadata: &Value) -> Judged {
        const PREFIX: &str = "feature.node.kubernetes.io/";
        let nothing = BTreeMap::new();
        let expected = self.board.labels.as_ref().unwrap_or(&nothing);
        let is_of_board = |key: &str| key.starts_with(PREFIX) || key.starts_with("nodepulse.dev/");
        let found: Vec<_> = texts(&metadata["labels"]).into_iter().filter(|(key, _)| is_of_board(key)).collect();
        if !found.iter().copied().eq(expected.iter().map(|(key, value)| (*key, value.as_str()))) {
            return Err(format!("the labels of the board are {found:?}, not {expected:?}"));
        }
        let names: Vec<&str> = expected.keys().map(|key| key.strip_prefix(PREFIX).unwrap_or(key)).collect();
        let (key, names) = ("nodepulse.dev/feature-labels", names.join(","));
        same(key, &metadata["annotations"][key], Some(names.as_str()).filter(|names| !names.is_empty()))
    }

    /// INI-1 to INI-5, D8: what only a Node that the agent made has, as it is sent.
    pub fn judge_birth(&self, node: &Value) -> Judged {
        let wanted = self.wanted;
        let mut labels: BTreeMap<&str, &str> = wanted.node_labels.iter().copied().collect();
        let architecture = self.board.architecture;
        labels.extend([
            ("kubernetes.io/hostname", self.name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", architecture),
        ]);
        let given = [
            ("node.kubernetes.io/instance-type", wanted.instance_type),
            ("topology.kubernetes.io/zone", wanted.zone),
            ("topology.kubernetes.io/region", wanted.region),
        ];
        labels.extend(given.into_iter().filter(|(_, value)| !value.is_empty()));
        if wanted.podless {
            labels.insert("node.kubernetes.io/exclude-from-external-load-balancers", "podless");
        }
        let mut found = texts(&node["metadata"]["labels"]);
        // What the last look found of the board; at peace they are judged.
        found.retain(|key, _| !LABELS.contains(key));
        if found != labels {
            return Err(format!("a Node is made with labels {found:?}, not {labels:?}"));
        }
        let attach = wanted.attach_detach.then_some("true");
        let key = "volumes.kubernetes.io/controller-managed-attach-detach";
        same(key, &node["metadata"]["annotations"][key], attach)?;
        same("providerID", &node["spec"]["providerID"], Some(wanted.provider_id).filter(|id| !id.is_empty()))?;
        let text = |taint: &Value, key: &str| taint[key].as_str().unwrap_or_default().to_owned();
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let mut taints: Vec<_> =
            taints.map(|taint| [text(taint, "key"), text(taint, "value"), text(taint, "effect")]).collect();
        let podless = [("nodepulse.dev/podless", "", "NoSchedule"), ("nodepulse.dev/podless", "", "NoExecute")];
        let expected = wanted.taints.iter().chain(podless.iter().filter(|_| wanted.podless));
        let mut expected: Vec<_> =
            expected.map(|(key, value, effect)| [key, value, effect].map(|part| (*part).to_owned())).collect();
        taints.sort();
        expected.sort();
        if taints != expected { Err(format!("a Node is made with taints {taints:?}")) } else { Ok(()) }
    }

    /// ALC-1, ALC-2, MI-3, MI-4, MI-6, MI-9, D8.
    fn judge_resources(&self, status: &Value) -> Judged {
        let (board, wanted) = (self.board, self.wanted);
        let pods = match (wanted.podless, wanted.pods_per_core) {
            (true, _) => 0,
            (false, 0) => wanted.max_pods,
            (false, per_core) => wanted.max_pods.min(per_core * board.cpus),
        };
        let mut capacity = BTreeMap::from([
            ("cpu".to_owned(), i64::from(board.cpus) * 1000),
            ("memory".to_owned(), board.memory_bytes as i64 * 1000),
            ("pods".to_owned(), i64::from(pods) * 1000),
        ]);
        if let (Ok(disk), true) = (board.disk, wanted.isolates_storage) {
            capacity.insert("ephemeral-storage".to_owned(), disk.capacity_bytes as i64 * 1000);
        }
        for (page_bytes, pages) in &board.hugepages {
            let size = (0..6).map(|power| (page_bytes >> (10 * power), power)).take_while(|(size, _)| *size > 0);
            let (size, power) = size.last().unwrap_or((0, 0));
            let unit = ["", "Ki", "Mi", "Gi", "Ti", "Pi"][power];
            capacity.insert(format!("hugepages-{size}{unit}"), (page_bytes * pages) as i64 * 1000);
        }
        // MI-7.
        capacity.extend(board.devices.iter().map(|(name, count)| ((*name).to_owned(), *count as i64 * 1000)));
        let mut allocatable = capacity.clone();
        for (name, amount) in &mut allocatable {
            *amount = (*amount - self.reserved_milli(name)).max(0);
        }
        let huge: i64 = board.hugepages.iter().map(|(page_bytes, pages)| (page_bytes * pages) as i64).sum();
        if let Some(memory) = allocatable.get_mut("memory") {
            *memory = (*memory - huge * 1000).max(0);
        }
        // DEV-4.
        for (name, unhealthy) in board.unhealthy() {
            allocatable.entry(name.to_owned()).and_modify(|amount| *amount -= unhealthy as i64 * 1000);
        }
        for (name, expected) in [("capacity", capacity), ("allocatable", allocatable)] {
            let found = status[name].as_object().into_iter().flatten();
            let found: BTreeMap<String, i64> = found.map(|(key, value)| (key.clone(), milli(value))).collect();
            if found != expected {
                return Err(format!("the {name} is {}, in thousandths {found:?}, not {expected:?}", status[name]));
            }
        }
        Ok(())
    }

    /// ALC-1: kube-reserved, system-reserved, and what a hard threshold keeps free.
    fn reserved_milli(&self, name: &str) -> i64 {
        let (kube, system) = (self.wanted.kube_reserved, self.wanted.system_reserved);
        let threshold = |signal: Signal, capacity: u64| {
            let hard = self.wanted.eviction.thresholds.iter();
            let hard = hard.filter(|threshold| threshold.signal == signal && threshold.grace_us.is_none());
            hard.map(|threshold| units(threshold.below, capacity)).sum::<i64>() * 1000
        };
        let disk_bytes = self.board.disk.map_or(0, |disk| disk.capacity_bytes);
        match name {
            "cpu" => kube.cpu_milli + system.cpu_milli,
            "memory" => {
                (kube.memory_bytes + system.memory_bytes) * 1000 + threshold(Signal::Memory, self.board.memory_bytes)
            }
            "ephemeral-storage" => {
                (kube.storage_bytes + system.storage_bytes) * 1000 + threshold(Signal::Disk, disk_bytes)
            }
            _ => 0,
        }
    }

    /// ADR-2, ADR-5, ADR-6, ADR-8.
    fn judge_addresses(&self, found: &Value) -> Judged {
        let (v4, v6) = (self.board.address_v4(), self.board.address_v6());
        let ips = match self.wanted.node_ip {
            NodeIp::Both => vec![DUAL_STACK.0, DUAL_STACK.1],
            NodeIp::Detect => v4.or(v6).into_iter().collect(),
            NodeIp::PreferV6 => v6.or(v4).into_iter().collect(),
        };
        let mut expected: Vec<(String, String)> =
            ips.into_iter().map(|ip| ("InternalIP".to_owned(), ip.to_string())).collect();
        expected.push(("Hostname".to_owned(), self.name.to_owned()));
        let more = self.wanted.extra_addresses.iter();
        expected.extend(more.map(|(kind, address)| ((*kind).to_owned(), (*address).to_owned())));
        let text = |address: &Value, key: &str| address[key].as_str().unwrap_or_default().to_owned();
        let addresses = found.as_array().into_iter().flatten();
        let addresses: Vec<_> = addresses.map(|address| (text(address, "type"), text(address, "address"))).collect();
        if addresses != expected { Err(format!("the addresses are {addresses:?}, not {expected:?}")) } else { Ok(()) }
    }

    /// VER-2, RTH-1.
    fn judge_runtime(&self, status: &Value) -> Judged {
        let (version, handlers, groups) = match self.board.runtime {
            None => ("none://Unknown", "", None),
            Some(None) => ("containerd://Unknown", " runc", None),
            Some(Some(7)) => ("containerd://2.2.7", " runc", Some(false)),
            Some(Some(8)) => ("containerd://2.2.8", " kata runc", Some(false)),
            Some(Some(_)) => ("containerd://2.2.9", " kata runc", Some(true)),
        };
        same("containerRuntimeVersion", &status["nodeInfo"]["containerRuntimeVersion"], Some(version))?;
        let names = status["runtimeHandlers"].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(|handler| handler["name"].as_str()).collect();
        let found = status["features"]["supplementalGroupsPolicy"].as_bool();
        if names.join(" ") != handlers || found != groups {
            return Err(format!("the runtime is {names:?} and {found:?}, not {handlers:?} and {groups:?}"));
        }
        Ok(())
    }

    /// MI-3, MI-5, MI-8, VER-1, VER-2, GOR-1.
    fn judge_info(&self, info: &Value) -> Judged {
        let board = self.board;
        let machine_id = info["machineID"].as_str().unwrap_or_default();
        let is_derived = board.machine_id.is_none() && (board.serial.is_some() || board.mac.is_some());
        let is_right = match &board.machine_id {
            Some(known) => machine_id == known,
            None if is_derived => machine_id.len() == 32 && machine_id.bytes().all(|digit| digit.is_ascii_hexdigit()),
            None => machine_id.is_empty(),
        };
        if !is_right {
            return Err(format!("machineID is {machine_id:?}, not {:?}", board.machine_id));
        }
        for (key, value) in [
            ("systemUUID", board.system_uuid.as_deref().unwrap_or_default()),
            ("bootID", &board.boot_id),
            ("kernelVersion", KERNEL),
            ("osImage", IMAGE),
            ("kubeProxyVersion", ""),
            ("operatingSystem", "linux"),
            ("architecture", board.architecture),
        ] {
            same(key, &info[key], Some(value))?;
        }
        let version = info["kubeletVersion"].as_str().unwrap_or_default();
        // Who could not ask the server yet says what it was built for.
        if !["v1.36.", "v1.37.1"].into_iter().any(|server| version.starts_with(server)) {
            return Err(format!("kubeletVersion is {version:?}"));
        }
        let swap = board.swap_bytes.filter(|bytes| *bytes > 0);
        let found = info["swap"]["capacity"].as_u64();
        if found != swap { Err(format!("swap is {found:?}, not {swap:?}")) } else { Ok(()) }
    }
}

/// Status, reason and message of one condition belong together, and say what is true.
pub fn judge_condition(node: &Value, kind: &str, status: &str) -> Judged {
    let stored = condition(node, kind).ok_or_else(|| format!("the Node has no condition {kind}"))?;
    if stored["status"] != status {
        return Err(format!("{kind} is {}, in truth it is {status}", stored["status"]));
    }
    let words = WORDS.iter().find(|(of, is, ..)| *of == kind && *is == status);
    let Some((_, _, reason, message, _)) = words else { return Err(format!("{kind} is {status}")) };
    // What cannot be read is named.
    let is_other = !message.is_empty() && stored["message"] != *message;
    if stored["reason"] != *reason || is_other {
        return Err(format!("{kind} has other words than {reason}: {stored}"));
    }
    Ok(())
}

fn same(key: &str, found: &Value, expected: Option<&str>) -> Judged {
    if found.as_str() != expected { Err(format!("{key} is {found}, not {expected:?}")) } else { Ok(()) }
}

fn texts(map: &Value) -> BTreeMap<&str, &str> {
    map.as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect()
}

/// A quantity in thousandths; what cannot be read is less than nothing.
fn milli(quantity: &Value) -> i64 {
    let text = quantity.as_str().unwrap_or_default();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "m" => Some(1),
        "" => Some(1000),
        "k" => Some(1_000_000),
        "M" => Some(1_000_000_000),
        "G" => Some(1_000_000_000_000),
        "Ki" => Some(1000 << 10),
        "Mi" => Some(1000 << 20),
        "Gi" => Some(1000 << 30),
        "Ti" => Some(1000 << 40),
        _ => None,
    };
    number.parse::<i64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor)).unwrap_or(-1)
}
