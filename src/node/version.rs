//! Turns the server's version into the one we claim, and the machine's into `nodeInfo` (VER-*, GOR-1).

use super::board::Board;
use super::error::NodeError;
use super::object::Node;
use crate::probe::Fact;

/// The newest Kubernetes this agent was tested with: what it claims is never above.
pub const TESTED: (u32, u32, u32) = (1, 36, 3);
pub const OPERATING_SYSTEM: &str = "linux";
const CONTAINER_RUNTIME: &str = "none://Unknown";

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

pub(super) fn set(node: &mut Node, board: &Board, problems: &mut Vec<NodeError>) {
    let (machine, info) = (&board.facts.machine, &mut node.status.node_info);
    keep(&mut info.kernel_version, &machine.kernel_release, "status.nodeInfo.kernelVersion", problems);
    keep(&mut info.os_image, &machine.os_image, "status.nodeInfo.osImage", problems);
    info.container_runtime_version = CONTAINER_RUNTIME.to_owned();
    info.kubelet_version = board.kubelet_version.to_owned();
    info.kube_proxy_version = String::new();
    info.operating_system = OPERATING_SYSTEM.to_owned();
    keep(&mut info.architecture, &machine.architecture, "status.nodeInfo.architecture", problems);
}

/// VER-3: what cannot be read leaves the field as it is.
fn keep(field: &mut String, fact: &Fact<String>, name: &'static str, problems: &mut Vec<NodeError>) {
    match fact {
        Ok(text) => field.clone_from(text),
        Err(absent) => problems.push(NodeError::NoFact { field: name, absent: absent.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
