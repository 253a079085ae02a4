//! Turns the supervisor of `support/supervisor.rs` on itself: each rule that a board is held to is a rule there, and the API
//! server behind it knows whose request it was (K3S-1 to K3S-6).

use super::super::cluster::joining::KUBEADM_GROUP;
use super::super::cluster::{Client, Cluster, Reply, Result, node_path, pki, wait_until};
use super::super::pkcs10::{Curve, node_subject, request};
use super::super::supervisor::{Manner, Supervisor};
use super::super::trials::Case;
use super::{SOON, stored_node};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::json;

const CERTIFICATE: &str = "/v1-k3s/client-kubelet.crt";

pub fn cases() -> Vec<Case> {
    cases![&[], the_supervisor_hands_out_and_refuses_as_k3s_does, the_supervisor_can_be_out_of_sorts]
}

fn basic(supervisor: &Supervisor) -> String {
    let token = supervisor.node_token();
    let user = token.split("::").nth(1).unwrap_or_default();
    format!("Basic {}", BASE64_STANDARD.encode(user))
}

/// What a board that is nobody yet is answered to a request for its certificate.
fn ask(client: &Client, name: &str, headers: &[(&'static str, &str)]) -> Result<Reply> {
    let der = request(&node_subject(name), Curve::P256, &[])?;
    let client = headers.iter().fold(client.clone(), |client, (name, value)| client.with_header(name, value));
    client.send("POST", CERTIFICATE, "application/octet-stream", &der)
}

fn text(reply: &Reply) -> String {
    reply.body.as_str().map_or_else(|| reply.body.to_string(), str::to_owned)
}

fn the_supervisor_hands_out_and_refuses_as_k3s_does(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "k3s")?;
    let authority = supervisor.server_authority().certificate();
    let nobody = Client::anonymous(supervisor.port, Some(&authority))?;
    let shown = nobody.request("GET", "/cacerts", None)?;
    assert_eq!((shown.status, text(&shown)), (200, authority.clone()));
    assert_eq!(supervisor.node_token().len(), "K10".len() + 64 + "::node:".len() + 32);
    let auth = basic(&supervisor);
    let name = format!("k3s-{}", supervisor.port);
    let password = ("k3s-Node-Password", "00112233445566778899aabbccddeeff");
    // Each header by itself; a name is stored with the first password that comes with it.
    let named = ("k3s-Node-Name", name.as_str());
    for (status, headers) in [
        (403, vec![named, password]),
        (401, vec![("Authorization", "Basic bm9kZTp3cm9uZw=="), named, password]),
        (401, vec![("Authorization", "Bearer abcdef.0123456789abcdef"), named, password]),
        (400, vec![("Authorization", &auth), password]),
        (400, vec![("Authorization", &auth), named]),
        (200, vec![("Authorization", &auth), named, password]),
        (200, vec![("Authorization", &auth), named, password]),
        (403, vec![("Authorization", &auth), named, ("k3s-Node-Password", "other")]),
    ] {
        let reply = ask(&nobody, &name, &headers)?;
        assert_eq!(reply.status, status, "{headers:?}: {}", reply.body);
    }
    // A token that can be taken back.
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let bearer = format!("Bearer {token}");
    let reply = ask(&nobody, &name, &[("Authorization", &bearer), named, password])?;
    let issued = text(&reply);
    assert_eq!(issued.matches("BEGIN CERTIFICATE").count(), 2, "leaf and CA: {issued}");
    assert!(!issued.contains("PRIVATE KEY"));
    as_the_node(cluster, &supervisor, &name, &password)
}

/// With a certificate of the client CA: renewal, the API behind, and whose the requests are.
fn as_the_node(
    cluster: &Cluster,
    supervisor: &Supervisor,
    name: &str,
    password: &(&'static str, &'static str),
) -> Result<()> {
    let (user, authority) = (format!("system:node:{name}"), supervisor.server_authority().certificate());
    let keys = supervisor.client_authority().client(&user, Some("system:nodes"), pki::Validity::Now)?;
    let node = Client::new(supervisor.port, Some(&authority), &keys)?;
    let named = ("k3s-Node-Name", name);
    assert_eq!(ask(&node, name, &[named, *password])?.status, 401, "there is no such Node");
    node.post("/api/v1/nodes", &stored_node(name, json!({})))?;
    assert_eq!(ask(&node, name, &[named, *password])?.status, 200);
    assert_eq!(ask(&node, name, &[("k3s-Node-Name", "another"), *password])?.status, 400);
    assert_eq!(node.request("GET", &node_path(name), None)?.status, 200);
    assert_eq!(node.request("GET", "/api/v1/secrets", None)?.status, 403);
    wait_until("its requests in the audit log", SOON, || {
        let seen = supervisor.api().audit(|e| e.user == user && e.verb == "create" && e.code == 201)?;
        if seen.len() == 1 { Ok(()) } else { Err(format!("{seen:?}")) }
    })?;
    for (path, word) in [
        ("/v1-k3s/server-ca.crt", "BEGIN CERTIFICATE"),
        ("/v1-k3s/apiservers", &format!("127.0.0.1:{}", supervisor.port)),
    ] {
        let reply = node.request("GET", path, None)?;
        assert!(reply.status == 200 && text(&reply).contains(word), "{path}: {reply:?}");
    }
    // Nobody is told anything by the API server: as on k3s, anonymous access means little.
    let nobody = Client::anonymous(supervisor.port, Some(&authority))?;
    assert!(matches!(nobody.request("GET", "/api/v1/nodes", None)?.status, 401 | 403));
    let secret = format!("/api/v1/namespaces/kube-system/secrets/{name}.node-password.k3s");
    cluster.api.admin.delete(&secret)?;
    let asked = supervisor.asked();
    assert!(asked.iter().filter(|e| e.line.contains("/cacerts")).all(|e| !e.holds_a_secret()), "{asked:?}");
    Ok(())
}

fn the_supervisor_can_be_out_of_sorts(cluster: &Cluster) -> Result<()> {
    let supervisor = Supervisor::start(cluster, "rke2")?;
    let authority = supervisor.server_authority().certificate();
    let nobody = Client::anonymous(supervisor.port, Some(&authority))?;
    let auth = basic(&supervisor);
    let name = format!("rke2-{}", supervisor.port);
    let headers = [
        ("Authorization", auth.as_str()),
        ("rke2-Node-Name", name.as_str()),
        ("rke2-Node-Password", "00112233445566778899aabbccddeeff"),
    ];
    let ask = |manner: Manner| -> Result<Reply> {
        supervisor.become_a(manner);
        let der = request(&node_subject(&name), Curve::P256, &[])?;
        let client = headers.iter().fold(nobody.clone(), |client, (name, value)| client.with_header(name, value));
        client.send("POST", "/v1-rke2/client-kubelet.crt", "application/octet-stream", &der)
    };
    assert_eq!(ask(Manner::Busy)?.status, 429);
    assert_eq!(ask(Manner::NotReady)?.status, 503);
    let shared = text(&ask(Manner::SharedKey)?);
    assert!(shared.contains("PRIVATE KEY"), "{shared}");
    let born = text(&ask(Manner::DatedFromBirth)?);
    let (begin, end) = pki::dates(&born)?;
    assert!(end - begin > 600 * 86_400, "{begin} to {end}");
    assert!(!born.contains("PRIVATE KEY"));
    assert_eq!(ask(Manner::WrongName)?.status, 200);
    supervisor.become_a(Manner::OtherAuthority);
    assert_ne!(text(&nobody.request("GET", "/cacerts", None)?), authority);
    Ok(())
}
