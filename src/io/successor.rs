//! Turns the certificate of a kubeconfig, and the one that took its place, into the one in use (ROT-7).

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::tls::Identity;
use crate::api::Failure;
use crate::identity::certificate;
use crate::identity::files::NodePem;
use crate::time::Wall;

/// The certificate that took the place of the kubeconfig's (ROT-7).
#[derive(Clone)]
pub struct Successor {
    /// Of a Node's identity, where it may be.
    pub folder: String,
    /// What was read there, or what the disk did not take.
    pub in_memory: Option<Arc<NodePem>>,
    /// Whose it has to be.
    pub node_name: String,
}

impl Successor {
    /// There is none.
    pub fn none(node_name: &str) -> Successor {
        Successor { folder: String::new(), in_memory: None, node_name: node_name.to_owned() }
    }

    /// Whether the folder has to be looked into: that may take for ever.
    pub fn is_on_disk(&self) -> bool {
        self.in_memory.is_none() && !self.folder.is_empty()
    }

    /// In use where it is for this Node, and ends later than the kubeconfig's own, or where that one cannot be read.
    pub fn of(&self, given: Result<Identity, Failure>) -> Result<(Identity, Option<Wall>), Failure> {
        let kept = self.in_memory.as_deref().cloned();
        let is_ours = |leaf: &CertificateDer<'_>| certificate::node_name(leaf) == Some(&self.node_name);
        let end = |chain: &[CertificateDer<'_>]| chain.first().and_then(|leaf| Some(certificate::validity(leaf)?.1));
        let kept = kept.filter(|kept| kept.chain.first().is_some_and(is_ours));
        let is_later = |kept: &NodePem| match &given {
            Ok(given) => given.chain.first().is_some_and(is_ours) && end(&kept.chain) >= end(&given.chain),
            Err(_) => true,
        };
        match kept.filter(is_later) {
            Some(kept) => {
                let key = PrivatePkcs8KeyDer::from(kept.key.pkcs8().to_vec()).into();
                Ok((Identity { chain: kept.chain, key }, kept.received))
            }
            None => given.map(|given| (given, None)),
        }
    }
}
