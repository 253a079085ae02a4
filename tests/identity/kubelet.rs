//! Turns what a real kubelet sends when it joins with a token into the bytes that ours must equal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nodepulse::identity::{SigningRequest, csr};
use serde_json::Value;

use super::{binaries, left_out};

const WITHIN: Duration = Duration::from_secs(60);
/// What comes before the 65 bytes of a point on P-256 in each SubjectPublicKeyInfo.
const BEFORE_POINT: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// AlgorithmIdentifier of ecdsa-with-SHA256.
const SIGNED_BY: [u8; 12] = [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// Ends with its value, and takes its folder along.
struct Kubelet {
    process: Child,
    folder: PathBuf,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A kubelet without a certificate, which asks `port` on loopback for one. It is ended before it does anything else.
fn start(program: &PathBuf, node: &str, port: u16) -> Kubelet {
    let folder = std::env::temp_dir().join(format!("nodepulse-identity-{}-{node:.20}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let bootstrap = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
         users: [{{name: u, user: {{token: abcdef.0123456789abcdef}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
    );
    let settings = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: false\n\
        failSwapOn: false\nfailCgroupV1: false\nport: 0\nhealthzPort: 0\nauthentication: {webhook: {enabled: false}}\n\
        containerRuntimeEndpoint: unix:///nonexistent\nauthorization: {mode: AlwaysAllow}\n";
    let below = |name: &str| folder.join(name).display().to_string();
    let process = Command::new(program)
        .arg(format!("--config={}", file("kubelet.yaml", settings.to_owned())))
        .arg(format!("--bootstrap-kubeconfig={}", file("bootstrap", bootstrap)))
        .arg(format!("--kubeconfig={}", below("kubeconfig")))
        .arg(format!("--cert-dir={}", below("pki")))
        .arg(format!("--root-dir={}", below("root")))
        .arg(format!("--hostname-override={node}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.join("log")).unwrap())
        .spawn()
        .unwrap();
    Kubelet { process, folder }
}

/// Answers the kubelet until it posts: method and path, and the body.
fn answered(listener: &TcpListener, kubelet: &mut Kubelet) -> (String, Vec<u8>) {
    let began = Instant::now();
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) => {
                let log = || std::fs::read_to_string(kubelet.folder.join("log")).unwrap_or_default();
                if let Some(status) = kubelet.process.try_wait().unwrap() {
                    panic!("the kubelet ended ({status}):\n{}", log());
                }
                assert!(began.elapsed() < WITHIN, "the kubelet asked for no certificate:\n{}", log());
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
        };
        if let Some(posted) = serve(stream) {
            return posted;
        }
    }
}

/// One request, then the end of the connection.
fn serve(mut stream: TcpStream) -> Option<(String, Vec<u8>)> {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    let path = first.rsplit_once(' ')?.0.to_owned();
    path.starts_with("POST").then_some((path, body))
}

fn position(bytes: &[u8], of: &[u8]) -> usize {
    bytes.windows(of.len()).position(|window| window == of).unwrap()
}

/// The same name, subject, key and signature give the same bytes.
fn compare(program: &PathBuf, node: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut kubelet = start(program, node, listener.local_addr().unwrap().port());
    let (path, body) = answered(&listener, &mut kubelet);
    drop(kubelet);
    assert_eq!(path, "POST /apis/certificates.k8s.io/v1/certificatesigningrequests");
    // In protobuf, where texts stand as they are, one after the other.
    let begin = position(&body, b"-----BEGIN CERTIFICATE REQUEST-----");
    let end = b"-----END CERTIFICATE REQUEST-----\n";
    let text = std::str::from_utf8(&body[begin..position(&body, end) + end.len()]).unwrap();
    let packed: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = STANDARD.decode(packed).unwrap();

    let point = &der[position(&der, &BEFORE_POINT) + BEFORE_POINT.len()..][..65];
    let ours = SigningRequest::new(node, point);
    // BIT STRING, its length and its count of unused bits come before the signature.
    let signature = &der[position(&der, &SIGNED_BY) + SIGNED_BY.len() + 3..];
    assert_eq!(ours.pem(signature), text, "{node}");
    assert!(ours.is_in(text.as_bytes()));

    // What the rest of our body says is what theirs says, in the same order.
    let made: Value = serde_json::from_str(&csr::create_body(&ours, signature, None)).unwrap();
    let texts = ["/metadata/name", "/spec/signerName", "/spec/usages/0", "/spec/usages/1"];
    let texts = texts.map(|path| made.pointer(path).and_then(Value::as_str).unwrap());
    assert_eq!((texts[0], made["spec"]["usages"].as_array().unwrap().len()), (ours.name().as_str(), 2));
    let name = position(&body, b"node-csr-");
    assert_eq!(std::str::from_utf8(&body[name..name + 52]), Ok(texts[0]), "{node}");
    let usages = texts[2..].iter().map(|usage| position(&body, usage.as_bytes())).collect::<Vec<_>>();
    assert!(usages[0] < usages[1] && !body.windows(16).any(|window| window == b"key encipherment"));
    position(&body, texts[1].as_bytes());
}

#[test]
fn a_kubelets_request_is_ours_byte_for_byte_and_has_our_name() {
    if let Err(why) = binaries::obtainable(&["kubelet"]) {
        left_out::leave_out("identity::kubelet", &why);
        return;
    }
    let program = binaries::find(&["kubelet"]).unwrap().remove("kubelet").unwrap();
    // Every form of a length: of the subject, of the common name, of the whole.
    for length in [1, 25, 26, 63] {
        compare(&program, &"n".repeat(length));
    }
}
