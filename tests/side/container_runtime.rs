//! Turns one real containerd (or CRI-O: `make test-crio`) into what a kubelet and nodepulse, which both ask it, tell of it: the same, and nodepulse sooner.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::kubelet::{Kubelet, Runtime, runtime_name};
use super::super::cluster::{Cluster, NodeIdentity, Result, condition, wait_until};
use super::super::trials::Case;
use super::registry::Registry;

/// A kubelet says that its runtime is down after half a minute and two looks.
const WITHIN: Duration = Duration::from_secs(90);
const DOWN: &str = "container runtime is down";
/// A kubelet gives up asking after two minutes, and says nothing until then.
const KUBELET_NOTICES: Duration = Duration::from_secs(120);

pub fn cases() -> Vec<Case> {
    cases![
        a_runtime_and_its_network_are_told_in_the_same_words,
        a_killed_runtime_is_told_in_the_same_words_and_its_return_too,
        a_frozen_runtime_holds_nothing_up_and_is_down_after_half_a_minute,
        a_runtime_that_comes_later_is_ready_sooner_than_by_the_next_look,
        a_runtime_is_told_the_addresses_of_pods_and_its_disk_counts,
        the_images_of_a_runtime_are_told_with_the_same_names,
        two_hundred_images_take_little_memory,
    ]
}

/// A kubelet and an agent that ask one runtime.
struct Both {
    kubelet: Kubelet,
    agent: Nodepulse,
    node: NodeIdentity,
}

impl Both {
    fn start(cluster: &Cluster) -> Result<Both> {
        let mut kubelet = Kubelet::start(cluster, "with-runtime", "")?;
        let node = cluster.node("beside-runtime")?;
        let endpoint = kubelet.runtime_endpoint();
        let agent = Launch::with_defaults(&node).set("containerRuntimeEndpoint", &endpoint).start(cluster)?;
        kubelet.wait_until_ready(cluster)?;
        let both = Both { kubelet, agent, node };
        both.say(cluster, "True", "posting ready status")?;
        Ok(both)
    }

    /// Waits until both Nodes are so for the same reasons, and their other fields of a runtime are the same.
    fn say(&self, cluster: &Cluster, status: &str, part: &str) -> Result<()> {
        say(cluster, &[self.kubelet.identity.name.clone(), self.node.name.clone()], status, part)
    }
}

fn say(cluster: &Cluster, names: &[String; 2], status: &str, part: &str) -> Result<()> {
    wait_until(&format!("Ready {status} in the same words"), WITHIN, || {
        let [theirs, ours] = names.each_ref().map(|name| cluster.get_node(name).and_then(|node| of_runtime(&node)));
        let (theirs, ours) = (theirs?, ours?);
        let is_so =
            ours["Ready"]["status"] == status && ours["Ready"]["message"].as_str().unwrap_or_default().contains(part);
        if is_so && theirs == ours { Ok(()) } else { Err(format!("the kubelet has {theirs}, we have {ours}")) }
    })
}

/// What a Node says of its runtime.
fn of_runtime(node: &Value) -> Result<Value> {
    let ready = condition(node, "Ready").ok_or("no Ready")?;
    let status = &node["status"];
    Ok(serde_json::json!({
        "Ready": { "status": ready["status"], "reason": ready["reason"], "message": ready["message"] },
        "version": status["nodeInfo"]["containerRuntimeVersion"],
        "handlers": status["runtimeHandlers"],
        "features": status["features"],
    }))
}

fn a_runtime_and_its_network_are_told_in_the_same_words(cluster: &Cluster) -> Result<()> {
    let both = Both::start(cluster)?;
    let node = cluster.get_node(&both.node.name)?;
    let version = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap_or_default();
    assert!(version.starts_with(&format!("{}://", runtime_name())) && !version.ends_with("Unknown"), "{version}");
    assert!(node["status"]["runtimeHandlers"].as_array().is_some_and(|all| all.len() >= 2), "{node}");
    let Both { mut kubelet, mut agent, node } = both;
    let names = [kubelet.identity.name.clone(), node.name.clone()];
    let network = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:";
    kubelet.without_network(cluster, || say(cluster, &names, "False", network))?;
    say(cluster, &names, "True", "posting ready status")?;
    agent.check()
}

fn a_killed_runtime_is_told_in_the_same_words_and_its_return_too(cluster: &Cluster) -> Result<()> {
    let Both { mut kubelet, agent, node } = Both::start(cluster)?;
    let names = [kubelet.identity.name.clone(), node.name.clone()];
    kubelet.restart_runtime(cluster, || {
        wait_until("both to call it down", WITHIN, || {
            let [theirs, ours] = [0, 1].map(|place| cluster.get_node(&names[place]).and_then(|node| of_runtime(&node)));
            let (theirs, ours) = (theirs?, ours?);
            let is_down =
                ours["Ready"]["message"] == DOWN && ours["version"] == format!("{}://Unknown", runtime_name());
            if is_down && theirs == ours { Ok(()) } else { Err(format!("the kubelet has {theirs}, we have {ours}")) }
        })
    })?;
    let mut both = Both { kubelet, agent, node };
    both.say(cluster, "True", "posting ready status")?;
    both.agent.check()
}

fn a_frozen_runtime_holds_nothing_up_and_is_down_after_half_a_minute(cluster: &Cluster) -> Result<()> {
    let mut both = Both::start(cluster)?;
    let names = [both.kubelet.identity.name.clone(), both.node.name.clone()];
    let renewed = |cluster: &Cluster| cluster.get_lease(&names[1]).map(|lease| lease["spec"]["renewTime"].clone());
    both.kubelet.runtime.freeze()?;
    let (began, mut renewals) = (Instant::now(), vec![renewed(cluster)?]);
    wait_until("ours to call it down", WITHIN, || {
        let renewed = renewed(cluster)?;
        if renewals.last() != Some(&renewed) {
            renewals.push(renewed);
        }
        let ours = of_runtime(&cluster.get_node(&names[1])?)?;
        if ours["Ready"]["message"] == DOWN { Ok(()) } else { Err(format!("{ours}")) }
    })?;
    let after = began.elapsed();
    let theirs = of_runtime(&cluster.get_node(&names[0])?)?;
    println!(
        "a frozen runtime is down after {after:?}; {} renewals meanwhile; the kubelet says {}",
        renewals.len(),
        theirs["Ready"]
    );
    assert!(after > Duration::from_secs(29) && after < KUBELET_NOTICES / 2, "{after:?}");
    assert!(renewals.len() as u64 > after.as_secs() / 11, "renewals went on: {renewals:?}");
    both.kubelet.runtime.signal(Signal::SIGCONT)?;
    both.say(cluster, "True", "posting ready status")?;
    both.agent.check()
}

fn a_runtime_that_comes_later_is_ready_sooner_than_by_the_next_look(cluster: &Cluster) -> Result<()> {
    // Its socket is another board's, under a name that is not there yet.
    let kubelet = Kubelet::start(cluster, "early-runtime", "")?;
    let node = cluster.node("before-runtime")?;
    let socket = node.dir.join("later.sock");
    let endpoint = format!("unix://{}", socket.display());
    let mut agent = Launch::with_defaults(&node).set("containerRuntimeEndpoint", &endpoint).start(cluster)?;
    let unready = cluster.wait_for_condition(&node.name, "Ready", "False", WITHIN)?;
    let message = condition(&unready, "Ready").map(|ready| ready["message"].clone());
    let expected = "[container runtime status check may not have completed yet, network state unknown]";
    assert_eq!(message, Some(Value::from(expected)));
    agent.wait_for_line(&["runtime-trouble", "there is no such socket"], WITHIN)?;
    let theirs = kubelet.runtime_socket();
    wait_until("the runtime", WITHIN, || std::os::unix::net::UnixStream::connect(&theirs).map_err(|e| e.to_string()))?;
    let began = Instant::now();
    std::os::unix::fs::symlink(&theirs, &socket).map_err(|e| e.to_string())?;
    let ready = cluster.wait_for_condition(&node.name, "Ready", "True", WITHIN)?;
    let after = began.elapsed();
    // A second or two, and as much again on a busy machine, where a look comes every ten.
    println!("a runtime that came later was ready after {after:?}");
    assert!(after < Duration::from_secs(8), "{after:?}");
    let version = ready["status"]["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap_or_default();
    assert!(version.starts_with(runtime_name()), "{version}");
    let line = agent.wait_for_line(&["runtime-heard", &format!("{}://", runtime_name())], WITHIN)?;
    assert!(!line.is_empty());
    agent.check()
}

/// containerd writes a network configuration from its template as soon as it is told the addresses of pods: only then is it ready.
fn a_runtime_is_told_the_addresses_of_pods_and_its_disk_counts(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("told-runtime")?;
    let mut runtime = Runtime::start(cluster, &node)?;
    let launch = Launch::with_defaults(&node).set("containerRuntimeEndpoint", &runtime.endpoint);
    // More than any disk has, of the one that only the runtime names.
    let mut agent = launch.set("evictionHard", "{imagefs.available: 8000Ti}").start(cluster)?;
    let ready = cluster.wait_for_condition(&node.name, "Ready", "True", WITHIN)?;
    assert_eq!(condition(&ready, "DiskPressure").map(|pressure| pressure["status"].clone()), Some(Value::from("True")));
    let pod_cidr = ready["spec"]["podCIDR"].as_str().unwrap_or_default().to_owned();
    let written = runtime.network()?;
    assert!(!pod_cidr.is_empty() && written.contains(&pod_cidr), "{pod_cidr:?}: {written}");
    runtime.check()?;
    agent.check()
}

fn the_images_of_a_runtime_are_told_with_the_same_names(cluster: &Cluster) -> Result<()> {
    let mut kubelet = Kubelet::start(cluster, "with-images", "")?;
    kubelet.wait_until_ready(cluster)?;
    let registry = Registry::serve(&[("edge/relay", 0), ("edge/camera", 4000), ("edge/modbus", 900)])?;
    let socket = kubelet.runtime_socket();
    for image in ["edge/relay:1", "edge/camera:1", "edge/modbus:1", "edge/relay:latest"] {
        registry.pull(&socket, image)?;
    }
    let tells = |most: u32| -> Result<(NodeIdentity, Nodepulse)> {
        let node = cluster.node(&format!("tells-{most}-images"))?;
        let launch = Launch::with_defaults(&node).set("containerRuntimeEndpoint", &kubelet.runtime_endpoint());
        let agent = launch.set("nodeStatusMaxImages", &most.to_string()).start(cluster)?;
        Ok((node, agent))
    };
    let ((all, mut of_all), (two, mut of_two)) = (tells(50)?, tells(2)?);
    let images = |name: &str| -> Result<Value> { Ok(cluster.get_node(name)?["status"]["images"].clone()) };
    wait_until("the same images", WITHIN, || {
        let (theirs, ours) = (images(&kubelet.identity.name)?, images(&all.name)?);
        let is_so = theirs.as_array().is_some_and(|all| all.len() == 3) && theirs == ours;
        if is_so { Ok(()) } else { Err(format!("the kubelet has {theirs}, we have {ours}")) }
    })
    .map_err(|e| format!("{e}\n{}", kubelet.runtime.log_tail(15)))?;
    let theirs = images(&kubelet.identity.name)?;
    println!("images: {theirs}");
    assert!(theirs[0]["names"].to_string().contains("edge/camera@sha256:"), "{theirs}");
    wait_until("the two largest", WITHIN, || {
        let ours = images(&two.name)?;
        if ours.as_array() == theirs.as_array().map(|all| all[..2].to_vec()).as_ref() {
            Ok(())
        } else {
            Err(ours.to_string())
        }
    })?;
    of_all.check()?;
    of_two.check()
}

/// Of memory that is the process's own; what the program's file takes depends on how it was built. By default no image is told,
/// and the list is not asked for; where fifty are, a Node and all that is sent of it are longer by ten kilobytes.
fn two_hundred_images_take_little_memory(cluster: &Cluster) -> Result<()> {
    const MOST_KIB: [u64; 2] = [40, 200];
    let nodes = [cluster.node("no-image-told")?, cluster.node("fifty-told")?, cluster.node("no-runtime")?];
    let mut runtime = Runtime::start(cluster, &nodes[0])?;
    let names: Vec<String> = (0..200).map(|number| format!("edge/part-{number}")).collect();
    let images: Vec<(&str, usize)> = names.iter().map(String::as_str).zip(0..).collect();
    let registry = Registry::serve(&images)?;
    let socket = PathBuf::from(runtime.endpoint.trim_start_matches("unix://"));
    names.iter().try_for_each(|name| registry.pull(&socket, &format!("{name}:1")))?;
    let asking = |node| Launch::with_defaults(node).set("containerRuntimeEndpoint", &runtime.endpoint);
    let mut agents = [
        asking(&nodes[0]).start(cluster)?,
        asking(&nodes[1]).set("nodeStatusMaxImages", "50").start(cluster)?,
        Launch::with_defaults(&nodes[2]).start(cluster)?,
    ];
    for node in &nodes {
        cluster.wait_for_condition(&node.name, "Ready", "True", WITHIN)?;
    }
    wait_until("fifty images", WITHIN, || {
        let told = cluster.get_node(&nodes[1].name)?["status"]["images"].as_array().map_or(0, Vec::len);
        if told == 50 { Ok(()) } else { Err(format!("{told} are told")) }
    })?;
    let memory = agents.iter().map(Nodepulse::own_memory_kib).collect::<Result<Vec<u64>>>()?;
    println!("memory: {memory:?} KiB, with no image told, with fifty, and without a runtime");
    let without = memory[2];
    for (with, most) in memory.iter().zip(MOST_KIB) {
        assert!(*with <= without + most, "{memory:?}");
    }
    runtime.check()?;
    agents.iter_mut().try_for_each(Nodepulse::check)
}
