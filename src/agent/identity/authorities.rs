//! Turns cluster-info, or what a supervisor has in its place, read over a connection that the known CAs verify, into the CAs that
//! the board trusts from then on (CA-1, CA-2), and the control plane's own addresses into servers of last resort (JOIN-7).

use std::time::Duration;

use super::super::contract::{Access, IdentityStep, JoinedCluster};
use super::super::notice::Level;
use super::super::shared::Shared;
use super::{HOUR, hashes};
use crate::api::{Document, Operation, Refusal, StatusError};
use crate::config::kubeconfig::Server;
use crate::config::limits;
use crate::identity::cluster_info::{self, ClusterInfo};
use crate::identity::{Bundle, CertificateDer, endpoints, pem, supervisor};
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
    Locating(Box<Locating>),
}

#[derive(Debug)]
struct Asking {
    server: Server,
    is_supervisor: bool,
    then: Box<Locating>,
    known: Bundle,
    /// Of these, those that verify the connection.
    over: Bundle,
    is_sent: bool,
}

/// Where the control plane is by its own word.
#[derive(Debug)]
struct Locating {
    given: Vec<Server>,
    last_resorts: Vec<Server>,
    /// Until the next look.
    pause: Duration,
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
            Step::Asking(_) | Step::Locating(_) => Some(now),
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
        if let Step::Locating(locating) = &mut self.step {
            locating.is_sent = true;
            return Some((Access::InUse, Operation::ReadEndpoints));
        }
        if let Step::Asking(asking) = &mut self.step {
            asking.is_sent = true;
            let authorities = Some(asking.over.all());
            let access = Access::Introduced { server: asking.server.clone(), authorities, token: None };
            let asked = if asking.is_supervisor { supervisor::ask_authorities() } else { Operation::ReadClusterInfo };
            return Some((access, asked));
        }
        self.step = Step::Reading;
        shared.wants(IdentityStep::ReadCluster);
        None
    }

    /// The answer that comes next is to what it asked.
    pub(super) fn is_under_way(&self) -> bool {
        match &self.step {
            Step::Asking(asking) => asking.is_sent,
            Step::Locating(locating) => locating.is_sent,
            Step::Rest | Step::Reading => false,
        }
    }

    pub(super) fn cluster_read(&mut self, cluster: Option<JoinedCluster>, shared: &mut Shared, now: Now) {
        let read = cluster.and_then(|of| Some((of.servers.first()?.clone(), of)));
        let Some((server, of)) = read else { return self.rest(WEEK, shared, now.up) };
        let JoinedCluster { servers: given, last_resorts, authorities: known, supervisor } = of;
        let over = shared.stamp(now).and_then(|stamp| known.without_absent(stamp));
        let over = over.unwrap_or_else(|| known.clone());
        let (server, is_supervisor) =
            (Server { port: supervisor.unwrap_or(server.port), ..server }, supervisor.is_some());
        let then = Box::new(Locating { given, last_resorts, pause: WEEK, is_sent: false });
        self.step = Step::Asking(Box::new(Asking { server, is_supervisor, then, known, over, is_sent: false }));
    }

    pub(super) fn answered(&mut self, result: Result<Document, Refusal>, shared: &mut Shared, now: Now) {
        let mut asking = match std::mem::take(&mut self.step) {
            Step::Asking(asking) => asking,
            Step::Locating(locating) => return self.located(*locating, result, shared, now),
            Step::Rest | Step::Reading => return,
        };
        let pause = match result {
            Ok(Document::Json(body)) => {
                if let Ok(cluster) = ClusterInfo::read(&body).and_then(|info| info.cluster()) {
                    asking.seen(&cluster.authorities, shared, now);
                }
                WEEK
            }
            Ok(Document::HandedOut(body)) => {
                let shown: Vec<_> = pem::certificates(&body).take(limits::CA_CERTIFICATES).collect();
                if !shown.is_empty() {
                    asking.seen(&shown, shared, now);
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
            _ => return self.rest(HOUR, shared, now.up),
        };
        self.step = Step::Locating(Box::new(Locating { pause, ..*asking.then }));
    }

    /// Whatever is answered, the next look is when it was to be.
    fn located(&mut self, locating: Locating, result: Result<Document, Refusal>, shared: &mut Shared, now: Now) {
        let Locating { given, last_resorts, pause, .. } = locating;
        if let Ok(Document::Protobuf(body)) = result {
            let (listed, turn) = (endpoints::read(&body), shared.random.next());
            if let Some(learned) = endpoints::learned(&last_resorts, &listed, &given, turn) {
                shared.wants(IdentityStep::UseLastResorts(learned));
            }
        }
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
    fn seen(&self, shown: &[CertificateDer<'static>], shared: &mut Shared, now: Now) {
        let Asking { known, over, .. } = self;
        let (seen, before) = (over.seen(shown, shared.stamp(now)), known.all());
        let new: Vec<_> = seen.shown.iter().filter(|one| !before.contains(one)).cloned().collect();
        if !new.is_empty() {
            let text = format!(
                "the cluster shows another CA, which is trusted from now on beside the old one:{}",
                hashes(&new)
            );
            shared.say(Level::Info, "ca-added", text);
        }
        if seen != *known {
            shared.wants(IdentityStep::UseCluster { servers: Vec::new(), authorities: seen, supervisor: None });
        }
    }
}
