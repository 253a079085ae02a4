//! Turns a number into a site: a network namespace with a cable to the control plane's, which a test cuts and mends.

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::daemon::{Daemon, write_private};
use super::super::cluster::{ApiServer, Cluster, NodeIdentity, Result, wait_until};
use super::super::requests::SOON;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The API servers' addresses, on loopback of their namespace: reached through every cable.
pub const SERVER_ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1))];

/// For `sh -c`: makes the namespace of the control plane, and becomes the command that follows. The table of local
/// addresses is looked at after our rules, so that a rule can swallow what comes in as well as what goes out.
pub const OUTER_NETWORK: &str = r#"
ip link set lo up
ip address add 10.77.0.1/32 dev lo
ip -6 address add fd77::1/128 dev lo nodad
for family in -4 -6; do
    ip $family rule add pref 100 lookup local
    ip $family rule del pref 0
done
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
# A router says so when it knows no way, to each who asks; anybody else keeps silent.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 0 >/proc/sys/net/ipv4/icmp_ratelimit
exec "$@"
"#;

/// What a site begins with, run in its namespaces: files of its own stand in for those that name servers and hosts.
const SITE: &str = r#"
set -e
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
mount --bind "$1" /etc/resolv.conf
mount --bind "$2" /etc/hosts
[ ! -e /etc/nsswitch.conf ] || mount --bind "$3" /etc/nsswitch.conf
ip link set lo up
echo ready
exec sleep 86400
"#;

/// A place where agents live. Its namespaces end with it, or with the whole test.
pub struct Site {
    daemon: Daemon,
    /// What carries packets, where no cable does.
    link: Option<Daemon>,
    number: u8,
}

/// A link that takes its time, with a box in it that may forget connections (`link.c`).
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Each way.
    pub delay: Duration,
    pub mtu_bytes: u16,
    /// A connection that was silent for longer is not known any more, and nobody is told.
    pub forgets_after: Option<Duration>,
}

impl Site {
    /// With one cable, `eth0`, and the default route through it.
    pub fn new(cluster: &Cluster) -> Result<Self> {
        let site = Self::begin(cluster)?;
        site.plug(0)?;
        site.route()?;
        Ok(site)
    }

    /// With a link as `eth0` in the place of the cable. It can be neither cut nor plugged in.
    pub fn over(cluster: &Cluster, link: Link) -> Result<Self> {
        let mut site = Self::begin(cluster)?;
        let program = cluster.folder().join(format!("link-{}", site.number)).display().to_string();
        run(&["cc", "-O1", "-o", &program, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outage/link.c")])?;
        let (near, pid, delay_ms) = (site.near(0), site.pid().to_string(), link.delay.as_millis().to_string());
        let forgets_s = link.forgets_after.unwrap_or_default().as_secs().to_string();
        let command = [program, pid, near.clone(), "eth0".to_owned(), delay_ms, forgets_s];
        let daemon = Daemon::start(cluster.home(), &format!("link-{}", site.number), &command)?;
        wait_until_it_says_ready(&daemon)?;
        site.link = Some(daemon);
        let mtu = link.mtu_bytes.to_string();
        run(&["ip", "link", "set", &near, "mtu", &mtu])?;
        site.inside(&["ip", "link", "set", "eth0", "mtu", &mtu])?;
        site.address_cable(0)?;
        site.route()?;
        Ok(site)
    }

    fn route(&self) -> Result<()> {
        self.inside(&["ip", "route", "add", "default", "via", &self.gateway(0).to_string()])?;
        self.inside(&["ip", "-6", "route", "add", "default", "via", &format!("fd77:{}::1", self.number)])
    }

    fn begin(cluster: &Cluster) -> Result<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = |name: &str, text: &str| {
            let path = cluster.folder().join(format!("site-{number}-{name}"));
            write_private(&path, text).map(|path| path.display().to_string())
        };
        let resolver = format!("nameserver 10.77.{number}.1\noptions timeout:1 attempts:2\n");
        let files = [
            file("resolv.conf", &resolver)?,
            file("hosts", "127.0.0.1 localhost\n::1 localhost\n")?,
            file("nsswitch.conf", "hosts: files dns\n")?,
        ];
        let begin = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", SITE, "site"];
        let command: Vec<String> = begin.map(str::to_owned).into_iter().chain(files).collect();
        let daemon = Daemon::start(cluster.home(), &format!("site-{number}"), &command)?;
        wait_until_it_says_ready(&daemon)?;
        Ok(Self { daemon, link: None, number })
    }

    /// What its addresses are told from those of other sites by.
    pub fn number(&self) -> u16 {
        u16::from_str_radix(&self.number.to_string(), 16).unwrap_or_default()
    }

    /// A process that lives in the namespaces of this site.
    pub fn pid(&self) -> i32 {
        self.daemon.pid()
    }

    /// Our end of a cable of this site.
    pub fn near(&self, cable: u8) -> String {
        format!("site{}-{cable}", self.number)
    }

    /// The address at our end of a cable: the first 10.77.1.1, a second 10.177.1.1.
    pub fn gateway(&self, cable: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77 + 100 * cable, self.number, 1)
    }

    /// The address of the site on a cable.
    pub fn address(&self, cable: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77 + 100 * cable, self.number, 2)
    }

    /// Lays a cable: `eth0` or `eth1` of the site.
    pub fn plug(&self, cable: u8) -> Result<()> {
        let (near, far, pid) = (self.near(cable), format!("eth{cable}"), self.pid().to_string());
        run(&["ip", "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &pid])?;
        self.address_cable(cable)
    }

    /// Both ends of it get their addresses.
    fn address_cable(&self, cable: u8) -> Result<()> {
        let (near, far) = (self.near(cable), format!("eth{cable}"));
        run(&["ip", "address", "add", &format!("{}/24", self.gateway(cable)), "dev", &near])?;
        run(&["ip", "link", "set", &near, "up"])?;
        self.inside(&["ip", "address", "add", &format!("{}/24", self.address(cable)), "dev", &far])?;
        self.inside(&["ip", "link", "set", &far, "up"])?;
        if cable == 0 {
            run(&["ip", "-6", "address", "add", &format!("fd77:{}::1/64", self.number), "dev", &near])?;
            self.inside(&["ip", "-6", "address", "add", &format!("fd77:{}::2/64", self.number), "dev", &far])?;
        }
        Ok(())
    }

    /// Takes the carrier of a cable away, as a pulled plug does.
    pub fn cut(&self, cable: u8) -> Result<()> {
        run(&["ip", "link", "set", &self.near(cable), "down"])
    }

    pub fn mend(&self, cable: u8) -> Result<()> {
        let near = self.near(cable);
        run(&["ip", "link", "set", &near, "up"])?;
        // The address of IPv6 went with the link.
        if cable == 0 {
            run(&["ip", "-6", "address", "replace", &format!("fd77:{}::1/64", self.number), "dev", &near])?;
        }
        Ok(())
    }

    /// Swallows every packet with one of these selectors (`ip-rule(8)`); nobody is told.
    pub fn swallow(&self, selectors: &[&[&str]]) -> Result<()> {
        selectors.iter().try_for_each(|selector| rule("add", selector, "blackhole"))
    }

    pub fn swallow_no_more(&self, selectors: &[&[&str]]) -> Result<()> {
        selectors.iter().try_for_each(|selector| rule("del", selector, "blackhole"))
    }

    /// Answers every packet from this site to a port of ours as a router does that knows no way.
    pub fn turn_away(&self, port: u16) -> Result<()> {
        rule("add", &self.to_port(port), "unreachable")
    }

    pub fn let_through(&self, port: u16) -> Result<()> {
        rule("del", &self.to_port(port), "unreachable")
    }

    fn to_port(&self, port: u16) -> [String; 6] {
        ["from", &self.address(0).to_string(), "ipproto", "tcp", "dport", &port.to_string()].map(str::to_owned)
    }

    /// Runs a command in the site.
    pub fn inside(&self, command: &[&str]) -> Result<()> {
        let target = format!("--target={}", self.pid());
        run(&[&["nsenter", &target, "--net", "--mount"], command].concat())
    }

    /// Local ports of connections to `port` that this site believes to be alive.
    pub fn connections(&self, port: u16) -> Result<Vec<u16>> {
        const ESTABLISHED: &str = "01";
        let mut ports = Vec::new();
        for table in ["tcp", "tcp6"] {
            let path = format!("/proc/{}/net/{table}", self.pid());
            let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
            for line in text.lines().skip(1) {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let port_of = |address: &str| u16::from_str_radix(address.rsplit(':').next().unwrap_or(""), 16).ok();
                let [_, local, remote, state, ..] = fields[..] else { continue };
                if state == ESTABLISHED && port_of(remote) == Some(port) {
                    ports.extend(port_of(local));
                }
            }
        }
        Ok(ports)
    }

    /// Whether anything was said over one of them.
    pub fn has_heard_from(&self, port: u16) -> Result<bool> {
        let (target, to_port) = (format!("--target={}", self.pid()), format!(":{port}"));
        let show = [&target, "--net", "ss", "-Htin", "state", "established", "dport", "=", &to_port];
        let output = Command::new("nsenter").args(show).output().map_err(|e| format!("nsenter: {e}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).contains("bytes_received:"))
    }

    /// Tells `eth0` the hardware address of our end for good: nobody has to ask for it.
    pub fn know_gateway(&self) -> Result<()> {
        let near = self.near(0);
        let output = Command::new("ip").args(["-o", "link", "show", &near]).output().map_err(|e| format!("ip: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let address = text.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
        let address = address.ok_or_else(|| format!("{near} has no hardware address: {text}"))?;
        let gateway = self.gateway(0).to_string();
        self.inside(&["ip", "neigh", "replace", &gateway, "lladdr", address, "dev", "eth0", "nud", "permanent"])
    }

    /// When TCP says once more that it wants a connection to `port`, if one is being opened.
    pub fn asks_again_in_ms(&self, port: u16) -> Result<Option<u32>> {
        let (target, to_port) = (format!("--target={}", self.pid()), format!(":{port}"));
        let show = [&target, "--net", "ss", "-Htno", "state", "syn-sent", "dport", "=", &to_port];
        let output = Command::new("nsenter").args(show).output().map_err(|e| format!("nsenter: {e}"))?;
        // `timer:(on,850ms,1)`, or `timer:(on,2.100ms,1)`, which means seconds.
        let text = String::from_utf8_lossy(&output.stdout);
        let timer = text.split("timer:(on,").nth(1).and_then(|rest| rest.split("ms,").next());
        Ok(timer.and_then(|ms| ms.parse().ok()))
    }

    /// The only such connection.
    pub fn connection(&self, port: u16) -> Result<u16> {
        wait_until("one connection", SOON, || match self.connections(port)?[..] {
            [only] => Ok(only),
            ref other => Err(format!("there are {other:?}")),
        })
    }

    /// A kubeconfig of a node for a server as it is seen from here.
    pub fn kubeconfig(&self, node: &NodeIdentity, api: &ApiServer, host: &str) -> Result<PathBuf> {
        node.kubeconfig_via(&format!("https://{host}:{}", api.port))
    }

    /// An agent in this site, with quick settings, for the server by its address.
    pub fn agent(&self, cluster: &Cluster, api: &ApiServer, node: &NodeIdentity) -> Result<Nodepulse> {
        self.launch(api, node, Launch::quick(node))?.start(cluster)
    }

    pub fn launch<'a>(&self, api: &ApiServer, node: &NodeIdentity, launch: Launch<'a>) -> Result<Launch<'a>> {
        let kubeconfig = self.kubeconfig(node, api, "10.77.0.1")?;
        Ok(launch.kubeconfig(&kubeconfig).inside(self.pid()))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.link = None;
        // The cables go with the namespace, but that goes when the kernel has time.
        for cable in [0, 1] {
            let _ = run(&["ip", "link", "del", &self.near(cable)]);
        }
    }
}

fn wait_until_it_says_ready(daemon: &Daemon) -> Result<()> {
    wait_until(&daemon.name, SOON, || {
        let said = fs::read_to_string(&daemon.log).map_err(|e| e.to_string())?;
        if said.ends_with("ready\n") { Ok(()) } else { Err(said) }
    })
}

/// Rules that are looked at before the table of local addresses is.
fn rule(verb: &str, selector: &[impl AsRef<str>], action: &str) -> Result<()> {
    let selector: Vec<&str> = selector.iter().map(AsRef::as_ref).collect();
    run(&[&["ip", "rule", verb, "pref", "10"], selector.as_slice(), &[action]].concat())
}

/// Runs a command to its end; its complaint is the error.
pub fn run(command: &[&str]) -> Result<()> {
    let (program, arguments) = command.split_first().ok_or("an empty command")?;
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
