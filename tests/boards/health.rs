//! Turns boards with sensors into what they suffer from: each kind with one that suffers, one that is well, one that has
//! nothing to tell it from, and one that lies.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nodepulse::probe::facts::Health;
use nodepulse::probe::{HealthFiles, Root};
use nodepulse::time::Up;

use super::Scratch;
use super::left_out::leave_out;

/// What a process says that starts now.
fn health(board: &Scratch) -> Health {
    HealthFiles::new(&Root::new(&board.0)).read(Up::BOOT)
}

/// The fact, or the machine word of why there is none.
fn undervoltage(health: &Health) -> Option<Result<bool, &'static str>> {
    health.undervoltage.as_ref().map(|fact| fact.as_ref().map(|is_low| *is_low).map_err(|absent| absent.why.word()))
}

/// A Raspberry Pi with its hwmon devices, in an order of their own; the first has no name.
fn pi(name: &str, alarm: &str) -> Scratch {
    let board = Scratch::new(name);
    board.write("sys/class/hwmon/hwmon0/temp1_input", "48000\n");
    board.write("sys/class/hwmon/hwmon1/name", "cpu_thermal\n");
    board.write("sys/class/hwmon/hwmon2/name", "ina219\n");
    board.write("sys/class/hwmon/hwmon2/in0_lcrit_alarm", "1\n");
    board.write("sys/class/hwmon/hwmon10/name", "rpi_volt\n");
    board.write("sys/class/hwmon/hwmon10/in0_lcrit_alarm", alarm);
    board
}

#[test]
fn a_supply_that_sags_is_known_by_the_name_of_its_sensor() {
    assert_eq!(undervoltage(&health(&pi("sags", "1\n"))), Some(Ok(true)));
    assert_eq!(undervoltage(&health(&pi("holds", "0\n"))), Some(Ok(false)));
    let without = pi("without", "1\n");
    without.write("sys/class/hwmon/hwmon10/name", "pwmfan\n");
    assert_eq!(undervoltage(&health(&without)), None, "the alarm of something else");
    assert_eq!(undervoltage(&health(&Scratch::new("bare"))), None);
    for (lie, word) in [("-19\n", "implausible"), ("2\n", "malformed"), ("", "empty"), ("N/A\n", "malformed")] {
        assert_eq!(undervoltage(&health(&pi("lies", lie))), Some(Err(word)), "{lie:?}");
    }
}

/// The hottest zone in m°C with what slows the processor down, or the machine word of why nobody knows.
fn thermal(board: &Scratch) -> Option<Result<(i64, Option<String>), &'static str>> {
    let fact = health(board).thermal?;
    let told = fact.as_ref().map(|thermal| (thermal.hottest_millidegrees(), thermal.slowed_by.clone()));
    Some(told.map_err(|absent| absent.why.word()))
}

/// Zones of this kind and temperature.
fn zones(name: &str, zones: &[(&str, &str)]) -> Scratch {
    let board = Scratch::new(name);
    for (number, (kind, temperature)) in zones.iter().enumerate() {
        board.write(&format!("sys/class/thermal/thermal_zone{number}/type"), format!("{kind}\n"));
        board.write(&format!("sys/class/thermal/thermal_zone{number}/temp"), format!("{temperature}\n"));
    }
    board
}

#[test]
fn a_board_is_as_hot_as_its_hottest_zone_that_can_be_believed() {
    let of = |all: &[(&str, &str)]| thermal(&zones("zones", all));
    let hottest = |millidegrees| Some(Ok((millidegrees, None)));
    assert_eq!(of(&[("cpu-thermal", "47400")]), hottest(47_400));
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[("PMIC-Die", "100000"), ("thermal-fan-est", "24500")]), None, "what is never judged");
    let jetson = [("AO-therm", "31000"), ("CPU-therm", "24500"), ("PMIC-Die", "100000")];
    assert_eq!(of(&jetson), hottest(31_000));
    // The lies.
    assert_eq!(of(&[("bcm2835_thermal", "49925"), ("acpitz", "-44000"), ("x", "255000")]), hottest(49_925));
    assert_eq!(of(&[("cpu-thermal", "50000"), ("x", "43"), ("y", "-256")]), hottest(50_000));
    assert_eq!(of(&[("cpu-thermal", "150")]), hottest(150), "a genuine 0.15 °C");
    assert_eq!(of(&[("tsens_tz_sensor0", "43"), ("tsens_tz_sensor1", "41"), ("battery", "3300")]), hottest(43_000));
    assert_eq!(of(&[("cpu-thermal", "-22"), ("soc-thermal", "41000")]), hottest(41_000), "an error printed as a value");
    for (lie, word) in [("-274000", "implausible"), ("-61", "implausible"), ("", "malformed"), ("hot", "malformed")] {
        assert_eq!(of(&[("cpu-thermal", lie)]), Some(Err(word)), "{lie:?}");
    }
    let off = zones("off", &[("cpu-thermal", "120000"), ("soc-thermal", "30000")]);
    off.write("sys/class/thermal/thermal_zone0/mode", "disabled\n");
    assert_eq!(thermal(&off), hottest(30_000));
    let visionfive = Scratch::new("sfctemp");
    visionfive.write("sys/class/hwmon/hwmon0/name", "sfctemp\n");
    visionfive.write("sys/class/hwmon/hwmon0/temp1_input", "51000\n");
    assert_eq!(thermal(&visionfive), hottest(51_000));
}

#[test]
fn trips_are_found_by_their_kind_and_only_what_slows_the_processor_is_cooling() {
    let board = zones("trips", &[("cpu-thermal", "60000")]);
    let trips = [
        ("active", "50000"),
        ("critical", "110000"),
        ("passive", "95000"),
        ("passive", "85000"),
        ("passive", "-274000"),
    ];
    for (number, (kind, at)) in trips.iter().enumerate() {
        board.write(&format!("sys/class/thermal/thermal_zone0/trip_point_{number}_type"), kind);
        board.write(&format!("sys/class/thermal/thermal_zone0/trip_point_{number}_temp"), at);
    }
    let zones = health(&board).thermal.unwrap().unwrap().zones;
    let found = zones.first().map(|zone| (zone.passive_millidegrees, zone.critical_millidegrees));
    assert_eq!(found, Some((Some(85_000), Some(110_000))));
    board.write("sys/class/thermal/cooling_device0/type", "pwm-fan\n");
    board.write("sys/class/thermal/cooling_device0/cur_state", "4\n");
    board.write("sys/class/thermal/cooling_device1/type", "thermal-cpufreq-0\n");
    board.write("sys/class/thermal/cooling_device1/cur_state", "0\n");
    assert_eq!(thermal(&board), Some(Ok((60_000, None))));
    board.write("sys/class/thermal/cooling_device1/cur_state", "2\n");
    assert_eq!(thermal(&board), Some(Ok((60_000, Some("thermal-cpufreq-0".to_owned())))));
}

#[test]
fn a_processor_that_slows_itself_down_is_seen_by_its_count_and_for_a_minute() {
    const COUNT: &str = "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count";
    let board = zones("throttle", &[("x86_pkg_temp", "60000")]);
    board.write(COUNT, "30\n");
    let mut files = HealthFiles::new(&Root::new(&board.0));
    let mut at = |seconds: u64, count: &str| {
        board.write(COUNT, count);
        let thermal = files.read(Up::BOOT + Duration::from_secs(seconds)).thermal.unwrap().unwrap();
        thermal.slowed_by.is_some()
    };
    assert!(!at(0, "30\n"), "what it did before the first look");
    assert!(!at(10, "30\n"));
    assert_eq!([at(20, "31\n"), at(70, "31\n"), at(80, "31\n")], [true, true, false]);
    assert_eq!(
        [at(3600, "31\n"), at(7190, "32\n"), at(7200, "32\n")],
        [false, true, true],
        "over a search for sensors"
    );
    assert_eq!([at(7300, "no number\n"), at(7310, "32\n"), at(7320, "33\n")], [false, false, true]);
    assert!(!at(7400, "0\n"), "another boot, or another processor");
}

#[test]
fn the_firmware_is_asked_whether_it_slows_the_board_down_where_the_settings_want_that() {
    const STATE: &str = "sys/devices/platform/soc/soc:firmware/get_throttled";
    let board = zones("firmware", &[("cpu-thermal", "62000")]);
    let mut files = HealthFiles::new(&Root::new(&board.0));
    let mut says = |state: Option<&str>, is_asked: bool| {
        if let Some(state) = state {
            board.write(STATE, state);
        }
        files.ask_firmware(is_asked);
        let thermal = files.read(Up::BOOT).thermal.unwrap().unwrap();
        assert_eq!(
            (thermal.hottest_millidegrees(), thermal.slowed_by),
            (62_000, None),
            "the zones speak for themselves"
        );
        thermal.is_slowed_by_firmware.map(|fact| fact.map_err(|absent| absent.why.word()))
    };
    assert_eq!(says(None, true), Some(Err("no-such-file")), "another kernel");
    assert_eq!(says(Some("4\n"), false), None, "nobody wants to know, and the kernel would warn");
    // Under-voltage, a capped clock, throttled, the soft limit of its temperature; from bit 16 on what was since the boot.
    for (state, slows) in [
        ("0\n", false),
        ("1\n", false),
        ("2\n", true),
        ("4\n", true),
        ("8\n", false),
        ("f0000\n", false),
        ("e0006\n", true),
    ] {
        assert_eq!(says(Some(state), true), Some(Ok(slows)), "{state:?}");
    }
    for (lie, word) in [("", "empty"), ("-1\n", "malformed"), ("0x4\n", "malformed"), ("throttled=0x4\n", "malformed")]
    {
        assert_eq!(says(Some(lie), true), Some(Err(word)), "{lie:?}");
    }
}

/// The tenth of its life and the state of its spare blocks, or the machine word of why nobody knows.
fn wear(health: &Health) -> Option<Result<[Option<u32>; 2], &'static str>> {
    let fact = health.storage_wear.as_ref()?;
    Some(fact.as_ref().map(|wear| [wear.life_tenths, wear.spare_state]).map_err(|absent| absent.why.word()))
}

/// A board with a card, and an eMMC that says this of itself; nothing in an empty text.
fn emmc(name: &str, life_time: &str, pre_eol_info: &str) -> Scratch {
    let board = Scratch::new(name);
    board.write("sys/block/mmcblk0/device/type", "SD\n");
    board.write("sys/block/mmcblk0/device/life_time", "0x0b 0x0b\n");
    board.write("sys/block/mmcblk2/device/type", "MMC\n");
    board.write("sys/block/mmcblk2/device/cid", "15010038475446345200\n");
    board.write("sys/block/mmcblk2boot0/device/type", "MMC\n");
    board.write("sys/block/mmcblk2boot0/device/life_time", "0x0b 0x0b\n");
    for (attribute, text) in [("life_time", life_time), ("pre_eol_info", pre_eol_info)] {
        if !text.is_empty() {
            board.write(&format!("sys/block/mmcblk2/device/{attribute}"), text);
        }
    }
    board
}

#[test]
fn an_emmc_says_how_worn_it_is_and_a_card_never_does() {
    let of = |life_time: &str, pre_eol_info: &str| wear(&health(&emmc("wear", life_time, pre_eol_info)));
    assert_eq!(of("0x01 0x02\n", "0x01\n"), Some(Ok([Some(2), Some(1)])), "the worse of its two kinds of cells");
    assert_eq!(of("0x0a 0x03\n", "0x02\n"), Some(Ok([Some(10), Some(2)])));
    assert_eq!(of("0x0B 0x0B", "0x03"), Some(Ok([Some(11), Some(3)])));
    assert_eq!(of("0x00 0x04 ", ""), Some(Ok([Some(4), None])), "of one kind nothing is known");
    assert_eq!(of("", ""), None, "before eMMC 5.0");
    assert_eq!(of("0x00 0x00\n", "0x00\n"), None, "not reported");
    assert_eq!(of("0xff 0x0c\n", "0x07\n"), None, "no tenths of a life");
    assert_eq!(of("worn\n", "0x01\n"), Some(Err("malformed")));
}

#[test]
fn wear_is_read_once_an_hour_and_only_grows_but_for_another_device() {
    let board = emmc("grows", "0x01 0x02\n", "0x01\n");
    let mut files = HealthFiles::new(&Root::new(&board.0));
    let mut after = |looks: u32, life_time: &str, cid: &str| {
        board.write("sys/block/mmcblk2/device/life_time", life_time);
        board.write("sys/block/mmcblk2/device/cid", cid);
        (0..looks).map(|_| wear(&files.read(Up::BOOT)).unwrap().unwrap()[0]).last().unwrap()
    };
    assert_eq!(after(7, "0x01 0x02\n", "a"), Some(2));
    assert_eq!(after(300, "0x0a 0x02\n", "a"), Some(2));
    assert_eq!(after(60, "0x0a 0x02\n", "a"), Some(10), "within an hour");
    assert_eq!(after(360, "0x01 0x02\n", "a"), Some(10), "nothing worn heals");
    assert_eq!(after(360, "0x01 0x02\n", "b"), Some(2));
}

#[test]
fn a_ufs_says_how_worn_it_is_whatever_its_makers_call_its_controller() {
    for device in ["1d84000.ufshc", "112b0000.ufshci", "fe2e0000.ufs"] {
        let of = |files: &[(&str, &str)]| {
            let board = Scratch::new("ufs");
            board.write("sys/bus/platform/devices/regulatory.0/uevent", "");
            for (file, text) in files {
                board.write(&format!("sys/bus/platform/devices/{device}/health_descriptor/{file}"), *text);
            }
            wear(&health(&board))
        };
        let [eol, a, b] = ["eol_info", "life_time_estimation_a", "life_time_estimation_b"];
        let seen = |tenths, spare| Some(Ok([tenths, spare]));
        assert_eq!(of(&[(eol, "0x01\n"), (a, "0x03\n"), (b, "0x01\n")]), seen(Some(3), Some(1)));
        assert_eq!(of(&[(eol, "0x03\n"), (a, "0x0B\n"), (b, "0x0A\n")]), seen(Some(11), Some(3)));
        assert_eq!(of(&[(eol, "0x00\n"), (a, "0x00\n"), (b, "0x02\n")]), seen(Some(2), None));
        assert_eq!(of(&[(eol, "0x00\n"), (a, "0x00\n"), (b, "0x00\n")]), None, "not reported");
        assert_eq!(of(&[]), None, "a controller without anything behind it");
        assert_eq!(of(&[(a, "worn\n")]), Some(Err("malformed")));
    }
}

/// With a chip of that type: how often its most used block was erased, broken blocks, and what is left for more.
fn raw_flash(kind: &str, counts: [&str; 3]) -> Scratch {
    let board = Scratch::new("ubi");
    board.write("sys/class/ubi/version", "1\n");
    board.write("sys/class/ubi/ubi0_0/name", "rootfs\n");
    for (file, text) in ["max_ec", "bad_peb_count", "reserved_for_bad"].into_iter().zip(counts) {
        board.write(&format!("sys/class/ubi/ubi0/{file}"), format!("{text}\n"));
    }
    board.write("sys/class/ubi/ubi0/mtd_num", "4\n");
    board.write("sys/class/mtd/mtd4/type", format!("{kind}\n"));
    // The chip of the boot loader, which has codes of its own, is no matter of UBI.
    board.write("sys/class/mtd/mtd0/ecc_failures", "31\n");
    board
}

#[test]
fn raw_flash_is_as_worn_as_the_block_that_was_erased_most_and_as_the_blocks_that_broke() {
    let of = |kind: &str, counts: [&str; 3]| wear(&health(&raw_flash(kind, counts)));
    let seen = |tenths, spare| Some(Ok([Some(tenths), Some(spare)]));
    assert_eq!(of("nand", ["4", "0", "40"]), seen(1, 1));
    assert_eq!(of("nand", ["80000", "3", "37"]), seen(9, 1));
    assert_eq!(of("nand", ["4000000000", "0", "40"]), seen(11, 1));
    assert_eq!(of("mlc-nand", ["2400", "0", "40"]), seen(9, 1), "of several bits in a cell");
    assert_eq!(of("mlc-nand", ["3000", "0", "40"]), seen(11, 1));
    assert_eq!(of("nand", ["4", "20", "20"]), seen(1, 2), "half of the reserve");
    assert_eq!(of("nand", ["4", "19", "21"]), seen(1, 1));
    assert_eq!(of("nand", ["4", "1", "0"]), seen(1, 3), "the next one makes it read-only");
    assert_eq!(of("nor", ["900", "0", "0"]), seen(1, 1), "no block of it breaks, so none is kept");
    // The lies.
    assert_eq!(of("nand", ["many", "0", "40"]), Some(Err("malformed")));
    assert_eq!(of("nand", ["4", "0", "-22"]), Some(Err("implausible")));
    let board = Scratch::new("mtd-alone");
    board.write("sys/class/mtd/mtd0/type", "nor\n");
    board.write("sys/class/ubi/version", "1\n");
    assert_eq!(wear(&health(&board)), None, "flash without UBI does not count");
}

#[test]
fn raw_flash_loses_data_where_reads_failed_since_the_first_look() {
    let board = raw_flash("nand", ["4", "0", "40"]);
    let mut files = HealthFiles::new(&Root::new(&board.0));
    let mut after = |failures: &str, chip: &str| {
        board.write("sys/class/ubi/ubi0/mtd_num", chip);
        board.write("sys/class/mtd/mtd4/ecc_failures", failures);
        let told = (0..400).map(|_| files.read(Up::BOOT).storage_wear.unwrap().unwrap()).last().unwrap();
        (told.uncorrectable_reads, told.is_losing_data)
    };
    assert_eq!(after("2\n", "4\n"), (2, false), "a page that was half written when the power failed");
    assert_eq!(after("2\n", "4\n"), (2, false));
    assert_eq!(after("3\n", "4\n"), (3, true));
    assert_eq!(after("3\n", "4\n"), (3, true), "until the next boot");
    assert_eq!(after("no number\n", "4\n"), (0, true));
    assert_eq!(after("3\n", "5\n"), (0, false), "another chip");
}

/// On battery, percent and whether it empties, or the machine word of why nobody knows.
type Supplied = Result<(Option<bool>, u64, bool), &'static str>;

fn power(board: &Scratch) -> Option<Supplied> {
    let fact = health(board).power?;
    let told = fact.as_ref().map(|power| (power.on_battery, power.capacity_percent, power.is_discharging));
    Some(told.map_err(|absent| absent.why.word()))
}

fn with_supplies(name: &str, supplies: &[(&str, &[(&str, &str)])]) -> Scratch {
    let board = Scratch::new(name);
    for (supply, attributes) in supplies {
        for (attribute, text) in *attributes {
            board.write(&format!("sys/class/power_supply/{supply}/{attribute}"), format!("{text}\n"));
        }
    }
    board
}

#[test]
fn a_board_runs_on_the_battery_that_is_its_own_when_no_supply_is_online() {
    const BATTERY: (&str, &[(&str, &str)]) =
        ("BAT0", &[("type", "Battery"), ("capacity", "81"), ("status", "Discharging")]);
    let of = |all: &[(&str, &[(&str, &str)])]| power(&with_supplies("power", all));
    assert_eq!(of(&[("AC", &[("type", "Mains"), ("online", "0")]), BATTERY]), Some(Ok((Some(true), 81, true))));
    let both =
        [("AC", &[("type", "Mains"), ("online", "0")][..]), ("usb", &[("type", "USB"), ("online", "1")]), BATTERY];
    assert_eq!(of(&both), Some(Ok((Some(false), 81, true))));
    assert_eq!(of(&[BATTERY]), Some(Ok((None, 81, true))), "nobody knows of any other supply");
    assert_eq!(of(&[("AC", &[("type", "Mains"), ("online", "0")])]), None, "no battery");
    // The lies.
    let mouse = [("type", "Battery"), ("scope", "Device"), ("capacity", "3"), ("status", "Discharging")];
    assert_eq!(of(&[("hid", &mouse)]), None);
    let out = [("type", "Battery"), ("present", "0"), ("capacity", "50"), ("status", "Unknown")];
    assert_eq!(of(&[("battery", &out)]), None, "it has been taken out");
    for (lie, word) in [("-19", "implausible"), ("130", "implausible"), ("full", "malformed")] {
        let lies = [("type", "Battery"), ("capacity", lie), ("status", "Full")];
        assert_eq!(of(&[("BAT0", &lies)]), Some(Err(word)), "{lie}");
    }
}

#[test]
fn a_sensor_whose_driver_comes_late_is_found_within_a_minute_and_one_that_goes_is_missed() {
    let board = Scratch::new("late");
    let mut files = HealthFiles::new(&Root::new(&board.0));
    assert_eq!(undervoltage(&files.read(Up::BOOT)), None);
    board.write("sys/class/hwmon/hwmon3/name", "rpi_volt\n");
    board.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", "0\n");
    // One look is every ten seconds.
    let found = (1..=20).find(|_| undervoltage(&files.read(Up::BOOT)).is_some());
    assert!(found.is_some_and(|looks| looks <= 6), "{found:?}");
    board.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", "1\n");
    assert_eq!(undervoltage(&files.read(Up::BOOT)), Some(Ok(true)), "of a file that stays open");
    fs::remove_dir_all(board.0.join("sys/class/hwmon/hwmon3")).unwrap();
    board.write("sys/class/hwmon/hwmon4/name", "rpi_volt\n");
    board.write("sys/class/hwmon/hwmon4/in0_lcrit_alarm", "0\n");
    let answers: Vec<_> = (0..400).map(|_| undervoltage(&files.read(Up::BOOT))).collect();
    assert_eq!(answers.last(), Some(&Some(Ok(false))), "within an hour under its new name");
}

/// The firmware's alarm lasts two seconds, a look comes every ten. A file of the kernel that says when it changes stands for it:
/// the name of a host that is nobody else's.
#[test]
fn an_alarm_that_came_and_went_between_two_looks_is_seen() {
    let board = pi("between", "0\n");
    let alarm = board.0.join("sys/class/hwmon/hwmon10/in0_lcrit_alarm");
    let judge = || -> Result<(), String> {
        use nix::sched::{CloneFlags, unshare};
        unshare(CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWNS).map_err(|errno| format!("unshare: {errno}"))?;
        let run = |arguments: &[&str]| {
            let status = Command::new("mount").args(arguments).status().map_err(|error| format!("mount: {error}"))?;
            if status.success() { Ok(()) } else { Err(format!("mount {arguments:?}: {status}")) }
        };
        run(&["--make-rprivate", "/"])?;
        run(&["--bind", "/proc/sys/kernel/hostname", alarm.to_str().unwrap()])?;
        let say = |value: &str| nix::unistd::sethostname(value).map_err(|errno| format!("sethostname: {errno}"));
        say("0")?;
        let mut files = HealthFiles::new(&Root::new(&board.0));
        let mut look = || undervoltage(&files.read(Up::BOOT));
        assert_eq!([look(), look()], [Some(Ok(false)); 2]);
        say("1")?;
        say("0")?;
        assert_eq!([look(), look()], [Some(Ok(true)), Some(Ok(false))], "once");
        say("1")?;
        assert_eq!([look(), look()], [Some(Ok(true)); 2]);
        say("0")?;
        assert_eq!(look(), Some(Ok(false)), "its end is no alarm");
        Ok(())
    };
    // A thread of its own, as its namespaces end with it.
    if let Err(why) = std::thread::scope(|scope| scope.spawn(judge).join().unwrap()) {
        leave_out("an alarm between two looks", &why);
    }
}

/// Device, errors and whether one is of this boot, or the machine word of why nobody knows.
fn file_systems(health: &Health) -> Option<Result<(String, u64, bool), &'static str>> {
    let told = health.file_systems.as_ref()?.as_ref();
    Some(told.map(|errors| (errors.device.clone(), errors.count, errors.is_new)).map_err(|absent| absent.why.word()))
}

#[test]
fn errors_of_a_file_system_are_new_when_they_are_dated_since_the_boot_or_become_more() {
    let of = |count: &str, last_s: &str| {
        let board = Scratch::new("ext4");
        board.write("proc/stat", "cpu  1 2 3 4\nbtime 1767220000\nprocesses 9\n");
        board.write("sys/fs/ext4/features/lazy_itable_init", "supported\n");
        board.write("sys/fs/ext4/mmcblk0p2/errors_count", count);
        board.write("sys/fs/ext4/mmcblk0p2/last_error_time", last_s);
        board
    };
    let told = |board: &Scratch| file_systems(&health(board));
    let seen = |count, is_new| Some(Ok(("mmcblk0p2".to_owned(), count, is_new)));
    assert_eq!(told(&of("0\n", "0\n")), seen(0, false));
    assert_eq!(told(&of("3\n", "1767219999\n")), seen(3, false), "of before the boot");
    assert_eq!(told(&of("3\n", "1767220000\n")), seen(3, true));
    assert_eq!(told(&Scratch::new("no-ext4")), None);
    // The lies: a clock that was in 1970 when the error came, and what is no number.
    assert_eq!(told(&of("many\n", "0\n")), Some(Err("malformed")));
    let board = of("3\n", "7\n");
    let mut files = HealthFiles::new(&Root::new(&board.0));
    assert_eq!(file_systems(&files.read(Up::BOOT)), seen(3, false));
    board.write("sys/fs/ext4/mmcblk0p2/errors_count", "4\n");
    let found = (1..=20).find(|_| file_systems(&files.read(Up::BOOT)) == seen(4, true));
    assert!(found.is_some_and(|looks| looks <= 6), "within a minute: {found:?}");
    // Of several the worst counts, and one that was pulled out no more.
    board.write("sys/fs/ext4/sda1/errors_count", "9\n");
    (0..400).for_each(|_| drop(files.read(Up::BOOT)));
    assert_eq!(file_systems(&files.read(Up::BOOT)), seen(4, true));
    // A file of the kernel says nothing any more through a handle from before.
    board.write("sys/fs/ext4/mmcblk0p2/errors_count", "");
    fs::remove_dir_all(board.0.join("sys/fs/ext4/mmcblk0p2")).unwrap();
    (0..7).for_each(|_| drop(files.read(Up::BOOT)));
    assert_eq!(file_systems(&files.read(Up::BOOT)), Some(Ok(("sda1".to_owned(), 9, false))));
    // Where looks are rarer than that, each sees it.
    board.write("sys/fs/ext4/sda1/errors_count", "10\n");
    let later = Up::BOOT + Duration::from_secs(300);
    assert_eq!(file_systems(&files.read(later)), Some(Ok(("sda1".to_owned(), 10, true))));
}
