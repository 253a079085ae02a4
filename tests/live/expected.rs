//! Turns this machine's procfs into the Node that should be registered, sharing no code with the agent.

use super::super::cluster::{Cluster, NodeIdentity, Result, pki};
use nix::sys::statvfs::statvfs;
use serde_json::{Map, Value, json};
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The object to POST, with `STAMP` for every time.
pub fn node(cluster: &Cluster, identity: &NodeIdentity) -> Result<Value> {
    let name = &identity.name;
    let (capacity, allocatable, disk_pressure) = resources(&identity.dir)?;
    let mut status = json!({
        "capacity": capacity,
        "allocatable": allocatable,
        "conditions": conditions(disk_pressure),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": node_info(cluster)?,
    });
    if let Some(address) = own_address() {
        status["addresses"] = json!([
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ]);
    }
    let architecture = go_architecture();
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": architecture,
                "beta.kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": architecture,
                "node.kubernetes.io/exclude-from-external-load-balancers": "podless",
            },
            "annotations": annotations(identity)?,
        },
        "spec": {"taints": [
            {"key": "nodepulse.dev/podless", "effect": "NoSchedule"},
            {"key": "nodepulse.dev/podless", "effect": "NoExecute"},
        ]},
        "status": status,
    }))
}

/// The end of its certificate, as it is annotated.
pub fn certificate_expiry(identity: &NodeIdentity) -> Result<String> {
    let pem = fs::read_to_string(&identity.certificate).map_err(|e| e.to_string())?;
    date(&["-d", &format!("@{}", pki::dates(&pem)?.1), "+%FT%TZ"])
}

/// What date(1) says of UTC.
pub fn date(arguments: &[&str]) -> Result<String> {
    let output = Command::new("date").arg("-u").args(arguments).output().map_err(|e| format!("date: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() { Ok(said) } else { Err(format!("date {arguments:?}: {}", output.status)) }
}

/// On a board with a serial number, or a MAC address that stays, there is more than a kubelet's.
fn annotations(identity: &NodeIdentity) -> Result<Value> {
    let mut all = json!({
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "nodepulse.dev/certificate-expiry": certificate_expiry(identity)?,
    });
    let serial = first_of(&["/proc/device-tree/serial-number", "/sys/class/dmi/id/board_serial"]);
    if let Some(serial) = serial.filter(|serial| !serial.is_empty()) {
        all["nodepulse.dev/board-serial"] = json!(serial);
    }
    // Machines that run these tests have one such card, or none.
    let cards = fs::read_dir("/sys/class/net").into_iter().flatten().flatten().map(|card| card.path());
    let read = |card: &Path, attribute: &str| fs::read_to_string(card.join(attribute)).unwrap_or_default();
    let stays = |card: &PathBuf| read(card, "type").trim() == "1" && read(card, "addr_assign_type").trim() == "0";
    if let Some(card) = cards.filter(stays).find(|card| card.join("device").exists()) {
        all["nodepulse.dev/board-mac"] = json!(read(&card, "address").trim());
    }
    Ok(all)
}

fn conditions(disk_pressure: bool) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": "STAMP", "lastTransitionTime": "STAMP",
        })
    };
    let memory = "kubelet has sufficient memory available";
    let disk = if disk_pressure {
        condition("DiskPressure", "True", "KubeletHasDiskPressure", "kubelet has disk pressure")
    } else {
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
    };
    let all = [
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", memory),
        disk,
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("ReadonlyFilesystem", "False", "FilesystemIsNotReadOnly", "Filesystem is not read-only"),
    ];
    let ready = condition("Ready", "True", "KubeletReady", "kubelet is posting ready status");
    let sound = "No file system has had errors since the boot";
    let corrupt = condition("FilesystemCorruptionProblem", "False", "FilesystemIsOK", sound);
    let clock = condition("NTPProblem", "False", "NTPIsUp", "The clock is kept right");
    let uplink = condition("UplinkDegraded", "False", "UplinkOK", "The connection of the board is good");
    let of_board = has_ext4().then_some(corrupt).into_iter().chain([clock]).chain(has_uplink().then_some(uplink));
    all.into_iter().chain(of_board).chain([ready]).collect()
}

/// Whether this machine counts the errors of a file system.
pub fn has_ext4() -> bool {
    let mounted = fs::read_dir("/sys/fs/ext4").into_iter().flatten().flatten();
    mounted.into_iter().any(|device| device.path().join("errors_count").exists())
}

/// Whether a default route of this machine leads through an interface whose carrier is counted.
fn has_uplink() -> bool {
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let fields = routes.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let through = fields.filter(|fields| fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000"));
    let mut interfaces = through.filter_map(|fields| fields.first().copied());
    interfaces.any(|name| Path::new(&format!("/sys/class/net/{name}/carrier_changes")).exists())
}

/// Capacity, allocatable, and whether the disk is fuller than the defaults allow.
fn resources(state_directory: &Path) -> Result<(Value, Value, bool)> {
    let processors = fs::read_to_string("/proc/cpuinfo").map_err(|e| e.to_string())?;
    let processors = processors.lines().filter(|line| line.starts_with("processor")).count().to_string();
    let memory = 1024 * meminfo_kib("MemTotal")?;
    let disk = statvfs(state_directory).map_err(|e| format!("statvfs of {}: {e}", state_directory.display()))?;
    let disk_bytes = disk.fragment_size() * disk.blocks();
    let mut capacity = Map::new();
    let mut allocatable = Map::new();
    let mut huge_bytes = 0;
    for (size_kib, pages) in hugepages() {
        let name = format!("hugepages-{}", quantity(size_kib * 1024));
        let bytes = size_kib * 1024 * pages;
        huge_bytes += bytes;
        capacity.insert(name.clone(), json!(quantity(bytes)));
        allocatable.insert(name, json!(quantity(bytes)));
    }
    let kept_free = tenth(memory).clamp(8 << 20, 100 << 20);
    for (name, whole, free) in [
        ("cpu", processors.clone(), processors),
        ("memory", quantity(memory), quantity(memory.saturating_sub(kept_free + huge_bytes))),
        ("ephemeral-storage", quantity(disk_bytes), quantity(disk_bytes - tenth(disk_bytes))),
        ("pods", "0".to_owned(), "0".to_owned()),
    ] {
        capacity.insert(name.to_owned(), json!(whole));
        allocatable.insert(name.to_owned(), json!(free));
    }
    let full = disk.fragment_size() * disk.blocks_available() < tenth(disk_bytes)
        || (disk.files() > 0 && disk.files_available() * 20 < disk.files());
    Ok((capacity.into(), allocatable.into(), full))
}

/// The kubelet's arithmetic: the fraction has the precision of an `f32`.
fn tenth(of: u64) -> u64 {
    (of as f64 * f64::from(0.1_f32)) as u64
}

/// As Kubernetes prints a number of bytes: the largest binary suffix that leaves an integer.
fn quantity(bytes: u64) -> String {
    let suffixes = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let fits = suffixes.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    fits.map_or_else(|| bytes.to_string(), |(shift, suffix)| format!("{}{suffix}", bytes >> shift))
}

fn meminfo_kib(key: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key}:")));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("/proc/meminfo has no {key}"))
}

/// Page sizes in KiB and how many there are of each.
fn hugepages() -> Vec<(u64, u64)> {
    let Ok(folder) = fs::read_dir("/sys/kernel/mm/hugepages") else { return Vec::new() };
    let read = |entry: fs::DirEntry| {
        let size = entry.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let pages = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        Some((size, pages))
    };
    folder.flatten().filter_map(read).collect()
}

fn node_info(cluster: &Cluster) -> Result<Value> {
    let version = cluster.api.admin.get("/version")?["gitVersion"].as_str().unwrap_or_default().to_owned();
    let machine_id = first_of(&["/etc/machine-id", "/var/lib/dbus/machine-id"]).unwrap_or_default();
    let uuids = ["/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id", "/proc/device-tree/vm,uuid"];
    let mut info = json!({
        "machineID": machine_id,
        "systemUUID": first_of(&uuids).unwrap_or_else(|| machine_id.clone()),
        "bootID": first_of(&["/proc/sys/kernel/random/boot_id"]).unwrap_or_default(),
        "kernelVersion": first_of(&["/proc/sys/kernel/osrelease"]).unwrap_or_default(),
        "osImage": os_image(),
        "containerRuntimeVersion": "none://Unknown",
        "kubeletVersion": format!("{version}-nodepulse.{}", env!("CARGO_PKG_VERSION")),
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": go_architecture(),
    });
    let swap = 1024 * meminfo_kib("SwapTotal")?;
    if swap > 0 {
        info["swap"] = json!({"capacity": swap});
    }
    Ok(info)
}

fn os_image() -> String {
    let Some(text) = first_of(&["/etc/os-release", "/usr/lib/os-release"]) else { return "Unknown".to_owned() };
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches(['"', '\'']).to_owned())
}

fn first_of(paths: &[&str]) -> Option<String> {
    let text = paths.iter().find_map(|path| fs::read_to_string(path).ok())?;
    Some(text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned())
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// The address that the kernel would send from: that of the default route's interface. Nothing is sent.
pub fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then(|| address.to_string())
}
