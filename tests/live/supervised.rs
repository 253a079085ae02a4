//! A board with a token of k3s or rke2: it becomes a Node by the supervisor of `support/supervisor.rs`, and by that of a real k3s
//! where `K3S_URL` and `K3S_TOKEN` name one (K3S-1 to K3S-6).

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::apiserver::free_port;
use super::super::cluster::pki::{Validity, dates};
use super::super::cluster::{Cluster, NodeIdentity, Result, wait_until};
use super::super::supervisor::{Asked, Manner, Supervisor};
use super::super::trials::Case;
use super::super::trials::left_out::leave_to_others;
use super::{SOON, now_us, proxy, wait_until_ready};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_token_of_k3s_makes_a_board_a_node,
        a_token_of_rke2_finds_the_api_on_another_port,
        a_supervisor_that_the_token_does_not_name_is_told_nothing,
        a_token_with_another_password_is_told,
        another_board_of_the_same_name_is_told_until_its_password_is_forgotten,
        a_supervisor_that_is_not_ready_is_waited_for,
        a_key_that_agents_share_is_taken_only_when_the_settings_allow_it,
        a_certificate_is_renewed_over_the_supervisor_and_the_one_in_use_shows_who_asks,
        a_certificate_that_has_ended_is_replaced_with_the_token,
        a_person_types_the_same_command_as_for_kubeadm,
        a_ca_that_a_supervisor_shows_beside_its_own_is_learned,
        a_board_behind_a_proxy_joins_through_it,
        a_real_k3s_takes_a_board_with_its_token,
    ]
}

/// Where boards join, with which token.
struct Front {
    url: String,
    token: String,
}

impl Front {
    fn of(supervisor: &Supervisor) -> Front {
        Front { url: supervisor.url(), token: supervisor.node_token() }
    }

    /// The same with another password.
    fn mistaken(&self) -> Front {
        let (pin, _) = self.token.split_once("::").unwrap_or_default();
        Front { url: self.url.clone(), token: format!("{pin}::node:00000000000000000000000000000000") }
    }

    /// The same with the hash of another CA.
    fn of_another(&self) -> Front {
        let (_, user) = self.token.split_once("::").unwrap_or_default();
        Front { url: self.url.clone(), token: format!("K10{}::{user}", "5c".repeat(32)) }
    }

    fn launch<'a>(&self, node: &'a NodeIdentity) -> Launch<'a> {
        let launch = Launch::quick(node).without_kubeconfig();
        launch.set("servers", &format!("['{}']", self.url)).set("token", &format!("'{}'", self.token))
    }

    /// It has become a Node, and goes on as one without any settings.
    fn takes_a_board(&self, cluster: &Cluster, node: &NodeIdentity) -> Result<()> {
        let mut agent = self.launch(node).start(cluster)?;
        agent.wait_for_line(&["certificate-issued"], SOON * 3)?;
        agent.wait_for_line(&["lease-held"], SOON * 3)?;
        is_silent_of(&agent, &self.token)?;
        assert_eq!(agent.stop()?, 0);
        let first = issued(node)?;
        let mut agent = Launch::quick(node).without_kubeconfig().start(cluster)?;
        agent.wait_for_line(&["lease-held"], SOON * 3)?;
        assert_eq!(issued(node)?, first, "it asked for no other certificate");
        assert_eq!(agent.stop()?, 0);
        // The identity is lost, but for its password: it is the same board.
        for file in ["node.pem", "node.pem.old", "kubeconfig"] {
            let _ = fs::remove_file(folder(node).join(file));
        }
        let mut agent = self.launch(node).start(cluster)?;
        agent.wait_for_line(&["certificate-issued"], SOON * 3)?;
        agent.wait_for_line(&["lease-held"], SOON * 3)?;
        agent.stop()?;
        let second = issued(node)?;
        assert_ne!(second, first);
        // Its password is lost as well.
        for file in ["node.pem", "node.pem.old", "kubeconfig", "node-password"] {
            let _ = fs::remove_file(folder(node).join(file));
        }
        let mut agent = self.launch(node).start(cluster)?;
        let line = agent.wait_for_line(&["node-password-differs"], SOON * 3)?;
        assert!(line.contains(&format!("delete secret {}.node-password.", node.name)), "{line}");
        agent.stop().map(drop)
    }

    fn has_another_word_for_each_mistake(&self, cluster: &Cluster, node: &NodeIdentity) -> Result<()> {
        for (front, word) in [(self.of_another(), "pin-mismatch"), (self.mistaken(), "token-unknown")] {
            let mut agent = front.launch(node).start(cluster)?;
            agent.wait_for_line(&[word], SOON * 3)?;
            is_silent_of(&agent, &front.token)?;
            agent.stop()?;
        }
        Ok(())
    }
}

fn folder(node: &NodeIdentity) -> std::path::PathBuf {
    node.dir.join("state/identity")
}

fn read(node: &NodeIdentity, file: &str) -> Result<String> {
    let path = folder(node).join(file);
    fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

/// The certificate that is in use.
fn issued(node: &NodeIdentity) -> Result<String> {
    let text = read(node, "node.pem")?;
    let begin = text.find("-----BEGIN CERTIFICATE").ok_or("no certificate")?;
    let end = text.find("-----END CERTIFICATE").ok_or("no end of it")?;
    Ok(text[begin..end].to_owned())
}

/// The node's password as the server hears it.
fn password(node: &NodeIdentity) -> Result<String> {
    Ok(read(node, "node-password")?.lines().next().unwrap_or_default().to_owned())
}

fn is_silent_of(agent: &Nodepulse, token: &str) -> Result<()> {
    let (_, secret) = token.rsplit_once(':').unwrap_or_default();
    assert!(!secret.is_empty() && !agent.said()?.contains(secret), "the password is in the log");
    Ok(())
}

/// Requests for a certificate.
fn certified(supervisor: &Supervisor) -> Vec<Asked> {
    supervisor.asked().into_iter().filter(|asked| asked.line.contains("client-kubelet.crt")).collect()
}

/// A command about this board's identity, and what it prints.
fn ask_for(node: &NodeIdentity, command: &[&str]) -> Result<String> {
    let state = format!("--state-directory={}", node.dir.join("state").display());
    // None of them takes longer on any machine.
    let mut program = Command::new("timeout");
    let output = program
        .arg("120")
        .arg(env!("CARGO_BIN_EXE_nodepulse"))
        .args(command)
        .arg(state)
        .output()
        .map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn a_token_of_k3s_makes_a_board_a_node(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let (front, node) = (Front::of(&supervisor), cluster.node("k3s-board")?);
    let mut agent = front.launch(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.check()?;
    is_silent_of(&agent, &front.token)?;
    assert!(!agent.said()?.contains(&password(&node)?), "the node's password is in the log");
    let asked = supervisor.asked();
    let lines: Vec<&str> = asked.iter().map(|asked| asked.line.split(' ').nth(1).unwrap_or_default()).collect();
    let expected = ["/cacerts", "/cacerts", "/v1-k3s/config", "/v1-k3s/apiservers", "/v1-k3s/client-kubelet.crt"];
    assert_eq!(lines, expected, "each once, in this order");
    assert_eq!(asked.iter().map(Asked::holds_a_secret).collect::<Vec<_>>(), [false, false, true, true, true]);
    assert_eq!(asked[4].header("k3s-node-password"), Some(password(&node)?.as_str()), "kept before it was said");
    assert_eq!(asked[4].header("k3s-node-name"), Some(node.name.as_str()));
    for file in ["node-password", "node.pem", "kubeconfig"] {
        let mode = fs::metadata(folder(&node).join(file)).map_err(|e| e.to_string())?.permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let said = ask_for(&node, &["identity"])?;
    assert!(said.contains(&node.name) && said.contains(&format!("k3s, port {}", supervisor.port)), "{said}");
    let said: Value = serde_json::from_str(&ask_for(&node, &["identity", "--json"])?).map_err(|e| e.to_string())?;
    assert_eq!(said["supervisor"]["program"], "k3s", "{said}");
    agent.stop()?;
    // No request for a certificate was made of the API server.
    assert_eq!(cluster.requests_for(&node.name)?.len(), 0);
    // What a real one is held to.
    let node = cluster.node("k3s-again")?;
    front.has_another_word_for_each_mistake(cluster, &node)?;
    front.takes_a_board(cluster, &node)
}

fn a_token_of_rke2_finds_the_api_on_another_port(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start_rke2(cluster)?;
    let (front, node) = (Front::of(&supervisor), cluster.node("rke2-board")?);
    supervisor.become_a(Manner::DatedFromBirth);
    let mut agent = front.launch(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.check()?;
    assert_eq!(certified(&supervisor)[0].line, "POST /v1-rke2/client-kubelet.crt HTTP/1.1");
    let kubeconfig = read(&node, "kubeconfig")?;
    assert!(!kubeconfig.contains(":9345"), "that is no API server: {kubeconfig}");
    agent.stop()?;
    let mut agent = is_due(cluster, &node)?;
    agent.wait_for_line(&["a new certificate is in use"], SOON * 3)?;
    let asked = certified(&supervisor);
    assert_eq!((asked.len(), asked[1].status, asked[1].certificate.as_deref()), (2, 200, Some(node.user.as_str())));
    Ok(())
}

fn a_supervisor_that_the_token_does_not_name_is_told_nothing(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let (front, node) = (Front::of(&supervisor), cluster.node("k3s-lured")?);
    // The token of another cluster; then this cluster's, and somebody who shows another CA.
    for (front, manner) in [(front.of_another(), Manner::Recent), (front, Manner::OtherAuthority)] {
        supervisor.become_a(manner);
        let mut agent = front.launch(&node).start(cluster)?;
        let line = agent.wait_for_line(&["pin-mismatch"], SOON * 2)?;
        assert!(line.contains("a new token"), "what to do: {line}");
        agent.stop()?;
        let asked = supervisor.asked();
        assert!(asked.iter().all(|asked| asked.line.contains("/cacerts") && !asked.holds_a_secret()), "{asked:#?}");
    }
    assert_eq!(cluster.find_node(&node.name)?, None);
    Ok(())
}

fn a_token_with_another_password_is_told(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let (front, node) = (Front::of(&supervisor).mistaken(), cluster.node("k3s-mistaken")?);
    let mut agent = front.launch(&node).start(cluster)?;
    let line = agent.wait_for_line(&["token-unknown"], SOON * 2)?;
    assert!(line.contains("/var/lib/rancher/k3s/server/token"), "{line}");
    is_silent_of(&agent, &front.token)?;
    assert_eq!(certified(&supervisor).len(), 0, "no name was taken");
    Ok(())
}

fn another_board_of_the_same_name_is_told_until_its_password_is_forgotten(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let (front, node) = (Front::of(&supervisor), cluster.node("k3s-twice")?);
    let mut agent = front.launch(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.stop()?;
    fs::remove_dir_all(node.dir.join("state")).map_err(|e| e.to_string())?;
    let mut agent = front.launch(&node).start(cluster)?;
    let line = agent.wait_for_line(&["node-password-differs"], SOON * 2)?;
    let secret = format!("{}.node-password.k3s", node.name);
    assert!(line.contains(&format!("kubectl -n kube-system delete secret {secret}")), "{line}");
    let said = certified(&supervisor).last().and_then(|asked| asked.header("k3s-node-password").map(str::to_owned));
    cluster.kubectl(&["-n", "kube-system", "delete", "secret", &secret])?;
    // A person need not wait.
    agent.signal(Signal::SIGHUP)?;
    agent.wait_for_line(&["certificate-issued"], SOON * 2)?;
    agent.wait_for_line(&["lease-held"], SOON)?;
    assert_eq!(said, Some(password(&node)?), "with the password that was refused");
    Ok(())
}

fn a_supervisor_that_is_not_ready_is_waited_for(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let node = cluster.node("k3s-early")?;
    supervisor.become_a(Manner::NotReady);
    let mut agent = Front::of(&supervisor).launch(&node).start(cluster)?;
    agent.wait_for_line(&["supervisor-busy"], SOON * 2)?;
    supervisor.become_a(Manner::Recent);
    agent.wait_for_line(&["certificate-issued"], SOON * 4)?;
    agent.wait_for_line(&["lease-held"], SOON).map(drop)
}

fn a_key_that_agents_share_is_taken_only_when_the_settings_allow_it(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let node = cluster.node("k3s-shared")?;
    supervisor.become_a(Manner::SharedKey);
    let mut agent = Front::of(&supervisor).launch(&node).start(cluster)?;
    agent.wait_for_line(&["shared-key", "k3sSharedKey"], SOON * 2)?;
    assert_eq!(cluster.find_node(&node.name)?, None);
    agent.reload_with("k3sSharedKey", "true")?;
    agent.wait_for_line(&["certificate-issued"], SOON * 2)?;
    wait_until_ready(cluster, &node).map(drop)
}

/// As if it had come long ago: its certificate, of 300 days ago, is due.
fn is_due(cluster: &Cluster, node: &NodeIdentity) -> Result<Nodepulse> {
    let text = read(node, "node.pem")?;
    let (_, rest) = text.split_once('\n').ok_or("an empty file")?;
    let (begin, end) = dates(&text[text.find("-----BEGIN CERTIFICATE").unwrap_or_default()..])?;
    assert!(now_us() / 1_000_000 > begin + (end - begin) * 2 / 5, "it is not yet due");
    fs::write(folder(node).join("node.pem"), format!("received 2001-01-01T00:00:00Z\n{rest}"))
        .map_err(|e| e.to_string())?;
    Launch::quick(node).without_kubeconfig().start(cluster)
}

fn a_certificate_is_renewed_over_the_supervisor_and_the_one_in_use_shows_who_asks(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let node = cluster.node("k3s-renewed")?;
    supervisor.become_a(Manner::DatedFromBirth);
    let mut agent = Front::of(&supervisor).launch(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["lease-held"], SOON)?;
    agent.stop()?;
    let (first, known) = (issued(&node)?, password(&node)?);
    assert_eq!(certified(&supervisor).len(), 1, "what is dated from the birth of its CA is not due on arrival");
    let mut agent = is_due(cluster, &node)?;
    agent.wait_for_line(&["a new certificate is in use"], SOON * 3)?;
    wait_until("the new certificate on the disk", SOON, || {
        if issued(&node)? != first { Ok(()) } else { Err("it is the first one".to_owned()) }
    })?;
    let asked = certified(&supervisor);
    let [_, renewal] = asked.as_slice() else { return Err(format!("{asked:#?}")) };
    assert_eq!((renewal.status, renewal.certificate.as_deref()), (200, Some(node.user.as_str())));
    assert_eq!(renewal.header("authorization"), None, "the certificate shows who asks");
    assert_eq!(renewal.header("k3s-node-password"), Some(known.as_str()));
    assert_eq!(cluster.requests_for(&node.name)?.len(), 0);
    agent.check()
}

/// The server says 401 to it. The password of nodes does not end.
fn a_certificate_that_has_ended_is_replaced_with_the_token(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let (front, node) = (Front::of(&supervisor), cluster.node("k3s-ended")?);
    let mut agent = front.launch(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.stop()?;
    let ended = supervisor.client_authority().client(&node.user, Some("system:nodes"), Validity::Expired)?;
    let text = format!("received unknown\n{}{}", ended.certificate, ended.key);
    fs::write(folder(&node).join("node.pem"), text).map_err(|e| e.to_string())?;
    let mut agent = front.launch(&node).start(cluster)?;
    agent.wait_for_line(&["certificate-issued"], SOON * 8)?;
    agent.wait_for_line(&["lease-held"], SOON * 2)?;
    let asked = certified(&supervisor);
    let last = asked.last().ok_or("nothing was asked")?;
    assert!(last.certificate.is_none() && last.header("authorization").is_some(), "{last:?}");
    agent.check()
}

fn a_person_types_the_same_command_as_for_kubeadm(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let (front, node) = (Front::of(&supervisor), cluster.node("k3s-typed")?);
    fs::create_dir_all(node.dir.join("state")).map_err(|e| e.to_string())?;
    let name = format!("--hostname-override={}", node.name);
    let said = ask_for(&node, &["join", &front.url, "--token", &front.token, &name])?;
    assert!(said.contains(&format!("Node {} is Ready", node.name)), "{said}");
    assert!(!said.contains(supervisor.password()), "{said}");
    assert_eq!(read(&node, "token")?.trim(), front.token, "the way back, when the certificate has ended");
    let said = ask_for(&node, &["check", &name])?;
    assert!(said.contains("answers, version"), "{said}");
    Ok(())
}

/// Over a connection that the known one verifies, by nobody in particular (CA-1).
fn a_ca_that_a_supervisor_shows_beside_its_own_is_learned(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let (front, node) = (Front::of(&supervisor), cluster.node("k3s-rotated")?);
    let mut agent = front.launch(&node).start(cluster)?;
    agent.wait_for_line(&["lease-held"], SOON * 3)?;
    let (before, known) = (read(&node, "kubeconfig")?, password(&node)?);
    supervisor.become_a(Manner::NextAuthority);
    // It looks once a week; whoever cannot wait tells it to read everything again.
    agent.signal(Signal::SIGHUP)?;
    agent.wait_for_line(&["ca-added"], SOON * 2)?;
    wait_until("another kubeconfig", SOON, || {
        if read(&node, "kubeconfig")? != before { Ok(()) } else { Err("it is as it was".to_owned()) }
    })?;
    let asked = supervisor.asked();
    let last = asked.iter().rfind(|asked| asked.line.contains("/cacerts")).ok_or("nothing was asked")?;
    assert!(!last.holds_a_secret() && last.certificate.is_none(), "{last:?}");
    assert_eq!(password(&node)?, known, "it is the same board");
    assert_eq!(agent.stop()?, 0);
    let mut agent = Launch::quick(&node).without_kubeconfig().start(cluster)?;
    agent.wait_for_line(&["lease-held"], SOON * 3)?;
    agent.check()
}

/// Each connection: before anybody is proven, and after.
fn a_board_behind_a_proxy_joins_through_it(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let tunnel = proxy::Proxy::start((Ipv4Addr::LOCALHOST, free_port()?).into(), 0, proxy::Manner::Tunnel)?;
    let node = cluster.node("k3s-proxied")?;
    let launch = Front::of(&supervisor).launch(&node).set("proxyURL", &format!("'http://{}'", tunnel.address));
    let mut agent = launch.start(cluster)?;
    agent.wait_for_line(&["lease-held"], SOON * 3)?;
    let tunnels = tunnel.asked();
    let expected = format!("CONNECT 127.0.0.1:{} HTTP/1.1", supervisor.port);
    assert!(tunnels.len() >= 3 && tunnels.iter().all(|line| *line == expected), "{tunnels:?}");
    assert_eq!(supervisor.connections(), tunnels.len(), "nothing went past it");
    Ok(())
}

/// The Nodes stay there, as no node may delete its own: each has a name of its own.
fn a_real_k3s_takes_a_board_with_its_token(cluster: &Cluster) -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(url), Some(token)) = (variable("K3S_URL"), variable("K3S_TOKEN")) else {
        leave_to_others(
            "a_real_k3s_takes_a_board_with_its_token",
            "set K3S_URL and K3S_TOKEN to those of a k3s server",
        );
        return Ok(());
    };
    let front = Front { url, token };
    let node = cluster.node_named(&cluster.api, &format!("nodepulse-test-{:x}", now_us()))?;
    front.has_another_word_for_each_mistake(cluster, &node)?;
    front.takes_a_board(cluster, &node)
}
