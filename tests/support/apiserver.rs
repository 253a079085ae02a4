//! Turns an etcd and an authority into a running kube-apiserver that tests can stop, freeze and start again.

use super::Result;
use super::audit::{self, AuditEntry, AuditLog};
use super::client::Client;
use super::daemon::{Daemon, Home, tail, wait_until};
use super::pki::{Authority, Keypair, Validity, signing_keys};
use nix::sys::signal::Signal;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const START_WITHIN: Duration = Duration::from_secs(90);

/// The keys of the whole cluster, in memory and as files in its folder.
pub struct Pki {
    /// Which signs certificates of servers and of nodes.
    pub authority: Authority,
    /// The next one, or, once the cluster has moved to that, the one before.
    pub other_authority: Authority,
    /// What the cluster tells its clients to trust, and whose certificates it takes: PEM.
    pub trusted: String,
    pub trusted_file: PathBuf,
    pub authority_file: PathBuf,
    pub authority_key_file: PathBuf,
    pub service_account_private_file: PathBuf,
    pub service_account_public_file: PathBuf,
    pub admin: Keypair,
}

impl Pki {
    pub fn new(home: &Home) -> Result<Self> {
        // Both of one name, as kubeadm's are before and after a rotation.
        let (authority, other_authority) =
            (Authority::new("nodepulse-test-cluster")?, Authority::new("nodepulse-test-cluster")?);
        let (private, public) = signing_keys()?;
        Ok(Self {
            trusted_file: home.write("trusted.crt", &authority.certificate())?,
            authority_file: home.write("ca.crt", &authority.certificate())?,
            authority_key_file: home.write("ca.key", authority.key())?,
            service_account_private_file: home.write("service-accounts.key", &private)?,
            service_account_public_file: home.write("service-accounts.pub", &public)?,
            admin: authority.client("admin", Some("system:masters"), Validity::Now)?,
            trusted: authority.certificate(),
            authority,
            other_authority,
        })
    }

    /// Both authorities or one of them are trusted from now on; with `swap` the other one signs.
    pub fn rotate(&mut self, home: &Home, swap: bool, trust_both: bool) -> Result<()> {
        if swap {
            std::mem::swap(&mut self.authority, &mut self.other_authority);
            home.write("ca.crt", &self.authority.certificate())?;
            home.write("ca.key", self.authority.key())?;
            self.admin = self.authority.client("admin", Some("system:masters"), Validity::Now)?;
        }
        self.trusted = self.authority.certificate();
        if trust_both {
            self.trusted.push_str(&self.other_authority.certificate());
        }
        home.write("trusted.crt", &self.trusted).map(drop)
    }
}

/// A kube-apiserver. Several can share one etcd: a test that kills or freezes one takes its own, so that the
/// tests beside it do not notice.
pub struct ApiServer {
    pub port: u16,
    /// The administrator's way to this server.
    pub admin: Client,
    /// Who signed its certificate, unless that is out of date.
    authority: Option<String>,
    home: Arc<Home>,
    name: String,
    command: Vec<String>,
    daemon: Mutex<Option<Daemon>>,
    audit: AuditLog,
}

/// What an API server is started with.
pub struct ApiServerSetup<'a> {
    pub home: &'a Arc<Home>,
    pub pki: &'a Pki,
    pub program: &'a Path,
    pub etcd: &'a str,
    /// Addresses to listen on besides 127.0.0.1, which then means all addresses of this machine.
    pub more_addresses: &'a [IpAddr],
    /// The dates of its serving certificate.
    pub certificate: Validity,
    /// Whoever shows a certificate of this authority says in headers who asks.
    pub front_proxy: Option<PathBuf>,
    /// More flags, whole.
    pub flags: &'a [&'a str],
}

impl ApiServer {
    /// Starts it and waits until it is ready.
    pub fn start(setup: &ApiServerSetup) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut tries = 0;
        loop {
            tries += 1;
            let name = format!("kube-apiserver-{}", NEXT.fetch_add(1, Ordering::Relaxed));
            let server = Self::prepare(setup, name, free_port()?)?;
            match server.restart() {
                Ok(()) => return Ok(server),
                // Somebody took the port between our look and its start.
                Err(e) if tries < 3 && e.contains("address already in use") => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn prepare(setup: &ApiServerSetup, name: String, port: u16) -> Result<Self> {
        let home = setup.home;
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        addresses.extend(setup.more_addresses);
        let serving = setup.pki.authority.server(&addresses, setup.certificate)?;
        let log = home.path.join(format!("{name}-audit.log"));
        let files = ServerFiles {
            certificate: home.write(&format!("{name}.crt"), &serving.certificate)?,
            key: home.write(&format!("{name}.key"), &serving.key)?,
            policy: home.write(&format!("{name}-audit-policy.yaml"), audit::POLICY)?,
            audit_log: log.clone(),
        };
        let is_valid = matches!(setup.certificate, Validity::Now | Validity::Years);
        let authority = is_valid.then(|| setup.pki.trusted.clone());
        Ok(Self {
            port,
            admin: Client::new(port, authority.as_deref(), &setup.pki.admin)?,
            home: Arc::clone(home),
            name,
            command: arguments(setup, &files, port),
            daemon: Mutex::new(None),
            authority,
            audit: AuditLog::new(log),
        })
    }

    /// Starts it again with a serving certificate of the authority that signs now, and with an administrator of that.
    pub(super) fn rotate(&mut self, pki: &Pki, more_addresses: &[IpAddr]) -> Result<()> {
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        addresses.extend(more_addresses);
        let serving = pki.authority.server(&addresses, Validity::Now)?;
        self.home.write(&format!("{}.crt", self.name), &serving.certificate)?;
        self.home.write(&format!("{}.key", self.name), &serving.key)?;
        self.admin = Client::new(self.port, Some(&pki.trusted), &pki.admin)?;
        self.authority = Some(pki.trusted.clone());
        self.restart()
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Another identity's way to this server.
    pub fn client(&self, identity: &Keypair) -> Result<Client> {
        Client::new(self.port, self.authority.as_deref(), identity)
    }

    /// Ends it in good order (SIGTERM, SIGKILL three seconds later); connections to its port are refused afterwards.
    pub fn stop(&self) {
        *self.daemon() = None;
    }

    /// Kills it in the middle of whatever it does.
    pub fn kill(&self) -> Result<()> {
        let daemon = self.daemon().take();
        daemon.map_or_else(|| Err(format!("{} does not run", self.name)), |mut d| d.kill())
    }

    /// Ends it if it runs, starts it on the same port with the same keys, and waits until it is ready.
    pub fn restart(&self) -> Result<()> {
        self.stop();
        *self.daemon() = Some(Daemon::start(&self.home, &self.name, &self.command)?);
        self.wait_until_ready()
    }

    /// SIGSTOP: connections are accepted by the kernel, and nothing is ever answered.
    pub fn freeze(&self) -> Result<()> {
        match self.daemon().as_mut() {
            Some(daemon) => daemon.freeze(),
            None => Err(format!("{} does not run", self.name)),
        }
    }

    /// SIGCONT: what was asked meanwhile is answered now.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        match self.daemon().as_mut() {
            Some(daemon) => daemon.signal(signal),
            None => Err(format!("{} does not run", self.name)),
        }
    }

    /// Its process id while it runs.
    pub fn pid(&self) -> Option<i32> {
        self.daemon().as_ref().map(Daemon::pid)
    }

    /// Resident memory in KiB while it runs.
    pub fn resident_kib(&self) -> Option<u64> {
        self.daemon().as_ref().and_then(|d| d.resident_kib().ok())
    }

    /// Finished requests to this server that `keep` accepts, in order of arrival. The server writes them down
    /// just after it has answered, so look with `wait_until`.
    pub fn audit(&self, keep: impl Fn(&AuditEntry) -> bool) -> Result<Vec<AuditEntry>> {
        self.audit.entries(keep)
    }

    /// The same, with every request that was answered before now: one of the administrator's has its line after theirs.
    pub fn audit_so_far(&self, keep: impl Fn(&AuditEntry) -> bool) -> Result<Vec<AuditEntry>> {
        static MARKS: AtomicU32 = AtomicU32::new(0);
        let mark = format!("/version?{}={}", audit::MARK, MARKS.fetch_add(1, Ordering::Relaxed));
        // One that does not run writes nothing any more.
        if self.admin.get(&mark).is_ok() {
            wait_until("a request of now in the audit log", Duration::from_secs(10), || {
                if self.audit(|e| e.uri == mark)?.is_empty() { Err("it is not there".to_owned()) } else { Ok(()) }
            })?;
        }
        self.audit(keep)
    }

    /// Watches of this server that `keep` accepts, whether they go on or not, in order of arrival.
    pub fn watches(&self, keep: impl Fn(&AuditEntry) -> bool) -> Result<Vec<AuditEntry>> {
        self.audit.watches(keep)
    }

    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.home.path.join(format!("{}.log", self.name)), lines)
    }

    /// Somebody who brings nothing but what `with_header` adds.
    pub fn anonymous(&self) -> Result<Client> {
        Client::anonymous(self.port, self.authority.as_deref())
    }

    pub(super) fn let_go(&self) {
        if let Some(daemon) = self.daemon().as_mut() {
            daemon.let_go();
        }
    }

    fn wait_until_ready(&self) -> Result<()> {
        // A dead daemon ends the wait at once: Ok(Err(..)).
        let ended = wait_until(&format!("{} to be ready", self.name), START_WITHIN, || {
            if let Some(Err(e)) = self.daemon().as_mut().map(Daemon::check) {
                return Ok(Err(e));
            }
            self.admin.get("/readyz").map(|_| Ok(()))
        });
        ended.map_err(|e| format!("{e}\n{}", self.log_tail(25)))?
    }

    fn daemon(&self) -> MutexGuard<'_, Option<Daemon>> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct ServerFiles {
    certificate: PathBuf,
    key: PathBuf,
    policy: PathBuf,
    audit_log: PathBuf,
}

fn arguments(setup: &ApiServerSetup, files: &ServerFiles, port: u16) -> Vec<String> {
    let bind = match setup.more_addresses {
        [] => "127.0.0.1",
        // Both families, where the machine has both.
        more if more.iter().any(IpAddr::is_ipv6) => "::",
        _ => "0.0.0.0",
    };
    let pki = setup.pki;
    let mut command = vec![setup.program.display().to_string()];
    let mut set = |flag: &str, value: &dyn std::fmt::Display| command.push(format!("--{flag}={value}"));
    set("etcd-servers", &setup.etcd);
    set("bind-address", &bind);
    set("advertise-address", &"127.0.0.1");
    set("secure-port", &port);
    // Nobody uses the Service `kubernetes`, and its endpoints could not be on loopback.
    set("endpoint-reconciler-type", &"none");
    set("tls-cert-file", &files.certificate.display());
    set("tls-private-key-file", &files.key.display());
    set("client-ca-file", &pki.trusted_file.display());
    set("enable-bootstrap-token-auth", &true);
    set("authorization-mode", &"Node,RBAC");
    set("enable-admission-plugins", &"NodeRestriction");
    set("service-cluster-ip-range", &"10.96.0.0/16");
    set("service-account-issuer", &"https://kubernetes.default.svc");
    set("service-account-key-file", &pki.service_account_public_file.display());
    set("service-account-signing-key-file", &pki.service_account_private_file.display());
    if let Some(file) = &setup.front_proxy {
        set("requestheader-client-ca-file", &file.display());
        set("requestheader-username-headers", &"X-Remote-User");
        set("requestheader-group-headers", &"X-Remote-Group");
    }
    set("audit-policy-file", &files.policy.display());
    set("audit-log-path", &files.audit_log.display());
    // One file: a log that is rotated away cannot be read on.
    set("audit-log-maxsize", &4096);
    set("profiling", &false);
    command.extend(setup.flags.iter().map(|flag| (*flag).to_owned()));
    command
}

/// A port of loopback that is free now and that no outgoing connection is given: one that was, while the
/// server is down, would keep it from coming back, or even be connected to itself.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 12_000;
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|n| n.parse::<u32>().ok()).unwrap_or(32_768);
    let many = end.max(FIRST + 1_000) - FIRST;
    for _ in 0..many {
        let n = std::process::id().wrapping_mul(37).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + n % many).map_err(|e| e.to_string())?;
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no port of loopback is free".to_owned())
}
