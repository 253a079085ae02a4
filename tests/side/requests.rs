//! Turns the audit log of the first half minute into which requests came, how often, in which order and how far apart.

use super::super::cluster::{AuditEntry, Cluster, Result};
use super::super::trials::Case;
use super::differences::Leaves;
use super::record::{Seen, recording};
use super::table::{Row, judge, row, sometimes};

const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const EVENTS: &str = "/api/v1/namespaces/default/events";

const NO_PODS: &str = "no container runtime, so no pods, no volumes, no devices";
const READ: &str = "D4: what the controllers write on a new Node is read as often as the watch tells of it";
const EARLY: &str = "D2: the Lease comes with the Node, whose uid is in the answer to its creation";
const PATCHED: &str =
    "D3: a PATCH of renewTime alone: a third of the bytes, no conflicts, and no words about time-outs";
const OWN: &str = "D14: an Audit-ID of its own for each connection, by which an answer is known to be the server's";
const TOLD_ONCE: &str = "a kubelet also builds its Node to ask itself about pods, and tells of each; once is true";

const REQUESTS: &[Row] = &[
    row("get /version 200", "-", "1", "VER-2: kubeletVersion follows the server's, which is asked once a day"),
    row("user agent", "kubelet/*", "nodepulse/*", "TR-4: a client with a name of its own"),
    row("characters of a renewal's Audit-ID", "36", "12", OWN),
    // A kubelet on a busy machine may be as late with its first event; ours waits for the disk, its first patch does not.
    sometimes(
        "order of the Node",
        "the first event, the Node, a report",
        "the Node, the first event, a report|the Node, a report, the first event",
        "ST-2: what has a stamp waits for the first answer, which says what time it is",
    ),
    row("get /api/v1/nodes/NODE 404", "*", "-", NO_PODS),
    row("get /api/v1/nodes/NODE 200", "*", "-", NO_PODS),
    row("get /api/v1/nodes/NODE?timeout=10s 404", "1", "-", EARLY),
    sometimes("get /api/v1/nodes/NODE?timeout=10s 200", "*", "-|1|2|3", READ),
    row("patch /api/v1/nodes/NODE 200", "-", "1", "D3: managedFields go: half the bytes of each later answer"),
    row("get LEASES/NODE?timeout=10s 404", "2", "1", EARLY),
    row("seconds from Node to Lease", "9|10|11", "0|1", EARLY),
    row("patch LEASES/NODE 200", "-", "3", PATCHED),
    row("update LEASES/NODE?timeout=10s 200", "2", "-", PATCHED),
    // A CIDR that comes before the first report needs none of its own; a kubelet that is Ready later sends one more.
    sometimes("patch /api/v1/nodes/NODE/status?timeout=10s 200", "1|2|3", "1|2", "UPD-1, FST-4: who was faster"),
    row("create EVENTS 201", "5|6|7|8", "4", "see the table of events"),
    row("patch EVENTS/NODE.NANOSECONDS 200", "*", "-", TOLD_ONCE),
    row("*csinodes*", "*", "-", NO_PODS),
    row("*resourceslices*", "*", "-", NO_PODS),
    row("watch /apis/storage.k8s.io/v1/csidrivers 200", "*", "-", NO_PODS),
    row("watch /apis/node.k8s.io/v1/runtimeclasses 200", "*", "-", NO_PODS),
    row("watch /api/v1/pods 200", "*", "-", NO_PODS),
    row("watch /api/v1/services 200", "*", "-", NO_PODS),
];

pub fn cases() -> Vec<Case> {
    cases![the_first_requests_are_the_kubelets,]
}

fn the_first_requests_are_the_kubelets(cluster: &Cluster) -> Result<()> {
    let record = recording(cluster)?;
    judge("Requests", &requests(&record.kubelet)?, &requests(&record.nodepulse)?, REQUESTS)
}

fn requests(seen: &Seen) -> Result<Leaves> {
    let mut all = Leaves::new();
    for entry in &seen.requests {
        let count = all.entry(kind(seen, entry)).or_insert_with(|| "0".to_owned());
        *count = (count.parse::<u32>().unwrap_or(0) + 1).to_string();
    }
    let agent = seen.requests.first().map(|entry| entry.user_agent.clone());
    all.insert("user agent".to_owned(), agent.ok_or_else(|| format!("{} asked for nothing", seen.name))?);
    let [event, node, status] = [
        Step { what: "the first event", verb: "create", path: EVENTS },
        Step { what: "the Node", verb: "create", path: NODES },
        Step { what: "a report", verb: "patch", path: NODES },
    ];
    let look = Step { what: "a look for the Lease", verb: "get", path: LEASES };
    let lease = Step { what: "the Lease", verb: "create", path: LEASES };
    all.insert("order of the Node".to_owned(), order(seen, &[&event, &node, &status]));
    all.insert("order of the Lease".to_owned(), order(seen, &[&node, &lease]));
    all.insert("order around the Lease".to_owned(), order(seen, &[&look, &lease]));
    let between = first(seen, &lease).zip(first(seen, &node)).map(|(lease, node)| lease.saturating_sub(node));
    all.insert("seconds from Node to Lease".to_owned(), between.map_or(String::new(), seconds));
    all.insert("seconds between renewals".to_owned(), renewals(seen));
    all.insert("characters of a renewal's Audit-ID".to_owned(), audit_id_lengths(seen));
    Ok(all)
}

/// Verb, URI and status: what a request is counted as. A watch's query says how long it may last, at random.
fn kind(seen: &Seen, entry: &AuditEntry) -> String {
    let is_watch = entry.verb == "watch";
    let uri = entry.uri.split('?').next().filter(|_| is_watch).unwrap_or(&entry.uri);
    let uri = uri.replace(&seen.name, "NODE").replace(LEASES, "LEASES").replace(EVENTS, "EVENTS");
    let uri = if uri.starts_with("EVENTS/NODE.") { "EVENTS/NODE.NANOSECONDS" } else { &uri };
    format!("{} {uri} {}", entry.verb, entry.code)
}

struct Step {
    what: &'static str,
    verb: &'static str,
    path: &'static str,
}

/// When a request of this kind first succeeded, in microseconds since 1970; a look counts even if there was nothing.
fn first(seen: &Seen, step: &Step) -> Option<u64> {
    let is_it =
        |e: &&AuditEntry| e.verb == step.verb && e.uri.starts_with(step.path) && (e.code < 300 || e.verb == "get");
    seen.requests.iter().find(is_it).map(|entry| entry.received_at_us)
}

/// In which order these happened.
fn order(seen: &Seen, steps: &[&Step]) -> String {
    let mut steps: Vec<_> = steps.iter().map(|step| (first(seen, step), step.what)).collect();
    steps.sort_unstable();
    let texts = steps.iter().map(|(at, what)| at.map_or_else(|| format!("no {what}"), |_| (*what).to_owned()));
    texts.collect::<Vec<_>>().join(", ")
}

fn renewals_of(seen: &Seen) -> impl Iterator<Item = &AuditEntry> {
    seen.requests.iter().filter(|e| e.uri.starts_with(LEASES) && e.verb != "get" && e.code < 300)
}

/// Of all renewals, if they agree; what creates the Lease is none.
fn audit_id_lengths(seen: &Seen) -> String {
    let mut lengths: Vec<_> = renewals_of(seen).filter(|e| e.verb != "create").map(|e| e.audit_id.len()).collect();
    lengths.dedup();
    lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// LSE-4: a period and up to 4 % more, and what a busy machine adds.
fn renewals(seen: &Seen) -> String {
    let times: Vec<u64> = renewals_of(seen).map(|entry| entry.received_at_us).collect();
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    if !gaps.is_empty() && gaps.iter().all(|gap| (9_990_000..11_500_000).contains(gap)) {
        return "10.0 to 10.4".to_owned();
    }
    format!("{gaps:?} us")
}

/// Rounded.
fn seconds(span_us: u64) -> String {
    ((span_us + 500_000) / 1_000_000).to_string()
}
