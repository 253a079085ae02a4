//! Turns the sandbox loose on a process of its own, and on the built program: what an agent needs works, the rest does not.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nodepulse::io::sandbox::Sandbox;

use super::{Folder, Running, err, kubeconfig_to_nowhere, nodepulse, out};

/// The folder in which the child below is to try what it can do.
const CHILD: &str = "SANDBOX_TEST_FOLDER";

/// Runs one of the tests below again, as a process that may give up everything.
fn in_a_process_of_its_own(test: &str, folder: &Folder) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let name = format!("sandbox::{test}");
    let output = command.args([&name, "--exact", "--nocapture"]).env(CHILD, &folder.0).output().expect("it starts");
    assert!(output.status.success(), "{}{}", out(&output), err(&output));
    assert!(out(&output).contains("1 passed"), "{}", out(&output));
    output.status
}

fn has_landlock() -> bool {
    let modules = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    modules.is_empty() || modules.contains("landlock")
}

#[test]
fn in_the_sandbox_an_agent_can_do_its_work_and_nothing_else() {
    let Some(folder) = std::env::var_os(CHILD) else {
        let folder = Folder::new();
        for name in ["state", "credentials", "elsewhere", "elsewhere/linked"] {
            fs::create_dir_all(folder.0.join(name)).expect("a folder");
        }
        folder.write("state/uplink", "known");
        folder.write("credentials/key", "secret");
        folder.write("elsewhere/file", "private");
        folder.write("elsewhere/linked/authority", "public");
        symlink(folder.path("elsewhere/linked/authority"), folder.path("credentials/authority")).expect("a link");
        in_a_process_of_its_own("in_the_sandbox_an_agent_can_do_its_work_and_nothing_else", &folder);
        assert!(!folder.0.join("state/after.new").exists());
        return;
    };
    let at = move |name: &str| format!("{}/{name}", folder.to_str().expect("text"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let before = File::open(at("elsewhere/file")).expect("open before");
    let sandbox = Sandbox::enter(Some(&at("state")), &[at("credentials/key"), at("credentials/authority")], true);
    assert!(sandbox.steps.iter().all(|step| step.is_ok()) || !has_landlock(), "{:?}", sandbox.steps);
    // On a thread that begins afterwards, as the writer of the journal and the resolver do.
    let thread = std::thread::Builder::new().spawn(move || {
        works(&at, &listener);
        is_refused(&at, &sandbox);
    });
    thread.expect("a thread").join().expect("its end");
    drop(before);
}

fn works(at: &impl Fn(&str) -> String, listener: &TcpListener) {
    for file in
        ["/proc/meminfo", "/proc/self/mountinfo", "/proc/net/route", "/etc/resolv.conf", "/sys/class/net/lo/ifindex"]
    {
        let read = fs::read(file);
        assert!(
            read.as_ref().is_ok_and(|read| !read.is_empty()) || !fs::exists(file).expect("a look"),
            "{file}: {read:?}"
        );
    }
    assert!(fs::read_dir("/sys/class/net").expect("a folder").count() > 0);
    assert!(fs::read_dir("/dev").expect("a folder to be listed").count() > 0);
    assert_eq!(fs::read_to_string(at("credentials/key")).expect("the key"), "secret");
    assert_eq!(fs::read_to_string(at("credentials/authority")).expect("where the link leads"), "public");
    assert_eq!(fs::read_to_string(at("state/uplink")).expect("the state"), "known");
    // What replaces a file, and a journal that grows.
    fs::write(at("state/uplink.new"), "longer than before").expect("a new file");
    fs::rename(at("state/uplink.new"), at("state/uplink")).expect("in its place");
    let mut journal = OpenOptions::new().append(true).open(at("state/uplink")).expect("the journal");
    journal.write_all(b" and longer").and_then(|()| journal.sync_all()).expect("written");
    File::create(at("state/uplink")).expect("emptied").set_len(4).expect("cut");
    File::open(at("state")).expect("the folder").sync_all().expect("synced");
    fs::remove_file(at("state/uplink")).expect("removed");
    TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let mut found = ("localhost", 1).to_socket_addrs().expect("a name");
    assert!(found.any(|address| address.ip().is_loopback()));
    socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::empty(), None).expect("netlink");
}

fn is_refused(at: &impl Fn(&str) -> String, sandbox: &Sandbox) {
    let denied = Some(ErrorKind::PermissionDenied);
    assert_eq!(Command::new("/bin/true").spawn().err().map(|error| error.kind()), denied, "execve");
    assert_eq!(unshare(CloneFlags::CLONE_NEWUSER), Err(Errno::EPERM));
    assert_eq!(nix::sys::ptrace::attach(nix::unistd::getppid()), Err(Errno::EPERM));
    let packet = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None);
    assert_eq!(packet.err(), Some(Errno::EAFNOSUPPORT));
    assert_eq!(fs::write("/proc/self/comm", "x").err().map(|error| error.kind()), denied.filter(|_| has_landlock()));
    let status = fs::read_to_string("/proc/thread-self/status").expect("a status");
    let held = |line: &str| status.lines().any(|found| found.split_whitespace().collect::<String>() == line);
    assert!(held("NoNewPrivs:1") && held("Seccomp:2"), "{status}");
    assert!(held("CapEff:0000000000000002") || held("CapEff:0000000000000000"), "{status}");
    let limits = fs::read_to_string("/proc/self/limits").expect("limits");
    assert!(limits.lines().any(|line| line.starts_with("Max core file size        0 ")), "{limits}");
    assert_eq!(nix::sys::prctl::get_dumpable(), Ok(false));
    let outside = [at("elsewhere/file"), at("credentials/other"), "/etc/x".to_owned()];
    if has_landlock() {
        assert_eq!(sandbox.outside(&outside), [outside[0].as_str()]);
        for file in [at("elsewhere/file"), "/dev/null".to_owned()] {
            assert_eq!(File::open(&file).err().map(|error| error.kind()), denied, "{file}");
        }
        for file in [
            at("elsewhere/new"),
            at("credentials/new"),
            "/tmp/nodepulse-new".to_owned(),
            "/etc/nodepulse-new".to_owned(),
        ] {
            assert_eq!(File::create(&file).err().map(|error| error.kind()), denied, "{file}");
        }
        assert_eq!(fs::create_dir(at("elsewhere/folder")).err().map(|error| error.kind()), denied);
        let link = std::os::unix::fs::symlink("/etc/passwd", at("state/link"));
        assert_eq!(link.err().map(|error| error.kind()), denied);
        assert_eq!(fs::remove_file(at("credentials/key")).err().map(|error| error.kind()), denied);
    } else {
        assert_eq!(sandbox.outside(&outside), [""; 0]);
    }
}

#[test]
fn without_a_state_directory_one_that_comes_late_can_still_be_made() {
    let Some(folder) = std::env::var_os(CHILD) else {
        let folder = Folder::new();
        in_a_process_of_its_own("without_a_state_directory_one_that_comes_late_can_still_be_made", &folder);
        return;
    };
    let state = format!("{}/late", folder.to_str().expect("text"));
    let sandbox = Sandbox::enter(Some(&state), &[], false);
    let listed = fs::read_dir("/dev").err().map(|error| error.kind());
    assert_eq!(listed, Some(ErrorKind::PermissionDenied).filter(|_| has_landlock()), "nobody asked for its names");
    fs::create_dir(&state).expect("made late");
    fs::write(format!("{state}/journal"), "x").expect("written");
    File::open(&state).expect("the folder, to lock it").sync_all().expect("synced");
    assert_eq!(fs::read_to_string(format!("{state}/journal")).expect("read"), "x");
    assert!(sandbox.summary().contains("is not there yet") || !has_landlock(), "{}", sandbox.summary());
}

#[test]
fn the_agent_says_what_holds_and_a_kubeconfig_from_elsewhere_is_named_and_left_for_the_next_start() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let kubeconfig = kubeconfig_to_nowhere(&folder, "");
    let other = kubeconfig_to_nowhere(&elsewhere, "");
    let settings = |kubeconfig: &str, more: &str| {
        let state = folder.path("state");
        let head = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nhostnameOverride: edge-1\n";
        folder.write("config.yaml", &format!("{head}stateDirectory: {state}\nkubeconfig: {kubeconfig}\n{more}"))
    };
    let config = settings(&kubeconfig, "");
    let mut agent = Running::start(&["run", "--config", &config]);
    agent.wait_for("info sandbox: no new privileges; no memory in core files or debuggers; ");
    let line = agent.seen.last().cloned().unwrap_or_default();
    let says_root = agent.seen.iter().any(|line| line.contains("warn root: runs as root, which it does not need"));
    assert_eq!(says_root, nix::unistd::Uid::effective().is_root(), "{:?}", agent.seen);
    assert!(line.contains("seccomp: ") && (line.contains("alone") || !has_landlock()), "{line}");
    agent.wait_for("registration failed");
    settings(&other, "");
    agent.signal(Signal::SIGHUP);
    if has_landlock() {
        agent.wait_for(&format!("{other} is in a folder that the sandbox does not open"));
        agent.wait_for("reload-refused");
    } else {
        agent.wait_for("settings read again");
    }
    // In the same folder everything may be replaced.
    fs::rename(&other, folder.path("new")).or_else(|_| fs::copy(&other, folder.path("new")).map(drop)).expect("moved");
    fs::set_permissions(folder.path("new"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::rename(folder.path("new"), &kubeconfig).expect("replaced");
    settings(&kubeconfig, "");
    agent.signal(Signal::SIGHUP);
    agent.wait_for("settings read again");
    drop(agent);
    // Where it is started, a name may be short.
    let short = ["run", "--config", "config.yaml", "--kubeconfig", "kubeconfig"];
    let mut here = Running::start_with(&short, |command| {
        command.current_dir(&folder.0);
    });
    here.wait_for("registration failed");
    here.signal(Signal::SIGHUP);
    here.wait_for("settings read again");
    drop(here);
    let mut open = Running::start(&["run", "--config", &settings(&kubeconfig, "sandbox: false\n")]);
    open.wait_for("sandbox: false, so the process keeps every right it has");
    open.wait_for("registration failed");
    let status = fs::read_to_string(format!("/proc/{}/status", open.child.id())).expect("a status");
    assert!(status.contains("Seccomp:\t0"), "{status}");
}

#[test]
fn check_shows_each_step_and_works_inside() {
    let folder = Folder::new();
    let kubeconfig = kubeconfig_to_nowhere(&folder, "");
    let output = nodepulse(&["check", "--kubeconfig", &kubeconfig, "--hostname-override", "edge-1"]);
    let text = out(&output);
    assert_eq!(text.lines().filter(|line| line.contains(" sandbox ")).count(), 5, "{text}");
    assert!(text.contains("ok        sandbox      seccomp: "), "{text}");
    let resources = "--extended-resources=example.com/relay=4,example.com/null=/dev/nul?";
    let listing = out(&nodepulse(&["check", "--kubeconfig", &kubeconfig, "--hostname-override", "edge-1", resources]));
    for counted in ["ok        resource     4 of example.com/relay\n", "ok        resource     1 of example.com/null\n"]
    {
        assert!(listing.contains(counted), "{listing}");
    }
    assert!(listing.contains("lists names below /dev") || !has_landlock(), "{listing}");
    let open = nodepulse(&["check", "--kubeconfig", &kubeconfig, "--sandbox=false"]);
    assert!(out(&open).contains("sandbox: false, so the process keeps every right it has"), "{}", out(&open));
}

/// Every byte that the process may write to, as root may see it.
fn memory(pid: u32) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[v")) {
        let (from, to) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let [from, to] = [from, to].map(|end| u64::from_str_radix(end, 16).expect("an address"));
        let mut part = vec![0; usize::try_from(to - from).expect("a length")];
        // A guard page has nothing to read.
        let _ = memory.read_exact_at(&mut part, from);
        all.extend(part);
    }
    all
}

#[test]
fn a_key_that_was_read_from_a_file_is_not_left_lying_in_memory() {
    use base64::Engine;
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("only root may read the memory of a process that is in the sandbox");
        return;
    }
    let (authority, folder) = (super::loopback::Authority::new(), Folder::new());
    let signed = authority.sign(&["board"]);
    let pem = signed.key.serialize_pem();
    folder.write("crt", &signed.certificate.pem());
    folder.write("key", &pem);
    let path = kubeconfig_to_nowhere(&folder, "");
    let authority = base64::engine::general_purpose::STANDARD.encode(authority.pem());
    let text = fs::read_to_string(&path)
        .expect("a file")
        .replace("{token: secret-token}", "{client-certificate: crt, client-key: key}");
    let text = text.replace("    server:", &format!("    certificate-authority-data: {authority}\n    server:"));
    folder.write("kubeconfig", &text);
    let state = folder.path("state");
    let args = ["run", "--kubeconfig", &path, "--hostname-override", "edge-1", "--state-directory", &state];
    let mut agent = Running::start(&args);
    agent.wait_for("registration failed: cannot connect");
    let memory = memory(agent.child.id());
    let holds = |needle: &[u8]| memory.windows(needle.len()).any(|window| window == needle);
    assert!(holds(b"edge-1") && memory.len() > 100_000, "the memory is not seen");
    let line = pem.lines().nth(1).expect("a line").as_bytes();
    assert!(!holds(line), "the key as PEM");
    // The private number of a key on P-256 in PKCS #8 begins at byte 36; what signs has a copy in a form of its own.
    assert!(!holds(&signed.key.serialize_der()[..68]), "the key as DER");
}
