//! Turns the passing of time and the server's answers into Lease requests: found or created once, then renewed by PATCH.
//!
//! ```text
//! Find --found--> Adopt --200--> Renew --404--> Create --201--> Renew
//!   \--404--> Create --409 AlreadyExists--> Find
//! ```
//!
//! Who adopts it counts on `leaseTransitions`, and each answer to a renewal says where the count stands: a board that
//! another has taken the Lease from knows so with its next renewal (D10).
//!
//! Nothing is sent before the Node exists: its uid is the Lease's owner (LSE-12), and until registration is through this
//! may be another machine's Lease (D10).

use std::time::Duration;

use super::backoff::CEILING;
use super::contract::Output;
use super::notice::Level;
use super::random::spread;
use super::replay::phase;
use super::tries::Tries;
use super::trouble::Remedy;
use super::world::{Ownership, Step, World};
use crate::api::{Answer, Class, Document, Refusal, Wish};
use crate::config::limits::TRIES_PER_RUN;
use crate::node::lease as body;
use crate::node::object::Lease;
use crate::time::{Now, Up, Wall};

#[derive(Debug)]
pub(super) struct LeaseLane {
    stage: Stage,
    /// A renewal may ride with any other wake-up from `earliest` on, and happens by `latest`.
    earliest: Up,
    latest: Up,
    tries: Tries,
    /// Changes of stage since the last success: a Lease that is there and not there by turns is backed off from.
    turns: u32,
    /// Newest renewTime the server may hold; the next one is later, whatever the wall clock does (D5).
    last_renew_time: Option<Wall>,
    /// How many of the coming renewals bring a report along: see [`REPORTS_AFTER_A_FALL`].
    reports_owed: u32,
    /// Owner the stored Lease is known to have.
    owner_uid: Option<String>,
    /// Duration it is known to have.
    duration_seconds: Option<u32>,
    strip_managed_fields: bool,
    /// resourceVersion that the last acknowledged renewal gave it, or that it was found with.
    version: Option<u64>,
    /// How often it has changed its holder, as far as we know.
    transitions: Option<u64>,
    held: bool,
}

/// A renewTime at the end of all stamps has no later one: ours then falls back to the present, where the controller does
/// not count it (NLC-2) until a change of Ready's lastHeartbeatTime makes it forget what it saved. It looks every 5 s, so
/// it may have saved the late one once more between the first such report and the renewal.
const REPORTS_AFTER_A_FALL: u32 = 2;

/// When the next renewal of a Lease that fares well goes out: what else is due about then may go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Nobody can say.
    Unknown,
    Due(Up),
    /// In this moment.
    Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Find,
    Create,
    Adopt,
    Renew,
}

impl LeaseLane {
    pub(super) fn new() -> LeaseLane {
        LeaseLane {
            stage: Stage::Find,
            earliest: Up::BOOT,
            latest: Up::BOOT,
            tries: Tries::of("Lease renewal", Duration::from_millis(200)),
            turns: 0,
            last_renew_time: None,
            reports_owed: 0,
            owner_uid: None,
            duration_seconds: None,
            strip_managed_fields: true,
            version: None,
            transitions: None,
            held: false,
        }
    }

    pub(super) fn poll(&mut self, world: &mut World, now: Now) -> Step {
        if world.node == Ownership::Contested {
            // Whoever gets it, it is another's until then.
            *self = LeaseLane { last_renew_time: self.last_renew_time, ..LeaseLane::new() };
        }
        let Ownership::Ours { uid } = &world.node else { return Step::Idle };
        let duration_seconds = world.settings.node_lease_duration_seconds;
        // The Node was created again, or the settings were read again (LSE-5).
        let outdated = self.owner_uid.as_ref() != Some(uid) || self.duration_seconds != Some(duration_seconds);
        let outdated = outdated && self.stage == Stage::Renew;
        if now.up < self.earliest && !(outdated && self.tries.trouble().is_none()) {
            return Step::Wait { until: self.latest, because: self.tries.because("Lease renewal") };
        }
        let Some(renew_time) = self.next_renew_time(world, now) else { return Step::Idle };
        if outdated {
            self.stage = Stage::Adopt;
        }
        let name = world.node_name.as_str();
        let renewal = |body| Wish::RenewLease { body };
        let wish = match self.stage {
            Stage::Find => Wish::ReadLease,
            Stage::Create => Wish::CreateLease { body: body::create_body(name, uid, duration_seconds, renew_time) },
            Stage::Adopt => {
                let transitions = self.transitions.unwrap_or_default();
                let (seconds, version) = (duration_seconds, self.version);
                renewal(body::renew_and_adopt_body(name, uid, seconds, renew_time, transitions, version))
            }
            Stage::Renew => renewal(body::renew_body(renew_time, self.strip_managed_fields)),
        };
        // A creation is tracked whatever it says, even one whose answer is lost: the renewal after it strips.
        self.strip_managed_fields |= self.stage == Stage::Create;
        if self.stage != Stage::Find {
            if self.last_renew_time.is_some_and(|last| renew_time <= last) {
                self.reports_owed = REPORTS_AFTER_A_FALL;
            }
            self.last_renew_time = Some(renew_time);
            self.owner_uid = Some(uid.clone());
            self.duration_seconds = Some(duration_seconds);
        }
        world.renewal_sent = Some(now.up);
        Step::Send(wish)
    }

    pub(super) fn answered(&mut self, answer: Answer, world: &mut World, now: Now) {
        match answer.result {
            Ok(Document::Lease(lease)) => self.found(&lease, now),
            Ok(document) => {
                let known = self.transitions.take().filter(|_| self.stage == Stage::Renew);
                self.renewed(world, now);
                self.version = None;
                if let Document::Metadata { resource_version, lease_duration_seconds, transitions, .. } = document {
                    self.version = resource_version.parse().ok();
                    self.transitions = Some(transitions);
                    // Somebody wrote it: ours again with the next renewal, no sooner, or two such writers never rest.
                    if lease_duration_seconds.is_some_and(|seconds| Some(seconds) != self.duration_seconds) {
                        self.stage = Stage::Adopt;
                    }
                    if known.is_some_and(|known| known != transitions) {
                        let text = "another board or process has taken over the Lease: writing nothing before it is known \
                                    whose Node this is";
                        world.say(Level::Warning, "lease-taken", text);
                        world.node = Ownership::Contested;
                    }
                }
            }
            Err(refusal) => self.refused(&refusal, world, now),
        }
        world.renewal_sent = None;
    }

    /// When the next renewal goes out; `now` if it just did.
    pub(super) fn renewal(&self, world: &World, now: Up) -> Renewal {
        match self.stage {
            Stage::Renew | Stage::Adopt if self.tries.trouble().is_some() => Renewal::Unknown,
            Stage::Renew | Stage::Adopt if world.renewal_sent == Some(now) => Renewal::Now,
            Stage::Renew | Stage::Adopt => Renewal::Due(self.latest),
            Stage::Find | Stage::Create => Renewal::Unknown,
        }
    }

    /// What waited for this remedy is tried now.
    pub(super) fn hurry(&mut self, remedy: Remedy, now: Now) {
        if self.tries.may_end_with(remedy) {
            self.try_at(now.up);
        }
    }

    /// What the last try said, if it failed.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.tries.trouble()
    }

    /// Whether the server has acknowledged a renewal.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    fn next_renew_time(&self, world: &World, now: Now) -> Option<Wall> {
        let stamp = world.stamp(now)?;
        let after_last = self.last_renew_time.map(|last| last.plus(Duration::from_micros(1)));
        let after_last = after_last.filter(|after_last| *after_last <= Wall::LAST);
        Some(after_last.map_or(stamp, |after_last| stamp.max(after_last)))
    }

    fn try_at(&mut self, moment: Up) {
        self.earliest = moment;
        self.latest = moment;
    }

    fn found(&mut self, lease: &Lease, now: Now) {
        match body::renew_time(lease) {
            Some(Wall::LAST) => self.reports_owed = REPORTS_AFTER_A_FALL,
            stored => self.last_renew_time = self.last_renew_time.max(stored),
        }
        self.version = lease.metadata.resource_version.parse().ok();
        self.transitions = Some(lease.spec.lease_transitions.unwrap_or_default());
        self.stage = Stage::Adopt;
        self.try_at(now.up);
    }

    fn renewed(&mut self, world: &mut World, now: Now) {
        self.tries.succeeded(world, now);
        if !self.held {
            let period_seconds = world.settings.lease_renew_period().as_secs();
            world.say(Level::Info, "lease-held", format!("Lease held, renewed every {period_seconds} s"));
        } else {
            world.say(Level::Debug, "lease-renewed", "Lease renewed");
        }
        self.held = true;
        self.strip_managed_fields &= self.stage == Stage::Create;
        self.stage = Stage::Renew;
        self.turns = 0;
        let was_away = world.is_lost();
        world.renewed(now);
        if let Some(left) = self.reports_owed.checked_sub(1) {
            self.reports_owed = left;
            world.report_in_full = true;
            world.report_at_once = true;
        }
        let period = world.settings.lease_renew_period();
        self.earliest = now.up + period;
        // A fleet that comes back in one moment is spread by its names first, and by chance from then on.
        self.latest = if was_away {
            self.earliest + phase(&world.node_name, spread(period))
        } else {
            now.up + world.random.jittered(period)
        };
    }

    fn refused(&mut self, refusal: &Refusal, world: &mut World, now: Now) {
        let class = refusal.class();
        let stage = self.stage;
        world.heard(Some(refusal), now);
        let next_stage = match (class, stage) {
            (Class::Missing, Stage::Find | Stage::Adopt | Stage::Renew) => Some(Stage::Create),
            (Class::Exists, Stage::Create) => Some(Stage::Find),
            (Class::Conflict, Stage::Adopt | Stage::Renew) => Some(Stage::Find),
            _ => None,
        };
        if let Some(next_stage) = next_stage {
            if (stage, next_stage) == (Stage::Renew, Stage::Create) {
                world.say(Level::Warning, "lease-missing", "somebody deleted the Lease: creating it again");
                // Garbage collection deletes it when its owner, the Node, is gone.
                world.node_in_doubt = true;
            }
            self.stage = next_stage;
            self.turns += 1;
            if self.turns < TRIES_PER_RUN {
                return self.try_at(now.up);
            }
        }
        self.tries.failed(refusal, verb_of(stage), world, now);
        let postponed = self.tries.postponed(refusal, CEILING);
        let wait = postponed.unwrap_or_else(|| self.pause(stage, refusal, world, now));
        self.try_at(now.up + wait);
        if class == Class::Unreachable && self.tries.failed == TRIES_PER_RUN {
            world.output(Output::DropConnections);
        }
    }

    fn pause(&mut self, stage: Stage, refusal: &Refusal, world: &mut World, now: Now) -> Duration {
        match refusal.class() {
            Class::Rights => {
                // Whoever may not renew may still report.
                world.reached(now);
                self.tries.pause()
            }
            Class::Unreachable => {
                // The first failure may be the connection's; after it, anywhere in the pause: a fleet must not march in step.
                let wait = if self.tries.failed == 1 { Duration::ZERO } else { self.tries.pause() };
                world.random.up_to(wait).max(refusal.retry_after().min(CEILING))
            }
            // Renewals are tried back to back (LSE-7); looking for a Lease and creating it are not (LSE-11).
            Class::Error | Class::Conflict | Class::Exists | Class::Missing
                if renews(stage) && self.tries.failed < TRIES_PER_RUN =>
            {
                Duration::ZERO
            }
            _ => self.tries.pause(),
        }
    }
}

fn renews(stage: Stage) -> bool {
    matches!(stage, Stage::Adopt | Stage::Renew)
}

fn verb_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Find => "get leases",
        Stage::Create => "create leases",
        Stage::Adopt | Stage::Renew => "patch leases",
    }
}
