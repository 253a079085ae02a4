//! Turns what the kernel says of the network into looks at it, and what a look finds into connections that are given up.

use std::time::Duration;

use super::{Message, Shared};
use crate::agent::Input;
use crate::io::watches::LinkWatch;
use crate::io::{clock, network};
use crate::probe;
use crate::time::Up;

/// After the first message about the network, so many follow that one look answers them all.
const LINK_DEBOUNCE: Duration = Duration::from_millis(250);
/// Least time between two looks, at first: an uplink comes back in steps, carrier, address, route.
const LINK_PAUSE_FIRST: Duration = Duration::from_millis(250);
/// The same while looks follow upon each other: a flapping link must not keep the processor busy.
const LINK_PAUSE_LAST: Duration = Duration::from_secs(2);
/// After so long without news the next look has the first pause again.
const LINK_QUIET: Duration = Duration::from_secs(10);
/// How often to look where the kernel does not say (a container without netlink).
const LINK_FALLBACK: Duration = Duration::from_secs(60);

impl Shared {
    pub(super) async fn watch_links(&self) {
        if let Ok(links) = LinkWatch::new(&self.reactor) {
            // What changed before the kernel was asked to say so.
            self.look_at_network();
            let (mut pause, mut quiet_since) = (LINK_PAUSE_FIRST, Up::BOOT);
            while links.changed().await.is_ok() {
                let is_first = clock::up() - quiet_since > LINK_QUIET;
                pause = if is_first { LINK_PAUSE_FIRST } else { (pause * 2).min(LINK_PAUSE_LAST) };
                self.reactor.sleep_until(clock::up() + LINK_DEBOUNCE).await;
                links.drop_queued();
                self.look_at_network();
                self.reactor.sleep_until(clock::up() + pause).await;
                quiet_since = clock::up();
            }
        }
        ::log::info!(target: "links-unwatched", "the kernel does not report link changes here; looking every minute");
        loop {
            self.reactor.sleep_until(clock::up() + LINK_FALLBACK).await;
            self.look_at_network();
        }
    }

    /// A connection that is opened now is held against the network that it is opened in, not against that of an earlier look:
    /// else the look that is about to come would take it for one of before.
    pub(super) fn look_before_connecting(&self) {
        if !self.pool.is_connected() {
            self.look_at_network();
        }
    }

    /// The kernel says that the network has changed, or cannot say that it has not.
    pub(super) fn look_at_network(&self) {
        let network = network::with_live_addresses(probe::network(&self.root));
        if *self.network.borrow() != network {
            let before = self.network.replace(network.clone());
            self.pool.network_changed(&|local| network::still_works(&before, &network, local));
            self.board_given.set(false);
            self.network_changed.raise();
            self.inbox.push(Message::Input(Input::LinkChanged));
        }
    }
}
