//! Credentials that are wrong on either side: each is told in its own words, none ends the agent, all can be repaired
//! under it (AUT-*).

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::{Cluster, Credential, NodeIdentity, Result, Validity, wait_until};
use super::super::trials::Case;
use super::proxy::{Manner, Proxy, server_config};
use super::{SOON, wait_until_ready};
use base64::prelude::{BASE64_STANDARD, Engine};
use nix::sys::signal::Signal;
use nodepulse::io::kernel::clock_discipline;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Credentials are read again by themselves at most every 30 s.
pub const READ_AGAIN: Duration = Duration::from_secs(45);

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_client_certificate_that_has_expired_is_told_and_its_successor_found,
        a_certificate_that_stands_in_the_kubeconfig_is_read_again_from_it,
        a_wrong_authority_is_told_and_the_right_one_found,
        a_client_certificate_of_tomorrow_is_told_and_replaced_at_sighup,
        a_client_certificate_of_a_stranger_is_told,
        a_missing_group_is_told_with_the_verb_and_granted_rights_are_found,
        rights_that_are_taken_away_are_told_and_do_not_end_it,
        a_server_certificate_that_has_expired_is_told_and_its_successor_trusted,
        a_server_certificate_of_tomorrow_is_told,
        a_captive_portal_is_told_from_an_api_server,
        a_key_that_cannot_be_read_is_told_with_its_path,
        a_kubeconfig_that_is_wrong_is_refused_at_the_start,
    ]
}

fn start(cluster: &Cluster, credential: Credential, hint: &str) -> Result<(NodeIdentity, Nodepulse)> {
    let node = cluster.node_at(&cluster.api, hint, credential)?;
    let agent = Launch::quick(&node).start(cluster)?;
    Ok((node, agent))
}

/// The Node becomes Ready under the process that has been running all the time.
fn is_healed(cluster: &Cluster, node: &NodeIdentity, agent: &mut Nodepulse, within: Duration) -> Result<()> {
    cluster.wait_for_condition(&node.name, "Ready", "True", within)?;
    agent.wait_for_line(&["recovered:", "registration works again"], SOON)?;
    agent.check()
}

fn a_client_certificate_that_has_expired_is_told_and_its_successor_found(cluster: &Cluster) -> Result<()> {
    let (node, mut agent) = start(cluster, Credential::Expired, "expired")?;
    agent.wait_for_line(&["registration failed", "server answered 401", "the client certificate expired at"], SOON)?;
    cluster.renew(&node, Credential::Valid)?;
    is_healed(cluster, &node, &mut agent, READ_AGAIN)
}

fn a_certificate_that_stands_in_the_kubeconfig_is_read_again_from_it(cluster: &Cluster) -> Result<()> {
    let node = cluster.node_at(&cluster.api, "embedded", Credential::Expired)?;
    let whole = node.dir.join("whole.kubeconfig");
    embed(&node, &whole)?;
    // This start has so much to tell that only three lines more would find room.
    let mut agent = Launch::quick(&node).kubeconfig(&whole).with_whole_log().start(cluster)?;
    agent.wait_for_line(&["registration failed", "server answered 401", "the client certificate expired at"], SOON)?;
    cluster.renew(&node, Credential::Valid)?;
    embed(&node, &whole)?;
    is_healed(cluster, &node, &mut agent, READ_AGAIN)
}

/// The node's kubeconfig with the files that it names in it, at `path` in one step.
fn embed(node: &NodeIdentity, path: &Path) -> Result<()> {
    let mut text = fs::read_to_string(&node.kubeconfig).map_err(|e| e.to_string())?;
    for (key, file) in [
        ("certificate-authority", &node.authority),
        ("client-certificate", &node.certificate),
        ("client-key", &node.key),
    ] {
        let data = BASE64_STANDARD.encode(fs::read(file).map_err(|e| e.to_string())?);
        let named = format!("{key}: {}", file.display());
        assert!(text.contains(&named), "no {named} in {text}");
        text = text.replace(&named, &format!("{key}-data: {data}"));
    }
    let fresh = path.with_extension("new");
    fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path)).map_err(|e| e.to_string())
}

fn a_wrong_authority_is_told_and_the_right_one_found(cluster: &Cluster) -> Result<()> {
    let (node, mut agent) = start(cluster, Credential::OtherServerAuthority, "mistrustful")?;
    agent.wait_for_line(
        &["registration failed", "signed by nobody the kubeconfig trusts", "certificate-authority"],
        SOON,
    )?;
    assert_eq!(cluster.audit_of(&node)?.len(), 0, "nothing is sent to a server that is not trusted");
    cluster.renew(&node, Credential::Valid)?;
    is_healed(cluster, &node, &mut agent, READ_AGAIN)
}

fn a_client_certificate_of_tomorrow_is_told_and_replaced_at_sighup(cluster: &Cluster) -> Result<()> {
    let (node, mut agent) = start(cluster, Credential::NotYetValid, "tomorrow")?;
    agent.wait_for_line(
        &["registration failed", "server answered 401", "the client certificate is not valid before", "clock"],
        SOON,
    )?;
    cluster.renew(&node, Credential::Valid)?;
    agent.signal(Signal::SIGHUP)?;
    is_healed(cluster, &node, &mut agent, SOON)
}

fn a_client_certificate_of_a_stranger_is_told(cluster: &Cluster) -> Result<()> {
    let (node, mut agent) = start(cluster, Credential::OtherClientAuthority, "stranger")?;
    agent.wait_for_line(
        &["registration failed", "server answered 401", "does not know this certificate's issuer"],
        SOON,
    )?;
    cluster.renew(&node, Credential::Valid)?;
    agent.signal(Signal::SIGHUP)?;
    is_healed(cluster, &node, &mut agent, SOON)
}

fn a_missing_group_is_told_with_the_verb_and_granted_rights_are_found(cluster: &Cluster) -> Result<()> {
    let (node, mut agent) = start(cluster, Credential::NoGroup, "powerless")?;
    agent.wait_for_line(&["registration failed", "server answered 403", "`create nodes`", "system:nodes"], SOON)?;
    assert_eq!(cluster.find_node(&node.name)?, None);
    bind(cluster, &node)?;
    is_healed(cluster, &node, &mut agent, SOON)
}

fn rights_that_are_taken_away_are_told_and_do_not_end_it(cluster: &Cluster) -> Result<()> {
    let node = cluster.node_at(&cluster.api, "demoted", Credential::NoGroup)?;
    bind(cluster, &node)?;
    let mut agent = Launch::quick(&node).asserting("2s").start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_until("a Lease", SOON, || cluster.get_lease(&node.name))?;
    cluster.api.admin.delete(&format!("{BINDINGS}/{}", node.name))?;
    agent.wait_for_line(&["Lease renewal failed", "server answered 403", "`patch leases`"], SOON)?;
    agent.wait_for_line(&["NodeStatus failed", "server answered 403", "`patch nodes/status`"], SOON)?;
    bind(cluster, &node)?;
    agent.wait_for_line(&["Lease renewal works again"], SOON)?;
    agent.wait_for_line(&["NodeStatus works again"], SOON)?;
    wait_until_ready(cluster, &node).map(drop)
}

fn a_server_certificate_that_has_expired_is_told_and_its_successor_trusted(cluster: &Cluster) -> Result<()> {
    let proxy = Proxy::forward(cluster.api.port)?;
    proxy.become_a(Manner::Serve(server_config(&cluster.serving_certificate(Validity::Expired)?)?, ""));
    let node = cluster.node("outlived")?;
    let mut agent = Launch::quick(&node).kubeconfig(&node.kubeconfig_via(&proxy.url())?).start(cluster)?;
    agent.wait_for_line(&["registration failed", "the server's certificate has expired", "valid until"], SOON)?;
    proxy.become_a(Manner::Forward);
    is_healed(cluster, &node, &mut agent, SOON)
}

/// A board whose clock nobody keeps right believes such a certificate, and hears from the server that it is not tomorrow.
fn a_server_certificate_of_tomorrow_is_told(cluster: &Cluster) -> Result<()> {
    let api = cluster.api_server(Validity::NotYet)?;
    let node = cluster.node_at(&api, "hasty", Credential::Valid)?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    let told = if clock_discipline().is_ok_and(|(is_synchronised, _)| is_synchronised) {
        "the server's certificate is not valid yet"
    } else {
        "the server's clock and its certificate do not agree"
    };
    agent.wait_for_line(&["registration failed", told], SOON)?;
    assert_eq!(cluster.find_node(&node.name)?, None);
    let right = node.kubeconfig_via(&cluster.api.url())?;
    fs::copy(right, &node.kubeconfig).map_err(|e| e.to_string())?;
    agent.signal(Signal::SIGHUP)?;
    is_healed(cluster, &node, &mut agent, SOON)
}

fn a_captive_portal_is_told_from_an_api_server(cluster: &Cluster) -> Result<()> {
    let proxy = Proxy::forward(cluster.api.port)?;
    let config = server_config(&cluster.serving_certificate(Validity::Now)?)?;
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 22\r\n\r\n<html>Welcome!</html>\n";
    proxy.become_a(Manner::Serve(config.clone(), page));
    let node = cluster.node("captive")?;
    let mut agent = Launch::quick(&node).kubeconfig(&node.kubeconfig_via(&proxy.url())?).start(cluster)?;
    agent.wait_for_line(&["registration failed", "text/html", "not the API server's own word"], SOON)?;
    let elsewhere = "HTTP/1.1 302 Found\r\nLocation: http://portal.example/login\r\nContent-Length: 0\r\n\r\n";
    proxy.become_a(Manner::Serve(config, elsewhere));
    agent.wait_for_line(&["redirected to http://portal.example/login"], SOON)?;
    proxy.become_a(Manner::Forward);
    is_healed(cluster, &node, &mut agent, SOON)
}

fn a_key_that_cannot_be_read_is_told_with_its_path(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("keyless")?;
    let elsewhere = node.key.with_extension("elsewhere");
    fs::rename(&node.key, &elsewhere).map_err(|e| e.to_string())?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    agent.wait_for_line(
        &["registration failed", "cannot read client-key", &node.key.display().to_string(), "No such file"],
        SOON,
    )?;
    fs::rename(&elsewhere, &node.key).map_err(|e| e.to_string())?;
    is_healed(cluster, &node, &mut agent, SOON)
}

fn a_kubeconfig_that_is_wrong_is_refused_at_the_start(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("misled")?;
    let good = fs::read_to_string(&node.kubeconfig).map_err(|e| e.to_string())?;
    let insecure = good.replace("    server:", "    insecure-skip-tls-verify: true\n    server:");
    let bomb =
        format!("{}{}", "a: &a [x, x, x, x, x, x, x, x, x]\n", "b: &b [*a, *a, *a, *a, *a, *a, *a, *a]\n".repeat(6));
    for (what, text, said) in [
        ("insecure", insecure.as_str(), "insecure-skip-tls-verify"),
        ("context", &good.replace("current-context: test", "current-context: best"), "best"),
        ("bomb", &bomb, "bomb.kubeconfig"),
    ] {
        let file = node.dir.join(format!("{what}.kubeconfig"));
        fs::write(&file, text).map_err(|e| e.to_string())?;
        let mut agent = Launch::quick(&node).kubeconfig(&file).start(cluster)?;
        assert_eq!(agent.exit_code(SOON)?, 78, "{what}: {}", agent.said()?);
        assert!(agent.said()?.contains(said), "{what}: {}", agent.said()?);
    }
    let mut agent = Launch::quick(&node).kubeconfig(&node.dir).start(cluster)?;
    assert_eq!(agent.exit_code(SOON)?, 78);
    assert!(agent.said()?.contains("is a directory"), "{}", agent.said()?);
    assert_eq!(cluster.audit_of(&node)?.len(), 0);
    Ok(())
}

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// What a node may do, for a user that is not in the group of nodes.
fn bind(cluster: &Cluster, node: &NodeIdentity) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": node.name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": node.user}],
    });
    cluster.api.admin.post(BINDINGS, &binding).map(drop)
}
