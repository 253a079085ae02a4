//! Turns the passing of time and the server's answers into Lease requests: found or created once, then renewed by PATCH.
//!
//! ```text
//! Find --found--> Adopt --200--> Renew --404--> Create --201--> Renew
//!   \--404--> Create --409 AlreadyExists--> Find
//! ```
//!
//! Who adopts it counts on `leaseTransitions`. An answer to a renewal says where the count stands, and where answers come
//! without content (`http2ZeroWindow`) some renewals test it, and are refused where it has moved: so a board that another has
//! taken the Lease from knows (D10). These are the first after a silence, and each second one ([`RENEWALS_PER_TEST`]); of a Node
//! that is watched the first after each write to it, since whoever takes over the Lease reports as well.
//!
//! While all is well nobody waits for an answer: it lies there until the next renewal goes out (LSE-4).
//!
//! Nothing is sent before the Node exists: its uid is the Lease's owner (LSE-12), and until registration is through this
//! may be another machine's Lease (D10).

use std::time::Duration;

use super::backoff::CEILING;
use super::contract::Output;
use super::failure_log::RetryReason;
use super::notice::Level;
use super::random::spread;
use super::renewals::leaves_time;
use super::replay::fleet_offset;
use super::shared::{FullReport, Ownership, Shared, Step};
use super::tries::Tries;
use crate::api::{Answer, Class, Document, Operation, PatchAnswer, Refusal};
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
    /// When this process last asked to create it.
    created: Option<Up>,
    /// Renewals since an answer told us that.
    unseen: u32,
    /// A watch has told that the Node was written, perhaps by another board, since a renewal last tested or showed the count.
    node_was_written: bool,
    held: bool,
    /// Nobody waits for the answer to the renewal in flight before the next one is due.
    is_unhurried: bool,
}

/// A renewTime at the end of all stamps has no later one: ours then falls back to the present, where the controller does
/// not count it (NLC-2) until a change of Ready's lastHeartbeatTime makes it forget what it saved. It looks every 5 s, so
/// it may have saved the late one once more between the first such report and the renewal.
const REPORTS_AFTER_A_FALL: u32 = 2;

/// Of so many renewals one is refused where another has taken the Lease over: two boards may write one Node for three renewals
/// where answers are read late, and no longer (D10).
const RENEWALS_PER_TEST: u32 = 2;

/// A POST may be carried out so late, or a second time by a proxy, when somebody has deleted the Lease in between.
const LATEST_CREATION: Duration = Duration::from_mins(5);

/// Of so many one asks to see the Lease, and what else somebody wrote there.
const RENEWALS_PER_LOOK: u32 = 30;

/// When the next renewal of a Lease that fares well goes out: what else is due about then may go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Nobody can say.
    Unknown,
    Due(Up),
    /// In this moment; and the one after it, where that does not hang on an answer.
    Sending(Option<Up>),
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
            created: None,
            unseen: 0,
            node_was_written: false,
            held: false,
            is_unhurried: false,
        }
    }

    pub(super) fn poll(&mut self, shared: &mut Shared, now: Now) -> Step {
        if shared.node == Ownership::Contested {
            // Whoever gets it, it is another's until then.
            *self = LeaseLane { last_renew_time: self.last_renew_time, ..LeaseLane::new() };
        }
        let Ownership::Ours { uid } = &shared.node else { return Step::Idle };
        let duration_seconds = shared.settings.node_lease_duration_seconds;
        // The Node was created again, or the settings were read again (LSE-5).
        let outdated = self.owner_uid.as_ref() != Some(uid) || self.duration_seconds != Some(duration_seconds);
        let outdated = outdated && self.stage == Stage::Renew;
        if now.up < self.earliest && !(outdated && self.tries.last_failure().is_none()) {
            return Step::Wait { until: self.latest, because: self.tries.because() };
        }
        let Some(renew_time) = self.next_renew_time(shared, now) else { return Step::Idle };
        if outdated {
            // Of one that was not seen lately another may be the holder by now.
            self.stage = if self.version.is_some() { Stage::Adopt } else { Stage::Find };
        }
        let name = shared.node_name.as_str();
        let number = self.unseen + 1;
        // In a silence another board may have come in the place of this one, which then writes nothing any more.
        let may_be_replaced = self.tries.last_failure().is_some() || shared.renewals.is_gap(&shared.settings, now.up);
        let is_shown = number >= RENEWALS_PER_LOOK || may_be_replaced && self.strip_managed_fields;
        let is_doubted = may_be_replaced || shared.is_watched && self.node_was_written;
        let is_tested = is_doubted || !shared.is_watched && number.is_multiple_of(RENEWALS_PER_TEST);
        let known = self.transitions.filter(|_| self.stage == Stage::Renew && !is_shown);
        let tested = known.filter(|_| is_tested && !self.strip_managed_fields);
        let answer = if known.is_some() { PatchAnswer::Nothing } else { PatchAnswer::Metadata };
        let renewal = |body| Operation::RenewLease { body, answer };
        let operation = match self.stage {
            Stage::Find => Operation::ReadLease,
            Stage::Create => {
                Operation::CreateLease { body: body::create_body(name, uid, duration_seconds, renew_time) }
            }
            Stage::Adopt => {
                let transitions = self.transitions.unwrap_or_default();
                let (seconds, version) = (duration_seconds, self.version);
                renewal(body::renew_and_adopt_body(name, uid, seconds, renew_time, transitions, version))
            }
            Stage::Renew => match tested {
                Some(transitions) => renewal(body::renew_if_held_body(renew_time, transitions)),
                None => renewal(body::renew_body(renew_time, self.strip_managed_fields)),
            },
        };
        // A creation is tracked whatever it says, even one whose answer is lost: the renewal after it strips.
        self.strip_managed_fields |= self.stage == Stage::Create;
        if self.stage == Stage::Create {
            self.created = Some(now.up);
        }
        if self.stage != Stage::Find {
            if self.last_renew_time.is_some_and(|last| renew_time <= last) {
                self.reports_owed = REPORTS_AFTER_A_FALL;
            }
            // Should this one fail, the next one is the first after a failure.
            self.node_was_written &= known.is_some() && tested.is_none();
            self.last_renew_time = Some(renew_time);
            shared.renewals.writes(renew_time);
            self.owner_uid = Some(uid.clone());
            self.duration_seconds = Some(duration_seconds);
        }
        shared.renewals.sent(now.up);
        let operation = self.tries.asking(operation);
        self.is_unhurried = !is_doubted && self.fares_well(shared);
        if !self.is_unhurried {
            return Step::Send(operation);
        }
        self.next_after(now.up, shared);
        Step::SendUnhurried(operation, self.latest)
    }

    /// Nothing is to be learned from the answer but that all is well, and it leaves time for several more should there be none.
    fn fares_well(&self, shared: &Shared) -> bool {
        let is_plain = self.stage == Stage::Renew && self.reports_owed == 0;
        let has_time = leaves_time(&shared.settings);
        is_plain && has_time && self.held && !shared.is_lost()
    }

    /// A watch tells of a write to the Node, by whomever.
    pub(super) fn node_written(&mut self) {
        self.node_was_written = true;
    }

    /// Whether a renewal is in flight whose answer nobody waits for.
    pub(super) fn is_unhurried(&self) -> bool {
        self.is_unhurried
    }

    /// When the renewal after one that was sent then is due.
    fn next_after(&mut self, sent: Up, shared: &mut Shared) {
        let period = shared.settings.lease_renew_period();
        self.earliest = sent + period;
        self.latest = sent + shared.random.jittered(period);
    }

    /// Takes an answer, and when it was said. Answers whether somebody deleted the Lease that there was: garbage collection
    /// does when its owner, the Node, is gone.
    pub(super) fn answered(&mut self, answer: Answer, shared: &mut Shared, said: Now, now: Now) -> bool {
        let was_renewing = self.stage == Stage::Renew;
        self.tries.answered(answer.result.as_ref().err());
        match answer.result {
            Ok(Document::Lease(lease)) => self.found(&lease, shared, said),
            Ok(document) => {
                let known = self.transitions.take().filter(|_| self.stage == Stage::Renew);
                self.renewed(shared, said);
                (self.version, self.transitions, self.unseen) = (None, known, self.unseen + 1);
                if let Document::Metadata { resource_version, lease_duration_seconds, transitions, .. } = document {
                    self.version = resource_version.parse().ok();
                    (self.transitions, self.unseen) = (Some(transitions), 0);
                    // Somebody wrote it: ours again with the next renewal, no sooner, or two such writers never rest.
                    if lease_duration_seconds.is_some_and(|seconds| Some(seconds) != self.duration_seconds) {
                        self.stage = Stage::Adopt;
                    }
                    if self.is_created_late(known, said.up) {
                        self.stage = Stage::Adopt;
                    } else if known.is_some_and(|known| known != transitions) {
                        taken(shared);
                    }
                }
            }
            Err(refusal) => {
                // Another board may hold the Lease: nothing is reported before that was looked at.
                if !(refusal.class() == Class::Conflict && renews(self.stage)) {
                    shared.heard(Some(&refusal), said);
                }
                self.refused(&refusal, shared, now);
            }
        }
        shared.renewals.answered();
        self.is_unhurried = false;
        was_renewing && self.stage == Stage::Create
    }

    /// When the next renewal goes out; `now` if it just did.
    pub(super) fn renewal(&self, shared: &Shared, now: Up) -> Renewal {
        match self.stage {
            Stage::Renew | Stage::Adopt if self.tries.last_failure().is_some() => Renewal::Unknown,
            Stage::Renew | Stage::Adopt if shared.renewals.is_sent_at(now) => {
                Renewal::Sending(self.is_unhurried.then_some(self.latest))
            }
            Stage::Renew | Stage::Adopt => Renewal::Due(self.latest),
            Stage::Find | Stage::Create => Renewal::Unknown,
        }
    }

    /// What is worth another try for this reason is tried now.
    pub(super) fn hurry(&mut self, reason: RetryReason, now: Now) {
        if self.tries.hurry(reason) {
            self.try_at(now.up);
        }
    }

    /// What the last try said, if it failed.
    pub(super) fn last_failure(&self) -> Option<&str> {
        self.tries.last_failure()
    }

    /// Whether the server has acknowledged a renewal.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    fn next_renew_time(&self, shared: &Shared, now: Now) -> Option<Wall> {
        let stamp = shared.stamp(now)?;
        let after_last = self.last_renew_time.map(|last| last.plus(Duration::from_micros(1)));
        let after_last = after_last.filter(|after_last| *after_last <= Wall::LAST);
        Some(after_last.map_or(stamp, |after_last| stamp.max(after_last)))
    }

    fn try_at(&mut self, moment: Up) {
        self.earliest = moment;
        self.latest = moment;
    }

    fn found(&mut self, lease: &Lease, shared: &mut Shared, now: Now) {
        match body::renew_time(lease) {
            Some(Wall::LAST) => self.reports_owed = REPORTS_AFTER_A_FALL,
            stored => self.last_renew_time = self.last_renew_time.max(stored),
        }
        self.version = lease.metadata.resource_version.parse().ok();
        let transitions = lease.spec.lease_transitions.unwrap_or_default();
        let known = self.transitions.replace(transitions);
        if !self.is_created_late(known, now.up) && known.is_some_and(|known| known != transitions) {
            taken(shared);
        }
        self.stage = Stage::Adopt;
        self.try_at(now.up);
    }

    /// A Lease that begins to count again was created anew: by a POST of this process, if that was not long ago. Should it have
    /// been another board's, that one sees who adopts it now.
    fn is_created_late(&self, known: Option<u64>, now: Up) -> bool {
        let has_fallen = self.transitions == Some(0) && known.is_some_and(|known| known > 0);
        has_fallen && self.created.is_some_and(|created| now < created + LATEST_CREATION)
    }

    fn renewed(&mut self, shared: &mut Shared, now: Now) {
        self.tries.succeeded(shared, now);
        if !self.held {
            let period_seconds = shared.settings.lease_renew_period().as_secs();
            shared.say(Level::Info, "lease-held", format!("Lease held, renewed every {period_seconds} s"));
        } else {
            shared.say(Level::Debug, "lease-renewed", "Lease renewed");
        }
        self.held = true;
        self.strip_managed_fields &= self.stage == Stage::Create;
        self.stage = Stage::Renew;
        self.turns = 0;
        let was_away = shared.is_lost();
        shared.renewed(now);
        if let Some(left) = self.reports_owed.checked_sub(1) {
            self.reports_owed = left;
            shared.full_report = FullReport::AtOnce;
        }
        if self.is_unhurried {
            return;
        }
        self.next_after(now.up, shared);
        if was_away {
            // A fleet that comes back in one moment is spread by its names first, and by chance from then on.
            let period = shared.settings.lease_renew_period();
            self.latest = self.earliest + fleet_offset(&shared.node_name, spread(period));
        }
    }

    fn refused(&mut self, refusal: &Refusal, shared: &mut Shared, now: Now) {
        let class = refusal.class();
        let stage = self.stage;
        let next_stage = match (class, stage) {
            (Class::Missing, Stage::Find | Stage::Adopt | Stage::Renew) => Some(Stage::Create),
            (Class::Exists, Stage::Create) => Some(Stage::Find),
            (Class::Conflict, Stage::Adopt | Stage::Renew) => Some(Stage::Find),
            _ => None,
        };
        if let Some(next_stage) = next_stage {
            if stage == Stage::Adopt || next_stage == Stage::Create {
                // Where the answer to an adoption or a creation was lost, it may have moved the count.
                self.transitions = None;
            }
            if (stage, next_stage) == (Stage::Renew, Stage::Create) {
                shared.say(Level::Warn, "lease-missing", "somebody deleted the Lease: creating it again");
            }
            self.stage = next_stage;
            self.turns += 1;
            if self.turns < TRIES_PER_RUN {
                return self.try_at(now.up);
            }
        }
        self.tries.failed(refusal, shared, now);
        let postponed = self.tries.postponed(refusal, CEILING);
        let wait = postponed.unwrap_or_else(|| self.pause(stage, refusal, shared, now));
        self.try_at(now.up + wait);
        if class == Class::Unreachable && self.tries.failed == TRIES_PER_RUN {
            shared.output(Output::DropConnections { unheard_for: Duration::ZERO });
        }
    }

    fn pause(&mut self, stage: Stage, refusal: &Refusal, shared: &mut Shared, now: Now) -> Duration {
        match refusal.class() {
            Class::Rights => {
                // Whoever may not renew may still report.
                shared.reached(now);
                self.tries.pause()
            }
            Class::Unreachable => {
                // The first failure may be the connection's; after it, anywhere in the pause: a fleet must not march in step.
                let wait = if self.tries.failed == 1 { Duration::ZERO } else { self.tries.pause() };
                shared.random.up_to(wait).max(refusal.retry_after().min(CEILING))
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

/// Two boards have one name, and the other is the holder now (D10).
fn taken(shared: &mut Shared) {
    let text =
        "another board or process has taken over the Lease: writing nothing before it is known whose Node this is";
    shared.say(Level::Warn, "lease-taken", text);
    shared.node = Ownership::Contested;
}

fn renews(stage: Stage) -> bool {
    matches!(stage, Stage::Adopt | Stage::Renew)
}
