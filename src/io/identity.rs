//! Turns what the agent wants of the node's key and certificate into files that a power cut leaves whole (CSR-10, CSR-11).
//!
//! ```text
//! pending.pem   a key whose certificate is asked for       written and synced before the server hears of it
//! node.pem      certificate and key in use                 written beside itself, synced, renamed
//! node.pem.old  those before                               a second name of node.pem until it is replaced
//! node-password what a supervisor knows the board by       written and synced before the supervisor hears of it
//! ```

use std::cell::{Cell, RefCell};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::sync::Arc;

use nix::libc::O_NOFOLLOW;
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
use crate::identity::files::{self, FileStep, NODE, NodePem, PENDING, Pending, PrivateKey};
use crate::identity::supervisor::NodePassword;
use crate::identity::{Bundle, SigningRequest};
use crate::time::Wall;

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
        }
    }

    /// What is kept there takes the place of the kubeconfig's certificate.
    pub fn successor(&self) -> Successor {
        Successor { folder: self.folder.to_string(), in_memory: None, node_name: self.node_name.clone() }
    }

    /// A key that an earlier process left, or with `is_new`, and where there is none, another one, with its signed request. Where
    /// the disk does not take it, it is in memory alone: the next process asks with another.
    pub async fn make_request(&self, reactor: &Reactor, is_new: bool) -> Result<Made, String> {
        let (folder, node) = (Arc::clone(&self.folder), self.node_name.clone());
        let is_new = is_new || self.is_used.get();
        let known = self.pending.borrow().clone().filter(|_| !is_new);
        let known_password = self.node_password.borrow().clone();
        let find = move || {
            let password = known_password.or_else(|| password_in(&folder));
            let key = match known {
                Some(key) => Ok((key, Ok(()))),
                None => find_or_make(&folder, &node, is_new),
            };
            key.map(|key| (key, password))
        };
        let found = reactor.before(clock::up() + thread::FILE_PATIENCE, self.source.ask(find)).await;
        let ((key, written), node_password) = match found {
            Some(Ok(found)) => found?,
            _ => ((new_key()?, Err(SILENT.to_owned())), self.node_password.borrow().clone()),
        };
        if let Err(why) = written {
            ::log::warn!(
                target: "identity-in-memory",
                "the key of the next certificate is kept in memory alone, as {}/{PENDING} cannot be written: {why}", self.folder
            );
        }
        let (request, signature) = sign(&self.node_name, &key)?;
        self.pending.replace(Some(key));
        self.is_used.set(false);
        Ok(Made { request, signature, node_password })
    }

    /// What was issued is for this key, which came with it.
    pub fn take_key(&self, key: PrivateKey) {
        self.pending.replace(Some(key));
    }

    /// Whether the cluster's certificates come from a supervisor, at this port: then there is a password from now on, the same
    /// as before where there was one. Where the disk does not take it, it is in memory alone.
    pub async fn supervise(&self, reactor: &Reactor, port: Option<u16>) {
        let folder = Arc::clone(&self.folder);
        let (known, fresh) = (self.node_password.take(), port.and_then(new_password));
        let keep = {
            let fresh = fresh.clone();
            move || {
                let known = known.or_else(|| password_in(&folder));
                let wanted = fresh.map(|fresh| fresh.like(known.as_ref()));
                let written = keep_password(&folder, wanted.as_ref());
                (wanted, written)
            }
        };
        let kept = reactor.before(clock::up() + thread::FILE_PATIENCE, self.source.ask(keep)).await;
        let (wanted, written) = match kept {
            Some(Ok((wanted, written))) => (wanted, written.map_err(|error| error.to_string())),
            _ => (fresh, Err(SILENT.to_owned())),
        };
        if let Err(why) = written {
            ::log::warn!(
                target: "identity-in-memory",
                "the node password is kept in memory alone, as {}/{NODE_PASSWORD} cannot be written ({why}): after a restart \
                 the server takes this board for another", self.folder
            );
        }
        self.node_password.replace(wanted);
    }

    /// The kubeconfig of a cluster that the board joins: the first of `servers` in use. It is kept before a certificate is
    /// asked for, so that the next process finds it beside the certificate.
    pub async fn use_cluster(
        &self,
        servers: &[Server],
        authorities: &Bundle,
        proxy: Option<&Server>,
    ) -> Option<Kubeconfig> {
        let text = files::kubeconfig(servers, authorities, proxy);
        let path = format!("{}/{KUBECONFIG}", self.folder);
        let mut kubeconfig = Kubeconfig::parse(&text, &path);
        let folder = Arc::clone(&self.folder);
        let write = move || make_folder(&folder).and_then(|()| replace(&folder, KUBECONFIG, text.as_bytes()));
        if let Ok(Err(why)) | Err(why) = self.source.ask(write).await {
            ::log::warn!(target: "identity-in-memory", "where the cluster is, is kept in memory alone: cannot write {path}: {why}");
            // It is not read again, as what is there is older.
            kubeconfig.iter_mut().for_each(|kubeconfig| kubeconfig.path.clear());
        }
        kubeconfig.inspect_err(|problem| ::log::error!(target: "identity-damaged", "{path}: {problem}")).ok()
    }

    /// For the day when the certificate, or the cluster's CA, has ended (EXP-2, CA-4).
    pub async fn keep_means(&self, means: Zeroizing<String>) {
        let folder = Arc::clone(&self.folder);
        let write = move || make_folder(&folder).and_then(|()| replace(&folder, TOKEN, means.as_bytes()));
        if let Ok(Err(why)) | Err(why) = self.source.ask(write).await {
            ::log::warn!(target: "identity-in-memory", "the token is not kept: cannot write {}/{TOKEN}: {why}", self.folder);
        }
    }

    /// Whether a supervisor gives out the certificates; the CA is its business then.
    pub async fn is_supervised(&self, reactor: &Reactor) -> bool {
        let folder = Arc::clone(&self.folder);
        let asked = self.source.ask(move || password_in(&folder).is_some());
        let found = reactor.before(clock::up() + thread::FILE_PATIENCE, asked).await.and_then(Result::ok);
        found.unwrap_or(true) || self.node_password.borrow().is_some()
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
    pub async fn keep(&self, node_pem: Arc<NodePem>) {
        let folder = Arc::clone(&self.folder);
        self.pending.take();
        self.is_used.set(true);
        let why = match self.source.ask(move || keep(&folder, &node_pem)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) | Err(error) => error,
        };
        ::log::warn!(
            target: "identity-in-memory",
            "the new certificate is in use and kept in memory alone, as {}/{NODE} cannot be written: {why}", self.folder
        );
    }
}

/// Certificate and key of that folder: those in use, or where they are not whole those before, or why there are none.
pub fn kept_in(folder: &str) -> Option<NodePem> {
    [NODE.to_owned(), old_name(NODE)].iter().find_map(|name| {
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

/// `None`: there is to be none.
fn keep_password(folder: &str, wanted: Option<&NodePassword>) -> io::Result<()> {
    match wanted {
        Some(wanted) if password_in(folder).as_ref() == Some(wanted) => Ok(()),
        Some(wanted) => make_folder(folder).and_then(|()| replace(folder, NODE_PASSWORD, wanted.text().as_bytes())),
        None if password_in(folder).is_none() => Ok(()),
        None => perform(&files::FORGET, folder, NODE_PASSWORD, &[]),
    }
}

/// The key, and whether it is on the disk.
fn find_or_make(folder: &str, node: &str, is_new: bool) -> Result<(PrivateKey, Result<(), String>), String> {
    let found = file::read(&format!("{folder}/{PENDING}"), limits::CREDENTIAL_FILE_BYTES).ok();
    let pending = found.and_then(|bytes| Pending::read(&zeroize::Zeroizing::new(bytes)).ok());
    // Its certificate is in use, and only the end of the change-over is missing.
    let is_used = |key: &PrivateKey| kept_in(folder).is_some_and(|kept| kept.key == *key);
    if let Some(pending) = pending.filter(|pending| !is_new && pending.node == node && !is_used(&pending.key)) {
        return Ok((pending.key, Ok(())));
    }
    let pending = Pending { node: node.to_owned(), key: new_key()? };
    let written = make_folder(folder).and_then(|()| replace(folder, PENDING, pending.text().as_bytes()));
    Ok((pending.key, written.map_err(|error| error.to_string())))
}

fn keep(folder: &str, node_pem: &NodePem) -> io::Result<()> {
    make_folder(folder)?;
    let _ = perform(&files::SET_ASIDE, folder, NODE, &[]);
    replace(folder, NODE, node_pem.text().as_bytes())?;
    perform(&files::FORGET, folder, PENDING, &[])
}

/// Only for the agent's own user.
fn make_folder(folder: &str) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        // Its name is in the folder above.
        Ok(()) => File::open(format!("{folder}/.."))?.sync_all(),
    }
}

/// Whole, or not at all.
fn replace(folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let written = perform(&files::REPLACE, folder, name, bytes);
    if written.is_err() {
        let _ = perform(&[FileStep::Remove(".new")], folder, name, &[]);
    }
    written
}

fn perform(steps: &[FileStep], folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = |suffix: &str| format!("{folder}/{name}{suffix}");
    steps.iter().try_for_each(|step| match *step {
        FileStep::Remove(suffix) => match fs::remove_file(path(suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
        FileStep::Write(suffix) => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).custom_flags(O_NOFOLLOW);
            options.open(path(suffix))?.write_all(bytes)
        }
        FileStep::Sync(suffix) => File::open(path(suffix))?.sync_all(),
        FileStep::Rename(suffix) => fs::rename(path(suffix), path("")),
        FileStep::Link(suffix) => fs::hard_link(path(""), path(suffix)),
        FileStep::SyncFolder => File::open(folder)?.sync_all(),
    })
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
    use std::os::unix::fs::PermissionsExt;

    fn make(files: &IdentityFiles, is_new: bool) -> Made {
        let reactor = Reactor::new().unwrap();
        reactor.block_on(files.make_request(&reactor, is_new)).unwrap().unwrap()
    }

    fn keep_now(files: &IdentityFiles, node_pem: NodePem) {
        Reactor::new().unwrap().block_on(files.keep(Arc::new(node_pem))).unwrap();
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
}
