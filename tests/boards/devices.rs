//! Turns folders of devices into how many there are of the extended resources of the settings.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nodepulse::config::settings::ResourceSource;
use nodepulse::config::{Settings, limits};
use nodepulse::probe::facts::Fact;
use nodepulse::probe::{Root, facts};

use super::Scratch;

const NAME: &str = "example.com/usb";

fn count(board: &Scratch, patterns: &[&str]) -> Fact<u64> {
    let patterns = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    let extended_resources = [(NAME.to_owned(), ResourceSource::Paths(patterns))].into();
    let settings = Settings { extended_resources, ..Settings::default() };
    facts(&Root::new(&board.0), &settings, None).readings.extended_resources.get(NAME).unwrap().clone()
}

#[test]
fn paths_are_counted_once_each_and_a_folder_that_is_not_there_has_none() {
    let board = Scratch::new("devices-paths");
    for name in ["usb1", "usb2", "usb10", ".usb3", "bus/1/hub", "bus/2/hub", "bus/3/none", "bus/file"] {
        board.write(&format!("dev/{name}"), "");
    }
    board.link("dev/by-id/usb-gone", "../nowhere");
    board.link("dev/all", "/dev/bus");
    for (patterns, expected) in [
        (&["/dev/usb?"][..], 2),
        (&["/dev/usb?", "/dev/*1", "/dev/usb*"], 3),
        (&["/dev/usb1", "/dev/usb9"], 1),
        (&["/dev/bus/?/hub"], 2),
        (&["/dev/bus/*/*", "/dev/all/*/hub"], 5),
        (&["/dev/by-id/*"], 1),
        (&["/dev/none/*", "/dev/usb1/*", "/sys/class/*/x"], 0),
    ] {
        assert_eq!(count(&board, patterns), Ok(expected), "{patterns:?}");
    }
}

#[test]
fn more_names_than_are_looked_at_leave_the_count_unknown() {
    let board = Scratch::new("devices-many");
    (0..limits::RESOURCE_NAMES).for_each(|number| board.write(&format!("dev/many/{number}"), ""));
    let found = |board: &Scratch| count(board, &["/dev/many/1", "/dev/many/*"]);
    assert_eq!(found(&board), Ok(limits::RESOURCE_NAMES as u64));
    board.write("dev/many/one-more", "");
    let absent = found(&board).unwrap_err();
    assert_eq!(absent.to_string(), "/dev/many: implausible: there are more than 4096 names to look at");
}

#[test]
fn a_folder_that_may_not_be_listed_leaves_the_count_unknown() {
    let board = Scratch::new("devices-closed");
    board.write("dev/closed/usb1", "");
    fs::set_permissions(board.0.join("dev/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    // Root may.
    let is_root = fs::read_dir(board.0.join("dev/closed")).is_ok();
    let found = count(&board, &["/dev/closed/*"]).map_err(|absent| absent.to_string());
    let expected = if is_root { Ok(1) } else { Err("/dev/closed: permission denied".to_owned()) };
    assert_eq!(found, expected);
    fs::set_permissions(board.0.join("dev/closed"), fs::Permissions::from_mode(0o700)).unwrap();
}
