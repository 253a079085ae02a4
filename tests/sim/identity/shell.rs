//! Turns what the agent wants of keys and files into a folder that a power cut leaves as disks do: what the shell does, in the
//! steps that the agent's own code names.

use nodepulse::agent::{CredentialDates, Input, JoinedCluster, Means, Trust};
use nodepulse::config::kubeconfig::{Server, parse_server};
use nodepulse::config::settings::{CaHash, Token};
use nodepulse::identity::files::{FORGET, FileStep, NODE, NodePem, PENDING, Pending, PrivateKey, REPLACE, SET_ASIDE};
use nodepulse::identity::supervisor::NodePassword;
use nodepulse::identity::{Bundle, CertificateDer, Renewal, SigningRequest};
use nodepulse::io::turns::Turns;
use nodepulse::time::{Up, Wall};

use super::cluster::{self, TOKEN};
use super::der;
use super::folder::End;
use super::planted::Fault;
use super::servers::PORT_OF_API;
use super::world::World;

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
    /// The disk did not take it.
    is_in_memory: bool,
    /// It is to be kept as soon as the cluster is known.
    typed: Option<Token>,
    /// Those in use, and whose turn it is.
    servers: Vec<Server>,
    turns: Turns,
    /// The certificate that is being proven, over connections of its own, which take their turns apart.
    proving: Option<(Vec<CertificateDer<'static>>, Turns)>,
    node_password: Option<NodePassword>,
    pub is_password_in_memory: bool,
}

impl Shell {
    pub fn is_pending_in_memory(&self) -> bool {
        self.pending.is_some() && self.is_in_memory
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
            true => drop(turns.failed(place, self.servers.len(), up)),
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
        let Some(authorities) = machine.shell.authorities.clone().filter(|_| machine.shell.identity.is_some()) else {
            return;
        };
        let known = machine.folder.read(KUBECONFIG).map(servers_in).unwrap_or_default();
        machine.shell.use_servers(known.clone());
        if let Some(servers) = Server::moved(&known, &named).filter(|_| !self.is(Fault::SettingsIgnored)) {
            let text = kubeconfig(&servers, &authorities);
            self.machines[board].shell.use_servers(servers);
            self.write(board, &[(&REPLACE, KUBECONFIG, text.as_bytes())]);
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
        let password = machine.folder.read(NODE_PASSWORD).and_then(NodePassword::read);
        let port =
            |server: Server| Server { port: password.as_ref().map_or(server.port, |known| known.port), ..server };
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
        let shell = &self.machines[board].shell;
        let authorities = shell.authorities.clone().filter(|_| shell.identity.is_some());
        let supervisor = self.cluster.supervisor.as_ref().map(|supervisor| supervisor.port);
        let servers = shell.servers_first();
        let cluster = authorities.map(|authorities| JoinedCluster { servers, authorities, supervisor });
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
        self.machines[board].shell.authorities = Some(authorities);
        self.machines[board].shell.use_servers(servers);
        let end = self.write(board, &[(&REPLACE, KUBECONFIG, text.as_bytes())]);
        if let (Some(token), true) = (typed, !matches!(end, End::PowerCut(_))) {
            self.write(board, &[(&REPLACE, TOKEN_FILE, token.as_str().as_bytes())]);
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
        let end = match wanted.as_ref().filter(|wanted| on_disk.as_ref() != Some(*wanted)) {
            Some(_) if self.is(Fault::PasswordInMemory) => End::Done,
            Some(wanted) => self.write(board, &[(&REPLACE, NODE_PASSWORD, wanted.text().as_bytes())]),
            None => End::Done,
        };
        self.machines[board].shell.is_password_in_memory = end == End::Refused;
        !matches!(end, End::PowerCut(_))
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
                let mut end = End::Refused;
                if !self.is(Fault::KeyInMemory) {
                    end = self.write(board, &[(&REPLACE, PENDING, pending.text().as_bytes())]);
                }
                if let End::PowerCut(_) = end {
                    return;
                }
                self.machines[board].shell.is_in_memory = end == End::Refused && !self.is(Fault::KeyInMemory);
                key
            }
        };
        let request = SigningRequest::new(&self.machines[board].node, key.point().unwrap_or_default());
        let machine = &mut self.machines[board];
        machine.shell.pending = Some(key);
        let on_disk = || machine.folder.read(NODE_PASSWORD).and_then(NodePassword::read);
        let node_password = machine.shell.node_password.clone().or_else(on_disk);
        let made = Input::RequestMade { request: Box::new(request), signature: vec![1; 70], node_password };
        self.answer(board, FILE_US, made);
    }

    /// A key that an earlier process left, whose certificate is not in use.
    fn found_key(&mut self, board: usize, is_new: bool) -> Option<PrivateKey> {
        let machine = &mut self.machines[board];
        let kept = [NODE, OLD].iter().find_map(|name| NodePem::read(machine.folder.read(name)?).ok());
        if let (Some(Fault::KeyReused), Some(kept)) = (self.fault, &kept) {
            return Some(kept.key.clone());
        }
        let pending = machine.folder.read(PENDING).filter(|_| !is_new).and_then(|text| Pending::read(text).ok())?;
        let is_used = kept.is_some_and(|kept| kept.key == pending.key);
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
        let steps: [(&[FileStep], &str, &[u8]); 3] =
            [(&SET_ASIDE, NODE, &[]), (&REPLACE, NODE, text.as_bytes()), (&FORGET, PENDING, &[])];
        match self.write(board, &steps) {
            End::PowerCut(_) => return,
            End::Done => self.judge.kept(board, &leaf),
            End::Refused => self.judge.uses(board, &leaf),
        }
        self.answer(board, FILE_US, Input::Credentials(dates));
    }

    /// One change after the other, up to a power cut; that a file has no second name does no harm.
    fn write(&mut self, board: usize, changes: &[(&[FileStep], &str, &[u8])]) -> End {
        let steps: usize = changes.iter().map(|(steps, ..)| steps.len()).sum();
        let mut left = (self.peace_us.is_none() && self.random.per_mille(self.plan.cuts_per_mille))
            .then(|| self.random.below(steps as u64 + 1) as usize);
        for (steps, name, bytes) in changes {
            let is_unsynced = self.is(Fault::RenamedUnsynced) && *name == NODE;
            let wanted = |step: &&FileStep| !(is_unsynced && matches!(step, FileStep::Sync(_)));
            let steps: Vec<FileStep> = steps.iter().filter(wanted).copied().collect();
            let end = self.machines[board].folder.change(&steps, name, bytes, left);
            left = left.map(|left| left.saturating_sub(steps.len()));
            let is_needed = steps.contains(&FileStep::SyncFolder);
            match end {
                End::PowerCut(step) => {
                    self.say(|| format!("    in the change of {name}, before {:?}", steps.get(step)));
                    self.cut_power(board);
                    return end;
                }
                End::Refused if is_needed => {
                    self.machines[board].folder.change(&[FileStep::Remove(".new")], name, &[], None);
                    return end;
                }
                End::Refused | End::Done => {}
            }
        }
        if left.is_some() {
            // All of it is on the disk, and nobody was told.
            self.cut_power(board);
            return End::PowerCut(steps);
        }
        End::Done
    }

    /// Nobody but the cluster's own.
    pub fn check_trust(&mut self, authorities: &[CertificateDer<'static>]) {
        let own: Vec<&[u8]> = self.cluster.own.iter().map(|authority| authority.der.as_slice()).collect();
        let checked = self.judge.trusts(authorities.iter().map(AsRef::as_ref), &own);
        self.check(checked);
    }
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
