//! Turns ready-made programs into a real Kubernetes control plane on loopback: etcd, kube-apiserver with the
//! Node authorizer and NodeRestriction, and kube-controller-manager. It ends with its value, or with us.
//!
//! Tests, benchmarks and `make cluster` include this file with `#[path]`.

// Every user takes a part of it.
#![allow(dead_code, unused_imports)]
// The linter keeps clocks and sleeps out of the agent; a test waits for the real world.
#![allow(clippy::disallowed_methods)]

pub mod apiserver;
pub mod audit;
pub mod binaries;
pub mod client;
pub mod daemon;
pub mod identity;
pub mod joining;
pub mod kubelet;
pub mod pki;

pub use apiserver::ApiServer;
pub use audit::AuditEntry;
pub use client::{Client, Reply};
pub use daemon::wait_until;
pub use identity::{Credential, NodeIdentity};
pub use joining::{Rotation, Token};
pub use kubelet::Kubelet;
pub use pki::Validity;

use apiserver::{ApiServerSetup, Pki};
use daemon::{Daemon, Home};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// An error here is only ever read by a person, so it is a sentence.
pub type Result<T> = std::result::Result<T, String>;

const START_WITHIN: Duration = Duration::from_secs(60);

/// What differs between clusters.
pub struct Options {
    /// How long a Node may be silent before the controller calls it Unknown. A Lease is renewed every 10 s
    /// unless the agent is told otherwise, so less than 11 s makes such a Node flap.
    pub node_monitor_grace_period: Duration,
    /// The same for a Node that has never reported.
    pub node_startup_grace_period: Duration,
    /// How often the controller looks.
    pub node_monitor_period: Duration,
    /// Addresses besides 127.0.0.1 under which the API server is reached, for tests with networks of their own.
    pub more_addresses: Vec<IpAddr>,
    /// How long the certificates live that the controller-manager signs.
    pub signing_duration: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node_monitor_grace_period: Duration::from_secs(14),
            node_startup_grace_period: Duration::from_secs(14),
            node_monitor_period: Duration::from_secs(1),
            more_addresses: Vec::new(),
            signing_duration: Duration::from_secs(365 * 86_400),
        }
    }
}

/// A running control plane. Fields end in this order.
pub struct Cluster {
    controller_manager: Daemon,
    /// The API server that the controllers use. Tests that stop or freeze one start another with `api_server`.
    pub api: ApiServer,
    etcd: Daemon,
    etcd_url: String,
    programs: BTreeMap<&'static str, PathBuf>,
    options: Options,
    pki: Pki,
    admin_kubeconfig: PathBuf,
    /// What kubeadm has made so that boards can join; once.
    joining: OnceLock<Result<()>>,
    has_rotated: bool,
    /// How long the start took, without any building.
    pub started_in: Duration,
    next_name: AtomicU32,
    home: Arc<Home>,
}

impl Cluster {
    /// Starts everything and waits until it answers and its controllers work.
    pub fn start(options: Options) -> Result<Self> {
        let programs = binaries::find(&binaries::CONTROL_PLANE)?;
        let began = Instant::now();
        let home = Arc::new(Home::new()?);
        let pki = Pki::new(&home)?;
        let (etcd, etcd_url) = start_etcd(&home, &programs["etcd"])?;
        let api = ApiServer::start(&ApiServerSetup {
            home: &home,
            pki: &pki,
            program: &programs["kube-apiserver"],
            etcd: &etcd_url,
            more_addresses: &options.more_addresses,
            certificate: Validity::Now,
            front_proxy: None,
            flags: &[],
        })?;
        let admin_kubeconfig = identity::write_kubeconfig(&home.path, "admin", &api.url(), &pki.trusted, &pki.admin)?;
        let program = &programs["kube-controller-manager"];
        let mut controller_manager = start_controller_manager(&home, program, &pki, &api, &options)?;
        wait_for_controllers(&api, &mut controller_manager)?;
        Ok(Self {
            controller_manager,
            api,
            etcd,
            etcd_url,
            programs,
            options,
            pki,
            admin_kubeconfig,
            joining: OnceLock::new(),
            has_rotated: false,
            started_in: began.elapsed(),
            next_name: AtomicU32::new(1),
            home,
        })
    }

    /// The folder of this cluster: logs, keys, kubeconfigs. It goes away with the cluster.
    pub fn folder(&self) -> &Path {
        &self.home.path
    }

    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// The certificate that signs everything here.
    pub fn authority_file(&self) -> &Path {
        &self.pki.authority_file
    }

    /// Another API server over the same etcd, for a test that stops, kills or freezes it, or that wants
    /// a serving certificate with other dates.
    pub fn api_server(&self, certificate: Validity) -> Result<ApiServer> {
        self.start_api_server(certificate, None, &[])
    }

    /// One with more flags.
    pub fn api_server_with(&self, flags: &[&str]) -> Result<ApiServer> {
        self.start_api_server(Validity::Now, None, flags)
    }

    /// One that believes what a client with a certificate of this authority says of its own clients.
    pub fn api_server_behind(&self, front_proxy: &pki::Authority) -> Result<ApiServer> {
        let number = self.next_name.fetch_add(1, Ordering::Relaxed);
        let file = self.home.write(&format!("trusted-front-proxy-{number}.crt"), &front_proxy.certificate())?;
        self.start_api_server(Validity::Now, Some(file), &[])
    }

    fn start_api_server(
        &self,
        certificate: Validity,
        front_proxy: Option<PathBuf>,
        flags: &[&str],
    ) -> Result<ApiServer> {
        ApiServer::start(&ApiServerSetup {
            home: &self.home,
            pki: &self.pki,
            program: &self.programs["kube-apiserver"],
            etcd: &self.etcd_url,
            more_addresses: &self.options.more_addresses,
            certificate,
            front_proxy,
            flags,
        })
    }

    /// A new node name with its certificate and kubeconfig. `hint` is the readable part of the name.
    pub fn node(&self, hint: &str) -> Result<NodeIdentity> {
        self.node_at(&self.api, hint, Credential::Valid)
    }

    /// The same for another API server of this cluster, or with something wrong.
    pub fn node_at(&self, api: &ApiServer, hint: &str, credential: Credential) -> Result<NodeIdentity> {
        let number = self.next_name.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", hint.to_lowercase().replace('_', "-"));
        NodeIdentity::new(&self.home.path, &name, api, &self.pki.authority, credential)
    }

    /// The same of exactly this name.
    pub fn node_named(&self, api: &ApiServer, name: &str) -> Result<NodeIdentity> {
        NodeIdentity::new(&self.home.path, name, api, &self.pki.authority, Credential::Valid)
    }

    /// Other keys in the place of a node's, in the files that its kubeconfig names.
    pub fn renew(&self, node: &NodeIdentity, credential: Credential) -> Result<()> {
        node.renew(&self.pki.authority, credential)
    }

    /// The keys of another client, by the authority that signs now.
    pub fn client_keys(&self, user: &str, group: Option<&str>) -> Result<pki::Keypair> {
        self.pki.authority.client(user, group, Validity::Now)
    }

    /// What a server of this cluster could show, with these dates.
    pub fn serving_certificate(&self, validity: Validity) -> Result<pki::Keypair> {
        self.pki.authority.server(&[IpAddr::from([127, 0, 0, 1])], validity)
    }

    /// A token of a service account that may do what nodes may do, and is called as this one.
    pub fn node_token(&self, node: &NodeIdentity) -> Result<String> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": node.name}});
        self.api.admin.post("/api/v1/namespaces/default/serviceaccounts", &account)?;
        let subject = format!("--serviceaccount=default:{}", node.name);
        self.kubectl(&["create", "clusterrolebinding", &node.name, "--clusterrole=system:node", &subject])?;
        self.kubectl(&["create", "token", &node.name]).map(|token| token.trim().to_owned())
    }

    pub fn kubectl_program(&self) -> &Path {
        &self.programs["kubectl"]
    }

    /// What `kubectl` says, run as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.run_as_admin("kubectl", arguments)
    }

    /// What one of the programs says, run as the administrator.
    fn run_as_admin(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.programs[program])
            .args(arguments)
            .env("KUBECONFIG", &self.admin_kubeconfig)
            // Its cache of what the server offers goes below HOME.
            .env("HOME", &self.home.path)
            .output()
            .map_err(|e| format!("cannot run {program}: {e}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
    }

    /// Name and resident KiB of every daemon.
    pub fn memory(&self) -> Vec<(String, u64)> {
        let own = [&self.etcd, &self.controller_manager];
        let mut all: Vec<_> = own.iter().filter_map(|d| Some((d.name.clone(), d.resident_kib().ok()?))).collect();
        all.extend(self.api.resident_kib().map(|kib| ("kube-apiserver".to_owned(), kib)));
        all
    }

    /// The process ids of the daemons.
    pub fn pids(&self) -> Vec<i32> {
        [self.etcd.pid(), self.controller_manager.pid()].into_iter().chain(self.api.pid()).collect()
    }

    /// The requests of one node that the first API server has answered by now, in order of arrival.
    pub fn audit_of(&self, node: &NodeIdentity) -> Result<Vec<AuditEntry>> {
        self.api.audit_so_far(|e| e.user == node.user)
    }

    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.home
    }
}

/// The objects of a node, through the administrator's eyes.
impl Cluster {
    pub fn get_node(&self, name: &str) -> Result<Value> {
        self.api.admin.get(&node_path(name))
    }

    pub fn find_node(&self, name: &str) -> Result<Option<Value>> {
        self.api.admin.find(&node_path(name))
    }

    pub fn create_node(&self, node: &Value) -> Result<Value> {
        self.api.admin.post("/api/v1/nodes", node)
    }

    /// A strategic merge patch of the Node's metadata and spec.
    pub fn patch_node(&self, name: &str, patch: &Value) -> Result<Value> {
        self.api.admin.patch(&node_path(name), patch)
    }

    /// A strategic merge patch of the Node's status.
    pub fn patch_node_status(&self, name: &str, patch: &Value) -> Result<Value> {
        self.api.admin.patch(&format!("{}/status", node_path(name)), patch)
    }

    pub fn delete_node(&self, name: &str) -> Result<Value> {
        self.api.admin.delete(&node_path(name))
    }

    pub fn get_lease(&self, name: &str) -> Result<Value> {
        self.api.admin.get(&lease_path(name))
    }

    pub fn find_lease(&self, name: &str) -> Result<Option<Value>> {
        self.api.admin.find(&lease_path(name))
    }

    /// A merge patch of the Lease, by somebody else than its Node.
    pub fn patch_lease(&self, name: &str, patch: &Value) -> Result<Value> {
        self.api.admin.patch(&lease_path(name), patch)
    }

    pub fn delete_lease(&self, name: &str) -> Result<Value> {
        self.api.admin.delete(&lease_path(name))
    }

    /// The events whose object has this uid.
    pub fn events_for(&self, uid: &str) -> Result<Vec<Value>> {
        self.events(&format!("involvedObject.uid={uid}"))
    }

    /// What `kubectl describe node` lists: it asks for the Node's uid, and then for its name in the uid's
    /// place, which older kubelets wrote there.
    pub fn described_events(&self, node: &Value) -> Result<Vec<Value>> {
        let name = node["metadata"]["name"].as_str().ok_or("a Node without a name")?;
        let mut all = Vec::new();
        for uid in [node["metadata"]["uid"].as_str().ok_or("a Node without a uid")?, name] {
            let selector = format!("involvedObject.kind=Node,involvedObject.name={name},involvedObject.uid={uid}");
            all.extend(self.events(&selector)?);
        }
        Ok(all)
    }

    pub fn events(&self, field_selector: &str) -> Result<Vec<Value>> {
        let query = field_selector.replace('=', "%3D").replace(',', "%2C");
        let list = self.api.admin.get(&format!("/api/v1/events?fieldSelector={query}"))?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The Node once its condition `kind` has this status.
    pub fn wait_for_condition(&self, name: &str, kind: &str, status: &str, within: Duration) -> Result<Value> {
        wait_until(&format!("{kind}={status} of Node {name}"), within, || {
            let node = self.get_node(name)?;
            match condition(&node, kind).map(|c| &c["status"]) {
                Some(found) if found == status => Ok(node),
                found => Err(format!("it is {found:?}")),
            }
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // These two at once; then each field waits for its own, and etcd stays until nobody needs it.
        self.controller_manager.let_go();
        self.api.let_go();
    }
}

/// A condition of a Node by its type.
pub fn condition<'a>(node: &'a Value, kind: &str) -> Option<&'a Value> {
    node["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

pub fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

pub fn lease_path(name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")
}

fn start_etcd(home: &Arc<Home>, program: &Path) -> Result<(Daemon, String)> {
    let socket = home.path.join("etcd.sock");
    let url = format!("unix://{}", socket.display());
    let command = [
        program.display().to_string(),
        format!("--data-dir={}", home.path.join("etcd").display()),
        format!("--listen-client-urls={url}"),
        // Nobody reads what it advertises, and it has no peers; it insists on ports for both all the same.
        "--advertise-client-urls=http://127.0.0.1:0".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        // Its data is gone tomorrow; the disk's patience is not.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let mut etcd = Daemon::start(home, "etcd", &command)?;
    wait_until("etcd to listen", START_WITHIN, || match etcd.check() {
        Err(e) => Ok(Err(e)),
        Ok(()) => UnixStream::connect(&socket).map(|_| Ok(())).map_err(|e| e.to_string()),
    })
    .map_err(|e| format!("{e}\n{}", etcd.log_tail(25)))??;
    Ok((etcd, url))
}

fn start_controller_manager(
    home: &Arc<Home>,
    program: &Path,
    pki: &Pki,
    api: &ApiServer,
    options: &Options,
) -> Result<Daemon> {
    let user = pki.authority.client("system:kube-controller-manager", None, Validity::Now)?;
    let kubeconfig = identity::write_kubeconfig(&home.path, "controller-manager", &api.url(), &pki.trusted, &user)?;
    let mut command = vec![program.display().to_string()];
    let mut set = |flag: &str, value: &dyn std::fmt::Display| command.push(format!("--{flag}={value}"));
    set("kubeconfig", &kubeconfig.display());
    set("leader-elect", &false);
    set("secure-port", &0);
    set("controllers", &"*,bootstrap-signer-controller,token-cleaner-controller");
    // Each controller with the rights of its own role, as in a real cluster. They all fetch their tokens at the
    // start, which takes five seconds at the usual rate.
    set("use-service-account-credentials", &true);
    set("kube-api-qps", &500);
    set("kube-api-burst", &1000);
    set("service-account-private-key-file", &pki.service_account_private_file.display());
    set("root-ca-file", &pki.trusted_file.display());
    set("cluster-signing-cert-file", &pki.authority_file.display());
    set("cluster-signing-key-file", &pki.authority_key_file.display());
    set("cluster-signing-duration", &format!("{}s", options.signing_duration.as_secs()));
    set("allocate-node-cidrs", &true);
    set("cluster-cidr", &"10.244.0.0/16");
    set("service-cluster-ip-range", &"10.96.0.0/16");
    set("node-monitor-grace-period", &format!("{}ms", options.node_monitor_grace_period.as_millis()));
    set("node-startup-grace-period", &format!("{}ms", options.node_startup_grace_period.as_millis()));
    set("node-monitor-period", &format!("{}ms", options.node_monitor_period.as_millis()));
    Daemon::start(home, "kube-controller-manager", &command)
}

/// Without its port the controller-manager has no readiness of its own; the first thing that any of its
/// controllers leaves behind is the service account `default`.
fn wait_for_controllers(api: &ApiServer, daemon: &mut Daemon) -> Result<()> {
    let work = "the controllers to work";
    wait_until(work, START_WITHIN, || match daemon.check() {
        Err(e) => Ok(Err(e)),
        Ok(()) => api.admin.get("/api/v1/namespaces/default/serviceaccounts/default").map(|_| Ok(())),
    })
    .map_err(|e| format!("{e}\n{}", daemon.log_tail(25)))?
}
