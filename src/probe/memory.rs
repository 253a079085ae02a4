//! Turns `/proc/meminfo` and the `memory.stat` of the root cgroup into memory in all and in use.
//!
//! ```text
//! MemTotal:         998408 kB          anon 161894400
//! MemFree:          512300 kB          file 402653184
//! MemAvailable:     803112 kB          kernel 51380224
//! ...                                  ...
//! SwapTotal:        102396 kB          inactive_file 220200960
//! CmaTotal:          65536 kB
//! CmaFree:           40960 kB
//! ```

use super::attribute::{count, value_of, values_of};
use super::facts::Why;
use crate::config::limits;

pub(super) const MEMINFO: &str = "/proc/meminfo";

/// SRC-1.
pub(super) fn total_bytes(meminfo: &str) -> Result<u64, Why> {
    match bytes_of(meminfo, "MemTotal")? {
        0 => Err(Why::Implausible("no machine is without memory".to_owned())),
        limits::MEMORY_BYTES.. => Err(Why::Implausible("no machine has so much memory".to_owned())),
        bytes => Ok(bytes),
    }
}

/// SRC-2.
pub(super) fn swap_total_bytes(meminfo: &str) -> Result<u64, Why> {
    bytes_of(meminfo, "SwapTotal")
}

/// `MemAvailable`, or what comes close on kernels before 3.14. Half of the free CMA is taken off where CMA is more than
/// a quarter of memory: it counts as available, but the kernel can put nothing of its own there.
pub(super) fn available_bytes(meminfo: &str) -> Result<u64, Why> {
    let available = bytes_of(meminfo, "MemAvailable").or_else(|_| {
        let mut sum = 0_u64;
        for key in ["MemFree", "Buffers", "Cached"] {
            sum = sum.saturating_add(bytes_of(meminfo, key)?);
        }
        let reclaimable = bytes_of(meminfo, "SReclaimable").unwrap_or(0);
        Ok(sum.saturating_add(reclaimable).saturating_sub(bytes_of(meminfo, "Shmem").unwrap_or(0)))
    })?;
    let total = total_bytes(meminfo)?;
    if available > total {
        return Err(Why::Implausible("more memory is available than there is".to_owned()));
    }
    let cma = bytes_of(meminfo, "CmaTotal").unwrap_or(0);
    if cma <= total / 4 {
        return Ok(available);
    }
    Ok(available.saturating_sub(bytes_of(meminfo, "CmaFree").unwrap_or(0) / 2))
}

/// SRC-9 for version 2: `anon` + `file` - `inactive_file`, as the kubelet, which leaves the kernel's own memory out.
pub(super) fn working_set_v2(stat: &str) -> Result<u64, Why> {
    working_set(stat, ["anon", "file", "inactive_file"])
}

/// SRC-9 for version 1. The root's `memory.usage_in_bytes`, which the kubelet reads, is nothing but the sum of these two
/// (`mem_cgroup_usage`).
pub(super) fn working_set_v1(stat: &str) -> Result<u64, Why> {
    working_set(stat, ["total_cache", "total_rss", "total_inactive_file"])
}

/// The sum of the first two, less the third.
fn working_set(stat: &str, keys: [&str; 3]) -> Result<u64, Why> {
    let mut values = [None; 3];
    values_of(stat, &keys, b' ', &mut values);
    let mut bytes = [0; 3];
    for ((key, value), bytes) in keys.iter().zip(values).zip(&mut bytes) {
        *bytes = count(value.ok_or_else(|| Why::Malformed(format!("no {key} line")))?)?;
    }
    let [one, other, inactive] = bytes;
    Ok(one.saturating_add(other).saturating_sub(inactive))
}

fn bytes_of(meminfo: &str, key: &str) -> Result<u64, Why> {
    let value = value_of(meminfo, key, b':').ok_or_else(|| Why::Malformed(format!("no {key} line")))?;
    let kibibytes = value.trim().strip_suffix("kB").ok_or_else(|| Why::Malformed(format!("{key} is not in kB")))?;
    count(kibibytes)?.checked_mul(1024).ok_or_else(|| Why::Malformed(format!("{key} is too large")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:         998408 kB\nMemFree:          512300 kB\nMemAvailable:     803112 kB\n\
                           SwapTotal:        102396 kB\nCmaTotal:          65536 kB\nCmaFree:           40960 kB\n";

    #[test]
    fn a_kilobyte_of_meminfo_is_1024_bytes() {
        assert_eq!(total_bytes(MEMINFO), Ok(998_408 * 1024));
        assert_eq!(swap_total_bytes(MEMINFO), Ok(102_396 * 1024));
        assert_eq!(available_bytes(MEMINFO), Ok(803_112 * 1024));
    }

    #[test]
    fn free_cma_counts_half_where_it_is_most_of_memory() {
        let zero_2w = "MemTotal: 426068 kB\nMemAvailable: 233696 kB\nCmaTotal: 262144 kB\nCmaFree: 82800 kB\n";
        assert_eq!(available_bytes(zero_2w), Ok((233_696 - 41_400) * 1024));
    }

    #[test]
    fn a_kernel_without_mem_available_is_estimated() {
        let old =
            "MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 300 kB\nShmem: 50 kB\nSReclaimable: 30 kB\n";
        assert_eq!(available_bytes(old), Ok(400 * 1024));
        assert_eq!(available_bytes("MemTotal: 1000 kB\nMemFree: 1 kB\n").unwrap_err().word(), "malformed");
    }

    #[test]
    fn a_wrong_unit_or_a_cut_line_is_no_number() {
        assert_eq!(total_bytes("MemTotal: 99840").unwrap_err().to_string(), "malformed: MemTotal is not in kB");
        assert_eq!(total_bytes("MemTotal: 9223372036854775807 kB").unwrap_err().word(), "malformed");
        for absurd in ["0", "9007199254740991", "4398046511104"] {
            assert_eq!(total_bytes(&format!("MemTotal: {absurd} kB")).unwrap_err().word(), "implausible", "{absurd}");
        }
        let more = MEMINFO.replace("803112", "998409");
        assert_eq!(
            available_bytes(&more).unwrap_err().to_string(),
            "implausible: more memory is available than there is"
        );
        assert_eq!(available_bytes(&MEMINFO.replace("803112", "998408")), Ok(998_408 * 1024), "nothing is in use");
        assert_eq!(total_bytes("").unwrap_err().to_string(), "malformed: no MemTotal line");
    }

    #[test]
    fn inactive_pages_are_not_in_the_working_set() {
        let stat = "anon 1000\nfile 5000\nkernel 700\ninactive_anon 1\nactive_file 1\ninactive_file 2000\n";
        assert_eq!(working_set_v2(stat), Ok(4000));
        assert_eq!(working_set_v2("anon 1\nfile 2\ninactive_file 9\n"), Ok(0));
        assert_eq!(working_set_v2("anon 1\nfile 2\n").unwrap_err().word(), "malformed");
        let stat = "cache 1\nrss 1\ninactive_file 1\ntotal_cache 6000\ntotal_rss 3000\ntotal_inactive_file 2000\n";
        assert_eq!(working_set_v1(stat), Ok(7000));
        assert_eq!(working_set_v1("total_cache 6000\ntotal_rss 3000\n").unwrap_err().word(), "malformed");
    }
}
