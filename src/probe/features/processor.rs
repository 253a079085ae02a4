//! Turns cpuinfo into what a processor can do: `cpu-cpuid.NEON`, with the names of node-feature-discovery.

use super::super::attribute;
use super::super::cpu::{self, CPUINFO};
use super::{Finder, NFD, OURS};

const CPUS: &str = "/sys/devices/system/cpu";

/// Of x86: what the kernel calls it, and node-feature-discovery where that is not the same in capitals, without `_`. What every
/// x86-64 has, or only a kernel uses, is not told.
const X86: &str = "adx aes:AESNI amx_bf16 amx_int8 amx_tile avx avx2 avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi \
     avx512vl avx512_bf16 avx512_bitalg avx512_fp16 avx512_vbmi2 avx512_vnni avx512_vp2intersect avx512_vpopcntdq avx_vnni fma:FMA3 \
     gfni hypervisor sha_ni:SHA sse4a svm vaes vmx vpclmulqdq";
/// What programs for the levels of x86-64 need, each with what those before it do.
const X86_LEVELS: [(&str, &str); 3] = [
    ("X86_64_V2", "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"),
    ("X86_64_V3", "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"),
    ("X86_64_V4", "avx512f avx512bw avx512cd avx512dq avx512vl"),
];
/// Of ARM, what each from ARMv6 on has, in 32 bits or in 64, or no program asks for any more: not told either.
const EVERY_ARM: &str = "asimd cpuid edsp evtstrm fastmult fp half java swp thumb tls";
/// Who makes x86 processors, in their own words and in those of node-feature-discovery.
const X86_VENDORS: [(&str, &str); 4] =
    [("GenuineIntel", "Intel"), ("AuthenticAMD", "AMD"), ("HygonGenuine", "Hygon"), ("CentaurHauls", "VIA")];
/// The same of ARM, by the number of the implementer (MIDR_EL1).
const ARM_VENDORS: [(u32, &str); 13] = [
    (0x41, "ARM"),
    (0x42, "Broadcom"),
    (0x43, "Cavium"),
    (0x44, "DEC"),
    (0x46, "Fujitsu"),
    (0x49, "Infineon"),
    (0x4d, "Motorola"),
    (0x4e, "NVIDIA"),
    (0x50, "AMCC"),
    (0x51, "Qualcomm"),
    (0x56, "Marvell"),
    (0x69, "Intel"),
    (0xc0, "Ampere"),
];

impl Finder<'_> {
    /// `flags` (x86), `Features` (ARM) and `isa` (RISC-V), of the first processor: what all have on a kernel that starts them all.
    pub(super) fn processor_flags(&mut self, cpuinfo: &str) {
        const CPUID: &str = "cpu-cpuid.";
        if let Some(flags) = cpu::field(cpuinfo, "flags") {
            let has = |wanted: &str| flags.split(' ').any(|flag| flag == wanted);
            for (level, wanted) in X86_LEVELS {
                if !wanted.split(' ').all(has) {
                    break;
                }
                self.is_so(CPUINFO, NFD, CPUID, level);
            }
            for known in X86.split(' ') {
                let (flag, name) = known.split_once(':').unwrap_or((known, ""));
                if has(flag) {
                    let name = if name.is_empty() { capitals(flag) } else { name.to_owned() };
                    self.is_so(CPUINFO, NFD, CPUID, &name);
                }
            }
        }
        for feature in cpu::field(cpuinfo, "Features").unwrap_or_default().split(' ') {
            if !feature.is_empty() && !EVERY_ARM.split(' ').any(|name| name == feature) {
                self.is_so(CPUINFO, NFD, CPUID, &of_arm(feature));
            }
        }
        // `rv64imafdc_zicsr_zba` has the extensions I, M, A, F, D, C, ZICSR and ZBA.
        let isa = cpu::field(cpuinfo, "isa").and_then(|isa| isa.get("rv64".len()..)).unwrap_or_default();
        let (letters, names) = isa.split_once('_').unwrap_or((isa, ""));
        let letters =
            letters.char_indices().filter_map(|(place, letter)| letters.get(place..place + letter.len_utf8()));
        for extension in letters.chain(names.split('_').filter(|name| !name.is_empty())) {
            self.is_so(CPUINFO, OURS, "cpu-isa.", &capitals(extension));
        }
    }

    /// Vendor, family and model of the first processor, as node-feature-discovery numbers them: of ARM from the MIDR, which
    /// cpuinfo has in parts.
    pub(super) fn processor_model(&mut self, cpuinfo: &str) {
        let mut add = |name: &str, value: &str| self.add(CPUINFO, NFD, ("cpu-model.", name), value);
        let number = |key| attribute::hexadecimal(cpu::field(cpuinfo, key)?);
        if let Some(vendor) = cpu::field(cpuinfo, "vendor_id") {
            let known = X86_VENDORS.iter().find(|(name, _)| *name == vendor);
            add("vendor_id", known.map_or(vendor, |(_, name)| name));
            for (name, key) in [("family", "cpu family"), ("id", "model")] {
                cpu::field(cpuinfo, key).into_iter().for_each(|value| add(name, value));
            }
        } else if let Some(implementer) = number("CPU implementer") {
            let known = ARM_VENDORS.iter().find(|(known, _)| *known == implementer);
            known.iter().for_each(|(_, name)| add("vendor_id", name));
            // The architecture is 15: what it has is told one by one, as all since ARMv7 do.
            let revision = cpu::field(cpuinfo, "CPU revision").and_then(|text| text.parse::<u32>().ok());
            if let (Some(variant), Some(part), Some(revision)) = (number("CPU variant"), number("CPU part"), revision) {
                add("family", &((variant & 0xf) << 4 | 0xf).to_string());
                add("id", &((part & 0xfff) << 4 | revision & 0xf).to_string());
            }
        }
    }

    /// Whether two processors share a core. Those that are off do not say.
    pub(super) fn processor_threads(&mut self) {
        let (mut is_known, mut are_shared) = (false, false);
        for name in self.names(CPUS) {
            let siblings = self.text(CPUS, &name, "/topology/thread_siblings_list");
            is_known |= !siblings.is_empty();
            are_shared |= siblings.contains([',', '-']);
        }
        if is_known {
            self.add(CPUS, NFD, ("cpu-hardware_multithreading", ""), if are_shared { "true" } else { "false" });
        }
    }
}

fn capitals(flag: &str) -> String {
    flag.replace('_', "").to_ascii_uppercase()
}

fn of_arm(feature: &str) -> String {
    match feature.strip_prefix("vfpv") {
        Some(version) => format!("VFPv{}", version.to_ascii_uppercase()),
        None => capitals(feature),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Root;

    fn labels(cpuinfo: &str) -> String {
        let root = Root::new("/nonexistent");
        let mut finder = Finder { root: &root, found: Vec::new() };
        finder.processor_model(cpuinfo);
        finder.processor_flags(cpuinfo);
        let texts = finder.found.iter().map(|one| format!("{}={}", one.key.split_once('/').unwrap().1, one.value));
        texts.collect::<Vec<_>>().join(" ").replace("cpu-cpuid.", "").replace("cpu-", "").replace("=true", "")
    }

    #[test]
    fn an_arm_processor_is_called_as_node_feature_discovery_does() {
        let cortex_a72 = "Features\t: fp asimd evtstrm crc32 cpuid\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n\
             CPU part\t: 0xd08\nCPU revision\t: 3\n";
        assert_eq!(labels(cortex_a72), "model.vendor_id=ARM model.family=15 model.id=53379 CRC32");
        let cortex_a8 = "Features\t: half thumb fastmult vfp edsp thumbee neon vfpv3 tls vfpd32 vfpv3d16 \n";
        assert_eq!(labels(cortex_a8), "VFP THUMBEE NEON VFPv3 VFPD32 VFPv3D16");
    }

    #[test]
    fn a_risc_v_processor_has_its_extensions_one_by_one() {
        let u74 = "isa\t\t: rv64imafdc_zicntr_zba_zbb\nmmu\t\t: sv39\n";
        assert_eq!(labels(u74), "isa.I isa.M isa.A isa.F isa.D isa.C isa.ZICNTR isa.ZBA isa.ZBB");
        assert_eq!(labels("isa\t: rv"), "");
    }

    #[test]
    fn an_x86_processor_has_its_level_and_what_programs_choose_by() {
        let v2 = "fpu cx8 fxsr sse2 cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3";
        let of = |flags: &str| {
            labels(&format!("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 76\nflags\t\t: {flags}\n"))
        };
        assert_eq!(of(&format!("{v2} aes")), "model.vendor_id=Intel model.family=6 model.id=76 X86_64_V2 AESNI");
        let v3 = format!("{v2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave");
        assert!(of(&format!("{v3} avx512_vnni sha_ni")).ends_with("X86_64_V2 X86_64_V3 AVX AVX2 AVX512VNNI FMA3 SHA"));
        assert!(!of("avx512f avx512bw avx512cd avx512dq avx512vl").contains("X86_64"), "each needs those before it");
    }
}
