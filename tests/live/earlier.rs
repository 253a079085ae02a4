//! Boards that an earlier version made Nodes of, and what it left of each: files of its state, the Node, the Lease.
//!
//! `tests/live/earlier` holds what the program of f9751c9 (0.1.0) left of each of these boards: `make upgrade FROM=PROGRAM
//! KEEP=tests/live/earlier` ran it on the real cluster as such a board, took the API server away, raised MemoryPressure,
//! restarted it and ended it. `waiting.json` is that program's own `journal -o json`; of the Node only addresses are changed.

use super::super::agent::{Launch, ROOM_ON_DISK};
use super::super::cluster::{ApiServer, Cluster, NodeIdentity, Result, Validity, lease_path, wait_until};
use super::{SOON, wait_until_ready};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/earlier");
/// In the certificate of every API server here, and in no DNS.
const SERVER: &str = "kubernetes.default";
const BOOT: &str = "3f0c2a9e-5b71-4d86-9c1e-7a40b2d8e615";
const LATER_BOOT: &str = "9d14e7b2-08c5-4f3a-b6d7-51e2c90a7f48";

pub struct Board {
    /// What 0.1.0 called its Node, and its certificate with it.
    pub node: &'static str,
    hostname: &'static str,
    machine_id: &'static str,
    /// Of cpuinfo; empty: it has none.
    serial: &'static str,
    /// Files of SMBIOS.
    smbios: &'static [(&'static str, &'static str)],
    interfaces: &'static [Interface],
    /// Serial number and MAC address that the present program goes by.
    pub now: [Option<&'static str>; 2],
}

/// Name, index, that of the one below it, how its address was assigned, the address.
type Interface = (&'static str, u32, u32, u32, &'static str);

const NOBODY: Board = Board {
    node: "",
    hostname: "localhost",
    machine_id: "uninitialized",
    serial: "",
    smbios: &[],
    interfaces: &[],
    now: [None, None],
};

pub const BOARDS: [Board; 9] = [
    // A gateway whose maker's sample is on three interfaces: the first by index was taken.
    Board {
        node: "node-000001",
        interfaces: &[
            ("omci", 2, 2, 0, "00:d0:d0:00:00:01"),
            ("sw", 3, 3, 0, "00:d0:d0:00:00:01"),
            ("pon", 4, 4, 0, "00:d0:d0:00:00:01"),
            ("eth0", 9, 9, 0, "d0:5b:a8:00:0a:05"),
        ],
        now: [None, Some("d0:5b:a8:00:0a:05")],
        ..NOBODY
    },
    // Amlogic prints which chip it is.
    Board {
        node: "node-000000",
        hostname: "(none)",
        machine_id: "4d1f0e7c2b9a4c6f8e35d7a1b0c2f694",
        serial: "1b00000000000000",
        interfaces: &[("eth0", 2, 2, 0, "c8:63:14:00:0a:07")],
        now: [None, Some("c8:63:14:00:0a:07")],
        ..NOBODY
    },
    // A Jetson's chip, on firmware without a machine-id: that was made from it, too.
    Board {
        node: "node-450000",
        serial: "0177000003450000",
        interfaces: &[("eth0", 2, 2, 0, "00:04:4b:00:0a:09")],
        now: [None, Some("00:04:4b:00:0a:09")],
        ..NOBODY
    },
    // A template of SMBIOS before the board's own number.
    Board {
        node: "node-number",
        smbios: &[("product_serial", "Chassis Serial Number"), ("board_serial", "BS-4711")],
        now: [Some("BS-4711"), None],
        ..NOBODY
    },
    Board {
        node: "node-345678",
        machine_id: "a7c3e9510d2b4f6880b1c4d7e2f3a596",
        smbios: &[("product_serial", "12345678"), ("board_serial", "TBD")],
        ..NOBODY
    },
    // A host with a name.
    Board {
        node: "gate-5",
        hostname: "gate-5",
        machine_id: "c0ffee0d2b4f4a6880b1c4d7e2f3a512",
        smbios: &[("product_serial", "0123456789ABCDEF"), ("board_serial", "Not Available")],
        interfaces: &[("eth0", 2, 2, 0, "00:e0:67:00:0a:0b")],
        now: [None, Some("00:e0:67:00:0a:0b")],
        ..NOBODY
    },
    // An address that somebody made up stood before the one that was bought.
    Board {
        node: "node-000011",
        interfaces: &[("usb0", 2, 2, 0, "02:aa:bb:00:00:11"), ("eth0", 3, 3, 0, "dc:a6:32:00:0a:0d")],
        now: [None, Some("dc:a6:32:00:0a:0d")],
        ..NOBODY
    },
    // The first port of a switch, whose own address is another at each boot.
    Board {
        node: "node-0c0a13",
        interfaces: &[
            ("eth0", 2, 2, 1, "9a:7c:11:00:00:01"),
            ("lan1", 3, 2, 0, "60:38:e0:0c:0a:13"),
            ("wlan0", 9, 9, 0, "60:38:e0:0c:0a:15"),
        ],
        now: [None, Some("60:38:e0:0c:0a:15")],
        ..NOBODY
    },
    // Nothing is refused of this one.
    Board {
        node: "gate-8",
        hostname: "gate-8",
        machine_id: "1b4d9c0e7a3f4e52b6c8d1f0a2e3c495",
        serial: "10000000d15c0ffe",
        interfaces: &[("eth0", 2, 2, 0, "dc:a6:32:5c:0f:fe")],
        now: [Some("10000000d15c0ffe"), Some("dc:a6:32:5c:0f:fe")],
        ..NOBODY
    },
];

impl Board {
    /// The files of this board in the place of this machine's. `finds_server`: names have addresses.
    fn launch<'a>(&self, node: &'a NodeIdentity, kubeconfig: &Path, boot: &str, finds_server: bool) -> Launch<'a> {
        let hosts = if finds_server { SERVER } else { "" };
        let mut cpuinfo = "processor : 0\nBogoMIPS : 48.00\n\nHardware : a board".to_owned();
        if !self.serial.is_empty() {
            cpuinfo.push_str(&format!("\nSerial : {}", self.serial));
        }
        let mut class: Vec<(String, String)> = Vec::new();
        for (name, index, below, assigned, address) in self.interfaces {
            let attributes = [("ifindex", index), ("iflink", below), ("addr_assign_type", assigned), ("type", &1)];
            class.extend(attributes.map(|(attribute, value)| (format!("net/{name}/{attribute}"), value.to_string())));
            class.push((format!("net/{name}/address"), (*address).to_owned()));
            class.push((format!("net/{name}/device/uevent"), String::new()));
        }
        class.extend(self.smbios.iter().map(|(name, text)| (format!("dmi/id/{name}"), (*text).to_owned())));
        class.push(("net/.keep".to_owned(), String::new()));
        // Asked where the first says nothing; not every machine has it.
        let also = ["/var/lib/dbus/machine-id"].into_iter().filter(|path| Path::new(path).exists());
        also.fold(Launch::quick(node), |launch, path| launch.board(path, self.machine_id))
            .kubeconfig(kubeconfig)
            .named_by_itself()
            .set(ROOM_ON_DISK.0, ROOM_ON_DISK.1)
            .board("/proc/cpuinfo", &cpuinfo)
            .board("/proc/sys/kernel/hostname", self.hostname)
            .board("/proc/sys/kernel/osrelease", "6.1.0-board")
            .board("/proc/sys/kernel/random/boot_id", boot)
            .board("/etc/machine-id", self.machine_id)
            .board("/etc/os-release", "PRETTY_NAME=\"Firmware of a board\"")
            .board("/etc/hosts", &format!("127.0.0.1 localhost {hosts}"))
            .board("/etc/nsswitch.conf", "hosts: files dns")
            .board("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1")
            .folder("/sys/class", class)
    }
}

/// A board after the last process of an earlier version has ended.
pub struct Left {
    pub board: &'static Board,
    pub identity: NodeIdentity,
    /// Names a server that only `uplink` knows an address of.
    kubeconfig: PathBuf,
    boot: &'static str,
    pub node: Value,
    /// The earlier program's words about its journal.
    pub waiting: Value,
    pub uplink: String,
}

impl Left {
    pub fn launch(&self) -> Launch<'_> {
        self.board.launch(&self.identity, &self.kubeconfig, self.boot, false)
    }

    pub fn state(&self, file: &str) -> PathBuf {
        self.identity.dir.join("state").join(file)
    }

    pub fn has_rebooted(&self) -> bool {
        self.boot != BOOT
    }
}

/// What `program` says of a journal.
pub fn waiting(program: &str, journal: &Path) -> Result<Value> {
    let output = Command::new(program).args(["journal", "-o", "json", "--file"]).arg(journal).output();
    let output = output.map_err(|e| format!("cannot run {program}: {e}"))?;
    serde_json::from_slice(&output.stdout).map_err(|e| format!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// What the files kept here say, put into the cluster and into state directories. The boards have booted since.
pub fn kept(cluster: &Cluster) -> Result<Vec<Left>> {
    BOARDS.iter().map(|board| put_back(cluster, board)).collect()
}

fn put_back(cluster: &Cluster, board: &'static Board) -> Result<Left> {
    let folder = Path::new(KEPT).join(board.node);
    let read = |name: &str| fs::read_to_string(folder.join(name)).map_err(|e| format!("{name} of {}: {e}", board.node));
    let parsed = |name: &str| serde_json::from_str::<Value>(&read(name)?).map_err(|e| format!("{name}: {e}"));
    let identity = cluster.node_named(&cluster.api, board.node)?;
    let node = cluster.create_node(&parsed("node.json")?)?;
    let mut lease = parsed("lease.json")?;
    lease["metadata"]["ownerReferences"][0]["uid"] = node["metadata"]["uid"].clone();
    let leases = lease_path("");
    cluster.api.admin.post(leases.trim_end_matches('/'), &lease)?;
    let kubeconfig = identity.kubeconfig_via(&format!("https://{SERVER}:{}", cluster.api.port))?;
    let (waiting, uplink) = (parsed("waiting.json")?, read("uplink")?);
    let left = Left { board, identity, kubeconfig, boot: LATER_BOOT, node, waiting, uplink };
    fs::create_dir_all(left.identity.dir.join("state")).map_err(|e| e.to_string())?;
    for file in ["journal", "uplink"] {
        fs::copy(folder.join(file), left.state(file)).map_err(|e| format!("{file} of {}: {e}", board.node))?;
    }
    Ok(left)
}

/// What `program`, of an earlier version, leaves of all boards whose API server goes away. That one is here again, too.
pub fn lived(cluster: &Cluster, program: &str) -> Result<(ApiServer, Vec<Left>)> {
    let api = cluster.api_server(Validity::Now)?;
    let mut lives = Vec::new();
    for board in &BOARDS {
        let identity = cluster.node_named(&api, board.node)?;
        let kubeconfig = identity.kubeconfig_via(&format!("https://{SERVER}:{}", api.port))?;
        let (node, waiting, uplink) = (Value::Null, Value::Null, String::new());
        lives.push(Left { board, identity, kubeconfig, boot: BOOT, node, waiting, uplink });
    }
    let start = |left: &Left| {
        let launch = left.board.launch(&left.identity, &left.kubeconfig, BOOT, true);
        launch.program(vec![program.to_owned()]).unset("kernelEvents").unset("featureLabels").start(cluster)
    };
    let mut agents = lives.iter().map(start).collect::<Result<Vec<_>>>()?;
    for (left, agent) in lives.iter().zip(&mut agents) {
        wait_until_ready(cluster, &left.identity)?;
        agent.wait_for_line(&["lease-held:"], SOON)?;
        wait_until("what it learned of its server", SOON, || {
            fs::read(left.state("uplink")).map_err(|e| e.to_string())
        })?;
    }
    api.kill()?;
    let has = |left: &Left, kind: &str, count: usize| {
        wait_until(&format!("{count} {kind} in the journal of {}", left.board.node), SOON, || {
            let found = waiting(program, &left.state("journal"))?;
            let records = found["records"].as_array().into_iter().flatten();
            if records.filter(|record| record["kind"] == kind).count() >= count {
                return Ok(found);
            }
            Err(found.to_string())
        })
    };
    for agent in &mut agents {
        // A change is worth a record of the outage, however short that is.
        agent.wait_for_line(&["failing:", "Lease renewal failed"], SOON)?;
        agent.reload_with("evictionHard", "{memory.available: 8Ti}")?;
    }
    for (left, agent) in lives.iter().zip(&mut agents) {
        has(left, "ConditionChanged", 1)?;
        assert_eq!(agent.stop()?, 0, "{}", agent.said()?);
    }
    let mut agents = lives.iter().map(start).collect::<Result<Vec<_>>>()?;
    for (left, agent) in lives.iter_mut().zip(&mut agents) {
        has(left, "ProcessStarted", 1)?;
        assert_eq!(agent.stop()?, 0, "{}", agent.said()?);
        left.waiting = waiting(program, &left.state("journal"))?;
        left.uplink = fs::read_to_string(left.state("uplink")).map_err(|e| e.to_string())?;
        left.node = cluster.get_node(left.board.node)?;
    }
    api.restart()?;
    Ok((api, lives))
}

/// Keeps what was left as files, for [`kept`].
pub fn keep(cluster: &Cluster, left: &Left, folder: &Path) -> Result<()> {
    let folder = folder.join(left.board.node);
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let mut lease = cluster.get_lease(left.board.node)?;
    let mut node = left.node.clone();
    for object in [&mut lease, &mut node] {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| {
                ["name", "namespace", "labels", "annotations", "ownerReferences"].contains(&key.as_str())
            });
        }
    }
    node["spec"] = json!({"taints": node["spec"]["taints"]});
    node["status"]["addresses"] =
        json!([{"type": "InternalIP", "address": "192.0.2.9"}, {"type": "Hostname", "address": left.board.node}]);
    let mut waiting = left.waiting.clone();
    waiting["path"] = json!("journal");
    for (name, object) in [("node.json", &node), ("lease.json", &lease), ("waiting.json", &waiting)] {
        fs::write(folder.join(name), format!("{object:#}\n")).map_err(|e| e.to_string())?;
    }
    for file in ["journal", "uplink"] {
        fs::copy(left.state(file), folder.join(file)).map_err(|e| e.to_string())?;
    }
    Ok(())
}
