//! Extended resources of the settings: a device that comes and goes is followed, one that left the settings is taken away, also
//! by the next process, and those of others stay.

use super::super::agent::Launch;
use super::super::cluster::{Cluster, NodeIdentity, Result};
use super::super::trials::{Case, Need};
use super::{SOON, wait_for_node, wait_until_ready};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

pub fn cases() -> Vec<Case> {
    cases![&[Need::Root], a_device_comes_and_goes_and_a_resource_that_left_the_settings_goes_with_the_next_start]
}

const NAMES: [&str; 3] = ["example.com/relay", "example.com/usb", "vendor.example/theirs"];
const ANNOTATION: &str = "nodepulse.dev/extended-resources";

/// Of [`NAMES`] those that are there, with the annotation; where allocatable differs from capacity, nothing.
fn resources(node: &Value) -> Option<Value> {
    let of = |list: &str| NAMES.map(|name| node["status"][list][name].clone());
    (of("capacity") == of("allocatable")).then(|| json!([of("capacity"), node["metadata"]["annotations"][ANNOTATION]]))
}

fn wait_for(cluster: &Cluster, node: &NodeIdentity, counts: [Option<&str>; 3], claimed: Option<&str>) -> Result<Value> {
    let expected = json!([counts, claimed]);
    wait_for_node(cluster, node, &format!("the resources {expected}"), SOON, |found| {
        (resources(found)? == expected).then(|| found.clone())
    })
}

/// What stands in the place of `/dev/shm` for the process that was started last.
fn devices(node: &NodeIdentity) -> Result<PathBuf> {
    let entries = fs::read_dir(&node.dir).map_err(|e| e.to_string())?.flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.display().to_string().ends_with("-folder-0")).collect();
    folders.sort();
    folders.pop().ok_or_else(|| "no folder of devices".to_owned())
}

fn a_device_comes_and_goes_and_a_resource_that_left_the_settings_goes_with_the_next_start(
    cluster: &Cluster,
) -> Result<()> {
    let node = cluster.node("devices")?;
    let usb = "paths: ['/dev/shm/usb?', '/dev/shm/*usb0']";
    let both = format!("{{example.com/relay: 4, example.com/usb: {{{usb}}}}}");
    let start = |resources: &str| {
        let there = vec![("usb0".to_owned(), String::new()), ("tty0".to_owned(), String::new())];
        Launch::quick(&node).folder("/dev/shm", there).set("extendedResources", resources).start(cluster)
    };
    let mut agent = start(&both)?;
    wait_until_ready(cluster, &node)?;
    let claimed = Some("example.com/relay,example.com/usb");
    wait_for(cluster, &node, [Some("4"), Some("1"), None], claimed)?;
    // What another controller puts there is nobody else's.
    let theirs = json!({"status": {"capacity": {"vendor.example/theirs": "3"}}}).to_string();
    cluster.kubectl(&["patch", "node", &node.name, "--subresource=status", "--type=merge", "-p", &theirs])?;
    let folder = devices(&node)?;
    fs::write(folder.join("usb1"), "").map_err(|e| e.to_string())?;
    wait_for(cluster, &node, [Some("4"), Some("2"), Some("3")], claimed)?;
    let described = cluster.kubectl(&["describe", "node", &node.name])?;
    for (name, count) in NAMES.into_iter().zip(["4", "2", "3"]) {
        let is_it = |line: &&str| line.split_whitespace().eq([&format!("{name}:"), count]);
        assert_eq!(described.lines().filter(is_it).count(), 2, "{name}: {described}");
    }
    let of = |name: &str, count: &str| json!({"name": name, "capacity": count, "allocatable": count});
    let told = agent.json(&["status"])?;
    assert_eq!(told["resources"], json!([of("example.com/relay", "4"), of("example.com/usb", "2")]), "{told:#}");
    for device in ["usb0", "usb1"] {
        fs::remove_file(folder.join(device)).map_err(|e| e.to_string())?;
    }
    wait_for(cluster, &node, [Some("4"), Some("0"), Some("3")], claimed)?;
    assert_eq!(agent.stop()?, 0);
    let mut second = start(&format!("{{example.com/usb: {{{usb}}}}}"))?;
    wait_for(cluster, &node, [None, Some("1"), Some("3")], Some("example.com/usb"))?;
    second.reload_with("extendedResources", "{}")?;
    wait_for(cluster, &node, [None, None, Some("3")], None)?;
    assert_eq!(second.count_lines("no source on this board (/dev")?, 0, "{}", second.said()?);
    second.check()
}
