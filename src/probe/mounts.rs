//! Turns `/proc/self/mountinfo` into the files that something other than the kernel answers for, and into the file system that the
//! kernel has made read-only.
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//! 417 402 0:49 /proc/meminfo /proc/meminfo rw,nosuid,nodev,relatime - fuse.lxcfs lxcfs rw,user_id=0,group_id=0
//! 42 27 7:0 / /var rw,relatime - ext4 /dev/mmcblk0p2 rw,errors=remount-ro,emergency_ro
//! ```

use super::attribute::shortened;
use super::facts::Why;

pub(super) const MOUNTINFO: &str = "/proc/self/mountinfo";
/// Kinds of file systems that nobody can write to.
const READ_ONLY_KINDS: [&str; 5] = ["squashfs", "erofs", "cramfs", "romfs", "iso9660"];

struct Mount<'a> {
    point: &'a str,
    /// Of the mount: what was asked for.
    options: &'a str,
    kind: &'a str,
    /// Of the file system: what is.
    system_options: &'a str,
}

/// Each mount point, with what stands behind it in its line.
fn points(mountinfo: &str) -> impl Iterator<Item = (&str, &str)> {
    mountinfo.split('\n').filter_map(|line| {
        // Few of them are looked at any further, and this is read every minute.
        let mut spaces = line.bytes().enumerate().filter(|(_, byte)| *byte == b' ').map(|(place, _)| place);
        let (begin, end) = (spaces.nth(3)? + 1, spaces.next()?);
        Some((line.get(begin..end)?, line.get(end + 1..)?))
    })
}

fn mount<'a>((point, rest): (&'a str, &'a str)) -> Option<Mount<'a>> {
    let mut fields = rest.split(' ');
    let options = fields.next()?;
    fields.find(|field| *field == "-")?;
    Some(Mount { point, options, kind: fields.next()?, system_options: fields.nth(1)? })
}

/// Where LXC puts numbers of the container in place of the machine's, each once.
pub(super) fn of_lxcfs(mountinfo: &str) -> Vec<&str> {
    let is_kernels = |point: &str| matches!(point.split('/').nth(1), Some("proc" | "sys"));
    let of_lxcfs =
        points(mountinfo).filter_map(mount).filter(|mount| mount.kind == "fuse.lxcfs" && is_kernels(mount.point));
    let mut found: Vec<&str> = of_lxcfs.map(|mount| mount.point).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Where the file system that holds `path` is mounted, if it is read-only though nobody asked for that.
///
/// Who mounts read-only, or remounts so, sets the option of the mount as well. A kernel that meets an error leaves that alone,
/// and says `ro` of the file system (ext4 before Linux 6.12 or so, FAT, f2fs, Btrfs, UBIFS) or `emergency_ro` (later ext4).
pub(super) fn made_read_only(mountinfo: &str, path: &str) -> Result<Option<String>, Why> {
    let path = [("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")]
        .iter()
        .fold(path.to_owned(), |path, (plain, escaped)| path.replace(plain, escaped));
    let holds = |(point, _): &(&str, &str)| {
        let rest = path.strip_prefix(point.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // Of several the deepest, and of those at one point the last, which covers the others.
    let Some(mount) = points(mountinfo).filter(holds).filter_map(mount).max_by_key(|mount| mount.point.len()) else {
        return Err(Why::Malformed(format!("no mount holds {:?}", shortened(&path))));
    };
    let has = |options: &str, wanted: &str| options.split(',').any(|option| option == wanted);
    let is_read_only = has(mount.system_options, "emergency_ro")
        || has(mount.system_options, "ro") && !has(mount.options, "ro") && !READ_ONLY_KINDS.contains(&mount.kind);
    Ok(is_read_only.then(|| mount.point.to_owned()))
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

    #[test]
    fn a_file_system_that_became_read_only_by_itself_is_told_from_one_that_was_mounted_so() {
        let table = |options: &str, kind: &str, system: &str| {
            format!(
                "20 1 179:2 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p2 rw\n\
                 42 20 179:3 / /var {options} shared:2 - {kind} /dev/mmcblk0p3 {system}\n\
                 43 42 0:30 / /var/library rw - tmpfs tmpfs rw\n"
            )
        };
        let at = |table: &str| made_read_only(table, "/var/lib/nodepulse");
        for (options, kind, system, expected) in [
            ("rw,relatime", "ext4", "rw,errors=remount-ro", None),
            ("rw,relatime", "ext4", "ro,errors=remount-ro", Some("/var")),
            ("rw,relatime", "ext4", "rw,errors=remount-ro,emergency_ro", Some("/var")),
            ("ro,relatime", "ext4", "ro", None),
            ("ro,relatime", "ext4", "rw", None),
            ("ro,relatime", "ext4", "ro,emergency_ro", Some("/var")),
            ("rw,relatime", "squashfs", "ro,errors=continue", None),
            ("rw,relatime", "f2fs", "ro,errors=remount-ro", Some("/var")),
            ("rw,relatime", "ext4", "rw,errors=remount-ro,data=ro", None),
        ] {
            assert_eq!(at(&table(options, kind, system)), Ok(expected.map(str::to_owned)), "{options} {kind} {system}");
        }
        let covered = table("rw", "ext4", "ro") + "44 20 179:4 / /var rw - ext4 /dev/sda1 rw\n";
        assert_eq!(at(&covered), Ok(None), "the last mount at a point covers the others");
        let root = "20 1 179:2 / / rw,noatime - ext4 /dev/mmcblk0p2 ro\n";
        assert_eq!(made_read_only(root, "/"), Ok(Some("/".to_owned())));
        assert_eq!(made_read_only(root, "/var/lib"), Ok(Some("/".to_owned())));
        let blank = "45 1 8:1 / /media/my\\040disk rw - vfat /dev/sda1 ro\n";
        assert_eq!(made_read_only(blank, "/media/my disk/state"), Ok(Some("/media/my\\040disk".to_owned())));
        assert_eq!(made_read_only(blank, "/var").unwrap_err().word(), "malformed");
    }
}
