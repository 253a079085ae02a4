//! A machine that goes down, as the real systemd-logind says it: what the server has before the lock is given back, how long
//! logind waits, and what comes of a shutdown that was called off and of a bus that was lost (SHD-1).

use super::super::agent::Launch;
use super::super::cluster::daemon::wait_until;
use super::super::cluster::pki::Validity;
use super::super::cluster::{AuditEntry, Cluster, Credential, NodeIdentity, Result, condition};
use super::super::trials::{Case, Need};
use super::machine_bus::Machine;
use super::{
    SOON, is_event, is_renewal, is_status_patch, lines, now_us, status_of, wait_for_event, wait_for_requests,
    wait_until_ready,
};
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![
        &[Need::Networks, Need::Logind],
        logind_waits_until_the_server_has_it_and_renewals_go_on_until_sigterm,
        a_shutdown_that_logind_calls_off_leaves_a_node_that_is_ready_and_holds_the_lock_again,
        logind_waits_two_seconds_for_a_frozen_server,
        a_bus_that_was_lost_is_found_again_with_its_lock,
        without_a_lock_a_shutdown_is_told_and_the_state_of_systemd_decides_at_sigterm,
    ]
}

fn launch<'a>(node: &'a NodeIdentity, machine: &Machine, before: &[&str]) -> Launch<'a> {
    let address = format!("DBUS_SYSTEM_BUS_ADDRESS={}", machine.address());
    let folder = format!("RUNTIME_DIRECTORY={}", node.dir.join("run").display());
    let words = ["env", &address, &folder].into_iter().chain(before.iter().copied());
    Launch::quick(node).program(words.chain([env!("CARGO_BIN_EXE_nodepulse")]).map(str::to_owned).collect())
}

/// Once all is told that a start tells.
fn settle(cluster: &Cluster, node: &NodeIdentity) -> Result<()> {
    wait_until_ready(cluster, node)?;
    let what = "what a start tells";
    let enough = |all: &[AuditEntry]| {
        all.iter().filter(|e| is_event(e)).count() >= 4 && all.iter().filter(|e| is_renewal(e)).count() >= 2
    };
    wait_for_requests(&cluster.api, node, what, SOON, enough).map(drop)
}

fn said(cluster: &Cluster, node: &NodeIdentity, kind: &str) -> Result<[String; 2]> {
    let found = cluster.get_node(&node.name)?;
    let one = condition(&found, kind).ok_or(format!("no {kind}"))?;
    Ok(["status", "reason"].map(|key| one[key].as_str().unwrap_or_default().to_owned()))
}

fn logind_waits_until_the_server_has_it_and_renewals_go_on_until_sigterm(cluster: &Cluster) -> Result<()> {
    let machine = Machine::start()?;
    let node = cluster.node("by-logind")?;
    let mut agent = launch(&node, &machine, &[]).start(cluster)?;
    machine.wait_until_held()?;
    settle(cluster, &node)?;
    let asked_at_us = machine.reboot()?;
    let down_at_us = machine.went_down_at_us()?;
    let all = cluster.api.audit(|e| e.user == node.user && e.received_at_us >= asked_at_us)?;
    let report = all.iter().find(|e| is_status_patch(e) && e.body.to_string().contains("PlannedAbsence"));
    let event = all.iter().find(|e| is_event(e) && e.body["reason"] == "Shutdown");
    let told = report.zip(event).ok_or_else(|| format!("{:#?}", lines(&all)))?;
    assert!(told.0.completed_at_us <= down_at_us && told.1.completed_at_us <= down_at_us, "{told:#?} {down_at_us}");
    println!(
        "  the server has it {} us before logind goes on, {} ms after it was asked",
        down_at_us - told.0.completed_at_us.max(told.1.completed_at_us),
        (down_at_us - asked_at_us) / 1000
    );
    assert_eq!(said(cluster, &node, "Ready")?, ["False", "KubeletNotReady"]);
    // Since systemd 255 logind says which way.
    assert!(["Reboot", "Shutdown"].contains(&said(cluster, &node, "PlannedAbsence")?[1].as_str()));
    assert!(!machine.is_held()?);
    let renewals = "renewals while the machine goes down";
    wait_for_requests(&cluster.api, &node, renewals, SOON, |all| {
        all.iter().filter(|e| is_renewal(e) && e.received_at_us > down_at_us).count() >= 2
    })?;
    let ending_at_us = now_us();
    assert_eq!(agent.stop()?, 0);
    let later = cluster.api.audit(|e| e.user == node.user && e.received_at_us >= ending_at_us && !is_renewal(e))?;
    assert!(later.is_empty(), "{:#?}", lines(&later));
    assert_eq!(agent.count_lines("logind waits with a shutdown")?, 1);
    Ok(())
}

fn a_shutdown_that_logind_calls_off_leaves_a_node_that_is_ready_and_holds_the_lock_again(
    cluster: &Cluster,
) -> Result<()> {
    let machine = Machine::start()?;
    let node = cluster.node("called-off")?;
    let mut agent = launch(&node, &machine, &[]).start(cluster)?;
    machine.wait_until_held()?;
    settle(cluster, &node)?;
    machine.manager().refuses = true;
    let asked_at_us = machine.reboot()?;
    let is_told = |e: &AuditEntry| is_status_patch(e) && e.body.to_string().contains("node is shutting down");
    wait_for_requests(&cluster.api, &node, "the shutdown", SOON, |all| all.iter().any(is_told))?;
    cluster.wait_for_condition(&node.name, "PlannedAbsence", "False", SOON)?;
    assert_eq!(said(cluster, &node, "PlannedAbsence")?, ["False", "Present"]);
    assert_eq!(status_of(&cluster.get_node(&node.name)?, "Ready"), "True");
    machine.wait_until_held()?;
    wait_for_requests(&cluster.api, &node, "both events", SOON, |all| {
        let words = ["Shutdown manager detected shutdown event", "Shutdown manager detected shutdown cancellation"];
        let since = |e: &&AuditEntry| e.received_at_us >= asked_at_us && is_event(e);
        words.iter().all(|word| all.iter().filter(since).any(|e| e.body["message"] == *word))
    })?;
    // And the next one is told like the first.
    machine.manager().refuses = false;
    machine.reboot()?;
    machine.went_down_at_us()?;
    assert_eq!(said(cluster, &node, "Ready")?, ["False", "KubeletNotReady"]);
    agent.check()
}

fn logind_waits_two_seconds_for_a_frozen_server(cluster: &Cluster) -> Result<()> {
    let machine = Machine::start()?;
    let api = cluster.api_server(Validity::Now)?;
    let node = cluster.node_at(&api, "frozen-off", Credential::Valid)?;
    let mut agent = launch(&node, &machine, &[]).start(cluster)?;
    machine.wait_until_held()?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["lease-held:"], SOON)?;
    api.freeze()?;
    let asked_at_us = machine.reboot()?;
    let waited_ms = (machine.went_down_at_us()? - asked_at_us) / 1000;
    // Its own limit is five seconds.
    assert!((1900..4500).contains(&waited_ms), "{waited_ms} ms: {}", agent.said()?);
    println!("  logind goes on {waited_ms} ms after it was asked, with a server that is frozen");
    api.thaw()?;
    agent.check()
}

fn a_bus_that_was_lost_is_found_again_with_its_lock(cluster: &Cluster) -> Result<()> {
    let mut machine = Machine::start()?;
    let node = cluster.node("lost-bus")?;
    let mut agent = launch(&node, &machine, &[]).start(cluster)?;
    machine.wait_until_held()?;
    settle(cluster, &node)?;
    for _ in 0..2 {
        machine.kill_bus()?;
        agent.check()?;
        machine.start_again()?;
        machine.wait_until_held()?;
    }
    assert_eq!(agent.count_lines("logind waits with a shutdown")?, 1, "{}", agent.said()?);
    machine.reboot()?;
    machine.went_down_at_us()?;
    wait_for_event(cluster, &node, "Shutdown").map(drop)
}

/// As another user than root, whom nobody lets have it where there is no polkit.
fn without_a_lock_a_shutdown_is_told_and_the_state_of_systemd_decides_at_sigterm(cluster: &Cluster) -> Result<()> {
    let machine = Machine::start()?;
    let node = cluster.node("no-lock")?;
    // It reads and writes what root has made here.
    let rights = ["setpriv", "--reuid", "65534", "--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"];
    for (state, is_told) in [("running", false), ("stopping", true)] {
        let mut agent = launch(&node, &machine, &rights).start(cluster)?;
        agent.wait_for_line(&["no-lock:", "AccessDenied"], SOON)?;
        settle(cluster, &node)?;
        // The second one, too.
        agent.wait_for_line(&["lease-held:"], SOON)?;
        machine.manager().state = state.to_owned();
        assert!(!machine.is_held()?);
        let ending_at_us = now_us();
        assert_eq!(agent.stop()?, 0);
        let spent_ms = (now_us() - ending_at_us) / 1000;
        let found = cluster.get_node(&node.name)?;
        let is_absent = condition(&found, "PlannedAbsence").is_some_and(|one| one["status"] == "True");
        assert_eq!(is_absent, is_told, "{state}, {spent_ms} ms: {}", agent.said()?);
    }
    let mut agent = launch(&node, &machine, &rights).start(cluster)?;
    agent.wait_for_line(&["no-lock:", "AccessDenied"], SOON)?;
    cluster.wait_for_condition(&node.name, "PlannedAbsence", "False", SOON)?;
    machine.reboot()?;
    let what = "a signal without a lock";
    wait_until(what, Duration::from_secs(10), || match said(cluster, &node, "PlannedAbsence")? {
        [status, _] if status == "True" => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    assert_eq!(agent.count_lines("no-lock:")?, 1);
    agent.check()
}
