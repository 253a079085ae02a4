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

    /// In use where it is for this Node, and was issued later than the kubeconfig's own, or where that one cannot be read. When
    /// they end says nothing: one of ten years may be of a CA that is gone, and what people put there last is what they want.
    pub fn of(&self, given: Result<Identity, Failure>) -> Result<(Identity, Option<Wall>), Failure> {
        let kept = self.in_memory.as_deref().cloned();
        let is_ours = |leaf: &CertificateDer<'_>| certificate::node_name(leaf) == Some(&self.node_name);
        let issued = |chain: &[CertificateDer<'_>]| chain.first().and_then(|leaf| Some(certificate::validity(leaf)?.0));
        let kept = kept.filter(|kept| kept.chain.first().is_some_and(is_ours));
        let is_newer = |kept: &NodePem| match &given {
            Ok(given) => given.chain.first().is_some_and(is_ours) && issued(&kept.chain) >= issued(&given.chain),
            Err(_) => true,
        };
        match kept.filter(is_newer) {
            Some(kept) => {
                let key = PrivatePkcs8KeyDer::from(kept.key.pkcs8().to_vec()).into();
                Ok((Identity { chain: kept.chain, key }, kept.received))
            }
            None => given.map(|given| (given, None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::files::PrivateKey;
    use crate::identity::samples::{Key, leaf};

    #[test]
    fn the_certificate_that_was_issued_last_is_in_use_whichever_ends_last() {
        let key = Key::new();
        let given = |node, from, to| {
            let chain = vec![leaf(node, &key, from, to).into()];
            Ok(Identity { chain, key: PrivatePkcs8KeyDer::from(key.pkcs8()).into() })
        };
        let kept = leaf("edge-1", &key, 2027, 2028);
        let successor = |node: &str| {
            let node_pem =
                NodePem { received: None, chain: vec![kept.clone().into()], key: PrivateKey::new(&key.pkcs8()) };
            Successor { in_memory: Some(Arc::new(node_pem)), ..Successor::none(node) }
        };
        let unreadable = Err(crate::io::credentials::unusable("no file"));
        for (what, is_kept, found) in [
            ("the one before it", true, given("edge-1", 2026, 2027)),
            ("one of ten years, which is refused by now", true, given("edge-1", 2026, 2036)),
            ("none", true, unreadable),
            ("what somebody put there since", false, given("edge-1", 2028, 2029)),
            ("one that ends no later, which somebody put there since", false, given("edge-1", 2028, 2028)),
            ("that of somebody else", false, given("edge-2", 2026, 2027)),
        ] {
            let (in_use, _) = successor("edge-1").of(found).unwrap();
            assert_eq!(in_use.chain[0].as_ref() == kept, is_kept, "{what}");
        }
        let (in_use, _) = successor("edge-2").of(given("edge-2", 2026, 2027)).unwrap();
        assert_ne!(in_use.chain[0].as_ref(), kept, "a Node's certificate is not another's");
    }
}
