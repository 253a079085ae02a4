//! Turns what happened to the Node into bodies of Event requests (EVT-1..5, D6).

use serde_json::{Value, json};

use crate::time::Wall;

/// Events about Nodes, which have no namespace, live here (EVT-1).
pub const NAMESPACE: &str = "default";
/// `source.component`: nobody may take us for a kubelet.
pub const COMPONENT: &str = "nodepulse";

/// An event about the Node, not yet stamped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent {
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl NodeEvent {
    /// The wording of all events about a condition or about scheduling.
    pub fn status_is_now(node: &str, reason: &'static str) -> NodeEvent {
        NodeEvent { warning: false, reason, message: format!("Node {node} status is now: {reason}") }
    }
}

/// One Event of the API, as it is or will be on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `metadata.name`, from [`event_name`].
    pub name: String,
    pub node: String,
    /// `involvedObject.uid`: the Node's uid, or its name before the uid is known: `kubectl describe node` shows
    /// both, and nothing else (D6).
    pub uid: String,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    pub first_seen: Wall,
    pub last_seen: Wall,
    pub count: u32,
}

impl Event {
    /// A first sighting at `at`; `number`: of its name (EVT-2), `node_uid`: empty until the server told it.
    pub fn new(node: &str, node_uid: &str, what: &NodeEvent, at: Wall, number: u64) -> Event {
        Event {
            name: event_name(node, number),
            node: node.to_owned(),
            uid: if node_uid.is_empty() { node.to_owned() } else { node_uid.to_owned() },
            warning: what.warning,
            reason: what.reason.to_owned(),
            message: what.message.clone(),
            first_seen: at,
            last_seen: at,
            count: 1,
        }
    }

    /// Whether `other` is this event again (EVT-5).
    pub fn is_repeated_by(&self, other: &Event) -> bool {
        (self.warning, &self.reason, &self.message) == (other.warning, &other.reason, &other.message)
    }

    /// This event, with one more sighting that `other` tells of.
    pub fn again(&self, other: &Event) -> Event {
        let count = self.count.saturating_add(1);
        let last_seen = self.last_seen.max(other.last_seen);
        Event { message: other.message.clone(), count, last_seen, ..self.clone() }
    }

    /// Body of the POST (EVT-4).
    pub fn create_body(&self) -> String {
        let body: Value = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": self.name, "namespace": NAMESPACE },
            "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.uid },
            "reason": self.reason,
            "message": self.message,
            "source": { "component": COMPONENT, "host": self.node },
            "firstTimestamp": self.first_seen.to_seconds_stamp(),
            "lastTimestamp": self.last_seen.to_seconds_stamp(),
            "count": self.count,
            "type": if self.warning { "Warning" } else { "Normal" },
            "eventTime": null,
            "reportingComponent": COMPONENT,
            "reportingInstance": self.node,
        });
        body.to_string()
    }

    /// Body of the strategic merge patch that counts a repeat (EVT-5).
    pub fn repeat_body(&self) -> String {
        let last_seen = self.last_seen.to_seconds_stamp();
        json!({ "count": self.count, "lastTimestamp": last_seen, "message": self.message }).to_string()
    }
}

/// The number of an event that happened at `at`: the nanoseconds since 1970, as a kubelet has it. `place` tells those of one
/// microsecond apart.
pub fn number_at(at: Wall, place: u16) -> u64 {
    let unix_ns = i128::from(at.unix_us()) * 1000 + i128::from(place % 1000);
    u64::try_from(unix_ns).unwrap_or(0)
}

/// `NODE.HEX`, sixteen digits of lower-case hex (EVT-2).
pub fn event_name(node: &str, number: u64) -> String {
    format!("{node}.{number:016x}")
}

/// FNV-1a: the same for the same bytes, always and everywhere; not against somebody who looks for collisions.
pub fn digest(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Wall = Wall::from_unix_seconds(1_767_225_600);

    fn starting() -> NodeEvent {
        NodeEvent { warning: false, reason: "Starting", message: "Starting kubelet.".to_owned() }
    }

    #[test]
    fn the_body_is_the_kubelets_but_for_component_and_uid() {
        let mut expected: Value = serde_json::from_str(
            r#"{"metadata":{"name":"n1.18867251edfa0000","namespace":"default"},
            "involvedObject":{"kind":"Node","name":"n1","apiVersion":"v1"},"reason":"Starting",
            "message":"Starting kubelet.","source":{"component":"kubelet","host":"n1"},
            "firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T00:00:00Z","count":1,
            "type":"Normal","eventTime":null,"reportingComponent":"kubelet","reportingInstance":"n1"}"#,
        )
        .unwrap();
        expected["apiVersion"] = json!("v1");
        expected["kind"] = json!("Event");
        expected["involvedObject"]["uid"] = json!("u-1");
        expected["source"]["component"] = json!("nodepulse");
        expected["reportingComponent"] = json!("nodepulse");
        let event = Event::new("n1", "u-1", &starting(), AT, number_at(AT, 0));
        assert_eq!(serde_json::from_str::<Value>(&event.create_body()).unwrap(), expected);
    }

    #[test]
    fn the_name_of_the_node_stands_in_until_its_uid_is_known() {
        let body = Event::new("n1", "", &starting(), AT, 7).create_body();
        assert!(body.contains(r#""uid":"n1""#), "{body}");
    }

    #[test]
    fn a_repeat_patches_count_time_and_message_only() {
        let at = |what: &NodeEvent, at| Event::new("n1", "u-1", what, at, 7);
        let event = at(&starting(), AT);
        assert!(event.is_repeated_by(&event));
        assert!(!event.is_repeated_by(&at(&NodeEvent { warning: true, ..starting() }, AT)));
        let event = event.again(&at(&starting(), Wall::from_unix_seconds(1_767_225_660)));
        let expected = r#"{"count":2,"lastTimestamp":"2026-01-01T00:01:00Z","message":"Starting kubelet."}"#;
        assert_eq!(event.repeat_body(), expected);
        let event = event.again(&at(&starting(), AT));
        assert!(event.repeat_body().contains("00:01:00Z"), "a clock stepped back must not take the last sighting back");
    }

    #[test]
    fn events_of_the_same_microsecond_have_different_names() {
        let name = |place| Event::new("n1", "", &starting(), AT, number_at(AT, place)).name;
        assert_eq!(name(0), "n1.18867251edfa0000");
        assert_ne!(name(0), name(1));
    }
}
