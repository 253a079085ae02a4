//! A control plane that has moved: a board finds it at an address that it learned while the old one lived (JOIN-7).

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::daemon::write_private;
use super::super::cluster::{ApiServer, Cluster, NodeIdentity, Result, Validity, wait_until};
use super::super::requests::{SOON, is_renewal, now_us, wait_until_ready};
use super::Case;
use super::links::say;
use super::site::{SERVER_ADDRESSES, Site};
use base64::prelude::{BASE64_STANDARD, Engine};
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";

/// A minute in which no server answers, three tries and a cycle of pauses between them.
const FOUND_WITHIN: Duration = Duration::from_secs(180);

pub fn cases() -> Vec<Case> {
    cases![a_control_plane_that_has_moved_is_found_at_the_address_that_it_named_before]
}

/// The files of a board that has joined at that server.
fn joined_at(node: &NodeIdentity, api: &ApiServer) -> Result<PathBuf> {
    let read = |path: &PathBuf| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let folder = node.dir.join("state/identity");
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let (certificate, key) = (read(&node.certificate)?, read(&node.key)?);
    write_private(&folder.join("node.pem"), &format!("received unknown\n{certificate}{key}"))?;
    let (host, port, authority) = (SERVER_ADDRESSES[0], api.port, BASE64_STANDARD.encode(read(&node.authority)?));
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: default-cluster\n  cluster:\n    server: https://{host}:{port}\n    \
         certificate-authority-data: {authority}\nusers:\n- name: default-auth\n  user:\n    client-certificate: node.pem\n    \
         client-key: node.pem\ncontexts:\n- name: default-context\n  context:\n    cluster: default-cluster\n    \
         user: default-auth\ncurrent-context: default-context\n"
    );
    write_private(&folder.join("kubeconfig"), &text)
}

fn wait_for_renewal_at(api: &ApiServer, node: &NodeIdentity, since_us: u64, agent: &Nodepulse) -> Result<()> {
    wait_until(&format!("a renewal of {} at {}", node.name, api.url()), FOUND_WITHIN, || {
        let seen = api.audit(|e| e.user == node.user && is_renewal(e) && e.received_at_us > since_us)?;
        if seen.is_empty() { Err(agent.said()?) } else { Ok(()) }
    })
}

fn a_control_plane_that_has_moved_is_found_at_the_address_that_it_named_before(cluster: &Cluster) -> Result<()> {
    let (old, new) = (cluster.api_server(Validity::Now)?, cluster.api_server(Validity::Now)?);
    let (site, node) = (Site::new(cluster)?, cluster.node("left-behind")?);
    let kubeconfig = joined_at(&node, &old)?;
    let start = || Launch::quick(&node).without_kubeconfig().inside(site.pid()).start(cluster);
    let mut agent = start()?;
    wait_until_ready(cluster, &node)?;
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": "kubernetes" },
        "subsets": [{ "addresses": [{ "ip": SERVER_ADDRESSES[1] }], "ports": [{ "name": "https", "port": new.port }] }],
    });
    cluster
        .api
        .admin
        .request("POST", ENDPOINTS, Some(("application/json", &endpoints)))?
        .accepted("POST", ENDPOINTS)?;
    // It would ask within 70 minutes, and each week.
    agent.signal(Signal::SIGHUP)?;
    let address = format!("https://[{}]:{}", SERVER_ADDRESSES[1], new.port);
    wait_until("what it has learned in its own file", SOON, || match fs::read_to_string(&kubeconfig) {
        Ok(text) if text.contains(&address) => Ok(()),
        Ok(text) => Err(format!("{text}\n{}", agent.said()?)),
        Err(error) => Err(error.to_string()),
    })?;
    let written = fs::metadata(&kubeconfig).and_then(|file| file.modified()).map_err(|e| e.to_string())?;
    let is_ours = |e: &super::super::cluster::AuditEntry| e.user == node.user;
    assert!(new.audit(is_ours)?.is_empty(), "it was asked although the old one answers");
    let (began, since) = (Instant::now(), now_us());
    old.kill()?;
    wait_for_renewal_at(&new, &node, since, &agent)?;
    say("a control plane that has moved, to the first renewal there", began.elapsed());
    agent.wait_for_line(&["server-changed", &address.replace("https://", "")], SOON)?;
    // The next process knows it as well.
    agent.stop()?;
    let (began, since) = (Instant::now(), now_us());
    let mut agent = start()?;
    wait_for_renewal_at(&new, &node, since, &agent)?;
    say("a start after that, to the first renewal", began.elapsed());
    let after = fs::metadata(&kubeconfig).and_then(|file| file.modified()).map_err(|e| e.to_string())?;
    assert_eq!(after, written, "it was written once");
    agent.check()
}
