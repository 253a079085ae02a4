//! Turns any bytes into what a container runtime answers, whole and byte by byte: both say the same, and end the same way.

use std::time::Duration;

use nodepulse::cri::{Client, Error};
use nodepulse::probe::ContainerRuntime;
use nodepulse::time::Up;

/// More texts than an answer may bring, each as long as one may be, with room for what stands around them.
const MOST_BYTES: usize = 64 * 1024;

fn heard(bytes: &[u8], step: usize) -> (ContainerRuntime, Option<Error>) {
    let now = Up::since_boot(Duration::from_secs(100));
    let (mut client, mut output) = (Client::new("/run/containerd/containerd.sock"), Vec::new());
    client.connected();
    client.want_images(3);
    client.tell_pod_cidr(Some("10.1.0.0/24".to_owned()));
    let asked = client.ask(now, &mut output);
    assert_eq!(asked, Ok(()));
    let mut ended = None;
    for part in bytes.chunks(step) {
        if let Err(error) = client.receive(part, &mut output) {
            ended = Some(error);
            break;
        }
    }
    (client.said(now), ended)
}

/// `bytes` stand for what a runtime sends, behind its SETTINGS.
pub fn check(bytes: &[u8]) {
    let bytes = [&[0, 0, 0, 4, 0, 0, 0, 0, 0], bytes].concat();
    let (whole, piecemeal) = (heard(&bytes, bytes.len()), heard(&bytes, 1));
    assert_eq!(whole, piecemeal);
    let handlers = whole.0.handlers.iter().map(|handler| handler.name.len());
    let images = whole.0.images.iter().flat_map(|image| &image.names).map(String::len);
    let texts = whole.0.problems.iter().map(String::len).chain(handlers).chain(images).sum::<usize>();
    assert!(texts < MOST_BYTES, "{texts}");
}
