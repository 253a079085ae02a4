//! Turns what the agent wants of the node's key and certificate into files that a power cut leaves whole (CSR-10, CSR-11).
//!
//! ```text
//! pending.pem   a key whose certificate is asked for       written and synced before the server hears of it
//! node.pem      certificate and key in use                 written beside itself, synced, renamed
//! node.pem.old  those before                               a second name of node.pem until it is replaced
//! node-password what a supervisor knows the board by       written and synced before the supervisor hears of it
//! ```
//!
//! What the disk does not take is in memory, and goes there as soon as it does.

mod folder;

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::reactor::Reactor;
pub use super::successor::Successor;
use super::thread::{self, Source};
use super::{clock, file};
use crate::config::kubeconfig::{Kubeconfig, Server};
use crate::config::limits;
use crate::identity::files::{self, NODE, NodePem, PENDING, Pending, PrivateKey};
use crate::identity::supervisor::NodePassword;
use crate::identity::unwritten::{Change, Unwritten};
use crate::identity::{Bundle, SigningRequest};
use crate::time::{Up, Wall};
pub use folder::forget;
use folder::write_all;

/// In the state directory.
pub const FOLDER: &str = "identity";

/// The identity's folder, and what of it is in memory because the disk did not take it.
pub struct IdentityFiles {
    folder: Arc<str>,
    node_name: String,
    source: Source,
    /// The key of the last request.
    pending: RefCell<Option<PrivateKey>>,
    /// Where this process has joined; else it is looked for on the disk.
    node_password: RefCell<Option<NodePassword>>,
    /// Its certificate is in use: where the disk did not take that, the key is on it still.
    is_used: Cell<bool>,
    unwritten: RefCell<Unwritten>,
}

/// Beside the certificate that it names.
pub const KUBECONFIG: &str = "kubeconfig";

/// The token that a board joined with, and the hashes of CAs after it, one in each line, where they stood in no file.
pub const TOKEN: &str = "token";
/// There where certificates come from a supervisor (K3S-2).
pub const NODE_PASSWORD: &str = "node-password";
/// There where the board was told to leave its cluster: it does not join one by itself.
pub const LEFT: &str = "left";

/// A request, ready to be sent.
pub struct Made {
    pub request: SigningRequest,
    pub signature: Vec<u8>,
    pub node_password: Option<NodePassword>,
}

impl IdentityFiles {
    pub fn new(state_directory: &str, node_name: &str) -> IdentityFiles {
        IdentityFiles {
            folder: format!("{state_directory}/{FOLDER}").into(),
            node_name: node_name.to_owned(),
            source: Source::new("identity-files", 1),
            pending: RefCell::default(),
            node_password: RefCell::default(),
            is_used: Cell::default(),
            unwritten: RefCell::default(),
        }
    }

    /// What is kept there takes the place of the kubeconfig's certificate.
    pub fn successor(&self) -> Successor {
        Successor { folder: self.folder.to_string(), in_memory: None, node_name: self.node_name.clone() }
    }

    /// A key that an earlier process left, or with `is_new`, and where there is none, another one, with its signed request. Where
    /// the disk does not take it, it is in memory: a process that comes before it does asks with another.
    pub async fn make_request(&self, reactor: &Reactor, is_new: bool) -> Result<Made, String> {
        let (folder, node) = (Arc::clone(&self.folder), self.node_name.clone());
        let is_new = is_new || self.is_used.get();
        let known = self.pending.borrow().clone().filter(|_| !is_new);
        let looks = known.is_none() && !is_new;
        let found =
            self.ask(reactor, move || (looks.then(|| find_key(&folder, &node)).flatten(), password_in(&folder))).await;
        let (on_disk, password) = found.ok().unwrap_or_default();
        let key = match known.or(on_disk) {
            Some(key) => key,
            None => {
                let pending = Pending { node: self.node_name.clone(), key: new_key()? };
                self.write(reactor, vec![(PENDING, Some(pending.text()))]).await;
                pending.key
            }
        };
        let (request, signature) = sign(&self.node_name, &key)?;
        self.pending.replace(Some(key));
        self.is_used.set(false);
        Ok(Made { request, signature, node_password: self.node_password.borrow().clone().or(password) })
    }

    /// What was issued is for this key, which came with it.
    pub fn take_key(&self, key: PrivateKey) {
        self.pending.replace(Some(key));
    }

    /// Whether the cluster's certificates come from a supervisor, at this port: then there is a password from now on, the same
    /// as before where there was one.
    pub async fn supervise(&self, reactor: &Reactor, port: Option<u16>) {
        let folder = Arc::clone(&self.folder);
        let on_disk = self.ask(reactor, move || password_in(&folder)).await.ok().flatten();
        let known = self.node_password.take().or_else(|| on_disk.clone());
        let wanted = port.and_then(new_password).map(|fresh| fresh.like(known.as_ref()));
        if wanted != on_disk {
            self.write(reactor, vec![(NODE_PASSWORD, wanted.as_ref().map(NodePassword::text))]).await;
        }
        self.node_password.replace(wanted);
    }

    /// The kubeconfig of a cluster that the board joins: the first of `servers` in use. It is kept before a certificate is
    /// asked for, so that the next process finds it beside the certificate.
    pub async fn use_cluster(
        &self,
        reactor: &Reactor,
        servers: &[Server],
        last_resorts: &[Server],
        authorities: &Bundle,
        proxy: Option<&Server>,
    ) -> Option<Kubeconfig> {
        let text = files::kubeconfig(servers, last_resorts, authorities, proxy);
        let path = format!("{}/{KUBECONFIG}", self.folder);
        let kubeconfig = Kubeconfig::parse(&text, &path);
        self.write(reactor, vec![(KUBECONFIG, Some(text.into()))]).await;
        let mut read =
            kubeconfig.inspect_err(|problem| ::log::error!(target: "identity-damaged", "{path}: {problem}")).ok()?;
        if self.has_newer(&read.path) {
            // It is not read again.
            read.path.clear();
        }
        Some(read)
    }

    /// Whether what is at that path is older than what is in use.
    pub fn has_newer(&self, kubeconfig: &str) -> bool {
        self.are_of(kubeconfig) && self.unwritten.borrow().has(KUBECONFIG)
    }

    /// For the day when the certificate, or the cluster's CA, has ended (EXP-2, CA-4).
    pub async fn keep_means(&self, reactor: &Reactor, means: Zeroizing<String>) {
        self.write(reactor, vec![(TOKEN, Some(means))]).await;
    }

    /// Port of the supervisor that gives out the certificates, and has the CA, if one does.
    pub async fn supervisor(&self, reactor: &Reactor) -> Result<Option<u16>, String> {
        let folder = Arc::clone(&self.folder);
        let on_disk = self.ask(reactor, move || password_in(&folder)).await?;
        Ok(self.node_password.borrow().as_ref().or(on_disk.as_ref()).map(|known| known.port))
    }

    /// Whether a kubeconfig at that path is ours; the one in memory has none.
    pub fn are_of(&self, kubeconfig: &str) -> bool {
        kubeconfig.is_empty()
            || kubeconfig.strip_prefix(&*self.folder).is_some_and(|name| name.strip_prefix('/') == Some(KUBECONFIG))
    }

    /// The certificate with the key of the last request.
    pub fn with_key(&self, chain: Vec<CertificateDer<'static>>, received: Option<Wall>) -> Option<NodePem> {
        Some(NodePem { received, chain, key: self.pending.borrow().clone()? })
    }

    /// Writes what is in use from now on, and forgets what was pending.
    pub async fn keep(&self, reactor: &Reactor, node_pem: &NodePem) {
        self.pending.take();
        self.is_used.set(true);
        self.write(reactor, vec![(NODE, Some(node_pem.text())), (PENDING, None)]).await;
    }

    /// When the disk is asked again for what it has not taken.
    pub fn due_at(&self) -> Option<Up> {
        self.unwritten.borrow().due_at()
    }

    /// Brings this to the disk, and what it has not taken before. Where it does not take all, that is said, once.
    pub async fn write(&self, reactor: &Reactor, changes: Vec<Change>) {
        changes.into_iter().for_each(|change| self.unwritten.borrow_mut().add(change));
        let (folder, all) = (Arc::clone(&self.folder), self.unwritten.borrow().changes().to_vec());
        let names = Vec::from_iter(all.iter().map(|(name, _)| *name));
        let tried = self.ask(reactor, move || write_all(&folder, &all)).await;
        let (refused, why) = tried.unwrap_or_else(|why| (names, why));
        let folder = &self.folder;
        match self.unwritten.borrow_mut().tried(&refused, clock::up()) {
            Some(false) => ::log::warn!(
                target: "identity-in-memory",
                "{folder}/{} cannot be written ({why}): until the disk takes it, it is kept in memory alone, and is lost with the \
                power; see: df -h {folder}", refused.first().unwrap_or(&"")
            ),
            Some(true) => ::log::info!(target: "identity-kept", "all of the identity is in {folder} now"),
            None => {}
        }
    }

    /// What the disk answers, or why it does not.
    async fn ask<T: Send + 'static>(
        &self,
        reactor: &Reactor,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let answer = reactor.before(clock::up() + thread::FILE_PATIENCE, self.source.ask(call)).await;
        answer.ok_or_else(|| SILENT.to_owned())?.map_err(|error| error.to_string())
    }
}

/// Certificate and key of that folder: those in use, or where they are not whole those before, or why there are none.
pub fn kept_in(folder: &str) -> Option<NodePem> {
    all_kept_in(folder).next()
}

fn all_kept_in(folder: &str) -> impl Iterator<Item = NodePem> {
    [NODE.to_owned(), old_name(NODE)].into_iter().filter_map(move |name| {
        let path = format!("{folder}/{name}");
        let bytes = match file::read(&path, limits::CREDENTIAL_FILE_BYTES) {
            Ok(bytes) => zeroize::Zeroizing::new(bytes),
            Err(file::Unreadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(why) => {
                ::log::warn!(target: "identity-unreadable", "cannot read {path}: {why}");
                return None;
            }
        };
        NodePem::read(&bytes).inspect_err(|error| ::log::warn!(target: error.word(), "{path}: {error}")).ok()
    })
}

const SILENT: &str = "the disk does not answer";

/// What is shown to the supervisor of the cluster that this board has joined.
pub fn password_in(folder: &str) -> Option<NodePassword> {
    let text = file::read(&format!("{folder}/{NODE_PASSWORD}"), limits::CREDENTIAL_FILE_BYTES).ok()?;
    NodePassword::read(&zeroize::Zeroizing::new(text))
}

fn new_password(port: u16) -> Option<NodePassword> {
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).ok().map(|()| NodePassword::new(random, port))
}

/// That of an earlier process, which has asked with it, or was about to.
fn find_key(folder: &str, node: &str) -> Option<PrivateKey> {
    let found =
        zeroize::Zeroizing::new(file::read(&format!("{folder}/{PENDING}"), limits::CREDENTIAL_FILE_BYTES).ok()?);
    let pending = Pending::read(&found).ok().filter(|pending| pending.node == node)?;
    // Its certificate is in use, and only the end of the change-over is missing; or was, where the key after it never came to
    // the disk.
    let is_used = all_kept_in(folder).any(|kept| kept.key == pending.key);
    (!is_used).then_some(pending.key)
}

fn old_name(name: &str) -> String {
    format!("{name}.old")
}

fn new_key() -> Result<PrivateKey, String> {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let pkcs8 = pkcs8.map_err(|_| "the kernel gives no random numbers".to_owned())?;
    Ok(PrivateKey::new(pkcs8.as_ref()))
}

fn sign(node_name: &str, key: &PrivateKey) -> Result<(SigningRequest, Vec<u8>), String> {
    let unusable = || "the key cannot be used: remove pending.pem in the identity's folder".to_owned();
    let random = SystemRandom::new();
    let pair =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.pkcs8(), &random).map_err(|_| unusable())?;
    let request = SigningRequest::new(node_name, key.point().ok_or_else(unusable)?);
    let signature = pair.sign(&random, &request.to_be_signed()).map_err(|_| unusable())?;
    Ok((request, signature.as_ref().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::samples;
    use crate::io::loopback::TempFolder;
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn make(files: &IdentityFiles, is_new: bool) -> Made {
        let reactor = Reactor::new().unwrap();
        reactor.block_on(files.make_request(&reactor, is_new)).unwrap().unwrap()
    }

    fn keep_now(files: &IdentityFiles, node_pem: NodePem) {
        let reactor = Reactor::new().unwrap();
        reactor.block_on(files.keep(&reactor, &node_pem)).unwrap();
    }

    /// A certificate for the key of the last request, as a signer makes one.
    fn issued(files: &IdentityFiles) -> NodePem {
        let key = files.pending.borrow().clone().unwrap();
        let pair = rcgen::KeyPair::try_from(key.pkcs8()).unwrap();
        let chain = vec![samples::leaf("n1", &samples::Key(pair), 2026, 2027).into()];
        files.with_key(chain, Some(Wall::from_unix_seconds(1_767_225_600))).unwrap()
    }

    fn mode(path: &str) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_key_is_kept_before_anybody_hears_of_it_and_found_again() {
        let folder = TempFolder::new();
        let state = folder.path("");
        let files = IdentityFiles::new(&state, "n1");
        let first = make(&files, false);
        let point = files.pending.borrow().clone().unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point.point().unwrap())
            .verify(&first.request.to_be_signed(), &first.signature)
            .unwrap();
        assert_eq!((mode(&format!("{state}/identity")), mode(&format!("{state}/identity/{PENDING}"))), (0o700, 0o600));
        let later = make(&IdentityFiles::new(&state, "n1"), false);
        assert_eq!(later.request.name(), first.request.name(), "the next process asks for the same");
        let other = make(&IdentityFiles::new(&state, "n2"), false);
        assert_ne!(other.request.name(), first.request.name(), "another Node has another key");
        let fresh = make(&files, true);
        assert_ne!(fresh.request.key(), first.request.key());
    }

    #[test]
    fn what_was_issued_is_kept_with_its_key_and_what_was_before_is_there_when_it_breaks() {
        let folder = TempFolder::new();
        let state = folder.path("");
        let place = format!("{state}/identity");
        let files = IdentityFiles::new(&state, "n1");
        assert_eq!(kept_in(&place), None);
        make(&files, false);
        let first = issued(&files);
        keep_now(&files, first.clone());
        assert_eq!(kept_in(&place).as_ref(), Some(&first));
        assert_eq!(mode(&format!("{place}/{NODE}")), 0o600);
        assert!(!fs::exists(format!("{place}/{PENDING}")).unwrap());
        make(&files, false);
        let second = issued(&files);
        assert_ne!(second.key, first.key, "each certificate has a key of its own");
        keep_now(&files, second.clone());
        assert_eq!(kept_in(&place), Some(second));
        fs::write(format!("{place}/{NODE}"), b"received").unwrap();
        assert_eq!(kept_in(&place), Some(first));
        let names = fs::read_dir(&place).unwrap().count();
        assert_eq!(names, 2, "node.pem and node.pem.old, and nothing half done");
    }

    /// Power went between the two steps of the change-over.
    #[test]
    fn a_key_whose_certificate_is_in_use_is_not_asked_with_again() {
        let folder = TempFolder::new();
        let state = folder.path("");
        let files = IdentityFiles::new(&state, "n1");
        let first = make(&files, false);
        let pending = fs::read(format!("{state}/identity/{PENDING}")).unwrap();
        keep_now(&files, issued(&files));
        fs::write(format!("{state}/identity/{PENDING}"), pending).unwrap();
        assert_ne!(make(&IdentityFiles::new(&state, "n1"), false).request.name(), first.request.name());
        // The same once more, with a key after it that the disk refused, and whose certificate it took.
        let files = IdentityFiles::new(&state, "n1");
        let pending = {
            make(&files, true);
            let pending = fs::read(format!("{state}/identity/{PENDING}")).unwrap();
            keep_now(&files, issued(&files));
            pending
        };
        make(&files, true);
        keep_now(&files, issued(&files));
        fs::write(format!("{state}/identity/{PENDING}"), &pending).unwrap();
        let key = Pending::read(&pending).unwrap().key;
        assert_ne!(make(&IdentityFiles::new(&state, "n1"), false).request.key(), key.point().unwrap());
    }

    #[test]
    fn a_supervisor_is_shown_the_same_password_for_as_long_as_the_disk_has_it_and_an_api_server_none() {
        let folder = TempFolder::new();
        let state = folder.path("");
        let path = format!("{state}/identity/{NODE_PASSWORD}");
        let supervise = |port| {
            let (files, reactor) = (IdentityFiles::new(&state, "n1"), Reactor::new().unwrap());
            reactor.block_on(files.supervise(&reactor, port)).unwrap();
            let in_memory = make(&files, false).node_password;
            // The next process, which has joined.
            assert_eq!(make(&IdentityFiles::new(&state, "n1"), false).node_password, in_memory);
            assert_eq!(fs::exists(&path).unwrap(), port.is_some());
            in_memory
        };
        let first = supervise(Some(6443)).unwrap();
        assert_eq!(mode(&path), 0o600);
        let moved = supervise(Some(9345)).unwrap();
        assert_eq!((moved.port, moved == first), (9345, false));
        assert_eq!(supervise(Some(6443)), Some(first.clone()), "only the port was another");
        assert_eq!(supervise(None), None, "an API server's own certificates from now on");
        assert_ne!(supervise(Some(6443)), Some(first));
    }

    #[test]
    fn a_password_that_the_disk_does_not_take_lasts_as_long_as_the_process() {
        let folder = TempFolder::new();
        let files = IdentityFiles::new(&folder.path("none/such"), "n1");
        let reactor = Reactor::new().unwrap();
        reactor.block_on(files.supervise(&reactor, Some(6443))).unwrap();
        let first = make(&files, false).node_password;
        assert!(first.is_some());
        reactor.block_on(files.supervise(&reactor, Some(6443))).unwrap();
        assert_eq!(make(&files, false).node_password, first);
    }

    #[test]
    fn a_key_that_comes_with_its_certificate_is_kept_with_it() {
        let folder = TempFolder::new();
        let state = folder.path("");
        let files = IdentityFiles::new(&state, "n1");
        make(&files, false);
        let shared = new_key().unwrap();
        files.take_key(shared.clone());
        keep_now(&files, issued(&files));
        assert_eq!(kept_in(&format!("{state}/identity")).map(|kept| kept.key), Some(shared));
    }

    #[test]
    fn without_a_disk_a_key_lasts_as_long_as_the_process() {
        let folder = TempFolder::new();
        let files = IdentityFiles::new(&folder.path("none/such"), "n1");
        let first = make(&files, false);
        assert_eq!(make(&files, false).request.name(), first.request.name());
        keep_now(&files, issued(&files));
        assert_eq!(kept_in(&folder.path("none/such/identity")), None);
    }

    #[test]
    fn what_the_disk_did_not_take_is_on_it_as_soon_as_it_does_and_the_next_process_finds_it() {
        let folder = TempFolder::new();
        let state = folder.path("later");
        let (files, reactor) = (IdentityFiles::new(&state, "n1"), Reactor::new().unwrap());
        let authorities: Bundle = vec![samples::leaf("ca", &samples::Key::new(), 2026, 2036).into()].into();
        let servers = [crate::config::kubeconfig::parse_server("https://one:6443").unwrap()];
        reactor.block_on(files.supervise(&reactor, Some(6443))).unwrap();
        let kubeconfig =
            reactor.block_on(files.use_cluster(&reactor, &servers, &[], &authorities, None)).unwrap().unwrap();
        assert!(kubeconfig.path.is_empty() && files.has_newer(""), "what is at its path is not read");
        let first = make(&files, false);
        keep_now(&files, issued(&files));
        let second = make(&files, false);
        let node_pem = issued(&files);
        assert!(files.due_at().unwrap() > clock::up());
        let retry = || reactor.block_on(files.write(&reactor, Vec::new())).unwrap();
        retry();
        fs::create_dir(&state).unwrap();
        retry();
        assert_eq!((files.due_at(), files.has_newer("")), (None, false));
        let place = format!("{state}/identity");
        let kept = kept_in(&place).unwrap();
        assert_eq!(SigningRequest::new("n1", kept.key.point().unwrap()).name(), first.request.name());
        let next = make(&IdentityFiles::new(&state, "n1"), false);
        assert_eq!((next.request.name(), next.node_password), (second.request.name(), second.node_password));
        keep_now(&files, node_pem.clone());
        assert_eq!((kept_in(&place), fs::exists(format!("{place}/{PENDING}")).unwrap()), (Some(node_pem), false));
        assert!(fs::exists(format!("{place}/{KUBECONFIG}")).unwrap());
    }
}
