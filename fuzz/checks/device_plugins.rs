//! Turns any bytes into what a device plug-in registers with and tells of its devices: refused in words, or counted within the message.

use nodepulse::device_plugins::{Devices, Registration};

/// `bytes` stand for a message, of either kind.
pub fn check(bytes: &[u8]) {
    match Registration::read(bytes) {
        Ok(Registration { file_name, resource }) => {
            assert!(!file_name.is_empty() && !file_name.contains(['/', '\0']), "{file_name:?}");
            assert!(resource.contains('/') && !resource.contains("kubernetes.io/"), "{resource:?}");
            assert!(resource.len() <= 253 + 1 + 63, "{resource:?}");
        }
        Err(why) => assert!(!why.is_empty()),
    }
    if let Some(Devices { all, healthy }) = Devices::read(bytes) {
        // The head of a device is two bytes, of one that is healthy eleven.
        assert!(healthy <= all && 2 * all + 9 * healthy <= bytes.len() as u64, "{all} {healthy}");
    }
}
