//! Boards that have nothing but a token: without a clock, with a card that a person wrote, and with a power that fails at each
//! step, each is a Node in the end, with one identity.

use super::super::board::{ARM64, PC, RASPBERRY_PI_3B};
use super::super::cluster::joining::KUBEADM_GROUP;
use super::super::cluster::{Cluster, Result, wait_until};
use super::boards::Trial;
use super::clocks::becomes_ready;
use super::{Case, READY_WITHIN, boot, wait_until_ready};
use nodepulse::time::Wall;
use serde_json::Value;
use std::collections::BTreeSet;

pub fn cases() -> Vec<Case> {
    cases![
        a_board_in_1970_without_a_clock_joins_with_a_token,
        a_raspberry_pi_takes_its_token_from_the_card_that_it_starts_from,
        a_board_whose_power_fails_at_each_step_of_joining_has_one_identity,
    ]
}

fn a_board_in_1970_without_a_clock_joins_with_a_token(cluster: &Cluster) -> Result<()> {
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let node = cluster.node("joined-in-1970")?;
    let boot = boot(&PC, &node).joining(cluster, &token);
    let machine = becomes_ready(cluster, boot, &node, Wall::from_unix_seconds(0))?;
    assert_eq!(cluster.requests_for(&node.name)?.len(), 1);
    assert!(!machine.said().contains(&token.secret), "the secret is on the console");
    Ok(())
}

fn a_raspberry_pi_takes_its_token_from_the_card_that_it_starts_from(cluster: &Cluster) -> Result<()> {
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let node = cluster.node("card")?;
    let boot = boot(&RASPBERRY_PI_3B, &node).without_landlock().joining(cluster, &token).with_settings_on_its_card();
    let names = ["Raspberry Pi 3 Model B", "raspberrypi,3-model-b"];
    let mut trial = Trial::begin(cluster, &node, boot, names)?;
    assert_eq!(cluster.requests_for(&node.name)?.len(), 1);
    // FAT has no owners: that the token is open to all is said.
    trial.machine.wait_for_line(&["open-secret", "/boot/firmware/nodepulse.yaml"], READY_WITHIN)?;
    let mounted = trial.machine.tell("mount | grep /boot/firmware")?;
    assert!(mounted.contains("vfat"), "{mounted}");
    trial.end()
}

/// Where the power fails while nobody has approved, in the order in which a join comes there; each start goes a step further.
const BEFORE: [&str; 8] = [
    "cut_at_line sandbox:",
    "cut_at_line which cluster it is",
    "cut_at_line its CA is",
    "cut_at_line its cluster-info is signed",
    "cut_at_file identity/kubeconfig",
    "cut_at_file identity/pending.pem",
    "cut_at_line certificate-asked",
    "cut_at_line waiting for approval",
];
/// The same once it is approved: there the request is, there the certificate comes, is kept and is used.
const AFTER: [&str; 4] = [
    "cut_at_line certificate-asked",
    "cut_at_file identity/node.pem",
    "cut_at_line lease-held",
    "cut_at_line lease-held",
];

fn a_board_whose_power_fails_at_each_step_of_joining_has_one_identity(cluster: &Cluster) -> Result<()> {
    let group = "system:bootstrappers:power";
    let (role, bound) = ("--clusterrole=system:node-bootstrapper", format!("--group={group}"));
    cluster.kubectl(&["create", "clusterrolebinding", "power", role, &bound])?;
    let token = cluster.token(&[group], None)?;
    let node = cluster.node("cut")?;
    // As many of its kind as asked for one, and whoever sees two has seen two keys.
    let seen = || -> Result<BTreeSet<(String, String)>> {
        let text = |request: &Value, key: &str| request["metadata"][key].as_str().unwrap_or_default().to_owned();
        Ok(cluster.requests_for(&node.name)?.iter().map(|one| (text(one, "name"), text(one, "uid"))).collect())
    };
    let mut machine = boot(&ARM64, &node).joining(cluster, &token).start(cluster)?;
    for cut in BEFORE {
        machine.start_agent_until_power_fails(cut).map_err(|e| format!("{cut}: {e}"))?;
        assert!(seen()?.len() <= 1, "{cut}: {:?}", seen()?);
    }
    let asked = seen()?;
    let name = asked.first().map(|(name, _)| name.clone()).ok_or("nothing was asked for")?;
    cluster.approve(&name)?;
    wait_until("a certificate", READY_WITHIN, || {
        let found = cluster.requests_for(&node.name)?;
        if found[0]["status"]["certificate"].is_string() { Ok(()) } else { Err(found[0]["status"].to_string()) }
    })?;
    for cut in AFTER {
        machine.start_agent_until_power_fails(cut).map_err(|e| format!("{cut}: {e}"))?;
    }
    let held = machine.count_lines(&["agent: ", "lease-held"]);
    machine.tell("start")?;
    machine.wait_for_another(&["agent: ", "lease-held"], held, READY_WITHIN)?;
    wait_until_ready(cluster, &node).map_err(|e| machine.with_console(&e))?;
    assert_eq!(seen()?, asked, "one key and one request");
    let kept = machine.tell("ls /var/lib/nodepulse/identity")?;
    let kept: BTreeSet<&str> = kept.split_whitespace().collect();
    // `pending.pem` of a cut just before it was removed stays, and is not asked with again.
    assert!(kept.contains("node.pem") && kept.contains("kubeconfig"), "{kept:?}");
    assert!(kept.iter().all(|name| !name.ends_with(".new")), "something half done is left: {kept:?}");
    let identity = machine.tell("nodepulse identity")?;
    assert!(identity.contains(&node.name), "{identity}");
    eprintln!("  {}: {} power cuts, one request, one certificate", node.name, BEFORE.len() + AFTER.len());
    machine.stop_agent()
}
