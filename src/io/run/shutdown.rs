//! Turns SIGTERM, and what logind says, into whether the machine goes down or this service alone.

use super::super::leaving;
use super::{MainLoop, Message, Shared, spawn};
use crate::agent::Input;
use crate::node::Leaving;

impl Shared {
    /// What logind says, for as long as the process lives.
    pub(super) async fn watch_logind(&self) {
        self.logind.serve(&self.reactor, |input| self.inbox.push(Message::Input(input))).await;
    }

    async fn end_as_systemd_says(&self) {
        let is_stopping = self.logind.is_stopping(&self.reactor).await;
        let input = if is_stopping { Input::Leaving(Leaving::Shutdown) } else { Input::Stopping };
        self.inbox.push(Message::Input(input));
    }
}

impl MainLoop<'_, '_> {
    /// An init script knows best; then logind, of which the agent has heard; then systemd, who is asked.
    pub(super) fn asked_to_stop(&mut self) {
        match leaving::read(&self.leaving) {
            Some(kind) => self.handle(Input::Leaving(kind)),
            None if self.shared.logind.may_know_more() => spawn(self.executor, self.shared.end_as_systemd_says()),
            None => self.handle(Input::Stopping),
        }
    }
}
