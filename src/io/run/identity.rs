//! Turns what the identity lane wants beyond a request over the usual connection into keys, files and another connection.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;

use super::{Input, Message, Shared, clock};
use crate::agent::{Access, Ticket};
use crate::api::{Answer, Operation, Refusal};
use crate::io::credentials;
use crate::io::identity::Made;
use crate::io::pool::Pool;
use crate::time::Wall;

/// One step of the lane; it wants the next only when it has heard of this one.
pub(super) enum Step {
    Send(Ticket, Access, Operation),
    MakeRequest { is_new: bool },
    Keep { chain: Vec<CertificateDer<'static>>, received: Option<Wall> },
}

/// How long to wait for random numbers, or for memory for a thread.
const PAUSE: Duration = Duration::from_secs(60);

impl Shared {
    pub(super) async fn serve_identity(&self) {
        // What the certificate that was issued last is proved over, until it is in use.
        let mut proving: Option<(Vec<CertificateDer<'static>>, Rc<Pool>)> = None;
        loop {
            let input = match self.identity_steps.next().await {
                Step::Send(ticket, Access::InUse, operation) => {
                    Input::Answered(ticket, self.pool.exchange(operation).await)
                }
                Step::Send(ticket, Access::Candidate { chain }, operation) => {
                    proving = proving.take().filter(|(known, _)| *known == chain);
                    if proving.is_none() {
                        let node_pem = self.identity.with_key(chain.clone(), None);
                        proving = node_pem.map(|node_pem| (chain, Rc::new(self.pool.with_certificate(&node_pem))));
                    }
                    let answer = match &proving {
                        Some((_, pool)) => pool.exchange(operation).await,
                        None => lost_key(),
                    };
                    Input::Answered(ticket, answer)
                }
                Step::MakeRequest { is_new } => {
                    let Made { request, signature } = self.make_request(is_new).await;
                    Input::RequestMade { request: Box::new(request), signature }
                }
                Step::Keep { chain, received } => {
                    let node_pem = self.identity.with_key(chain, received).map(Arc::new);
                    let (Some(node_pem), Some((_, proved))) = (node_pem, proving.take()) else { continue };
                    let mut dates = self.pool.change_over(Arc::clone(&node_pem), &proved).await;
                    self.identity.keep(node_pem).await;
                    loop {
                        match dates {
                            Ok(dates) => break Input::Credentials(dates),
                            // The CA cannot be read just now.
                            Err(_) => self.reactor.sleep_until(clock::up() + PAUSE).await,
                        }
                        dates = self.pool.reload().await;
                    }
                }
            };
            self.inbox.push(Message::Input(input));
        }
    }

    async fn make_request(&self, is_new: bool) -> Made {
        loop {
            match self.identity.make_request(&self.reactor, is_new).await {
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
