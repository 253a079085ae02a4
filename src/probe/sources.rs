//! Turns a line of what `probe` prints into the file that says so.

use super::root::Root;

/// A text of fewer bytes is in many files.
const TELLING: usize = 6;

/// Where one line comes from.
struct Row {
    /// What the line begins with, and where that is not enough its next word.
    name: &'static str,
    /// Files, the best first, where `*` stands for every name of a folder; or what is asked in their place.
    places: &'static [&'static str],
}

const fn row(name: &'static str, places: &'static [&'static str]) -> Row {
    Row { name, places }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("board", &["/proc/device-tree/model", "/sys/firmware/devicetree/base/model", "/sys/class/dmi/id/product_name", "/sys/class/dmi/id/board_name", "/sys/class/dmi/id/modalias", "/sys/devices/soc0/machine", "/proc/cpuinfo"]),
    row("compatible", &["/proc/device-tree/compatible", "/sys/firmware/devicetree/base/compatible"]),
    row("serial", &["/proc/device-tree/serial-number", "/sys/firmware/devicetree/base/serial-number", "/proc/cpuinfo", "/sys/devices/soc0/serial_number", "/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/board_serial"]),
    row("mac", &["/sys/class/net/*/address"]),
    row("hostname", &["/proc/sys/kernel/hostname"]),
    row("cpus", &["/sys/devices/system/node", "/sys/devices/system/cpu", "/proc/cpuinfo"]),
    row("memory", &["/proc/meminfo"]),
    row("available", &["/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory/memory.stat", "/proc/meminfo"]),
    row("swap", &["/proc/meminfo"]),
    row("last reset", &["/sys/class/watchdog"]),
    row("hugepages", &["/sys/kernel/mm/hugepages"]),
    row("disk", &["statfs of stateDirectory"]),
    row("read-only", &["/proc/1/mountinfo", "/proc/self/mountinfo"]),
    row("pids", &["/proc/loadavg"]),
    row("runtime", &["the socket of containerRuntimeEndpoint"]),
    row("image", &["the socket of containerRuntimeEndpoint"]),
    row("supply", &["/sys/class/hwmon/*/in0_lcrit_alarm"]),
    row("temperature", &["/sys/class/thermal", "/sys/class/hwmon"]),
    row("wear", &["/sys/block", "/sys/class/ubi", "health_descriptor"]),
    row("errors", &["/sys/fs/ext4"]),
    row("kernel log", &["/dev/kmsg", "/proc/vmstat"]),
    row("usb", &["/sys/bus/usb/devices"]),
    row("pci", &["/sys/bus/pci/devices"]),
    row("uplink", &["/proc/net/route", "/sys/class/net"]),
    row("clock", &["adjtimex"]),
    row("power", &["/sys/class/power_supply"]),
    row("interface", &["/sys/class/net", "/proc/net/fib_trie", "/proc/net/if_inet6", "/proc/1/net/fib_trie"]),
    row("route", &["/proc/net/route"]),
    row("route IPv6", &["/proc/net/ipv6_route"]),
    row("labels", &["the files of docs/labels.md"]),
    row("os", &["/etc/os-release", "/usr/lib/os-release"]),
    row("kernel", &["/proc/sys/kernel/osrelease"]),
    row("architecture", &["/bin/sh", "/sbin/init", "/bin/busybox", "/usr/bin/env"]),
    row("machine-id", &["/etc/machine-id", "/var/lib/dbus/machine-id"]),
    row("system-uuid", &["/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id", "/proc/device-tree/vm,uuid", "/etc/machine-id"]),
    row("boot-id", &["/proc/sys/kernel/random/boot_id"]),
];

/// Where a line with this value was read: the first place that is there and has the value or a part of it, else the first that
/// is there. Empty for lines of the settings.
pub(super) fn of_line(root: &Root, name: &str, value: &str) -> String {
    let longer = [name, " ", value.split(' ').next().unwrap_or_default()].concat();
    let of = |name: &str| ROWS.iter().find(|row| row.name == name);
    let Some(row) = of(&longer).or(of(name)) else { return String::new() };
    let there: Vec<String> = row.places.iter().flat_map(|place| all(root, place)).collect();
    let value = value.to_ascii_lowercase();
    let says_it = |path: &&String| {
        let text = root.read_text(path).unwrap_or_default().to_ascii_lowercase();
        let is_telling = text.len().min(value.len()) >= TELLING;
        is_telling && (text.contains(&value) || value.contains(&text))
    };
    there.iter().find(says_it).or(there.first()).cloned().unwrap_or_default()
}

/// The paths of this place that are there; what is no path is taken as it is.
fn all(root: &Root, place: &str) -> Vec<String> {
    let Some((folder, rest)) = place.split_once('*') else {
        let is_there = !place.starts_with('/') || root.exists(place);
        return is_there.then(|| place.to_owned()).into_iter().collect();
    };
    let names = root.list(folder.trim_end_matches('/')).unwrap_or_default();
    names.iter().map(|name| [folder, name, rest].concat()).filter(|path| root.exists(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::probe::facts;
    use crate::probe::report::to_text;

    const BOARDS: [&str; 8] = [
        "beaglebone-black",
        "container-masked",
        "imx8-gateway",
        "router-94mb",
        "rpi-zero-w",
        "rpi4",
        "rpi5",
        "visionfive2",
    ];

    fn root(board: &str) -> Root {
        Root::new([env!("CARGO_MANIFEST_DIR"), "/tests/boards/", board].concat())
    }

    /// The lines of all boards, as name and place.
    fn lines(board: &str) -> Vec<(String, String)> {
        let root = root(board);
        let page = to_text(&facts(&root, &Settings::default(), None), Some(&root));
        let known = page.split("\nabsent\n").next().unwrap().to_owned();
        // Headings, what names its file anyway, and what no file says.
        let others = ["health", "devices", "refused ", "  no label "];
        let with_place = known.lines().filter(|line| !others.iter().any(|other| line.starts_with(other)));
        with_place
            .filter(|line| !line.ends_with(" Unknown"))
            .map(|line| {
                let (said, place) = line.split_once("  [").unwrap_or_else(|| panic!("{board}: {line:?} has no place"));
                let name = said.trim_start().split("  ").next().unwrap().to_owned();
                (name, place.trim_end_matches(']').to_owned())
            })
            .collect()
    }

    #[test]
    fn every_line_has_a_place_that_is_on_the_board() {
        for board in BOARDS {
            for (name, place) in lines(board) {
                assert!(!place.starts_with('/') || root(board).exists(&place), "{board}: {name} of {place}");
            }
        }
    }

    #[test]
    fn the_place_is_the_one_that_says_it() {
        let of = |board: &str, wanted: &str| {
            let found = lines(board).into_iter().find(|(name, _)| name == wanted);
            found.unwrap_or_else(|| panic!("{board} has no line of {wanted}")).1
        };
        assert_eq!(of("rpi4", "board"), "/proc/device-tree/model");
        assert_eq!(of("rpi4", "mac"), "/sys/class/net/eth0/address");
        assert_eq!(of("rpi4", "os"), "/etc/os-release");
    }
}
