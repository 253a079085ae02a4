//! Turns one card that was copied into several boards: each ends with an identity of its own, or leaves the name to the other (CSR-11, D10).

use super::agent::{Launch, Nodepulse};
use super::cluster::joining::{KUBEADM_GROUP, Token};
use super::cluster::{Cluster, NodeIdentity, Result, wait_until};
use super::first::joining_at;
use super::requests::{SOON, is_renewal, now_us, wait_until_ready};
use super::trials::{Case, Need};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

const CPUINFO: &str = "/proc/cpuinfo";
/// Letters of a serial number, which `hostnameOverride` makes a name of.
const SERIALS: [&str; 2] = ["10000000abcdef01", "10000000abcdef02"];

pub fn cases() -> Vec<Case> {
    cases![
        &[Need::Root],
        a_copied_card_joins_under_the_name_of_the_board_that_it_is_in,
        a_card_that_was_copied_while_it_waited_asks_with_a_key_of_its_own,
        of_two_boards_with_one_card_and_one_name_the_second_gives_way,
    ]
}

/// Where a test's two boards have their cards; one token, as on one image.
struct Trial<'a> {
    cluster: &'a Cluster,
    places: [NodeIdentity; 2],
    token: Token,
}

impl<'a> Trial<'a> {
    fn new(cluster: &'a Cluster, hint: &str, group: &str) -> Result<Self> {
        let token = cluster.token(&[group], None)?;
        let places = [cluster.node(&format!("{hint}-a"))?, cluster.node(&format!("{hint}-b"))?];
        Ok(Self { cluster, places, token })
    }

    /// The board with that serial number and the settings of the image.
    fn start(&self, number: usize, name: &str) -> Result<Nodepulse> {
        let cpuinfo = fs::read_to_string(CPUINFO).map_err(|e| e.to_string())?;
        let launch: Launch =
            joining_at(&self.cluster.api.url(), &self.places[number], &self.token, &[self.cluster.pin()]);
        launch
            .named_by_itself()
            .set("hostnameOverride", &format!("'{name}'"))
            .board(CPUINFO, &format!("{}\nSerial : {}", cpuinfo.trim_end(), SERIALS[number]))
            .start(self.cluster)
    }

    fn card(&self, number: usize) -> std::path::PathBuf {
        self.places[number].dir.join("state")
    }

    fn copy(&self) -> Result<()> {
        copy(&self.card(0), &self.card(1))
    }

    fn is_renewing(&self, name: &str, agent: &mut Nodepulse, since_us: u64) -> Result<()> {
        let user = format!("system:node:{name}");
        wait_until(&format!("a renewal of {name}"), SOON * 3, || {
            agent.check()?;
            let is_new = |e: &_| is_renewal(e) && e.user == user && e.code == 200 && e.received_at_us > since_us;
            if self.cluster.api.audit(is_new)?.is_empty() { Err(agent.said()?) } else { Ok(()) }
        })
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(|e| e.to_string())?;
    for entry in fs::read_dir(from).map_err(|e| e.to_string())?.flatten() {
        let there = to.join(entry.file_name());
        let kind = entry.file_type().map_err(|e| e.to_string())?;
        if kind.is_dir() {
            copy(&entry.path(), &there)?;
        } else if kind.is_socket() {
            // On a copied card, too, there is one to which nobody listens.
            drop(UnixListener::bind(there).map_err(|e| e.to_string())?);
        } else {
            fs::copy(entry.path(), there).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

fn a_copied_card_joins_under_the_name_of_the_board_that_it_is_in(cluster: &Cluster) -> Result<()> {
    let trial = Trial::new(cluster, "copied", KUBEADM_GROUP)?;
    let names = SERIALS.map(|serial| format!("copied-{serial}"));
    let mut first = trial.start(0, "copied-{serial}")?;
    trial.is_renewing(&names[0], &mut first, 0)?;
    assert_eq!(first.stop()?, 0);
    trial.copy()?;
    let since = now_us();
    let (mut first, mut second) = (trial.start(0, "copied-{serial}")?, trial.start(1, "copied-{serial}")?);
    trial.is_renewing(&names[0], &mut first, since)?;
    trial.is_renewing(&names[1], &mut second, since)?;
    // Each has one request of a token, and no other of its name but renewals.
    let user = format!("system:bootstrap:{}", trial.token.id);
    let made = cluster.api.audit(|e| e.user == user && e.verb == "create" && e.code == 201)?;
    assert_eq!(made.len(), 2, "{made:#?}");
    for agent in [&mut first, &mut second] {
        agent.check()?;
        assert_eq!(agent.count_lines("name-taken")?, 0, "{}", agent.said()?);
    }
    Ok(())
}

/// Its `pending.pem` is for the first board's name.
fn a_card_that_was_copied_while_it_waited_asks_with_a_key_of_its_own(cluster: &Cluster) -> Result<()> {
    let group = super::join::group(cluster, "copied-by-hand")?;
    let trial = Trial::new(cluster, "awaited", &group)?;
    let names = SERIALS.map(|serial| format!("awaited-{serial}"));
    let mut first = trial.start(0, "awaited-{serial}")?;
    first.wait_for_line(&["waiting for approval"], SOON * 2)?;
    trial.copy()?;
    let mut second = trial.start(1, "awaited-{serial}")?;
    second.wait_for_line(&["waiting for approval"], SOON * 2)?;
    let mut keys = Vec::new();
    for name in &names {
        let found = cluster.requests_for(name)?;
        assert_eq!(found.len(), 1, "{name}: {found:#?}");
        let request = found[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        cluster.approve(&request)?;
        keys.push(request);
    }
    assert_ne!(keys[0], keys[1]);
    for (name, agent) in names.iter().zip([&mut first, &mut second]) {
        trial.is_renewing(name, agent, 0)?;
    }
    Ok(())
}

/// The same certificate and the same name, and a serial number of its own.
fn of_two_boards_with_one_card_and_one_name_the_second_gives_way(cluster: &Cluster) -> Result<()> {
    let trial = Trial::new(cluster, "one-name", KUBEADM_GROUP)?;
    let name = &trial.places[0].name;
    let mut first = trial.start(0, name)?;
    wait_until_ready(cluster, &trial.places[0])?;
    first.wait_for_line(&["lease-held"], SOON)?;
    trial.copy()?;
    let mut second = trial.start(1, name)?;
    let said = second.wait_for_line(&["name-taken", "serial number"], SOON)?;
    assert!(said.contains(name.as_str()), "{said}");
    assert_eq!(second.count_lines("lease-held")?, 0, "{}", second.said()?);
    trial.is_renewing(name, &mut first, now_us())?;
    assert_eq!(first.count_lines("name-taken")?, 0, "{}", first.said()?);
    second.check()
}
