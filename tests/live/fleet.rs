//! The administrator's plug-in of kubectl, `targets/kubernetes/kubectl-nodepulse`: what its table says of real Nodes, and of those
//! that a board has written what it liked into.

use super::super::agent::{Launch, ROOM_ON_DISK};
use super::super::cluster::{Cluster, Result};
use super::super::trials::Case;
use super::fence::FOLDER;
use super::{expected, wait_for_event, wait_until_ready};
use serde_json::{Map, Value, json};
use std::process::Command;

pub fn cases() -> Vec<Case> {
    cases![&[], the_fleet_stands_in_one_table_with_what_needs_somebody_first]
}

/// Exit code, and what was printed to a person; typed as `kubectl nodepulse ...`.
fn plug_in(cluster: &Cluster, arguments: &[&str]) -> Result<(i32, String, String)> {
    let kubectl = cluster.kubectl_program();
    let programs = kubectl.parent().ok_or("kubectl is nowhere")?.display();
    let path = std::env::var("PATH").map_err(|e| e.to_string())?;
    let output = Command::new(kubectl)
        .arg("nodepulse")
        .args(arguments)
        .env("PATH", format!("{FOLDER}:{programs}:{path}"))
        .env("KUBECONFIG", cluster.admin_kubeconfig())
        .output()
        .map_err(|e| format!("kubectl: {e}"))?;
    let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok((output.status.code().unwrap_or(-1), said, complained))
}

/// A Node that nobody keeps alive. `said`: of its last outage, its certificate and its network.
fn make(cluster: &Cluster, name: &str, version: &str, said: [&str; 3], conditions: &Value) -> Result<()> {
    let names = ["last-outage", "certificate-expiry", "network-bytes"].map(|name| format!("nodepulse.dev/{name}"));
    let annotations: Map<_, _> = names.into_iter().zip(said.map(|text| json!(text))).collect();
    let metadata = json!({"name": name, "labels": {"fleet": "one"}, "annotations": annotations});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {
        "nodeInfo": {"kubeletVersion": version, "architecture": "", "bootID": "", "containerRuntimeVersion": "",
            "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
            "systemUUID": ""},
        "conditions": conditions}});
    cluster.api.admin.post("/api/v1/nodes", &node)?;
    Ok(())
}

fn one(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
        "lastHeartbeatTime": "2026-01-02T03:04:05Z"})
}

/// Boards that are silent, away, hostile, and none; answers when the certificate of the first ends.
fn make_fleet(cluster: &Cluster) -> Result<String> {
    let ours = "v1.36.3-nodepulse.0.1.0";
    let outage =
        r#"{"cause":"timeout","changes":0,"dropped":0,"from":"2026-01-01T00:00:00Z","to":"2026-01-01T03:00:00Z"}"#;
    let silent = [one("Undervoltage", "True", "UndervoltageDetected"), one("Ready", "False", "KubeletNotReady")];
    let in_90_days = expected::date(&["-d", "90 days 1 hour", "+%FT%TZ"])?;
    let told = [outage, &in_90_days, r#"{"bytes":3190123,"day":"2026-01-01"}"#];
    make(cluster, "plug-in-silent", ours, told, &json!(silent))?;
    let away = [one("PlannedAbsence", "True", "Announced"), one("Ready", "Unknown", "NodeStatusUnknown")];
    let told = ["", "2026-01-02T03:04:05Z", r#"{"bytes":12345,"day":"2026-01-01"}"#];
    make(cluster, "plug-in-away", ours, told, &json!(away))?;
    // Bytes for a terminal, and what would be a row of its own.
    let forged = "x\u{1b}[2J\nforged\t\"v1.36.3-nodepulse.0.1.0\"\t\t\"Ready True 2026-01-02T03:04:05Z KubeletReady\"";
    let hostile = [one("Ready", "True", "KubeletReady\nforged"), one("Wet\u{7}\tforged", "True", "x\"y\\")];
    let told = [forged, "2026-01-02T03:04:05Z\"\n\u{1b}", r#"{"bytes":1e9,"day":"\\"}"#];
    make(cluster, "plug-in-hostile", ours, told, &json!(hostile))?;
    make(cluster, "plug-in-kubelet", "v1.36.3", [""; 3], &json!([one("Ready", "True", "KubeletReady")]))?;
    Ok(in_90_days)
}

fn the_fleet_stands_in_one_table_with_what_needs_somebody_first(cluster: &Cluster) -> Result<()> {
    let board = cluster.node("plug-in")?;
    let _agent = Launch::quick(&board).set(ROOM_ON_DISK.0, ROOM_ON_DISK.1).start(cluster)?;
    wait_until_ready(cluster, &board)?;
    cluster.kubectl(&["label", "node", &board.name, "fleet=one"])?;
    let in_90_days = make_fleet(cluster)?;

    let (code, table, _) = plug_in(cluster, &["-l", "fleet=one"])?;
    let rows: Vec<&str> = table.lines().collect();
    let names: Vec<&str> = rows.iter().filter_map(|row| row.split(' ').next()).collect();
    let expected = ["BOARD", "plug-in-silent", "plug-in-hostile", "plug-in-away", &board.name];
    assert_eq!((code, names.as_slice()), (1, expected.as_slice()), "{table}");
    assert!(rows[1].contains("  NotReady ") && rows[1].contains("  3h, ") && rows[1].contains("  0.1.0  "), "{table}");
    assert!(rows[1].contains("  90d  ") && rows[1].contains("  3.19 MB  "), "{table}");
    assert!(rows[3].contains("  ended  ") && rows[3].contains("  12.3 kB  "), "{table}");
    // A week, by the certificate that the board has, and not yet a day.
    assert!(rows[4].contains("  6d  ") || rows[4].contains("  7d  "), "{table}");
    assert!(rows[1].contains("Undervoltage ") && rows[3].contains("  Away "), "{table}");
    assert!(rows[4].contains("  Ready ") && rows[4].ends_with("  -"), "{table}");
    assert!(!table.contains('\u{1b}') && !table.contains('\u{7}'), "{table:?}");

    let (code, lines, _) = plug_in(cluster, &["-o", "json", "--sort=name", "--selector=fleet=one"])?;
    let parsed = |line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}"));
    let objects: Vec<Value> = lines.lines().map(parsed).collect::<Result<_>>()?;
    let silent = objects.iter().find(|one| one["name"] == "plug-in-silent").ok_or("it is not there")?;
    assert_eq!((code, objects.len(), &silent["outageTo"]), (1, 4, &json!("2026-01-01T03:00:00Z")));
    assert_eq!((&silent["certificateExpiry"], &silent["bytes"]), (&json!(in_90_days), &json!(3_190_123)));
    assert_eq!(silent["day"], "2026-01-01");
    let hostile = objects.iter().find(|one| one["name"] == "plug-in-hostile").ok_or("it is not there")?;
    assert_eq!(hostile["bytes"], Value::Null);
    let undervoltage = json!({"type": "Undervoltage", "status": "True", "since": "2026-01-02T03:04:05Z",
        "reason": "UndervoltageDetected"});
    assert_eq!(silent["conditions"][0], undervoltage);

    // The same board's events, along the time.
    wait_for_event(cluster, &board, "Starting")?;
    let about = format!("involvedObject.kind=Node,involvedObject.name={}", board.name);
    let events = board.dir.join("events.json");
    let printed = cluster.kubectl(&["get", "events", "--field-selector", &about, "-o", "json"])?;
    std::fs::write(&events, printed).map_err(|e| e.to_string())?;
    let drawn = Command::new(env!("CARGO_BIN_EXE_nodepulse")).arg("journal").arg("--from-events").arg(&events).output();
    let drawn = drawn.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).map_err(|e| e.to_string())?;
    assert!(drawn.lines().any(|row| row.starts_with("start ") && row.ends_with(" 1 x")), "{drawn}");

    let (code, alone, _) = plug_in(cluster, &["--no-headers", &board.name])?;
    assert!(code == 0 && alone.lines().count() == 1 && alone.starts_with(&board.name), "{code}: {alone}");
    let (_, bad, _) = plug_in(cluster, &["--bad", "-l", "fleet=one"])?;
    assert!(!bad.contains(&board.name) && bad.lines().count() == 4, "{bad}");
    let (_, all, _) = plug_in(cluster, &["--all", "-l", "fleet=one"])?;
    assert!(all.contains("plug-in-kubelet "), "{all}");
    let (code, _, complaint) = plug_in(cluster, &["-l", "fleet=none"])?;
    assert_eq!((code, complaint.as_str()), (0, "kubectl nodepulse: there is no such board\n"));
    for (column, first) in [("certificate", "plug-in-away "), ("bytes", "plug-in-silent ")] {
        let (_, sorted, _) = plug_in(cluster, &["--no-headers", "--sort", column, "-l", "fleet=one"])?;
        assert!(sorted.starts_with(first), "{sorted}");
    }
    let (code, _, complaint) = plug_in(cluster, &["--sort", "size"])?;
    assert!(code == 64 && complaint.contains("there are state, name"), "{code}: {complaint}");
    Ok(())
}
