//! Turns a journal, of a board that runs, of an earlier version or of nobody, into what its owner reads and sees drawn.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;

use super::{Folder, Running, err, kubeconfig_to_nowhere, nodepulse, out};

#[test]
fn the_journal_is_shown_beside_a_running_agent_and_after_it() {
    let folder = Folder::new();
    let path = kubeconfig_to_nowhere(&folder, "");
    let state = folder.path("state");
    let show = ["journal", "--state-directory", &state];
    assert_eq!(out(&nodepulse(&show)), format!("nothing waits: there is no {state}/journal yet\n"));
    let args = ["run", "--kubeconfig", &path, "--hostname-override", "edge-1", "--state-directory", &state];
    let mut agent = Running::start(&args);
    agent.wait_for("registration failed");
    assert_eq!(nodepulse(&show).status.code(), Some(0));
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.child.wait().expect("an end").code(), Some(0));
    let shown = out(&nodepulse(&show));
    let first = shown.lines().next().unwrap_or_default();
    assert!(
        first.contains("waiting to be sent, the first of ") && first.ends_with(&format!("(16 KiB, {state}/journal)")),
        "{shown}"
    );
    let file = format!("{state}/journal");
    let json = out(&nodepulse(&["journal", "--file", &file, "-o", "json"]));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["records"].as_array().map(Vec::len), Some(shown.lines().count() - 1), "{json:#}");
    assert_eq!(json["sizeBytes"], 16_384);
    let drawn = out(&nodepulse(&["journal", "--state-directory", &state, "--plot"]));
    assert!(drawn.lines().any(|row| row.starts_with("start") && row.ends_with(" 1 x")), "{drawn}");
    assert!(drawn.lines().all(|row| row.chars().count() <= 80), "{drawn}");
    let svg = out(&nodepulse(&["journal", "--file", &file, "-o", "svg"]));
    assert!(svg.starts_with("<svg ") && svg.contains("<text x=\"8\" y=\"21\">start</text>"), "{svg}");
}

/// As its own program read them: `tests/live/earlier.rs` says how these files were made.
#[test]
fn the_journals_of_an_earlier_version_say_what_they_said() {
    let boards = fs::read_dir("tests/live/earlier").expect("a folder").map(|board| board.expect("a board").path());
    let mut count = 0;
    for board in boards {
        let read = |name: &str| fs::read_to_string(board.join(name)).expect("a file");
        let mut expected: serde_json::Value = serde_json::from_str(&read("waiting.json")).expect("JSON");
        let file = board.join("journal").display().to_string();
        expected["path"] = file.as_str().into();
        let said = out(&nodepulse(&["journal", "--file", &file, "-o", "json"]));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&said).expect("JSON"), expected);
        let drawn = out(&nodepulse(&["journal", "--file", &file, "--plot"]));
        assert!(["outage ", "MemoryPressure "].iter().all(|row| drawn.contains(row)), "{drawn}");
        count += 1;
    }
    assert_eq!(count, 9);
}

#[test]
fn a_journal_that_cannot_be_read_is_named_with_what_to_do() {
    let folder = Folder::new();
    let missing = folder.path("missing/journal");
    let output = nodepulse(&["journal", "--file", &missing]);
    assert_eq!(output.status.code(), Some(70));
    assert!(err(&output).contains(&format!("cannot read {missing}: No such file or directory")), "{}", err(&output));
    let other = nodepulse(&["journal", "--file", "/etc"]);
    assert!(err(&other).contains("/etc is no file, not a journal"), "{}", err(&other));
    let junk = folder.write("junk", "what somebody else wrote");
    let shown = out(&nodepulse(&["journal", "--file", &junk]));
    assert!(shown.contains("damaged: 24 bytes of a write that was cut short"), "{shown}");
    if nix::unistd::Uid::effective().is_root() {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        let private = folder.write("private", "");
        fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).expect("a mode");
        // The program lies where only we may look; what it runs on need not. Another process makes the copy: one that this
        // process had open could be inherited, still open, by what other tests start, and would not run ("Text file busy").
        let copy = folder.path("nodepulse");
        let copied = Command::new("install").args(["-m", "755", env!("CARGO_BIN_EXE_nodepulse")]).arg(&copy).status();
        assert!(copied.expect("install of coreutils").success());
        let output = Command::new(&copy).args(["journal", "--file", &private]).uid(65_534).output().expect("it starts");
        assert_eq!(output.status.code(), Some(77));
        assert!(err(&output).contains("Permission denied; this process runs as user 65534"), "{}", err(&output));
    }
}
