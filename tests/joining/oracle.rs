//! Turns kubeadm's own join, tried without changing anything, into the judge of our impostors: each is refused by kubeadm for the
//! reason it was made for, and the one attack that kubeadm does not notice works on it.

use super::cluster::joining::{KUBEADM_GROUP, Token};
use super::cluster::pki::{Authority, Validity};
use super::cluster::{Cluster, Options, Result};
use super::impostor::{Impostor, cluster_info, tampered};
use super::trials::{Case, Need};
use std::fs;
use std::process::{Command, Stdio};

pub fn cases() -> Vec<Case> {
    cases![&[Need::Root], kubeadm_refuses_each_impostor_but_one]
}

/// What kubeadm says of this server: it ends by itself after ten seconds without a verdict.
fn discover(cluster: &Cluster, server: &str, token: &Token, pin: &str) -> Result<String> {
    let folder = cluster.folder().join("kubeadm-join");
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let config = folder.join("join.yaml");
    let text = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration: {{name: oracle, criSocket: unix:///nowhere.sock}}
timeouts: {{discovery: 10s, tlsBootstrap: 10s, kubernetesAPICall: 10s}}
discovery:
  bootstrapToken:
    apiServerEndpoint: {server}
    token: {token}
    caCertHashes: [\"{pin}\"]
"
    );
    fs::write(&config, text).map_err(|e| e.to_string())?;
    let program = cluster.kubectl_program().with_file_name("kubeadm");
    let output = Command::new(program)
        .args(["join", "--dry-run", "--ignore-preflight-errors=all", "--v=5", "--config"])
        .arg(&config)
        .env("KUBEADM_JOIN_DRYRUN_DIR", &folder)
        .env("HOME", &folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn was_used(cluster: &Cluster, token: &Token) -> Result<bool> {
    let user = format!("system:bootstrap:{}", token.id);
    Ok(!cluster.api.audit(|e| e.user == user)?.is_empty())
}

fn kubeadm_refuses_each_impostor_but_one(_: &Cluster) -> Result<()> {
    let cluster = Cluster::start(Options::default())?;
    let own = format!("127.0.0.1:{}", cluster.api.port);
    let token = cluster.token(&[KUBEADM_GROUP], None)?;
    let other = Authority::new("another-cluster")?;
    let said = discover(&cluster, &own, &token, other.pin())?;
    assert!(said.contains("cluster CA found in cluster-info ConfigMap is invalid"), "{said}");
    let wrong = Token { secret: "zzzzzzzzzzzzzzzz".to_owned(), ..token.clone() };
    let said = discover(&cluster, &own, &wrong, cluster.pin())?;
    assert!(said.contains("failed to verify JWS signature"), "{said}");
    let impostor = Impostor::start(cluster.authority(), Validity::Now, None)?;
    let at = format!("127.0.0.1:{}", impostor.port);
    impostor.say(tampered(&cluster.api, &impostor.url())?);
    let said = discover(&cluster, &at, &token, cluster.pin())?;
    assert!(said.contains("failed to verify JWS signature"), "{said}");
    assert!(!impostor.was_told(&token) && !was_used(&cluster, &token)?);
    // Whoever knows the token adds a certificate of his own to the one that is pinned.
    let thief = Authority::new("thief")?;
    let lure = Impostor::start(&thief, Validity::Now, None)?;
    lure.say(cluster_info(&lure.url(), &[cluster.authority(), &thief], &token));
    let said = discover(&cluster, &format!("127.0.0.1:{}", lure.port), &token, cluster.pin())?;
    assert!(lure.was_told(&token), "kubeadm has become careful: {said}");
    // And honestly.
    let said = discover(&cluster, &own, &token, cluster.pin())?;
    assert!(was_used(&cluster, &token)?, "{said}");
    Ok(())
}
