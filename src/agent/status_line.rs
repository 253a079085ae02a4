//! Turns what the lanes know into one line that says how the Node fares, for whoever looks at the service.

use super::Agent;

/// How the Node fares; it changes only when that does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusLine {
    /// Registered, or kept from it by something that trying on may cure: nobody need wait for the start any longer.
    pub is_settled: bool,
    /// One line, for people.
    pub text: String,
}

impl Agent {
    /// How the Node fares now.
    pub fn status_line(&self) -> StatusLine {
        let name = &self.shared.node_name;
        if !self.identity.is_joined() {
            let (is_settled, step) = self.identity.joining();
            return StatusLine { is_settled, text: format!("Node {name} is joining: {step}") };
        }
        let (is_settled, text) = match (self.lease.last_failure(), self.status.last_failure()) {
            (_, None) if self.status.lacks_node() => (false, format!("registering Node {name}")),
            (_, Some(why)) if self.status.lacks_node() => (true, format!("Node {name} is not registered: {why}")),
            (Some(why), _) if self.shared.is_lost() => (true, format!("offline: {why}")),
            (Some(why), _) => (true, format!("the Lease of Node {name} is not renewed: {why}")),
            (None, _) => (true, self.reached(name)),
        };
        StatusLine { is_settled, text }
    }

    /// Whether the Node is Ready and will be, as long as this goes on.
    pub fn is_ready(&self) -> bool {
        self.lease.is_held() && self.status.is_ready()
    }

    fn reached(&self, name: &str) -> String {
        let lease = if self.lease.is_held() {
            format!("Lease renewed every {} s", self.shared.settings.lease_renew_period().as_secs())
        } else {
            "no Lease yet".to_owned()
        };
        match self.status.last_failure() {
            Some(why) => format!("Node {name}: {lease}, but its status cannot be sent: {why}"),
            None => format!("Node {name}: {lease}"),
        }
    }
}
