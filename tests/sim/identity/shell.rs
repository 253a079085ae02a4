//! Turns what the agent wants of keys and files into a folder that a power cut leaves as disks do: what the shell does, in the
//! steps that the agent's own code names.

use nodepulse::agent::{CredentialDates, Input, JoinedCluster, Means, Trust};
use nodepulse::config::kubeconfig::{Server, parse_server};
use nodepulse::config::settings::{CaHash, Token};
use nodepulse::identity::files::{FORGET, FileStep, NODE, NodePem, PENDING, Pending, PrivateKey, REPLACE};
use nodepulse::identity::supervisor::NodePassword;
use nodepulse::identity::unwritten::{Change, Unwritten, perform_all};
use nodepulse::identity::{Bundle, CertificateDer, Renewal, SigningRequest};
use nodepulse::io::turns::Turns;
use nodepulse::time::{Up, Wall};

use super::cluster::{self, TOKEN};
use super::der;
use super::folder::End;
use super::machine::Machine;
use super::planted::Fault;
use super::servers::PORT_OF_API;
use super::world::{Event, World};

const KUBECONFIG: &str = "kubeconfig";
const NODE_PASSWORD: &str = "node-password";
/// Of a server in what stands for the kubeconfig, before the CAs.
const SERVER: &str = "server ";
const TOKEN_FILE: &str = "token";
const OLD: &str = "node.pem.old";
/// What reading and writing a file takes.
const FILE_US: u64 = 10_000;

/// What a process knows.
#[derive(Default)]
pub struct Shell {
    /// In use.
    pub identity: Option<NodePem>,
    /// Whom it goes by.
    pub authorities: Option<Bundle>,
    pending: Option<PrivateKey>,
    /// The certificate of the last key is in use.
    is_used: bool,
    /// It is to be kept as soon as the cluster is known.
    typed: Option<Token>,
    /// Those in use, and whose turn it is.
    servers: Vec<Server>,
    turns: Turns,
    /// The certificate that is being proven, over connections of its own, which take their turns apart.
    proving: Option<(Vec<CertificateDer<'static>>, Turns)>,
    node_password: Option<NodePassword>,
    unwritten: Unwritten,
}

impl Shell {
    pub fn is_pending_in_memory(&self) -> bool {
        self.pending.is_some() && self.unwritten.has(PENDING)
    }

    pub fn is_password_in_memory(&self) -> bool {
        self.unwritten.has(NODE_PASSWORD)
    }

    /// Of the server whose turn it is.
    pub fn place(&self) -> usize {
        self.turns.current()
    }

    /// The same where that certificate is proven: a server that came to nothing is not asked next.
    pub fn place_of_proof(&mut self, chain: &[CertificateDer<'static>]) -> usize {
        if self.proving.as_ref().is_none_or(|(known, _)| known != chain) {
            self.proving = Some((chain.to_vec(), self.turns.clone()));
        }
        self.proving.as_ref().map_or(0, |(_, turns)| turns.current())
    }

    pub fn server(&self) -> Option<Server> {
        self.server_at(self.place())
    }

    pub fn server_at(&self, place: usize) -> Option<Server> {
        self.servers.get(place).cloned()
    }

    /// What came of a request to the server at that place.
    pub fn heard(&mut self, place: usize, is_proof: bool, is_failed: bool, up: Up) {
        let turns = match &mut self.proving {
            Some((_, turns)) if is_proof => turns,
            _ => &mut self.turns,
        };
        match is_failed {
            true => drop(turns.failed(place, (self.servers.len(), 0), up)),
            false => turns.worked(),
        }
    }

    /// The one in use first.
    fn servers_first(&self) -> Vec<Server> {
        let mut servers = self.servers.clone();
        let place = self.place().min(servers.len());
        servers.rotate_left(place);
        servers
    }

    fn use_servers(&mut self, servers: Vec<Server>) {
        if self.servers != servers {
            (self.turns, self.proving) = (Turns::default(), None);
            self.servers = servers;
        }
    }

    pub fn leaf(&self) -> Option<Vec<u8>> {
        self.identity.as_ref()?.chain.first().map(|leaf| leaf.to_vec())
    }

    fn dates(&self) -> CredentialDates {
        let Some((leaf, received)) = self.leaf().zip(self.identity.as_ref().map(|identity| identity.received)) else {
            return CredentialDates::default();
        };
        let life = Renewal::of(&leaf, None);
        CredentialDates {
            not_before: life.map(|life| life.start),
            not_after: life.map(|life| life.end),
            renewal: Renewal::of(&leaf, received),
        }
    }
}

impl Machine {
    /// What a supervisor knows this board by, in memory or on the disk.
    fn node_password(&self) -> Option<NodePassword> {
        let on_disk = || self.folder.read(NODE_PASSWORD).and_then(NodePassword::read);
        self.shell.node_password.clone().or_else(on_disk)
    }

    /// Port of the supervisor that gives out the certificates, as far as the board knows.
    fn supervisor(&self) -> Option<u16> {
        self.node_password().map(|known| known.port)
    }
}

impl World {
    /// What a process that starts finds, and says to its agent first.
    pub fn find_identity(&mut self, board: usize) -> Input {
        let folder = &self.machines[board].folder;
        let checked = self.judge.starts(board, [folder.read(NODE), folder.read(OLD)]);
        self.check(checked);
        if self.is(Fault::RenewalLost) {
            self.machines[board].folder.change(&FORGET, PENDING, &[], None);
        }
        let machine = &mut self.machines[board];
        let authorities = machine.folder.read(KUBECONFIG).map(Bundle::read).filter(|bundle| !bundle.shown.is_empty());
        let kept = [NODE, OLD].iter().find_map(|name| NodePem::read(machine.folder.read(name)?).ok());
        let is_ours = |kept: &NodePem| {
            let node = kept.chain.first().and_then(|leaf| self.cluster.issued.get(leaf.as_ref()));
            self.fault == Some(Fault::NameOfAnother) || node.is_some_and(|issued| issued.node == machine.node)
        };
        match (authorities, kept.filter(is_ours)) {
            (Some(authorities), Some(kept)) => {
                machine.shell.identity = Some(kept);
                machine.shell.authorities = Some(authorities);
                let first = Input::Credentials(machine.shell.dates());
                self.use_settings(board);
                first
            }
            _ => Input::NotJoined,
        }
    }

    /// The board has been in the cluster, with a certificate that ends then.
    pub fn provision(&mut self, board: usize, until_us: i64) {
        let point = cluster::point(&mut self.random);
        let key = PrivateKey::of_sec1(&der::private_key(&point));
        let leaf = self.cluster.issue(&self.machines[board].node, &der::key_info(&point), until_us);
        self.judge.kept(board, &leaf);
        let node_pem = NodePem { received: None, chain: vec![CertificateDer::from(leaf)], key }.text();
        let authorities = Bundle::from(vec![CertificateDer::from(self.cluster.serves.der.clone())]);
        let authorities = kubeconfig(&self.servers.named, &authorities);
        let folder = &mut self.machines[board].folder;
        folder.change(&REPLACE, NODE, node_pem.as_bytes(), None);
        folder.change(&REPLACE, KUBECONFIG, authorities.as_bytes(), None);
    }

    pub fn reload(&mut self, board: usize) {
        if self.machines[board].shell.identity.is_none() {
            // There is nothing to be read.
            return;
        }
        let dates = self.machines[board].shell.dates();
        self.answer(board, FILE_US, Input::Credentials(dates));
    }

    /// Where the settings name other servers than the board has joined with, it asks those first from now on.
    pub fn use_settings(&mut self, board: usize) {
        let named = self.servers.named.iter().map(|server| Server { port: PORT_OF_API, ..server.clone() });
        let named: Vec<Server> = named.collect();
        let machine = &mut self.machines[board];
        // Also of a board that has proven its cluster, and has no certificate yet (seed 31486).
        let Some(authorities) = machine.shell.authorities.clone() else { return };
        let known = match machine.shell.unwritten.has(KUBECONFIG) {
            true => machine.shell.servers.clone(),
            false => machine.folder.read(KUBECONFIG).map(servers_in).unwrap_or_default(),
        };
        machine.shell.use_servers(known.clone());
        if let Some(servers) = Server::moved(&known, &named).filter(|_| !self.is(Fault::SettingsIgnored)) {
            let text = kubeconfig(&servers, &authorities);
            self.machines[board].shell.use_servers(servers);
            self.write(board, vec![(KUBECONFIG, Some(text.into()))]);
        }
    }

    fn token(&self) -> String {
        let supervisor = self.cluster.supervisor.as_ref();
        supervisor.map_or(TOKEN.to_owned(), |supervisor| supervisor.token(&self.cluster.serves))
    }

    pub fn read_means(&mut self, board: usize) {
        let (is_typed, token) = (self.plan.is_token_typed, self.token());
        let machine = &mut self.machines[board];
        let in_use = machine.shell.servers_first();
        let supervisor = machine.supervisor();
        let port = |server: Server| Server { port: supervisor.unwrap_or(server.port), ..server };
        let servers = self.servers.named.iter().cloned().chain(in_use.into_iter().map(port));
        let servers = Server::without_repeats(&mut servers.collect::<Vec<_>>().into_iter());
        // What of that counts, and when the CA in use does, is the agent's to say.
        let pins = self.cluster.pinned.iter().filter(|_| self.cluster.supervisor.is_none());
        let trust = Trust::Pinned(pins.map(|pin| CaHash { digest: *pin }).collect());
        let kept = machine.folder.read(TOKEN_FILE).is_some();
        let means = Token::parse(&token).map(|token| {
            // Whoever joins a board by hand does so until it has joined.
            machine.shell.typed = (is_typed && !kept).then(|| token.clone());
            Box::new(Means { servers, token, is_fleeting: is_typed, trust })
        });
        self.answer(board, FILE_US, Input::Means(means.map_err(str::to_owned)));
    }

    pub fn read_cluster(&mut self, board: usize) {
        let supervisor = self.machines[board].supervisor();
        let shell = &self.machines[board].shell;
        let servers = shell.servers_first();
        let cluster = shell.authorities.clone();
        let last_resorts = Vec::new();
        let cluster = cluster.map(|authorities| JoinedCluster { servers, last_resorts, authorities, supervisor });
        self.answer(board, FILE_US, Input::Cluster(cluster));
    }

    pub fn use_cluster(&mut self, board: usize, servers: Vec<Server>, authorities: Bundle, supervisor: Option<u16>) {
        self.check_trust(&authorities.all());
        // Without servers only the CAs are others.
        let servers = if servers.is_empty() {
            self.machines[board].shell.servers.clone()
        } else if self.supervise(board, supervisor) {
            servers
        } else {
            return;
        };
        let text = kubeconfig(&servers, &authorities);
        let typed = self.machines[board].shell.typed.take();
        // By another CA, what was refused before may be taken: that is asked at once (seed 120905).
        if self.machines[board].shell.authorities.as_ref() != Some(&authorities) {
            self.judge.reloaded(board);
        }
        self.machines[board].shell.authorities = Some(authorities);
        self.machines[board].shell.use_servers(servers);
        let is_on = self.write(board, vec![(KUBECONFIG, Some(text.into()))]);
        if let (Some(token), true) = (typed, is_on) {
            self.write(board, vec![(TOKEN_FILE, Some(token.as_str().to_owned().into()))]);
        }
    }

    /// There is a password where there is a supervisor, the same as before where there was one. Answers whether the power stays.
    fn supervise(&mut self, board: usize, port: Option<u16>) -> bool {
        let mut random = [0; 16];
        random.fill_with(|| self.random.next() as u8);
        let machine = &mut self.machines[board];
        let on_disk = machine.folder.read(NODE_PASSWORD).and_then(NodePassword::read);
        let known = machine.shell.node_password.take().or(on_disk.clone());
        let known = known.filter(|_| self.fault != Some(Fault::PasswordForgotten));
        let wanted = port.map(|port| NodePassword::new(random, port).like(known.as_ref()));
        machine.shell.node_password.clone_from(&wanted);
        match wanted.filter(|wanted| on_disk.as_ref() != Some(wanted)) {
            Some(wanted) if !self.is(Fault::PasswordInMemory) => {
                self.write(board, vec![(NODE_PASSWORD, Some(wanted.text()))])
            }
            _ => true,
        }
    }

    /// What came with the certificate.
    pub fn take_key(&mut self, board: usize, key: PrivateKey) {
        if !self.machines[board].settings.k3s_shared_key || self.is(Fault::SharedKeyTaken) {
            self.violated("a key is taken that others have".to_owned());
        }
        self.machines[board].shell.pending = Some(key);
    }

    pub fn make_request(&mut self, board: usize, is_new: bool) {
        let shell = &mut self.machines[board].shell;
        let is_new = std::mem::take(&mut shell.is_used) || is_new;
        let known = shell.pending.clone().filter(|_| !is_new);
        let key = match known.or_else(|| self.found_key(board, is_new)) {
            Some(key) => key,
            None => {
                let point = cluster::point(&mut self.random);
                let key = PrivateKey::of_sec1(&der::private_key(&point));
                let pending = Pending { node: self.machines[board].node.clone(), key: key.clone() };
                if !self.is(Fault::KeyInMemory) && !self.write(board, vec![(PENDING, Some(pending.text()))]) {
                    return;
                }
                key
            }
        };
        let request = SigningRequest::new(&self.machines[board].node, key.point().unwrap_or_default());
        let machine = &mut self.machines[board];
        machine.shell.pending = Some(key);
        let node_password = machine.node_password();
        let made = Input::RequestMade { request: Box::new(request), signature: vec![1; 70], node_password };
        self.answer(board, FILE_US, made);
    }

    /// A key that an earlier process left, whose certificate is not in use.
    fn found_key(&mut self, board: usize, is_new: bool) -> Option<PrivateKey> {
        let machine = &mut self.machines[board];
        let kept = [NODE, OLD].iter().filter_map(|name| NodePem::read(machine.folder.read(name)?).ok());
        let kept: Vec<NodePem> = kept.collect();
        if let (Some(Fault::KeyReused), Some(kept)) = (self.fault, kept.first()) {
            return Some(kept.key.clone());
        }
        let pending = machine.folder.read(PENDING).filter(|_| !is_new).and_then(|text| Pending::read(text).ok())?;
        // Or it was, before a renewal whose key never came to the disk (seed 216202).
        let is_used = kept.iter().any(|kept| kept.key == pending.key);
        (pending.node == machine.node && !is_used).then_some(pending.key)
    }

    pub fn keep(&mut self, board: usize, chain: Vec<CertificateDer<'static>>, received: Option<Wall>) {
        let leaf = chain.first().map(|leaf| leaf.to_vec()).unwrap_or_default();
        let checked = self.judge.keeps(self.cluster.taken.contains(&leaf));
        self.check(checked);
        let shell = &mut self.machines[board].shell;
        let Some(key) = shell.pending.take() else {
            return self.violated("a certificate is kept for which there is no key".to_owned());
        };
        let node_pem = NodePem { received, chain, key };
        let text = node_pem.text();
        (shell.identity, shell.is_used) = (Some(node_pem), true);
        let dates = shell.dates();
        self.judge.uses(board, &leaf);
        if self.write(board, vec![(NODE, Some(text)), (PENDING, None)]) {
            self.answer(board, FILE_US, Input::Credentials(dates));
        }
    }

    /// Brings this to the disk, and what it has not taken before; answers whether the power stays.
    fn write(&mut self, board: usize, changes: Vec<Change>) -> bool {
        let unwritten = &mut self.machines[board].shell.unwritten;
        changes.into_iter().for_each(|change| unwritten.add(change));
        let (all, is_unsynced) = (unwritten.changes().to_vec(), self.is(Fault::RenamedUnsynced));
        let mut left = (self.peace_us.is_none() && self.random.per_mille(self.plan.cuts_per_mille))
            .then(|| self.random.below(steps_of(&all) + 1) as usize);
        let (mut cut, folder) = (None, &mut self.machines[board].folder);
        let refused = perform_all(&all, &mut |name, steps, bytes| {
            let is_left_out = |step: &&FileStep| is_unsynced && name == NODE && matches!(step, FileStep::Sync(_));
            let steps: Vec<FileStep> = steps.iter().filter(|step| !is_left_out(step)).copied().collect();
            let end = if cut.is_some() { End::Refused } else { folder.change(&steps, name, bytes, left) };
            left = left.map(|left| left.saturating_sub(steps.len()));
            match end {
                End::Done => return true,
                End::PowerCut(step) => cut = Some(format!("    in the change of {name}, before {:?}", steps.get(step))),
                End::Refused if cut.is_none() && steps.contains(&FileStep::SyncFolder) => {
                    folder.change(&[FileStep::Remove(".new")], name, &[], None);
                }
                End::Refused => {}
            }
            false
        });
        if cut.is_some() || left.is_some() {
            self.say(|| cut.unwrap_or_else(|| "    all of it is on the disk, and nobody is told".to_owned()));
            self.cut_power(board);
            return false;
        }
        let (now, shell) = (self.now(board), &mut self.machines[board].shell);
        shell.unwritten.tried(&refused, now.up);
        let leaf = shell.leaf().filter(|_| all.iter().any(|(name, _)| *name == NODE) && !refused.contains(&NODE));
        if let Some(leaf) = leaf {
            self.judge.kept(board, &leaf);
        }
        if let Some(due_at) = self.machines[board].shell.unwritten.due_at() {
            let delay_us = u64::try_from((due_at - now.up).as_micros()).unwrap_or_default();
            let life = self.machines[board].life;
            self.schedule(delay_us, Event::DiskAgain { board, life });
        }
        true
    }

    /// What it did not take is tried again.
    pub fn ask_disk_again(&mut self, board: usize) {
        let up = self.now(board).up;
        if self.machines[board].shell.unwritten.due_at().is_some_and(|due_at| due_at <= up) {
            self.write(board, Vec::new());
        }
    }

    /// Nobody but the cluster's own.
    pub fn check_trust(&mut self, authorities: &[CertificateDer<'static>]) {
        let own: Vec<&[u8]> = self.cluster.own.iter().map(|authority| authority.der.as_slice()).collect();
        let checked = self.judge.trusts(authorities.iter().map(AsRef::as_ref), &own);
        self.check(checked);
    }
}

/// How many there are in all of these changes.
fn steps_of(changes: &[Change]) -> u64 {
    let mut steps = 0;
    perform_all(changes, &mut |_, of_one, _| {
        steps += of_one.len() as u64;
        true
    });
    steps
}

/// What is kept of a cluster: its servers, each in a line, and its CAs.
fn kubeconfig(servers: &[Server], authorities: &Bundle) -> String {
    let lines = servers.iter().map(|server| format!("{SERVER}https://{}\n", server.with_port()));
    lines.collect::<String>() + &authorities.text()
}

fn servers_in(kept: &[u8]) -> Vec<Server> {
    let lines = std::str::from_utf8(kept).unwrap_or_default().lines();
    lines.map_while(|line| parse_server(line.strip_prefix(SERVER)?).ok()).collect()
}
