//! Turns plaintext into TLS records and back, without a socket, and what rustls finds wrong into a [`Failure`].
//!
//! Four functions are the whole seam: [`Tls::feed`], [`Tls::take`], [`Tls::seal`] and [`Tls::is_ready`]. rustls 0.24
//! changes its buffered interface; nothing outside this file will notice.

use std::io::{BufRead, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, InconsistentKeys, PeerIncompatible,
    RootCertStore,
};
use zeroize::Zeroize;

use super::clock::{self, CertificateClock};
use super::crypto;
use super::server_verifier::ServerVerifier;
use crate::api::failure::{Failure, cut};
use crate::config::settings::AlpnProtocol;
use crate::time::{Up, Wall};

/// Bytes that rustls may queue in each direction; we empty its queues at once, so this only bounds a mistake.
const QUEUE_BYTES: usize = 16 * 1024;

/// A client certificate and its key.
pub struct Identity {
    /// The leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// How servers are judged and who we are. Made once per set of credentials: tickets of earlier connections live in it.
pub fn client_config(
    roots: Option<RootCertStore>,
    identity: Option<Identity>,
    clock: Arc<CertificateClock>,
) -> Result<Arc<ClientConfig>, Failure> {
    let provider = Arc::new(crypto::provider());
    let verifier = ServerVerifier::new(roots, provider.signature_verification_algorithms, clock);
    let builder = ClientConfig::builder_with_details(provider, Arc::new(TicketClock))
        .with_protocol_versions(PROTOCOL_VERSIONS)
        .map_err(failure_of)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        Some(identity) => builder.with_client_cert_resolver(Arc::new(certified(identity).map_err(own_failure)?)),
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::in_memory_sessions(1);
    Ok(Arc::new(config))
}

/// What tickets are dated by: a clock that nobody sets. (Certificates have a clock of their own, in `ServerVerifier`.) It also
/// keeps rustls away from the wall clock as std reads it, which panics after 2038 where a C library's time has 32 bits.
#[derive(Debug)]
struct TicketClock;

impl TimeProvider for TicketClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(clock::up() - Up::BOOT))
    }
}

/// The key as it was read is overwritten; what signs with it has a form of its own.
fn certified(mut identity: Identity) -> Result<SingleCertAndKey, Error> {
    let signing = any_supported_type(&identity.key);
    identity.key.zeroize();
    let certified = CertifiedKey::new(identity.chain, signing?);
    match certified.keys_match() {
        // Not every kind of key can say.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified.into()),
        Err(error) => Err(error),
    }
}

#[cfg(not(feature = "tls12"))]
const PROTOCOL_VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
#[cfg(feature = "tls12")]
const PROTOCOL_VERSIONS: &[&rustls::SupportedProtocolVersion] = rustls::ALL_VERSIONS;

/// One TLS connection, as bytes.
pub struct Tls {
    /// Boxed: a kilobyte that would be copied at every hand-over.
    connection: Box<ClientConnection>,
    /// Records that wait for the socket.
    outgoing: Vec<u8>,
    /// The peer said close_notify: the end of the stream is no accident.
    closed: bool,
}

impl Tls {
    /// `server_name`: a DNS name or an IP literal that the certificate must carry. `only`: the one protocol that is offered.
    pub fn new(config: Arc<ClientConfig>, server_name: &str, only: Option<AlpnProtocol>) -> Result<Tls, Failure> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| other(format!("{server_name:?} is neither a DNS name nor an IP address")))?;
        let offered = AlpnProtocol::ALL.into_iter().filter(|protocol| only.is_none_or(|only| only == *protocol));
        let offered = offered.map(|protocol| protocol.as_str().into()).collect();
        let mut connection = ClientConnection::new_with_alpn(config, name, offered).map_err(failure_of)?;
        connection.set_buffer_limit(Some(QUEUE_BYTES));
        let mut tls = Tls { connection: Box::new(connection), outgoing: Vec::new(), closed: false };
        tls.collect();
        Ok(tls)
    }

    /// Takes bytes from the socket and appends what they say to `plaintext`. After a failure [`Tls::take`] still holds
    /// the alert for the peer.
    pub fn feed(&mut self, mut records: &[u8], plaintext: &mut Vec<u8>) -> Result<(), Failure> {
        while !records.is_empty() {
            let taken = self.connection.read_tls(&mut records).map_err(|error| other(error.to_string()))?;
            let processed = self.connection.process_new_packets();
            self.collect();
            let state = processed.map_err(failure_of)?;
            let mut reader = self.connection.reader();
            // What is left then is an end, which `closed` says, or nothing.
            while let Ok(part @ [_, ..]) = reader.fill_buf() {
                plaintext.extend_from_slice(part);
                let taken = part.len();
                reader.consume(taken);
            }
            self.closed |= state.peer_has_closed();
            if taken == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Whether records wait to be sent.
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The records to be sent; remove from the front what the socket took.
    pub fn take(&mut self) -> &mut Vec<u8> {
        &mut self.outgoing
    }

    /// Encrypts `plaintext`. Right after the handshake it joins the client's last flight, so both leave in one packet.
    pub fn seal(&mut self, mut plaintext: &[u8]) -> Result<(), Failure> {
        while !plaintext.is_empty() {
            let taken = self.connection.writer().write(plaintext).map_err(|error| other(error.to_string()))?;
            if taken == 0 {
                return Err(other("no plaintext is taken".to_owned()));
            }
            plaintext = plaintext.get(taken..).unwrap_or_default();
            self.collect();
        }
        Ok(())
    }

    /// The handshake is done: [`Tls::seal`] may be used.
    pub fn is_ready(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Whether the server has chosen that. One that chooses nothing speaks HTTP/1.1.
    pub fn speaks_http2(&self, only: Option<AlpnProtocol>) -> Result<bool, Failure> {
        let is_http2 = self.connection.alpn_protocol() == Some(AlpnProtocol::Http2.as_str().as_bytes());
        if is_http2 || only != Some(AlpnProtocol::Http2) { Ok(is_http2) } else { Err(no_protocol()) }
    }

    /// What the server proved itself with, in DER; `None` during the handshake.
    pub fn server_certificate(&self) -> Option<&[u8]> {
        self.connection.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// The peer ended the stream on purpose.
    pub fn is_closed_by_peer(&self) -> bool {
        self.closed
    }

    /// Says that this was all.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
        self.collect();
    }

    fn collect(&mut self) {
        while self.connection.wants_write() {
            // Writing into memory cannot fail.
            if self.connection.write_tls(&mut self.outgoing).is_err() {
                return;
            }
        }
    }
}

fn other(detail: String) -> Failure {
    Failure::new("tls-failed", format!("TLS failed: {}", cut(&detail)))
}

fn no_protocol() -> Failure {
    Failure::new("alpn-refused", "the server does not speak the only protocol that alpnProtocol allows; leave it out")
}

fn stamp(time: UnixTime) -> Wall {
    Wall::from_unix_seconds(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

/// What is wrong with our own certificate or key.
fn own_failure(error: Error) -> Failure {
    match error {
        Error::InvalidCertificate(error) => {
            let is_version_1 = format!("{error:?}").contains("UnsupportedCertVersion");
            let version =
                if is_version_1 { "it is of X.509 version 1, and must be of version 3" } else { &error.to_string() };
            other(format!("the client certificate is unusable: {version}"))
        }
        error => failure_of(error),
    }
}

/// What a person can act on, for every error of rustls.
pub(super) fn failure_of(error: Error) -> Failure {
    match error {
        Error::InvalidCertificate(error) => failure_of_certificate(error),
        Error::AlertReceived(AlertDescription::ProtocolVersion)
        | Error::PeerIncompatible(
            PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig | PeerIncompatible::ServerDoesNotSupportTls12Or13,
        ) => other(format!("the server does not speak {SPOKEN}")),
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => no_protocol(),
        Error::AlertReceived(alert) => Failure::new(
            "tls-refused-by-peer",
            format!("the server ended the TLS handshake (alert {alert:?}); it may not accept our client certificate"),
        ),
        Error::InvalidMessage(_) => {
            other(format!("what answers there does not speak TLS ({error}); is this the port of an API server?"))
        }
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            other("the client key does not belong to the client certificate".to_owned())
        }
        error => other(error.to_string()),
    }
}

#[cfg(not(feature = "tls12"))]
const SPOKEN: &str = "TLS 1.3, the only version this program was built with (feature tls12 adds 1.2)";
#[cfg(feature = "tls12")]
const SPOKEN: &str = "TLS 1.2 or 1.3";

fn failure_of_certificate(error: CertificateError) -> Failure {
    match error {
        // A CA that was made anew under its old name gives a bad signature, not an unknown issuer.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Failure::new(
            "tls-unknown-issuer",
            "the server's certificate is signed by nobody the kubeconfig trusts: wrong certificate-authority, or \
             somebody intercepts TLS",
        ),
        CertificateError::ExpiredContext { time, not_after } => {
            let dates = format!("valid until {}, here it is {}", stamp(not_after), stamp(time));
            let text = format!("the server's certificate has expired ({dates}); renew it, or set this board's clock");
            Failure::new("tls-certificate-expired", text)
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let dates = format!("valid from {}, here it is {}", stamp(not_before), stamp(time));
            let advice = "this board's clock is probably behind";
            let text = format!("the server's certificate is not valid yet ({dates}); {advice}");
            Failure::new("tls-certificate-not-yet-valid", text)
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let (name, names) = (expected.to_str(), short_list(&presented));
            let advice = "set tls-server-name in the kubeconfig, or fix the server's address";
            let text = format!("the server's certificate is not for {name} (only for {names}); {advice}");
            Failure::new("tls-wrong-name", text)
        }
        error => other(format!("the server's certificate is unusable: {error}")),
    }
}

/// The first names of a certificate, readable: `DnsName("a")` loses its wrapping.
fn short_list(presented: &[String]) -> String {
    const SHOWN: usize = 8;
    let bare =
        |name: &String| cut(name.split_once('(').map_or(name.as_str(), |(_, rest)| rest).trim_matches(['"', ')']));
    let names: Vec<String> = presented.iter().take(SHOWN).map(bare).collect();
    let more = if presented.len() > SHOWN { " and more" } else { "" };
    if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") + more }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::io::clock::CertificateClock;
    use crate::io::loopback::{Authority, Signed};
    use rustls::pki_types::pem::PemObject;
    use rustls::{ServerConfig, ServerConnection};

    const YEAR_SECONDS: i64 = 365 * 86_400;

    #[test]
    fn tickets_are_dated_by_the_boot_clock() {
        let now = || UnixTime::since_unix_epoch(clock::up() - Up::BOOT).as_secs();
        let before = now();
        let config = client_config(None, None, CertificateClock::new()).unwrap();
        let dated = config.time_provider.current_time().unwrap().as_secs();
        assert!((before..=now()).contains(&dated), "{dated}");
    }

    fn client(authority: &Authority, signed: Option<Signed>, clock: Arc<CertificateClock>, name: &str) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&authority.pem()).unwrap()).unwrap();
        let identity = signed.map(|signed| Identity {
            chain: vec![signed.certificate.der().clone()],
            key: PrivateKeyDer::try_from(signed.key.serialize_der()).unwrap(),
        });
        Tls::new(client_config(Some(roots), identity, clock).unwrap(), name, None).unwrap()
    }

    /// Lets both sides talk in memory until neither has more to say. Gives the server's flights, each whole.
    fn talk(client: &mut Tls, server: &mut ServerConnection, plaintext: &mut Vec<u8>) -> Result<usize, Failure> {
        let mut flights = 0;
        while client.has_outgoing() {
            let records = std::mem::take(client.take());
            flights += 1;
            let mut unread = records.as_slice();
            while !unread.is_empty() {
                server.read_tls(&mut unread).unwrap();
                // A refusal is told to the client by its alert.
                let _ = server.process_new_packets();
            }
            let mut reply = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut reply).unwrap();
            }
            client.feed(&reply, plaintext)?;
        }
        Ok(flights)
    }

    fn server(config: Arc<ServerConfig>) -> ServerConnection {
        ServerConnection::new(config).unwrap()
    }

    fn meet(authority: &Authority, signed: &Signed, clock: Arc<CertificateClock>, name: &str) -> Result<(), Failure> {
        let mut client = client(authority, None, clock, name);
        talk(&mut client, &mut server(authority.server_config(signed)), &mut Vec::new()).map(drop)
    }

    #[test]
    fn the_first_request_leaves_with_the_last_flight_of_the_handshake() {
        let authority = Authority::new();
        let mut server = server(authority.server_config(&authority.sign(&["api"])));
        let mut client = client(&authority, Some(authority.sign(&["board"])), CertificateClock::new(), "api");
        let mut plaintext = Vec::new();
        // The client's hello, and the server's flight in answer to it.
        let mut hello = client.take().as_slice();
        server.read_tls(&mut hello).unwrap();
        server.process_new_packets().unwrap();
        client.take().clear();
        let mut reply = Vec::new();
        server.write_tls(&mut reply).unwrap();
        assert!(!client.is_ready());
        client.feed(&reply, &mut plaintext).unwrap();
        assert!(client.is_ready() && client.has_outgoing());
        client.seal(b"GET /version").unwrap();
        assert_eq!(talk(&mut client, &mut server, &mut plaintext).unwrap(), 1, "one flight carries both");
        let mut request = [0; 12];
        server.reader().read_exact(&mut request).unwrap();
        assert_eq!(&request, b"GET /version");
        assert_eq!(server.peer_certificates().unwrap().len(), 1);
    }

    #[test]
    fn records_may_be_cut_anywhere() {
        let authority = Authority::new();
        let mut server = server(authority.server_config(&authority.sign(&["api"])));
        let mut client = client(&authority, None, CertificateClock::new(), "api");
        let mut plaintext = Vec::new();
        talk(&mut client, &mut server, &mut plaintext).unwrap();
        let sent = vec![b'x'; 40_000];
        let mut records = Vec::new();
        server.set_buffer_limit(None);
        server.writer().write_all(&sent).unwrap();
        server.send_close_notify();
        while server.wants_write() {
            server.write_tls(&mut records).unwrap();
        }
        for piece in records.chunks(777) {
            client.feed(piece, &mut plaintext).unwrap();
        }
        assert!(plaintext == sent && client.is_closed_by_peer());
    }

    #[test]
    fn a_server_of_another_ca_has_an_unknown_issuer_even_if_the_ca_bears_the_same_name() {
        let (ours, theirs) = (Authority::new(), Authority::new());
        let failure = talk(
            &mut client(&ours, None, CertificateClock::new(), "api"),
            &mut server(theirs.server_config(&theirs.sign(&["api"]))),
            &mut Vec::new(),
        );
        assert_eq!(failure.unwrap_err().word(), "tls-unknown-issuer");
    }

    #[test]
    fn dates_that_do_not_fit_are_told_with_both_times() {
        let authority = Authority::new();
        let clock = || CertificateClock::reading(|| (Wall::from_unix_seconds(57 * YEAR_SECONDS), true));
        let expired = meet(&authority, &authority.sign_for_years(&["api"], 2001, 2002), clock(), "api");
        let told = |failed: Result<(), Failure>| failed.map_err(|why| (why.word(), why.to_string())).unwrap_err();
        let (word, text) = told(expired);
        assert_eq!(word, "tls-certificate-expired");
        assert!(text.contains("(valid until 2002-01-01T00:00:00Z, here it is 2026-12-18T00:00:00Z)"), "{text}");
        let future = meet(&authority, &authority.sign_for_years(&["api"], 2090, 2095), clock(), "api");
        let (word, text) = told(future);
        assert_eq!(word, "tls-certificate-not-yet-valid");
        assert!(text.contains("(valid from 2090-01-01T00:00:00Z, here it is 2026-12-18T00:00:00Z)"), "{text}");
    }

    #[test]
    fn to_a_board_in_1970_a_renewed_certificate_is_not_too_young() {
        let authority = Authority::new();
        let in_1970 = || CertificateClock::reading(|| (Wall::from_unix_seconds(12), false));
        let signed = authority.sign_for_years(&["api"], 2090, 2095);
        assert_eq!(meet(&authority, &signed, in_1970(), "api"), Ok(()));
        let expired = meet(&authority, &authority.sign_for_years(&["api"], 2001, 2002), in_1970(), "api");
        assert_eq!(expired.unwrap_err().word(), "tls-certificate-expired");
    }

    #[test]
    fn a_wrong_name_is_told_with_the_names_there_are() {
        let authority = Authority::new();
        let signed = authority.sign(&["kubernetes", "10.96.0.1"]);
        assert_eq!(meet(&authority, &signed, CertificateClock::new(), "10.96.0.1"), Ok(()));
        let wrong = meet(&authority, &signed, CertificateClock::new(), "api.example");
        let wrong = wrong.unwrap_err();
        assert_eq!(wrong.word(), "tls-wrong-name");
        assert!(wrong.to_string().contains("not for api.example (only for kubernetes, 10.96.0.1);"), "{wrong}");
    }

    #[test]
    fn a_client_certificate_that_the_server_refuses_is_told_as_its_alert() {
        let authority = Authority::new();
        let stranger = Authority::new().sign(&["board"]);
        let mut client = client(&authority, Some(stranger), CertificateClock::new(), "api");
        let refused =
            talk(&mut client, &mut server(authority.server_config(&authority.sign(&["api"]))), &mut Vec::new());
        let refused = refused.unwrap_err();
        assert_eq!(refused.word(), "tls-refused-by-peer");
        assert!(refused.to_string().contains("(alert "), "{refused}");
    }

    /// `openssl x509 -req -signkey KEY` of OpenSSL 3.0 makes such certificates.
    #[test]
    fn a_client_certificate_of_version_1_is_called_the_clients() {
        let pem = include_bytes!("tls/version-1.pem");
        let identity = Identity {
            chain: vec![CertificateDer::from_pem_slice(pem).unwrap()],
            key: PrivateKeyDer::from_pem_slice(pem).unwrap(),
        };
        let failure = client_config(Some(RootCertStore::empty()), Some(identity), CertificateClock::new()).unwrap_err();
        let text = failure.to_string();
        assert!(text.contains("the client certificate is unusable: it is of X.509 version 1"), "{text}");
    }

    #[test]
    fn a_port_that_does_not_speak_tls_is_told_apart() {
        let mut client = client(&Authority::new(), None, CertificateClock::new(), "api");
        let failure = client.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n", &mut Vec::new()).unwrap_err();
        assert!(failure.to_string().contains("does not speak TLS"), "{failure}");
    }
}
