//! Turns the server's version into the one we claim, and the machine's into `nodeInfo` (VER-*, GOR-1).

use super::board::{Board, Update};
use super::event::NodeEvent;
use super::identity;
use super::object::{Node, Swap};
use super::remembered::Remembered;

/// The newest Kubernetes this agent was tested with: what it claims is never above.
pub const TESTED: (u32, u32, u32) = (1, 36, 3);
pub const OPERATING_SYSTEM: &str = "linux";
/// Where the settings name no runtime.
const NO_RUNTIME: &str = "none://Unknown";

/// `nodeInfo.kubeletVersion`: `vX.Y.Z-nodepulse.VERSION`, where X.Y.Z is the server's own version, because a kubelet
/// may not be newer than its server, but never above [`TESTED`]. A server whose version is unknown or not `vX.Y.Z...`
/// counts as [`TESTED`].
pub fn kubelet_version(server_git_version: Option<&str>) -> String {
    let (major, minor, patch) = server_git_version.and_then(parse).map_or(TESTED, |server| server.min(TESTED));
    format!("v{major}.{minor}.{patch}-nodepulse.{}", env!("CARGO_PKG_VERSION"))
}

fn parse(git_version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = git_version.strip_prefix('v')?.splitn(3, '.');
    let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let patch = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    Some((number(major)?, number(minor)?, number(patch)?))
}

/// Whether a kubelet wrote this Node last: a version, and not ours.
pub fn is_kubelets(node: &Node) -> bool {
    let version = &node.status.node_info.kubelet_version;
    !version.is_empty() && !version.contains("-nodepulse.")
}

/// `nodeInfo`, and the event of a reboot (MI-5). What cannot be read leaves its field as it is (VER-3), but for the ids of the
/// machine. An unknown boot id is no reboot, and leaves the stored one for the next run to compare with.
pub(super) fn set(update: &mut Update, board: &Board, remembered: &mut Remembered) {
    let machine = &board.facts.machine;
    let mut info = std::mem::take(&mut update.node.status.node_info);
    let machine_id = identity::machine_id(machine).map(|(id, _)| id);
    info.machine_id = update.known(&machine_id, "status.nodeInfo.machineID").cloned().unwrap_or_default();
    info.system_uuid = update.known(&machine.system_uuid, "status.nodeInfo.systemUUID").cloned().unwrap_or_default();
    if let Some(boot_id) = update.known(&machine.boot_id, "status.nodeInfo.bootID") {
        if !info.boot_id.is_empty() && info.boot_id != *boot_id && !remembered.reboot_reported {
            remembered.reboot_reported = true;
            let message = format!("Node {} has been rebooted, boot id: {boot_id}", board.name);
            update.events.push(NodeEvent { warning: true, reason: "Rebooted", message });
        }
        info.boot_id.clone_from(boot_id);
    }
    if let Some(bytes) = machine.swap_total_bytes.as_ref().ok().filter(|bytes| **bytes != 0) {
        info.swap = Swap { capacity_bytes: i64::try_from(*bytes).ok() };
    }
    for (field, fact, name) in [
        (&mut info.kernel_version, &machine.kernel_release, "status.nodeInfo.kernelVersion"),
        (&mut info.os_image, &machine.os_image, "status.nodeInfo.osImage"),
        (&mut info.architecture, &machine.architecture, "status.nodeInfo.architecture"),
    ] {
        if let Some(text) = update.known(fact, name) {
            field.clone_from(text);
        }
    }
    let runtime = board.facts.readings.container_runtime.as_ref();
    info.container_runtime_version = runtime.map_or(NO_RUNTIME, |runtime| &runtime.version).to_owned();
    info.kubelet_version = board.kubelet_version.to_owned();
    info.kube_proxy_version = String::new();
    info.operating_system = OPERATING_SYSTEM.to_owned();
    update.node.status.node_info = info;
    // RTH-1.
    update.node.status.runtime_handlers = runtime.map(|runtime| runtime.handlers.clone()).unwrap_or_default();
    update.node.status.features = runtime.and_then(|runtime| runtime.features);
    // IMG-1.
    update.node.status.images = runtime.map(|runtime| runtime.images.clone()).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::node::tests::samples::{self, absent};
    use crate::probe::Facts;

    fn claimed(server: &str) -> String {
        let version = kubelet_version(Some(server));
        version.strip_suffix(concat!("-nodepulse.", env!("CARGO_PKG_VERSION"))).unwrap().to_owned()
    }

    #[test]
    fn the_version_follows_the_server_but_never_above_what_was_tested() {
        for (server, expected) in [
            ("v1.33.2", "v1.33.2"),
            ("v1.31.4+k3s1", "v1.31.4"),
            ("v1.30.14-eks-ab12", "v1.30.14"),
            ("v1.36.0-rc.1", "v1.36.0"),
            ("v1.36.3", "v1.36.3"),
            ("v1.36.4", "v1.36.3"),
            ("v1.37.0-beta.1", "v1.36.3"),
            ("v2.0.0", "v1.36.3"),
            ("v1.9.11", "v1.9.11"),
        ] {
            assert_eq!(claimed(server), expected, "{server}");
        }
    }

    #[test]
    fn a_server_that_hides_its_version_counts_as_the_tested_one() {
        for server in ["", "v", "1.30.0", "v1.30", "v1.+30.0", "v1.30.", "v1.99999999999.0", "garbage", "v-1.2.3"] {
            assert_eq!(claimed(server), "v1.36.3", "{server:?}");
        }
        assert_eq!(kubelet_version(None), kubelet_version(Some("v1.36.3")));
    }

    fn run_on(node: Node, settings: &Settings, facts: &Facts, remembered: &mut Remembered) -> Update {
        let mut update = Update::of(node);
        set(&mut update, &samples::board(settings, facts, samples::LATER), remembered);
        update
    }

    fn run(settings: &Settings, facts: &Facts) -> Update {
        run_on(Node::default(), settings, facts, &mut Remembered::default())
    }

    #[test]
    fn the_ids_of_the_machine_are_in_node_info() {
        let info = run(&samples::settings(), &samples::facts()).node.status.node_info;
        assert_eq!(info.machine_id, "0123456789abcdef0123456789abcdef");
        assert_eq!(info.system_uuid, "1b4e28ba-2fa1-11d2-883f-0016d3cca427");
        assert_eq!(info.boot_id, "boot-1");
        assert_eq!(info.swap, Swap::default());
    }

    #[test]
    fn a_reboot_is_reported_once_per_process() {
        let (settings, mut facts) = (samples::settings(), samples::facts());
        let mut remembered = Remembered::default();
        facts.machine.boot_id = absent();
        let mut stored = Node::default();
        stored.status.node_info.boot_id = "boot-0".to_owned();
        let outcome = run_on(stored.clone(), &settings, &facts, &mut remembered);
        assert!(outcome.events.is_empty(), "an unknown boot id is no reboot");
        assert_eq!(outcome.node.status.node_info.boot_id, "boot-0");
        facts.machine.boot_id = Ok("boot-1".to_owned());
        let outcome = run_on(stored.clone(), &settings, &facts, &mut remembered);
        let message = "Node edge-1 has been rebooted, boot id: boot-1".to_owned();
        assert_eq!(outcome.events, [NodeEvent { warning: true, reason: "Rebooted", message }]);
        assert_eq!(outcome.node.status.node_info.boot_id, "boot-1");
        assert!(run_on(stored, &settings, &facts, &mut remembered).events.is_empty(), "the PATCH may have failed");
        assert!(run(&settings, &facts).events.is_empty(), "a new Node has no boot id to differ from");
    }

    #[test]
    fn swap_is_reported_only_where_there_is_some() {
        let (settings, mut facts) = (samples::settings(), samples::facts());
        facts.machine.swap_total_bytes = Ok(20 << 30);
        let node = run(&settings, &facts).node;
        assert_eq!(node.status.node_info.swap, Swap { capacity_bytes: Some(20 << 30) });
        facts.machine.swap_total_bytes = Ok(0);
        let kept = run_on(node, &settings, &facts, &mut Remembered::default()).node;
        assert_eq!(kept.status.node_info.swap, Swap { capacity_bytes: Some(20 << 30) }, "MI-8: never cleared");
    }
}
