//! Turns what a board says of itself, or lies about, into labels.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use nodepulse::config::Settings;
use nodepulse::probe::facts::Features;
use nodepulse::probe::{FeatureFiles, Machine, Root, facts};
use nodepulse::time::Wall;

use super::Scratch;

const LOCAL: &str = "etc/kubernetes/node-feature-discovery/features.d";

fn machine(board: &Scratch) -> Machine {
    facts(&Root::new(&board.0), &Settings::default(), None).machine
}

/// As `name=value`, those of node-feature-discovery without what they all begin with; then what is no label.
fn told(features: &Features) -> (Vec<String>, Vec<String>) {
    let short = |key: &String| key.strip_prefix("feature.node.kubernetes.io/").unwrap_or(key).to_owned();
    let labels = features.labels.iter().map(|(key, value)| format!("{}={value}", short(key)));
    (labels.collect(), features.left_out.iter().map(ToString::to_string).collect())
}

fn labels(board: &Scratch) -> (Vec<String>, Vec<String>) {
    told(&machine(board).features.unwrap())
}

fn usb(board: &Scratch, name: &str, files: &[(&str, &str)]) {
    files
        .iter()
        .for_each(|(file, text)| board.write(&format!("sys/bus/usb/devices/{name}/{file}"), format!("{text}\n")));
}

#[test]
fn what_is_plugged_in_is_seen_with_each_look_and_what_hardly_changes_only_where_that_is_asked_for() {
    let board = Scratch::new("features-looks");
    board.write("proc/sys/kernel/osrelease", "6.12.48-v8\n");
    let mut files = FeatureFiles::new(&Root::new(&board.0), &machine(&board));
    let first = told(&files.read(false, None)).0;
    assert_eq!(first.len(), 4, "{first:?}");
    usb(&board, "1-1", &[("bDeviceClass", "0e"), ("idVendor", "046d"), ("idProduct", "0825")]);
    board.write("sys/fs/selinux/enforce", "1");
    board.write("sys/module/apparmor/parameters/enabled", "Y\n");
    board.write("sys/kernel/realtime", "0\n");
    board.write(&format!("{LOCAL}/dock"), "relays=4\n");
    let second = told(&files.read(false, None)).0;
    assert!(second.contains(&"usb-0e_046d_0825.present=true".to_owned()) && second.contains(&"relays=4".to_owned()));
    assert_eq!(second.len(), 6, "{second:?}");
    let third = told(&files.read(true, None)).0;
    for module in ["kernel-selinux.enabled=true", "nodepulse.dev/kernel-apparmor.enabled=true"] {
        assert!(third.contains(&module.to_owned()), "{third:?}");
    }
    assert!(!third.contains(&"nodepulse.dev/kernel-realtime=true".to_owned()), "{third:?}");
    board.write("sys/module/apparmor/parameters/enabled", "N\n");
    let fourth = told(&files.read(true, None)).0;
    assert!(!fourth.iter().any(|label| label.contains("kernel-apparmor")), "{fourth:?}");
    fs::remove_dir_all(board.0.join("sys/bus/usb/devices/1-1")).unwrap();
    fs::remove_dir_all(board.0.join(LOCAL)).unwrap();
    assert_eq!(told(&files.read(false, None)).0.len(), 5);
}

#[test]
fn a_usb_device_says_what_it_is_itself_or_by_its_interfaces() {
    let board = Scratch::new("features-usb");
    let ids: [(&str, &str); 2] = [("idVendor", "2c7c"), ("idProduct", "0125")];
    usb(&board, "usb1", &[&[("bDeviceClass", "09")][..], &ids].concat());
    usb(&board, "1-1", &[&[("bDeviceClass", "00")][..], &ids].concat());
    for (interface, class) in [("1-1:1.0", "ff"), ("1-1:1.1", "0a"), ("1-1:1.2", "07"), ("1-1:1.3", "ff")] {
        usb(&board, interface, &[("bInterfaceClass", class)]);
    }
    // Another device's, and what a driver that hangs, or a stick that is being pulled, says.
    usb(&board, "1-11", &[("bDeviceClass", "00")]);
    usb(&board, "1-11:1.0", &[("bInterfaceClass", "0e")]);
    usb(&board, "1-2", &[("bDeviceClass", "ff"), ("idVendor", "2c7c")]);
    usb(&board, "1-3", &ids);
    usb(&board, "1-4", &[("bDeviceClass", "\u{7f}f f"), ("idVendor", "x"), ("idProduct", "y")]);
    let expected = ["usb-0a_2c7c_0125.present=true", "usb-ff_2c7c_0125.present=true"];
    assert_eq!(labels(&board), (expected.map(str::to_owned).to_vec(), Vec::new()));
}

#[test]
fn what_is_no_file_of_features_costs_only_itself() {
    let board = Scratch::new("features-local");
    board.write(&format!("{LOCAL}/10-first"), "relays=4\nscales=1\n");
    board.write(&format!("{LOCAL}/9-second"), "relays=8\nbad label=1\n\u{0}\u{1}=2\n");
    board.write(&format!("{LOCAL}/large"), "#\n".repeat(40_000));
    board.write(&format!("{LOCAL}/folder/file"), "hidden=1\n");
    board.write(&format!("{LOCAL}/.part"), "hidden=1\n");
    board.write(&format!("{LOCAL}/closed"), "");
    fs::set_permissions(board.0.join(LOCAL).join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    mkfifo(&board.0.join(LOCAL).join("pipe"), Mode::S_IRWXU).unwrap();
    board.link(&format!("{LOCAL}/gone"), "/nowhere");
    let (found, left_out) = labels(&board);
    assert_eq!(found, ["relays=8", "scales=1"], "by their names, as node-feature-discovery does, 9 comes after 10");
    let of = |name: &str| left_out.iter().filter(|text| text.contains(name)).count();
    assert_eq!(
        (of("/9-second"), of("/large"), of("/gone"), of("/pipe"), of("hidden")),
        (2, 1, 1, 0, 0),
        "{left_out:#?}"
    );
}

#[test]
fn neither_many_files_nor_many_lines_make_more_than_a_node_may_have() {
    let board = Scratch::new("features-many");
    for number in 0..300 {
        let lines: String = (0..100).map(|line| format!("label-{number}-{line}=x\n")).collect();
        board.write(&format!("{LOCAL}/{number}"), &lines);
    }
    let (found, left_out) = labels(&board);
    assert_eq!(found.len(), 64);
    assert!(left_out.len() <= 8 && left_out[0].contains("a Node gets 64 such labels at most"), "{left_out:#?}");
}

#[test]
fn a_line_of_yesterday_goes_with_the_next_look() {
    let board = Scratch::new("features-expired");
    board.write(&format!("{LOCAL}/dock"), "# +expiry-time=2026-11-27T12:00:00Z\ncalibrated\n");
    let mut files = FeatureFiles::new(&Root::new(&board.0), &machine(&board));
    let mut at = |stamp| told(&files.read(false, Wall::parse_stamp(stamp))).0;
    assert_eq!(at("2026-11-27T12:00:00Z"), ["calibrated=true"]);
    assert_eq!(at("2026-11-27T12:00:01Z"), [""; 0]);
}

#[test]
fn a_system_that_calls_itself_what_no_label_may_hold_has_the_rest() {
    let board = Scratch::new("features-system");
    board.write("etc/os-release", "ID=edge os\nVERSION_ID='7.2 (beta)'\n");
    board.write("proc/device-tree/model", "A board (rev. 2)\0");
    board.write("proc/cpuinfo", "processor : 0\nRevision : 0000\n");
    let (found, left_out) = labels(&board);
    let expected = ["system-os_release.VERSION_ID.major=7", "system-os_release.VERSION_ID.minor=2"];
    assert_eq!(found, [&expected[..], &["nodepulse.dev/board-model=A_board__rev._2"]].concat());
    assert_eq!(left_out.len(), 2, "{left_out:?}");
}
