//! Turns a folder into one with a real CRI-O that runs no pods: what only pods need are scripts that do nothing.

use super::super::Result;
use super::super::binaries;
use super::super::daemon::Daemon;
use super::super::identity::NodeIdentity;
use super::{Cluster, wait_until_it_listens};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// conmon, crun and pinns, as far as CRI-O asks them when it starts.
const NOTHING: &str = "#!/bin/sh\n[ \"$1\" != --version ] || echo 'conmon version 2.1.12'\n";
/// It looks for each plug-in of a network, and asks which versions it knows.
const PLUGIN: &str = "#!/bin/sh\necho '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"0.4.0\",\"1.0.0\"]}'\n";
const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
/// Of a registry on loopback.
const REGISTRIES: &str = "[[registry]]\nprefix = \"127.0.0.1\"\nlocation = \"127.0.0.1\"\ninsecure = true\n";

/// `make test-crio`.
pub fn is_wanted() -> bool {
    std::env::var_os("CRIO").is_some_and(|value| !value.is_empty())
}

pub fn start(cluster: &Cluster, identity: &NodeIdentity, networks: &Path, socket: &Path) -> Result<Daemon> {
    let program = &binaries::find(&["crio"])?["crio"];
    let dir = identity.dir.join("crio");
    for (name, text, mode) in [
        ("nothing", NOTHING, 0o755),
        ("plugins/loopback", PLUGIN, 0o755),
        ("policy.json", POLICY, 0o644),
        ("registries.conf", REGISTRIES, 0o644),
    ] {
        let file = dir.join(name);
        fs::create_dir_all(file.parent().unwrap_or(&dir))
            .and_then(|()| fs::write(&file, text))
            .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(mode)))
            .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    let configuration = identity.dir.join("crio.conf");
    fs::write(&configuration, settings(&dir, networks, socket))
        .map_err(|e| format!("cannot write {}: {e}", configuration.display()))?;
    // It writes below /var/lib whatever it is told.
    let private = "mount -t tmpfs tmpfs /var/lib && exec \"$@\"";
    let command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", private, "private"].map(str::to_owned);
    let words = [
        format!("--config={}", configuration.display()),
        "--config-dir=".to_owned(),
        format!("--registries-conf={}/registries.conf", dir.display()),
    ];
    let command = [&command[..], &[program.display().to_string()], &words].concat();
    let mut daemon = Daemon::start(cluster.home(), &format!("{}-crio", identity.name), &command)?;
    wait_until_it_listens(&mut daemon, socket)?;
    Ok(daemon)
}

/// Its configuration: everything it makes is below `dir`.
fn settings(dir: &Path, networks: &Path, socket: &Path) -> String {
    let (dir, networks) = (dir.display(), networks.display());
    format!(
        r#"[crio]
root = "{dir}/root"
runroot = "{dir}/run"
storage_driver = "vfs"
log_dir = "{dir}/logs"
version_file = "{dir}/version"
version_file_persist = "{dir}/version-persist"
clean_shutdown_file = "{dir}/clean"
internal_wipe = false

[crio.api]
listen = "{}"
stream_address = "127.0.0.1"
stream_port = "0"

[crio.runtime]
conmon = "{dir}/nothing"
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
pinns_path = "{dir}/nothing"
default_runtime = "crun"
container_exits_dir = "{dir}/exits"
container_attach_socket_dir = "{dir}/attach"
namespaces_dir = "{dir}/namespaces"
hooks_dir = ["{dir}/hooks"]
disable_hostport_mapping = true
irqbalance_config_restore_file = "disable"

[crio.runtime.runtimes.crun]
runtime_path = "{dir}/nothing"
runtime_root = "{dir}/crun"
monitor_path = "{dir}/nothing"

[crio.image]
signature_policy = "{dir}/policy.json"

[crio.network]
network_dir = "{networks}/"
plugin_dirs = ["{dir}/plugins/"]

[crio.nri]
enable_nri = false
"#,
        socket.display()
    )
}
