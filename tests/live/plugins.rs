//! Device plug-ins, real ones: what they tell of their devices is what the Node has, they may sicken, grow, die and register twice, and
//! a restart of the agent keeps their resources.

use super::super::agent::Launch;
use super::super::cluster::binaries;
use super::super::cluster::{Cluster, NodeIdentity, Result, wait_until};
use super::super::trials::{Case, Need};
use super::{SOON, wait_for_node, wait_until_ready};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![
        &[Need::Root],
        a_sample_plug_in_that_dies_and_returns_is_followed_and_finds_an_agent_that_was_started_anew,
        a_plug_in_that_sickens_grows_and_registers_twice_is_told_as_it_is,
    ]
}

/// A plug-in looks for a new socket every now and then.
const REGISTERS_AGAIN: Duration = Duration::from_secs(40);

/// A process that is ended by its id.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Running> {
        command.spawn().map(Running).map_err(|error| format!("{command:?}: {error}"))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Mounts in which nobody has been at `/var/lib/kubelet` yet, for as long as this lives.
fn machine() -> Result<Running> {
    let private =
        "mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/kubelet/device-plugins && echo ready && exec sleep 3600";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", private]).stdout(Stdio::piped());
    let mut machine = Running::start(&mut command)?;
    let mut line = String::new();
    let said = machine.0.stdout.take().ok_or("no output")?;
    BufReader::new(said).read_line(&mut line).map_err(|e| e.to_string())?;
    if line == "ready\n" { Ok(machine) } else { Err("nothing could be mounted".to_owned()) }
}

/// A program of the test cluster, on that machine.
fn on(machine: &Running, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--target={}", machine.pid()))
        .arg("--mount")
        .arg(program)
        .args(arguments)
        .stderr(Stdio::null());
    command
}

/// Capacity and allocatable.
fn wait_for(cluster: &Cluster, node: &NodeIdentity, name: &str, expected: [&str; 2]) -> Result<()> {
    wait_for_node(cluster, node, &format!("{name}: {expected:?}"), REGISTERS_AGAIN, |found| {
        let of = |list: &str| &found["status"][list][name];
        (of("capacity") == expected[0] && of("allocatable") == expected[1]).then_some(())
    })
}

fn a_sample_plug_in_that_dies_and_returns_is_followed_and_finds_an_agent_that_was_started_anew(
    cluster: &Cluster,
) -> Result<()> {
    const NAME: &str = "example.com/resource";
    let node = cluster.node("sample-plug-in")?;
    let program = binaries::find(&["sample-device-plugin"])?.remove("sample-device-plugin").ok_or("no program")?;
    let machine = machine()?;
    let start = || Launch::quick(&node).set("devicePlugins", "true").inside(machine.pid()).start(cluster);
    let mut first = start()?;
    wait_until_ready(cluster, &node)?;
    let plug_in = Running::start(&mut on(&machine, &program, &[]))?;
    wait_for(cluster, &node, NAME, ["2", "2"])?;
    drop(plug_in);
    wait_for(cluster, &node, NAME, ["2", "0"])?;
    let _plug_in = Running::start(&mut on(&machine, &program, &[]))?;
    wait_for(cluster, &node, NAME, ["2", "2"])?;
    assert_eq!(first.stop()?, 0);
    let mut second = start()?;
    // Until it has registered anew it is there, with nothing.
    wait_for(cluster, &node, NAME, ["0", "0"])?;
    wait_for(cluster, &node, NAME, ["2", "2"])?;
    assert_eq!(second.stop()?, 0);
    let mut without = Launch::quick(&node).inside(machine.pid()).start(cluster)?;
    wait_for_node(cluster, &node, "a Node without it", SOON, |found| {
        found["status"]["capacity"].get(NAME).is_none().then_some(())
    })?;
    without.check()
}

/// A plug-in that does what it is told.
struct Scripted {
    _running: Running,
    orders: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Scripted {
    fn start(machine: &Running, name: &str, file: &str) -> Result<Scripted> {
        let program = binaries::find(&["device-plugin"])?.remove("device-plugin").ok_or("no program")?;
        let mut command = on(machine, &program, &[name, file]);
        let mut running = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let (orders, said) = (running.0.stdin.take(), running.0.stdout.take());
        let (orders, said) = orders.zip(said).ok_or("no pipes")?;
        Ok(Scripted { _running: running, orders, said: BufReader::new(said) })
    }

    fn order(&mut self, line: &str) -> Result<()> {
        writeln!(self.orders, "{line}").map_err(|e| e.to_string())
    }

    fn register(&mut self) -> Result<String> {
        self.order("register")?;
        let mut line = String::new();
        self.said.read_line(&mut line).map_err(|e| e.to_string())?;
        Ok(line.trim().to_owned())
    }
}

fn a_plug_in_that_sickens_grows_and_registers_twice_is_told_as_it_is(cluster: &Cluster) -> Result<()> {
    const NAME: &str = "example.com/scripted";
    let node = cluster.node("plug-in-script")?;
    let machine = machine()?;
    let launch = Launch::quick(&node).set("devicePlugins", "true").set("extendedResources", "{example.com/relay: 4}");
    let mut agent = launch.inside(machine.pid()).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    let mut plug_in = Scripted::start(&machine, NAME, "scripted.sock")?;
    assert_eq!(plug_in.register()?, "registered");
    wait_for(cluster, &node, NAME, ["0", "0"])?;
    for (devices, expected) in [
        ("devices a=Healthy b=Healthy c=Healthy", ["3", "3"]),
        ("devices a=Healthy b=Sick c=Healthy", ["3", "2"]),
        ("devices a=Healthy b=Healthy c=Healthy d=Healthy e=Unhealthy", ["5", "4"]),
        ("devices", ["0", "0"]),
        ("devices a=Healthy", ["1", "1"]),
    ] {
        plug_in.order(devices)?;
        wait_for(cluster, &node, NAME, expected)?;
    }
    // A kubelet takes the new one for gone when the old stream ends (k/k #127803).
    let mut again = Scripted::start(&machine, NAME, "again.sock")?;
    assert_eq!(again.register()?, "registered");
    again.order("devices x=Healthy y=Healthy")?;
    wait_for(cluster, &node, NAME, ["2", "2"])?;
    drop(plug_in);
    wait_until("the old one to be gone", SOON, || match agent.count_lines("device-plugin-gone")? {
        0 => Ok(()),
        lines => Err(format!("{lines} lines")),
    })?;
    again.order("devices x=Healthy y=Healthy z=Healthy")?;
    wait_for(cluster, &node, NAME, ["3", "3"])?;
    let refused = Scripted::start(&machine, "cpu", "cpu.sock")?.register()?;
    assert!(refused.contains("the ResourceName \"cpu\" is invalid"), "{refused}");
    wait_for(cluster, &node, "example.com/relay", ["4", "4"])?;
    again.order("devices x=Healthy y=Sick z=Healthy")?;
    wait_for(cluster, &node, NAME, ["3", "2"])?;
    let probed = agent.json(&["probe"])?;
    let of = |list: &str| probed["readings"][list].clone();
    assert_eq!(of("extendedResources"), json!({"example.com/relay": 4, NAME: 3}));
    assert_eq!(of("unhealthyDevices"), json!({NAME: 1}));
    let (_, page) = agent.command("probe")?;
    assert!(page.contains(&format!("{NAME} 3, of which 2 can be used")), "{page}");
    drop(again);
    wait_for(cluster, &node, NAME, ["3", "0"])?;
    agent.check()?;
    assert_eq!(agent.stop()?, 0);
    let (code, page) = agent.command("probe")?;
    let unknown = "what device plug-ins tell is not known: no agent runs with";
    assert!(
        code == 0 && page.contains("example.com/relay") && page.contains(unknown) && !page.contains(NAME),
        "{page}"
    );
    let found: Value = cluster.get_node(&node.name)?;
    assert_eq!(
        found["metadata"]["annotations"]["nodepulse.dev/extended-resources"],
        "example.com/relay,example.com/scripted"
    );
    Ok(())
}
