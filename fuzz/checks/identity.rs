//! Turns any bytes into what a board keeps of its identity, and into what strangers answer while it joins: read within bounds,
//! or told in a sentence. The first byte says which of them the rest is.

use nodepulse::config::limits;
use nodepulse::config::settings::{CaHash, Token};
use nodepulse::identity::cluster_info::ClusterInfo;
use nodepulse::identity::csr::{CertificateSigningRequest, Stage};
use nodepulse::identity::files::{NodePem, Pending};
use nodepulse::identity::token::Kind;
use nodepulse::identity::{IdentityError, SigningRequest, pin, supervisor};

const TOKEN: &str = "abcdef.0123456789abcdef";

fn told(error: IdentityError) {
    assert!(!error.word().is_empty() && !error.to_string().is_empty());
}

/// `bytes` stand for a kind, and a file or an answer.
pub fn check(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 7 {
        0 => node_pem(bytes),
        1 => pending(bytes),
        2 => request(bytes),
        3 => cluster_info(bytes),
        4 => supervisor_certificate(bytes),
        5 => supervisor_settings(bytes),
        _ => token(bytes),
    }
}

fn node_pem(bytes: &[u8]) {
    match NodePem::read(bytes) {
        // Of the line `received` whole seconds are kept.
        Ok(read) => {
            let again = NodePem::read(read.text().as_bytes()).map(|again| (again.chain, again.key));
            assert_eq!(again, Ok((read.chain, read.key)));
        }
        Err(error) => told(error),
    }
}

fn pending(bytes: &[u8]) {
    match Pending::read(bytes) {
        Ok(read) => assert_eq!(Pending::read(read.text().as_bytes()), Ok(read)),
        Err(error) => told(error),
    }
}

fn request(bytes: &[u8]) {
    let ours = SigningRequest::new("board", &[4; 65]);
    assert!(!ours.is_in(bytes) || bytes.len() > 200);
    match CertificateSigningRequest::read(bytes) {
        Ok(read) => {
            assert!(read.uid.len() <= limits::OBJECT_TEXT_BYTES);
            assert!(!read.asks_for(&ours) || bytes.len() > 200);
            if let Stage::Denied(said) | Stage::Failed(said) = read.stage {
                assert!(said.chars().count() <= limits::FOREIGN_TEXT_CHARS);
            }
        }
        Err(error) => told(error),
    }
}

fn cluster_info(bytes: &[u8]) {
    let info = match ClusterInfo::read(bytes) {
        Ok(info) => info,
        Err(error) => return told(error),
    };
    let token = Token::parse(TOKEN).unwrap_or_else(|wrong| panic!("{wrong}"));
    if let Some(Kind::Bootstrap(token)) = Kind::of(&token) {
        let _ = info.check_signature(token).map_err(told);
    }
    match info.cluster() {
        Ok(cluster) => {
            assert!(cluster.authorities.len() <= limits::CA_CERTIFICATES && !cluster.server.host.is_empty());
            assert!(pin::pinned(&cluster.authorities, &[]).map_err(told).is_err(), "nothing was pinned");
        }
        Err(error) => told(error),
    }
}

fn supervisor_certificate(bytes: &[u8]) {
    let strict = supervisor::read_certificate(bytes, false);
    assert!(strict.as_ref().is_ok_and(|(_, key)| key.is_none()) || strict == Err(IdentityError::SharedKey));
    match supervisor::read_certificate(bytes, true) {
        Ok((chain, _)) => assert!(chain.len() <= limits::CA_CERTIFICATES),
        Err(error) => told(error),
    }
    let _ = pin::vouched_by_token(bytes, CaHash { digest: [0; 32] }).map_err(told);
}

fn supervisor_settings(bytes: &[u8]) {
    match supervisor::read_api_servers(bytes) {
        Ok(servers) => assert!(servers.len() <= limits::JOIN_SERVERS),
        Err(error) => told(error),
    }
    let _ = supervisor::read_api_port(bytes).map_err(told);
}

/// Whatever the settings take as a token is one of two kinds.
fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(token) = Token::parse(text) {
        let authorization = match Kind::of(&token) {
            Some(Kind::Bootstrap(token)) => token.authorization(),
            Some(Kind::Supervisor(token)) => token.authorization(),
            None => panic!("a token of neither kind"),
        };
        assert!(authorization.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
    }
}
