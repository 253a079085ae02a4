//! Turns openssl's command line into the judge of requests, certificates, pins and signatures.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nodepulse::config::settings::Token;
use nodepulse::identity::cluster_info::ClusterInfo;
use nodepulse::identity::files::{NodePem, PrivateKey};
use nodepulse::identity::token::Kind;
use nodepulse::identity::{Renewal, SigningRequest, certificate, pem, pin};
use nodepulse::time::Wall;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

use super::left_out;

/// A folder that goes away with its value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("nodepulse-openssl-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What openssl writes to its standard output; words are split at spaces.
fn run(folder: &Path, arguments: &str, input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args(arguments.split(' ')).current_dir(folder).env("OPENSSL_CONF", "openssl.cnf");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn text(folder: &Folder, arguments: &str) -> String {
    String::from_utf8(run(&folder.0, arguments, b"")).unwrap()
}

/// `None`, told, where there is no openssl.
fn prepared(test: &str) -> Option<Folder> {
    if Command::new("openssl").arg("version").output().is_err() {
        left_out::leave_out(&format!("identity::openssl::{test}"), "openssl is not installed");
        return None;
    }
    let folder = Folder::new();
    folder.write("openssl.cnf", "[req]\ndistinguished_name = dn\n[dn]\n");
    Some(folder)
}

struct Key {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
}

fn key() -> Key {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap().as_ref().to_vec();
    Key { pair: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8, &random).unwrap(), pkcs8 }
}

fn request(node: &str, key: &Key) -> (SigningRequest, String) {
    let request = SigningRequest::new(node, key.pair.public_key().as_ref());
    let signature = key.pair.sign(&SystemRandom::new(), &request.to_be_signed()).unwrap();
    let pem = request.pem(signature.as_ref());
    (request, pem)
}

#[test]
fn requests_for_names_of_every_length_are_whole_and_signed_by_their_key() {
    let Some(folder) = prepared("requests") else { return };
    let key = key();
    for node in ["n", "edge-1.example", &"n".repeat(25), &"n".repeat(26), &"n".repeat(52), &"n".repeat(63)] {
        folder.write("csr.pem", request(node, &key).1);
        let said = text(&folder, "req -in csr.pem -verify -noout -subject -nameopt RFC2253,show_type");
        assert_eq!(
            said.trim_end(),
            format!("subject=CN=PRINTABLESTRING:system:node:{node},O=PRINTABLESTRING:system:nodes")
        );
        let mut changed = request(node, &key).1;
        let at = changed.find('\n').unwrap() + 100;
        changed.replace_range(at..=at, if changed.as_bytes()[at] == b'A' { "B" } else { "A" });
        folder.write("csr.pem", changed);
        let mut command = Command::new("openssl");
        command.args(["req", "-in", "csr.pem", "-verify", "-noout"]).current_dir(&folder.0);
        let output = command.env("OPENSSL_CONF", "openssl.cnf").output().unwrap();
        assert!(!String::from_utf8_lossy(&output.stderr).contains("verify OK"), "a changed request is no good one");
    }
}

#[test]
fn a_certificate_that_openssl_issues_is_taken_and_its_dates_and_key_are_what_openssl_says() {
    let Some(folder) = prepared("certificates") else { return };
    let key = key();
    let (request, pem_text) = request("edge-7", &key);
    folder.write("csr.pem", pem_text);
    folder.write("usages", "extendedKeyUsage = critical,clientAuth\nkeyUsage = digitalSignature\n");
    folder.write("server", "extendedKeyUsage = serverAuth\n");
    run(
        &folder.0,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -keyout ca.key -out ca.pem -subj /CN=ca -days 30",
        b"",
    );
    run(&folder.0, "x509 -req -in csr.pem -CA ca.pem -CAkey ca.key -days 300 -extfile usages -out leaf.pem", b"");
    run(&folder.0, "x509 -req -in csr.pem -CA ca.pem -CAkey ca.key -days 300 -extfile server -out server.pem", b"");
    let read = |name| pem::certificates(&folder.read(name)).next().unwrap();
    let (leaf, floor) = (read("leaf.pem"), Wall::from_unix_seconds(0));
    let check = |leaf: &[u8]| certificate::check_issued(leaf, "edge-7", request.key(), floor);
    assert_eq!(check(&leaf), Ok(()));
    assert!(check(&read("server.pem")).unwrap_err().to_string().contains("client authentication"));

    let dates = text(&folder, "x509 -in leaf.pem -noout -dates -dateopt iso_8601");
    let (from, to) = certificate::validity(&leaf).unwrap();
    let spaced = |wall: Wall| wall.to_seconds_stamp().replace('T', " ");
    assert_eq!(dates, format!("notBefore={}\nnotAfter={}\n", spaced(from), spaced(to)));
    let renewal = Renewal::of(&leaf, None).unwrap();
    assert_eq!((renewal.start, renewal.end), (from, to));

    // What an administrator types to print a pin.
    let public = run(&folder.0, "x509 -in ca.pem -pubkey -noout", b"");
    let der = run(&folder.0, "pkey -pubin -outform der", &public);
    let digest = String::from_utf8(run(&folder.0, "dgst -sha256 -r", &der)).unwrap();
    assert_eq!(pin::of(&read("ca.pem")).unwrap().to_string(), format!("sha256:{}", digest.split(' ').next().unwrap()));

    // The file that a board keeps is one that others can read.
    let node = NodePem { received: None, chain: vec![leaf], key: PrivateKey::new(&key.pkcs8) };
    folder.write("node.pem", node.text().as_bytes());
    let of_certificate = text(&folder, "x509 -in node.pem -pubkey -noout");
    assert_eq!(text(&folder, "pkey -in node.pem -pubout"), of_certificate);
    assert_eq!(NodePem::read(&folder.read("node.pem")), Ok(node));
}

#[test]
fn a_signature_that_openssl_computes_is_right_and_with_another_secret_wrong() {
    let Some(folder) = prepared("signatures") else { return };
    let kubeconfig = "apiVersion: v1\nkind: Config\nclusters:\n- cluster: {server: \"https://h\u{e9}\\\\\"}\n";
    for (id, secret, is_right) in
        [("abcdef", "0123456789abcdef", true), ("zz99zz", "zzzzzzzzzzzzzzzz", true), ("abcdef", "x", false)]
    {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(kubeconfig));
        let mac = run(&folder.0, &format!("dgst -sha256 -hmac {secret} -binary"), signed.as_bytes());
        let value = format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac));
        let mut data = serde_json::json!({ "kubeconfig": kubeconfig });
        data[format!("jws-kubeconfig-{id}")] = value.into();
        let info = ClusterInfo::read(serde_json::json!({ "data": data }).to_string().as_bytes()).unwrap();
        let secret = if is_right { secret } else { "0123456789abcdef" };
        let token = Token::parse(&format!("{id}.{secret}")).unwrap();
        let Some(Kind::Bootstrap(token)) = Kind::of(&token) else { panic!("another kind") };
        assert_eq!(info.check_signature(token).is_ok(), is_right, "{id}");
    }
}
