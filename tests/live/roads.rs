//! Other ways to the API server than a certificate and an address: tokens, proxies, names (`proxy-url`,
//! `tls-server-name`, `token`, `tokenFile`).

use super::super::agent::Launch;
use super::super::cluster::apiserver::free_port;
use super::super::cluster::{Cluster, NodeIdentity, Result, wait_until};
use super::super::trials::Case;
use super::credentials::READ_AGAIN;
use super::proxy::{Manner, Proxy};
use super::{SOON, expected, wait_until_ready};
use serde_json::json;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_service_accounts_token_is_enough,
        a_token_file_is_read_again_when_it_changes,
        a_proxy_is_asked_for_a_tunnel,
        a_proxy_that_refuses_is_told,
        a_server_name_of_its_own_makes_another_address_good,
        an_address_that_was_asked_for_is_the_nodes,
    ]
}

/// A kubeconfig of this node's with other lines in the place of some of its own.
fn kubeconfig(node: &NodeIdentity, name: &str, replace: &[(&str, &str)]) -> Result<PathBuf> {
    let mut text = fs::read_to_string(&node.kubeconfig).map_err(|e| e.to_string())?;
    for (start, with) in replace {
        let lines = text.lines().map(|line| if line.trim_start().starts_with(start) { with } else { line });
        text = lines.collect::<Vec<_>>().join("\n");
    }
    let file = node.dir.join(format!("{name}.kubeconfig"));
    fs::write(&file, text).map_err(|e| e.to_string())?;
    Ok(file)
}

fn a_service_accounts_token_is_enough(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("account")?;
    let line = format!("    token: {}", cluster.node_token(&node)?);
    let file = kubeconfig(&node, "token", &[("client-certificate:", &line), ("client-key:", "")])?;
    let _agent = Launch::quick(&node).kubeconfig(&file).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_until("a Lease", SOON, || cluster.get_lease(&node.name)).map(drop)
}

fn a_token_file_is_read_again_when_it_changes(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("rotated")?;
    let path = node.dir.join("token");
    fs::write(&path, "not-the-token\n").map_err(|e| e.to_string())?;
    let line = format!("    tokenFile: {}", path.display());
    let file = kubeconfig(&node, "token-file", &[("client-certificate:", &line), ("client-key:", "")])?;
    let mut agent = Launch::quick(&node).kubeconfig(&file).start(cluster)?;
    let said = agent.wait_for_line(&["server answered 401", "token"], SOON)?;
    assert!(!said.contains("not-the-token"), "a token never reaches the log: {said}");
    fs::write(&path, cluster.node_token(&node)?).map_err(|e| e.to_string())?;
    cluster.wait_for_condition(&node.name, "Ready", "True", READ_AGAIN)?;
    agent.check()
}

fn a_proxy_is_asked_for_a_tunnel(cluster: &Cluster) -> Result<()> {
    let proxy = Proxy::start((Ipv4Addr::LOCALHOST, free_port()?).into(), 0, Manner::Tunnel)?;
    let node = cluster.node("tunnelled")?;
    let lines = format!("    server: {}\n    proxy-url: http://{}", cluster.api.url(), proxy.address);
    let file = kubeconfig(&node, "proxy", &[("server:", &lines)])?;
    let _agent = Launch::quick(&node).kubeconfig(&file).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_until("a Lease", SOON, || cluster.get_lease(&node.name))?;
    assert_eq!(proxy.asked(), [format!("CONNECT 127.0.0.1:{} HTTP/1.1", cluster.api.port)]);
    Ok(())
}

fn a_proxy_that_refuses_is_told(cluster: &Cluster) -> Result<()> {
    let proxy = Proxy::start((Ipv4Addr::LOCALHOST, free_port()?).into(), 0, Manner::RefuseTunnel)?;
    let node = cluster.node("fenced")?;
    let lines = format!("    server: {}\n    proxy-url: http://{}", cluster.api.url(), proxy.address);
    let file = kubeconfig(&node, "proxy", &[("server:", &lines)])?;
    let mut agent = Launch::quick(&node).kubeconfig(&file).start(cluster)?;
    agent.wait_for_line(&[&format!("the proxy {} refused the tunnel", proxy.address), "407"], SOON)?;
    proxy.become_a(Manner::Tunnel);
    wait_until_ready(cluster, &node)?;
    agent.check()
}

fn a_server_name_of_its_own_makes_another_address_good(cluster: &Cluster) -> Result<()> {
    // An address that the server's certificate does not name.
    let proxy = Proxy::start((Ipv4Addr::new(127, 0, 0, 2), free_port()?).into(), cluster.api.port, Manner::Forward)?;
    let node = cluster.node("renamed")?;
    let bare = node.kubeconfig_via(&proxy.url())?;
    let mut agent = Launch::quick(&node).kubeconfig(&bare).start(cluster)?;
    agent.wait_for_line(&["certificate is not for 127.0.0.2", "tls-server-name"], SOON)?;
    assert_eq!(agent.stop()?, 0);
    assert_eq!(cluster.find_node(&node.name)?, None);
    let lines = format!("    server: {}\n    tls-server-name: kubernetes.default.svc", proxy.url());
    let named = kubeconfig(&node, "named", &[("server:", &lines)])?;
    let _agent = Launch::quick(&node).kubeconfig(&named).start(cluster)?;
    wait_until_ready(cluster, &node).map(drop)
}

fn an_address_that_was_asked_for_is_the_nodes(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("addressed")?;
    let Some(own) = expected::own_address() else { return Ok(()) };
    let launch = Launch::quick(&node)
        .flag(format!("--node-ip={own}"))
        .set("extraAddresses", "[{type: ExternalDNS, address: board.example.com}]");
    let _agent = launch.start(cluster)?;
    let found = wait_until_ready(cluster, &node)?;
    let addresses = json!([
        {"type": "InternalIP", "address": own},
        {"type": "Hostname", "address": node.name},
        {"type": "ExternalDNS", "address": "board.example.com"},
    ]);
    assert_eq!(found["status"]["addresses"], addresses);
    let other = cluster.node("misaddressed")?;
    let mut agent = Launch::quick(&other).flag("--node-ip=192.0.2.77").start(cluster)?;
    agent.wait_for_line(&["192.0.2.77", "not found in the host's network interfaces"], SOON)?;
    let found = wait_until_ready(cluster, &other)?;
    assert!(
        found["status"]["addresses"].as_array().is_none_or(Vec::is_empty),
        "ADR-1: {}",
        found["status"]["addresses"]
    );
    Ok(())
}
