//! Turns connections to a port into connections to another, like a router on the way, which may forget them.

// The linter keeps threads out of the agent, not out of tests.
#![allow(clippy::disallowed_methods)]

use super::cluster::Result;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A way to a port of this machine. Its threads end with this process.
pub struct Relay {
    pub port: u16,
    ways: Arc<Ways>,
}

#[derive(Default)]
struct Ways {
    begun: AtomicUsize,
    /// Connections before this one lead nowhere any more.
    forgotten: AtomicUsize,
}

impl Relay {
    pub fn to(port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("a port for a relay: {e}"))?;
        let relay = Self { port: listener.local_addr().map_err(|e| e.to_string())?.port(), ways: Arc::default() };
        let ways = Arc::clone(&relay.ways);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let number = ways.begun.fetch_add(1, Ordering::SeqCst);
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                let (Ok(to_server), Ok(to_client)) = (server.try_clone(), client.try_clone()) else { continue };
                for (from, to) in [(client, to_server), (server, to_client)] {
                    let ways = Arc::clone(&ways);
                    thread::spawn(move || ways.carry(number, from, to));
                }
            }
        });
        Ok(relay)
    }

    /// How many connections there have been.
    pub fn begun(&self) -> usize {
        self.ways.begun.load(Ordering::SeqCst)
    }

    /// What comes over the connections of now is swallowed, their ends too, and nobody is told.
    pub fn forget(&self) {
        self.ways.forgotten.store(self.begun(), Ordering::SeqCst);
    }
}

impl Ways {
    fn carry(&self, number: usize, mut from: TcpStream, mut to: TcpStream) {
        let stands = || number >= self.forgotten.load(Ordering::SeqCst);
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if stands() && to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        if stands() {
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}
