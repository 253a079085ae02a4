//! Turns the files of the board, and what DNS says of its name, into what the agent is given.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::libc::ETIMEDOUT;

use super::super::clock;
use super::super::container_runtime::ContainerRuntime;
use super::features::FeatureLooks;
use super::sensors::Sensors;
use super::{Input, Message, ReadDisk, Shared};
use crate::api::traffic::day_of;
use crate::probe::{self, Absent, KernelLogFiles, Machine, Network, ReadingFiles, Readings, StateDisk, Why};

/// How long the look-up of the node name may hold back the first facts (ADR-6).
const NAME_LOOKUP: Duration = Duration::from_secs(2);
/// How long a look at the board waits for the file system of the state directory, at most.
const DISK_PATIENCE: Duration = Duration::from_secs(2);
/// When a name that DNS did not know is looked up again, first and at last.
const NAME_RETRY_FIRST: Duration = Duration::from_secs(60);
const NAME_RETRY_LAST: Duration = Duration::from_secs(3600);

/// What one task reads whenever the agent wants to know.
pub(super) struct Board {
    pub machine: Machine,
    pub reading_files: ReadingFiles,
    pub read_disk: ReadDisk,
    pub state_directory: String,
}

impl Shared {
    pub(super) async fn read_board(&self, mut board: Board, kernel_log: Option<KernelLogFiles>) {
        let (mut disk_may_hang, mut sensors) = (false, Sensors::of(&self.root, kernel_log));
        let (mut runtime, mut features) = (None, FeatureLooks::of(&self.root, &board.machine));
        let mut counted_on = None;
        loop {
            self.board_wanted.raised().await;
            while self.name_addresses.borrow().is_none() {
                self.name_looked_up.raised().await;
            }
            let disk = self.read_disk(&board, disk_may_hang).await;
            disk_may_hang = disk.may_hang;
            let asks_firmware = self.asked.borrow().firmware;
            let health = sensors.read(&self.reactor, asks_firmware).await;
            if self.look_for_features(&mut features, &mut board.machine).await {
                self.board_given.set(false);
            }
            let container_runtime = self.ask_runtime(&mut runtime).await;
            // Whoever asked meanwhile is answered as well.
            self.board_wanted.lower();
            let day = Some(day_of(clock::now().wall));
            if std::mem::replace(&mut counted_on, day) != day || self.has_budget.get() {
                let (days, by_process_bytes) = self.resolver.meter().so_far();
                self.inbox.push(Message::Input(Input::Counted { days: Box::new(days), by_process_bytes }));
            }
            let now = clock::up();
            let failed_write = self.disk.failed_write(now);
            let mut readings = board.reading_files.read(disk, failed_write, &self.asked.borrow(), now);
            self.device_plugins.count(&mut readings.extended_resources, &mut readings.unhealthy_devices);
            let image_path = runtime.as_ref().and_then(ContainerRuntime::image_path);
            let image_file_system = image_path.map(|path| probe::image_file_system(&self.root, path));
            let readings = Readings { container_runtime, image_file_system, health, ..readings };
            let seen = self.look_at(&mut board, readings);
            self.inbox.push(Message::Input(seen));
        }
    }

    /// Of a disk that may hang only a thread waits for the answer. Whether it does is looked for along with everything else that
    /// may be new.
    async fn read_disk(&self, board: &Board, may_hang: bool) -> StateDisk {
        if self.board_given.get() && !may_hang {
            return (board.read_disk)(false);
        }
        let read = Arc::clone(&board.read_disk);
        let asked = self.disk_source.ask(move || read(true));
        let answer = self.reactor.before(clock::up() + DISK_PATIENCE, asked).await.and_then(Result::ok);
        let silent = || Err(Absent::new(&board.state_directory, Why::Errno(ETIMEDOUT)));
        answer.unwrap_or_else(|| StateDisk { file_system: silent(), may_hang: true, real_path: None })
    }

    /// The board is to be looked at, and its container runtime to be told that of the addresses of pods.
    pub(super) fn want_board(&self, pod_cidr: Option<String>) {
        self.asked.borrow_mut().pod_cidr = pod_cidr;
        self.board_wanted.raise();
    }

    /// `known`: the runtime that the settings named with the look before.
    async fn ask_runtime(&self, known: &mut Option<ContainerRuntime>) -> Option<probe::ContainerRuntime> {
        let asked = self.asked.borrow().clone();
        if known.as_ref().map(ContainerRuntime::path) != asked.container_runtime.as_deref() {
            *known = asked.container_runtime.clone().map(ContainerRuntime::at);
        }
        known.as_mut()?.look(&self.reactor, &asked).await
    }

    fn look_at(&self, board: &mut Board, readings: Readings) -> Input {
        if board.reading_files.recount(&mut board.machine, clock::up()) {
            ::log::info!(target: "recounted", "read again: {}", probe::report::size_of(&board.machine));
            self.board_given.set(false);
        }
        let whole = || {
            let node_name_addresses = self.name_addresses.borrow().clone().unwrap_or_default();
            let network = Network { node_name_addresses, ..self.network.borrow().clone() };
            Box::new((board.machine.clone(), network))
        };
        Input::Looked { readings: Box::new(readings), board: (!self.board_given.replace(true)).then(whole) }
    }

    /// Until DNS knows it, ever more rarely, and again after each change of the network.
    pub(super) async fn look_up_node_name(&self) {
        // A name that is an address is not looked up (ADR-6 step 2).
        if self.node_name.parse::<IpAddr>().is_ok() {
            return self.set_name_addresses(Vec::new());
        }
        let mut pause = NAME_RETRY_FIRST;
        loop {
            let found = self.resolver.look_up(&self.node_name, clock::up() + NAME_LOOKUP).await.ok();
            let is_known = found.is_some();
            // A DNS that is down takes no address away: whether it is still ours is checked for each Node anyway.
            let known = self.name_addresses.take().unwrap_or_default();
            self.set_name_addresses(found.unwrap_or(known));
            let retry_at = if is_known { clock::NEVER } else { clock::up() + pause };
            let has_changed = self.reactor.before(retry_at, self.network_changed.raised()).await.is_some();
            pause = if has_changed { NAME_RETRY_FIRST } else { (pause * 2).min(NAME_RETRY_LAST) };
        }
    }

    fn set_name_addresses(&self, addresses: Vec<IpAddr>) {
        self.name_addresses.replace(Some(addresses));
        self.board_given.set(false);
        self.name_looked_up.raise();
    }
}
