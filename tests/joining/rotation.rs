//! A certificate and its successors: nobody notices the change, and each has one request.

use super::agent::Launch;
use super::cluster::{Cluster, Credential, NodeIdentity, Result, wait_until};
use super::requests::{SOON, is_renewal, wait_until_ready};
use super::trials::Case;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longer than two lives of a certificate.
const WATCHED: Duration = Duration::from_secs(90);
/// A Lease is renewed each second, and its duration is four.
const LONGEST_GAP: Duration = Duration::from_millis(2500);

pub fn cases() -> Vec<Case> {
    cases![&[], certificates_of_forty_seconds_follow_each_other_without_a_gap]
}

fn certificates_of_forty_seconds_follow_each_other_without_a_gap(cluster: &Cluster) -> Result<()> {
    cluster.make_joinable()?;
    let node = cluster.node_at(&cluster.api, "renewed", Credential::Ending(Duration::from_secs(30)))?;
    let mut agent = Launch::quick(&node).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["certificate-renewed"], SOON)?;
    let began = Instant::now();
    wait_until("the end of the watch", WATCHED * 2, || {
        agent.check()?;
        if began.elapsed() >= WATCHED { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let all = cluster.audit_of(&node)?;
    let renewals: Vec<u64> = all.iter().filter(|e| is_renewal(e) && e.code == 200).map(|e| e.received_at_us).collect();
    let gap_us = renewals.windows(2).map(|pair| pair[1] - pair[0]).max().ok_or("no renewals")?;
    assert!(gap_us <= LONGEST_GAP.as_micros() as u64, "{gap_us} us without a renewal");
    let asked = requests_of(cluster, &node)?;
    // From the first on each is due after 12 to 16 of its 40 s.
    assert!((5..=8).contains(&asked.len()), "{} requests in {WATCHED:?}", asked.len());
    let names: BTreeSet<&String> = asked.iter().collect();
    assert_eq!(names.len(), asked.len(), "one request for each key: {asked:?}");
    assert!(all.iter().all(|e| e.code != 401), "no request with a certificate that had ended");
    agent.stop()?;
    let folder = node.dir.join("state/identity");
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .map_err(|e| e.to_string())?
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .collect();
    files.sort();
    files.retain(|file| file != "pending.pem");
    assert_eq!(files, ["node.pem", "node.pem.old"]);
    Ok(())
}

/// Names of the requests that the node made, in their order.
fn requests_of(cluster: &Cluster, node: &NodeIdentity) -> Result<Vec<String>> {
    let all = cluster.api.audit(|e| e.user == node.user && e.verb == "create" && e.uri.contains("signingrequests"))?;
    Ok(all.iter().map(|e| e.body["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect())
}
