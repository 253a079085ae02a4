//! Turns cpuinfo into what a processor can do: `cpu-cpuid.NEON`, with the names of node-feature-discovery.

use super::super::cpu::{self, CPUINFO};
use super::super::root::Root;
use super::Feature;

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

/// `flags` (x86), `Features` (ARM) and `isa` (RISC-V), of the first processor: what all have on a kernel that starts them all.
pub(super) fn flags(cpuinfo: &str, found: &mut Vec<Feature>) {
    let mut add = |name: String| found.push(Feature::nfd(CPUINFO, &["cpu-cpuid.", &name].concat(), "true"));
    if let Some(flags) = cpu::field(cpuinfo, "flags") {
        let has = |wanted: &str| flags.split(' ').any(|flag| flag == wanted);
        let has_all = |(_, wanted): &(&str, &str)| wanted.split(' ').all(has);
        X86_LEVELS.into_iter().take_while(has_all).for_each(|(level, _)| add(level.to_owned()));
        for known in X86.split(' ') {
            let (flag, name) = known.split_once(':').unwrap_or((known, ""));
            if has(flag) {
                add(if name.is_empty() { capitals(flag) } else { name.to_owned() });
            }
        }
    } else if let Some(features) = cpu::field(cpuinfo, "Features") {
        features.split_whitespace().for_each(|feature| add(of_arm(feature)));
    } else if let Some(isa) = cpu::field(cpuinfo, "isa") {
        let extensions = of_riscv(isa).map(|name| ["cpu-isa.", &name].concat());
        found.extend(extensions.map(|name| Feature::ours(CPUINFO, &name, "true")));
    }
}

fn capitals(flag: &str) -> String {
    flag.replace('_', "").to_ascii_uppercase()
}

fn of_arm(feature: &str) -> String {
    match (feature, feature.strip_prefix("vfpv")) {
        ("fastmult", _) => "FASTMUL".to_owned(),
        (_, Some(version)) => format!("VFPv{}", version.to_ascii_uppercase()),
        _ => capitals(feature),
    }
}

/// `rv64imafdc_zicsr_zba` has the extensions I, M, A, F, D, C, ZICSR and ZBA.
fn of_riscv(isa: &str) -> impl Iterator<Item = String> {
    let mut parts = isa.split('_');
    let letters = parts.next().unwrap_or_default().get("rv64".len()..).unwrap_or_default();
    let single = letters.chars().map(|letter| letter.to_ascii_uppercase().to_string());
    single.chain(parts.filter(|name| !name.is_empty()).map(str::to_ascii_uppercase))
}

/// Vendor, family and model of the first processor, as node-feature-discovery numbers them: of ARM from the MIDR, which cpuinfo
/// has in parts.
pub(super) fn model(cpuinfo: &str, found: &mut Vec<Feature>) {
    let mut add = |name: &str, value: &str| found.push(Feature::nfd(CPUINFO, &["cpu-model.", name].concat(), value));
    let number = |key| {
        let text = cpu::field(cpuinfo, key)?;
        text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u32::from_str_radix(digits, 16).ok())
    };
    if let Some(vendor) = cpu::field(cpuinfo, "vendor_id") {
        let known = X86_VENDORS.iter().find(|(name, _)| *name == vendor);
        add("vendor_id", known.map_or(vendor, |(_, name)| name));
        let numbers = [("family", "cpu family"), ("id", "model")];
        numbers
            .iter()
            .filter_map(|(name, key)| Some((name, cpu::field(cpuinfo, key)?)))
            .for_each(|(name, value)| add(name, value));
    } else if let Some(implementer) = number("CPU implementer") {
        let known = ARM_VENDORS.iter().find(|(known, _)| *known == implementer);
        known.iter().for_each(|(_, name)| add("vendor_id", name));
        // Architecture 15: what it has is told one by one, as all since ARMv7 do.
        if let (Some(variant), Some(part), Some(revision)) =
            (number("CPU variant"), number("CPU part"), number("CPU revision"))
        {
            add("family", &((variant & 0xf) << 4 | 0xf).to_string());
            add("id", &((part & 0xfff) << 4 | revision & 0xf).to_string());
        }
    }
}

/// Whether two processors share a core. Those that are off do not say.
pub(super) fn threads(root: &Root, found: &mut Vec<Feature>) {
    let names = root.list(CPUS).unwrap_or_default();
    let cpus = names.iter().filter(|name| name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok()));
    let siblings = |name: &String| root.read_text(&format!("{CPUS}/{name}/topology/thread_siblings_list")).ok();
    let are_shared: Vec<bool> = cpus.filter_map(siblings).map(|list| list.contains([',', '-'])).collect();
    if !are_shared.is_empty() {
        let is_so = if are_shared.contains(&true) { "true" } else { "false" };
        found.push(Feature::nfd(CPUS, "cpu-hardware_multithreading", is_so));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(cpuinfo: &str) -> String {
        let mut found = Vec::new();
        model(cpuinfo, &mut found);
        flags(cpuinfo, &mut found);
        let texts = found.iter().map(|one| format!("{}={}", one.key.split_once('/').unwrap().1, one.value));
        texts.collect::<Vec<_>>().join(" ").replace("cpu-cpuid.", "").replace("cpu-", "").replace("=true", "")
    }

    #[test]
    fn an_arm_processor_is_called_as_node_feature_discovery_does() {
        let cortex_a72 = "Features\t: fp asimd evtstrm crc32 cpuid\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n\
             CPU part\t: 0xd08\nCPU revision\t: 3\n";
        assert_eq!(
            labels(cortex_a72),
            "model.vendor_id=ARM model.family=15 model.id=53379 FP ASIMD EVTSTRM CRC32 CPUID"
        );
        let cortex_a8 = "Features\t: half thumb fastmult vfp edsp thumbee neon vfpv3 tls vfpd32 vfpv3d16 \n";
        assert_eq!(labels(cortex_a8), "HALF THUMB FASTMUL VFP EDSP THUMBEE NEON VFPv3 TLS VFPD32 VFPv3D16");
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
