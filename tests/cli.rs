//! Turns the built program's arguments into what a person sees: output, exit codes, signals.

// A test that cannot go on says where by panicking, its own functions included.
#![allow(clippy::expect_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nodepulse::config;

#[path = "cli/hostile.rs"]
mod hostile;
#[path = "cli/join.rs"]
mod join;
#[path = "cli/journal.rs"]
mod journal;
#[path = "support/loopback.rs"]
mod loopback;
#[path = "cli/release.rs"]
mod release;
#[path = "cli/sandbox.rs"]
mod sandbox;

fn nodepulse(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nodepulse"));
    command.args(args).env_remove("NOTIFY_SOCKET").output().expect("the program starts")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("nodepulse-cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A kubeconfig for a loopback port that nobody listens on.
fn kubeconfig_to_nowhere(folder: &Folder, extra: &str) -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a port").port();
    folder.write(
        "kubeconfig",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: edge\ncontexts:\n- name: edge\n  context: {{cluster: c, user: u}}\n\
             clusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:{port}\n{extra}users:\n- name: u\n  user: {{token: secret-token}}\n"
        ),
    )
}

#[test]
fn version_is_one_line() {
    let output = nodepulse(&["version"]);
    assert!(output.status.success());
    assert_eq!(out(&output).lines().count(), 1);
    assert!(out(&output).starts_with(concat!("nodepulse ", env!("CARGO_PKG_VERSION"))), "{}", out(&output));
}

#[test]
fn help_fits_a_screen_and_colours_nothing_in_a_pipe() {
    let text = out(&nodepulse(&["help"]));
    assert!(text.lines().count() <= 24, "{} lines", text.lines().count());
    assert!(text.lines().all(|line| line.chars().count() <= 80));
    assert!(!text.contains('\x1b'));
}

#[test]
fn a_mistyped_flag_is_answered_with_the_nearest_one() {
    let output = nodepulse(&["run", "--kubeconfg", "x"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(err(&output).contains("--kubeconfig"), "{}", err(&output));
}

#[test]
fn an_unknown_command_is_a_usage_error() {
    assert_eq!(nodepulse(&["rnu"]).status.code(), Some(64));
}

#[test]
fn every_problem_of_a_settings_file_is_told_with_its_line() {
    let folder = Folder::new();
    let path = folder.write(
        "config.yaml",
        "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nnodeLeaseDurationSeconds: -1\nmaxPodz: 5\nnodeIP: not-an-address\n",
    );
    let output = nodepulse(&["render", "--config", &path]);
    assert_eq!(output.status.code(), Some(78));
    let text = err(&output);
    assert!(text.contains("config.yaml:3: nodeLeaseDurationSeconds"), "{text}");
    assert!(text.contains("config.yaml:4: unknown key \"maxPodz\": did you mean maxPods?"), "{text}");
}

#[test]
fn a_forbidden_label_is_refused_with_the_administrators_command() {
    let output = nodepulse(&["render", "--node-labels", "node-role.kubernetes.io/edge=true"]);
    assert_eq!(output.status.code(), Some(78));
    let text = err(&output);
    assert!(text.contains("node-role.kubernetes.io/edge") && text.contains("kubectl label"), "{text}");
}

#[test]
fn without_a_kubeconfig_run_says_where_it_looked() {
    let output = nodepulse(&["run", "--kubeconfig", "/nonexistent/kubeconfig"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(err(&output).contains("/nonexistent/kubeconfig"), "{}", err(&output));
}

#[test]
fn a_kubeconfig_that_is_a_directory_is_a_settings_error() {
    let output = nodepulse(&["run", "--kubeconfig", "/proc"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(err(&output).contains("is a directory"), "{}", err(&output));
}

#[test]
fn skipping_tls_verification_is_refused_with_the_reason() {
    let folder = Folder::new();
    let path = kubeconfig_to_nowhere(&folder, "    insecure-skip-tls-verify: true\n");
    let output = nodepulse(&["run", "--kubeconfig", &path]);
    assert_eq!(output.status.code(), Some(78));
    assert!(err(&output).contains("insecure-skip-tls-verify"), "{}", err(&output));
}

#[test]
fn probe_prints_json_that_names_this_kernel() {
    let output = nodepulse(&["probe", "-o", "json"]);
    assert!(output.status.success());
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    assert!(facts.to_string().contains(kernel.trim()), "{facts:#}");
}

/// `UPDATE_GOLDEN=1 cargo test --test cli` writes it anew.
#[test]
fn the_page_of_the_commands_shows_what_probe_prints() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let board = folder.join("tests/boards/rpi4");
    let printed = out(&nodepulse(&["probe", "--root", board.to_str().expect("text")]));
    let page = folder.join("docs/commands.md");
    let text = fs::read_to_string(&page).expect("a page");
    let command = "$ nodepulse probe --root tests/boards/rpi4\n";
    let (before, rest) = text.split_once(command).expect("the command");
    let (shown, after) = rest.split_once("```\n").expect("the end of the block");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(page, format!("{before}{command}{printed}```\n{after}")).expect("a page");
        return;
    }
    assert_eq!(shown, printed, "UPDATE_GOLDEN=1 writes it anew");
}

#[test]
fn probe_of_an_empty_root_says_what_is_absent_and_does_not_fail() {
    let folder = Folder::new();
    let output = nodepulse(&["probe", "--root", folder.0.to_str().expect("text")]);
    assert!(output.status.success());
    assert!(out(&output).contains("no such file"), "{}", out(&output));
}

#[test]
fn a_root_that_is_no_folder_is_a_usage_error_and_no_board_without_facts() {
    for command in ["probe", "render"] {
        for root in ["/nonexistent/board", "/proc/version"] {
            let output = nodepulse(&[command, "--root", root]);
            assert_eq!(output.status.code(), Some(64), "{}", out(&output));
            assert!(err(&output).contains(&format!("--root {root}: there is no such folder")), "{}", err(&output));
        }
    }
}

#[test]
fn numbers_that_lxcfs_made_up_are_named() {
    let folder = Folder::new();
    for path in ["proc/self", "etc"] {
        fs::create_dir_all(folder.0.join(path)).expect("a folder");
    }
    folder.write("proc/self/mountinfo", "9 8 0:49 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw\n");
    let output = nodepulse(&["probe", "--root", folder.0.to_str().expect("text")]);
    assert!(err(&output).contains("lxcfs answers for /proc/meminfo"), "{}", err(&output));
    assert!(!out(&output).contains("lxcfs"), "the facts stay what programs read");
}

#[test]
fn render_prints_the_node_that_would_be_registered() {
    for format in ["text", "json"] {
        let json = nodepulse(&["render", "--hostname-override", "edge-1", "-o", format]);
        assert!(json.status.success());
        let node: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
        assert_eq!(node["metadata"]["name"], "edge-1");
        let conditions = node["status"]["conditions"].to_string();
        let of_every_board = ["MemoryPressure", "DiskPressure", "PIDPressure", "ReadonlyFilesystem", "Ready"];
        assert!(of_every_board.iter().all(|kind| conditions.contains(kind)), "{conditions}");
    }
}

#[test]
fn check_of_a_server_that_is_not_there_fails_with_what_to_type_next() {
    let folder = Folder::new();
    let path = kubeconfig_to_nowhere(&folder, "");
    let output = nodepulse(&["check", "--kubeconfig", &path]);
    assert_eq!(output.status.code(), Some(70), "{}{}", out(&output), err(&output));
    let text = out(&output);
    assert!(text.contains("server") && text.contains("try: curl"), "{text}");
    assert!(!text.contains("secret-token"));
}

#[test]
fn a_reader_who_stops_early_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_nodepulse"))
        .args(["help", "settings"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let mut text = String::new();
    child.stderr.take().expect("stderr").read_to_string(&mut text).expect("text");
    assert!(child.wait().expect("an end").success(), "{text}");
}

/// A running agent and the lines of its log.
struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    fn start(args: &[&str]) -> Running {
        Running::start_with(args, |_| {})
    }

    fn start_with(args: &[&str], change: impl Fn(&mut Command)) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nodepulse"));
        command.args(args).stderr(Stdio::piped()).stdout(Stdio::null());
        change(&mut command);
        let mut child = command.spawn().expect("the program starts");
        let stderr = child.stderr.take().expect("stderr");
        let (sender, lines) = channel();
        std::thread::Builder::new()
            .spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)))
            .expect("a thread");
        Running { child, lines, seen: Vec::new() }
    }

    /// Waits for a line that holds `text`.
    fn wait_for(&mut self, text: &str) {
        while !self.seen.last().is_some_and(|line| line.contains(text)) {
            match self.lines.recv_timeout(Duration::from_secs(20)) {
                Ok(line) if self.seen.len() < 2000 => self.seen.push(line),
                _ => panic!("no line with {text:?} among {:#?}", self.seen),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("the agent runs");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_agent_without_a_server_goes_on_trying_and_ends_well_on_sigterm() {
    let folder = Folder::new();
    let path = kubeconfig_to_nowhere(&folder, "");
    let state = folder.path("state");
    let args = ["run", "--kubeconfig", &path, "--hostname-override", "edge-1", "--state-directory", &state];
    let mut agent = Running::start(&args);
    agent.wait_for("registration failed: cannot connect to 127.0.0.1");
    assert!(agent.child.try_wait().expect("a state").is_none());
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.child.wait().expect("an end").code(), Some(0));
}

#[test]
fn settings_that_turn_bad_do_not_end_a_running_agent() {
    let folder = Folder::new();
    let kubeconfig = kubeconfig_to_nowhere(&folder, "");
    let header = format!(
        "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nstateDirectory: {}\n",
        folder.path("state")
    );
    let config = folder.write("config.yaml", &header);
    let args = ["run", "--kubeconfig", &kubeconfig, "--config", &config, "--hostname-override", "edge-1"];
    let mut agent = Running::start(&args);
    agent.wait_for("registration failed");
    folder.write("config.yaml", &format!("{header}nodeLeaseDurationSeconds: minus\n"));
    agent.signal(Signal::SIGHUP);
    agent.wait_for("error reload-refused: the settings read last are wrong");
    assert!(agent.seen.last().is_some_and(|line| line.contains("nodeLeaseDurationSeconds")), "{:?}", agent.seen);
    folder.write("config.yaml", &format!("{header}nodeLeaseDurationSeconds: 20\n"));
    agent.signal(Signal::SIGHUP);
    agent.wait_for("read again");
    assert!(agent.child.try_wait().expect("a state").is_none());
}

#[test]
fn a_second_agent_on_one_state_directory_says_who_has_it_and_ends() {
    let folder = Folder::new();
    let path = kubeconfig_to_nowhere(&folder, "");
    let state = folder.path("state");
    let args = ["run", "--kubeconfig", &path, "--hostname-override", "edge-1", "--state-directory", &state];
    let mut first = Running::start(&args);
    first.wait_for("registration failed");
    let second = nodepulse(&args);
    assert_eq!(second.status.code(), Some(70));
    let said = err(&second);
    assert!(said.contains(&format!("{state} is in use by process {}; stop that one", first.child.id())), "{said}");
    assert!(first.child.try_wait().expect("a state").is_none());
}

#[test]
fn a_settings_file_of_bytes_is_no_text() {
    let folder = Folder::new();
    let path = folder.write("config.yaml", "");
    fs::write(&path, b"\xff\xfe\x00").expect("a file");
    let output = nodepulse(&["render", "--config", &path]);
    assert_eq!(output.status.code(), Some(78));
    assert!(err(&output).contains("is not text in UTF-8"), "{}", err(&output));
}

#[test]
fn what_cloud_init_says_is_asked_for_and_stands_below_the_settings() {
    let board = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/boards/cloud-hetzner");
    let node = |flags: &[&str]| {
        let output = nodepulse(&[&["render", "--root", board][..], flags].concat());
        let node: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let id = node["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
        (node["metadata"]["labels"]["topology.kubernetes.io/zone"].as_str().map(str::to_owned), id, err(&output))
    };
    let asked = "--cloud-metadata=cloud-init";
    let (zone, id, _) = node(&[asked]);
    assert_eq!((zone.as_deref(), id.as_str()), (Some("fsn1-dc14"), "hcloud://49123456"));
    let (zone, id, _) = node(&[asked, "--zone=mine", "--provider-id=edge://1"]);
    assert_eq!((zone.as_deref(), id.as_str()), (Some("mine"), "edge://1"));
    for flags in [&[][..], &[asked, "--cloud-provider=external"]] {
        let (zone, id, _) = node(flags);
        assert_eq!((zone, id.as_str()), (None, ""), "{flags:?}");
    }
    let elsewhere = Folder::new();
    let output = nodepulse(&["render", "--root", &elsewhere.path(""), asked, "--hostname-override=edge-1"]);
    let said =
        "cloudMetadata: cloud-init says nothing of this machine (/run/cloud-init/instance-data.json: no such file)";
    assert!(output.status.success() && err(&output).contains(said), "{}", err(&output));
    fs::create_dir_all(elsewhere.path("run/cloud-init")).expect("a folder");
    elsewhere.write("run/cloud-init/instance-data.json", &format!("{{\"v1\": {{}}}}{}", " ".repeat(256 * 1024)));
    let output = nodepulse(&["render", "--root", &elsewhere.path(""), asked, "--hostname-override=edge-1"]);
    assert!(err(&output).contains("longer than 262144 bytes"), "{}", err(&output));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nodepulse"));
    let output = command.args(["render", "--hostname-override", "edge-1"]).stdout(full).output().expect("it starts");
    assert_eq!(output.status.code(), Some(70));
    assert!(err(&output).contains("cannot write the output: No space left on device"), "{}", err(&output));
}

#[test]
fn an_absence_needs_an_end_a_reason_of_one_line_and_an_agent_that_runs() {
    let folder = Folder::new();
    let state = folder.path("state");
    let asked = |args: &[&str]| {
        let output = nodepulse(&[args, &["--state-directory", &state]].concat());
        (output.status.code(), err(&output))
    };
    for (args, code, why) in [
        (&["away"][..], 64, "--until \"\" is no time: write for example 8h, 90m or 2026-12-24"),
        (
            &["away", "--until", "tomorrow"],
            64,
            "--until \"tomorrow\" is no time: write for example 8h, 90m or 2026-12-24",
        ),
        (
            &["away", "--until", "8h", "--reason", &"x".repeat(65)],
            64,
            "xx\" is no reason: write one line of at most 64 bytes",
        ),
        (&["away", "--until", "8h", "--reason", "a\nb"], 64, "--reason \"a\\nb\" is no reason"),
        (&["away", "8h"], 64, "\"8h\" is one argument too many"),
        (&["back", "--until", "8h"], 64, "back does not take --until"),
        (&["away", "--until", "8h"], 70, "no agent runs with "),
        (&["status"], 70, "; nodepulse journal shows what waits to be told"),
        (&["cost", "--watch"], 64, "cost does not take --watch"),
        (&["back"], 70, "no agent runs with "),
    ] {
        let (found, said) = asked(args);
        assert!(found == Some(code) && said.contains(why), "{args:?}: {found:?} {said}");
    }
}
