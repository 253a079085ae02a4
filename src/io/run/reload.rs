//! Turns SIGHUP, and a refusal, into settings and credentials that are in use, or into why those before stay.

use std::sync::Arc;

use super::{Input, MainLoop, Message, ReadSettings, Sandbox, Shared, clock, log, thread};
use crate::agent::CredentialDates;
use crate::api::Failure;
use crate::config::Settings;

/// What was read: settings, and whether the credentials that go with them can be used; or what is wrong.
pub(super) type Reread = Result<(Box<Settings>, Result<CredentialDates, Failure>), String>;

impl Shared {
    /// A failure is not told here: the next request fails with it, and the agent says that.
    pub(super) async fn reload_credentials(&self) {
        if let Ok(dates) = self.pool.reload().await {
            self.inbox.push(Message::Input(Input::Credentials(dates)));
        }
    }

    async fn read_again(&self, read: ReadSettings, sandbox: Arc<Sandbox>) {
        let read = self.settings_source.ask(move || read(&sandbox));
        let answer = self.reactor.before(clock::up() + thread::FILE_PATIENCE, read).await;
        let reread = match answer.and_then(Result::ok) {
            Some(Ok((settings, kubeconfig))) => Ok((Box::new(settings), self.pool.replace(kubeconfig).await)),
            Some(Err(problems)) => {
                Err(format!("the settings read last are wrong, those before stay in use: {problems}"))
            }
            None => Err("the settings do not answer, those before stay in use; see what their file system says: \
                         dmesg | tail"
                .to_owned()),
        };
        self.inbox.push(Message::Reread(reread));
    }
}

impl MainLoop<'_, '_> {
    fn refuse(&mut self, word: &str, why: String) {
        ::log::error!(target: word, "{why}");
        self.refused = Some(why);
    }

    pub(super) fn reload(&mut self) {
        self.manager.reloading();
        let (read, sandbox) = (Arc::clone(&self.read_settings), Arc::clone(&self.sandbox));
        self.executor.spawn(self.shared.read_again(read, sandbox)).detach();
    }

    pub(super) fn reread(&mut self, read: Reread) {
        self.refused = None;
        match read {
            Ok((settings, replaced)) => {
                log::set_verbosity(settings.verbosity);
                self.shared.judges_pids.set(settings.judges_pids());
                match replaced {
                    Ok(dates) => self.handle(Input::Credentials(dates)),
                    Err(why) => self.refuse(
                        "credentials-refused",
                        format!("the credentials read last cannot be used, those before stay: {why}"),
                    ),
                }
                self.handle(Input::Reloaded(settings));
            }
            Err(why) => self.refuse("reload-refused", why),
        }
        self.manager.reloaded();
    }
}
