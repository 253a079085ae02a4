//! A Node's heartbeat as one would write it with kube-rs: registers, renews its Lease every ten seconds, sends its
//! status every five minutes, on one thread. It probes nothing and gives up at the first error.
//!
//! `KUBECONFIG=FILE kube-rs NAME [SECONDS PER RENEWAL]`

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: kube-rs NAME")?;
    let period = std::env::args().nth(2).map_or(Ok(10), |seconds| seconds.parse())?;
    let client = kube::Client::try_default().await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    nodes.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": name}}))?).await?;
    let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 4 * period}});
    let mut lease: Lease = leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(period));
    for renewal in 0_u64.. {
        ticks.tick().await;
        let now = Timestamp::now();
        lease.spec.get_or_insert_default().renew_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(now));
        lease = leases.replace(&name, &PostParams::default(), &lease).await?;
        if renewal * period % 300 == 0 {
            let ready = json!({"type": "Ready", "status": "True", "reason": "Posting", "message": "", "lastHeartbeatTime": now});
            let status = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
            nodes.patch_status(&name, &PatchParams::default(), &status).await?;
        }
    }
    Ok(())
}
