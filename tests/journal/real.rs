//! Turns directories of every bad kind into what the disk of the journal says of them, and what it does when they heal.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use nodepulse::agent::Notice;
use nodepulse::io::disk::{Disk, JOURNAL, KNOWN_SERVERS, read_journal};
use nodepulse::journal::{BootId, Happened, Journal, Recovery, Write};
use nodepulse::time::{Now, Up};

const QUOTA_BYTES: usize = 64 * 1024;
const NOBODY: u32 = 65_534;

/// A place for a state directory; unmounted and removed with everything in it.
struct Place {
    root: PathBuf,
    mounted: Vec<PathBuf>,
}

impl Place {
    fn new() -> Place {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let root = std::env::temp_dir().join(format!("nodepulse-disk-{}-{number}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Place { root, mounted: Vec::new() }
    }

    fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().unwrap().to_owned()
    }

    /// `mount` with these arguments, whose last is the place.
    fn mount(&mut self, arguments: &[&str]) {
        let done = Command::new("mount").args(arguments).output().unwrap();
        assert!(done.status.success(), "mount {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        let place = PathBuf::from(arguments.last().unwrap());
        if !self.mounted.contains(&place) {
            self.mounted.push(place);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for place in &self.mounted {
            let _ = Command::new("umount").arg("-l").arg(place).status();
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn has_root(test: &str) -> bool {
    let is_root = nix::unistd::Uid::effective().is_root();
    if !is_root {
        super::left_out::leave_out(test, "it needs root");
    }
    is_root
}

fn up() -> Up {
    Up::BOOT
}

fn add(journal: &mut Journal) {
    journal.add(Now { up: up(), wall: None }, Happened::ProcessStarted);
}

/// The next write, done or failed.
fn sync(journal: &mut Journal, disk: &mut Disk) -> Result<(), Notice> {
    let write = journal.next_write(up()).unwrap();
    let written = disk.write(JOURNAL, &write);
    journal.written(written.is_ok(), up());
    written
}

fn recover(bytes: &[u8]) -> (Journal, Recovery) {
    Journal::recover(bytes, QUOTA_BYTES, BootId(1))
}

fn count(journal: &Journal) -> usize {
    journal.waiting().count()
}

/// As after a back-off, but at once: a new journal of the same records.
fn replacement(records: usize) -> Write {
    let (mut journal, _) = recover(&[]);
    (0..records).for_each(|_| add(&mut journal));
    journal.next_write(up()).unwrap()
}

fn told(directory: &str) -> usize {
    let bytes = read_journal(&format!("{directory}/journal")).unwrap();
    let (journal, recovery) = recover(&bytes);
    assert!(recovery.is_whole(), "{recovery}");
    count(&journal)
}

#[test]
fn a_journal_outlives_its_process_and_only_its_owner_may_read_it() {
    let place = Place::new();
    let directory = place.path("state");
    let (mut disk, bytes, trouble) = Disk::open(&directory).unwrap();
    assert_eq!((bytes, trouble), (vec![], None));
    let (mut journal, _) = recover(&[]);
    for _ in 0..40 {
        add(&mut journal);
        sync(&mut journal, &mut disk).unwrap();
    }
    let metadata = fs::metadata(format!("{directory}/journal")).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 16 * 1024));
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    drop(disk);
    let (_disk, bytes, trouble) = Disk::open(&directory).unwrap();
    assert_eq!((count(&recover(&bytes).0), trouble), (40, None));
}

#[test]
fn a_second_process_is_told_who_has_the_directory() {
    let place = Place::new();
    let directory = place.path("state");
    let (disk, ..) = Disk::open(&directory).unwrap();
    let Err(error) = Disk::open(&directory) else { panic!("two own {directory}") };
    // Some sandboxes hide /proc/locks.
    let told =
        [format!("by process {};", std::process::id()), "by a process that is not to be seen from here".to_owned()];
    assert!(told.iter().any(|told| error.text.contains(told)), "{error}");
    assert_eq!(error.word, "state-in-use");
    drop(disk);
    assert!(Disk::open(&directory).is_ok());
}

#[test]
fn what_is_no_file_is_left_alone_until_somebody_moves_it_away() {
    let place = Place::new();
    let directory = place.path("state");
    fs::create_dir(&directory).unwrap();
    let journal = format!("{directory}/journal");
    let target = place.path("target");
    fs::write(&target, "somebody's").unwrap();
    let make: [(&str, &dyn Fn()); 3] = [
        ("a directory", &|| fs::create_dir(&journal).unwrap()),
        ("a symbolic link", &|| symlink(&target, &journal).unwrap()),
        ("a pipe", &|| assert!(Command::new("mkfifo").arg(&journal).status().unwrap().success())),
    ];
    for (what, make) in make {
        make();
        let (mut disk, bytes, trouble) = Disk::open(&directory).unwrap();
        let trouble = trouble.unwrap();
        assert!(trouble.text.starts_with(&format!("{journal} is {what}, not a journal")), "{trouble}");
        assert_eq!((bytes, disk.write(JOURNAL, &replacement(1))), (vec![], Err(trouble)));
        if what == "a directory" {
            fs::remove_dir(&journal).unwrap()
        } else {
            fs::remove_file(&journal).unwrap()
        }
        assert_eq!(disk.write(JOURNAL, &replacement(2)), Ok(()), "{what}");
        assert_eq!(told(&directory), 2, "{what}");
        fs::remove_file(&journal).unwrap();
    }
    assert_eq!(fs::read(&target).unwrap(), b"somebody's");
}

#[test]
fn a_directory_may_come_late_but_an_unread_journal_in_it_is_never_replaced() {
    let place = Place::new();
    let directory = place.path("missing/state");
    let (mut disk, bytes, trouble) = Disk::open(&directory).unwrap();
    assert_eq!((bytes, trouble.map(|trouble| trouble.word)), (vec![], Some("state-missing")));
    assert_eq!(disk.write(JOURNAL, &replacement(1)).unwrap_err().word, "state-missing");
    fs::create_dir_all(&directory).unwrap();
    fs::write(format!("{directory}/journal"), "what an earlier process wrote").unwrap();
    assert_eq!(disk.write(JOURNAL, &replacement(1)).unwrap_err().word, "journal-unread");
    fs::remove_file(format!("{directory}/journal")).unwrap();
    assert_eq!(disk.write(JOURNAL, &replacement(3)), Ok(()));
    assert_eq!(told(&directory), 3);
    fs::remove_dir_all(&directory).unwrap();
    assert!(disk.write(JOURNAL, &replacement(1)).is_err());
    assert_eq!(disk.write(JOURNAL, &replacement(4)), Ok(()));
    assert_eq!(told(&directory), 4);
}

#[test]
fn an_append_to_a_journal_that_was_taken_away_fails_and_a_new_one_is_made() {
    let place = Place::new();
    let directory = place.path("state");
    let (mut disk, ..) = Disk::open(&directory).unwrap();
    let (mut journal, _) = recover(&[]);
    add(&mut journal);
    sync(&mut journal, &mut disk).unwrap();
    add(&mut journal);
    let append = journal.next_write(up()).unwrap();
    assert!(matches!(append, Write::Append { .. }));
    fs::remove_file(format!("{directory}/journal")).unwrap();
    assert!(disk.write(JOURNAL, &append).is_err());
    assert_eq!(disk.write(JOURNAL, &replacement(2)), Ok(()));
    assert_eq!(told(&directory), 2);
}

#[test]
fn what_a_power_cut_left_aside_is_removed_and_never_read() {
    let place = Place::new();
    let directory = place.path("state");
    fs::create_dir(&directory).unwrap();
    symlink(place.path("target"), format!("{directory}/journal.new")).unwrap();
    let (mut disk, bytes, trouble) = Disk::open(&directory).unwrap();
    assert_eq!((bytes, trouble), (vec![], None));
    assert!(fs::symlink_metadata(format!("{directory}/journal.new")).is_err());
    symlink(place.path("target"), format!("{directory}/journal.new")).unwrap();
    assert_eq!(disk.write(JOURNAL, &replacement(1)), Ok(()));
    assert!(!Path::new(&place.path("target")).exists());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
}

#[test]
fn a_file_beside_the_journal_is_the_old_one_or_the_new_one() {
    let place = Place::new();
    let directory = place.path("state");
    let (mut disk, ..) = Disk::open(&directory).unwrap();
    let (path, new) = (format!("{directory}/{KNOWN_SERVERS}"), format!("{directory}/{KNOWN_SERVERS}.new"));
    let mut write = |bytes: &[u8]| disk.write(KNOWN_SERVERS, &Write::Replace { bytes: bytes.to_vec() });
    assert_eq!(write(b"a longer first version"), Ok(()));
    fs::write(&new, "left by a power cut, and longer than what follows").unwrap();
    assert_eq!(write(b"second"), Ok(()));
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // A directory in its place: the rename fails.
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(format!("{path}/inside")).unwrap();
    assert!(write(b"third").is_err());
    assert!(!fs::exists(&new).unwrap());
    assert!(!fs::exists(format!("{directory}/{JOURNAL}")).unwrap());
}

#[test]
fn a_full_disk_keeps_what_it_has_and_takes_the_rest_when_there_is_room() {
    if !has_root("a full disk") {
        return;
    }
    let mut place = Place::new();
    let directory = place.path("state");
    fs::create_dir(&directory).unwrap();
    place.mount(&["-t", "tmpfs", "-o", "size=40k,mode=0700", "nodepulse-test", &directory]);
    let (mut disk, ..) = Disk::open(&directory).unwrap();
    let (mut journal, _) = recover(&[]);
    add(&mut journal);
    sync(&mut journal, &mut disk).unwrap();
    let filler = format!("{directory}/filler");
    let mut size = 64 * 1024;
    while size > 0 && fs::write(&filler, vec![1; size]).is_err() {
        size -= 1024;
    }
    add(&mut journal);
    assert_eq!(sync(&mut journal, &mut disk), Ok(()), "an append needs no new block");
    let full = disk.write(JOURNAL, &replacement(1)).unwrap_err();
    assert_eq!(full.word, "state-full", "{full}");
    assert_eq!(told(&directory), 2);
    assert!(!Path::new(&format!("{directory}/journal.new")).exists(), "the blocks of a failed write stay taken");
    fs::remove_file(filler).unwrap();
    assert_eq!(disk.write(JOURNAL, &replacement(3)), Ok(()));
    assert_eq!(told(&directory), 3);
}

#[test]
fn a_disk_that_is_read_only_for_a_while_gets_everything_in_the_end() {
    if !has_root("a read-only disk") {
        return;
    }
    let mut place = Place::new();
    let directory = place.path("state");
    fs::create_dir(&directory).unwrap();
    place.mount(&["-t", "tmpfs", "-o", "size=1m,mode=0700", "nodepulse-test", &directory]);
    drop(Disk::open(&directory).map(|(mut disk, ..)| disk.write(JOURNAL, &replacement(2)).unwrap()));
    place.mount(&["-o", "remount,ro", &directory]);
    let (mut disk, bytes, trouble) = Disk::open(&directory).unwrap();
    assert_eq!(trouble.map(|trouble| trouble.word), Some("state-read-only"));
    let (mut journal, _) = recover(&bytes);
    assert_eq!(count(&journal), 2);
    add(&mut journal);
    assert_eq!(sync(&mut journal, &mut disk).unwrap_err().word, "state-read-only");
    assert!(journal.waiting().all(|record| journal.is_synced(record.sequence)), "from memory it goes on");
    assert_eq!(journal.next_write(up()), None, "and leaves the disk alone for a while");
    place.mount(&["-o", "remount,rw", &directory]);
    let later = journal.write_due().unwrap();
    disk.write(JOURNAL, &journal.next_write(later).unwrap()).unwrap();
    journal.written(true, later);
    assert_eq!((told(&directory), journal.has_unwritten()), (3, false));
}

#[test]
fn a_directory_of_somebody_else_is_named_with_who_we_are() {
    if !has_root("a directory of somebody else") {
        return;
    }
    let place = Place::new();
    let directory = place.path("state");
    drop(Disk::open(&directory).unwrap());
    let for_thread = directory.clone();
    #[allow(clippy::disallowed_methods, reason = "only a thread can be another user without the rest of the process")]
    let other = std::thread::spawn(move || {
        nix::unistd::setfsuid(NOBODY.into());
        let (mut disk, bytes, trouble) = Disk::open(&for_thread).unwrap();
        let written = disk.write(JOURNAL, &replacement(1));
        (bytes, trouble.map(|trouble| trouble.word), written.map_err(|error| error.word))
    });
    assert_eq!(other.join().unwrap(), (vec![], Some("state-denied"), Err("state-denied")));
    assert_eq!(fs::metadata(&directory).unwrap().uid(), 0);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}
