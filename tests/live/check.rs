//! What `check` finds on a real server, and what it says to type next.

use super::super::cluster::{Cluster, Credential, NodeIdentity, Result};
use super::super::trials::Case;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        check_finds_nothing_wrong_with_a_nodes_own_identity,
        check_names_what_is_wrong_with_credentials_and_what_to_type_next,
        check_names_the_verbs_that_are_missing,
        check_asks_no_server_with_credentials_it_cannot_read,
    ]
}

/// Exit code and output.
pub fn check(node: &NodeIdentity) -> Result<(i32, String)> {
    check_with(node, &["--hostname-override", &node.name])
}

/// The same with other flags.
pub fn check_with(node: &NodeIdentity, flags: &[&str]) -> Result<(i32, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nodepulse"));
    command.arg("check").arg("--kubeconfig").arg(&node.kubeconfig).args(flags);
    let output = command.output().map_err(|e| e.to_string())?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned()))
}

fn check_finds_nothing_wrong_with_a_nodes_own_identity(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("checked")?;
    let (code, said) = check(&node)?;
    assert_eq!(code, 0, "{said}");
    for words in ["answers, version v1.", "all 9 verbs that the agent uses", "valid until"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("try:"), "{said}");
    assert_eq!(cluster.find_node(&node.name)?, None, "to check is not to register");
    Ok(())
}

fn check_names_what_is_wrong_with_credentials_and_what_to_type_next(cluster: &Cluster) -> Result<()> {
    for (credential, hint, code, words) in [
        (Credential::Expired, "check-expired", 77, ["expired at", "try: targets/kubernetes/enroll", "auth whoami"]),
        (Credential::NotYetValid, "check-tomorrow", 77, ["not valid before", "try: timedatectl", "auth whoami"]),
        (Credential::OtherClientAuthority, "check-stranger", 77, ["does not know these credentials", "try:", "whoami"]),
        (
            Credential::OtherServerAuthority,
            "check-mistrustful",
            70,
            ["ca-changed: ", "the kubeconfig trusts", "try: curl"],
        ),
    ] {
        let node = cluster.node_at(&cluster.api, hint, credential)?;
        let (found, said) = check(&node)?;
        assert_eq!(found, code, "{said}");
        for words in words {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    Ok(())
}

fn check_names_the_verbs_that_are_missing(cluster: &Cluster) -> Result<()> {
    let node = cluster.node_at(&cluster.api, "check-powerless", Credential::NoGroup)?;
    let (code, said) = check(&node)?;
    assert_eq!(code, 77, "{said}");
    for words in
        ["may not create nodes, get nodes, watch nodes, patch nodes/status", "patch events", "auth whoami", "enroll"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    let path = node.kubeconfig.display().to_string();
    assert!(said.contains(&format!("--kubeconfig {path} ")), "it can be typed as it is: {said}");
    Ok(())
}

fn check_asks_no_server_with_credentials_it_cannot_read(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("check-keyless")?;
    std::fs::remove_file(&node.key).map_err(|e| e.to_string())?;
    let (code, said) = check(&node)?;
    assert_eq!(code, 70, "{said}");
    let key = node.key.display().to_string();
    let look = said.lines().find(|line| line.contains("try: ls -l ")).unwrap_or_default();
    assert!(look.contains(&key) && !said.contains("try: curl"), "{said}");
    Ok(())
}
