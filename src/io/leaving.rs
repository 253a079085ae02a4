//! Turns the word that an init script leaves into whether the machine goes down, and how (SHD-1).
//!
//! SIGTERM alone means this service. A word of the last time is nobody's any more once a process starts.

use std::fs::{self, File};
use std::io::Read;

use crate::config::limits::LEAVING_WORD_BYTES;
use crate::node::Leaving;

/// Where init scripts put it, unless the service manager says where (`RUNTIME_DIRECTORY`).
const FOLDER: &str = "/run/nodepulse";

/// The file that the word is in.
pub fn file(runtime_directory: Option<&str>) -> String {
    let folder = runtime_directory.and_then(|folders| folders.split(':').next()).filter(|folder| !folder.is_empty());
    format!("{}/leaving", folder.unwrap_or(FOLDER))
}

/// What it says; `None`: there is none, so only the service is to end. One that may not be read says that much.
pub fn read(file: &str) -> Option<Leaving> {
    let mut word = Vec::new();
    let read = File::open(file).and_then(|file| file.take(LEAVING_WORD_BYTES).read_to_end(&mut word));
    // That no file can be opened, as there are too many, says nothing of this one.
    let is_there = read.is_ok() || fs::symlink_metadata(file).is_ok();
    is_there.then(|| Leaving::parse(&String::from_utf8_lossy(&word)))
}

/// What was not root's to begin with may not be ours to remove; the scripts do as well.
pub fn forget(file: &str) {
    let _ = fs::remove_file(file);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::loopback::TempFolder;

    #[test]
    fn a_word_is_read_until_a_process_starts() {
        let folder = TempFolder::new();
        let word = file(Some(&folder.path("")));
        assert_eq!(read(&word), None);
        for (text, kind) in [("reboot\n", Leaving::Reboot), ("", Leaving::Shutdown), ("\u{ff}", Leaving::Shutdown)] {
            fs::write(&word, text).unwrap();
            assert_eq!(read(&word), Some(kind));
        }
        forget(&word);
        assert_eq!(read(&word), None);
        fs::create_dir(&word).unwrap();
        assert_eq!(read(&word), Some(Leaving::Shutdown), "it is there");
        fs::remove_dir(&word).unwrap();
        fs::write(folder.path("file"), "").unwrap();
        assert_eq!(read(&folder.path("file/leaving")), None, "an error is no word");
        assert_eq!(
            [file(None), file(Some("")), file(Some("/run/a:/run/b"))],
            ["/run/nodepulse/leaving", "/run/nodepulse/leaving", "/run/a/leaving"]
        );
    }
}
