//! Turns a person's wish for another certificate into the lane's next step, and what comes of it, or how far a join is, into a
//! sentence for them.

use super::super::contract::{Access, Output};
use super::super::notice::Level;
use super::super::shared::Shared;
use super::request::TOLD_AT_LOOK;
use super::{IdentityLane, Stage};
use crate::time::Now;

impl IdentityLane {
    /// How far a board without credentials is, for people, and whether somebody has to do something about it.
    pub(in crate::agent) fn joining(&self) -> (bool, String) {
        let step = match &self.stage {
            Stage::Poll(made, poll) if poll.looks >= TOLD_AT_LOOK => {
                return (true, format!("waiting for approval: kubectl certificate approve {}", made.request.name()));
            }
            Stage::Join | Stage::Rest { .. } => "finding out which cluster it is",
            Stage::Making(_) | Stage::Create(_) | Stage::Poll(..) => "asking for a certificate",
            Stage::Prove(..) | Stage::Keep => "trying the certificate",
        };
        let obstacle = self.join.as_ref().and_then(|join| join.obstacle()).or(self.tries.last_failure());
        (obstacle.is_some(), obstacle.unwrap_or(step).to_owned())
    }

    /// A person wants a successor now (ROT-2). What is under way goes on, and is told to them as well.
    pub(in crate::agent) fn renew(&mut self, is_held: bool, shared: &mut Shared, now: Now) {
        self.is_asked = true;
        let (life, stamp) = (shared.credentials.dates().renewal, shared.stamp(now));
        match (&mut self.stage, life.zip(stamp)) {
            (Stage::Create(request) | Stage::Poll(request, _) | Stage::Prove(request, _), _) => request.at = now.up,
            (Stage::Rest { .. }, Some((life, stamp))) if is_held && stamp >= life.earliest() => {
                self.make(Access::InUse, shared);
            }
            (Stage::Rest { .. }, Some((life, _))) if is_held => {
                let text = format!("the certificate is a new one: it is not renewed before {}", life.earliest());
                self.tell(Err(text), shared);
            }
            (Stage::Rest { .. } | Stage::Join, _) => {
                let text = self.why_not(is_held, life.is_some());
                self.tell(Err(text), shared);
            }
            (Stage::Making(_) | Stage::Keep, _) => {}
        }
    }

    /// Why nothing is asked for just now. `has_life`: the certificate in use has a successor.
    fn why_not(&self, is_held: bool, has_life: bool) -> String {
        let obstacle = self.join.as_ref().and_then(|join| join.obstacle());
        match obstacle {
            _ if !is_held => {
                "no Lease is being renewed just now, and so no certificate: see what the log says, and ask again then"
                    .to_owned()
            }
            _ if self.is_unapproved => format!(
                "nobody has approved the renewal, and it is being asked for with the token{}; the certificate in use serves \
                 meanwhile",
                obstacle.map(|obstacle| format!(" ({obstacle})")).unwrap_or_default()
            ),
            _ if has_life => {
                "what time it is is not known yet, and so not whether the certificate is a new one".to_owned()
            }
            _ => "there is no certificate of this node that can be renewed: see nodepulse identity".to_owned(),
        }
    }

    /// Whoever waits for it is told, once.
    pub(super) fn tell(&mut self, told: Result<String, String>, shared: &mut Shared) {
        if std::mem::take(&mut self.is_asked) {
            shared.output(Output::Told(told));
        }
    }

    /// Said in the log, and to whoever waits.
    pub(super) fn warn(&mut self, word: &'static str, text: String, shared: &mut Shared) {
        self.tell(Err(text.clone()), shared);
        shared.say(Level::Warn, word, text);
    }
}
