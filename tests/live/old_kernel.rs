//! A board whose maker never went past Linux 3.4, as many gateways run it: what that kernel lacks is done without (`tests/support/old_kernel.c`).

use super::super::agent::{Launch, Nodepulse, compiled};
use super::super::cluster::{Cluster, NodeIdentity, Result};
use super::super::trials::Case;
use super::{SOON, is_renewal, now_us, status_of, wait_for_node, wait_for_requests, wait_until_ready};

pub fn cases() -> Vec<Case> {
    cases![&[], a_board_with_a_kernel_of_2012_is_a_node_like_any_other]
}

/// `process_vm_writev`, the last call of Linux 3.2 to 3.4; of ARM64, `finit_module`, of its first ones (include/uapi/asm-generic/unistd.h).
const LAST_CALL: &str = if cfg!(target_arch = "x86_64") { "311" } else { "273" };

fn start(cluster: &Cluster, node: &NodeIdentity) -> Result<Nodepulse> {
    let old_kernel = compiled(node, "support/old_kernel.c", &["-Wall", "-Werror"])?;
    let command = [&old_kernel, LAST_CALL, env!("CARGO_BIN_EXE_nodepulse")].map(str::to_owned);
    Launch::quick(node).program(command.into()).start(cluster)
}

fn a_board_with_a_kernel_of_2012_is_a_node_like_any_other(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("kernel-2012")?;
    let mut agent = start(cluster, &node)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["this kernel has no Landlock"], SOON)?;
    agent.wait_for_line(&["the kernel takes no filter (seccomp)"], SOON)?;
    let renewals = |since_us: u64| {
        let enough = |e: &&_| is_renewal(e) && e.received_at_us > since_us;
        wait_for_requests(&cluster.api, &node, "three renewals", SOON, |all| all.iter().filter(enough).count() >= 3)
    };
    renewals(0)?;
    agent.reload_with("evictionHard", "{memory.available: 8Ti}")?;
    let is_told = |found: &_, status: &str| (status_of(found, "MemoryPressure") == status).then_some(());
    wait_for_node(cluster, &node, "MemoryPressure", SOON, |found| is_told(found, "True"))?;
    // What was written to disk is read by the next process.
    agent.kill()?;
    let mut next = start(cluster, &node)?;
    wait_for_node(cluster, &node, "no MemoryPressure", SOON, |found| is_told(found, "False"))?;
    renewals(now_us())?;
    assert_eq!(next.json(&["status"])?["state"], "ready");
    assert_eq!(next.stop()?, 0);
    Ok(())
}
