//! Turns images of a few hundred bytes into ones that a container runtime of this machine has pulled, from a registry on loopback.

// The linter keeps threads out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ring::digest::{SHA256, digest};

use super::super::cluster::Result;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The first byte of whoever wants TLS.
const TLS: u8 = 0x16;
const PULLED_WITHIN: Duration = Duration::from_secs(60);
/// One layer without a file: the end of a tar.
const LAYER: [u8; 1024] = [0; 1024];

/// One image: a manifest, and what it names.
struct Image {
    name: String,
    manifest: Vec<u8>,
    configuration: Vec<u8>,
}

/// A server that has them. Its threads end with this process.
pub struct Registry {
    port: u16,
}

impl Registry {
    /// `images`: the name of each, and by how many bytes it is larger than the least.
    pub fn serve(images: &[(&str, usize)]) -> Result<Registry> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("a port for a registry: {e}"))?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let images: Arc<Vec<Image>> = Arc::new(images.iter().map(|(name, bytes)| Image::new(name, *bytes)).collect());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let images = Arc::clone(&images);
                thread::spawn(move || answer(&client, &images));
            }
        });
        Ok(Registry { port })
    }

    /// Has the runtime at this socket pull `NAME:TAG`.
    pub fn pull(&self, socket: &Path, image: &str) -> Result<()> {
        let reference = format!("127.0.0.1:{}/{image}", self.port);
        let request = field(1, &field(1, reference.as_bytes()));
        let ended = call(socket, "/runtime.v1.ImageService/PullImage", &request);
        ended.map_err(|e| format!("{}: no {reference} pulled: {e}", socket.display()))
    }
}

impl Image {
    fn new(name: &str, more_bytes: usize) -> Image {
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let configuration = serde_json::json!({
            "author": "x".repeat(more_bytes), "architecture": architecture, "os": "linux", "config": {},
            "rootfs": { "type": "layers", "diff_ids": [sha256(&LAYER)] },
        });
        let configuration = configuration.to_string().into_bytes();
        let part = |kind: &str, content: &[u8]| serde_json::json!({ "mediaType": kind, "digest": sha256(content), "size": content.len() });
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": part("application/vnd.oci.image.config.v1+json", &configuration),
            "layers": [part("application/vnd.oci.image.layer.v1.tar", &LAYER)],
        });
        Image { name: name.to_owned(), manifest: manifest.to_string().into_bytes(), configuration }
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digits = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{digits}")
}

/// Requests of one connection, until its end.
fn answer(client: &TcpStream, images: &[Image]) {
    let mut reader = BufReader::new(client);
    let mut writer = client;
    if reader.fill_buf().is_ok_and(|begun| begun.first() == Some(&TLS)) {
        // A runtime that is told so by HTTP takes that for a machine's own registry.
        let _ = writer.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        return;
    }
    let mut lines = reader.lines().map_while(std::result::Result::ok);
    while let Some(request) = lines.next() {
        // There is no body.
        lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
        let (method, path) = request.split_once(' ').unwrap_or_default();
        let path = path.split(' ').next().unwrap_or_default();
        let found = images.iter().find_map(|image| {
            let what = path.strip_prefix("/v2/")?.strip_prefix(image.name.as_str())?.strip_prefix('/')?;
            let (kind, wanted) = what.split_once('/')?;
            let blobs = [image.configuration.as_slice(), &LAYER];
            match kind {
                "manifests" => Some((MANIFEST, image.manifest.as_slice())),
                _ => {
                    blobs.into_iter().find(|blob| sha256(blob) == wanted).map(|blob| ("application/octet-stream", blob))
                }
            }
        });
        let (status, kind, content) = match found {
            Some((kind, content)) => ("200 OK", kind, content),
            None if path == "/v2/" => ("200 OK", "text/plain", &[][..]),
            None => ("404 Not Found", "text/plain", &[][..]),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\ndocker-content-digest: {}\r\n\r\n",
            content.len(),
            sha256(content)
        );
        let content = if method == "HEAD" { &[][..] } else { content };
        if writer.write_all(&[head.as_bytes(), content].concat()).is_err() {
            return;
        }
    }
}

// What is written below is shorter than 128 bytes.

/// A field of protobuf.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// One call of gRPC: it returns when the answer has ended, well or not, which only the runtime's log tells.
fn call(socket: &Path, path: &str, message: &[u8]) -> Result<()> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let head: Vec<u8> = fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect();
    let length = (message.len() as u32).to_be_bytes();
    let content = [&[0], &length[..], message].concat();
    let sent = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[]),
        frame(1, 4, 1, &head),
        frame(0, 1, 1, &content),
    ];
    let mut stream = UnixStream::connect(socket).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(PULLED_WITHIN)).map_err(|e| e.to_string())?;
    stream.write_all(&sent.concat()).map_err(|e| e.to_string())?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).map_err(|e| e.to_string())?;
        let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).map_err(|e| e.to_string())?;
        match (head[3], head[4] & 1) {
            // Fields that end the stream, or its reset.
            (1, 1) | (3, _) => return Ok(()),
            (6, 0) => stream.write_all(&frame(6, 1, 0, &payload)).map_err(|e| e.to_string())?,
            _ => {}
        }
    }
}
