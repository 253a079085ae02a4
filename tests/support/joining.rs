//! Turns a cluster into one that boards join by themselves: kubeadm's cluster-info and bindings, bootstrap tokens, requests
//! for certificates and who answers them, and the change of its certificate authority.

use super::daemon::write_private;
use super::{Cluster, Result, identity, start_controller_manager, wait_for_controllers, wait_until};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use ring::hmac;
use serde_json::{Value, json};
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

pub const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
pub const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
/// The group of kubeadm's tokens: what asks in it is approved by itself.
pub const KUBEADM_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
/// The group of the tokens of a fleet: what it may is in `targets/kubernetes`.
pub const FLEET_GROUP: &str = "system:bootstrappers:nodepulse";

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const SOON: Duration = Duration::from_secs(15);

/// A bootstrap token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Six characters that everybody may know.
    pub id: String,
    /// Sixteen that nobody may.
    pub secret: String,
}

/// `ID.SECRET`, as it is typed.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.secret)
    }
}

impl Token {
    /// The signature of cluster-info with this token, as the bootstrap signer writes it: a JWS without its content.
    pub fn signature(&self, kubeconfig: &str) -> String {
        let encoded = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let head = encoded(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, self.id).as_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        let signed = hmac::sign(&key, format!("{head}.{}", encoded(kubeconfig.as_bytes())).as_bytes());
        format!("{head}..{}", encoded(signed.as_ref()))
    }

    /// The key of cluster-info with that signature.
    pub fn signature_key(&self) -> String {
        format!("jws-kubeconfig-{}", self.id)
    }
}

/// How far a cluster is on its way to another certificate authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// Both are trusted and announced; the old one signs.
    Announced,
    /// Both are trusted and announced; the new one signs.
    Signing,
    /// Nothing but the new one. Straight to here is a rotation without overlap.
    Over,
}

/// Tokens.
impl Cluster {
    /// A new token of these groups; without `lifetime` it lives for ever. Its signature is in cluster-info already.
    pub fn token(&self, groups: &[&str], lifetime: Option<Duration>) -> Result<Token> {
        let token = self.new_token();
        self.put_token(&token, groups, lifetime)?;
        self.wait_for_signature(&token)?;
        Ok(token)
    }

    /// A token that the cluster knows nothing of yet.
    pub fn new_token(&self) -> Token {
        let number = self.next_name.fetch_add(1, Ordering::Relaxed);
        let digest = ring::digest::digest(&ring::digest::SHA256, format!("{number} {:?}", self.home().path).as_bytes());
        let secret: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Token { id: format!("{number:06x}"), secret }
    }

    /// Makes this token valid, as `kubeadm token create` does.
    pub fn put_token(&self, token: &Token, groups: &[&str], lifetime: Option<Duration>) -> Result<()> {
        self.make_joinable()?;
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{}", token.id)},
            "stringData": {
                "token-id": token.id, "token-secret": token.secret,
                "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
                "auth-extra-groups": groups.join(","),
            },
        });
        if let Some(lifetime) = lifetime {
            secret["stringData"]["expiration"] = stamp(SystemTime::now() + lifetime)?.into();
        }
        self.api.admin.post(SECRETS, &secret).map(drop)
    }

    pub fn delete_token(&self, token: &Token) -> Result<()> {
        self.api.admin.delete(&format!("{SECRETS}/bootstrap-token-{}", token.id)).map(drop)
    }

    /// Until cluster-info is signed with this token, as it is now.
    pub fn wait_for_signature(&self, token: &Token) -> Result<()> {
        wait_until(&format!("the signature of token {}", token.id), SOON, || {
            let info = self.api.admin.get(CLUSTER_INFO)?;
            let kubeconfig = info["data"]["kubeconfig"].as_str().unwrap_or_default();
            let found = &info["data"][token.signature_key()];
            if *found == token.signature(kubeconfig) { Ok(()) } else { Err(format!("there is {found}")) }
        })
    }

    /// What `kubeadm` says, run as the administrator.
    pub fn kubeadm(&self, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.admin_kubeconfig().display().to_string();
        self.run_as_admin("kubeadm", &[arguments, &["--kubeconfig", &kubeconfig]].concat())
    }

    /// cluster-info, and the bindings that kubeadm makes; once.
    pub fn make_joinable(&self) -> Result<()> {
        self.joining.get_or_init(|| self.run_bootstrap_phase()).clone()
    }

    fn run_bootstrap_phase(&self) -> Result<()> {
        let folder = &self.home().path;
        let version = self.api.admin.get("/version")?;
        // Nobody is told the token that it insists on making.
        let token = self.new_token();
        let text = format!(
            "apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{{token: '{token}', ttl: 1h0m0s}}]
localAPIEndpoint: {{advertiseAddress: 192.0.2.1, bindPort: {port}}}
nodeRegistration: {{name: control-plane, criSocket: unix:///nowhere.sock}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: {version}
controlPlaneEndpoint: 127.0.0.1:{port}
certificatesDir: {folder}
",
            port = self.api.port,
            version = version["gitVersion"].as_str().unwrap_or_default(),
            folder = folder.display(),
        );
        let file = write_private(&folder.join("kubeadm.yaml"), &text)?.display().to_string();
        self.kubeadm(&["init", "phase", "bootstrap-token", "--skip-token-print", "--config", &file]).map(drop)
    }
}

/// Requests for certificates.
impl Cluster {
    pub fn requests(&self) -> Result<Vec<Value>> {
        let list = self.api.admin.get(REQUESTS)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Those with which somebody wants to be this node, oldest first.
    pub fn requests_for(&self, node: &str) -> Result<Vec<Value>> {
        let asks_for = |request: &Value| {
            let pem = BASE64_STANDARD.decode(request["spec"]["request"].as_str()?).ok()?;
            let text: String = String::from_utf8(pem).ok()?.lines().filter(|line| !line.starts_with('-')).collect();
            let der = BASE64_STANDARD.decode(text).ok()?;
            // A common name stands there as a PrintableString of this length.
            let user = format!("system:node:{node}");
            let wanted = [&[0x13, u8::try_from(user.len()).ok()?], user.as_bytes()].concat();
            der.windows(wanted.len()).any(|window| window == wanted).then_some(())
        };
        let mut found: Vec<Value> = self.requests()?.into_iter().filter(|r| asks_for(r).is_some()).collect();
        found.sort_by_key(|r| r["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned());
        Ok(found)
    }

    pub fn approve(&self, request: &str) -> Result<()> {
        self.kubectl(&["certificate", "approve", request]).map(drop)
    }

    pub fn deny(&self, request: &str) -> Result<()> {
        self.kubectl(&["certificate", "deny", request]).map(drop)
    }

    pub fn delete_request(&self, request: &str) -> Result<()> {
        self.api.admin.delete(&format!("{REQUESTS}/{request}")).map(drop)
    }
}

/// The certificate authority. What changes the whole cluster is only for a test that has one to itself.
impl Cluster {
    /// The one that signs.
    pub fn authority(&self) -> &super::pki::Authority {
        &self.pki.authority
    }

    /// The pin of the authority that signs.
    pub fn pin(&self) -> &str {
        self.pki.authority.pin()
    }

    /// The pin of the authority that will sign after a rotation, or that did before it.
    pub fn other_pin(&self) -> &str {
        self.pki.other_authority.pin()
    }

    /// From now on certificates live so long.
    pub fn sign_for(&mut self, duration: Duration) -> Result<()> {
        self.options.signing_duration = duration;
        self.restart_controller_manager()
    }

    /// Without its controllers nobody approves, signs, cleans up or judges. They come back with `sign_for`.
    pub fn stop_controllers(&mut self) -> Result<()> {
        self.controller_manager.kill()
    }

    /// Everything starts again on the new terms; kubeadm writes cluster-info anew, and it is signed again.
    pub fn rotate(&mut self, to: Rotation) -> Result<()> {
        self.make_joinable()?;
        let swap = to != Rotation::Announced && !self.has_rotated;
        self.has_rotated |= swap;
        self.pki.rotate(&self.home, swap, to != Rotation::Over)?;
        self.api.rotate(&self.pki, &self.options.more_addresses)?;
        let (folder, url) = (&self.home.path, self.api.url());
        identity::write_kubeconfig(folder, "admin", &url, &self.pki.trusted, &self.pki.admin)?;
        self.restart_controller_manager()?;
        self.run_bootstrap_phase()
    }

    fn restart_controller_manager(&mut self) -> Result<()> {
        // It may have been ended already.
        let _ = self.controller_manager.kill();
        let program = &self.programs["kube-controller-manager"];
        self.controller_manager = start_controller_manager(&self.home, program, &self.pki, &self.api, &self.options)?;
        wait_for_controllers(&self.api, &mut self.controller_manager)
    }
}

/// RFC 3339, in whole seconds.
pub fn stamp(time: SystemTime) -> Result<String> {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_err(|e| e.to_string())?.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // The proleptic Gregorian calendar, with years that begin in March: the inverse of `audit::micros`.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    Ok(format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60))
}
