//! Turns trees captured from real machines, where this one has them, into facts, and compares those that are known.
//!
//! They are too large and too many to be kept here. `NODEPULSE_BOARDS` names their folder, else `../shared/boards`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nodepulse::config::Settings;
use nodepulse::probe::facts::{Hugepages, Pids, Why};
use nodepulse::probe::{Facts, Root, facts, report};

use super::{Scratch, files, folders};

/// CPUs and memory in KiB of each tree that has them; `None`: no file says it, which is unknown and not zero.
const KNOWN: [(&str, Option<u32>, Option<u64>); 23] = [
    ("arm64-big-little-8cpu", Some(8), None),
    ("beaglebone-black", Some(1), None),
    ("exynos5250-armv7", Some(2), None),
    ("hifive-unmatched", Some(4), None),
    ("imx8mm-mozart-gateway", Some(4), None),
    ("jetson-nano", Some(4), None),
    ("milkv-duo-s", Some(1), None),
    ("misc-pcp-psi-zram-hugepages", None, None),
    ("nvidia-gb10-dgx-spark", Some(20), Some(125_508_468)),
    ("nxp-s32g-gateway", Some(4), None),
    ("rpi-zero-2w", Some(4), Some(426_068)),
    ("rpi-zero-w", Some(1), None),
    ("rpi3b-plus", Some(4), None),
    ("rpi3b-udev", Some(4), None),
    ("rpi4b-cadvisor", Some(4), None),
    ("rpi4b-udev", Some(4), None),
    ("rpi5", Some(4), None),
    ("visionfive2-jh7110", Some(4), None),
    ("visionfive2-vendor-5.15", Some(4), None),
    ("x86-dell-edge-gateway", Some(2), None),
    ("x86-intel-nuc-core", Some(1), None),
    ("x86-node-exporter-fixtures", Some(4), Some(3_742_148)),
    ("x86-offline-cpus-vm", Some(2), Some(7_881_912)),
];

#[test]
fn trees_of_real_machines_give_what_is_known_of_them() {
    let Some(trees) = shared_folder() else {
        super::left_out::leave_out("trees of real machines", "set NODEPULSE_BOARDS to their folder");
        return;
    };
    let mut checked = 0;
    let mut known = 0;
    for tree in folders(&trees) {
        let name = tree.file_name().unwrap().to_str().unwrap().to_owned();
        if name == "_cpuinfo-corpus" {
            continue;
        }
        let restored = restore(&tree);
        let facts = facts(&Root::new(&restored.0), &Settings::default(), None);
        assert!(!report::to_text(&facts, None).is_empty(), "{name}");
        checked += 1;
        if let Some((_, cpus, memory_kib)) = KNOWN.iter().find(|(known, ..)| *known == name) {
            known += 1;
            assert_eq!(facts.machine.cpu_count.clone().ok(), *cpus, "CPUs of {name}");
            let memory = facts.machine.memory_total_bytes.clone().ok();
            assert_eq!(memory, memory_kib.map(|kib| kib * 1024), "memory of {name}");
        }
        check_more(&name, &facts);
    }
    println!("{checked} captured trees read without a panic, {known} of them with known CPUs and memory");
    assert!(checked > 0 && known > 0, "no tree in {}", trees.display());
}

#[test]
fn every_cpuinfo_of_the_corpus_has_processors() {
    let Some(corpus) = shared_folder().map(|trees| trees.join("_cpuinfo-corpus")).filter(|corpus| corpus.is_dir())
    else {
        println!("no corpus of cpuinfo here: set NODEPULSE_BOARDS to its parent");
        return;
    };
    let texts: Vec<_> = files(&corpus).into_iter().filter(|file| file.file_name().unwrap() != "SOURCE").collect();
    let mut serials = BTreeSet::new();
    for text in &texts {
        let scratch = Scratch::new("corpus");
        scratch.write("proc/cpuinfo", fs::read(text).unwrap());
        let machine = facts(&Root::new(&scratch.0), &Settings::default(), None).machine;
        if let Ok(serial) = machine.board_serial {
            assert!(serials.insert(serial), "{}: two boards of one serial number", text.display());
        }
        let count = machine.cpu_count;
        assert!(count.as_ref().is_ok_and(|count| (1..=128).contains(count)), "{}: {count:?}", text.display());
    }
    println!("{} texts of cpuinfo read, {} with a serial number of one board alone", texts.len(), serials.len());
    assert!(!texts.is_empty());
}

/// The hottest zone that can be believed, in m°C.
const HOTTEST: [(&str, i64); 4] = [
    ("jetson-nano", 31_000),
    ("rpi5", 47_400),
    ("x86-node-exporter-fixtures", 12_376),
    ("x86-procfs-fixtures", 49_925),
];

/// The rest of what is known, tree by tree.
fn check_more(name: &str, facts: &Facts) {
    let thermal = facts.readings.health.thermal.as_ref().and_then(|thermal| thermal.as_ref().ok());
    let hottest = thermal.map(|thermal| thermal.hottest_millidegrees());
    let known = HOTTEST.iter().find(|(known, _)| *known == name).map(|(_, hottest)| *hottest);
    assert!(known.is_none_or(|known| hottest == Some(known)), "temperature of {name}: {hottest:?}");
    let machine = &facts.machine;
    let swap_kib = machine.swap_total_bytes.as_ref().ok().map(|bytes| bytes / 1024);
    let text = |fact: &Result<String, _>| fact.clone().ok();
    match name {
        "misc-pcp-psi-zram-hugepages" => {
            let sizes = [(64, 0), (2048, 2000), (32_768, 0), (1_048_576, 100)];
            let sizes = sizes.map(|(kib, pages)| Hugepages { page_size_bytes: kib * 1024, pages });
            assert_eq!(machine.hugepages, sizes);
        }
        "nvidia-gb10-dgx-spark" => {
            assert_eq!(swap_kib, Some(16_777_212));
            assert!(machine.system_uuid.is_err(), "the UUID is for root only, and no machine-id was captured");
            assert_eq!(text(&machine.board_model).as_deref(), Some("NVIDIA_DGX_Spark"));
        }
        "rpi-zero-2w" => {
            assert_eq!(swap_kib, Some(2_097_148));
            assert_eq!(facts.readings.memory.as_ref().map(|memory| memory.available_bytes / 1024), Ok(192_296));
        }
        "beaglebone-black" | "exynos5250-armv7" => {
            let why = machine.board_serial.as_ref().map_err(|absent| &absent.why);
            assert!(matches!(why, Err(Why::Implausible(_))), "{name}: {why:?}");
        }
        "rpi-zero-w" => assert_eq!(text(&machine.kernel_release).as_deref(), Some("5.10.63+")),
        "rpi5" => {
            assert_eq!(text(&machine.board_model).as_deref(), Some("Raspberry Pi 5 Model B Rev 1.0"));
            let compatible = machine.board_compatible.clone().ok();
            assert_eq!(compatible.unwrap(), ["raspberrypi,5-model-b", "brcm,bcm2712"]);
        }
        "x86-intel-nuc-core" => {
            assert_eq!(text(&machine.board_model).as_deref(), Some("IntelCorporation DE3815TYKH"));
        }
        "x86-dell-edge-gateway" => {
            assert_eq!(text(&machine.board_model).as_deref(), Some("DellInc. EdgeGateway3002"));
        }
        "x86-node-exporter-fixtures" => {
            let power = facts.readings.health.power.as_ref().and_then(|power| power.as_ref().ok());
            assert_eq!(power.map(|power| (power.on_battery, power.capacity_percent)), Some((Some(true), 81)));
            assert_eq!(facts.readings.pids, Ok(Pids { limit: 123, used: 719 }));
            assert_eq!(text(&machine.os_image).as_deref(), Some("Ubuntu 20.04.2 LTS"));
        }
        "x86-procfs-fixtures" => {
            assert_eq!(machine.cpu_count, Ok(2), "the directories, not the cpuinfo of another machine");
            assert_eq!(machine.memory_total_bytes, Ok(15_666_184 * 1024));
        }
        "x86-offline-cpus-vm" => assert_eq!(swap_kib, Some(16_773_116)),
        _ => {}
    }
}

fn shared_folder() -> Option<PathBuf> {
    let named = std::env::var_os("NODEPULSE_BOARDS").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/boards");
    Some(named.unwrap_or_else(beside)).filter(|folder| folder.is_dir())
}

/// A copy where symbolic links are links again: some archives keep them as files that hold their target.
fn restore(tree: &Path) -> Scratch {
    let scratch = Scratch::new(tree.file_name().unwrap().to_str().unwrap());
    for file in files(tree) {
        let path = file.strip_prefix(tree).unwrap().to_str().unwrap();
        let target = fs::read_link(&file).ok().or_else(|| kept_as_file(&file));
        match target {
            Some(target) => scratch.link(path, target.to_str().unwrap()),
            None => scratch.write(path, fs::read(&file).unwrap_or_default()),
        }
    }
    scratch
}

fn kept_as_file(file: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(file).ok().filter(|text| text.len() < 256 && !text.contains(['\n', '\0']))?;
    let target = PathBuf::from(text);
    let leads_on = target.starts_with("..") && file.parent()?.join(&target).exists();
    leads_on.then_some(target)
}
