//! Turns what the agent says of itself into the answer to `nodepulse status`, with what only its shell knows.

use serde_json::{Value, json};

use super::MainLoop;
use crate::io::clock;

impl MainLoop<'_, '_> {
    /// [`crate::agent::Agent::overview`], and in the same object:
    ///
    /// ```text
    /// "next": {"in": SECONDS, "what", "after"}    what the loop waits for, and the failure that it is tried again after
    /// "runs": SECONDS                             since its start
    /// "refused"                                   settings that SIGHUP read and that are not in use, and why
    /// "version"                                   of the program that runs
    /// ```
    pub(super) fn overview(&self) -> String {
        let now = clock::now();
        let mut overview = self.agent.overview(now);
        let next = self.waits.as_ref().map(|(until, because)| {
            json!({ "in": (*until - now.up).as_secs(), "what": because.what, "after": because.after })
        });
        let own = [
            ("next", json!(next)),
            ("runs", json!((now.up - self.began).as_secs())),
            ("refused", json!(self.refused)),
            ("version", json!(env!("CARGO_PKG_VERSION"))),
        ];
        if let Value::Object(overview) = &mut overview {
            overview.extend(own.map(|(key, value)| (key.to_owned(), value)));
        }
        overview.to_string()
    }
}
