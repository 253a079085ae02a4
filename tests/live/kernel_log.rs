//! What the kernel of this machine says of trouble: a process that it kills for want of memory is an event of the Node, once. And
//! beside node-problem-detector, which reads it as well, neither overwrites the other.

use super::super::agent::Launch;
use super::super::cluster::{Cluster, NodeIdentity, Result, condition, wait_until};
use super::super::requests::events_of;
use super::super::trials::{Case, Need};
use super::{SOON, wait_for_node, wait_until_ready};
use nodepulse::io::clock;
use nodepulse::time::Wall;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![
        &[Need::Root],
        a_process_that_the_kernel_kills_for_want_of_memory_is_told_once,
        a_condition_that_node_problem_detector_writes_is_left_to_it,
    ]
}

/// A group of processes that may have little memory, gone when dropped.
struct Group(PathBuf);

impl Group {
    /// Where there is a hierarchy for memory: of the first kind, or of the second.
    fn new(name: &str) -> Result<Group> {
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (hierarchy, limit) in kinds {
            let group = Group(Path::new(hierarchy).join(format!("nodepulse-{name}-{}", std::process::id())));
            if fs::create_dir(&group.0).is_ok() && fs::write(group.0.join(limit), "16M").is_ok() {
                return Ok(group);
            }
        }
        Err("no control group with a limit of memory can be made here".to_owned())
    }

    /// Lets a process of this name take memory until it is killed.
    fn exhaust(&self, program: &Path) -> Result<()> {
        let script = r#"echo $$ >"$1/cgroup.procs" && exec "$2" /dev/zero"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&self.0).arg(program);
        let ended = command.status().map_err(|e| e.to_string())?;
        if ended.signal() == Some(9) { Ok(()) } else { Err(format!("it was not killed: {ended}")) }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process of it is gone by now, but for what the kernel keeps of it for a moment.
        let _ = wait_until("the group to be empty", SOON, || fs::remove_dir(&self.0).map_err(|e| e.to_string()));
    }
}

/// `tail` under another name, which the kernel calls it by.
fn hog(node: &NodeIdentity, name: &str) -> Result<PathBuf> {
    let found = Command::new("sh").args(["-c", "command -v tail"]).output().map_err(|e| e.to_string())?;
    let (path, link) = (String::from_utf8_lossy(&found.stdout).trim().to_owned(), node.dir.join(name));
    symlink(path, &link).map_err(|e| e.to_string())?;
    Ok(link)
}

/// The messages of what was told of the processes of this test.
fn told(cluster: &Cluster, node: &NodeIdentity) -> Result<Vec<String>> {
    let of = |event: Value| {
        (event["reason"] == "OOMKilling").then(|| event["message"].as_str().unwrap_or_default().to_owned())
    };
    let all = events_of(cluster, node)?.into_iter().filter_map(of);
    Ok(all.filter(|message| message.contains("(hog-")).collect())
}

fn a_process_that_the_kernel_kills_for_want_of_memory_is_told_once(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("memory-hog")?;
    let group = Group::new("hog")?;
    let start = || Launch::quick(&node).set("kernelEvents", "true").start(cluster);
    let wait_for = |expected: &[&str]| {
        wait_until("the events", 3 * SOON, || {
            let told = told(cluster, &node)?;
            let is_told = |hog: &&str| told.iter().any(|one| one.contains(*hog));
            let is_so = told.len() == expected.len() && expected.iter().all(is_told);
            if is_so { Ok(told) } else { Err(format!("{told:?}")) }
        })
    };
    group.exhaust(&hog(&node, "hog-before")?)?;
    let mut agent = start()?;
    wait_until_ready(cluster, &node)?;
    // What the kernel said before the agent began is told as well.
    let told = wait_for(&["(hog-before)"])?;
    assert!(told[0].contains("Killed process "), "{told:?}");
    wait_for_node(cluster, &node, "KernelDeadlock False", SOON, |found| {
        let found = condition(found, "KernelDeadlock")?;
        (found["status"] == "False" && found["reason"] == "KernelHasNoDeadlock").then_some(())
    })?;
    agent.stop()?;
    let mut agent = start()?;
    wait_until_ready(cluster, &node)?;
    group.exhaust(&hog(&node, "hog-after")?)?;
    wait_for(&["(hog-before)", "(hog-after)"])?;
    agent.check()
}

/// What node-problem-detector sends for its condition, with its status.
fn detector_says(cluster: &Cluster, node: &NodeIdentity, status: &str) -> Result<()> {
    let now = clock::now().wall.map(Wall::to_seconds_stamp);
    let condition = json!({
        "type": "KernelDeadlock", "status": status, "reason": "DockerHung", "message": "task docker:7 blocked for more than 120 seconds",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let patch = json!({"status": {"conditions": [condition]}}).to_string();
    cluster.kubectl(&["patch", "node", &node.name, "--subresource=status", "--type=strategic", "-p", &patch]).map(drop)
}

fn a_condition_that_node_problem_detector_writes_is_left_to_it(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("detected")?;
    // Where nothing is watched (HTTP/1.1), what others write is found by an assertion.
    let launch = Launch::quick(&node).set("statusAssertFrequency", "2s").set("kernelEvents", "true");
    let mut agent = launch.start(cluster)?;
    wait_until_ready(cluster, &node)?;
    let wait_for = |reason: &'static str| {
        let is_so = move |found: &Value| (condition(found, "KernelDeadlock")?["reason"] == reason).then_some(());
        wait_for_node(cluster, &node, &format!("KernelDeadlock by {reason}"), SOON, is_so)
    };
    wait_for("KernelHasNoDeadlock")?;
    // Once may be anything: it is put right.
    next_second();
    detector_says(cluster, &node, "True")?;
    wait_for("KernelHasNoDeadlock")?;
    next_second();
    detector_says(cluster, &node, "True")?;
    agent.wait_for_line(&["condition-left", "KernelDeadlock"], SOON)?;
    // Whatever else is to be said now, that stays.
    agent.reload_with("evictionHard", "{memory.available: 1Pi}")?;
    wait_for_node(cluster, &node, "MemoryPressure True", SOON, |found| {
        (condition(found, "MemoryPressure")?["status"] == "True").then_some(())
    })?;
    wait_for("DockerHung")?;
    let told = events_of(cluster, &node)?;
    assert!(told.iter().all(|event| event["reason"] != "KernelDeadlock"), "{told:?}");
    agent.check()
}

/// Dates of conditions are of whole seconds.
fn next_second() {
    let second = || clock::now().wall.map(Wall::unix_seconds);
    let before = second();
    while second() == before {
        std::thread::sleep(Duration::from_millis(20));
    }
}
