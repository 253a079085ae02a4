//! Turns what a board keeps of its identity into the text of its files, and back (CSR-10, CSR-11).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use super::der::{BIT_STRING, INTEGER, OCTET_STRING, SEQUENCE, elements, expect, write};
use super::{Bundle, IdentityError, certificate, pem, signing_request};
use crate::config::kubeconfig::{LAST_RESORT, Server};
use crate::config::limits;
use crate::time::Wall;

/// Names of the files; the kubeconfig names the first by this, as it stands in the same folder.
pub const NODE: &str = "node.pem";
pub const PENDING: &str = "pending.pem";

/// One step of a change to a file of the folder; its texts follow the file's name. Between any two steps the power may go, and
/// with it whatever no step has synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileStep {
    /// Where it is there.
    Remove(&'static str),
    /// A new file, for its owner alone.
    Write(&'static str),
    Sync(&'static str),
    /// It takes the file's own name, and the place of what had that.
    Rename(&'static str),
    /// A second name of the file, where the file system knows of such (FAT does not).
    Link(&'static str),
    /// The names in the folder.
    SyncFolder,
}

/// Whole, or not at all: what is written aside takes the name when it is on the disk.
pub const REPLACE: [FileStep; 5] = [
    FileStep::Remove(".new"),
    FileStep::Write(".new"),
    FileStep::Sync(".new"),
    FileStep::Rename(".new"),
    FileStep::SyncFolder,
];
/// Before [`NODE`] is replaced: the one before stays under another name. That is on the disk first: by both names a process knows which
/// keys have been in use, and a key that the disk still calls pending may be the one before.
pub const SET_ASIDE: [FileStep; 3] = [FileStep::Remove(".old"), FileStep::Link(".old"), FileStep::SyncFolder];
/// What nobody needs any more.
pub const FORGET: [FileStep; 2] = [FileStep::Remove(""), FileStep::SyncFolder];

const RECEIVED: &str = "received ";
const PENDING_LINE: &str = "nodepulse pending 1 ";
/// `[1]` of ECPrivateKey (RFC 5915).
const PUBLIC_KEY: u8 = 0xa1;

/// `node.pem`: a certificate that was accepted, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePem {
    /// `Date` of the answer that brought it; `None` where it had none.
    pub received: Option<Wall>,
    /// Leaf first, never empty.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKey,
}

/// `pending.pem`: a key on its way to a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The Node that it is for.
    pub node: String,
    pub key: PrivateKey,
}

/// DER of a PKCS#8 key on P-256 with its public half in it, as ring makes them. Nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(Zeroizing<Vec<u8>>);

impl PrivateKey {
    pub fn new(pkcs8: &[u8]) -> PrivateKey {
        PrivateKey(Zeroizing::new(pkcs8.to_vec()))
    }

    /// Of a key on P-256 as RFC 5915 has it.
    pub fn of_sec1(ec_private_key: &[u8]) -> PrivateKey {
        let (version, key) = (write(INTEGER, &[&[0]]), Zeroizing::new(write(OCTET_STRING, &[ec_private_key])));
        PrivateKey(Zeroizing::new(write(SEQUENCE, &[&version, &signing_request::key_algorithm(), &key])))
    }

    pub fn pkcs8(&self) -> &[u8] {
        &self.0
    }

    /// The public half: 65 bytes without compression. Whether it belongs to the private half is for whoever signs to say.
    pub fn point(&self) -> Option<&[u8]> {
        let (pkcs8, _) = expect(&self.0, SEQUENCE)?;
        let (_, private_key) = elements(pkcs8).find(|(tag, _)| *tag == OCTET_STRING)?;
        let (private_key, _) = expect(private_key, SEQUENCE)?;
        let (_, public_key) = elements(private_key).find(|(tag, _)| *tag == PUBLIC_KEY)?;
        expect(public_key, BIT_STRING)?.0.strip_prefix(&[0])
    }

    fn read(text: &[u8]) -> Option<PrivateKey> {
        let key = Zeroizing::new(PrivatePkcs8KeyDer::from_pem_slice(text).ok()?);
        Some(PrivateKey::new(key.secret_pkcs8_der()))
    }
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey")
    }
}

impl NodePem {
    /// Line `received`, the certificates, the key.
    pub fn text(&self) -> Zeroizing<String> {
        let received = self.received.map_or_else(|| "unknown".to_owned(), Wall::to_seconds_stamp);
        let mut text = with_room();
        text.extend([RECEIVED, &received, "\n"]);
        self.chain.iter().for_each(|certificate| pem::write(&mut text, pem::CERTIFICATE, certificate));
        pem::write(&mut text, pem::PRIVATE_KEY, self.key.pkcs8());
        text
    }

    /// Whole, or what is wrong with it. Whether the key's halves belong together is for whoever signs to say.
    pub fn read(text: &[u8]) -> Result<NodePem, IdentityError> {
        let damaged = |what| IdentityError::FileDamaged(NODE, what);
        let received =
            first_line(text).strip_prefix(RECEIVED).ok_or(damaged("its first line is not `received TIME`"))?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let chain = chain.map_err(|_| damaged("a section of it is cut or changed"))?;
        let key = PrivateKey::read(text).ok_or(damaged("it holds no private key in PEM form"))?;
        let leaf = chain.first().and_then(|leaf| certificate::public_key(leaf));
        let leaf = leaf.ok_or(damaged("it holds no certificate that can be read"))?;
        if key.point().map(signing_request::public_key).as_deref() != Some(leaf) {
            return Err(damaged("its key is not that of its certificate"));
        }
        Ok(NodePem { received: Wall::parse_stamp(received), chain, key })
    }
}

impl Pending {
    /// Line `nodepulse pending 1 NAME`, the key.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = with_room();
        text.extend([PENDING_LINE, &self.node, "\n"]);
        pem::write(&mut text, pem::PRIVATE_KEY, self.key.pkcs8());
        text
    }

    /// Whole, or what is wrong with it.
    pub fn read(text: &[u8]) -> Result<Pending, IdentityError> {
        let damaged = |what| IdentityError::FileDamaged(PENDING, what);
        let line = first_line(text).strip_prefix(PENDING_LINE);
        let node = line.ok_or(damaged("its first line is not `nodepulse pending 1 NAME`"))?.to_owned();
        let key = PrivateKey::read(text).ok_or(damaged("it holds no private key in PEM form"))?;
        key.point().ok_or(damaged("its key is not one that nodepulse makes"))?;
        Ok(Pending { node, key })
    }
}

/// A text that never moves while it is written, so that no copy of a key is left behind.
fn with_room() -> Zeroizing<String> {
    Zeroizing::new(String::with_capacity(limits::CREDENTIAL_FILE_BYTES))
}

fn first_line(text: &[u8]) -> &str {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(line).unwrap_or_default()
}

/// `kubeconfig`: where the API servers are, the one to use first, and whom to trust; with the names that a kubelet gives
/// (TLS-10), the certificate in [`NODE`] beside it; `proxy` is an HTTP proxy on the way. [`crate::config::kubeconfig::clusters`] reads all servers again.
pub fn kubeconfig(servers: &[Server], last_resorts: &[Server], authorities: &Bundle, proxy: Option<&Server>) -> String {
    let authorities = STANDARD.encode(authorities.text());
    let proxy = proxy.map(|proxy| format!("    proxy-url: \"http://{}\"\n", proxy.with_port())).unwrap_or_default();
    let mut text = "apiVersion: v1\nkind: Config\nclusters:\n".to_owned();
    for (place, server) in servers.iter().enumerate() {
        // The context names the first; the others are its alternatives.
        let number = if place == 0 { String::new() } else { format!("-{}", place + 1) };
        let (host, prefix) = (server.authority(), &server.path_prefix);
        text += &format!(
            "- name: default-cluster{number}\n  cluster:\n    server: \"https://{host}{prefix}\"\n    \
             certificate-authority-data: {authorities}\n{proxy}"
        );
    }
    for (place, server) in last_resorts.iter().enumerate() {
        let (number, host) = (place + 1, server.authority());
        text += &format!("- name: default-cluster{LAST_RESORT}{number}\n  cluster:\n    server: \"https://{host}\"\n");
    }
    text += &format!(
        "users:\n- name: default-auth\n  user:\n    client-certificate: {NODE}\n    client-key: {NODE}\n\
         contexts:\n- name: default-context\n  context:\n    cluster: default-cluster\n    namespace: default\n    \
         user: default-auth\ncurrent-context: default-context\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::kubeconfig::{Credentials, Kubeconfig, Material, clusters, parse_server};
    use crate::identity::samples::{self, Key};

    fn node_pem(key: &Key) -> NodePem {
        let leaf = |node| CertificateDer::from(samples::leaf(node, key, 2026, 2027));
        let received = Wall::parse_stamp("2026-11-22T15:44:54Z");
        NodePem { received, chain: vec![leaf("n1"), leaf("issuer")], key: PrivateKey::new(&key.pkcs8()) }
    }

    fn damage(text: &[u8]) -> String {
        let error = NodePem::read(text).unwrap_err();
        assert_eq!(error.word(), "identity-damaged");
        error.to_string()
    }

    #[test]
    fn what_was_written_is_read_again() {
        let node = node_pem(&Key::new());
        let text = node.text();
        assert!(text.starts_with("received 2026-11-22T15:44:54Z\n-----BEGIN CERTIFICATE-----\n"), "{}", &text[..80]);
        assert!(text.ends_with("-----END PRIVATE KEY-----\n") && text.len() < 2_000);
        assert_eq!(NodePem::read(text.as_bytes()), Ok(node.clone()));
        let undated = NodePem { received: None, ..node };
        assert_eq!(NodePem::read(undated.text().as_bytes()), Ok(undated));

        let pending = Pending { node: "n1".to_owned(), key: PrivateKey::new(&Key::new().pkcs8()) };
        let text = pending.text();
        assert!(text.starts_with("nodepulse pending 1 n1\n-----BEGIN PRIVATE KEY-----\n"));
        assert_eq!(Pending::read(text.as_bytes()), Ok(pending));
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_damaged_but_for_its_last_line_end() {
        let (key, other) = (Key::new(), Key::new());
        let text = node_pem(&key).text();
        (0..text.len() - 1).for_each(|end| drop(damage(&text.as_bytes()[..end])));
        assert_eq!(NodePem::read(text.trim_end().as_bytes()).unwrap(), node_pem_of(&text));
        let strange = NodePem { key: PrivateKey::new(&other.pkcs8()), ..node_pem(&key) };
        assert!(damage(strange.text().as_bytes()).contains("its key is not that of its certificate"));
        let keyless = NodePem { key: PrivateKey::new(b"no key"), ..node_pem(&key) };
        assert!(damage(keyless.text().as_bytes()).contains("its key is not that of its certificate"));
        let leafless = NodePem { chain: Vec::new(), ..node_pem(&key) };
        assert!(damage(leafless.text().as_bytes()).contains("no certificate"));
        let pending = Pending { node: "n1".to_owned(), key: PrivateKey::new(&key.pkcs8()) }.text();
        let is_damaged = |end| Pending::read(&pending.as_bytes()[..end]).is_err();
        assert!((0..pending.len() - 1).all(is_damaged));
    }

    fn node_pem_of(text: &str) -> NodePem {
        NodePem::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn no_change_of_a_byte_makes_it_panic_and_none_changes_the_key_unseen() {
        let key = Key::new();
        let (text, pending) =
            (node_pem(&key).text(), Pending { node: "n1".to_owned(), key: PrivateKey::new(&key.pkcs8()) });
        samples::cut_and_changed(&text.as_bytes()[text.len() - 260..], |tail| {
            let changed = [&text.as_bytes()[..text.len() - 260], tail].concat();
            if let Ok(read) = NodePem::read(&changed) {
                assert_eq!(read.key.point(), Some(key.point()));
            }
        });
        samples::cut_and_changed(pending.text().as_bytes(), |changed| drop(Pending::read(changed)));
    }

    #[test]
    fn a_key_is_never_printed() {
        let (key, node) = (Key::new(), node_pem(&Key::new()));
        assert_eq!(format!("{:?}", PrivateKey::new(&key.pkcs8())), "PrivateKey");
        assert!(!format!("{node:?}").contains("4, 1, 48"), "{node:?}");
    }

    #[test]
    fn the_kubeconfig_says_what_a_kubelets_says_and_other_servers_beside() {
        let authority = CertificateDer::from(samples::leaf("ca", &Key::new(), 2026, 2036));
        let servers = ["10.0.0.1:6443", "https://[2001:db8::1]/k8s:'"].map(|url| parse_server(url).unwrap());
        let last_resorts = ["10.0.0.7:6443", "[2001:db8::7]:6443"].map(|url| parse_server(url).unwrap());
        let text = kubeconfig(&servers, &last_resorts, &vec![authority.clone(), authority.clone()].into(), None);
        let read = Kubeconfig::parse(&text, "/var/lib/nodepulse/identity/kubeconfig").unwrap();
        assert_eq!((read.server.authority(), read.context.as_str()), ("10.0.0.1:6443".to_owned(), "default-context"));
        let Some(Material::Data(pem)) = &read.certificate_authority else { panic!("{read:?}") };
        assert_eq!(pem::certificates(pem).collect::<Vec<_>>(), [authority.clone(), authority]);
        let file = Material::File("/var/lib/nodepulse/identity/node.pem".to_owned());
        assert_eq!(read.credentials, Credentials::Certificate { certificate: file.clone(), key: file });
        assert_eq!(read.servers().cloned().collect::<Vec<_>>(), servers);
        assert_eq!(read.last_resorts, last_resorts);
        let all = clusters(&text, "").unwrap().into_iter();
        assert_eq!(all.map(|(server, _)| server).collect::<Vec<_>>(), [servers, last_resorts].concat());
    }
}
