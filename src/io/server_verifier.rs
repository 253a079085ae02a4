//! Turns the certificates that a server shows into trust, or rustls' reason for none: by the roots we were given and the
//! name we asked for, at the moment that [`CertificateClock`] says.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::clock::CertificateClock;
use crate::identity::certificate;

/// rustls' own verifier without revocation lists, but for the moment at which it judges.
#[derive(Debug)]
pub struct ServerVerifier {
    /// `None`: whoever it is, as long as it has the key of the certificate that it shows (JOIN-1).
    roots: Option<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    clock: Arc<CertificateClock>,
}

impl ServerVerifier {
    pub fn new(
        roots: Option<RootCertStore>,
        algorithms: WebPkiSupportedAlgorithms,
        clock: Arc<CertificateClock>,
    ) -> ServerVerifier {
        ServerVerifier { roots, algorithms, clock }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        let chain = iter::once(end_entity).chain(intermediates);
        let issued = chain.filter_map(|certificate| Some(certificate::validity(certificate)?.0)).max();
        let seconds = u64::try_from(self.clock.at(issued).unix_seconds()).unwrap_or(0);
        let moment = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let leaf = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(&leaf, roots, intermediates, moment, self.algorithms.all)?;
        verify_server_name(&leaf, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Wall;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
    use rustls::CertificateError;

    type Years = (i32, i32);

    fn params(name: &str, (from, until): Years) -> CertificateParams {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params
    }

    fn authority(years: Years, name: &str) -> CertificateParams {
        let mut params = params(name, years);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    /// What is wrong with a server's leaf that an intermediate issued, as a clock sees it; empty if nothing is.
    fn judged(clock: &Arc<CertificateClock>, intermediate: Years, leaf: Years) -> String {
        let key = || KeyPair::generate().unwrap();
        // Like the CA of a cluster that was made by a board in 1970: the dates of a root are nobody's business.
        let root = CertifiedIssuer::self_signed(authority((1970, 1980), "root"), key()).unwrap();
        let between = CertifiedIssuer::signed_by(authority(intermediate, "between"), key(), &root).unwrap();
        let leaf_key = key();
        let leaf = params("api", leaf).signed_by(&leaf_key, &between).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let verifier = ServerVerifier::new(Some(roots), algorithms, Arc::clone(clock));
        // Of the time that rustls believes in nothing must depend.
        let strange = UnixTime::since_unix_epoch(Duration::from_secs(1));
        let name = ServerName::try_from("api").unwrap();
        let verified = verifier.verify_server_cert(leaf.der(), &[between.der().clone()], &name, &[], strange);
        match verified {
            Ok(_) => String::new(),
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { .. })) => "expired".to_owned(),
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { .. })) => "not yet".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    const fn year(year: i64) -> Wall {
        Wall::from_unix_seconds((year - 1970) * 31_556_952 + 86_400)
    }

    #[test]
    fn without_a_clock_a_chain_is_judged_when_its_last_certificate_was_issued() {
        let unset: fn() -> (Wall, bool) = || (Wall::from_unix_seconds(12), false);
        let ahead: fn() -> (Wall, bool) = || (year(2099), false);
        for kernel in [unset, ahead] {
            let clock = CertificateClock::reading(kernel);
            assert_eq!(judged(&clock, (2020, 2030), (2026, 2027)), "", "neither too old nor too young");
            assert_eq!(judged(&clock, (2020, 2050), (2040, 2041)), "", "the server's was renewed meanwhile");
            assert_eq!(judged(&clock, (2045, 2050), (2040, 2046)), "", "or its issuer's");
            assert_eq!(judged(&clock, (2040, 2045), (2030, 2031)), "expired", "never valid together");
            assert_eq!(judged(&clock, (2020, 2030), (2025, 2026)), "expired", "before this program was built");
            assert_eq!(judged(&clock, (2020, 2026), (2025, 2028)), "expired", "its issuer's was");
            clock.passed(year(2029));
            assert_eq!(judged(&clock, (2020, 2030), (2026, 2027)), "expired", "before what is past");
            assert_eq!(judged(&clock, (2020, 2032), (2026, 2031)), "");
        }
    }

    #[test]
    fn a_clock_that_is_kept_right_decides() {
        let clock = CertificateClock::reading(|| (year(2030), true));
        assert_eq!(judged(&clock, (2020, 2040), (2029, 2031)), "");
        assert_eq!(judged(&clock, (2020, 2040), (2028, 2029)), "expired");
        assert_eq!(judged(&clock, (2020, 2040), (2031, 2032)), "not yet");
        assert_eq!(judged(&clock, (2031, 2040), (2029, 2032)), "not yet");
    }
}
