//! Turns servers, boards and service managers that mean ill into what a person sees: never a line, a colour or a direction
//! that the program did not write, and never a secret.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::loopback::{Authority, Listener, json_reply};
use super::{Folder, Running, err, nodepulse, out};

/// Ends a line, writes one that looks like ours, clears the screen in two ways, turns the direction, hides.
const HOSTILE: &str =
    "no\nok        rights       all 8 verbs\r\u{9b}2J\u{1b}[31m\u{202e}\u{2066}\u{200b}\u{2028}\u{7f}end";
/// The same as a string of JSON.
const HOSTILE_JSON: &str =
    r#""no\nok        rights       all 8 verbs\r\u009b2J\u001b[31m\u202e\u2066\u200b\u2028\u007fend""#;
const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0LXRva2VuLW9mLXRoaXMtYm9hcmQ.Zm9yLW5vYm9keS1lbHNl";

/// Tests judge by a list of their own.
fn assert_plain(what: &str, text: &str) {
    let bad = |character: &char| {
        let code = u32::from(*character);
        (code < 0x20 && *character != '\n')
            || (0x7f..0xa0).contains(&code)
            || (0x200b..0x2010).contains(&code)
            || (0x2028..0x202f).contains(&code)
            || (0x2066..0x206a).contains(&code)
            || code == 0x61c
    };
    assert_eq!(text.chars().find(bad), None, "{what}: {text:?}");
    let forged = |line: &str| line.trim_start().starts_with("ok        rights");
    assert!(!text.lines().any(forged), "{what}: {text}");
}

fn kubeconfig(folder: &Folder, authority: &Authority, port: u16) -> String {
    let authority = STANDARD.encode(authority.pem());
    folder.write(
        "kubeconfig",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: edge\ncontexts:\n- name: edge\n  context: {{cluster: c, user: u}}\n\
             clusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:{port}\n    certificate-authority-data: {authority}\n\
             users:\n- name: u\n  user: {{token: {TOKEN}}}\n"
        ),
    )
}

fn refusal(code: u16) -> Vec<u8> {
    let status = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":{HOSTILE_JSON},"code":{code}}}"#
    );
    let reply = String::from_utf8(json_reply(&format!("{code} Refused"), &status)).expect("text");
    // What an API server signs its own words with.
    reply.replacen("Content-Type", "Audit-Id: 5f2b8f9c-0000-4000-8000-000000000000\r\nContent-Type", 1).into_bytes()
}

/// What stands in the log is in the words of the server, but on one line.
const WRITTEN_OUT: &str =
    r"no\nok        rights       all 8 verbs\r\u009b2J\u001b[31m\u202e\u2066\u200b\u2028\u007fend";

#[test]
fn a_server_cannot_write_a_line_of_check() {
    for code in [401, 403, 500] {
        let (authority, folder) = (Authority::new(), Folder::new());
        let server = Listener::answering(&authority, refusal(code));
        let output = nodepulse(&["check", "--kubeconfig", &kubeconfig(&folder, &authority, server.port)]);
        assert_plain("stdout", &out(&output));
        assert_plain("stderr", &err(&output));
        assert!(out(&output).contains(WRITTEN_OUT), "{code}: {}", out(&output));
    }
    let (authority, folder) = (Authority::new(), Folder::new());
    let server = Listener::answering(&authority, json_reply("200 OK", &format!(r#"{{"gitVersion":{HOSTILE_JSON}}}"#)));
    let output = nodepulse(&["check", "--kubeconfig", &kubeconfig(&folder, &authority, server.port)]);
    assert_plain("version", &out(&output));
}

#[test]
fn a_certificate_cannot_write_a_line_of_check() {
    let (authority, folder) = (Authority::new(), Folder::new());
    // A DNS name of a certificate is bytes that nobody has to have checked.
    let config = authority.server_config(&authority.sign(&["a.example", "\u{1b}[31m\nok        rights"]));
    let server = Listener::tls(config, |_, mut stream| {
        let _ = stream.read(&mut [0; 64]);
    });
    let output = nodepulse(&["check", "--kubeconfig", &kubeconfig(&folder, &authority, server.port)]);
    assert_plain("stdout", &out(&output));
    assert!(out(&output).contains("is not for 127.0.0.1"), "{}", out(&output));
}

fn run_arguments<'a>(kubeconfig: &'a str, state: &'a str) -> Vec<&'a str> {
    vec!["run", "-v", "10", "--kubeconfig", kubeconfig, "--hostname-override", "edge-1", "--state-directory", state]
}

#[test]
fn a_server_cannot_write_a_line_of_the_log_nor_of_the_status() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let server = Listener::answering(&authority, refusal(403));
    let (path, state) = (kubeconfig(&folder, &authority, server.port), folder.path("state"));
    let mut plain = Running::start(&run_arguments(&path, &state));
    plain.wait_for(WRITTEN_OUT);
    assert_plain("a pipe", &plain.seen.join("\n"));
    drop(plain);

    let manager = UnixDatagram::bind(folder.path("notify")).expect("a socket");
    let (journal, theirs) = UnixStream::pair().expect("a pair");
    for socket in [manager.set_read_timeout(Some(SOON)), journal.set_read_timeout(Some(SOON))] {
        socket.expect("a time-out");
    }
    let theirs = OwnedFd::from(theirs);
    let inode = fs::metadata(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&theirs))).expect("a socket");
    let mut child = Command::new(env!("CARGO_BIN_EXE_nodepulse"))
        .args(run_arguments(&path, &state))
        .env("NOTIFY_SOCKET", folder.path("notify"))
        .env("JOURNAL_STREAM", format!("{}:{}", inode.dev(), inode.ino()))
        .stderr(Stdio::from(theirs))
        .spawn()
        .expect("the program starts");
    let status = wait_for(|buffer| manager.recv(buffer).ok(), "not registered");
    let log = wait_for(|buffer| (&journal).read(buffer).ok(), WRITTEN_OUT);
    child.kill().and_then(|()| child.wait()).expect("an end");
    assert_plain("the status", &status);
    assert_plain("the journal", &log);
    assert!(status.contains(WRITTEN_OUT) && log.lines().all(|line| line.starts_with('<')), "{status}\n{log}");
}

const SOON: Duration = Duration::from_secs(20);

/// Everything that came until it contains `words`.
fn wait_for(mut receive: impl FnMut(&mut [u8]) -> Option<usize>, words: &str) -> String {
    let (mut all, mut buffer) = (Vec::new(), [0; 65_536]);
    while !String::from_utf8_lossy(&all).contains(words) {
        let count = receive(&mut buffer).filter(|count| *count > 0);
        let count = count.unwrap_or_else(|| panic!("no {words} in {}", String::from_utf8_lossy(&all)));
        all.extend_from_slice(&buffer[..count]);
        all.push(b'\n');
    }
    let text = String::from_utf8(all).expect("text");
    text.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_board_cannot_write_a_line_of_probe_or_render() {
    let folder = Folder::new();
    let interface = "eth\u{1b}[31m\nok";
    for path in ["etc".to_owned(), "proc/net".to_owned(), format!("sys/class/net/{interface}")] {
        fs::create_dir_all(folder.0.join(path)).expect("a folder");
    }
    folder.write("etc/os-release", "PRETTY_NAME=\"Evil \u{9b}2J\u{202e}OS\u{1b}[2J\"\n");
    folder.write("proc/cpuinfo", "processor\t: 0\nSerial\t\t: 12\u{1b}[2J\u{202e}34\n");
    folder.write(&format!("sys/class/net/{interface}/flags"), "0x1003\n");
    folder.write(&format!("sys/class/net/{interface}/ifindex"), "2\n");
    let root = folder.0.to_str().expect("text");
    for args in [
        vec!["probe", "--root", root],
        vec!["probe", "--root", root, "-o", "json"],
        vec!["render", "--root", root, "--hostname-override", "edge-1"],
        vec!["render", "--root", root, "--hostname-override", "edge-1", "-o", "json"],
    ] {
        let output = nodepulse(&args);
        assert_plain(&args.join(" "), &out(&output));
        assert_plain(&args.join(" "), &err(&output));
        assert!(out(&output).contains("Evil"), "{}", out(&output));
    }
}

#[test]
fn arguments_settings_and_journals_cannot_write_a_line_of_their_own() {
    let folder = Folder::new();
    let yaml = format!(
        "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nmaxPods: {HOSTILE_JSON}\nnodeLeaseDurationSeconds: {HOSTILE_JSON}\n"
    );
    let config = folder.write("config.yaml", &yaml);
    for args in [vec!["render", "--config", &config], vec![HOSTILE], vec!["check", "--kubeconfig", HOSTILE]] {
        let output = nodepulse(&args);
        assert!(!output.status.success());
        assert_plain("arguments", &err(&output));
    }
    let settings = nodepulse(&["render", "--config", &config]);
    assert_eq!(err(&settings).lines().count(), 2, "a line for each problem: {}", err(&settings));
    let name = format!("{}\n", folder.path(HOSTILE));
    let shown = nodepulse(&["journal", "--file", &name]);
    assert_plain("journal", &err(&shown));
    fs::write(Path::new(&name), b"x").expect("a file");
    assert_plain("journal", &out(&nodepulse(&["journal", "--file", &name])));
}

/// Whether `text` holds eight characters of the secret in a row: as they are, in hex, or in Base64 at any offset.
fn leak(text: &str, secret: &str) -> Option<String> {
    let hex = |separator: &str| {
        let digits = secret.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
        digits.join(separator)
    };
    let decimal = secret.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
    let base64 = (0..3).map(|skipped| STANDARD.encode(&secret[skipped..]));
    let forms = [secret.to_owned(), hex(""), hex(" "), hex(":"), decimal].into_iter().chain(base64);
    let low = text.to_lowercase();
    forms.into_iter().find_map(|form| {
        let width = if form.len() > secret.len() { 16 } else { 8 };
        let bytes = form.to_lowercase().into_bytes();
        let found = bytes.windows(width).find(|piece| low.contains(&*String::from_utf8_lossy(piece)));
        found.map(|piece| String::from_utf8_lossy(piece).into_owned())
    })
}

#[test]
fn a_leak_of_a_token_is_caught_in_every_form() {
    let forms =
        ["ae-more", "Y29tZS1tb3JlLWNvbWUt", "636f6d652d6d6f72", "63 6f 6d 65 2d 6d 6f 72", "99, 111, 109, 101, 45"];
    let found = forms.map(|form| leak(form, "come-more-come-more").is_some());
    assert_eq!(found, [false, true, true, true, true]);
    assert_eq!(leak("nothing of the kind", "come-more-come-more"), None);
}

#[test]
fn the_token_stands_in_no_log_whatever_the_verbosity() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let server = Listener::answering(&authority, refusal(401));
    let (path, state) = (kubeconfig(&folder, &authority, server.port), folder.path("state"));
    let mut agent = Running::start(&run_arguments(&path, &state));
    agent.wait_for("server answered 401");
    let said = agent.seen.join("\n");
    assert_eq!(leak(&said, TOKEN), None, "{said}");
    let output = nodepulse(&["check", "--kubeconfig", &path]);
    assert_eq!(leak(&(out(&output) + &err(&output)), TOKEN), None);
}

#[test]
fn a_key_without_its_certificate_is_told_at_sighup_and_in_the_status() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let server = Listener::answering(&authority, refusal(403));
    let (first, second) = (authority.sign(&["board"]), authority.sign(&["board"]));
    let authority = STANDARD.encode(authority.pem());
    let (certificate, key) =
        (folder.write("crt", &first.certificate.pem()), folder.write("key", &first.key.serialize_pem()));
    let path = folder.write(
        "kubeconfig",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: edge\ncontexts:\n- name: edge\n  context: {{cluster: c, user: u}}\n\
             clusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:{}\n    certificate-authority-data: {authority}\n\
             users:\n- name: u\n  user: {{client-certificate: {certificate}, client-key: {key}}}\n",
            server.port
        ),
    );
    let manager = UnixDatagram::bind(folder.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(SOON)).expect("a time-out");
    let mut agent = Running::start_with(&run_arguments(&path, &folder.path("state")), |command| {
        command.env("NOTIFY_SOCKET", folder.path("notify"));
    });
    agent.wait_for("server answered 403");
    folder.write("key", &second.key.serialize_pem());
    agent.signal(Signal::SIGHUP);
    let why = "the credentials read last cannot be used, those before stay: client-certificate and client-key: ";
    agent.wait_for(why);
    let line = agent.seen.last().cloned().unwrap_or_default();
    assert!(line.contains("error credentials-refused") && line.contains("does not belong to"), "{line}");
    let status = wait_for(|buffer| manager.recv(buffer).ok(), why);
    assert!(status.lines().last().is_some_and(|line| line.starts_with("STATUS=") || line.contains(why)), "{status}");
    folder.write("crt", &second.certificate.pem());
    agent.signal(Signal::SIGHUP);
    agent.wait_for("settings read again");
    let told = agent.seen.iter().filter(|line| line.contains("credentials-refused")).count();
    assert_eq!(told, 1, "{:#?}", agent.seen);
}
