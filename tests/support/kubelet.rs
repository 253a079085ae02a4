//! Turns a cluster into one with a real kubelet on this machine, to hold nodepulse against. Needs root.

use super::Result;
use super::apiserver::free_port;
use super::binaries;
use super::daemon::{Daemon, wait_until};
use super::identity::NodeIdentity;
use super::{Cluster, condition};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[path = "crio.rs"]
mod crio;

const START_WITHIN: Duration = Duration::from_secs(60);

/// A kubelet sets kernel parameters and writes below /var whatever it is told, and this machine is somebody's:
/// it gets copies, in a mount namespace that goes away with it.
const IN_PRIVATE: &str = r#"
set -e
copies=$1; shift
mkdir -p "$copies"
for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    [ -e "/proc/sys/$name" ] || continue
    copy=$copies/$(echo "$name" | tr / -)
    cat "/proc/sys/$name" >"$copy"
    mount --bind "$copy" "/proc/sys/$name"
done
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /var/log
exec "$@"
"#;

/// Without a network configuration the runtime is not ready; without pods its plug-in is never called.
const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]}"#;

const NETWORK_FILE: &str = "10-loopback.conflist";
/// containerd fills it in; it takes no file of that name for a configuration.
const TEMPLATE: &str =
    r#"{"cniVersion": "1.0.0", "name": "filled", "plugins": [{"type": "loopback", "of": "{{.PodCIDR}}"}]}"#;
const TEMPLATE_FILE: &str = "template";

/// A running kubelet with a container runtime of its own: containerd, or CRI-O where `CRIO` is set. Fields end in this order.
pub struct Kubelet {
    pub kubelet: Daemon,
    pub runtime: Daemon,
    pub identity: NodeIdentity,
    /// Where it serves its own API, as `status.daemonEndpoints` says.
    pub port: u16,
}

impl Kubelet {
    /// Starts both; the Node appears and becomes Ready within a second or two (`wait_for_condition`).
    /// `configuration` is YAML that is added to its KubeletConfiguration.
    pub fn start(cluster: &Cluster, hint: &str, configuration: &str) -> Result<Self> {
        Self::start_as(cluster, cluster.node(hint)?, configuration)
    }

    /// The same as a node that has its identity already, and perhaps another way to the server.
    pub fn start_as(cluster: &Cluster, identity: NodeIdentity, configuration: &str) -> Result<Self> {
        Self::start_inside(cluster, identity, configuration, &[])
    }

    /// The same with words before its command, which run it in another network.
    pub fn start_inside(
        cluster: &Cluster,
        identity: NodeIdentity,
        configuration: &str,
        enter: &[String],
    ) -> Result<Self> {
        let programs = binaries::find(&binaries::KUBELET)?;
        let runtime = start_runtime(cluster, &identity)?;
        let port = free_port()?;
        let kubelet = start_kubelet(cluster, &identity, (enter, &programs["kubelet"]), port, configuration)?;
        Ok(Self { kubelet, runtime, identity, port })
    }

    /// Kills it, waits, and lets `meanwhile` do what it likes; then starts it again as the same Node. Its runtime
    /// goes on.
    pub fn restart(
        &mut self,
        cluster: &Cluster,
        configuration: &str,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let programs = binaries::find(&binaries::KUBELET)?;
        self.kubelet.kill()?;
        meanwhile()?;
        self.kubelet = start_kubelet(cluster, &self.identity, (&[], &programs["kubelet"]), self.port, configuration)?;
        Ok(())
    }

    /// The way to its runtime, as a setting names it.
    pub fn runtime_endpoint(&self) -> String {
        format!("unix://{}", self.runtime_socket().display())
    }

    pub fn runtime_socket(&self) -> PathBuf {
        runtime_socket(&self.identity)
    }

    /// Kills its runtime, lets `meanwhile` do what it likes, and starts it again.
    pub fn restart_runtime(&mut self, cluster: &Cluster, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
        self.runtime.kill()?;
        meanwhile()?;
        self.runtime = start_runtime(cluster, &self.identity)?;
        Ok(())
    }

    /// Takes its network configuration away, and gives it back.
    pub fn without_network(&mut self, cluster: &Cluster, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
        let file = self.identity.dir.join("cni").join(NETWORK_FILE);
        fs::remove_file(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        if crio::is_wanted() {
            // It keeps a network whose file is gone.
            self.restart_runtime(cluster, || Ok(()))?;
        }
        meanwhile()?;
        fs::write(&file, NETWORK).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// Waits until the API server has its Node with Ready=True; an early end of either program ends the wait.
    pub fn wait_until_ready(&mut self, cluster: &Cluster) -> Result<serde_json::Value> {
        wait_until("the kubelet's Node to be Ready", START_WITHIN, || {
            if let Err(e) = self.kubelet.check().and_then(|()| self.runtime.check()) {
                return Ok(Err(e));
            }
            let node = cluster.get_node(&self.identity.name)?;
            match condition(&node, "Ready") {
                Some(ready) if ready["status"] == "True" => Ok(Ok(node)),
                ready => Err(format!("it is {ready:?}")),
            }
        })
        .map_err(|e| format!("{e}\n{}\n{}", self.kubelet.log_tail(15), self.runtime.log_tail(10)))?
    }
}

/// A containerd without a kubelet, that makes its network configuration itself once it is told the addresses of pods.
pub struct Runtime {
    containerd: Daemon,
    /// The file that it writes.
    network: PathBuf,
    pub endpoint: String,
}

impl Runtime {
    pub fn start(cluster: &Cluster, identity: &NodeIdentity) -> Result<Runtime> {
        let programs = binaries::find(&binaries::KUBELET)?;
        let dir = identity.dir.display();
        let template = format!("conf_template = \"{dir}/cni/{TEMPLATE_FILE}\"");
        let file = (TEMPLATE_FILE, TEMPLATE);
        let containerd = start_with_network(cluster, identity, &programs["containerd"], file, &template)?;
        let network = identity.dir.join("cni/10-containerd-net.conflist");
        Ok(Runtime { containerd, network, endpoint: format!("unix://{dir}/containerd.sock") })
    }

    /// The configuration that it wrote.
    pub fn network(&self) -> Result<String> {
        fs::read_to_string(&self.network).map_err(|e| format!("{}: {e}", self.network.display()))
    }

    pub fn check(&mut self) -> Result<()> {
        self.containerd.check()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.kubelet.let_go();
        self.runtime.let_go();
    }
}

/// What its runtime calls itself.
pub fn runtime_name() -> &'static str {
    if crio::is_wanted() { "cri-o" } else { "containerd" }
}

fn runtime_socket(identity: &NodeIdentity) -> PathBuf {
    identity.dir.join(if crio::is_wanted() { "crio.sock" } else { "containerd.sock" })
}

fn start_runtime(cluster: &Cluster, identity: &NodeIdentity) -> Result<Daemon> {
    if crio::is_wanted() {
        let networks = identity.dir.join("cni");
        if !networks.exists() {
            write_network(identity, NETWORK_FILE, NETWORK)?;
        }
        return crio::start(cluster, identity, &networks, &runtime_socket(identity));
    }
    let programs = binaries::find(&binaries::KUBELET)?;
    start_with_network(cluster, identity, &programs["containerd"], (NETWORK_FILE, NETWORK), "")
}

fn write_network(identity: &NodeIdentity, file: &str, text: &str) -> Result<()> {
    let networks = identity.dir.join("cni");
    fs::create_dir_all(&networks)
        .and_then(|()| fs::write(networks.join(file), text))
        .map_err(|e| format!("cannot write {}: {e}", networks.display()))
}

/// `cni`: more lines of that section.
fn start_with_network(
    cluster: &Cluster,
    identity: &NodeIdentity,
    program: &Path,
    (file, text): (&str, &str),
    cni: &str,
) -> Result<Daemon> {
    let dir = identity.dir.display();
    write_network(identity, file, text)?;
    let text = format!(
        r#"version = 3
root = "{dir}/containerd-root"
state = "{dir}/containerd-state"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = "{dir}/containerd.sock"

[ttrpc]
address = "{dir}/containerd.sock.ttrpc"

[plugins.'io.containerd.internal.v1.opt']
path = "{dir}/containerd-opt"

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{dir}/cni"]
conf_dir = "{dir}/cni"
{cni}
"#
    );
    let configuration = identity.dir.join("containerd.toml");
    fs::write(&configuration, text).map_err(|e| format!("cannot write {}: {e}", configuration.display()))?;
    let command = [program.display().to_string(), format!("--config={}", configuration.display())];
    let mut daemon = Daemon::start(cluster.home(), &format!("{}-containerd", identity.name), &command)?;
    wait_until_it_listens(&mut daemon, &identity.dir.join("containerd.sock"))?;
    Ok(daemon)
}

fn wait_until_it_listens(daemon: &mut Daemon, socket: &Path) -> Result<()> {
    wait_until("the container runtime to listen", START_WITHIN, || match daemon.check() {
        Err(e) => Ok(Err(e)),
        Ok(()) => UnixStream::connect(socket).map(|_| Ok(())).map_err(|e| e.to_string()),
    })
    .map_err(|e| format!("{e}\n{}", daemon.log_tail(25)))?
}

fn start_kubelet(
    cluster: &Cluster,
    identity: &NodeIdentity,
    (enter, program): (&[String], &Path),
    port: u16,
    configuration: &str,
) -> Result<Daemon> {
    let dir = identity.dir.display();
    let text = format!(
        r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
containerRuntimeEndpoint: unix://{}
podLogsDir: {dir}/pod-logs
volumePluginDir: {dir}/volume-plugins
address: 127.0.0.1
port: {port}
healthzPort: 0
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: false}}
  x509: {{clientCAFile: "{}"}}
authorization: {{mode: AlwaysAllow}}
{configuration}
"#,
        runtime_socket(identity).display(),
        identity.authority.display()
    );
    let file = identity.dir.join("kubelet.yaml");
    fs::write(&file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    let private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_PRIVATE, "in-private"];
    let mut command = [enter, &private.map(str::to_owned)].concat();
    command.extend([
        format!("{dir}/kernel"),
        program.display().to_string(),
        format!("--config={}", file.display()),
        format!("--kubeconfig={}", identity.kubeconfig.display()),
        format!("--hostname-override={}", identity.name),
        format!("--root-dir={dir}/kubelet"),
        format!("--cert-dir={dir}/kubelet-pki"),
        "--v=2".to_owned(),
    ]);
    Daemon::start(cluster.home(), &format!("{}-kubelet", identity.name), &command)
}
