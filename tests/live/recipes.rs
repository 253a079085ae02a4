//! Turns `targets/kubernetes/joining.md` into commands, each of which is typed on a real cluster and has the effect that the page
//! promises.

use super::super::cluster::joining::{CLUSTER_INFO, REQUESTS};
use super::super::cluster::{Client, Cluster, NodeIdentity, Options, Result, Token, node_path, wait_until};
use super::super::pkcs10::{Curve, node_subject, pem, request};
use super::super::trials::{Case, Need};
use super::fence::FOLDER;
use super::{SOON, stored_node};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", "targets/kubernetes/joining.md"));
const FILES: [&str; 4] = ["bootstrap.yaml", "names-policy", "auto-approve.yaml", "revoked.yaml"];

pub fn cases() -> Vec<Case> {
    cases![&[Need::Openssl], every_command_of_the_page_works_as_typed]
}

/// What stands behind a prompt, and what stands in the text and begins with a program of the administrator's.
fn commands() -> Vec<String> {
    let mut found = Vec::new();
    for line in PAGE.lines().map(str::trim) {
        if let Some(command) = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ").filter(|c| is_typed(c))) {
            found.push(command.to_owned());
            continue;
        }
        let spans = line.split('`').skip(1).step_by(2);
        found.extend(spans.filter(|span| is_typed(span)).map(str::to_owned));
    }
    found
}

fn is_typed(text: &str) -> bool {
    ["kubectl ", "kubeadm ", "openssl ", "cat "].iter().any(|program| text.starts_with(program))
}

struct World {
    cluster: Cluster,
    folder: PathBuf,
    token: Token,
    stolen: NodeIdentity,
    /// A board that asks in a group of which nobody approves by himself.
    by_hand: Client,
    /// `$REQUEST` of the page.
    request: String,
    boards: u32,
}

fn every_command_of_the_page_works_as_typed(_: &Cluster) -> Result<()> {
    let cluster = Cluster::start(Options::default())?;
    cluster.make_joinable()?;
    let folder = cluster.folder().join("page");
    fs::create_dir(&folder).map_err(|e| e.to_string())?;
    for name in FILES {
        fs::copy(format!("{FOLDER}/{name}"), folder.join(name)).map_err(|e| format!("{name}: {e}"))?;
    }
    let stolen = cluster.node_named(&cluster.api, "edge-77")?;
    let token = Token { id: "fleet1".to_owned(), secret: "0123456789abcdef".to_owned() };
    let group = "system:bootstrappers:by-hand";
    let (role, bound) = ("--clusterrole=system:node-bootstrapper", format!("--group={group}"));
    cluster.kubectl(&["create", "clusterrolebinding", "by-hand", role, &bound])?;
    let bearer = format!("Bearer {}", cluster.token(&[group], None)?);
    let by_hand = cluster.api.anonymous()?.with_header("Authorization", &bearer);
    let mut world = World { cluster, folder, token, stolen, by_hand, request: String::new(), boards: 0 };
    let all = commands();
    assert!(all.len() > 20, "{all:#?}");
    for command in &all {
        world.prepare(command)?;
        let said = world.run(command)?;
        world.judge(command, &said).map_err(|e| format!("{command}: {e}"))?;
    }
    Ok(())
}

impl World {
    fn run(&self, command: &str) -> Result<String> {
        let programs = self.cluster.kubectl_program().parent().ok_or("kubectl is nowhere")?;
        let authority = self.cluster.authority_file().display().to_string();
        let output = Command::new("sh")
            .args(["-ec", &command.replace("/etc/kubernetes/pki/ca.crt", &authority)])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default()))
            .env("KUBECONFIG", self.cluster.admin_kubeconfig())
            .env("HOME", self.cluster.folder())
            .env("REQUEST", &self.request)
            .output()
            .map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        Err(format!("{command}: {}{said}", String::from_utf8_lossy(&output.stderr)))
    }

    /// What has to be there before: a request, or a Node.
    fn prepare(&mut self, command: &str) -> Result<()> {
        if command.contains("csr") || command.contains("kubectl certificate") {
            self.boards += 1;
            self.request = format!("node-csr-{}", self.boards);
            self.by_hand.post(REQUESTS, &request_of(&self.request, "edge-80")?)?;
        }
        if let Some(name) = command.strip_prefix("kubectl -n kube-system delete secret ") {
            // Which a server of k3s has made.
            self.cluster.kubectl(&["-n", "kube-system", "create", "secret", "generic", name])?;
        }
        for name in ["edge-77", "edge-78"] {
            if command.contains(&format!("delete node {name}")) && self.cluster.find_node(name)?.is_none() {
                self.cluster.create_node(&stored_node(name, json!({})))?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, command: &str, said: &str) -> Result<()> {
        let pin = self.cluster.pin().trim_start_matches("sha256:");
        match command {
            _ if command.starts_with("kubeadm token create fleet1") => self.a_board_joins()?,
            _ if command.starts_with("kubectl config view") => assert!(said.starts_with(pin), "{said}"),
            _ if command.contains("bootstrap-token-fleet2") => {
                let token = Token { id: "fleet2".to_owned(), ..self.token.clone() };
                self.cluster.wait_for_signature(&token)?;
                self.asks_as(&token)?;
            }
            _ if command.contains("certificate approve") => self.wait_for("certificate")?,
            _ if command.contains("certificate deny") => self.wait_for("conditions")?,
            _ if command.contains("stolen") => self.stolen_is_told(422)?,
            _ if command.contains("null") => self.stolen_is_told(201)?,
            _ if command.starts_with("kubectl -n kube-public create") => {
                self.cluster.wait_for_signature(&self.token)?;
                let info = self.cluster.api.anonymous()?.get(CLUSTER_INFO)?;
                let text = info["data"]["kubeconfig"].as_str().unwrap_or_default();
                let data = text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: "));
                let pem = BASE64_STANDARD.decode(data.unwrap_or_default()).map_err(|e| e.to_string())?;
                assert_eq!(String::from_utf8_lossy(&pem).matches("BEGIN CERTIFICATE").count(), 2, "{text}");
            }
            _ => {}
        }
        Ok(())
    }

    fn with(&self, token: &Token) -> Result<Client> {
        Ok(self.cluster.api.anonymous()?.with_header("Authorization", &format!("Bearer {token}")))
    }

    /// With that token it may look, and ask for a certificate of the fleet's names alone.
    fn asks_as(&self, token: &Token) -> Result<()> {
        let client = self.with(token)?;
        assert_eq!(client.request("GET", &node_path("edge-1"), None)?.status, 404);
        wait_until("the fence", SOON, || {
            let body = request_of("attack", "cp-1")?;
            let reply = client.request("POST", &format!("{REQUESTS}?dryRun=All"), Some(("application/json", &body)))?;
            if reply.status == 422 { Ok(()) } else { Err(format!("{} {}", reply.status, reply.body)) }
        })
    }

    /// With the fleet's token a board asks, and nobody has to approve.
    fn a_board_joins(&mut self) -> Result<()> {
        self.cluster.wait_for_signature(&self.token)?;
        self.asks_as(&self.token)?;
        self.boards += 1;
        self.request = format!("node-csr-{}", self.boards);
        let body = request_of(&self.request, &format!("edge-{}", self.boards))?;
        self.with(&self.token)?.post(REQUESTS, &body)?;
        self.wait_for("certificate")
    }

    fn wait_for(&self, field: &str) -> Result<()> {
        wait_until(field, SOON, || {
            let found = self.cluster.api.admin.get(&format!("{REQUESTS}/{}", self.request))?;
            if found["status"][field].is_null() { Err(found["status"].to_string()) } else { Ok(()) }
        })
    }

    fn stolen_is_told(&self, status: u16) -> Result<()> {
        let body = stored_node(&self.stolen.name, json!({}));
        wait_until("the policy to hold", SOON, || {
            let path = "/api/v1/nodes?dryRun=All";
            let reply = self.stolen.client.request("POST", path, Some(("application/json", &body)))?;
            if reply.status == status { Ok(()) } else { Err(format!("{} {}", reply.status, reply.body)) }
        })
    }
}

fn request_of(name: &str, node: &str) -> Result<Value> {
    let text = pem(&request(&node_subject(node), Curve::P256, &[])?);
    Ok(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {
            "request": BASE64_STANDARD.encode(text), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }))
}
