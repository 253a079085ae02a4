//! Turns this machine into a board with `tests/boards/capture`, which must copy every file that the probe reads.

use std::fs;
use std::path::Path;
use std::process::Command;

use nodepulse::config::Settings;
use nodepulse::probe::{Facts, Root, facts};

use super::Scratch;

#[test]
fn a_raw_capture_has_the_facts_of_the_machine_it_was_made_on() {
    // Of a moment in which the machine stayed the same: interfaces and routes come and go.
    let (captured, live) = (0..10)
        .find_map(|_| {
            let scratch = Scratch::new("raw");
            let before = facts(&Root::new("/"), &Settings::default(), None);
            let captured = capture(&scratch, &["--raw", "here"]);
            let after = facts(&Root::new("/"), &Settings::default(), None);
            (before.machine == after.machine && before.network == after.network).then_some((captured, after))
        })
        .unwrap();
    assert_eq!(captured.machine, live.machine);
    assert_eq!(captured.network, live.network);
    let source = |facts: &Facts| facts.readings.memory.as_ref().map(|memory| memory.source).ok();
    assert_eq!(source(&captured), source(&live));
    assert_eq!(captured.readings.pids.map(|pids| pids.limit), live.readings.pids.map(|pids| pids.limit));
}

#[test]
fn a_capture_keeps_no_identity_of_the_machine_it_was_made_on() {
    let scratch = Scratch::new("masked");
    let captured = capture(&scratch, &["here"]).machine;
    let live = facts(&Root::new("/"), &Settings::default(), None).machine;
    let pairs = [
        (captured.machine_id, live.machine_id),
        (captured.system_uuid, live.system_uuid),
        (captured.board_serial, live.board_serial),
        (captured.mac_address, live.mac_address),
    ];
    for (captured, live) in pairs {
        assert_eq!(captured.is_ok(), live.is_ok());
        assert!(captured.is_err() || captured != live, "{captured:?}");
        assert_eq!(captured.map(|id| id.len()).ok(), live.map(|id| id.len()).ok(), "the shape stays");
    }
    assert_eq!(captured.cpu_count, live.cpu_count);
    assert_eq!(captured.os_image, live.os_image);
}

#[test]
fn a_capture_never_overwrites_a_board_and_takes_no_path_for_a_name() {
    let scratch = Scratch::new("refused");
    fs::create_dir(scratch.0.join("here")).unwrap();
    for (name, code) in [("here", 73), ("../here", 64), ("", 64), ("--help", 64)] {
        let output = run(&scratch, &[name]);
        assert_eq!(output.status.code(), Some(code), "{name:?}: {output:?}");
    }
}

fn capture(scratch: &Scratch, arguments: &[&str]) -> Facts {
    let output = run(scratch, arguments);
    assert!(output.status.success(), "{output:?}");
    facts(&Root::new(scratch.0.join("here")), &Settings::default(), None)
}

fn run(scratch: &Scratch, arguments: &[&str]) -> std::process::Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards/capture");
    Command::new("sh").arg(script).args(arguments).arg(&scratch.0).output().unwrap()
}
