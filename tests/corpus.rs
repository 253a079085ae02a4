//! Turns what the fuzzer has found worth keeping into a test of its own: `make fuzz` begins with these files, and here
//! each goes through the same check.

#[path = "../fuzz/checks/certificate.rs"]
mod certificate;
#[path = "../fuzz/checks/cri.rs"]
mod cri;
#[path = "../fuzz/checks/dbus.rs"]
mod dbus;
#[path = "../fuzz/checks/device_plugins.rs"]
mod device_plugins;
#[path = "../fuzz/checks/features.rs"]
mod features;
#[path = "../fuzz/checks/hpack.rs"]
mod hpack;
#[path = "../fuzz/checks/http2_frames.rs"]
mod http2_frames;
#[path = "../fuzz/checks/identity.rs"]
mod identity;
#[path = "../fuzz/checks/journal.rs"]
mod journal;
#[path = "../fuzz/checks/kernel_log.rs"]
mod kernel_log;
#[path = "../fuzz/checks/kubeconfig.rs"]
mod kubeconfig;
#[path = "../fuzz/checks/reply.rs"]
mod reply;
#[path = "../fuzz/checks/settings.rs"]
mod settings;
#[path = "../fuzz/checks/text.rs"]
mod text;
#[path = "../fuzz/checks/watch.rs"]
mod watch;

use std::path::Path;
use std::{fs, panic};

/// Every file of a corpus; a panic is told with the file's name.
fn replay(name: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let unreadable = |error: std::io::Error| -> ! { panic!("{}: {error}", folder.display()) };
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|error| unreadable(error)) {
        let path = entry.unwrap_or_else(|error| unreadable(error)).path();
        let bytes = fs::read(&path).unwrap_or_else(|error| unreadable(error));
        if panic::catch_unwind(|| check(&bytes)).is_err() {
            panic!("the check of {} failed as told above", path.display());
        }
        count += 1;
    }
    assert!(count > 10, "{}: only {count} files", folder.display());
}

#[test]
fn the_kept_answers_of_container_runtimes_say_the_same_whole_and_in_pieces() {
    replay("cri", cri::check);
}

#[test]
fn the_kept_journals_are_recovered_within_bounds() {
    replay("journal", journal::check);
}

#[test]
fn the_kept_kubeconfigs_are_read_or_refused_in_a_sentence() {
    replay("kubeconfig", kubeconfig::check);
}

#[test]
fn the_kept_replies_say_the_same_whole_and_in_pieces() {
    replay("reply", reply::check);
}

#[test]
fn the_kept_settings_are_read_and_printed_and_read_again() {
    replay("settings", settings::check);
}

#[test]
fn the_kept_certificates_and_keys_are_read_within_themselves() {
    replay("certificate", certificate::check);
}

#[test]
fn the_kept_files_of_an_identity_and_answers_of_strangers_are_read_or_told_in_a_sentence() {
    replay("identity", identity::check);
}

#[test]
fn the_kept_header_blocks_are_read_as_another_decoder_reads_them() {
    replay("hpack", hpack::check);
}

#[test]
fn the_kept_frames_say_the_same_whole_and_in_pieces() {
    replay("http2_frames", http2_frames::check);
}

#[test]
fn the_kept_events_of_a_watch_say_the_same_whole_and_in_pieces() {
    replay("watch", watch::check);
}

#[test]
fn the_kept_words_of_a_bus_say_the_same_whole_and_in_pieces() {
    replay("dbus", dbus::check);
}

#[test]
fn the_kept_lines_of_a_kernel_tell_of_the_same_trouble_whole_and_in_pieces() {
    replay("kernel_log", kernel_log::check);
}

#[test]
fn the_kept_files_of_features_give_few_labels_that_their_lines_say() {
    replay("features", features::check);
}

#[test]
fn the_kept_messages_of_device_plug_ins_are_refused_in_words_or_counted() {
    replay("device_plugins", device_plugins::check);
}
