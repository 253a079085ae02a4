//! Turns machine facts and reservations into capacity and allocatable (MI-*, ALC-*).

use super::board::{Board, Update};
use super::error::NodeError;
use super::extended;
use super::object::ResourceList;
use super::pressure::threshold_value;
use super::remembered::Remembered;
use super::rules::REQUIRED;
use crate::config::labels;
use crate::config::quantity::Quantity;
use crate::config::settings::{Reserved, Settings, Signal};
use crate::probe::facts::Hugepages;

pub(super) const HUGEPAGES: &str = "hugepages-";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Writes capacity and allocatable in place: resources of others stay, with allocatable equal to capacity (MI-1).
pub(super) fn set(update: &mut Update, board: &Board, remembered: &mut Remembered) {
    let mut capacity = std::mem::take(&mut update.node.status.capacity);
    set_capacity(&mut capacity, board, remembered, update);
    let mut allocatable = std::mem::take(&mut update.node.status.allocatable);
    let reserved = reservations(board.settings, &capacity);
    update.problems.extend(reserved.iter().filter_map(|(name, reserved)| above_capacity(name, *reserved, &capacity)));
    set_allocatable(&mut allocatable, &capacity, &reserved);
    extended::set_allocatable(&mut allocatable, &board.facts.readings);
    update.node.status.capacity = capacity;
    update.node.status.allocatable = allocatable;
}

fn set_capacity(capacity: &mut ResourceList, board: &Board, remembered: &mut Remembered, update: &mut Update) {
    let (machine, settings) = (&board.facts.machine, board.settings);
    // What cannot be read stays what it was, and is missing where it never was anything (RDY-3): zero would be a size.
    let stored_cpus = capacity.get("cpu").and_then(|stored| stored.parse().ok());
    let cpu_count = update.known(&machine.cpu_count, "status.capacity.cpu").copied().or(stored_cpus);
    let mut put = |name: &str, quantity: Quantity| capacity.insert(name.to_owned(), quantity.to_string());
    if let Some(count) = cpu_count {
        put("cpu", Quantity::from_count(u64::from(count)));
    }
    put("pods", Quantity::from_count(pods(settings, cpu_count)));
    if let Some(bytes) = update.known(&machine.memory_total_bytes, "status.capacity.memory") {
        put("memory", Quantity::from_bytes(*bytes));
    }
    for size in &machine.hugepages {
        put(&hugepages_name(size), Quantity::from_bytes(size.page_size_bytes.saturating_mul(size.pages)));
    }
    if settings.local_storage_capacity_isolation {
        let read = &board.facts.readings.node_file_system;
        let bytes = remembered
            .disk_bytes
            .or_else(|| update.known(read, "status.capacity.ephemeral-storage").map(|system| system.capacity_bytes));
        if let Some(bytes) = bytes {
            put(EPHEMERAL_STORAGE, Quantity::from_bytes(bytes));
        }
    }
    let readings = &board.facts.readings;
    extended::set(capacity, readings, update);
    for name in REQUIRED.into_iter().chain(readings.extended_resources.keys().map(String::as_str)) {
        let known = capacity.get(name).or_else(|| remembered.sizes.get(name)).cloned();
        if let Some(size) = known {
            capacity.insert(name.to_owned(), size.clone());
            remembered.sizes.insert(name.to_owned(), size);
        }
    }
}

/// `hugepages-2Mi`.
pub(super) fn hugepages_name(size: &Hugepages) -> String {
    format!("{HUGEPAGES}{}", Quantity::from_bytes(size.page_size_bytes))
}

/// MI-4, MI-2 and D8.
fn pods(settings: &Settings, cpu_count: Option<u32>) -> u64 {
    let per_core = cpu_count.map_or(0, |cores| u64::from(cores) * u64::from(settings.pods_per_core));
    match (settings.podless, per_core) {
        (true, _) => 0,
        (false, 0) => u64::from(settings.max_pods),
        (false, per_core) => per_core.min(u64::from(settings.max_pods)),
    }
}

/// ALC-1: what settings reserve, and what hard eviction keeps free of memory and of the node file system. There is room
/// for all that can be reserved.
fn reservations(settings: &Settings, capacity: &ResourceList) -> Reserved {
    let sum = |all: &Reserved, name: &str, more: Quantity| all.get(name).map_or(more, |before| before.plus(more));
    let mut reserved = settings.system_reserved.clone();
    for (name, more) in &settings.kube_reserved {
        let _ = reserved.insert(name, sum(&reserved, name, *more));
    }
    if let Some(cores) = settings.reserved_system_cpus {
        let _ = reserved.insert("cpu", Quantity::from_count(u64::from(cores)));
    }
    let kept_free = [(Signal::MemoryAvailable, "memory"), (Signal::NodefsAvailable, EPHEMERAL_STORAGE)];
    for (signal, name) in kept_free {
        let total = capacity.get(name).and_then(|text| Quantity::parse(text).ok()).map(|total| total.value());
        let kept = settings.eviction_hard.get(&signal).and_then(|threshold| threshold_value(*threshold, total));
        let Some(kept) = kept.and_then(|bytes| u64::try_from(bytes).ok()).map(Quantity::from_bytes) else { continue };
        let _ = reserved.insert(name, sum(&reserved, name, kept));
    }
    reserved
}

/// ALC-4; a capacity that nobody could read is another problem.
fn above_capacity(name: &str, reserved: Quantity, capacity: &ResourceList) -> Option<NodeError> {
    let text = capacity.get(name)?;
    let total = Quantity::parse(text).ok().filter(|total| *total < reserved && total.value() > 0)?;
    let text = format!(
        "{reserved} of {name} are reserved (systemReserved, kubeReserved, evictionHard), but there are only {total}: \
         nothing of it is allocatable; reserve less (a kubelet would not start)"
    );
    Some(NodeError::new("reserved-above-capacity", text))
}

/// MI-9. What cannot be read as a quantity was put there by others and is repeated as it is.
fn set_allocatable(allocatable: &mut ResourceList, capacity: &ResourceList, reservations: &Reserved) {
    allocatable.retain(|name, _| capacity.contains_key(name) || labels::check_extended_resource(name).is_err());
    for (name, text) in capacity {
        let reserved = reservations.get(name.as_str()).copied().unwrap_or(Quantity::from_count(0));
        let left = Quantity::parse(text).map_or_else(|_| text.clone(), |all| all.minus_floored(reserved).to_string());
        allocatable.insert(name.clone(), left);
    }
    let Some(mut memory) = allocatable.get("memory").and_then(|text| Quantity::parse(text).ok()) else { return };
    for (_, pages) in capacity.iter().filter(|(name, _)| name.starts_with(HUGEPAGES)) {
        memory = Quantity::parse(pages).map_or(memory, |pages| memory.minus_floored(pages));
    }
    allocatable.insert("memory".to_owned(), memory.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Threshold;
    use crate::node::object::Node;
    use crate::node::tests::samples::{self, absent};
    use crate::probe::Facts;
    use crate::probe::facts::FileSystem;

    /// Two cores and 1024 bytes, nothing reserved by eviction: the machine of the upstream tests.
    fn small() -> (Settings, Facts) {
        let mut settings = samples::settings();
        settings.eviction_hard.clear();
        let mut facts = samples::facts();
        facts.machine.cpu_count = Ok(2);
        facts.machine.memory_total_bytes = Ok(1024);
        facts.machine.hugepages.clear();
        facts.readings.node_file_system = absent();
        (settings, facts)
    }

    fn run_on(node: Node, settings: &Settings, facts: &Facts, remembered: &mut Remembered) -> Update {
        let mut update = Update::of(node);
        set(&mut update, &samples::board(settings, facts, samples::LATER), remembered);
        update
    }

    fn run(settings: &Settings, facts: &Facts) -> Update {
        run_on(Node::default(), settings, facts, &mut Remembered::default())
    }

    fn text(list: &ResourceList) -> String {
        let pairs: Vec<String> = list.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join(" ")
    }

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn capacity_is_what_the_machine_has_and_allocatable_the_same_where_nothing_is_reserved() {
        let (settings, facts) = small();
        let outcome = run(&settings, &facts);
        assert_eq!(text(&outcome.node.status.capacity), "cpu=2 memory=1Ki pods=110");
        assert_eq!(text(&outcome.node.status.allocatable), "cpu=2 memory=1Ki pods=110");
    }

    #[test]
    fn pods_are_the_smaller_of_per_core_and_maximum_and_none_when_podless() {
        for (pods_per_core, max_pods, podless, expected) in
            [(4, 10, false, 8), (6, 10, false, 10), (0, 10, false, 10), (4, 10, true, 0)]
        {
            let settings = Settings { pods_per_core, max_pods, podless, ..Settings::default() };
            assert_eq!(pods(&settings, Some(2)), expected);
        }
        assert_eq!(pods(&Settings { pods_per_core: 4, podless: false, ..Settings::default() }, None), 110);
        assert_eq!(
            text(&run(&Settings::default(), &samples::facts()).node.status.capacity).split(' ').next_back(),
            Some("pods=0")
        );
    }

    #[test]
    fn allocatable_is_capacity_minus_reservations() {
        let (mut settings, facts) = small();
        for (name, amount) in [("cpu", "1m"), ("memory", "1"), ("pods", "1"), ("foo", "1")] {
            settings.system_reserved.insert(name, quantity(amount)).unwrap();
        }
        let outcome = run(&settings, &facts);
        assert_eq!(text(&outcome.node.status.allocatable), "cpu=1999m memory=1023 pods=109");
        settings.kube_reserved.insert("cpu", quantity("250m")).unwrap();
        assert_eq!(text(&run(&settings, &facts).node.status.allocatable), "cpu=1749m memory=1023 pods=109");
        settings.reserved_system_cpus = Some(1);
        assert_eq!(text(&run(&settings, &facts).node.status.allocatable), "cpu=1 memory=1023 pods=109");
    }

    #[test]
    fn a_reservation_larger_than_the_machine_leaves_nothing_of_that_resource_alone() {
        let (mut settings, facts) = small();
        settings.kube_reserved.insert("cpu", quantity("40")).unwrap();
        let outcome = run(&settings, &facts);
        assert_eq!(text(&outcome.node.status.allocatable), "cpu=0 memory=1Ki pods=110");
        let told: Vec<String> = outcome.problems.iter().map(ToString::to_string).collect();
        assert!(
            told.iter().any(|text| text.starts_with("40 of cpu are reserved (") && text.contains("only 2:")),
            "{told:?}"
        );
        settings.kube_reserved.insert("cpu", quantity("2")).unwrap();
        let words: Vec<&str> = run(&settings, &facts).problems.iter().map(NodeError::word).collect();
        assert!(!words.contains(&"reserved-above-capacity"), "exactly all of it is no more than there is: {words:?}");
    }

    #[test]
    fn hard_eviction_thresholds_are_kept_free() {
        let outcome = run(&samples::settings(), &samples::facts());
        assert_eq!(
            text(&outcome.node.status.capacity),
            "cpu=4 ephemeral-storage=104846316Ki hugepages-2Mi=0 memory=16265484Ki pods=110"
        );
        assert_eq!(
            text(&outcome.node.status.allocatable),
            "cpu=4 ephemeral-storage=96626364666 hugepages-2Mi=0 memory=16163084Ki pods=110"
        );
        let (mut settings, mut facts) = (samples::settings(), samples::facts());
        settings.eviction_hard.insert(Signal::MemoryAvailable, Threshold::Quantity(1_000_000_000)).unwrap();
        let memory = |outcome: &Update| outcome.node.status.allocatable["memory"].clone();
        assert_eq!(memory(&run(&settings, &facts)), "15655855616");
        facts.machine.memory_total_bytes = Ok(426_068 * 1024);
        let small_board = run(&samples::settings(), &facts);
        assert_eq!(memory(&small_board), (426_068 * 1024 - 43_629_363).to_string());
    }

    #[test]
    fn memory_of_hugepages_is_not_allocatable_twice_and_never_below_zero() {
        let (settings, mut facts) = small();
        facts.machine.hugepages = vec![Hugepages { page_size_bytes: 512, pages: 1 }];
        let outcome = run(&settings, &facts);
        assert_eq!(text(&outcome.node.status.allocatable), "cpu=2 hugepages-512=512 memory=512 pods=110");
        facts.machine.hugepages = vec![Hugepages { page_size_bytes: 1 << 30, pages: 2 }];
        let outcome = run(&settings, &facts);
        assert_eq!(text(&outcome.node.status.capacity), "cpu=2 hugepages-1Gi=2Gi memory=1Ki pods=110");
        assert_eq!(text(&outcome.node.status.allocatable), "cpu=2 hugepages-1Gi=2Gi memory=0 pods=110");
    }

    #[test]
    fn resources_of_others_stay_and_become_allocatable_and_negative_ones_become_zero() {
        let (settings, facts) = small();
        let mut node = Node::default();
        let list = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        node.status.capacity = list(&[("vendor.example/dev", "3"), ("vendor.example/owed", "-1"), ("odd", "many")]);
        node.status.allocatable = list(&[("vendor.example/gone", "1"), ("storage", "1")]);
        let outcome = run_on(node, &settings, &facts, &mut Remembered::default());
        assert_eq!(
            text(&outcome.node.status.capacity),
            "cpu=2 memory=1Ki odd=many pods=110 vendor.example/dev=3 vendor.example/owed=-1"
        );
        assert_eq!(
            text(&outcome.node.status.allocatable),
            "cpu=2 memory=1Ki odd=many pods=110 storage=1 vendor.example/dev=3 vendor.example/owed=0"
        );
    }

    #[test]
    fn what_is_unknown_of_the_machine_stays_what_it_was_and_never_becomes_zero() {
        let (mut settings, mut facts) = small();
        settings.pods_per_core = 1;
        let stored = run(&settings, &facts).node;
        facts.machine.cpu_count = absent();
        facts.machine.memory_total_bytes = absent();
        let outcome = run_on(stored, &settings, &facts, &mut Remembered::default());
        assert_eq!(text(&outcome.node.status.capacity), "cpu=2 memory=1Ki pods=2");
        assert_eq!(text(&outcome.node.status.allocatable), "cpu=2 memory=1Ki pods=2");
        let mut remembered = Remembered { sizes: outcome.node.status.capacity, ..Remembered::default() };
        let anew = run_on(Node::default(), &settings, &facts, &mut remembered);
        assert_eq!(text(&anew.node.status.capacity), "cpu=2 memory=1Ki pods=110", "a Node that somebody made anew");
        let outcome = run(&settings, &facts);
        assert_eq!(text(&outcome.node.status.capacity), "pods=110");
        assert_eq!(text(&outcome.node.status.allocatable), "pods=110");
        let said: Vec<String> = outcome.problems.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("status.capacity.cpu: "), "{said:?}");
    }

    #[test]
    fn the_file_system_is_sized_once_per_process() {
        let (mut settings, mut facts) = small();
        let mut remembered = Remembered::default();
        let sized = |bytes| FileSystem {
            capacity_bytes: bytes,
            available_bytes: bytes,
            inodes: 0,
            inodes_free: 0,
            read_only: false,
        };
        facts.readings.node_file_system = Ok(sized(5000));
        let node = run_on(Node::default(), &settings, &facts, &mut remembered).node;
        assert_eq!(node.status.capacity["ephemeral-storage"], "5000");
        remembered.disk_bytes = Some(5000);
        facts.readings.node_file_system = Ok(sized(4000));
        let node = run_on(node, &settings, &facts, &mut remembered).node;
        assert_eq!(node.status.capacity["ephemeral-storage"], "5000");
        settings.local_storage_capacity_isolation = false;
        assert_eq!(text(&run(&settings, &facts).node.status.capacity), "cpu=2 memory=1Ki pods=110");
    }
}
