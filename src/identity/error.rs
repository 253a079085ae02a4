//! What can be wrong with an identity or on the way to one: a machine word, and a sentence with what to do next.

use std::fmt;

use crate::config::settings::CaHash;

/// Why something is not trusted, not taken or not read. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityError {
    /// JOIN-3, K3S-1: hashes that were found instead.
    PinMismatch(Vec<CaHash>),
    /// CA-4: hashes that were found, and whether they are signed with this board's token.
    CaChanged(Vec<CaHash>, bool),
    /// JOIN-2: ID of the token.
    SignatureWrong(String),
    /// JOIN-2: ID of the token.
    TokenUnknown(String),
    /// JOIN-8: 401 or 403.
    AnonymousRefused(u16),
    /// JOIN-8.
    NoClusterInfo,
    /// CSR-6: what the certificate is.
    WrongCertificate(String),
    /// CSR-4: what of the answer cannot be read.
    AnswerMalformed(String),
    /// CSR-11: file of the identity's folder, and what of it is not there.
    FileDamaged(&'static str, &'static str),
    /// K3S-2.
    SharedKey,
    /// K3S-5: machine word, and what a refusal of the supervisor means.
    SupervisorRefused(&'static str, String),
}

impl IdentityError {
    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::PinMismatch(_) => "pin-mismatch",
            Self::CaChanged(..) => "ca-changed",
            Self::SignatureWrong(_) => "signature-wrong",
            Self::TokenUnknown(_) => "token-unknown",
            Self::AnonymousRefused(_) => "anonymous-refused",
            Self::NoClusterInfo => "no-cluster-info",
            Self::WrongCertificate(_) => "wrong-certificate",
            Self::AnswerMalformed(_) => "answer-malformed",
            Self::FileDamaged(..) => "identity-damaged",
            Self::SharedKey => "shared-key",
            Self::SupervisorRefused(word, _) => word,
        }
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PinMismatch(found) => {
                f.write_str("no CA of this cluster is one that the settings name: ")?;
                found.iter().try_for_each(|hash| write!(f, "it has {hash}; "))?;
                f.write_str("either this is not your cluster, or it has a new CA: then nodepulse join --ca-hash, or a new token")
            }
            Self::CaChanged(found, is_signed) => {
                f.write_str("no server has a certificate of a CA that this board trusts, which goes on with the old one; ")?;
                found.iter().try_for_each(|hash| write!(f, "the cluster shows {hash}, "))?;
                let verdict = if *is_signed { "signed" } else { "not signed" };
                write!(f, "{verdict} with this board's token: if that is its new CA, nodepulse join")?;
                found.iter().try_for_each(|hash| write!(f, " --ca-hash {hash}"))
            }
            Self::SignatureWrong(id) => write!(
                f,
                "cluster-info is signed with another secret than this token {id} has: either the token's secret is wrong, or \
                 this is not your cluster"
            ),
            Self::TokenUnknown(id) => write!(
                f,
                "the cluster does not know token {id}: it has expired, or was made seconds ago; make it valid again with \
                 kubeadm token create {id}.<its secret> --ttl 24h"
            ),
            Self::AnonymousRefused(code) => write!(
                f,
                "the server shows its cluster-info to nobody without credentials ({code}); give the cluster's CA with --ca-file"
            ),
            Self::NoClusterInfo => f.write_str(
                "the cluster has no cluster-info, so kubeadm did not make it; give its CA with --ca-file, or to a k3s server \
                 k3s' token",
            ),
            Self::WrongCertificate(what) => {
                write!(f, "the certificate that was issued is not taken: {what}; look at what approves and signs requests")
            }
            Self::AnswerMalformed(what) => write!(f, "the answer cannot be read: {what}; is this an API server?"),
            Self::FileDamaged(file, what) => {
                write!(f, "{file} is damaged: {what}; without an older copy this board has to join again")
            }
            Self::SharedKey => f.write_str(
                "this k3s server is older than 2025 and gives the same private key to all its agents, so each of them could be \
                 this Node; update it (1.30.9, 1.31.5, 1.32.1 or newer), or allow that with k3sSharedKey: true",
            ),
            Self::SupervisorRefused(_, what) => f.write_str(what),
        }
    }
}

impl std::error::Error for IdentityError {}
