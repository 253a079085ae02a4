//! Turns `make cluster` into a real Kubernetes control plane on loopback that lives until Ctrl-C.

#[path = "../tests/support/cluster.rs"]
mod cluster;

use cluster::joining::KUBEADM_GROUP;
use cluster::{Cluster, Options, Result};
use nix::sys::signal::{SigSet, Signal};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cluster: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    // Blocked from the start, so that Ctrl-C during the start ends in good order too.
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    signals.thread_block().map_err(|e| format!("cannot block signals: {e}"))?;
    println!("Starting etcd, kube-apiserver and kube-controller-manager on this machine's loopback ...");
    let cluster = Cluster::start(Options::default())?;
    let node = cluster.node("board")?;
    let version = cluster.api.admin.get("/version")?;
    let version = version["gitVersion"].as_str().unwrap_or("of unknown version");
    let pids: Vec<String> = cluster.pids().iter().map(i32::to_string).collect();
    println!("Kubernetes {version} is ready at {} after {:.1} s.", cluster.api.url(), cluster.started_in.as_secs_f64());
    for (name, kib) in cluster.memory() {
        println!("  {name}: {} MB of memory", kib / 1024);
    }
    println!("  process ids: {}", pids.join(" "));
    println!("  logs and keys: {}", cluster.folder().display());
    println!();
    println!("As the administrator:");
    println!("  export KUBECONFIG={}", cluster.admin_kubeconfig().display());
    println!("  {} get nodes", cluster.kubectl_program().display());
    println!();
    println!("As a board that has nothing yet:");
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    println!("  nodepulse join {} --token {token} --ca-hash {}", cluster.api.url(), cluster.pin());
    println!();
    println!("As a node, {}, with its own certificate (for `make run` in another terminal):", node.name);
    println!("  export KUBECONFIG={}", node.kubeconfig.display());
    println!();
    println!("Ctrl-C ends it and removes all of the above.");
    let signal = signals.wait().map_err(|e| format!("cannot wait for a signal: {e}"))?;
    println!("{signal}: ending the cluster.");
    drop(cluster);
    Ok(())
}
