//! Turns identity, CPU, memory and device tree files into the facts that hold for the life of the process (MI-10).

use super::cpu::CPUINFO;
use super::facts::{Absent, Fact, Hugepages, Machine, PassedOver, Why, first_known, of_table};
use super::identity::{self, Smbios};
use super::memory::MEMINFO;
use super::root::Root;
use super::{architecture, attribute, cpu, mac, memory, network, os_release, reset};
use crate::config::limits;
use crate::config::text_map::TextMap;

const HUGEPAGES: &str = "/sys/kernel/mm/hugepages";
const DMI: &str = "/sys/class/dmi/id";
const SOC: &str = "/sys/devices/soc0";
/// The first is a link to the second.
const DEVICE_TREES: [&str; 2] = ["/proc/device-tree", "/sys/firmware/devicetree/base"];
const PLATFORM_DEVICES: &str = "/sys/bus/platform/devices";

/// What the machine is.
pub fn machine(root: &Root) -> Machine {
    let cpuinfo = root.read_whole_table(CPUINFO);
    let meminfo = root.read_table(MEMINFO);
    let masked = device_tree_is_masked(root);
    let mut passed_over = Vec::new();
    let board_serial = choose(serials(root, &cpuinfo), identity::serial, &mut passed_over);
    let mac_address = choose(mac_addresses(root), mac::address, &mut passed_over);
    Machine {
        hostname: root.read_as("/proc/sys/kernel/hostname", |text| identity::hostname(&text)),
        machine_id: machine_id(root),
        system_uuid: system_uuid(root),
        boot_id: root.read_as("/proc/sys/kernel/random/boot_id", boot_id),
        architecture: architecture::of_root(root),
        kernel_release: root.read_text("/proc/sys/kernel/osrelease"),
        os_image: os_image(root),
        board_model: unless_masked(masked, board_model(root, &cpuinfo)),
        board_compatible: unless_masked(masked, device_tree(root, "compatible", board_compatible)),
        board_serial: unless_masked(masked, board_serial),
        mac_address,
        passed_over,
        cpu_count: cpu::count(root, &cpuinfo),
        memory_total_bytes: of_table(MEMINFO, &meminfo, memory::total_bytes),
        swap_total_bytes: of_table(MEMINFO, &meminfo, memory::swap_total_bytes),
        reset_reason: reset::reason(root),
        hugepages: hugepages(root),
        features: None,
    }
}

/// CPUs and memory of now.
pub(super) fn sizes(root: &Root) -> (Fact<u32>, Fact<u64>) {
    let meminfo = root.read_table(MEMINFO);
    (cpu::count(root, &root.read_whole_table(CPUINFO)), of_table(MEMINFO, &meminfo, memory::total_bytes))
}

/// SRC-5, except that a file that says nothing, or `uninitialized`, is passed over.
fn machine_id(root: &Root) -> Fact<String> {
    let read = |path| root.read_as(path, identity::machine_id);
    first_known(read("/etc/machine-id"), || read("/var/lib/dbus/machine-id"))
}

/// SRC-6, case kept, and kept where boards share it: a kubelet on this machine would say the same. Without SMBIOS, as on
/// most ARM boards, it is the machine-id.
fn system_uuid(root: &Root) -> Fact<String> {
    let of_tree = |property| device_tree(root, property, |bytes| identity::uuid(attribute::string(bytes)));
    let uuid = root.read_as(&format!("{DMI}/product_uuid"), identity::uuid);
    let uuid = first_known(uuid, || of_tree("system-id"));
    let uuid = first_known(uuid, || of_tree("vm,uuid"));
    first_known(uuid, || machine_id(root))
}

/// VER-1.
pub(super) fn os_image(root: &Root) -> Fact<String> {
    let found = first_known(root.read_table("/etc/os-release"), || root.read_table("/usr/lib/os-release"));
    match found {
        Ok(table) => Ok(os_release::pretty_name(&table)),
        Err(absent) if absent.why == Why::Empty => Ok(os_release::pretty_name("")),
        Err(absent) if absent.why == Why::NoSuchFile => Ok("Unknown".to_owned()),
        Err(absent) => Err(absent),
    }
}

/// SRC-7: a UUID, as the kernel writes it.
fn boot_id(text: String) -> Result<String, Why> {
    let is_hyphen = |place: usize| matches!(place, 8 | 13 | 18 | 23);
    let fits = |(place, byte): (usize, u8)| if is_hyphen(place) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    let is_uuid = text.len() == 36 && text.bytes().enumerate().all(fits);
    if is_uuid { Ok(text) } else { Err(Why::Malformed(format!("{:?} is no boot id", attribute::shortened(&text)))) }
}

fn board_model(root: &Root, cpuinfo: &Fact<String>) -> Fact<String> {
    let model = device_tree(root, "model", |bytes| Ok(attribute::string(bytes)));
    let model = first_known(model, || smbios_model(root));
    let model = first_known(model, || root.read_text(&format!("{SOC}/machine")));
    let mut fields = ["Model", "Hardware", "machine"].into_iter();
    match fields.find_map(|key| cpu::field(cpuinfo.as_deref().ok()?, key)) {
        Some(named) => first_known(model, || Ok(attribute::text(named.as_bytes()))),
        None => model,
    }
}

fn smbios_model(root: &Root) -> Fact<String> {
    let path = |name: &str| format!("{DMI}/{name}");
    let [vendor, board_vendor, product, board] = ["sys_vendor", "board_vendor", "product_name", "board_name"]
        .map(|name| root.read_text(&path(name)).unwrap_or_default());
    let smbios = Smbios { vendors: [&vendor, &board_vendor], products: [&product, &board] };
    identity::board_name(smbios).or_else(|_| {
        let named = |modalias: String| identity::board_name(identity::smbios_of_modalias(&modalias));
        root.read_as(&path("modalias"), named)
    })
}

fn board_compatible(bytes: &[u8]) -> Result<Vec<String>, Why> {
    let names = attribute::strings(bytes);
    if names.is_empty() { Err(Why::Empty) } else { Ok(names) }
}

/// A place of a serial number or a MAC address, and what it says.
struct Candidate {
    path: String,
    text: Fact<String>,
    /// How likely another board says the same: the least is taken, of equals the first.
    rank: (bool, bool, bool, bool),
}

impl Candidate {
    fn of(path: String, text: Fact<String>) -> Candidate {
        Candidate { path, text, rank: Default::default() }
    }
}

/// The places of a serial number, the best first.
fn serials(root: &Root, cpuinfo: &Fact<String>) -> Vec<Candidate> {
    let [tree, _] = DEVICE_TREES;
    let of_tree = device_tree(root, "serial-number", |bytes| Ok(attribute::string(bytes)));
    let line = cpuinfo.as_deref().ok().and_then(|table| cpu::field(table, "Serial"));
    let mut found = vec![Candidate::of(format!("{tree}/serial-number"), of_tree)];
    found.extend(line.map(|line| Candidate::of(CPUINFO.to_owned(), Ok(attribute::text(line.as_bytes())))));
    let files = [(SOC, "serial_number"), (DMI, "product_serial"), (DMI, "board_serial")];
    found.extend(files.map(|(directory, name)| format!("{directory}/{name}")).map(|path| {
        let read = root.read_text(&path);
        Candidate::of(path, read)
    }));
    found
}

/// The MAC addresses that stay with the board, by index. The best are those of no interface on top of another (a VLAN has
/// that one's, a port of a switch may), that no other interface carries (a maker's sample is on several), that the IEEE
/// sold, and of hardware.
fn mac_addresses(root: &Root) -> Vec<Candidate> {
    let path = |name: &str, attribute: &str| format!("{}/{name}/{attribute}", network::INTERFACES);
    let text = |name: &str, attribute: &str| root.read_text(&path(name, attribute)).unwrap_or_default();
    let is_permanent = |name: &String| mac::is_permanent(&text(name, "type"), &text(name, "addr_assign_type"));
    let is_hardware = |name: &str| root.has_entry(&path(name, ""), "device");
    let found: Vec<_> = network::indexed_names(root, &is_hardware)
        .into_iter()
        .filter(is_permanent)
        .map(|name| {
            let below = text(&name, "iflink");
            let is_on_top = !below.is_empty() && below != text(&name, "ifindex");
            (root.read_text(&path(&name, "address")), is_on_top, name)
        })
        .collect();
    let mut holders = TextMap::<usize>::new();
    for (address, ..) in found.iter().filter(|(_, is_on_top, _)| !is_on_top) {
        holders.change(address.as_deref().unwrap_or_default(), |count| *count += 1);
    }
    let candidate = |(text, is_on_top, name): (Fact<String>, bool, String)| {
        let address = text.as_deref().unwrap_or_default();
        let is_shared = holders.get(address).is_some_and(|count| *count > 1);
        let rank = (is_on_top, is_shared, mac::is_local(address), !is_hardware(&name));
        Candidate { path: path(&name, "address"), text, rank }
    };
    found.into_iter().map(candidate).collect()
}

/// The best of `found` that tells two boards apart. The others go to `passed_over`, those first that 0.1.0, which knew no
/// ranks, would have taken.
fn choose(
    found: Vec<Candidate>,
    believed: fn(&str) -> Result<String, Why>,
    passed_over: &mut Vec<PassedOver>,
) -> Fact<String> {
    let judge = |candidate: &Candidate| {
        let text = candidate.text.as_deref().map_err(Absent::clone)?;
        believed(text).map_err(|why| Absent::new(&candidate.path, why))
    };
    let judged: Vec<_> = found.into_iter().map(|candidate| (judge(&candidate), candidate)).collect();
    let best = judged.iter().filter(|(fact, _)| fact.is_ok()).min_by_key(|(_, candidate)| candidate.rank);
    let best = best.and_then(|(fact, _)| fact.clone().ok());
    let first_path = judged.first().map_or(network::INTERFACES, |(_, candidate)| candidate.path.as_str());
    let mut absent = Err(Absent::new(first_path, Why::NoSuchFile));
    for (fact, candidate) in judged {
        let refused = fact.as_ref().err().cloned();
        let value = fact.clone().or(candidate.text).unwrap_or_default();
        let is_known = best.as_ref() == Some(&value) || passed_over.iter().any(|known| known.value == value);
        if !value.is_empty() && !is_known && passed_over.len() < limits::UNUSED_IDENTITIES {
            passed_over.push(PassedOver { value, refused });
        }
        absent = first_known(absent, || fact);
    }
    best.map_or(absent, Ok)
}

/// SRC-4: every size, also those without pages.
fn hugepages(root: &Root) -> Vec<Hugepages> {
    let names = root.list(HUGEPAGES).unwrap_or_default();
    let sizes = names.iter().filter_map(|name| {
        let kibibytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let pages = root.read_as(&format!("{HUGEPAGES}/{name}/nr_hugepages"), |text| attribute::count(&text)).ok()?;
        Some(Hugepages { page_size_bytes: kibibytes.checked_mul(1024)?, pages })
    });
    let mut sizes: Vec<_> = sizes.collect();
    sizes.sort_unstable_by_key(|size| size.page_size_bytes);
    sizes
}

/// A property at the root of the device tree.
fn device_tree<T>(root: &Root, property: &str, parse: impl Fn(&[u8]) -> Result<T, Why>) -> Fact<T> {
    let read = |directory: &str| {
        let path = format!("{directory}/{property}");
        let bytes = root.read_attribute(&path)?;
        let parsed = if attribute::string(&bytes).is_empty() { Err(Why::Empty) } else { parse(&bytes) };
        parsed.map_err(|why| Absent::new(&path, why))
    };
    let [first, second] = DEVICE_TREES;
    first_known(read(first), || read(second))
}

/// Container engines put an empty directory over `/sys/firmware`. Devices still say that they come from a device tree.
fn device_tree_is_masked(root: &Root) -> bool {
    let [_, tree] = DEVICE_TREES;
    if root.exists(&format!("{tree}/compatible")) || root.exists("/proc/device-tree/compatible") {
        return false;
    }
    let devices = root.list(PLATFORM_DEVICES).unwrap_or_default();
    devices.iter().any(|device| root.has_entry(&format!("{PLATFORM_DEVICES}/{device}"), "of_node"))
}

fn unless_masked<T>(masked: bool, fact: Fact<T>) -> Fact<T> {
    fact.map_err(|absent| if masked && absent.why == Why::NoSuchFile { masked_tree() } else { absent })
}

fn masked_tree() -> Absent {
    let [_, tree] = DEVICE_TREES;
    Absent::new(tree, Why::Masked)
}
