//! Turns `Cargo.lock` and what cargo knows of each package into complaints: known faults, licences, where it comes from.
//!
//! Faults are those of a pinned copy of the RustSec advisory database (`targets/advisories` makes it anew), so that a change
//! is judged alike everywhere, without a network.

use std::process::Command;

use semver::{Version, VersionReq};
use serde_json::Value;

use super::hold;
use super::tree::page;

const ADVISORIES: &str = include_str!("advisories.txt");

/// The settings of cargo-deny (`make deny`), which asks the network for more than is known here.
const DENY: &str = include_str!("../../deny.toml");

/// One package of a lock file.
struct Locked {
    name: String,
    version: Version,
    source: Option<String>,
    has_checksum: bool,
}

fn locked(text: &str) -> Vec<Locked> {
    let entries = text.split("[[package]]").skip(1);
    let field = |entry: &str, name: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'));
        line.map(str::to_owned)
    };
    let package = |entry: &str| Locked {
        name: field(entry, "name").unwrap(),
        version: Version::parse(&field(entry, "version").unwrap()).unwrap(),
        source: field(entry, "source"),
        has_checksum: field(entry, "checksum").is_some(),
    };
    entries.map(package).collect()
}

/// `RUSTSEC-2025-0009 ring vulnerable | >= 0.17.12`: safe is what any of the ranges holds.
fn faults(packages: &[Locked], advisories: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for line in advisories.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split(" | ");
        let mut words = parts.next().unwrap_or_default().split(' ');
        let (id, name, kind) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let safe: Vec<VersionReq> =
            parts.map(|range| VersionReq::parse(range).unwrap_or_else(|e| panic!("{line}: {e}"))).collect();
        for package in packages.iter().filter(|package| package.name == name) {
            if !safe.iter().any(|range| range.matches(&package.version)) {
                complaints.push(format!("{name} {} is {kind}: {id} says what to do", package.version));
            }
        }
    }
    complaints
}

/// Anything but the one registry with its checksum: git, folders, other registries.
fn sources(packages: &[Locked]) -> Vec<String> {
    let registry = packages.iter().find_map(|package| package.source.as_deref()).unwrap_or_default();
    let others = packages.iter().filter(|package| match package.source.as_deref() {
        None => package.name != "nodepulse" || package.has_checksum,
        Some(source) => !source.starts_with("registry+") || source != registry || !package.has_checksum,
    });
    others.map(|package| format!("{} comes from {:?} and no registry", package.name, package.source)).collect()
}

/// The licences that `deny.toml` allows.
fn allowed() -> Vec<&'static str> {
    let (_, list) = DENY.split_once("\nallow = [").unwrap();
    list.split(']').next().unwrap().split('"').skip(1).step_by(2).collect()
}

/// Whether an expression (SPDX) can be met with what is [`allowed`]. One level of parentheses is read as `(A OR B) AND C`; any other
/// use of them is judged more strictly than it is.
fn is_allowed(expression: &str) -> bool {
    let allowed = allowed();
    let plain = expression.replace('/', " OR ").replace(['(', ')'], " ");
    let is_known = |one: &str| allowed.contains(&one.trim());
    if expression.contains('(') {
        plain.split(" AND ").all(|part| part.split(" OR ").any(is_known))
    } else {
        plain.split(" OR ").any(|part| part.split(" AND ").all(is_known))
    }
}

fn licences(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().unwrap().iter();
    let refused = packages.filter(|package| !package["license"].as_str().is_some_and(is_allowed));
    refused.map(|package| format!("{} has the licence {}", package["name"], package["license"])).collect()
}

fn metadata() -> Value {
    let mut command = Command::new(env!("CARGO"));
    let output = command.args(["metadata", "--locked", "--format-version=1", "--manifest-path"]);
    let output = output.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn no_dependency_has_a_known_fault_or_comes_from_elsewhere() {
    let packages = locked(&page("Cargo.lock").unwrap());
    assert!(packages.len() > 100 && ADVISORIES.lines().count() > 1000);
    hold(faults(&packages, ADVISORIES));
    hold(sources(&packages));
}

#[test]
fn every_dependency_has_a_licence_that_asks_for_no_more_than_its_name() {
    hold(licences(&metadata()));
}

#[test]
fn a_fault_a_strange_source_and_a_licence_are_caught() {
    let lock = |fields: &str| locked(&format!("version = 4\n[[package]]\n{fields}\n"));
    let registry = "source = \"registry+x\"\nchecksum = \"1\"";
    let old = lock(&format!("name = \"rustls-webpki\"\nversion = \"0.103.12\"\n{registry}"));
    assert_eq!(faults(&old, ADVISORIES), ["rustls-webpki 0.103.12 is vulnerable: RUSTSEC-2026-0104 says what to do"]);
    assert_eq!(faults(&lock("name = \"ring\"\nversion = \"0.16.20\""), ADVISORIES).len(), 2);
    assert_eq!(faults(&lock("name = \"ring\"\nversion = \"0.17.14\""), ADVISORIES), [""; 0]);
    for elsewhere in ["source = \"git+x\"\nchecksum = \"1\"", "source = \"registry+x\"", ""] {
        assert_eq!(sources(&lock(&format!("name = \"a\"\nversion = \"1.0.0\"\n{elsewhere}"))).len(), 1, "{elsewhere}");
    }
    assert_eq!(sources(&old), [""; 0]);
    for (expression, allowed) in [
        ("MIT OR Apache-2.0", true),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 AND ISC", true),
        ("GPL-3.0-only", false),
        ("MIT AND GPL-2.0-only", false),
        ("GPL-2.0-only OR MIT", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND GPL-2.0-only", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression), allowed, "{expression}");
    }
}
