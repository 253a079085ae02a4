//! Turns what the identity lane wants beyond a request over the usual connection into keys, files and another connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::{Inbox, Input, Message, ReadMeans, Shared, Start, clock, thread};
use crate::agent::{Access, CredentialDates, IdentityStep, JoinedCluster, Means, Trust};
use crate::api::{Answer, Refusal};
use crate::config::Settings;
use crate::config::kubeconfig::{Material, Server};
use crate::identity::files::NodePem;
use crate::identity::{Bundle, pem, pin};
use crate::io::credentials;
use crate::io::identity::{IdentityFiles, Made};
use crate::io::pool::{Pool, Unproven};

/// One thing after the other.
enum Work {
    Step(IdentityStep),
    /// The settings were read.
    Follow {
        servers: Vec<Server>,
        proxy: Option<Server>,
    },
}

/// What the lane's steps need.
pub(super) struct Identity {
    pub files: IdentityFiles,
    /// There was a certificate, or a token, at the start.
    pub is_joined: bool,
    work: Inbox<Work>,
    read_means: ReadMeans,
    /// Of the settings.
    proxy: RefCell<Option<Server>>,
    /// Token and hashes that stand in no file, until the board has joined.
    means: RefCell<Option<Zeroizing<String>>>,
}

impl Identity {
    pub fn new(start: &Start) -> Identity {
        let identity = Identity {
            files: IdentityFiles::new(&start.settings.state_directory, &start.node_name),
            is_joined: start.kubeconfig.is_some(),
            work: Inbox::default(),
            read_means: Arc::clone(&start.read_means),
            proxy: RefCell::default(),
            means: RefCell::default(),
        };
        identity.follow(&start.settings);
        identity
    }

    /// Where the settings say that the cluster is.
    pub fn follow(&self, settings: &Settings) {
        self.work.push(Work::Follow { servers: settings.servers.clone(), proxy: settings.proxy_url.clone() });
    }

    pub fn wants(&self, step: IdentityStep) {
        self.work.push(Work::Step(step));
    }
}

/// How long to wait for random numbers, or for memory for a thread.
const PAUSE: Duration = Duration::from_secs(60);

impl Shared {
    pub(super) async fn serve_identity(&self) {
        // What the certificate that was issued last is proved over, until it is in use.
        let mut proving: Option<(Vec<CertificateDer<'static>>, Rc<Pool>)> = None;
        // What a server that proves itself is asked over, while the board joins.
        let mut introduced: Option<(Access, Rc<Pool>)> = None;
        loop {
            let step = match self.next_work().await {
                Work::Step(step) => step,
                Work::Follow { servers, proxy } => {
                    self.follow(&servers, proxy).await;
                    continue;
                }
            };
            let input = match step {
                IdentityStep::Send(ticket, Access::InUse, operation) => {
                    Input::Answered(ticket, self.pool.exchange(operation).await)
                }
                IdentityStep::Send(ticket, Access::Candidate { chain }, operation) => {
                    proving = proving.take().filter(|(known, _)| *known == chain);
                    if proving.is_none() {
                        end(introduced.take());
                        proving = self.to_prove(chain);
                    }
                    let answer = match &proving {
                        Some((_, pool)) => pool.exchange(operation).await,
                        None => lost_key(),
                    };
                    Input::Answered(ticket, answer)
                }
                IdentityStep::Send(ticket, access, operation) => {
                    // A certificate in use is another one with each renewal.
                    let is_fresh = matches!(access, Access::Supervisor { .. });
                    if is_fresh || introduced.as_ref().is_none_or(|(known, _)| *known != access) {
                        introduced = self.introduce(&access).map(|pool| (access, Rc::new(pool)));
                    }
                    let pool = introduced.as_ref().map_or(&self.pool, |(_, pool)| pool);
                    let answer = pool.exchange(operation).await;
                    // Whoever is asked without a token is asked one thing.
                    if !matches!(&introduced, Some((Access::Introduced { token: Some(_), .. }, _))) {
                        end(introduced.take());
                    }
                    Input::Answered(ticket, answer)
                }
                IdentityStep::ReadMeans { has_other_ca } => Input::Means(self.read_means(has_other_ca).await),
                IdentityStep::ReadCluster => Input::Cluster(self.joined_cluster().await),
                step @ (IdentityStep::UseCluster { .. } | IdentityStep::UseLastResorts(_)) => {
                    self.use_what_was_learned(step).await;
                    continue;
                }
                IdentityStep::MakeRequest { is_new } => {
                    let Made { request, signature, node_password } = self.make_request(is_new).await;
                    Input::RequestMade { request: Box::new(request), signature, node_password }
                }
                IdentityStep::TakeKey(key) => {
                    self.identity.files.take_key(key);
                    continue;
                }
                IdentityStep::KeepCertificate { chain, received } => {
                    let node_pem = self.identity.files.with_key(chain, received);
                    let proved = proving.take().map(|(_, proved)| proved);
                    end(introduced.take());
                    Input::Credentials(self.keep(node_pem.zip(proved)).await)
                }
            };
            self.inbox.push(Message::Input(input));
        }
    }

    /// What the disk has not taken is tried again meanwhile.
    async fn next_work(&self) -> Work {
        let Identity { files, work, .. } = &self.identity;
        loop {
            let Some(at) = files.due_at() else { return work.next().await };
            match self.reactor.before(at, work.next()).await {
                Some(work) => return work,
                None => files.write(&self.reactor, Vec::new()).await,
            }
        }
    }

    async fn use_what_was_learned(&self, step: IdentityStep) {
        match step {
            IdentityStep::UseCluster { servers, authorities, supervisor } => {
                if !servers.is_empty() {
                    self.identity.files.supervise(&self.reactor, supervisor).await;
                }
                self.use_cluster(servers, &authorities).await;
            }
            IdentityStep::UseLastResorts(last_resorts) => {
                if let Some(authorities) = self.joined_authorities() {
                    self.use_servers(Vec::new(), last_resorts, &authorities).await;
                }
            }
            _ => {}
        }
    }

    async fn use_cluster(&self, servers: Vec<Server>, authorities: &Bundle) {
        self.use_servers(servers, self.pool.kubeconfig().last_resorts.clone(), authorities).await;
    }

    /// Without servers, at those that it knows.
    async fn use_servers(&self, servers: Vec<Server>, mut last_resorts: Vec<Server>, authorities: &Bundle) {
        let (files, known) = (&self.identity.files, self.pool.kubeconfig());
        let servers = if servers.is_empty() { known.servers().cloned().collect() } else { servers };
        last_resorts.retain(|server| !servers.contains(server));
        // That of the settings; without one, the way that it has joined by.
        let proxy = self.identity.proxy.borrow().clone().or_else(|| known.proxy.clone());
        let kept = files.use_cluster(&self.reactor, &servers, &last_resorts, authorities, proxy.as_ref()).await;
        if let Some(kubeconfig) = kept {
            // Where it cannot be used, what was in use stays; a board that joins has no certificate yet.
            let _ = self.pool.replace(kubeconfig).await;
        }
        let means = self.identity.means.take();
        if let Some(means) = means {
            files.keep_means(&self.reactor, means).await;
        }
    }

    /// The settings say where the cluster is by now; its CA has been proven, and stays.
    async fn follow(&self, named: &[Server], proxy: Option<Server>) {
        *self.identity.proxy.borrow_mut() = proxy.clone();
        let Some(JoinedCluster { authorities, supervisor, .. }) = self.joined_cluster().await else { return };
        let kubeconfig = self.pool.kubeconfig();
        let known: Vec<Server> = kubeconfig.servers().cloned().collect();
        let ports = supervisor.zip(known.first().map(|first| first.port));
        let named: Vec<Server> = named.iter().map(|server| server.clone().of_api(ports)).collect();
        let moved = Server::moved(&known, &named);
        if let Some(first) = moved.iter().flatten().next() {
            ::log::info!(target: "servers-changed", "the settings name other servers: asking {} from now on", first.authority());
        }
        if moved.is_some() || (proxy.is_some() && proxy != kubeconfig.proxy) {
            self.use_cluster(moved.unwrap_or(known), &authorities).await;
        }
    }

    /// What is in use from then on: where nobody has proved another one, what was before.
    async fn keep(&self, proved: Option<(NodePem, Rc<Pool>)>) -> CredentialDates {
        let mut dates = match proved {
            Some((node_pem, proved)) => {
                let node_pem = Arc::new(node_pem);
                let dates = self.pool.change_over(Arc::clone(&node_pem), &proved).await;
                self.identity.files.keep(&self.reactor, &node_pem).await;
                dates
            }
            None => self.pool.reload().await,
        };
        loop {
            match dates {
                Ok(dates) => return dates,
                // The CA cannot be read just now.
                Err(_) => self.reactor.sleep_until(clock::up() + PAUSE).await,
            }
            dates = self.pool.reload().await;
        }
    }

    /// Where this certificate proves itself, its connection takes the place of the one in use: memory for both at once would
    /// never be given back.
    fn to_prove(&self, chain: Vec<CertificateDer<'static>>) -> Option<(Vec<CertificateDer<'static>>, Rc<Pool>)> {
        let node_pem = self.identity.files.with_key(chain.clone(), None)?;
        self.pool.drop_idle();
        Some((chain, Rc::new(self.pool.with_certificate(&node_pem))))
    }

    /// `None`: it goes over the connection of all lanes.
    fn introduce(&self, access: &Access) -> Option<Pool> {
        Some(match access {
            Access::Introduced { server, authorities, token } => {
                let given =
                    authorities.as_ref().map(|authorities| Material::Data(pem::of_certificates(authorities).into()));
                // Without a CA, in use or given, there is nobody to say the token to.
                let trust = given.or_else(|| self.pool.kubeconfig().certificate_authority.clone()).ok_or(Unproven);
                self.pool.introduced(server.clone(), trust, token.as_ref())
            }
            Access::Supervisor { port } => self.pool.supervisor(*port),
            Access::Unverified { server } => self.pool.introduced(server.clone(), Err(Unproven), None),
            Access::InUse | Access::Candidate { .. } => return None,
        })
    }

    /// The cluster that the board has joined by itself; `None` also where the disk does not say how.
    async fn joined_cluster(&self) -> Option<JoinedCluster> {
        let authorities = self.joined_authorities()?;
        let supervisor = self.identity.files.supervisor(&self.reactor).await.ok()?;
        let last_resorts = self.pool.kubeconfig().last_resorts.clone();
        Some(JoinedCluster { servers: self.pool.servers(), last_resorts, authorities, supervisor })
    }

    fn joined_authorities(&self) -> Option<Bundle> {
        let known = self.pool.kubeconfig();
        match &known.certificate_authority {
            Some(Material::Data(pem)) if !known.context.is_empty() && self.identity.files.are_of(&known.path) => {
                Some(Bundle::read(pem))
            }
            _ => None,
        }
    }

    async fn read_means(&self, has_other_ca: bool) -> Result<Box<Means>, String> {
        let joined = self.joined_authorities();
        if has_other_ca && joined.is_none() {
            return Err("its CA is that of a kubeconfig that it was given: put the new one there".to_owned());
        }
        let read = Arc::clone(&self.identity.read_means);
        let servers = self.pool.servers();
        let reading = self.settings_source.ask(move || read(&servers));
        let means = self.reactor.before(clock::up() + thread::FILE_PATIENCE, reading).await;
        let silent = || Err("a file that says how to join does not answer".to_owned());
        let mut means = means.and_then(Result::ok).unwrap_or_else(silent)?;
        self.identity.means.replace(means.is_fleeting.then(|| means.text()));
        if let (Trust::Pinned(pins), Some(bundle)) = (&mut means.trust, joined) {
            // A CA that was trusted may come again under another name (CA-2).
            pins.extend(bundle.all().iter().filter_map(|one| pin::of(one)));
        }
        Ok(Box::new(means))
    }

    async fn make_request(&self, is_new: bool) -> Made {
        loop {
            match self.identity.files.make_request(&self.reactor, is_new).await {
                Ok(made) => return made,
                Err(why) => ::log::warn!(target: "identity-without-key", "no key for the next certificate: {why}"),
            }
            self.reactor.sleep_until(clock::up() + PAUSE).await;
        }
    }
}

/// A connection that is kept costs memory.
fn end(introduced: Option<(Access, Rc<Pool>)>) {
    introduced.iter().for_each(|(_, pool)| pool.drop_idle());
}

fn lost_key() -> Answer {
    let failure = credentials::unusable("the key of the certificate that was issued is gone");
    Answer { date: None, result: Err(Refusal::Failed(failure)) }
}
