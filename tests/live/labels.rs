//! Labels of what a board is and has: they follow what its owner says, and nobody else's is touched.

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::{Cluster, NodeIdentity, Result};
use super::super::trials::{Case, Need};
use super::{SOON, lines, wait_for_node, wait_for_requests, wait_until_ready};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;

pub fn cases() -> Vec<Case> {
    cases![&[Need::Root], labels_follow_the_board_and_nobody_elses_is_touched]
}

const PREFIX: &str = "feature.node.kubernetes.io/";
const ANNOTATION: &str = "nodepulse.dev/feature-labels";
const FILE: &str = "kubernetes/node-feature-discovery/features.d/dock";
/// What a node may not say of itself, on this way either.
const FORBIDDEN: [&str; 3] =
    ["node-restriction.kubernetes.io/tier", "node-role.kubernetes.io/edge", "kubernetes.io/hostname"];

/// These labels, without what those of node-feature-discovery begin with.
fn labels(node: &Value, names: &[&str]) -> Value {
    let labels = &node["metadata"]["labels"];
    names.iter().map(|name| labels.get(*name).unwrap_or(&labels[format!("{PREFIX}{name}")]).clone()).collect()
}

fn wait_for(cluster: &Cluster, node: &NodeIdentity, names: &[&str], values: Value) -> Result<Value> {
    wait_for_node(cluster, node, &format!("{names:?} {values}"), SOON, |found| {
        (labels(found, names) == values).then(|| found.clone())
    })
}

/// On a machine whose `/etc` says this, for all that the agent reads there.
fn start(cluster: &Cluster, node: &NodeIdentity, is_on: &str, says: &str) -> Result<Nodepulse> {
    let files = [
        ("os-release", "ID=edgeos\nVERSION_ID=\"7.2\"\nPRETTY_NAME=\"EdgeOS 7.2\""),
        ("machine-id", "0123456789abcdef0123456789abcdef"),
        ("hosts", "127.0.0.1 localhost"),
        (FILE, says),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    // Over HTTP/1.1 nobody watches: what others take away is asked for.
    let launch = Launch::quick(node).folder("/etc", files).set("statusAssertFrequency", "2s");
    launch.set("featureLabels", is_on).start(cluster)
}

/// The file of the process that was started last.
fn rewrite(node: &NodeIdentity, text: &str) -> Result<()> {
    let entries = fs::read_dir(&node.dir).map_err(|e| e.to_string())?.flatten().map(|entry| entry.path().join(FILE));
    let file = entries.filter(|path| path.is_file()).max().ok_or("no features.d")?;
    fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
}

fn labels_follow_the_board_and_nobody_elses_is_touched(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("labelled")?;
    let says = format!("relays=4\nexample.com/scales\nours=1\n{}=x\n", FORBIDDEN.join("=x\n"));
    let mut agent = start(cluster, &node, "true", &says)?;
    wait_until_ready(cluster, &node)?;
    let names = ["relays", "example.com/scales", "ours", "system-os_release.ID", "system-os_release.VERSION_ID.minor"];
    let created = wait_for(cluster, &node, &names, json!(["4", "true", "1", "edgeos", "2"]))?;
    let claimed = created["metadata"]["annotations"][ANNOTATION].as_str().ok_or("no annotation")?;
    assert!(claimed.split(',').any(|name| name == "relays") && !claimed.contains("hostname"), "{claimed}");
    let all = cluster.audit_of(&node)?;
    let first = all.iter().find(|e| e.verb == "create" && e.body["kind"] == "Node").ok_or("no registration")?;
    assert_eq!(labels(&first.body, &names[..1]), json!(["4"]), "from the registration on");
    assert_eq!(agent.count_lines("no-label")?, FORBIDDEN.len(), "{}", agent.said()?);
    for key in FORBIDDEN {
        agent.wait_for_line(&["no-label", "features.d/dock", key], SOON)?;
    }

    // An administrator's own stay; one of ours that somebody takes away returns.
    let theirs = [format!("{PREFIX}swapped=theirs"), format!("{PREFIX}relays-")];
    cluster.kubectl(&[&["label", "node", &node.name], &theirs.each_ref().map(String::as_str)[..]].concat())?;
    wait_for(cluster, &node, &["swapped", "relays"], json!(["theirs", "4"]))?;

    // What its owner says is followed, by SIGHUP at once.
    rewrite(&node, "relays=8\nswapped=ours\n")?;
    agent.signal(Signal::SIGHUP)?;
    let names = ["relays", "example.com/scales", "ours", "swapped"];
    wait_for(cluster, &node, &names, json!(["8", null, null, "theirs"]))?;

    // Nothing of that is said again and again.
    let reports = |all: &[super::AuditEntry]| all.iter().filter(|e| !e.body["metadata"]["labels"].is_null()).count();
    let told = reports(&cluster.audit_of(&node)?);
    let later = wait_for_requests(&cluster.api, &node, "five renewals more", SOON, |all| {
        let is_renewal = |e: &&super::AuditEntry| super::is_renewal(e);
        let since = all.iter().rposition(|e| !e.body["metadata"]["labels"].is_null()).unwrap_or(0);
        all.iter().skip(since).filter(is_renewal).count() >= 5
    })?;
    assert_eq!(reports(&later), told, "{:#?}", lines(&later));
    assert_eq!(agent.stop()?, 0);

    // Another process knows which are the board's own.
    let mut off = start(cluster, &node, "false", "relays=8\n")?;
    let names = ["relays", "system-os_release.ID", "swapped"];
    let found = wait_for(cluster, &node, &names, json!([null, null, "theirs"]))?;
    assert_eq!(found["metadata"]["annotations"][ANNOTATION], Value::Null);
    off.check()
}
