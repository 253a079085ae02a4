//! Turns what the identity lane wants beyond a request over the usual connection into keys, files and another connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;

use super::{Inbox, Input, Message, ReadMeans, Shared, Start, clock, thread};
use crate::agent::{Access, CredentialDates, Means, Ticket};
use crate::api::{Answer, Operation, Refusal};
use crate::config::kubeconfig::{Material, Server};
use crate::config::settings::Token;
use crate::identity::files::{NodePem, PrivateKey};
use crate::identity::pem;
use crate::io::credentials;
use crate::io::identity::{IdentityFiles, Made};
use crate::io::pool::{Pool, Unproven};
use crate::time::Wall;

/// One step of the lane; it wants the next only when it has heard of this one.
pub(super) enum Step {
    Send(Ticket, Access, Operation),
    ReadMeans,
    UseCluster { servers: Vec<Server>, authorities: Vec<CertificateDer<'static>>, supervisor: Option<u16> },
    MakeRequest { is_new: bool },
    TakeKey(PrivateKey),
    Keep { chain: Vec<CertificateDer<'static>>, received: Option<Wall> },
}

/// What the lane's steps need.
pub(super) struct Identity {
    pub files: IdentityFiles,
    /// There was a certificate, or a token, at the start.
    pub is_joined: bool,
    steps: Inbox<Step>,
    read_means: ReadMeans,
    /// On the way to the server that a board joins over.
    proxy: Option<Server>,
    /// One that stands in no file, until the board has joined.
    token: RefCell<Option<Token>>,
}

impl Identity {
    pub fn new(start: &Start) -> Identity {
        Identity {
            files: IdentityFiles::new(&start.settings.state_directory, &start.node_name),
            is_joined: start.kubeconfig.is_some(),
            steps: Inbox::default(),
            read_means: Arc::clone(&start.read_means),
            proxy: start.settings.proxy_url.clone(),
            token: RefCell::default(),
        }
    }

    pub fn wants(&self, step: Step) {
        self.steps.push(step);
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
            let input = match self.identity.steps.next().await {
                Step::Send(ticket, Access::InUse, operation) => {
                    Input::Answered(ticket, self.pool.exchange(operation).await)
                }
                Step::Send(ticket, Access::Candidate { chain }, operation) => {
                    proving = proving.take().filter(|(known, _)| *known == chain);
                    if proving.is_none() {
                        let node_pem = self.identity.files.with_key(chain.clone(), None);
                        proving = node_pem.map(|node_pem| (chain, Rc::new(self.pool.with_certificate(&node_pem))));
                    }
                    let answer = match &proving {
                        Some((_, pool)) => pool.exchange(operation).await,
                        None => lost_key(),
                    };
                    Input::Answered(ticket, answer)
                }
                Step::Send(ticket, access, operation) => {
                    // A certificate in use is another one with each renewal.
                    let is_fresh = matches!(access, Access::Supervisor { .. });
                    if is_fresh || introduced.as_ref().is_none_or(|(known, _)| *known != access) {
                        introduced = self.introduce(&access).map(|pool| (access, Rc::new(pool)));
                    }
                    let pool = introduced.as_ref().map_or(&self.pool, |(_, pool)| pool);
                    Input::Answered(ticket, pool.exchange(operation).await)
                }
                Step::ReadMeans => Input::Means(self.read_means().await),
                Step::UseCluster { servers, authorities, supervisor } => {
                    let proxy = self.identity.proxy.as_ref();
                    self.identity.files.supervise(&self.reactor, supervisor).await;
                    if let Some(kubeconfig) = self.identity.files.use_cluster(&servers, &authorities, proxy).await {
                        self.pool.use_cluster(kubeconfig);
                    }
                    let token = self.identity.token.take();
                    if let Some(token) = token {
                        self.identity.files.keep_token(token).await;
                    }
                    continue;
                }
                Step::MakeRequest { is_new } => {
                    let Made { request, signature, node_password } = self.make_request(is_new).await;
                    Input::RequestMade { request: Box::new(request), signature, node_password }
                }
                Step::TakeKey(key) => {
                    self.identity.files.take_key(key);
                    continue;
                }
                Step::Keep { chain, received } => {
                    introduced = None;
                    let node_pem = self.identity.files.with_key(chain, received);
                    let proved = proving.take().map(|(_, proved)| proved);
                    Input::Credentials(self.keep(node_pem.zip(proved)).await)
                }
            };
            self.inbox.push(Message::Input(input));
        }
    }

    /// What is in use from then on: where nobody has proved another one, what was before.
    async fn keep(&self, proved: Option<(NodePem, Rc<Pool>)>) -> CredentialDates {
        let mut dates = match proved {
            Some((node_pem, proved)) => {
                let node_pem = Arc::new(node_pem);
                let dates = self.pool.change_over(Arc::clone(&node_pem), &proved).await;
                self.identity.files.keep(node_pem).await;
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

    /// `None`: it goes over the connection of all lanes.
    fn introduce(&self, access: &Access) -> Option<Pool> {
        Some(match access {
            Access::Introduced { server, authorities, token } => {
                let given =
                    authorities.as_ref().map(|authorities| Material::Data(pem::of_certificates(authorities).into()));
                // Without a CA, in use or given, there is nobody to say the token to.
                let trust = given.or_else(|| self.pool.authority()).ok_or(Unproven);
                self.pool.introduced(server.clone(), trust, token.as_ref())
            }
            Access::Supervisor { port } => self.pool.supervisor(*port),
            Access::Unverified { server } => self.pool.introduced(server.clone(), Err(Unproven), None),
            Access::InUse | Access::Candidate { .. } => return None,
        })
    }

    async fn read_means(&self) -> Result<Box<Means>, String> {
        let read = Arc::clone(&self.identity.read_means);
        let servers = self.pool.servers();
        let reading = self.settings_source.ask(move || read(&servers));
        let means = self.reactor.before(clock::up() + thread::FILE_PATIENCE, reading).await;
        let silent = || Err("a file that says how to join does not answer".to_owned());
        let means = means.and_then(Result::ok).unwrap_or_else(silent)?;
        self.identity.token.replace(means.is_fleeting.then(|| means.token.clone()));
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

fn lost_key() -> Answer {
    let failure = credentials::unusable("the key of the certificate that was issued is gone");
    Answer { date: None, result: Err(Refusal::Failed(failure)) }
}
