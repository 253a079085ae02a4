//! Turns errors of a real file system into the fact that the kernel has made it read-only, or that it takes no writes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use nodepulse::probe::{Asked, ReadingFiles, Root, state_disk};
use nodepulse::time::Up;

use super::Scratch;
use super::left_out::leave_out;

/// An ext4 of its own, that goes read-only with the first error.
struct Ext4 {
    scratch: Scratch,
}

impl Ext4 {
    fn mount(name: &str) -> Result<Ext4, String> {
        let scratch = Scratch::new(name);
        let ext4 = Ext4 { scratch };
        fs::create_dir_all(ext4.point()).unwrap();
        let image = format!("{}/image", ext4.scratch.0.display());
        fs::File::create(&image).and_then(|file| file.set_len(4 << 20)).unwrap();
        run("mkfs.ext4", &["-q", "-F", &image])?;
        run("mount", &["-t", "ext4", "-o", "loop,errors=remount-ro", &image, &ext4.point()])?;
        fs::create_dir_all(format!("{}/lib/nodepulse", ext4.point())).unwrap();
        Ok(ext4)
    }

    fn point(&self) -> String {
        format!("{}/var", self.scratch.0.display())
    }

    /// As the kernel does when it finds the file system damaged.
    fn damage(&self) -> Result<(), String> {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let own = table.lines().find(|line| line.split(' ').nth(1) == Some(&self.point())).unwrap();
        let device = own.split(' ').next().and_then(|device| device.rsplit('/').next()).unwrap();
        let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
        fs::write(&trigger, "1").map_err(|error| format!("{trigger}: {error}"))
    }

    /// What a process says that starts now.
    fn made_read_only(&self) -> Option<String> {
        found(&format!("{}/lib/nodepulse", self.point()), None)
    }
}

/// The same of a process with this state directory, whose writes ended so.
fn found(state_directory: &str, failed_write: Option<&str>) -> Option<String> {
    let root = Root::new("/");
    let disk = state_disk(&root, state_directory, true);
    let failed_write = failed_write.map(str::to_owned);
    ReadingFiles::open(&root, Up::BOOT).read(disk, failed_write, &Asked::default(), Up::BOOT).made_read_only.unwrap()
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = run("umount", &["--lazy", &self.point()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let text = || format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    if output.status.success() { Ok(()) } else { Err(text()) }
}

/// One after the other: each sees what all have mounted.
static MOUNTED: Mutex<()> = Mutex::new(());

fn with_ext4(test: &str, judge: impl Fn(&Ext4) -> Result<(), String>) {
    let _one = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(why) = Ext4::mount(test).and_then(|ext4| judge(&ext4)) {
        leave_out(test, &why);
    }
}

#[test]
fn a_file_system_with_errors_is_told_from_one_that_somebody_made_read_only() {
    with_ext4("errors-of-ext4", |ext4| {
        assert_eq!(ext4.made_read_only(), None);
        run("mount", &["-o", "remount,ro", &ext4.point()])?;
        assert_eq!(ext4.made_read_only(), None, "that was asked for");
        run("mount", &["-o", "remount,rw", &ext4.point()])?;
        ext4.damage()?;
        assert_eq!(ext4.made_read_only(), Some(ext4.point()));
        Ok(())
    });
}

#[test]
fn a_running_process_notices_it_within_a_minute_and_whatever_the_way_to_the_directory() {
    with_ext4("errors-while-running", |ext4| {
        let (root, link) = (Root::new("/"), format!("{}/link", ext4.scratch.0.display()));
        std::os::unix::fs::symlink(format!("{}/lib", ext4.point()), &link).unwrap();
        let directory = format!("{link}/nodepulse");
        assert!(Path::new(&directory).is_dir());
        let mut files = ReadingFiles::open(&root, Up::BOOT);
        let mut look = |is_new| {
            let disk = state_disk(&root, &directory, is_new);
            files.read(disk, None, &Asked::default(), Up::BOOT).made_read_only.unwrap()
        };
        assert_eq!(look(true), None);
        ext4.damage()?;
        // One look is every ten seconds.
        let looks = (1..=20).find(|_| look(false).is_some());
        assert!(looks.is_some_and(|looks| looks <= 6), "{looks:?}");
        assert_eq!(look(false), Some(ext4.point()));
        Ok(())
    });
}

#[test]
fn a_file_system_with_errors_is_seen_wherever_the_state_directory_is() {
    with_ext4("errors-elsewhere", |ext4| {
        let elsewhere = ext4.scratch.0.display().to_string();
        assert_eq!(found(&elsewhere, None), None);
        ext4.damage()?;
        assert_eq!(found(&elsewhere, None), Some(ext4.point()));
        Ok(())
    });
}

#[test]
fn a_disk_that_takes_no_writes_is_told_unless_nobody_is_to_write_to_it() {
    with_ext4("failing-writes", |ext4| {
        let state_directory = format!("{}/lib/nodepulse", ext4.point());
        let failed = "cannot write it: Input/output error";
        assert_eq!(found(&state_directory, Some(failed)).as_deref(), Some(failed));
        run("mount", &["-o", "remount,ro", &ext4.point()])?;
        assert_eq!(found(&state_directory, Some("cannot write it: Read-only file system")), None);
        Ok(())
    });
}
