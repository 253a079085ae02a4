//! Turns a node's name into its certificate and kubeconfig, in order or with one thing wrong on purpose.

use super::Result;
use super::apiserver::ApiServer;
use super::client::Client;
use super::daemon::write_private;
use super::pki::{Authority, Keypair, Validity};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a node brings to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// `system:node:NAME` in `system:nodes`.
    Valid,
    Expired,
    NotYetValid,
    /// From five minutes ago, for so long from now on.
    Ending(Duration),
    /// The same from ten hours ago.
    Old(Duration),
    /// Signed by an authority that the server does not know: 401.
    OtherClientAuthority,
    /// The kubeconfig trusts another authority than the server's: no handshake.
    OtherServerAuthority,
    /// The right name without the group: nothing is allowed, 403.
    NoGroup,
}

/// A node's name and everything it needs to be that node.
pub struct NodeIdentity {
    pub name: String,
    /// The user that the server sees: `system:node:NAME`.
    pub user: String,
    pub kubeconfig: PathBuf,
    /// A folder of its own, for settings and state. It goes away with the cluster.
    pub dir: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: PathBuf,
    /// A client of the test's own with this identity (whatever is wrong with it, this one trusts the server).
    pub client: Client,
}

impl NodeIdentity {
    pub(super) fn new(
        folder: &Path,
        name: &str,
        api: &ApiServer,
        authority: &Authority,
        credential: Credential,
    ) -> Result<Self> {
        let dir = folder.join(name);
        fs::create_dir(&dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))?;
        let user = format!("system:node:{name}");
        let (own, trusted) = keys(&user, authority, credential)?;
        let trusted = trusted.as_ref().unwrap_or(authority);
        let kubeconfig = write_kubeconfig(&dir, "node", &api.url(), &trusted.certificate(), &own)?;
        Ok(Self {
            name: name.to_owned(),
            user,
            kubeconfig,
            certificate: dir.join("node.crt"),
            key: dir.join("node.key"),
            authority: dir.join("node-ca.crt"),
            client: api.client(&own)?,
            dir,
        })
    }

    pub(super) fn renew(&self, authority: &Authority, credential: Credential) -> Result<()> {
        let (own, trusted) = keys(&self.user, authority, credential)?;
        let trusted = trusted.as_ref().unwrap_or(authority);
        // Each in one step, as whoever rotates them should; the certificate last, so that it never waits for its key.
        for (path, text) in
            [(&self.authority, &trusted.certificate()), (&self.key, &own.key), (&self.certificate, &own.certificate)]
        {
            let fresh = write_private(&path.with_extension("new"), text)?;
            fs::rename(&fresh, path).map_err(|e| format!("cannot replace {}: {e}", path.display()))?;
        }
        Ok(())
    }

    /// Another kubeconfig of this node, for a way to the server that is not the direct one: a proxy's port,
    /// an address in a network of the test's own.
    pub fn kubeconfig_via(&self, server: &str) -> Result<PathBuf> {
        let text = fs::read_to_string(&self.kubeconfig).map_err(|e| e.to_string())?;
        let lines = text.lines().map(|line| match line.split_once("server: ") {
            Some((indent, _)) => format!("{indent}server: {server}\n"),
            None => format!("{line}\n"),
        });
        let name: String = server.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        write_private(&self.dir.join(format!("{name}.kubeconfig")), &lines.collect::<String>())
    }
}

/// The client's keys, and whom it trusts if that is not the cluster's authority.
fn keys(user: &str, authority: &Authority, credential: Credential) -> Result<(Keypair, Option<Authority>)> {
    let stranger = Authority::new("nobody-trusts-this")?;
    let group = (credential != Credential::NoGroup).then_some("system:nodes");
    let (validity, issuer) = match credential {
        Credential::Expired => (Validity::Expired, authority),
        Credential::NotYetValid => (Validity::NotYet, authority),
        Credential::Ending(life) => (Validity::Ending(life), authority),
        Credential::Old(life) => (Validity::Old(life), authority),
        Credential::OtherClientAuthority => (Validity::Now, &stranger),
        _ => (Validity::Now, authority),
    };
    let own = issuer.client(user, group, validity)?;
    Ok((own, (credential == Credential::OtherServerAuthority).then_some(stranger)))
}

/// Writes NAME.kubeconfig (`authorities` is whom it trusts, as PEM) and beside it NAME.crt, NAME.key and NAME-ca.crt, which it names by path.
pub fn write_kubeconfig(
    dir: &Path,
    name: &str,
    server: &str,
    authorities: &str,
    identity: &Keypair,
) -> Result<PathBuf> {
    let ca = write_private(&dir.join(format!("{name}-ca.crt")), authorities)?;
    let certificate = write_private(&dir.join(format!("{name}.crt")), &identity.certificate)?;
    let key = write_private(&dir.join(format!("{name}.key")), &identity.key)?;
    let text = format!(
        r#"apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: {server}
    certificate-authority: {}
users:
- name: {name}
  user:
    client-certificate: {}
    client-key: {}
contexts:
- name: test
  context:
    cluster: test
    user: {name}
current-context: test
"#,
        ca.display(),
        certificate.display(),
        key.display()
    );
    write_private(&dir.join(format!("{name}.kubeconfig")), &text)
}
