//! Turns `/proc/self/mountinfo` into the files that something other than the kernel answers for.
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//! 417 402 0:49 /proc/meminfo /proc/meminfo rw,nosuid,nodev,relatime - fuse.lxcfs lxcfs rw,user_id=0,group_id=0
//! ```

/// Where LXC puts numbers of the container in place of the machine's, each once.
pub(super) fn of_lxcfs(mountinfo: &str) -> Vec<&str> {
    let mut found: Vec<&str> = mountinfo.lines().filter_map(lxcfs_mount).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn lxcfs_mount(line: &str) -> Option<&str> {
    let (mount, kind) = line.split_once(" - ")?;
    let is_lxcfs = kind.split_ascii_whitespace().next() == Some("fuse.lxcfs");
    let is_kernels = |point: &str| matches!(point.split('/').nth(1), Some("proc" | "sys"));
    mount.split_ascii_whitespace().nth(4).filter(|point| is_lxcfs && is_kernels(point))
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
}
