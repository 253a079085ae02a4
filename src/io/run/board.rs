//! Turns the files of the board, what the kernel says of its network and DNS of its name into what the agent is given.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::libc::ETIMEDOUT;

use super::super::{clock, network, way};
use super::{Input, Message, ReadDisk, Shell, World};
use crate::probe::{Absent, Facts, Network, StateDisk, Why};

/// How long the look-up of the node name may hold back the first facts (ADR-6).
const NAME_LOOKUP: Duration = Duration::from_secs(2);
/// How long a look at the board waits for the file system of the state directory, at most.
pub(super) const DISK_PATIENCE: Duration = Duration::from_secs(2);
/// When a name that DNS did not know is looked up again, first and at last.
const NAME_RETRY_FIRST: Duration = Duration::from_secs(60);
const NAME_RETRY_LAST: Duration = Duration::from_secs(3600);

impl World {
    async fn read_disk(&self, read: ReadDisk) {
        let disk = self.disk_source.ask(&self.reactor, move || read(true)).await;
        self.inbox.push(Message::DiskRead(disk));
    }

    /// Once, and again ever more rarely while nobody knows the name.
    async fn look_up_node_name(&self) {
        let mut pause = NAME_RETRY_FIRST;
        loop {
            let found = self.resolver.look_up(&self.node_name, clock::up() + NAME_LOOKUP).await.ok();
            let is_known = found.is_some();
            self.inbox.push(Message::NameLookedUp(found));
            if is_known {
                return;
            }
            self.reactor.sleep_until(clock::up() + pause).await;
            pause = (pause * 2).min(NAME_RETRY_LAST);
        }
    }
}

impl Shell<'_, '_> {
    pub(super) fn probe(&mut self) {
        if self.name_addresses.is_none() {
            self.facts_wanted = true;
        } else if self.disk_is_asked {
            // What it answers is what is wanted now.
        } else if self.disk_may_hang || !self.board_given {
            self.disk_is_asked = true;
            self.executor.spawn(self.world.read_disk(Arc::clone(&self.read_disk))).detach();
        } else {
            let disk = (self.read_disk)(false);
            self.disk_read(Some(disk));
        }
    }

    pub(super) fn disk_read(&mut self, disk: Option<StateDisk>) {
        let silent = || Err(Absent::new(&self.state_directory, Why::Errno(ETIMEDOUT)));
        let disk = disk.unwrap_or_else(|| StateDisk { file_system: silent(), may_hang: true });
        (self.disk_may_hang, self.disk_is_asked) = (disk.may_hang, false);
        let Some(name_addresses) = &self.name_addresses else { return };
        let (mut readings, is_other) = (self.read_readings)(&mut self.machine, self.judges_pids);
        readings.node_file_system = disk.file_system;
        self.board_given &= !is_other;
        if self.board_given {
            self.world.inbox.push(Message::Input(Input::Readings(Box::new(readings))));
            return;
        }
        self.board_given = true;
        let network = match &self.network {
            Some(network) => network.clone(),
            None => self.network.insert(network::with_live_addresses((self.read_network)())).clone(),
        };
        let network = Network { node_name_addresses: name_addresses.clone(), ..network };
        let facts = Facts { machine: self.machine.clone(), readings, network };
        self.world.inbox.push(Message::Input(Input::Facts(Box::new(facts))));
    }

    pub(super) fn look_at_network(&mut self) {
        let network = network::with_live_addresses((self.read_network)());
        if self.network.as_ref() != Some(&network) {
            let before = self.network.take().unwrap_or_default();
            self.world.pool.network_changed(&|local| way::stands(&before, &network, local));
            self.network = Some(network);
            self.board_given = false;
            self.spawn_name_lookup();
            self.handle(Input::LinkChanged);
        }
    }

    /// A name that is an address is not looked up (ADR-6 step 2).
    pub(super) fn spawn_name_lookup(&mut self) {
        if self.world.node_name.parse::<IpAddr>().is_ok() {
            self.name_addresses = Some(Vec::new());
            self.board_given = false;
        } else {
            self.name_lookup = Some(self.executor.spawn(self.world.look_up_node_name()));
        }
    }

    /// A DNS that is down takes no address away: whether it is still ours is checked for each Node anyway.
    pub(super) fn name_looked_up(&mut self, found: Option<Vec<IpAddr>>) {
        let known = self.name_addresses.take().unwrap_or_default();
        self.name_addresses = Some(found.unwrap_or(known));
        self.board_given = false;
        if std::mem::take(&mut self.facts_wanted) {
            self.probe();
        }
    }
}
