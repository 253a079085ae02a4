//! Turns what was learned of servers, and what talking to them took, into a file that is written as rarely as that is worth.

use std::time::Duration;

use super::super::disk::KNOWN_SERVERS;
use super::{Shared, clock};
use crate::journal::Write;

/// Least time between two writes.
const SPACING: Duration = Duration::from_secs(3600);
/// How long the end of the process may wait for the last one.
const LAST: Duration = Duration::from_millis(500);

impl Shared {
    /// Writes once or twice a day.
    pub(super) async fn keep_what_was_learned(&self) {
        loop {
            self.resolver.known_servers().worth_writing().await;
            self.keep_learned().await;
            self.reactor.sleep_until(clock::up() + SPACING).await;
        }
    }

    /// Nothing is asked any more; the day goes on with the next process.
    pub(super) fn keep_at_the_end(&self) {
        self.pool.drop_idle();
        let last = self.keep_learned();
        // A disk that does not answer is left alone.
        let _ = self.reactor.block_on(self.reactor.before(clock::up() + LAST, last));
    }

    async fn keep_learned(&self) {
        let known = self.resolver.known_servers();
        let bytes = known.to_bytes(self.resolver.meter().days());
        if self.disk.write(KNOWN_SERVERS, Write::Replace { bytes: bytes.clone() }).await {
            known.written(&bytes);
        }
    }
}
