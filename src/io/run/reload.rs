//! Turns SIGHUP, and a refusal, into settings and credentials that are in use, or into why those before stay.

use std::sync::Arc;
use std::time::Duration;

use super::{Input, MainLoop, Message, ReadSettings, Sandbox, Shared, clock, credentials, log, thread};
use crate::agent::CredentialDates;
use crate::api::Failure;
use crate::api::traffic::Cadence;
use crate::config::Settings;
use crate::probe::Asked;

/// How often files that do not answer are asked again, until they do.
const SILENT_PAUSE: Duration = Duration::from_secs(5);

/// What was read: settings, and whether the credentials that go with them can be used; or what is wrong.
pub(super) type Reread = Result<(Box<Settings>, Result<CredentialDates, Failure>), Refused>;

pub(super) enum Refused {
    Wrong(String),
    /// The files do not answer.
    Silent,
}

impl Shared {
    /// A failure is not told here: the next request fails with it, and the agent says that.
    pub(super) async fn reload_credentials(&self) {
        if let Ok(dates) = self.pool.reload().await {
            self.inbox.push(Message::Input(Input::Credentials(dates)));
        }
    }

    /// Reads settings and credentials whenever SIGHUP asks for them. Where they do not answer, that is the answer to SIGHUP,
    /// and what they say when they do is used then.
    pub(super) async fn read_again(&self, read: ReadSettings, sandbox: Arc<Sandbox>) {
        loop {
            self.reload_wanted.raised().await;
            let mut is_asked = true;
            loop {
                let reread = self.read_once(&read, &sandbox).await;
                let is_silent = match &reread {
                    Ok((_, replaced)) => replaced.as_ref().is_err_and(|why| why.word() == credentials::SILENT),
                    Err(refused) => matches!(refused, Refused::Silent),
                };
                if is_asked || !is_silent {
                    self.inbox.push(Message::Reread(reread));
                }
                if !is_silent {
                    break;
                }
                let again_at = clock::up() + SILENT_PAUSE;
                is_asked = self.reactor.before(again_at, self.reload_wanted.raised()).await.is_some();
            }
        }
    }

    async fn read_once(&self, read: &ReadSettings, sandbox: &Arc<Sandbox>) -> Reread {
        let (read, sandbox) = (Arc::clone(read), Arc::clone(sandbox));
        let read = self.settings_source.ask(move || read(&sandbox));
        match self.reactor.before(clock::up() + thread::FILE_PATIENCE, read).await.and_then(Result::ok) {
            Some(Ok((settings, kubeconfig))) => {
                self.pool.speak(settings.http());
                let replaced = match kubeconfig {
                    Some(kubeconfig) if !self.identity.files.has_newer(&kubeconfig.path) => {
                        self.pool.replace(kubeconfig).await
                    }
                    // The board joins, or has joined.
                    _ => self.pool.reload().await,
                };
                Ok((Box::new(settings), replaced))
            }
            Some(Err(problems)) => Err(Refused::Wrong(problems)),
            None => Err(Refused::Silent),
        }
    }
}

impl MainLoop<'_, '_> {
    fn refuse(&mut self, word: &str, why: String) {
        ::log::error!(target: word, "{why}");
        self.refused = Some(why);
    }

    pub(super) fn reread(&mut self, read: Reread) {
        self.refused = None;
        match read {
            Ok((settings, replaced)) => {
                log::set_verbosity(settings.verbosity);
                self.shared.asked.replace(Asked::by(&settings));
                self.shared.cadence.set(Cadence::of(&settings));
                self.shared.has_budget.set(settings.daily_bytes.is_some());
                match replaced {
                    Ok(dates) => self.handle(Input::Credentials(dates)),
                    Err(why) => self.refuse(
                        "credentials-refused",
                        format!("the credentials read last cannot be used, those before stay: {why}"),
                    ),
                }
                self.shared.identity.follow(&settings);
                self.handle(Input::Reloaded(settings));
            }
            Err(Refused::Wrong(problems)) => self.refuse(
                "reload-refused",
                format!("the settings read last are wrong, those before stay in use: {problems}"),
            ),
            Err(Refused::Silent) => self.refuse(
                "reload-refused",
                "the settings do not answer; until they do, those before stay in use; see what their file system \
                 says: dmesg | tail"
                    .to_owned(),
            ),
        }
        self.manager.reloaded();
    }
}
