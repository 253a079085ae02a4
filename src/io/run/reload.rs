//! Turns SIGHUP, and a refusal, into settings and credentials that are in use, or into why those before stay.

use super::{Input, Message, Shell, log};

impl Shell<'_, '_> {
    /// A failure is not told here: the next request fails with it, and the agent says that.
    pub(super) fn reload_credentials(&self) {
        if let Ok(dates) = self.world.pool.reload() {
            self.world.inbox.push(Message::Input(Input::Credentials(dates)));
        }
    }

    fn refuse(&mut self, word: &str, why: String) {
        ::log::error!(target: word, "{why}");
        self.refused = Some(why);
    }

    pub(super) fn reload(&mut self) {
        self.manager.reloading();
        self.refused = None;
        match (self.read_settings)(&self.sandbox) {
            Ok((settings, kubeconfig)) => {
                log::set_verbosity(settings.verbosity);
                self.judges_pids = settings.eviction.judges_pids();
                match self.world.pool.replace(kubeconfig) {
                    Ok(dates) => self.handle(Input::Credentials(dates)),
                    Err(why) => self.refuse(
                        "credentials-refused",
                        format!("the credentials read last cannot be used, those before stay: {why}"),
                    ),
                }
                self.handle(Input::Reloaded(Box::new(settings)));
            }
            Err(problems) => {
                self.refuse(
                    "reload-refused",
                    format!("the settings read last are wrong, those before stay in use: {problems}"),
                );
            }
        }
        self.manager.reloaded();
    }
}
