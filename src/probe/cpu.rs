//! Turns what sysfs and `/proc/cpuinfo` tell of CPUs into their number, and cpuinfo into its fields.
//!
//! ```text
//! /sys/devices/system/cpu/online        0-3,6
//! /sys/devices/system/node/node0/cpu2   -> ../../cpu/cpu2
//!
//! processor       : 0
//! BogoMIPS        : 108.00
//! Features        : fp asimd evtstrm crc32 cpuid
//! CPU part        : 0xd08
//!
//! Revision        : c03111
//! Serial          : 100000005a3c91e7
//! Model           : Raspberry Pi 4 Model B Rev 1.1
//! ```

use super::attribute::shortened;
use super::facts::{Absent, Fact, Why, first_known, of_table};
use super::root::Root;

pub(super) const CPUINFO: &str = "/proc/cpuinfo";
const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";
/// No kernel is built for more.
const MOST_CPUS: u32 = 65_536;

/// As many CPUs as a kubelet counts at its start (SRC-3): of NUMA nodes those that are online and have their place in the
/// topology, without NUMA nodes every `cpuN`, also one that is parked. What sysfs does not tell, the list of those online
/// does, else cpuinfo.
pub(super) fn count(root: &Root, cpuinfo: &Fact<String>) -> Fact<u32> {
    let online = root.read_as("/sys/devices/system/cpu/online", |text| ranges(&text));
    let counted =
        first_known(counted(of_nodes(root, online.as_deref().ok())), || counted(directories(root, CPUS).len()));
    let listed = || online.map(|online| online.iter().map(|(first, last)| last - first + 1).sum());
    first_known(counted, listed).or_else(|_| of_table(CPUINFO, cpuinfo, count_of_cpuinfo))
}

fn counted(count: usize) -> Fact<u32> {
    u32::try_from(count).ok().filter(|count| *count > 0).ok_or_else(|| Absent::new(CPUS, Why::NoSuchFile))
}

fn of_nodes(root: &Root, online: Option<&[(u32, u32)]>) -> usize {
    let nodes = root.list(NODES).unwrap_or_default();
    let nodes = nodes.iter().filter(|name| number_of(name, "node").is_some()).map(|name| format!("{NODES}/{name}"));
    let is_online = |number: u32, path: &str| match online {
        Some(online) => online.iter().any(|(first, last)| (*first..=*last).contains(&number)),
        None => root.read_text(&format!("{path}/online")).as_deref() != Ok("0"),
    };
    let is_counted = |(number, path): &&(u32, String)| {
        let has = |id: &str| root.exists(&format!("{path}/topology/{id}"));
        is_online(*number, path) && has("core_id") && has("physical_package_id")
    };
    nodes.map(|node| directories(root, &node).iter().filter(is_counted).count()).sum()
}

/// The directories `cpuN` in `folder`: N, and the path.
fn directories(root: &Root, folder: &str) -> Vec<(u32, String)> {
    let names = root.list(folder).unwrap_or_default();
    let cpus = names.iter().filter_map(|name| Some((number_of(name, "cpu")?, format!("{folder}/{name}"))));
    cpus.filter(|(_, path)| root.is_directory(path)).collect()
}

/// The number behind `kind` in a name; `cpufreq` and `cpuidle` have none.
fn number_of(name: &str, kind: &str) -> Option<u32> {
    name.strip_prefix(kind)?.parse().ok()
}

/// A list like `0-3` or `0,2-5`: ascending, without overlap; the first and the last of each range.
fn ranges(list: &str) -> Result<Vec<(u32, u32)>, Why> {
    let malformed = || Why::Malformed(format!("{:?} is no list of CPUs", shortened(list)));
    let mut found = Vec::new();
    let mut next = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: u32 = first.trim().parse().map_err(|_| malformed())?;
        let last: u32 = last.trim().parse().map_err(|_| malformed())?;
        if first < next || last < first || last >= MOST_CPUS {
            return Err(malformed());
        }
        found.push((first, last));
        next = last + 1;
    }
    Ok(found)
}

/// Lines `processor` with a number, each another; RISC-V before Linux 5 has `hart` instead. Old ARM kernels add a headline
/// `Processor` with the name of the core, and those built for one CPU have nothing else; m68k has `CPU`. That is the only
/// one, if the kernel has measured it: a file that describes something else has no CPU, not one.
fn count_of_cpuinfo(cpuinfo: &str) -> Result<u32, Why> {
    for key in ["processor", "hart"] {
        let lines = fields(cpuinfo).filter(|(found, _)| *found == key);
        let mut numbers: Vec<u32> = lines.filter_map(|(_, number)| number.parse().ok()).collect();
        let lines = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        match u32::try_from(lines) {
            Ok(0) | Err(_) => {}
            Ok(count) if numbers.len() == lines && numbers.iter().all(|number| *number < MOST_CPUS) => {
                return Ok(count);
            }
            Ok(_) => return Err(Why::Malformed(format!("its {key} lines have no numbers of their own"))),
        }
    }
    let names_one = field(cpuinfo, "Processor").or_else(|| field(cpuinfo, "CPU")).is_some();
    let is_measured = fields(cpuinfo).any(|(key, _)| key.eq_ignore_ascii_case("bogomips"));
    if names_one && is_measured { Ok(1) } else { Err(Why::Malformed("it describes no processor".to_owned())) }
}

/// The first value of a key that says anything.
pub(super) fn field<'a>(cpuinfo: &'a str, wanted: &str) -> Option<&'a str> {
    fields(cpuinfo).find(|(key, value)| *key == wanted && !value.is_empty()).map(|(_, value)| value)
}

fn fields(cpuinfo: &str) -> impl Iterator<Item = (&str, &str)> {
    cpuinfo.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_its_ranges() {
        assert_eq!(ranges("0-3\n"), Ok(vec![(0, 3)]));
        assert_eq!(ranges("0,2-5"), Ok(vec![(0, 0), (2, 5)]));
        assert_eq!(ranges("0"), Ok(vec![(0, 0)]));
    }

    #[test]
    fn a_list_that_no_kernel_prints_is_no_count() {
        for list in ["", "\n", "3-0", "0-3,2", "0-4294967295", "a-b", "0-", "0,,1", "-1", "Error: no data"] {
            assert_eq!(ranges(list).unwrap_err().word(), "malformed", "{list:?}");
        }
    }

    #[test]
    fn the_headline_of_old_arm_kernels_is_no_processor() {
        let cpuinfo =
            "Processor\t: ARMv7 Processor rev 4 (v7l)\nprocessor\t: 0\nBogoMIPS\t: 1694.10\n\nprocessor\t: 1\n";
        assert_eq!(count_of_cpuinfo(cpuinfo), Ok(2));
        let lone = "Processor\t: ARMv6-compatible processor rev 7 (v6l)\nBogoMIPS\t: 697.95\n";
        assert_eq!(count_of_cpuinfo(lone), Ok(1));
        assert_eq!(count_of_cpuinfo("CPU:\t\t68040\nMMU:\t\t68040\nClocking:\t25.0MHz\nBogoMips:\t16.53\n"), Ok(1));
    }

    #[test]
    fn harts_of_an_old_risc_v_kernel_are_its_processors() {
        let hart =
            |number: u32| format!("hart\t: {number}\nisa\t: rv64imafdc\nmmu\t: sv39\nuarch\t: sifive,u54-mc\n\n");
        assert_eq!(count_of_cpuinfo(&[4, 1, 2, 3].map(hart).concat()), Ok(4));
        let both = "processor\t: 0\nhart\t\t: 3\n\nprocessor\t: 1\nhart\t\t: 3\n";
        assert_eq!(count_of_cpuinfo(both), Ok(2), "processors are what is counted where there are any");
    }

    #[test]
    fn what_describes_no_cpu_has_none_and_never_one() {
        let noise: String =
            (0..200_000_u32).map(|n| char::from(b' ' + (n.wrapping_mul(2_654_435_761) >> 25) as u8)).collect();
        for text in ["\n\n", "Error: no data\n", "processor\t: ARM\n", "CPU: 68040\n", "BogoMIPS: 4\n", &noise] {
            assert_eq!(count_of_cpuinfo(text).unwrap_err().to_string(), "malformed: it describes no processor");
        }
        for text in ["processor : 7\nprocessor : 7\n", "processor : 4294967295\n", "hart : 1\nhart : 1\n"] {
            assert_eq!(count_of_cpuinfo(text).unwrap_err().word(), "malformed", "{text}");
        }
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let cpuinfo = "model\t\t: 142\nmodel name\t: Some CPU\nModel\t\t: \nModel\t\t: A board\n";
        assert_eq!(field(cpuinfo, "Model"), Some("A board"));
        assert_eq!(field(cpuinfo, "Serial"), None);
    }
}
