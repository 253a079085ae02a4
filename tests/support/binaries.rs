//! Turns the name of a program of the test cluster into its path, building it when nobody has yet.

use super::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub const CONTROL_PLANE: [&str; 5] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kubeadm"];
pub const KUBELET: [&str; 2] = ["kubelet", "containerd"];

const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/build");

/// Where the programs are, built first where that is needed (six minutes for all; progress on stderr).
pub fn find(names: &[&'static str]) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut to_build = Vec::new();
    for name in names {
        match given(name)? {
            Some(path) => drop(found.insert(*name, path)),
            None => to_build.push(*name),
        }
    }
    if to_build.is_empty() {
        return Ok(found);
    }
    let output = Command::new(BUILD)
        .args(&to_build)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cannot run {BUILD}: {e}"))?;
    if !output.status.success() {
        return Err(format!("tests/cluster/build failed ({}); it said why above", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let folder = PathBuf::from(text.lines().last().ok_or("tests/cluster/build named no folder")?);
    found.extend(to_build.into_iter().map(|name| (name, folder.join(name))));
    Ok(found)
}

/// An error that says what to install if the programs are neither there nor can be built here.
pub fn obtainable(names: &[&'static str]) -> Result<()> {
    let mut to_build = Vec::new();
    for name in names {
        if given(name)?.is_none() {
            to_build.push(*name);
        }
    }
    if to_build.is_empty() {
        return Ok(());
    }
    let output = Command::new(BUILD)
        .arg("--check")
        .args(&to_build)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run {BUILD}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// What the environment says: `CLUSTER_KUBE_APISERVER=/path` for one program, `CLUSTER_BIN=/folder` for all.
fn given(name: &str) -> Result<Option<PathBuf>> {
    let variable = format!("CLUSTER_{}", name.to_uppercase().replace('-', "_"));
    let set = |variable: &str| std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    let (variable, path) = match (set(&variable), set("CLUSTER_BIN")) {
        (Some(path), _) => (variable.as_str(), path),
        (None, Some(folder)) => ("CLUSTER_BIN", folder.join(name)),
        (None, None) => return Ok(None),
    };
    if path.is_file() { Ok(Some(path)) } else { Err(format!("{variable}: there is no {}", path.display())) }
}
