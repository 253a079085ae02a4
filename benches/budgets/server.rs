//! Turns many Leases that are renewed every second into the processor time that an API server takes for one of them, ours
//! beside those of a kubelet.
//!
//! The server that is measured does nothing else: another one of the same cluster serves the controllers. It writes down who
//! asked what, as clusters do, and no bodies. A kubelet's renewals are made by its own controller for them (`benches/renewer`),
//! a connection for each Node: twenty kubelets are too much for one machine, and one is too little to measure.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use super::cluster::daemon::Daemon;
use super::cluster::{ApiServer, Cluster, Credential, NodeIdentity, Options, Result, wait_until};
use super::figures::now_us;
use super::process::Usage;
use super::subject::{self, Subject};
use super::table::{self, Row};
use super::wire::Kind;

const NODES: usize = 20;
const SECONDS_PER_RENEWAL: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(60);
/// How often each is measured: by turns, so that whatever else the machine does comes to both.
const ROUNDS: usize = 3;

const POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// Microseconds for a renewal.
pub struct ServerTime {
    pub ours_us: f64,
    pub kubelet_us: f64,
}

impl ServerTime {
    fn ratio(&self) -> f64 {
        self.ours_us / self.kubelet_us
    }

    /// Beside these programs, of which a kubelet may be one.
    pub fn row(&self, subjects: &[Subject]) -> Row {
        let figure = |one: &Subject| match one.title.as_str() {
            "nodepulse" => Some(self.ratio()),
            title if title.starts_with("kubelet") => Some(1.0),
            _ => None,
        };
        Self::row_of(&subjects.iter().map(figure).collect::<Vec<_>>())
    }

    pub fn row_beside_kubelet(&self) -> Row {
        Self::row_of(&[Some(self.ratio()), Some(1.0)])
    }

    fn row_of(figures: &[Option<f64>]) -> Row {
        Row::new("API server's processor time per renewal", Some(0.75), figures, table::hundredths)
    }

    pub fn in_words(&self) -> String {
        format!(
            "The API server's processor time for a renewal, of {NODES} Nodes and {SECONDS_PER_RENEWAL} s apart: \
             nodepulse {:.0} us, a kubelet's controller {:.0} us.",
            self.ours_us, self.kubelet_us
        )
    }
}

pub fn measure(program: &Path, renewer: &Path, quick: bool, say: &dyn Fn(&str)) -> Result<ServerTime> {
    let window = Duration::from_secs(if quick { 10 } else { 30 });
    let cluster = Cluster::start(Options { node_monitor_grace_period: PATIENCE, ..Options::default() })?;
    let policy = cluster.folder().join("metadata.yaml");
    fs::write(&policy, POLICY).map_err(|e| e.to_string())?;
    let api = cluster.api_server_with(&[&format!("--audit-policy-file={}", policy.display())])?;
    let identities = || (0..NODES).map(|_| cluster.node_at(&api, "s", Credential::Valid)).collect::<Result<Vec<_>>>();
    let (ours, theirs) = (identities()?, identities()?);
    for identity in &theirs {
        cluster.create_node(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": identity.name}}))?;
    }
    sleep(window / 3);
    let idle = cpu_ns(&api, window)? as f64;
    let mut sums = [(0.0, 0.0); 2];
    for round in 1..=ROUNDS {
        for (who, sum) in sums.iter_mut().enumerate() {
            say(&format!(
                "processor time of an API server: {round} of {ROUNDS}, {}",
                ["nodepulse", "a kubelet's"][who]
            ));
            let nodes = if who == 0 { &ours } else { &theirs };
            let began_us = now_us()?;
            let _running =
                if who == 0 { agents(&cluster, nodes, program) } else { controllers(&cluster, nodes, renewer) }?;
            wait_until("two renewals of each", PATIENCE, || {
                let renewals = renewals(&api, nodes, began_us, u64::MAX)?;
                if renewals >= 2 * NODES { Ok(()) } else { Err(format!("{renewals} renewals")) }
            })?;
            sleep(window / 3);
            let from_us = now_us()?;
            sum.0 += cpu_ns(&api, window)? as f64 - idle;
            sum.1 += renewals(&api, nodes, from_us, now_us()?)? as f64;
        }
    }
    let [ours_us, kubelet_us] = sums.map(|(ns, renewals)| ns / 1000.0 / renewals);
    Ok(ServerTime { ours_us, kubelet_us })
}

/// Of the server, in a while.
fn cpu_ns(api: &ApiServer, window: Duration) -> Result<u64> {
    let pid = api.pid().ok_or("the API server does not run")?;
    let before = Usage::of(pid)?;
    sleep(window);
    Ok(Usage::of(pid)?.since(before).cpu_ns)
}

fn renewals(api: &ApiServer, nodes: &[NodeIdentity], from_us: u64, to_us: u64) -> Result<usize> {
    let all = api.audit(|entry| Kind::of(entry) == Kind::Renewal && entry.code == 200)?;
    let is_counted = |at_us: u64, user: &str| (from_us..to_us).contains(&at_us) && nodes.iter().any(|n| n.user == user);
    Ok(all.iter().filter(|entry| is_counted(entry.received_at_us, &entry.user)).count())
}

fn agents(cluster: &Cluster, nodes: &[NodeIdentity], program: &Path) -> Result<Vec<Daemon>> {
    let start = |identity: &NodeIdentity| {
        let file = identity.dir.join("config.yaml");
        let text = format!(
            "{}stateDirectory: {}\nstatusAssertFrequency: 1h\nnodeStatusReportFrequency: 1h\nnodeStatusUpdateFrequency: 10s\n",
            subject::settings(SECONDS_PER_RENEWAL),
            identity.dir.join("state").display()
        );
        fs::write(&file, text).map_err(|e| e.to_string())?;
        let command = [
            program.display().to_string(),
            "run".to_owned(),
            format!("--config={}", file.display()),
            format!("--kubeconfig={}", identity.kubeconfig.display()),
            format!("--hostname-override={}", identity.name),
        ];
        Daemon::start(cluster.home(), &identity.name, &command)
    };
    nodes.iter().map(start).collect()
}

fn controllers(cluster: &Cluster, nodes: &[NodeIdentity], renewer: &Path) -> Result<Vec<Daemon>> {
    let mut command = vec![renewer.display().to_string(), SECONDS_PER_RENEWAL.to_string()];
    command.extend(nodes.iter().map(|one| format!("{}={}", one.name, one.kubeconfig.display())));
    Ok(vec![Daemon::start(cluster.home(), "renewer", &command)?])
}
