//! x
#![allow(clippy::disallowed_methods)]
mod reaction;
mod record;
use super::cluster::{Cluster, Result};
use super::trials::{Case, Need};
pub fn cases() -> Vec<Case> {
    vec![Case { name: "dump", needs: &[Need::Root, Need::Kubelet], run: dump }]
}
pub fn print_reports() {}
fn dump(c: &Cluster) -> Result<()> {
    let r = record::recording(c)?;
    for s in [&r.kubelet, &r.nodepulse, &r.podless] {
        let reqs: Vec<_> = s.requests.iter().map(|e| serde_json::json!({"at":e.received_at_us,"verb":e.verb,"uri":e.uri,"code":e.code,"body":e.body,"ua":e.user_agent})).collect();
        std::fs::write(
            format!("/tmp/side-{}.json", s.name),
            serde_json::to_string_pretty(
                &serde_json::json!({"node":s.node,"lease":s.lease,"events":s.events,"requests":reqs}),
            )
            .unwrap(),
        )
        .unwrap();
    }
    Ok(())
}
