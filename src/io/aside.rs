//! Turns bytes into a file that is either the old one or the new one, whenever the power fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes beside `path`, syncs, renames, and syncs the directory. Nobody else may read the file. What a power cut left
/// beside it is removed first, as it, or what somebody put there, has its own rights and may point elsewhere.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&beside, path)) {
        // A full disk gets its blocks back; that it fails again is no news.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::loopback::TempFolder;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_and_only_its_owner_may_read_it() {
        let folder = TempFolder::new();
        let path = folder.path("file");
        replace(path.as_ref(), b"a longer first version").unwrap();
        fs::write(folder.path("file.new"), "left by a power cut, and longer than what follows").unwrap();
        replace(path.as_ref(), b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!Path::new(&folder.path("file.new")).exists());
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_file_and_nothing_beside_it() {
        let folder = TempFolder::new();
        assert!(replace(folder.path("missing/file").as_ref(), b"x").is_err());
        // A directory in the place of the file: the rename fails.
        fs::create_dir_all(folder.path("occupied/inside")).unwrap();
        assert!(replace(folder.path("occupied").as_ref(), b"x").is_err());
        assert!(!Path::new(&folder.path("occupied.new")).exists());
    }
}
