//! Turns a real kubelet and nodepulse, side by side on this machine, into a record of what the API server saw of both.

use super::super::agent::{Launch, Nodepulse, ROOM_ON_DISK};
use super::super::cluster::{AuditEntry, Cluster, Kubelet, NodeIdentity, Result, condition, wait_until};
use super::reaction::{self, Reaction};
use serde_json::Value;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

/// How much of their first minute is compared, with the default settings of both: the start and what makes up the
/// steady state, a renewal every 10 to 10.4 seconds, none of them near the end. The rest of that minute is more of the
/// same, and a test has better things to do.
const FIRST: Duration = Duration::from_secs(36);
/// Long enough for anything that should happen at once, on a machine that is busy with other things.
const SOON: Duration = Duration::from_secs(30);

/// What both run with while they are provoked, so that a reaction takes two seconds instead of ten, or ours of a minute:
/// what it is, not when it comes, is compared there. When, with the defaults of both, is [`Recording::left_unknown`].
const QUICK: [(&str, &str); 4] = [
    ("nodeStatusUpdateFrequency", "2s"),
    ("nodeStatusReportFrequency", "5m"),
    ("nodeLeaseDurationSeconds", "8"),
    ROOM_ON_DISK,
];

/// Everything that the comparisons are made from.
pub struct Recording {
    /// The first half minute with the default settings; ours with `podless: false`.
    pub kubelet: Seen,
    pub nodepulse: Seen,
    /// nodepulse as it comes, podless.
    pub podless: Seen,
    pub reactions: Vec<Reaction>,
    /// How long the kubelet, and nodepulse, left conditions Unknown that somebody else had made so, with the defaults of both.
    pub left_unknown: [Duration; 2],
}

/// One Node as the API server has it, and what its owner asked for.
#[derive(Debug, Clone)]
pub struct Seen {
    pub name: String,
    pub node: Value,
    pub lease: Value,
    /// The agent's own, oldest first: the controllers have theirs about any Node, and chance decides about those.
    pub events: Vec<Value>,
    pub requests: Vec<AuditEntry>,
}

impl Seen {
    /// Without the requests that came more than [`FIRST`] after its own first one.
    fn at_first(mut self) -> Self {
        let end = self.requests.first().map(|entry| u128::from(entry.received_at_us) + FIRST.as_micros());
        self.requests.retain(|entry| end.is_some_and(|end| u128::from(entry.received_at_us) <= end));
        self
    }
}

/// The one recording of this run; both programs have ended when it is there.
pub fn recording(cluster: &Cluster) -> Result<&'static Recording> {
    static RECORDING: OnceLock<Result<Recording>> = OnceLock::new();
    RECORDING.get_or_init(|| record(cluster)).as_ref().map_err(Clone::clone)
}

/// Both programs, at work.
pub struct Pair<'a> {
    pub cluster: &'a Cluster,
    pub kubelet: Kubelet,
    pub board: &'a NodeIdentity,
    nodepulse: Nodepulse,
}

fn record(cluster: &Cluster) -> Result<Recording> {
    let (board, podless) = (cluster.node("side-nodepulse")?, cluster.node("side-podless")?);
    let kubelet = Kubelet::start(cluster, "side-kubelet", &yaml(&[ROOM_ON_DISK]))?;
    let nodepulse = launch(&board, &[ROOM_ON_DISK]).set("podless", "false").start(cluster)?;
    let mut pair = Pair { cluster, kubelet, board: &board, nodepulse };
    let mut bare = launch(&podless, &[ROOM_ON_DISK]).start(cluster)?;
    let names = pair.names();
    wait_until("all three Nodes to be settled", SOON, || {
        pair.check()?;
        names.iter().chain([&podless.name]).try_for_each(|name| settled(&cluster.get_node(name)?))
    })?;
    sleep(FIRST);
    pair.check()?;
    bare.check()?;
    let [seen_kubelet, seen_nodepulse] = names.map(|name| see(cluster, &name).map(Seen::at_first));
    let seen_podless = see(cluster, &podless.name)?;
    let doubted = [&pair.kubelet.identity.name, &podless.name].map(|name| reaction::doubt(cluster, name));
    let [doubted_kubelet, doubted_nodepulse] = doubted;
    let kubelet_left = doubted_kubelet?.gone()?;
    // The taints that came of it go a little later, and are no reaction to what comes next.
    wait_until("the controllers to be through with it", SOON, || {
        settled(&cluster.get_node(&pair.kubelet.identity.name)?)
    })?;
    // The other one is waited for while there is enough to do.
    let reactions = reaction::provoke_all(&mut pair)?;
    pair.check()?;
    pair.nodepulse.stop()?;
    let left_unknown = [kubelet_left, doubted_nodepulse?.gone()?];
    bare.stop()?;
    Ok(Recording { kubelet: seen_kubelet?, nodepulse: seen_nodepulse?, podless: seen_podless, reactions, left_unknown })
}

impl Pair<'_> {
    /// The kubelet's Node, then ours.
    pub fn names(&self) -> [String; 2] {
        [&self.kubelet.identity.name, &self.board.name].map(Clone::clone)
    }

    /// An error if one of them has ended.
    pub fn check(&mut self) -> Result<()> {
        self.kubelet.kubelet.check()?;
        self.nodepulse.check()
    }

    /// Ends both, lets `meanwhile` do what it likes, and starts both with quick settings.
    pub fn restart(&mut self, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
        let (cluster, nodepulse, board) = (self.cluster, &mut self.nodepulse, self.board);
        self.kubelet.restart(cluster, &yaml(&QUICK), || {
            nodepulse.stop()?;
            meanwhile()
        })?;
        let launch = launch(board, &QUICK).set("podless", "false").set("statusAssertFrequency", "2s");
        *nodepulse = launch.start(cluster)?;
        Ok(())
    }
}

/// Settings that both programs know, for the kubelet.
fn yaml(settings: &[(&str, &str)]) -> String {
    settings.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

/// The same for ours.
fn launch<'a>(board: &'a NodeIdentity, settings: &[(&str, &str)]) -> Launch<'a> {
    settings.iter().fold(Launch::with_defaults(board), |launch, (key, value)| launch.set(key, value))
}

/// Nothing of the controllers is still to come.
fn settled(node: &Value) -> Result<()> {
    let taints = node["spec"]["taints"].to_string();
    let done = condition(node, "Ready").is_some_and(|ready| ready["status"] == "True")
        && !taints.contains("node.kubernetes.io/")
        && node["spec"]["podCIDR"].is_string()
        && node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"].is_string();
    if done { Ok(()) } else { Err(node.to_string()) }
}

/// The Node and all that belongs to it, now.
pub fn see(cluster: &Cluster, name: &str) -> Result<Seen> {
    let mut events = cluster.events(&format!("involvedObject.kind=Node,involvedObject.name={name}"))?;
    events.retain(|event| event["source"]["component"] == "kubelet" || event["source"]["component"] == "nodepulse");
    let requests = requests(cluster, &format!("system:node:{name}"))?;
    let posts: Vec<&AuditEntry> = requests.iter().filter(|e| e.verb == "create" && e.uri.contains("/events")).collect();
    events.sort_by_key(|event| {
        let posted = posts.iter().position(|post| post.body["metadata"]["name"] == event["metadata"]["name"]);
        posted.unwrap_or(usize::MAX)
    });
    Ok(Seen {
        name: name.to_owned(),
        node: cluster.find_node(name)?.unwrap_or_default(),
        lease: cluster.find_lease(name)?.unwrap_or_default(),
        events,
        requests,
    })
}

/// What one user asked for; a watch counts once, whether it has ended or not.
fn requests(cluster: &Cluster, user: &str) -> Result<Vec<AuditEntry>> {
    let mut all = cluster.api.watches(|entry| entry.user == user)?;
    for finished in cluster.api.audit(|entry| entry.user == user)? {
        // All requests of one connection of ours have one Audit-ID; a watch is never ours.
        if finished.verb != "watch" || all.iter().all(|watch| watch.audit_id != finished.audit_id) {
            all.push(finished);
        }
    }
    all.sort_by_key(|entry| entry.received_at_us);
    Ok(all)
}
