//! Turns any bytes into a file of `features.d` and its labels: few, such as a Node may have, and each as one line says it.

use std::path::PathBuf;
use std::{env, fs, process};

use nodepulse::probe::{FeatureFiles, Features, Root, machine};
use nodepulse::time::Wall;

/// Of Kubernetes' own, what node-feature-discovery lets an owner write.
const FEATURES: [&str; 2] = ["feature.node.kubernetes.io", "profile.node.kubernetes.io"];

/// Of this process; it is left to the system's cleaning of such folders.
fn folder() -> PathBuf {
    env::temp_dir().join(format!("nodepulse-features-{}", process::id()))
}

/// At a time when every line with an end is over.
fn read(root: &Root, is_late: bool) -> Features {
    let wall = is_late.then(|| Wall::parse_stamp("9999-12-31T23:59:59Z")).flatten();
    FeatureFiles::new(root, &machine(root)).read(true, wall)
}

/// As the API server has it for a part of a key and for a value.
fn is_label_text(text: &str) -> bool {
    let is_end = |character: Option<char>| character.is_none_or(|one| one.is_ascii_alphanumeric());
    let may_be = |one: char| one.is_ascii_alphanumeric() || "-_.".contains(one);
    text.len() <= 63 && is_end(text.chars().next()) && is_end(text.chars().last()) && text.chars().all(may_be)
}

/// As one of the file's lines says it, which may leave out the domain, and the value where that is `true`.
fn is_said(text: &str, key: &str, value: &str) -> bool {
    let short = key.strip_prefix("feature.node.kubernetes.io/");
    let mut names = [Some(key), short].into_iter().flatten();
    names.any(|name| {
        let mut lines = text.lines().map(str::trim);
        lines.any(|line| line == format!("{name}={value}") || line == name && value == "true")
    })
}

fn check_labels(text: &str, found: &Features) {
    let labels = &found.labels;
    let bytes: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(labels.len() <= 64 && bytes <= 8 * 1024, "{} labels of {bytes} bytes", labels.len());
    assert!(found.left_out.len() <= 8, "{:?}", found.left_out);
    for (key, value) in labels {
        let (domain, name) = key.split_once('/').unwrap_or(("", key));
        assert!(!name.is_empty() && is_label_text(name) && is_label_text(value), "{key}={value}");
        assert!(
            !domain.is_empty() && domain.len() <= 253 && !domain.contains(|one: char| one.is_ascii_uppercase()),
            "{key}"
        );
        assert!(!is_in(domain, &["kubernetes.io", "k8s.io"]) || is_in(domain, &FEATURES), "{key}");
        assert!(is_said(text, key, value), "{key}={value} of no line");
    }
}

/// One of these, or below one of them.
fn is_in(domain: &str, above: &[&str]) -> bool {
    above.iter().any(|above| domain.strip_suffix(above).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// `bytes` stand for a file.
pub fn check(bytes: &[u8]) {
    let board = folder();
    let directory = board.join("etc/kubernetes/node-feature-discovery/features.d");
    let made = fs::create_dir_all(&directory).and_then(|()| fs::write(directory.join("owner"), bytes));
    assert!(made.is_ok(), "{}: {made:?}", directory.display());
    let root = Root::new(board);
    let text = String::from_utf8_lossy(bytes);
    let now = read(&root, false);
    check_labels(&text, &now);
    let late = read(&root, true);
    check_labels(&text, &late);
    // What is left out for want of room has it when others are over.
    if now.labels.len() < 32 && now.left_out.is_empty() {
        let is_known = |key: &String| now.labels.contains_key(key);
        assert!(late.labels.keys().all(is_known), "{:?} of {:?}", late.labels, now.labels);
    }
}
