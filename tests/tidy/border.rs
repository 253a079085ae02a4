//! Turns sources into complaints about the border of the core: who imports whom, and what stays in `io` and `cli`.

use super::hold;
use super::source::Source;
use super::tree::sources;

/// A module imports only to its left (`ARCHITECTURE.md`).
const ORDER: [&str; 16] = [
    "time",
    "config",
    "probe",
    "node",
    "protobuf",
    "http2",
    "grpc",
    "cri",
    "device_plugins",
    "dbus",
    "api",
    "identity",
    "journal",
    "agent",
    "io",
    "cli",
];

/// What the core may not name, and what it takes instead.
const OUTSIDE: &[(&[&str], &str)] = &[
    (&["async", "await", "Future", "smol"], "state machines wait in the core; futures do in io"),
    (&["Arc", "Rc", "Mutex", "RwLock", "OnceLock", "Condvar"], "one owner: pass `&mut`"),
    (&["mpsc", "Sender", "Receiver", "channel", "spawn"], "inputs and outputs are values of the agent"),
    (&["HashMap", "HashSet"], "hash order differs from run to run: BTreeMap, BTreeSet"),
    (&["Instant", "SystemTime"], "time is an argument: Now"),
    (&["TcpStream", "TcpListener", "UdpSocket", "ToSocketAddrs"], "sockets are io's"),
    (&["UnixStream", "UnixListener", "UnixDatagram"], "sockets are io's"),
    (&["nix", "rustls", "ring", "webpki", "lexopt"], "the system is io's and cli's"),
];

/// Macros that the core may not call.
const PRINTERS: [&str; 5] = ["println", "eprintln", "print", "eprint", "dbg"];

/// Below `std`, what the core may not name either.
const OUTSIDE_STD: [&str; 5] = ["fs", "env", "process", "thread", "os"];

/// What only one module of the core may name: parts of libraries that are functions of their arguments.
const ALLOWED: &[(&str, &str, &[&str])] =
    &[("identity", "ring", &["digest", "hmac"]), ("identity", "rustls", &["pki_types"])];

/// Only here does the core touch files, below the root it is given.
const TOUCHES_FILES: &str = "src/probe/root.rs";

fn rank(module: &str) -> Option<usize> {
    ORDER.iter().position(|one| *one == module)
}

fn is_core(source: &Source) -> bool {
    source.module().and_then(rank) < rank("io") && source.module().is_some()
}

/// Modules that are not in the order, and imports to the right.
fn imports(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let Some(module) = source.module() else { continue };
        let path = &source.path;
        let Some(own) = rank(module) else {
            complaints.push(format!("{path}: the module {module} has no place in the order {}", ORDER.join(" -> ")));
            continue;
        };
        for (segments, line) in source.paths() {
            if let Some(other) = from_the_root(source, &segments)
                && rank(other) > Some(own)
            {
                complaints.push(format!("{path}:{line}: {module} imports {other}, which is to its right"));
            }
        }
    }
    complaints
}

/// The top-level module that a path leads to, when it starts at the root of the crate.
fn from_the_root<'a>(source: &Source, segments: &[&'a str]) -> Option<&'a str> {
    let ups = segments.iter().take_while(|segment| **segment == "super").count();
    match segments {
        ["crate" | "nodepulse", module, ..] => Some(module),
        _ if ups >= source.module_path().len() => segments.get(ups).copied(),
        _ => None,
    }
}

/// Clocks, sockets, files, locks and the like left of `io`.
fn purity(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| is_core(source)) {
        let path = &source.path;
        for (place, token) in source.tokens.iter().enumerate() {
            if token.text == "nix" && path == TOUCHES_FILES || is_allowed(source, &token.text) {
                continue;
            }
            for (_, instead) in OUTSIDE.iter().filter(|(words, _)| words.contains(&token.text.as_str())) {
                complaints.push(format!("{path}:{}: `{}` left of io: {instead}", token.line, token.text));
            }
            if PRINTERS.contains(&token.text.as_str()) && source.word(place + 1) == "!" {
                complaints.push(format!("{path}:{}: text is returned; cli and io print it", token.line));
            }
            if token.text.starts_with("disallowed_") {
                complaints.push(format!("{path}:{}: the ban list is lifted left of io", token.line));
            }
        }
        for (segments, line) in source.paths() {
            if let [library, part, ..] = segments.as_slice()
                && is_allowed(source, library)
                && !allowed_parts(source, library).any(|allowed| allowed == *part)
            {
                complaints
                    .push(format!("{path}:{line}: `{library}::{part}` left of io: only its pure parts are allowed"));
            }
            let ["std", part, rest @ ..] = segments.as_slice() else { continue };
            // The constants of `std::env` are the compiler's, not the environment's.
            let allowed = match *part {
                "fs" | "os" => path == TOUCHES_FILES,
                part => part == "env" && rest.first() == Some(&"consts"),
            };
            if OUTSIDE_STD.contains(part) && !allowed {
                complaints.push(format!("{path}:{line}: `std::{part}` left of io: bytes and settings are arguments"));
            }
        }
    }
    complaints
}

fn is_allowed(source: &Source, library: &str) -> bool {
    allowed_parts(source, library).next().is_some()
}

fn allowed_parts(source: &Source, library: &str) -> impl Iterator<Item = &'static str> {
    let is_meant = move |row: &&(&str, &str, &[&str])| source.module() == Some(row.0) && row.1 == library;
    ALLOWED.iter().filter(is_meant).flat_map(|(_, _, parts)| parts.iter().copied())
}

#[test]
fn a_module_imports_only_to_its_left() {
    hold(imports(sources()));
}

#[test]
fn an_import_to_the_right_is_caught_however_it_is_written() {
    for text in [
        "use crate::agent::Agent;",
        "use crate::{time::Now, agent::{self, Input}};",
        "fn f() { crate::io::run() }",
        "use super::super::cli;",
        "pub use nodepulse::io;",
    ] {
        assert!(!imports(&[Source::new("src/node/patch.rs", text)]).is_empty(), "{text}");
    }
    let allowed = "use crate::{config::Settings, time};\nuse super::condition;\nfn f(io: u8) -> u8 { io }";
    assert_eq!(imports(&[Source::new("src/node/patch.rs", allowed)]), [""; 0]);
    assert_eq!(imports(&[Source::new("src/helper/mod.rs", "")]).len(), 1, "a module without a place");
}

#[test]
fn the_core_touches_neither_clock_nor_socket_nor_file() {
    hold(purity(sources()));
}

#[test]
fn a_clock_a_socket_and_a_file_in_the_core_are_caught() {
    for text in [
        "use std::time::Instant;",
        "async fn f() {}",
        "use std::{fs, net::IpAddr};",
        "fn f() { std::fs::read(\"/proc/uptime\"); }",
        "use std::sync::Arc;",
        "fn f() { std::env::var(\"HOME\"); }",
        "use std::net::TcpStream;",
        "use std::collections::HashMap;",
        "#[allow(clippy::disallowed_methods)]\nfn f() {}",
        "fn f() { println!() }",
    ] {
        assert_eq!(purity(&[Source::new("src/agent/lease.rs", text)]).len(), 1, "{text}");
        assert_eq!(purity(&[Source::new("src/io/clock.rs", text)]).len(), 0, "{text}");
    }
    assert_eq!(purity(&[Source::new("src/agent/lease.rs", "use std::net::IpAddr; // an Instant")]).len(), 0);
    assert_eq!(purity(&[Source::new("src/probe/root.rs", "use std::fs;")]).len(), 0);
}

#[test]
fn of_a_library_with_effects_only_its_pure_parts_may_be_named_and_only_where_that_is_said() {
    let of = |path: &str, text: &str| purity(&[Source::new(path, text)]).len();
    assert_eq!(
        of("src/identity/pin.rs", "use ring::digest::{SHA256, digest};\nuse rustls::pki_types::CertificateDer;"),
        0
    );
    assert_eq!(of("src/identity/pin.rs", "use ring::rand::SystemRandom;"), 1);
    assert_eq!(of("src/identity/pin.rs", "fn f() { rustls::client::connect() }"), 1);
    assert_eq!(of("src/agent/lease.rs", "use ring::digest::digest;"), 1);
}
