//! Turns what a command asks of an API server, one thing after the other, into answers.

use std::rc::Rc;

use super::super::clock::CertificateClock;
use super::super::credentials;
use super::super::identity::IdentityFiles;
use super::super::pool::{Pool, Unproven};
use super::super::reactor::Reactor;
use super::super::resolve::Resolver;
use super::{cannot_sleep, new_reactor};
use crate::agent::{CredentialDates, Notice};
use crate::api::{Answer, Failure, Operation, Refusal};
use crate::config::Settings;
use crate::config::kubeconfig::{Kubeconfig, Server};

/// A connection to the API server for a command that asks several things, one after the other.
pub struct Session {
    reactor: Rc<Reactor>,
    pool: Pool,
}

impl Session {
    pub fn open(kubeconfig: Kubeconfig, settings: &Settings, node_name: &str) -> Result<Session, Notice> {
        let reactor = new_reactor()?;
        let resolver = Rc::new(Resolver::new(Rc::clone(&reactor), Rc::default()));
        let successor = IdentityFiles::new(&settings.state_directory, node_name).successor();
        let (clock, http) = (CertificateClock::new(), settings.http());
        let pool = Pool::new(Rc::clone(&reactor), resolver, clock, kubeconfig, successor, http);
        Ok(Session { reactor, pool })
    }

    /// Reads the credentials and says how long they are valid.
    pub fn credentials(&self) -> Result<CredentialDates, Failure> {
        let read = self.reactor.block_on(self.pool.reload());
        read.unwrap_or_else(|error| Err(credentials::unusable(error.to_string())))
    }

    /// Of the server in use, or of the supervisor at that port of it, whoever that is by now: it hears nothing secret.
    pub fn ask_unproven(&self, supervisor: Option<u16>, operation: Operation) -> Result<Answer, Notice> {
        let known = self.pool.kubeconfig().server.clone();
        let pool =
            self.pool.introduced(Server { port: supervisor.unwrap_or(known.port), ..known }, Err(Unproven), None);
        self.reactor.block_on(pool.exchange(operation)).map_err(cannot_sleep)
    }

    /// Of the first server that gives an answer.
    pub fn ask(&self, operation: Operation) -> Result<Answer, Notice> {
        let mut left = self.pool.servers().len();
        loop {
            let answer = self.reactor.block_on(self.pool.exchange(operation.clone())).map_err(cannot_sleep)?;
            left = left.saturating_sub(1);
            if left == 0 || !matches!(answer.result, Err(Refusal::Failed(_))) {
                return Ok(answer);
            }
        }
    }
}
