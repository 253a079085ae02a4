//! Turns the wish to know at once what others write on the Node into a watch of its row (D4), whose events go to the status
//! lane (`status/seen.rs`).
//!
//! ```text
//! Rest --the Node stands, the Lease is renewed--> Begun --first event--> Seeing --ended--> Rest
//!                                                   '-------- refused, ended ---------------^
//! ```
//!
//! It wakes nobody: it begins when something else is done, over the connection that is there, and where it ends, or cannot be
//! had, assertions go on as without it. So they do where it costs more than they would, and where it says nothing of what we
//! have written ourselves.

use std::time::Duration;

use super::bucket::Bucket;
use super::budget::PutOff;
use super::contract::Output;
use super::failure_log::RetryReason;
use super::notice::Level;
use super::shared::{Shared, Step};
use super::tries::Tries;
use crate::api::{Answer, EVENT_TOO_LARGE, Operation, Refusal, Seen, StatusError};
use crate::config::Settings;
use crate::config::limits::WATCH_EVENTS_AT_ONCE;
use crate::config::settings::Profile;
use crate::time::{DAY, Now, Up};

#[derive(Debug)]
pub(super) struct WatchLane {
    stage: Stage,
    not_before: Up,
    tries: Tries,
    /// Events that may still come before assertions would cost less.
    events: Bucket,
    /// The newest version that an event told of.
    heard: Option<u64>,
    /// A version that the server has answered us with and no event has told of yet, and when that was.
    owed: Option<(u64, Up)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Rest,
    Begun,
    Seeing {
        since: Up,
    },
    /// We have ended it.
    Ending,
}

const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// One that went on for so long is begun again at once, whatever has ended it.
const LIVED_LONG: Duration = Duration::from_secs(300);
/// Its event comes about when its answer does.
const LATE: Duration = Duration::from_secs(30);
/// What the beginning of a watch takes, whose first row comes with its headings, in assertions: 3.6 KB, and 364 bytes of IP over
/// HTTP/2 (measured: `docs/costs.md`).
const BEGINNING_IN_ASSERTIONS: u32 = 10;

impl WatchLane {
    pub(super) fn new(settings: &Settings) -> WatchLane {
        WatchLane {
            stage: Stage::Rest,
            not_before: Up::BOOT,
            tries: Tries::between("watching the Node", FIRST_PAUSE, LONGEST_PAUSE),
            events: Bucket::new(f64::from(WATCH_EVENTS_AT_ONCE), per_second(settings)),
            heard: None,
            owed: None,
        }
    }

    /// `stands`: Lease and status are as they should be, over the connection in use.
    pub(super) fn poll(&mut self, stands: bool, shared: &Shared, now: Now) -> Step {
        let is_put_off = shared.budget.puts_off(PutOff::Assertions);
        if !shared.settings.node_watch || !stands || is_put_off || now.up < self.not_before {
            return Step::Idle;
        }
        self.stage = Stage::Begun;
        Step::Send(self.tries.asking(Operation::WatchNode))
    }

    /// Takes an event.
    pub(super) fn seen(&mut self, seen: &Seen, shared: &mut Shared, now: Now) {
        if self.stage == Stage::Begun {
            self.stage = Stage::Seeing { since: now.up };
            shared.is_watched = true;
            shared.say_if(self.tries.recovered(now));
            shared.say_once(
                Level::Info,
                "node-watched",
                "what others write on the Node is known at once: it is watched",
            );
        }
        if let Seen::Version { resource_version, .. } = seen {
            self.heard = resource_version.parse().ok();
            self.owed.take_if(|(owed, _)| self.heard.is_none_or(|heard| heard >= *owed));
        }
        if shared.budget.puts_off(PutOff::Assertions) && matches!(self.stage, Stage::Seeing { .. }) {
            self.end(shared);
        } else if self.events.wait(0.0, now.up).is_zero() {
            self.events.take();
        } else if matches!(self.stage, Stage::Seeing { .. }) {
            let text =
                "others write the Node so often that it is watched no more for a while: its statuses are asserted";
            shared.say(Level::Info, "node-restless", text);
            self.end(shared);
        }
    }

    /// The server has answered with this version of the Node, which an event tells of as well.
    pub(super) fn answered_with(&mut self, resource_version: &str, shared: &mut Shared, now: Now) {
        let version = resource_version.parse().ok().filter(|version| self.heard.is_some_and(|heard| heard < *version));
        let (true, Some(version)) = (matches!(self.stage, Stage::Seeing { .. }), version) else { return };
        let (_, since) = *self.owed.get_or_insert((version, now.up));
        if now.up - since > LATE {
            shared.say(Level::Info, "watch-silent", "the watch of the Node says nothing of it any more: it is ended");
            self.end(shared);
        }
    }

    /// The settings were read again.
    pub(super) fn reloaded(&mut self, shared: &mut Shared) {
        self.events.set(f64::from(WATCH_EVENTS_AT_ONCE), per_second(&shared.settings));
        if !shared.settings.node_watch && !matches!(self.stage, Stage::Rest | Stage::Ending) {
            self.end(shared);
        }
    }

    /// The answer to it is its end.
    pub(super) fn answered(&mut self, answer: Answer, shared: &mut Shared, now: Now) {
        let stage = std::mem::replace(&mut self.stage, Stage::Rest);
        (shared.is_watched, self.heard, self.owed) = (false, None, None);
        // A connection that something on the way forgets between two renewals lives for one of them.
        let pays_after = pays_after(&shared.settings);
        let lived_long = LIVED_LONG.max(shared.settings.lease_renew_period() * 2).max(pays_after);
        if let Stage::Seeing { since } = stage
            && now.up - since >= lived_long
        {
            self.tries.start_over();
            return;
        }
        let mut pause = self.tries.pause();
        if matches!(stage, Stage::Seeing { .. } | Stage::Ending) {
            pause = pause.max(pays_after);
        }
        match answer.result {
            // Where it cannot be, nothing is wrong: it is told once, and nothing else is done about it.
            Err(refusal) if stage == Stage::Begun && is_impossible(&refusal) => {
                let text = format!("the Node is not watched, its statuses are asserted: {refusal}");
                shared.say_once(Level::Info, "node-unwatched", text);
                // Nothing was sent over a connection that carries none: to ask it costs nothing.
                let is_free = matches!(&refusal, Refusal::Failed(failure) if failure.is_ours());
                pause = if is_free { pause } else { DAY };
            }
            Err(refusal) if stage == Stage::Begun => {
                self.tries.failed(&refusal, shared, now);
                pause = pause.max(refusal.retry_after());
            }
            _ => {}
        }
        self.not_before = now.up + shared.random.jittered(pause);
    }

    /// What is worth another try for this reason is tried with the next that is done.
    pub(super) fn hurry(&mut self, reason: RetryReason, now: Now) {
        if self.tries.hurry(reason) || reason == RetryReason::Reload {
            self.not_before = now.up;
        }
    }

    fn end(&mut self, shared: &mut Shared) {
        self.stage = Stage::Ending;
        shared.is_watched = false;
        shared.output(Output::EndWatch);
    }
}

/// Our rights, our connection or a server that makes no rows, but whole Nodes, do not allow it, and will not before somebody
/// changes them.
fn is_impossible(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Status(StatusError { code, .. }) => *code == 403,
        Refusal::Failed(failure) => failure.is_ours() || failure.word() == EVENT_TOO_LARGE,
    }
}

/// How long a watch has to go on until assertions would have taken what its beginning took. Where bytes are not paid for, what
/// others write is known at once whatever it takes.
fn pays_after(settings: &Settings) -> Duration {
    match settings.profile {
        Profile::Lan => Duration::ZERO,
        Profile::Metered | Profile::Satellite => settings.status_assert_frequency * BEGINNING_IN_ASSERTIONS,
    }
}

/// As often as a kubelet would send what it found. Where bytes are paid for, as often as an assertion would find it: where more
/// events come, and each has its look at the Node, assertions are cheaper.
fn per_second(settings: &Settings) -> f64 {
    let period = match settings.profile {
        Profile::Lan => settings.node_status_update_frequency,
        Profile::Metered | Profile::Satellite => settings.status_assert_frequency,
    };
    1.0 / period.as_secs_f64().max(1.0)
}
