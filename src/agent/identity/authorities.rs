//! Turns cluster-info, read over a connection that the known CAs verify, into the CAs that the board trusts from then on (CA-1,
//! CA-2).

use std::time::Duration;

use super::super::contract::{Access, Output};
use super::super::notice::Level;
use super::super::shared::Shared;
use super::{HOUR, hashes};
use crate::api::{Document, Operation, Refusal, StatusError};
use crate::config::kubeconfig::Server;
use crate::identity::cluster_info::{self, ClusterInfo};
use crate::identity::{Bundle, CertificateDer};
use crate::time::{Now, Up};

/// The look at the cluster's CAs, once a week.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// When the next is due; drawn when it is asked for the first time.
    at: Option<Up>,
    looked_at: Option<Up>,
    step: Step,
}

#[derive(Debug, Default)]
enum Step {
    #[default]
    Rest,
    /// `io` says which cluster it is.
    Reading,
    Asking(Box<Asking>),
}

#[derive(Debug)]
struct Asking {
    servers: Vec<Server>,
    known: Bundle,
    /// Of these, those that verify the connection.
    over: Bundle,
    is_sent: bool,
}

/// After the start of a process; a fleet that is switched on together is spread over an hour more.
const FIRST: Duration = Duration::from_secs(600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// Where cluster-info is shown to nobody.
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
/// After one server of several has shown a CA that is not ours.
const AFTER_STRANGER: Duration = Duration::from_secs(60);

impl Look {
    /// When there is something to do, over a connection that works.
    pub(super) fn due(&mut self, shared: &mut Shared, now: Up) -> Option<Up> {
        shared.credentials.dates().renewal?;
        match self.step {
            Step::Reading => None,
            Step::Asking(_) => Some(now),
            Step::Rest => {
                let at = *self.at.get_or_insert_with(|| now + FIRST + shared.random.up_to(HOUR));
                let stranger = shared.credentials.stranger_at().map(|at| at + AFTER_STRANGER);
                let stranger = stranger.map(|at| self.looked_at.map_or(at, |last| at.max(last + HOUR)));
                Some(stranger.map_or(at, |stranger| stranger.min(at)))
            }
        }
    }

    /// What to ask; `None`: `io` first.
    pub(super) fn operation(&mut self, shared: &mut Shared) -> Option<(Access, Operation)> {
        if let Step::Asking(asking) = &mut self.step
            && let Some(server) = asking.servers.first()
        {
            asking.is_sent = true;
            let authorities = Some(asking.over.all());
            let access = Access::Introduced { server: server.clone(), authorities, token: None };
            return Some((access, Operation::ReadClusterInfo));
        }
        self.step = Step::Reading;
        shared.output(Output::ReadCluster);
        None
    }

    /// The answer that comes next is to what it asked.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(&self.step, Step::Asking(asking) if asking.is_sent)
    }

    pub(super) fn cluster_read(&mut self, cluster: Option<(Vec<Server>, Bundle)>, shared: &mut Shared, now: Now) {
        match cluster {
            Some((servers, known)) if !servers.is_empty() => {
                let over = shared.stamp(now).and_then(|stamp| known.without_absent(stamp));
                let over = over.unwrap_or_else(|| known.clone());
                self.step = Step::Asking(Box::new(Asking { servers, known, over, is_sent: false }));
            }
            _ => self.rest(WEEK, shared, now.up),
        }
    }

    pub(super) fn answered(&mut self, result: Result<Document, Refusal>, shared: &mut Shared, now: Now) {
        let Step::Asking(mut asking) = std::mem::take(&mut self.step) else { return };
        let pause = match result {
            Ok(Document::Json(body)) => {
                if let Ok(cluster) = ClusterInfo::read(&body).and_then(|info| info.cluster()) {
                    asking.seen(&cluster.authorities, shared, now);
                }
                WEEK
            }
            Err(Refusal::Status(StatusError { code, .. })) if cluster_info::refused(code).is_some() => MONTH,
            // Somebody needs those that have been absent for so long.
            Err(_) if asking.over != asking.known => {
                (asking.over, asking.is_sent) = (asking.known.clone(), false);
                self.step = Step::Asking(asking);
                return;
            }
            _ => HOUR,
        };
        self.rest(pause, shared, now.up);
    }

    /// Settings are read again: a person who waits for a new CA need not wait a week.
    pub(super) fn hurry(&mut self, now: Up) {
        self.at = Some(now);
    }

    fn rest(&mut self, pause: Duration, shared: &mut Shared, now: Up) {
        self.step = Step::Rest;
        self.looked_at = Some(now);
        self.at = Some(now + shared.random.around(pause));
        shared.credentials.looked_into_strangers();
    }
}

impl Asking {
    fn seen(self, shown: &[CertificateDer<'static>], shared: &mut Shared, now: Now) {
        let Asking { servers, known, over, .. } = self;
        let (seen, before) = (over.seen(shown, shared.stamp(now)), known.all());
        let new: Vec<_> = seen.shown.iter().filter(|one| !before.contains(one)).cloned().collect();
        if !new.is_empty() {
            let text = format!(
                "the cluster shows another CA, which is trusted from now on beside the old one:{}",
                hashes(&new)
            );
            shared.say(Level::Info, "ca-added", text);
        }
        if seen != known {
            shared.output(Output::UseCluster { servers, authorities: seen, supervisor: None });
        }
    }
}
