//! Turns facts into JSON for programs and into a page for people.

use serde_json::{Value, json};

use super::facts::{Absent, Fact, Facts, FileSystem, Health, Interface, InterfaceAddress, Machine, Pids};
use super::features::NFD;
use super::root::Root;
use super::sources;
use crate::config::plain_text;

/// All facts, in camel case. An absent one is `{"absent": word, "path": ..., "why": ...}`.
pub fn to_json(facts: &Facts) -> Value {
    // Written and read again: a second serializer for all of it, straight into values, takes 7 KB of the program.
    let text = serde_json::to_vec(facts).unwrap_or_default();
    without_results(serde_json::from_slice(&text).unwrap_or_default())
}

/// What serde has as `{"Ok": value}` and `{"Err": absent}`.
fn without_results(value: Value) -> Value {
    match value {
        Value::Object(mut map) => match map.remove("Ok").or_else(|| map.remove("Err")) {
            Some(inner) => without_results(inner),
            None => map.into_iter().map(|(name, value)| (name, without_results(value))).collect(),
        },
        Value::Array(list) => list.into_iter().map(without_results).collect(),
        plain => plain,
    }
}

/// What a person asks first: which board, how large, where, how it fares, what is plugged in; then what could not be had, and
/// why. `read_from`: say where each line was read, too.
pub fn to_text(facts: &Facts, read_from: Option<&Root>) -> String {
    let Facts { machine, readings, network } = facts;
    let mut page = Page { read_from, ..Page::default() };
    page.line("board", &machine.board_model, String::clone);
    page.line("compatible", &machine.board_compatible, |names| names.join(" "));
    page.line("serial", &machine.board_serial, String::clone);
    page.line("mac", &machine.mac_address, String::clone);
    for refused in machine.passed_over.iter().filter_map(|value| value.refused.as_ref()) {
        page.text("refused", &refused.to_string());
    }
    page.line("hostname", &machine.hostname, String::clone);
    page.line("cpus", &machine.cpu_count, u32::to_string);
    page.line("memory", &machine.memory_total_bytes, |bytes| size(*bytes));
    page.line("available", &readings.memory, |memory| {
        let source = json!(memory.source);
        format!("{} ({})", size(memory.available_bytes), source.as_str().unwrap_or_default())
    });
    page.line("swap", &machine.swap_total_bytes, |bytes| size(*bytes));
    if let Ok(reason) = &machine.reset_reason {
        page.text("last reset", reason);
    }
    for pages in machine.hugepages.iter().filter(|pages| pages.pages > 0) {
        page.text("hugepages", &format!("{} of {}", pages.pages, size(pages.page_size_bytes)));
    }
    page.line("disk", &readings.node_file_system, file_system_text);
    if let Ok(Some(mounted)) = &readings.made_read_only {
        page.text(
            "read-only",
            &format!("the kernel has made the file system at {mounted} read-only, as it does after errors"),
        );
    }
    page.line("pids", &readings.pids, |Pids { limit, used }| format!("{used} of {limit}"));
    if let Some(runtime) = &readings.container_runtime {
        let known: Vec<&str> = [&runtime.version].into_iter().chain(&runtime.problems).map(String::as_str).collect();
        page.text("runtime", &known.join(", "));
        runtime.trouble.iter().for_each(|trouble| page.text("", trouble));
        for image in &runtime.images {
            let name = image.names.last().map_or("without a name", String::as_str);
            let bytes = image.size_bytes.unwrap_or_default().unsigned_abs();
            page.text("image", &format!("{name}, {}", size(bytes)));
        }
    }
    for interface in &network.interfaces {
        page.text("interface", &interface_text(interface));
    }
    for route in &network.default_routes {
        let family = if route.is_v6 { "IPv6" } else { "IPv4" };
        page.text("route", &format!("{family} default by {}, metric {}", route.interface, route.metric));
    }
    page.line("os", &machine.os_image, String::clone);
    page.line("kernel", &machine.kernel_release, String::clone);
    page.line("architecture", &machine.architecture, String::clone);
    page.line("machine-id", &machine.machine_id, String::clone);
    page.line("system-uuid", &machine.system_uuid, String::clone);
    page.line("boot-id", &machine.boot_id, String::clone);
    page.section("health", |page| health(page, &readings.health));
    page.section("devices", |page| devices(page, facts));
    page.finish()
}

/// What is a resource of the Node, and what a bus says of the rest.
fn devices(page: &mut Page, Facts { machine, readings, .. }: &Facts) {
    for (name, count) in &readings.extended_resources {
        let unhealthy = readings.unhealthy_devices.get(name).filter(|unhealthy| **unhealthy > 0);
        page.line(name, count, |count| match unhealthy {
            Some(unhealthy) => format!("{count}, of which {} can be used", count.saturating_sub(*unhealthy)),
            None => count.to_string(),
        });
    }
    let Some(features) = &machine.features else { return };
    for bus in ["usb", "pci"] {
        let prefix = [NFD, bus, "-"].concat();
        let found = features.labels.iter().filter_map(|(key, _)| key.strip_prefix(&prefix)?.strip_suffix(".present"));
        let found: Vec<String> = found.map(|one| one.replace('_', ":")).collect();
        if !found.is_empty() {
            page.text(bus, &found.join(" "));
        }
    }
    if !features.labels.is_empty() {
        page.text("labels", &format!("{}, which -o json names", features.labels.len()));
    }
    features.left_out.iter().for_each(|absent| page.text("no label", &absent.to_string()));
}

/// What the board itself may suffer from.
fn health(page: &mut Page, health: &Health) {
    page.sensor("supply", &health.undervoltage, |is_low| {
        if *is_low { "voltage is too low" } else { "voltage is sufficient" }.to_owned()
    });
    page.sensor("temperature", &health.thermal, |thermal| {
        let slowed = thermal.slowed_by.as_ref().map(|by| format!(", slowed down by {by}"));
        let firmware = match &thermal.is_slowed_by_firmware {
            Some(Ok(true)) => ", slowed down by its firmware".to_owned(),
            Some(Err(absent)) => format!(", its firmware is silent ({absent})"),
            Some(Ok(false)) | None => String::new(),
        };
        format!("{} °C{}{firmware}", degrees(thermal.hottest_millidegrees()), slowed.unwrap_or_default())
    });
    page.sensor("wear", &health.storage_wear, |wear| {
        let life = wear.life_tenths.map(|tenths| format!(", {}", life_text(tenths)));
        format!("{}{}", wear.device, life.unwrap_or_default())
    });
    page.sensor("errors", &health.file_systems, |errors| {
        let since = if errors.is_new { ", some since the boot" } else { "" };
        format!("{} on {} since its last fsck{since}", errors.count, errors.device)
    });
    page.sensor("kernel log", &health.kernel, |kernel| {
        let all = kernel.all.iter().map(|one| format!("{} {} times", one.reason, one.count)).collect::<Vec<_>>();
        let told = if all.is_empty() { "tells of no trouble".to_owned() } else { all.join(", ") };
        let unread = kernel.unread.as_ref().map(|absent| format!(", by counters alone ({absent})"));
        told + &unread.unwrap_or_default()
    });
    page.sensor("uplink", &health.uplink, |uplink| {
        let speed = uplink.speed_mbps.map(|mbps| format!(", {mbps} Mb/s"));
        let signal = uplink.signal_dbm.map(|dbm| format!(", {dbm} dBm"));
        format!("{}{}{}", uplink.interface, speed.unwrap_or_default(), signal.unwrap_or_default())
    });
    page.sensor("clock", &health.wall_clock, |clock| {
        let kept = if clock.is_synchronised { "kept right, within" } else { "kept right by nobody, may be off by" };
        let text = format!("{kept} {} ms", clock.most_off_us / 1000);
        if clock.is_unset { format!("{text}, never set") } else { text }
    });
    page.sensor("power", &health.power, |power| {
        let supply = if power.on_battery == Some(true) { "on battery, " } else { "" };
        format!("{supply}battery at {} %", power.capacity_percent)
    });
}

/// How large a machine is, in a few words.
pub fn size_of(machine: &Machine) -> String {
    let cpus = machine.cpu_count.as_ref().map_or_else(Absent::to_string, |count| format!("{count} CPUs"));
    let memory = machine.memory_total_bytes.as_ref().map_or_else(Absent::to_string, |bytes| size(*bytes));
    let system = machine.os_image.as_ref().map_or_else(Absent::to_string, String::clone);
    format!("{cpus}, {memory}, {system}")
}

#[derive(Default)]
struct Page<'a> {
    known: String,
    absent: String,
    indent: &'static str,
    read_from: Option<&'a Root>,
}

impl Page<'_> {
    /// Lines below a heading; none without any.
    fn section(&mut self, heading: &str, print: impl FnOnce(&mut Self)) {
        let before = std::mem::take(&mut self.known);
        self.indent = "  ";
        print(self);
        self.indent = "";
        let lines = std::mem::replace(&mut self.known, before);
        if !lines.is_empty() {
            self.known += &[heading, "\n", &lines].concat();
        }
    }

    fn line<T>(&mut self, name: &str, fact: &Fact<T>, print: impl Fn(&T) -> String) {
        self.found(name, fact.as_ref().map(print));
    }

    /// Once for all types of facts: 2 KB of program.
    #[inline(never)]
    fn found(&mut self, name: &str, text: Result<String, &Absent>) {
        match text {
            Ok(text) => self.text(name, &text),
            Err(absent) => self.absent += &format!("  {name:<12} {}\n", plain_text::line(&absent.to_string())),
        }
    }

    /// Nothing of what a board lacks: few have any of these.
    fn sensor<T>(&mut self, name: &str, fact: &Option<Fact<T>>, print: impl Fn(&T) -> String) {
        if let Some(fact) = fact {
            self.line(name, fact, print);
        }
    }

    fn text(&mut self, name: &str, value: &str) {
        let place = self.read_from.map(|root| sources::of_line(root, name, value)).filter(|place| !place.is_empty());
        let place = place.map(|place| format!("  [{place}]")).unwrap_or_default();
        let (indent, width) = (self.indent, 14 - self.indent.len());
        self.known += &format!("{indent}{name:<width$} {}{place}\n", plain_text::line(value));
    }

    fn finish(self) -> String {
        if self.absent.is_empty() { self.known } else { format!("{}absent\n{}", self.known, self.absent) }
    }
}

fn file_system_text(system: &FileSystem) -> String {
    let free = format!("{} free of {}", size(system.available_bytes), size(system.capacity_bytes));
    let inodes = if system.inodes == 0 {
        "no limit on inodes".to_owned()
    } else {
        format!("{} of {} inodes free", system.inodes_free, system.inodes)
    };
    format!("{free}, {inodes}{}", if system.read_only { ", read-only" } else { "" })
}

/// How much of a device's life is used up, by the tenth that it is in.
pub fn life_text(tenths: u32) -> String {
    match tenths {
        11.. => "more than all of its life is used up".to_owned(),
        tenths => format!("{} to {} % of its life are used up", tenths.saturating_sub(1) * 10, tenths * 10),
    }
}

/// With one decimal, cut. Rust's own way for that is 15 KB of the program.
fn degrees(millidegrees: i64) -> String {
    let (sign, tenths) = (if millidegrees <= -100 { "-" } else { "" }, millidegrees.unsigned_abs() / 100);
    format!("{sign}{}.{}", tenths / 10, tenths % 10)
}

fn interface_text(interface: &Interface) -> String {
    let state = match (interface.up, interface.running) {
        (true, true) => "up",
        (true, false) => "no carrier",
        (false, _) => "down",
    };
    let address = |one: &InterfaceAddress| format!(" {}{}", one.ip, if one.unusable { " (unusable)" } else { "" });
    let addresses: String = interface.addresses.iter().map(address).collect();
    format!("{} {state}{addresses}", interface.name)
}

/// With one decimal, cut, not rounded: 99.9 % of a limit is not the limit.
fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => {
            let tenths = (u128::from(bytes) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::probe::{Root, facts};

    #[test]
    fn sizes_are_cut_to_one_decimal() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1024 * 1024 - 1), "1023.9 KiB");
        assert_eq!(size(998_408 * 1024), "975.0 MiB");
        assert_eq!(size(u64::MAX), "16777215.9 TiB");
    }

    #[test]
    fn temperatures_have_one_decimal() {
        assert_eq!([48_312, 0, 99, -99, -40_050].map(degrees), ["48.3", "0.0", "0.0", "0.0", "-40.0"]);
    }

    #[test]
    fn a_machine_that_says_nothing_is_a_list_of_reasons() {
        let nothing = facts(&Root::new("/nonexistent"), &Settings::default(), None);
        let json = to_json(&nothing);
        assert_eq!(json["machine"]["cpuCount"]["absent"], "no-such-file");
        assert_eq!(json["machine"]["cpuCount"]["path"], "/proc/cpuinfo");
        assert_eq!(json["machine"]["osImage"], "Unknown");
        assert_eq!(json["readings"]["nodeFileSystem"]["absent"], "implausible");
        let text = to_text(&nothing, None);
        assert!(text.starts_with("os             Unknown\nabsent\n"), "{text}");
        assert!(text.contains("  memory       /proc/meminfo: no such file\n"), "{text}");
    }

    #[test]
    fn absent_facts_come_last_with_their_reason() {
        let here = facts(&Root::new("/"), &Settings { state_directory: "/".to_owned(), ..Settings::default() }, None);
        let text = to_text(&here, None);
        assert!(text.contains("cpus           "), "{text}");
        assert!(to_json(&here)["machine"]["memoryTotalBytes"].as_u64().is_some());
    }
}
