//! Turns ten thousand Nodes on a real API server into the time that `kubectl nodepulse` takes to show them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cluster::{Cluster, Options, Result, wait_until};
use super::process::Usage;
use super::subject::{self, Subject};
use super::table::{self, Row};

pub const ARGUMENT: &str = "--fleet";
const BOARDS: usize = 10_000;
const BOARDS_IN_A_HURRY: usize = 1_000;
/// Connections over which they are made.
const MAKERS: usize = 4;
/// Long enough that the controller takes none of them for lost.
const GRACE: Duration = Duration::from_secs(4 * 3600);
const GOAL_SECONDS: f64 = 10.0;
/// Over which an idle API server is told from a busy one.
const PEACE: Duration = Duration::from_secs(3);

/// What is asked, and how much kubectl alone takes for the same Nodes.
const COMMANDS: [(&str, &[&str]); 4] = [
    ("kubectl get nodes", &["get", "nodes", "--no-headers"]),
    ("kubectl nodepulse", &["nodepulse", "--no-headers"]),
    ("kubectl nodepulse --bad", &["nodepulse", "--bad", "--no-headers"]),
    ("kubectl nodepulse -o json", &["nodepulse", "-o", "json"]),
];

pub fn measure(quick: bool, program: &Path) -> Result<()> {
    let boards = if quick { BOARDS_IN_A_HURRY } else { BOARDS };
    let cluster = Cluster::start(Options {
        node_monitor_grace_period: GRACE,
        node_startup_grace_period: GRACE,
        more_addresses: subject::addresses(),
        ..Options::default()
    })?;
    let board = Subject::nodepulse_here(&cluster, program, 10)?;
    cluster.wait_for_condition(&board.node, "Ready", "True", Duration::from_secs(60))?;
    let pattern = cluster.get_node(&board.node)?;
    let began = Instant::now();
    make(&cluster, &pattern, boards)?;
    eprintln!("bench: {boards} Nodes like that of a board were made in {} s", began.elapsed().as_secs());
    wait_for_peace(&cluster)?;
    eprintln!(
        "bench: {} s after the first of them the controllers have written what is theirs",
        began.elapsed().as_secs()
    );
    let mut rows = Vec::new();
    for (title, arguments) in COMMANDS {
        let (seconds, lines) = run(&cluster, arguments)?;
        eprintln!("bench: {title}: {lines} lines in {seconds:.2} s");
        let is_ours = title.contains("nodepulse");
        rows.push(Row::new(title, is_ours.then_some(GOAL_SECONDS), &[Some(seconds)], |s| format!("{s:.2} s")));
        let expected = if title.ends_with("--bad") { boards / 100 } else { boards + 1 };
        if lines != expected {
            return Err(format!("{title} printed {lines} lines, not {expected}"));
        }
    }
    table::print(&[format!("{boards} Nodes")], &rows);
    Ok(())
}

/// Boards like that one, the hundredth of which each is without power enough.
fn make(cluster: &Cluster, pattern: &Value, count: usize) -> Result<()> {
    let make = |number: usize| {
        let name = format!("board-{number:05}");
        let (labels, annotations) = (&pattern["metadata"]["labels"], &pattern["metadata"]["annotations"]);
        let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": pattern["status"]});
        if number.is_multiple_of(100) {
            let low = json!({"type": "Undervoltage", "status": "True", "reason": "UndervoltageDetected", "message": "",
                "lastHeartbeatTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z"});
            node["status"]["conditions"].as_array_mut().ok_or("a Node without conditions")?.push(low);
        }
        cluster.api.admin.post("/api/v1/nodes", &node).map(drop)
    };
    std::thread::scope(|scope| {
        let share = |maker| move || (maker..count).step_by(MAKERS).try_for_each(make);
        let makers: Vec<_> = (0..MAKERS).map(|maker| scope.spawn(share(maker))).collect();
        makers.into_iter().try_for_each(|maker| maker.join().map_err(|_| "a thread ended".to_owned())?)
    })
}

/// Until the API server has next to nothing to do: each new Node gets its pod CIDR and its annotations from controllers.
fn wait_for_peace(cluster: &Cluster) -> Result<()> {
    let pid = cluster.api.pid().ok_or("the API server does not run")?;
    wait_until("the controllers to be done", Duration::from_secs(900), || {
        let before = Usage::of(pid)?;
        std::thread::sleep(PEACE);
        let spent = Duration::from_nanos(Usage::of(pid)?.since(before).cpu_ns);
        if spent < PEACE / 10 { Ok(()) } else { Err(format!("it takes {spent:?} of {PEACE:?}")) }
    })
}

/// Seconds, and lines printed. What is not Ready makes the plug-in exit with 1, and none is.
fn run(cluster: &Cluster, arguments: &[&str]) -> Result<(f64, usize)> {
    let kubectl = cluster.kubectl_program();
    let plug_in = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("targets/kubernetes");
    let programs = kubectl.parent().ok_or("kubectl is nowhere")?.display();
    let path = std::env::var("PATH").map_err(|error| error.to_string())?;
    let began = Instant::now();
    let output = Command::new(kubectl)
        .args(arguments)
        .env("PATH", format!("{}:{programs}:{path}", plug_in.display()))
        .env("KUBECONFIG", cluster.admin_kubeconfig())
        .output()
        .map_err(|error| format!("kubectl: {error}"))?;
    let seconds = began.elapsed().as_secs_f64();
    if !output.status.success() {
        return Err(format!("kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)));
    }
    Ok((seconds, output.stdout.iter().filter(|byte| **byte == b'\n').count()))
}
