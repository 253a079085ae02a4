//! Turns `/sys/devices/system/cpu/online` and `/proc/cpuinfo` into the number of CPUs, and cpuinfo into its fields.
//!
//! ```text
//! processor       : 0
//! BogoMIPS        : 108.00
//! Features        : fp asimd evtstrm crc32 cpuid
//! CPU part        : 0xd08
//!
//! Revision        : c03111
//! Serial          : 100000005a3c91e7
//! Model           : Raspberry Pi 4 Model B Rev 1.1
//! ```

use super::Why;
use super::attribute::shortened;

/// No kernel is built for more.
const MOST_CPUS: u32 = 65_536;

/// CPUs in a list like `0-3` or `0,2-5`: ascending, without overlap.
pub(super) fn count_of_list(list: &str) -> Result<u32, Why> {
    let malformed = || Why::Malformed(format!("{:?} is no list of CPUs", shortened(list)));
    let mut count = 0;
    let mut next = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: u32 = first.trim().parse().map_err(|_| malformed())?;
        let last: u32 = last.trim().parse().map_err(|_| malformed())?;
        if first < next || last < first || last >= MOST_CPUS {
            return Err(malformed());
        }
        count += last - first + 1;
        next = last + 1;
    }
    Ok(count)
}

/// `processor` lines with a number. Old ARM kernels add a headline `Processor` with the name of the core, and those
/// built for one CPU have nothing else, as other processors have no such line at all: a cpuinfo that describes a CPU
/// without numbering it describes the only one.
pub(super) fn count_of_cpuinfo(cpuinfo: &str) -> Result<u32, Why> {
    let processors = fields(cpuinfo).filter(|(key, value)| *key == "processor" && value.parse::<u32>().is_ok());
    match u32::try_from(processors.count()) {
        Ok(0) if fields(cpuinfo).next().is_some() => Ok(1),
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Why::Malformed("it describes no processor".to_owned())),
    }
}

/// The number in `cpuN`; `cpufreq` and `cpuidle` have none.
pub(super) fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix("cpu")?.parse().ok()
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
    fn a_list_counts_its_ranges() {
        assert_eq!(count_of_list("0-3\n"), Ok(4));
        assert_eq!(count_of_list("0,2-5"), Ok(5));
        assert_eq!(count_of_list("0"), Ok(1));
    }

    #[test]
    fn a_list_that_no_kernel_prints_is_no_count() {
        for list in ["", "\n", "3-0", "0-3,2", "0-4294967295", "a-b", "0-", "0,,1", "-1"] {
            assert_eq!(count_of_list(list).unwrap_err().word(), "malformed", "{list:?}");
        }
    }

    #[test]
    fn the_headline_of_old_arm_kernels_is_no_processor() {
        let cpuinfo =
            "Processor\t: ARMv7 Processor rev 4 (v7l)\nprocessor\t: 0\nBogoMIPS\t: 1694.10\n\nprocessor\t: 1\n";
        assert_eq!(count_of_cpuinfo(cpuinfo), Ok(2));
        assert_eq!(count_of_cpuinfo("Processor\t: ARMv6-compatible processor rev 7 (v6l)\n"), Ok(1));
    }

    #[test]
    fn a_cpuinfo_that_numbers_nothing_describes_the_only_cpu() {
        assert_eq!(count_of_cpuinfo("CPU:\t\t68040\nMMU:\t\t68040\n"), Ok(1));
        assert_eq!(count_of_cpuinfo("processor\t: ARM\n"), Ok(1));
        assert_eq!(count_of_cpuinfo("\n\n").unwrap_err().to_string(), "malformed: it describes no processor");
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let cpuinfo = "model\t\t: 142\nmodel name\t: Some CPU\nModel\t\t: \nModel\t\t: A board\n";
        assert_eq!(field(cpuinfo, "Model"), Some("A board"));
        assert_eq!(field(cpuinfo, "Serial"), None);
    }
}
