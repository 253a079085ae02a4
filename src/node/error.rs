//! What can be wrong with a board or its settings when a Node is made from them.

use std::fmt;
use std::net::IpAddr;

use crate::config::quantity::Quantity;
use crate::probe::Absent;

/// Why a part of the Node cannot be told. None of these stops the agent, except those of the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeError {
    /// The machine has no name of its own (`(none)`, `localhost`), and no serial number or MAC address to make one from.
    NoName { absent: Absent },
    /// The name cannot be the name of a Node.
    InvalidName { name: String, wrong: &'static str },
    /// A configured address that cannot be used now (ADR-1); `field` as the kubelet says it.
    NodeIp { field: &'static str, ip: IpAddr, wrong: NodeIpProblem },
    /// ADR-7.
    NoAddress { node: String, why: &'static str },
    /// A field of the Node has no source on this board.
    NoFact { field: &'static str, absent: Absent },
    /// ALC-4.
    Reserved { resource: String, reserved: Quantity, capacity: String },
}

/// What is wrong with a configured address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeIpProblem {
    Loopback,
    Multicast,
    LinkLocal,
    Unspecified,
    NotOnThisHost,
}

impl NodeError {
    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            NodeError::NoName { .. } => "node-name-missing",
            NodeError::InvalidName { .. } => "node-name-invalid",
            NodeError::NodeIp { .. } => "node-ip-unusable",
            NodeError::NoAddress { .. } => "node-address-missing",
            NodeError::NoFact { .. } => "fact-absent",
            NodeError::Reserved { .. } => "reserved-above-capacity",
        }
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::NoName { absent } => write!(
                f,
                "this machine's hostname says nothing ({absent}) and it has neither a serial number nor a MAC address that \
                 stays; give it a name with hostnamectl set-hostname NAME, or start with --hostname-override NAME"
            ),
            NodeError::InvalidName { name, wrong } => write!(
                f,
                "{name:?} cannot be the name of a Node: {wrong}; give another one with --hostname-override NAME"
            ),
            NodeError::NodeIp { field, ip, wrong } => write!(f, "failed to validate {field}: {}", wrong.about(*ip)),
            NodeError::NoAddress { node, why } => write!(
                f,
                "can't get ip address of node {node}. error: {why}; the addresses stay as they are, name one with \
                 --node-ip"
            ),
            NodeError::Reserved { resource, reserved, capacity } => write!(
                f,
                "{reserved} of {resource} are reserved (systemReserved, kubeReserved, evictionHard), but there are only \
                 {capacity}: nothing of it is allocatable; reserve less (a kubelet would not start)"
            ),
            NodeError::NoFact { field, absent } => write!(f, "{field}: no source on this board ({absent})"),
        }
    }
}

impl NodeIpProblem {
    /// The kubelet's words.
    fn about(self, ip: IpAddr) -> String {
        match self {
            NodeIpProblem::Loopback => "nodeIP can't be loopback address".to_owned(),
            NodeIpProblem::Multicast => "nodeIP can't be a multicast address".to_owned(),
            NodeIpProblem::LinkLocal => "nodeIP can't be a link-local unicast address".to_owned(),
            NodeIpProblem::Unspecified => "nodeIP can't be an all zeros address".to_owned(),
            NodeIpProblem::NotOnThisHost => {
                format!("node IP: \"{ip}\" not found in the host's network interfaces; correct --node-ip")
            }
        }
    }
}

impl std::error::Error for NodeError {}
