//! Turns what a token, a pin and the answers of strangers say into whom to trust, what to ask to be signed and what to keep:
//! the Node's identity, from its first request to its last renewal.
//!
//! Its rules have names: JOIN (from a token to trust), CSR (a request and its certificate), ROT (renewal), CA (a cluster's new
//! one), K3S (k3s and rke2). Of ring only digests are used, of rustls only the reader of PEM: keys are made, kept and used by
//! `io`.

pub mod bundle;
pub mod certificate;
pub mod cluster_info;
pub mod csr;
mod der;
pub mod endpoints;
mod error;
pub mod files;
pub mod pem;
pub mod pin;
pub mod renewal;
#[cfg(test)]
pub(crate) mod samples;
pub mod signing_request;
pub mod supervisor;
pub mod token;
pub mod unwritten;

pub use bundle::Bundle;
pub use error::IdentityError;
pub use renewal::Renewal;
pub use rustls::pki_types::CertificateDer;
pub use signing_request::SigningRequest;
