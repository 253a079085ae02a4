//! Turns the table of mounts into the files that something other than the kernel answers for, and into the file system that the
//! kernel has made read-only.
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//! 417 402 0:49 /proc/meminfo /proc/meminfo rw,nosuid,nodev,relatime - fuse.lxcfs lxcfs rw,user_id=0,group_id=0
//! 42 27 7:0 / /var rw,relatime - ext4 /dev/mmcblk0p2 rw,errors=remount-ro,emergency_ro
//! ```

use super::attribute::shortened;
use super::facts::{Absent, Fact, Why};
use super::root::{OpenFile, Root};

pub(super) const MOUNTINFO: &str = "/proc/self/mountinfo";
/// What the first process sees, from which much may be hidden here: systemd makes most of a service's files read-only.
const MOUNTINFO_OF_FIRST: &str = "/proc/1/mountinfo";
/// Kinds of file systems that a kernel makes read-only when they fail. Others are so because of what they are.
const MADE_READ_ONLY: [&str; 11] =
    ["ext2", "ext3", "ext4", "f2fs", "btrfs", "ubifs", "vfat", "msdos", "exfat", "nilfs2", "bcachefs"];

/// The tables, kept open.
#[derive(Debug)]
pub(super) struct MountFiles {
    first: OpenFile,
    /// Where the state directory is found; `None`: in that of the first process, which is in the same namespace.
    own: Option<OpenFile>,
}

/// What the tables say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MountStates {
    /// Where a file system is mounted that the kernel has made read-only.
    pub made_read_only: Option<String>,
    /// Somebody wanted nothing to be written to the state directory.
    pub state_is_protected: bool,
}

#[derive(Debug)]
struct Mount<'a> {
    device: &'a str,
    point: &'a str,
    /// Of the mount: what was asked for.
    options: &'a str,
    kind: &'a str,
    /// Of the file system: what is.
    system_options: &'a str,
}

impl MountFiles {
    pub(super) fn new(root: &Root) -> Fact<MountFiles> {
        root.has_disks(MOUNTINFO)?;
        Ok(MountFiles {
            first: OpenFile::new(MOUNTINFO_OF_FIRST),
            own: root.is_own().then(|| OpenFile::new(MOUNTINFO)),
        })
    }

    /// `state_path`: without symbolic links.
    pub(super) fn look(&mut self, root: &Root, page: &mut [u8], state_path: &str) -> Fact<MountStates> {
        let first = self.first.read_table(root, page);
        let own = self.own.as_mut().map(|own| own.read_table(root, page)).transpose()?;
        if own.as_ref().is_some_and(|own| first.as_ref() == Ok(own)) {
            self.own = None;
        }
        let (path, table) = match (&own, &first) {
            (Some(own), _) => (MOUNTINFO, own),
            (None, Ok(first)) => (MOUNTINFO_OF_FIRST, first),
            (None, Err(absent)) => return Err(absent.clone()),
        };
        let holder = holder(table, state_path).map_err(|why| Absent::new(path, why))?;
        // Of a machine that hides its processes no more is known than what is seen from here.
        let all = first.as_ref().unwrap_or(table);
        let of_state = || holder.is_made_read_only().then(|| holder.point.to_owned());
        Ok(MountStates {
            made_read_only: any_made_read_only(all).or_else(of_state),
            state_is_protected: has(holder.options, "ro"),
        })
    }
}

impl Mount<'_> {
    /// Who mounts read-only, or remounts so, sets the option of the mount as well. A kernel that meets an error leaves that alone,
    /// and says `ro` of the file system (ext4 before Linux 6.12 or so, FAT, f2fs, Btrfs, UBIFS) or `emergency_ro` (later ext4),
    /// or `shutdown`, with which not even what is in memory gets there any more.
    fn is_made_read_only(&self) -> bool {
        let of_system = |option| has(self.system_options, option);
        let is_made = of_system("emergency_ro") || of_system("shutdown") || of_system("ro") && !has(self.options, "ro");
        is_made && self.may_be_made_read_only()
    }

    fn may_be_made_read_only(&self) -> bool {
        MADE_READ_ONLY.contains(&self.kind)
    }
}

fn has(options: &str, wanted: &str) -> bool {
    options.split(',').any(|option| option == wanted)
}

/// Each mount, as far as the first five fields of its line, and what follows.
fn lines(mountinfo: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    mountinfo.split('\n').filter_map(|line| {
        let mut fields = line.splitn(6, ' ');
        let (device, point) = (fields.nth(2)?, fields.nth(1)?);
        Some((device, point, fields.next()?))
    })
}

fn mount<'a>((device, point, rest): (&'a str, &'a str, &'a str)) -> Option<Mount<'a>> {
    let mut fields = rest.split(' ');
    let options = fields.next()?;
    fields.find(|field| *field == "-")?;
    Some(Mount { device, point, options, kind: fields.next()?, system_options: fields.nth(1)? })
}

/// Where LXC puts numbers of the container in place of the machine's, each once.
pub(super) fn of_lxcfs(mountinfo: &str) -> Vec<&str> {
    let is_kernels = |point: &str| matches!(point.split('/').nth(1), Some("proc" | "sys"));
    let of_lxcfs =
        lines(mountinfo).filter_map(mount).filter(|mount| mount.kind == "fuse.lxcfs" && is_kernels(mount.point));
    let mut found: Vec<&str> = of_lxcfs.map(|mount| mount.point).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Of each file system the first mount says what was wanted of it; others show parts of it elsewhere, to containers as well.
fn any_made_read_only(mountinfo: &str) -> Option<String> {
    let mut devices = Vec::new();
    let mut firsts = lines(mountinfo).filter_map(mount).filter(Mount::may_be_made_read_only).filter(|mount| {
        let is_first = !devices.contains(&mount.device);
        devices.extend(is_first.then_some(mount.device));
        is_first
    });
    firsts.find(Mount::is_made_read_only).map(|found| found.point.to_owned())
}

/// The mount that holds `path`.
fn holder<'a>(mountinfo: &'a str, path: &str) -> Result<Mount<'a>, Why> {
    let path = [("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")]
        .iter()
        .fold(path.to_owned(), |path, (plain, escaped)| path.replace(plain, escaped));
    let holds = |(_, point, _): &(&str, &str, &str)| {
        let rest = path.strip_prefix(point.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // Of several the deepest, and of those at one point the last, which covers the others.
    let found = lines(mountinfo).filter(holds).filter_map(mount).max_by_key(|mount| mount.point.len());
    found.ok_or_else(|| Why::Malformed(format!("no mount holds {:?}", shortened(&path))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lxcfs_answers_for_in_place_of_the_kernel_is_named() {
        let mountinfo = "36 35 98:0 / / rw,noatime master:1 - ext4 /dev/root rw\n\
                         417 402 0:49 /proc/meminfo /proc/meminfo rw,nosuid shared:3 - fuse.lxcfs lxcfs rw,user_id=0\n\
                         418 402 0:49 /proc/cpuinfo /proc/cpuinfo rw - fuse.lxcfs lxcfs rw\n\
                         419 402 0:49 /proc/cpuinfo /proc/cpuinfo rw - fuse.lxcfs lxcfs rw\n\
                         420 402 0:49 / /var/lib/lxcfs rw - fuse.lxcfs lxcfs rw\n\
                         421 402 0:50 / /proc/sys rw - proc fuse.lxcfs rw\n417 402 0:49 /proc/x\n";
        assert_eq!(of_lxcfs(mountinfo), ["/proc/cpuinfo", "/proc/meminfo"]);
        let over_sysfs = "422 402 0:49 /sys/devices/system/cpu/online /sys/devices/system/cpu/online rw - fuse.lxcfs lxcfs rw\n\
                          423 402 0:49 /sys/devices/system/cpu /sys/devices/system/cpu rw - fuse.lxcfs lxcfs rw\n\
                          424 402 0:49 /proc /proc rw - fuse.lxcfs lxcfs rw\n425 402 0:49 / /system/proc rw - fuse.lxcfs lxcfs rw\n";
        let directory = "/sys/devices/system/cpu";
        assert_eq!(of_lxcfs(over_sysfs), ["/proc", directory, "/sys/devices/system/cpu/online"]);
        assert!(of_lxcfs("").is_empty());
    }

    /// Of the file system that holds it: where it is, if the kernel has made it read-only.
    fn of_state(mountinfo: &str, path: &str) -> Result<Option<String>, Why> {
        let holder = holder(mountinfo, path)?;
        Ok(holder.is_made_read_only().then(|| holder.point.to_owned()))
    }

    #[test]
    fn a_file_system_that_became_read_only_by_itself_is_told_from_one_that_was_mounted_so() {
        let table = |options: &str, kind: &str, system: &str| {
            format!(
                "20 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw\n\
                 42 20 179:3 / /var {options} shared:2 - {kind} /dev/mmcblk0p3 {system}\n\
                 43 42 0:30 / /var/library rw - tmpfs tmpfs rw\n"
            )
        };
        let at = |table: &str| {
            let of_state = of_state(table, "/var/lib/nodepulse");
            assert_eq!(of_state, Ok(any_made_read_only(table)), "{table}");
            of_state
        };
        for (options, kind, system, expected) in [
            ("rw,relatime", "ext4", "rw,errors=remount-ro", None),
            ("rw,relatime", "ext4", "ro,errors=remount-ro", Some("/var")),
            ("rw,relatime", "ext4", "rw,errors=remount-ro,emergency_ro", Some("/var")),
            ("rw,relatime", "ext4", "rw,shutdown", Some("/var")),
            ("ro,relatime", "ext4", "ro", None),
            ("ro,relatime", "ext4", "rw", None),
            ("ro,relatime", "ext4", "ro,emergency_ro", Some("/var")),
            ("rw,relatime", "squashfs", "ro,errors=continue", None),
            ("rw,relatime", "overlay", "ro,lowerdir=/a:/b", None),
            ("rw,relatime", "udf", "ro,iocharset=utf8", None),
            ("rw,relatime", "f2fs", "ro,errors=remount-ro", Some("/var")),
            ("rw,relatime", "ubifs", "ro,assert=read-only,ubi=0,vol=1", Some("/var")),
            ("rw,relatime", "ext4", "rw,errors=remount-ro,data=ro", None),
        ] {
            assert_eq!(at(&table(options, kind, system)), Ok(expected.map(str::to_owned)), "{options} {kind} {system}");
        }
        let covered = table("rw", "ext4", "ro") + "44 20 179:4 / /var rw - ext4 /dev/sda1 rw\n";
        assert_eq!(of_state(&covered, "/var/lib/nodepulse"), Ok(None), "the last mount at a point covers the others");
        let root = "20 1 179:2 / / rw,noatime - ext4 /dev/mmcblk0p2 ro\n";
        assert_eq!(of_state(root, "/"), Ok(Some("/".to_owned())));
        assert_eq!(of_state(root, "/var/lib"), Ok(Some("/".to_owned())));
        let blank = "45 1 8:1 / /media/my\\040disk rw - vfat /dev/sda1 ro\n";
        assert_eq!(of_state(blank, "/media/my disk/state"), Ok(Some("/media/my\\040disk".to_owned())));
        assert_eq!(of_state(blank, "/var").unwrap_err().word(), "malformed");
    }

    #[test]
    fn of_all_file_systems_the_one_is_named_that_the_kernel_has_made_read_only_and_not_one_that_somebody_did() {
        let table = |var: &str| {
            format!(
                "20 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw\n\
                 21 20 179:1 / /boot ro - vfat /dev/mmcblk0p1 ro\n\
                 42 20 179:3 / /var {var}\n\
                 50 20 179:3 /lib/containers /srv/containers rw - ext4 /dev/mmcblk0p3 ro\n\
                 51 20 179:3 /lib/certificates /srv/certificates ro - ext4 /dev/mmcblk0p3 ro\n"
            )
        };
        let by_kernel = table("rw - ext4 /dev/mmcblk0p3 ro,errors=remount-ro");
        assert_eq!(any_made_read_only(&by_kernel), Some("/var".to_owned()));
        assert_eq!(
            any_made_read_only(&table("ro - ext4 /dev/mmcblk0p3 ro")),
            None,
            "parts of it are mounted elsewhere"
        );
        let hostile = "1 2 3\n\n20 1 179:2 / / rw\n20 1 179:2 / / rw - ext4\n - - - - - -\n";
        assert_eq!(any_made_read_only(hostile), None);
    }
}
