//! Turns names into addresses, or into silence: as much of a DNS server (RFC 1035) as libc's resolver asks for.

use super::super::cluster::Result;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
/// Name pointer to the question, class IN, a lifetime of one second.
const ANSWER_HEAD: [u8; 2] = [0xc0, 0x0c];

/// What is asked is answered with.
#[derive(Clone)]
enum Manner {
    /// These addresses, whatever the name.
    Answer(Vec<IpAddr>),
    /// Nothing at all.
    Silent,
    /// The thread ends, and with it the port.
    Gone,
}

/// A server on port 53 of one address. It ends with its value.
pub struct NameServer {
    address: SocketAddr,
    shared: Arc<Mutex<(Manner, usize)>>,
    answering: Option<JoinHandle<()>>,
}

impl NameServer {
    pub fn start(ip: Ipv4Addr, addresses: &[IpAddr]) -> Result<Self> {
        let address = SocketAddr::from((ip, 53));
        let socket = UdpSocket::bind(address).map_err(|e| format!("cannot listen on {address}: {e}"))?;
        socket.set_read_timeout(Some(Duration::from_millis(50))).map_err(|e| e.to_string())?;
        let shared = Arc::new(Mutex::new((Manner::Answer(addresses.to_vec()), 0)));
        let held = Arc::clone(&shared);
        let answering = spawn(move || serve(&socket, &held));
        Ok(Self { address, shared, answering: Some(answering) })
    }

    /// From now on it hears and says nothing.
    pub fn fall_silent(&self) {
        lock(&self.shared).0 = Manner::Silent;
    }

    /// How many questions it was asked.
    pub fn asked(&self) -> usize {
        lock(&self.shared).1
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        lock(&self.shared).0 = Manner::Gone;
        let panicked = self.answering.take().is_some_and(|thread| thread.join().is_err());
        assert!(!panicked || std::thread::panicking(), "the name server on {} panicked", self.address);
    }
}

fn serve(socket: &UdpSocket, shared: &Mutex<(Manner, usize)>) {
    let mut question = [0; 512];
    loop {
        let heard = socket.recv_from(&mut question).ok();
        let manner = lock(shared).0.clone();
        let Some((length, client)) = heard.filter(|_| !matches!(manner, Manner::Gone)) else {
            if matches!(manner, Manner::Gone) {
                return;
            }
            continue;
        };
        lock(shared).1 += 1;
        if let Manner::Answer(addresses) = manner
            && let Some(reply) = reply(&question[..length], &addresses)
        {
            // Whoever asked may be gone.
            let _ = socket.send_to(&reply, client);
        }
    }
}

/// The question comes back with the answers of its type behind it.
fn reply(question: &[u8], addresses: &[IpAddr]) -> Option<Vec<u8>> {
    let name_bytes = question.get(12..)?.iter().position(|byte| *byte == 0)? + 1;
    let kind = question.get(12 + name_bytes..14 + name_bytes)?;
    let kind = u16::from_be_bytes(kind.try_into().ok()?);
    let wanted = addresses.iter().filter(|ip| kind == if ip.is_ipv4() { TYPE_A } else { TYPE_AAAA });
    let wanted: Vec<&IpAddr> = wanted.collect();
    let mut reply = question.get(..16 + name_bytes)?.to_vec();
    // An answer, recursion available, no error; one question, as many answers, nothing else.
    reply[2..4].copy_from_slice(&[0x81, 0x80]);
    reply[4..12].copy_from_slice(&[0, 1, 0, u8::try_from(wanted.len()).ok()?, 0, 0, 0, 0]);
    for ip in wanted {
        reply.extend(ANSWER_HEAD);
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 1]);
        let octets = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        reply.extend([0, u8::try_from(octets.len()).ok()?]);
        reply.extend(octets);
    }
    Some(reply)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
