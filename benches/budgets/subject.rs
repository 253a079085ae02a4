//! Turns the three programs that keep a Node alive into running processes, each with an address of the server to itself.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

use super::cluster::daemon::Daemon;
use super::cluster::joining::KUBEADM_GROUP;
use super::cluster::{AuditEntry, Cluster, Kubelet, NodeIdentity, Result, binaries};
use super::outage::site::Site;
use super::process::Usage;

/// Names of three characters for all, as each further one costs four bytes a renewal.
const NAME: &str = "n";

/// The server as each of the four sees it; the controllers and the bench itself use 127.0.0.1.
const ADDRESSES: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(127, 0, 0, 3),
    Ipv4Addr::new(127, 0, 0, 4),
    Ipv4Addr::new(127, 0, 0, 5),
];

pub fn addresses() -> Vec<IpAddr> {
    ADDRESSES.map(IpAddr::V4).into()
}

/// Where a program runs, and how it reaches the server.
pub struct Place {
    /// The server's address as only this one sees it, or its own.
    address: IpAddr,
    url: String,
    /// In the network of this process.
    inside: Option<i32>,
}

impl Place {
    fn on_loopback(cluster: &Cluster, place: usize) -> Place {
        Place { address: ADDRESSES[place].into(), url: url(cluster, ADDRESSES[place]), inside: None }
    }

    /// The server over the link of a site.
    pub fn behind(site: &Site, cluster: &Cluster, is_ipv6: bool) -> Place {
        let (address, host) = if is_ipv6 {
            (Ipv6Addr::new(0xfd77, site.number(), 0, 0, 0, 0, 0, 2).into(), "[fd77::1]")
        } else {
            (IpAddr::from(site.address(0)), "10.77.0.1")
        };
        Place { address, url: format!("https://{host}:{}", cluster.api.port), inside: Some(site.pid()) }
    }

    /// The words before a command that runs there.
    fn enter(&self) -> Vec<String> {
        let enter = |pid: i32| ["nsenter".to_owned(), format!("--target={pid}"), "--net".to_owned()];
        self.inside.map(enter).into_iter().flatten().collect()
    }
}

/// A running program that keeps one Node alive.
pub struct Subject {
    pub title: String,
    pub node: String,
    pub user: String,
    /// What its packets are told from those of others by.
    pub address: IpAddr,
    pub program_bytes: u64,
    pub pid: i32,
    /// Microseconds since 1970, to about ten milliseconds.
    pub started_us: u64,
    /// What it cannot do without: containerd.
    pub helper: Option<i32>,
    _running: Running,
}

/// Held for as long as it is to run.
#[expect(dead_code, reason = "each ends what it holds when it is dropped")]
enum Running {
    One(Daemon),
    Kubelet(Box<Kubelet>),
}

impl Subject {
    /// The four, each with an address of the server on loopback to itself.
    pub fn nodepulse_here(cluster: &Cluster, program: &Path, seconds_per_renewal: u32) -> Result<Subject> {
        Self::nodepulse(cluster, program, &Place::on_loopback(cluster, 0), seconds_per_renewal)
    }

    /// Without a watch: it asserts, and its reports have no echo.
    pub fn unwatched_here(cluster: &Cluster, program: &Path, seconds_per_renewal: u32) -> Result<Subject> {
        let text = format!("{}nodeWatch: false\n", settings(seconds_per_renewal));
        let mut subject = Self::with(cluster, program, &Place::on_loopback(cluster, 3), &text)?;
        subject.title.push_str(", nodeWatch: false");
        Ok(subject)
    }

    pub fn kube_rs_here(cluster: &Cluster, program: &Path, seconds_per_renewal: u32) -> Result<Subject> {
        Self::kube_rs(cluster, program, &Place::on_loopback(cluster, 1), seconds_per_renewal)
    }

    pub fn kubelet_here(cluster: &Cluster, seconds_per_renewal: u32) -> Result<Subject> {
        Self::kubelet(cluster, &Place::on_loopback(cluster, 2), seconds_per_renewal)
    }

    pub fn nodepulse(cluster: &Cluster, program: &Path, place: &Place, seconds_per_renewal: u32) -> Result<Subject> {
        Self::with(cluster, program, place, &settings(seconds_per_renewal))
    }

    fn with(cluster: &Cluster, program: &Path, place: &Place, settings: &str) -> Result<Subject> {
        let identity = cluster.node(NAME)?;
        let kubeconfig = identity.kubeconfig_via(&place.url)?;
        let flag = format!("--kubeconfig={}", kubeconfig.display());
        Self::start(cluster, identity, program, place, settings, &[flag])
    }

    /// The same without a kubeconfig.
    pub fn joined(cluster: &Cluster, program: &Path, seconds_per_renewal: u32) -> Result<Subject> {
        let token = cluster.token(&[KUBEADM_GROUP], None)?;
        let text = format!(
            "{}servers: ['{}']\ntoken: '{token}'\ncaHash: ['{}']\n",
            settings(seconds_per_renewal),
            url(cluster, ADDRESSES[1]),
            cluster.pin()
        );
        Self::start(cluster, cluster.node(NAME)?, program, &Place::on_loopback(cluster, 1), &text, &[])
    }

    fn start(
        cluster: &Cluster,
        identity: NodeIdentity,
        program: &Path,
        place: &Place,
        settings: &str,
        flags: &[String],
    ) -> Result<Subject> {
        let file = identity.dir.join("config.yaml");
        let text = format!("{settings}stateDirectory: {}\n", identity.dir.join("state").display());
        fs::write(&file, text).map_err(|e| e.to_string())?;
        let command = [
            program.display().to_string(),
            "run".to_owned(),
            format!("--config={}", file.display()),
            format!("--hostname-override={}", identity.name),
        ];
        let daemon = Daemon::start(cluster.home(), &identity.name, &[&place.enter()[..], &command, flags].concat())?;
        Subject::new("nodepulse", identity, place.address, program, daemon)
    }

    pub fn kube_rs(cluster: &Cluster, program: &Path, place: &Place, seconds_per_renewal: u32) -> Result<Subject> {
        let identity = cluster.node(NAME)?;
        let kubeconfig = identity.kubeconfig_via(&place.url)?;
        let command = [
            "env".to_owned(),
            format!("KUBECONFIG={}", kubeconfig.display()),
            program.display().to_string(),
            identity.name.clone(),
            seconds_per_renewal.to_string(),
        ];
        let daemon = Daemon::start(cluster.home(), &identity.name, &[&place.enter()[..], &command].concat())?;
        Subject::new("kube-rs, 40 lines", identity, place.address, program, daemon)
    }

    pub fn kubelet(cluster: &Cluster, place: &Place, seconds_per_renewal: u32) -> Result<Subject> {
        let program = binaries::find(&binaries::KUBELET)?;
        let mut identity = cluster.node(NAME)?;
        identity.kubeconfig = identity.kubeconfig_via(&place.url)?;
        let (node, user) = (identity.name.clone(), identity.user.clone());
        let settings = format!("nodeLeaseDurationSeconds: {}", 4 * seconds_per_renewal);
        let kubelet = Kubelet::start_inside(cluster, identity, &settings, &place.enter())?;
        let (pid, helper) = (kubelet.kubelet.pid(), Some(kubelet.runtime.pid()));
        Ok(Subject {
            title: "kubelet v1.36.3".to_owned(),
            node,
            user,
            address: place.address,
            program_bytes: size(&program["kubelet"])?,
            pid,
            started_us: started_us(pid)?,
            helper,
            _running: Running::Kubelet(Box::new(kubelet)),
        })
    }

    fn new(title: &str, identity: NodeIdentity, address: IpAddr, program: &Path, daemon: Daemon) -> Result<Subject> {
        let pid = daemon.pid();
        Ok(Subject {
            title: title.to_owned(),
            node: identity.name,
            user: identity.user,
            address,
            program_bytes: size(program)?,
            pid,
            started_us: started_us(pid)?,
            helper: None,
            _running: Running::One(daemon),
        })
    }

    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }

    pub fn helper_rss_kib(&self) -> Option<u64> {
        Usage::of(self.helper?).ok().map(|usage| usage.rss_kib)
    }

    pub fn audit(&self, cluster: &Cluster) -> Result<Vec<AuditEntry>> {
        cluster.api.audit(|entry| entry.user == self.user)
    }

    /// From the start of the process until the server had its first POST of the Node, in milliseconds.
    pub fn registered_after_ms(&self, cluster: &Cluster) -> Result<u64> {
        let audit = self.audit(cluster)?;
        let created = audit.iter().find(|e| e.verb == "create" && e.uri.starts_with("/api/v1/nodes") && e.code == 201);
        let created = created.ok_or_else(|| format!("{} never created its Node", self.title))?;
        Ok(created.completed_at_us.saturating_sub(self.started_us) / 1000)
    }
}

pub fn settings(seconds_per_renewal: u32) -> String {
    let head = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nnodeLeaseDurationSeconds: ";
    format!("{head}{}\n", 4 * seconds_per_renewal)
}

fn url(cluster: &Cluster, address: Ipv4Addr) -> String {
    format!("https://{address}:{}", cluster.api.port)
}

fn size(program: &Path) -> Result<u64> {
    fs::metadata(program).map(|file| file.len()).map_err(|e| format!("{}: {e}", program.display()))
}

/// The 22nd field of `/proc/PID/stat` counts ticks since boot.
fn started_us(pid: i32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| format!("/proc/{pid}/stat: {e}"))?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields.split_whitespace().nth(19).and_then(|t| t.parse().ok()).ok_or("no start time in stat")?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    let per_second = u64::try_from(per_second).map_err(|e| e.to_string())?;
    let read = |clock| clock_gettime(clock).map(Duration::from).map_err(|e| e.to_string());
    let booted = read(ClockId::CLOCK_REALTIME)?.saturating_sub(read(ClockId::CLOCK_BOOTTIME)?);
    let booted_us = u64::try_from(booted.as_micros()).map_err(|e| e.to_string())?;
    Ok(booted_us + ticks * 1_000_000 / per_second)
}

/// strace counting the system calls of one process, its threads included.
pub struct Trace {
    child: Child,
    output: PathBuf,
}

impl Trace {
    pub fn attach(pid: i32, output: PathBuf) -> Result<Trace> {
        let child = Command::new("strace")
            .args(["-c", "-f", "-qq", "-p", &pid.to_string(), "-o"])
            .arg(&output)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("no strace ({e}); Debian: apt-get install strace"))?;
        Ok(Trace { child, output })
    }

    /// Calls by name.
    pub fn finish(mut self) -> Result<BTreeMap<String, u64>> {
        let pid = i32::try_from(self.child.id()).map_err(|e| e.to_string())?;
        kill(Pid::from_raw(pid), Signal::SIGINT).map_err(|e| format!("cannot stop strace: {e}"))?;
        self.child.wait().map_err(|e| e.to_string())?;
        let text = fs::read_to_string(&self.output).map_err(|e| format!("{}: {e}", self.output.display()))?;
        // `% time  seconds  usecs/call  calls  [errors]  syscall`
        let row = |line: &str| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let name = *columns.last().filter(|name| **name != "total")?;
            columns.first()?.parse::<f64>().ok()?;
            Some((name.to_owned(), columns.get(3)?.parse().ok()?))
        };
        Ok(text.lines().filter_map(row).collect())
    }
}
