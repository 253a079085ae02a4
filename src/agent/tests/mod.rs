//! Turns a script of answers into the agent's requests: what each test of the lanes is written in.

mod absence;
mod annotations;
mod answers;
mod approval;
mod authorities;
mod budget;
mod container_runtime;
mod contest;
mod csi_node;
mod disk;
mod echo;
mod events;
mod expiring;
mod gaps;
mod health;
mod identity;
mod join;
mod kernel_log;
mod last_boot;
mod lease;
mod leaving;
mod looks;
mod outage;
mod outdated;
mod overview;
mod registration;
mod replay;
mod revoked;
mod status;
mod status_line;
mod strangers;
mod supervised;
mod unhurried;
mod unseen;
mod versions;
mod watch;
mod watch_bytes;

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::api::traffic::{Day, Purpose};
use crate::api::{Failure, PatchAnswer, Refusal, StatusError};
use crate::config::kubeconfig::Server;
use crate::identity::files::PrivateKey;
use crate::identity::{Bundle, CertificateDer};
use crate::journal::{BootId, Journal};
use crate::node::Node;
use crate::node::object::Lease;
use crate::probe::LastReset;
use crate::probe::facts::*;
use crate::time::Wall;
use answers::*;
use disk::Disk;

const BOOT: BootId = BootId(0xb000_0000_0000_4000_8000_0000_0000_0001);
const START: Wall = Wall::from_unix_seconds(1_767_225_600);

/// An agent, its clock, and what it said so far.
struct Script {
    agent: Agent,
    up: Duration,
    /// When the board's present boot began.
    booted: Wall,
    facts: Facts,
    given: Option<(Machine, Network)>,
    /// Without it, neither the board nor the server knows the time of day.
    has_clock: bool,
    /// How far the board's clock is ahead of the server's.
    clock_error_seconds: i64,
    said: Vec<Notice>,
    probes: Vec<Duration>,
    pod_cidr: Option<String>,
    /// What the network has taken today and the day before, where that is counted.
    counted: Option<[Day; 2]>,
    reloads: usize,
    drops: usize,
    /// Whether another key was asked for, each time that one was.
    keys_asked: Vec<bool>,
    /// Over what a request went that did not go as all others.
    access: Option<Access>,
    last_resorts: Vec<Server>,
    /// Certificates that are in use from then on.
    kept: Vec<Vec<CertificateDer<'static>>>,
    /// What a person was told.
    told: Vec<Result<String, String>>,
    /// How often somebody asked what there is to join with.
    means_asked: usize,
    /// Of that, whether it asked for another CA than the one in use.
    has_other_ca: bool,
    /// The cluster that the board joins, or has joined.
    cluster: Option<(Vec<Server>, Bundle)>,
    /// Port of what gives out its certificates.
    supervisor: Option<u16>,
    /// Those that came with a certificate.
    keys_taken: Vec<PrivateKey>,
    disk: Disk,
    stopped: bool,
    /// How often the machine was told that it need not wait.
    releases: usize,
    /// The Node of a healthy server, once something was written to it.
    stored: Option<Node>,
    /// resourceVersion of its Lease.
    lease_version: u64,
    /// How often the Lease changed its holder.
    transitions: u64,
    /// The watch that goes on, and when each began.
    watch: Option<Ticket>,
    watches: Vec<Duration>,
    /// It tells of nothing.
    is_watch_silent: bool,
}

impl Script {
    fn new() -> Script {
        Script::with(Settings::default())
    }

    fn with(settings: Settings) -> Script {
        Script::on(Disk::default(), settings, BOOT, START, Duration::ZERO)
    }

    /// A process that finds what an earlier one left on the disk.
    fn on(disk: Disk, settings: Settings, boot: BootId, booted: Wall, up: Duration) -> Script {
        let now = Now { up: Up::since_boot(up), wall: Some(booted.plus(up)) };
        let journal = Journal::recover(&disk.bytes, 65_536, boot).0;
        let reset = LastReset { reason: "WatchdogReset".to_owned(), panic_dumped_at: None };
        let agent = Agent::new(settings, "n1".to_owned(), 1, journal, &reset, now);
        let (facts, said, probes, given) = (facts(), Vec::new(), Vec::new(), None);
        let (has_clock, clock_error_seconds, reloads, drops, stopped) = (true, 0, 0, 0, false);
        #[rustfmt::skip]
        let script = Script {
            agent, up, booted, facts, given, has_clock, clock_error_seconds, said, probes, reloads, drops, disk, stopped,
            releases: 0, stored: None, lease_version: 7, transitions: 0, keys_asked: Vec::new(), access: None, last_resorts: Vec::new(), kept: Vec::new(),
            counted: None, means_asked: 0, has_other_ca: false, cluster: None, supervisor: None, keys_taken: Vec::new(), told: Vec::new(),
            watch: None, watches: Vec::new(), is_watch_silent: false, pod_cidr: None,
        };
        script
    }

    fn now(&self) -> Now {
        Now { up: Up::since_boot(self.up), wall: self.wall(self.clock_error_seconds) }
    }

    fn wall(&self, error_seconds: i64) -> Option<Wall> {
        let error = Duration::from_secs(error_seconds.unsigned_abs());
        let right = self.booted.plus(self.up);
        self.has_clock.then_some(if error_seconds < 0 { right.minus(error) } else { right.plus(error) })
    }

    /// What the shell would hand over: the whole board only when machine or network changed.
    fn look(&mut self) -> Input {
        let whole = (self.facts.machine.clone(), self.facts.network.clone());
        let board = (self.given.as_ref() != Some(&whole)).then(|| Box::new(whole.clone()));
        self.given = Some(whole);
        Input::Looked { readings: Box::new(self.facts.readings.clone()), board }
    }

    /// Drains the outputs of this instant: the requests that start, and the deadline.
    fn drain(&mut self) -> (Vec<(Ticket, Operation)>, Up) {
        let mut sent = Vec::new();
        for _ in 0..1000 {
            match self.agent.poll(self.now()) {
                Output::Probe { .. } if self.disk.hides_the_board => self.probes.push(self.up),
                Output::Probe { pod_cidr } => {
                    self.pod_cidr = pod_cidr;
                    self.probes.push(self.up);
                    if let Some(mut days) = self.counted.clone().map(Box::new) {
                        // As long as renewals are.
                        days[0].of(Purpose::Lease).unwrap().bytes = 331 * self.up.as_secs() / 10;
                        let by_process_bytes = days[0].bytes();
                        self.agent.handle(Input::Counted { days, by_process_bytes }, self.now());
                    }
                    let input = self.look();
                    self.agent.handle(input, self.now());
                }
                Output::Send(ticket, Operation::WatchNode) => self.watch_begins(ticket),
                Output::EndWatch => self.watch_ends(unreachable()),
                Output::Send(ticket, operation) => sent.push((ticket, operation)),
                Output::Identity(IdentityStep::Send(ticket, access, operation)) => {
                    self.access = Some(access);
                    sent.push((ticket, operation));
                }
                Output::Identity(step) => self.identity_step(step),
                Output::ReloadCredentials => self.reloads += 1,
                Output::DropConnections { .. } => self.drops += 1,
                Output::Write(write) => {
                    let done = self.disk.write(&write);
                    if !self.disk.hangs {
                        self.agent.handle(Input::Written { done }, self.now());
                    }
                }
                Output::Told(told) => self.told.push(told),
                Output::ReleaseLock => self.releases += 1,
                Output::Stopped => self.stopped = true,
                Output::Say(notice) => self.said.push(notice),
                Output::Wait { until, .. } => return (sent, until),
            }
        }
        panic!("the agent never waits: {:?}", self.said);
    }

    /// Passes time until a request of `lane` starts, answering everything else as a healthy server would.
    fn next(&mut self, lane: Lane) -> (Ticket, Operation) {
        for _ in 0..1000 {
            let (mut sent, until) = self.drain();
            let wanted = sent.iter().position(|(ticket, _)| ticket.lane() == lane);
            let wanted = wanted.map(|place| sent.remove(place));
            let moved = !sent.is_empty();
            for (ticket, operation) in sent {
                let reply = self.reply(&operation);
                self.answer(ticket, reply);
            }
            if let Some(wanted) = wanted {
                return wanted;
            }
            if !moved {
                assert!(until.as_duration() > self.up, "a deadline in the past");
                self.up = until.as_duration();
            }
        }
        panic!("no request of {lane:?}");
    }

    fn answer(&mut self, ticket: Ticket, result: Result<Document, Refusal>) {
        let now = self.now();
        self.agent.handle(Input::Answered(ticket, Answer { date: self.wall(0), result }), now);
    }

    /// Answers the next request of `lane` with `result` and says what it was and when it came, in milliseconds.
    fn play(&mut self, lane: Lane, result: Result<Document, Refusal>) -> (u128, Operation) {
        let (ticket, operation) = self.next(lane);
        let at_ms = self.up.as_millis();
        self.answer(ticket, result);
        (at_ms, operation)
    }

    fn play_healthy(&mut self, lane: Lane) -> (u128, Operation) {
        let (ticket, operation) = self.next(lane);
        let at_ms = self.up.as_millis();
        let reply = self.reply(&operation);
        self.answer(ticket, reply);
        (at_ms, operation)
    }

    /// Until the first status report is acknowledged.
    fn register(&mut self) {
        while !matches!(self.play_healthy(Lane::Status).1, Operation::PatchStatus { .. }) {}
    }

    /// Lets time pass with a healthy server, and answers what was sent.
    fn pass(&mut self, span: Duration) -> Vec<Operation> {
        let end = self.up + span;
        let mut operations = Vec::new();
        loop {
            let (sent, until) = self.drain();
            if sent.is_empty() {
                self.up = end.min(until.as_duration());
                if self.up == end {
                    return operations;
                }
            }
            for (ticket, operation) in sent {
                let reply = self.reply(&operation);
                self.answer(ticket, reply);
                operations.push(operation);
            }
        }
    }

    fn answer_unreachable(&mut self, ticket: Ticket) {
        self.answer_undated(ticket, unreachable());
    }

    fn answer_undated(&mut self, ticket: Ticket, result: Result<Document, Refusal>) {
        let now = self.now();
        self.agent.handle(Input::Answered(ticket, Answer { date: None, result }), now);
    }

    fn press_memory(&mut self, is_pressed: bool) {
        let available_bytes = if is_pressed { 1 << 20 } else { 3 << 30 };
        self.facts.readings.memory = Ok(MemoryUse { available_bytes, source: MemorySource::CgroupV2 });
    }

    /// The process is gone; another one starts over the same disk.
    fn restart(self, boot: BootId, up: Duration) -> Script {
        let is_reboot = boot != self.agent.shared.records.journal().boot();
        let booted = if is_reboot { self.booted.plus(self.up) } else { self.booted };
        let (stored, lease_version, transitions) = (self.stored, self.lease_version, self.transitions);
        Script { stored, lease_version, transitions, ..Script::on(self.disk, Settings::default(), boot, booted, up) }
    }

    /// What a healthy server answers: no to what holds only for another version of the Lease.
    fn reply(&mut self, operation: &Operation) -> Result<Document, Refusal> {
        if *operation == Operation::ReadLease {
            let mut lease = lease(Some("uid1"));
            lease.metadata.resource_version = self.lease_version.to_string();
            lease.spec.lease_transitions = Some(self.transitions);
            return Ok(Document::Lease(Box::new(lease)));
        }
        if self.is_of_another_version(operation) {
            return refused(409, "Conflict");
        }
        let Operation::RenewLease { body, .. } = operation else { return Ok(self.document(operation)) };
        let patch: Value = serde_json::from_str(body).unwrap();
        // The first operation of a JSON patch tests who holds it.
        if patch.is_array() && patch[0]["value"] != self.transitions {
            return refused(422, "Invalid");
        }
        if patch["metadata"]["resourceVersion"].as_str().is_some_and(|wanted| wanted != self.lease_version.to_string())
        {
            return refused(409, "Conflict");
        }
        self.lease_version += 1;
        self.transitions = patch["spec"]["leaseTransitions"].as_u64().unwrap_or(self.transitions);
        let (uid, resource_version) = ("uid1".to_owned(), self.lease_version.to_string());
        Ok(Document::Metadata { uid, resource_version, lease_duration_seconds: None, transitions: self.transitions })
    }

    /// What one answers that keeps the conditions it was sent.
    fn document(&mut self, operation: &Operation) -> Document {
        let (body, answer) = match operation {
            Operation::PatchStatus { body, answer } if *answer != PatchAnswer::Nothing => (body, answer),
            _ => return self.node_as_stored(operation).unwrap_or_else(|| healthy(operation)),
        };
        let patch: Value = serde_json::from_str(body).unwrap();
        let node = self.stored.get_or_insert_with(registered_node);
        health::delete(node, &patch);
        container_runtime::keep(node, &patch);
        annotations::keep(node, &patch);
        for sent in patch["status"]["conditions"].as_array().into_iter().flatten().filter(health::stays) {
            let Some(stored) = node.status.conditions.iter_mut().find(|stored| sent["type"] == *stored.kind) else {
                node.status.conditions.push(serde_json::from_value(sent.clone()).unwrap());
                continue;
            };
            let text = |name: &str| sent[name].as_str().map(str::to_owned);
            stored.status = text("status").unwrap_or(stored.status.clone());
            stored.message = text("message").unwrap_or(stored.message.clone());
            stored.reason = text("reason").unwrap_or(stored.reason.clone());
            stored.last_transition_time = text("lastTransitionTime").unwrap_or(stored.last_transition_time.clone());
            stored.last_heartbeat_time = text("lastHeartbeatTime").unwrap_or(stored.last_heartbeat_time.clone());
        }
        match answer {
            PatchAnswer::Metadata => metadata(&node.metadata.resource_version),
            PatchAnswer::OnWatch => {
                let version = node.metadata.resource_version.parse::<u64>().unwrap() + 1;
                node.metadata.resource_version = version.to_string();
                if self.watch.is_some() && !self.is_watch_silent {
                    self.see_version(version);
                }
                Document::Nothing
            }
            _ => Document::Node(Box::new(node.clone())),
        }
    }

    fn words(&self) -> Vec<&'static str> {
        self.said.iter().map(|notice| notice.word).collect()
    }
}

/// The answer of a server that has what was sent, unchanged by others.
fn healthy(operation: &Operation) -> Document {
    match operation {
        Operation::ReadVersion => Document::Version("v1.36.3".to_owned()),
        Operation::CreateNode { body } => Document::Node(Box::new(stored(serde_json::from_str(body).unwrap()))),
        Operation::ReadNode { .. } => Document::Node(Box::new(registered_node())),
        Operation::PatchStatus { answer: PatchAnswer::Metadata, .. } => metadata("rv1"),
        Operation::PatchStatus { answer: PatchAnswer::Nothing, .. } => Document::Nothing,
        Operation::PatchStatus { .. } => Document::Node(Box::new(registered_node())),
        Operation::ReadLease => Document::Lease(Box::new(lease(Some("uid1")))),
        _ => Document::Nothing,
    }
}

fn metadata(resource_version: &str) -> Document {
    let (uid, resource_version) = ("uid1".to_owned(), resource_version.to_owned());
    Document::Metadata { uid, resource_version, lease_duration_seconds: None, transitions: 0 }
}

fn stored(mut node: Node) -> Node {
    node.metadata.uid = "uid1".to_owned();
    node.metadata.resource_version = "rv1".to_owned();
    node
}

/// What an agent with default settings makes of `facts()`, as the server stores it.
fn registered_node() -> Node {
    let mut script = Script::new();
    loop {
        let (_, operation) = script.play_healthy_create();
        if let Operation::CreateNode { body } = operation {
            return stored(serde_json::from_str(&body).unwrap());
        }
    }
}

impl Script {
    /// As `play_healthy` of the status lane, for the requests up to the first POST only.
    fn play_healthy_create(&mut self) -> (u128, Operation) {
        let (ticket, operation) = self.next(Lane::Status);
        if operation == Operation::ReadVersion {
            self.answer(ticket, Ok(Document::Version("v1.36.3".to_owned())));
        }
        (self.up.as_millis(), operation)
    }
}

fn lease(owner_uid: Option<&str>) -> Lease {
    let owner = |uid| json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid });
    let owners: Vec<Value> = owner_uid.map(owner).into_iter().collect();
    let spec =
        json!({ "holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "2025-12-31T23:59:00.000000Z" });
    serde_json::from_value(json!({ "metadata": { "ownerReferences": owners }, "spec": spec })).unwrap()
}

fn body_of(operation: &Operation) -> Value {
    match operation {
        Operation::CreateNode { body }
        | Operation::PatchStatus { body, .. }
        | Operation::CreateLease { body }
        | Operation::CreateCsiNode { body }
        | Operation::RenewLease { body, .. }
        | Operation::CreateEvent { body }
        | Operation::PatchEvent { body, .. } => serde_json::from_str(body).unwrap(),
        _ => panic!("{operation:?} has no body"),
    }
}

/// Four cores, 4 GiB, 32 GB of disk, one address.
fn facts() -> Facts {
    let text = |text: &str| Ok(text.to_owned());
    let address = InterfaceAddress { ip: IpAddr::from([10, 0, 0, 1]), unusable: false, second_choice: false };
    let route = DefaultRoute { interface: "eth0".to_owned(), gateway: None, is_v6: false, metric: 100 };
    Facts {
        machine: Machine {
            hostname: text("n1"),
            machine_id: text("0123456789abcdef0123456789abcdef"),
            system_uuid: text("0123456789abcdef0123456789abcdef"),
            boot_id: text("b0000000-0000-4000-8000-000000000001"),
            architecture: Ok("arm64".to_owned()),
            kernel_release: text("6.6.20+rpt-rpi-2712"),
            os_image: text("Debian GNU/Linux 12 (bookworm)"),
            board_model: text("Raspberry Pi 5 Model B Rev 1.0"),
            board_compatible: Ok(vec!["raspberrypi,5-model-b".to_owned()]),
            board_serial: text("c3dd000000000001"),
            mac_address: text("2c:cf:67:00:00:01"),
            passed_over: Vec::new(),
            cpu_count: Ok(4),
            memory_total_bytes: Ok(4 << 30),
            swap_total_bytes: Ok(0),
            reset_reason: text("WatchdogReset"),
            hugepages: Vec::new(),
            features: None,
        },
        readings: Readings {
            memory: Ok(MemoryUse { available_bytes: 3 << 30, source: MemorySource::CgroupV2 }),
            node_file_system: Ok(FileSystem {
                capacity_bytes: 32_000_000_000,
                available_bytes: 20_000_000_000,
                inodes: 1_000_000,
                inodes_free: 900_000,
                read_only: false,
            }),
            made_read_only: Ok(None),
            pids: Ok(Pids { limit: 32_768, used: 200 }),
            health: Health::default(),
            extended_resources: Default::default(),
            unhealthy_devices: Default::default(),
            container_runtime: None,
            image_file_system: None,
        },
        network: Network {
            interfaces: vec![Interface {
                name: "eth0".to_owned(),
                up: true,
                running: true,
                loopback: false,
                point_to_point: false,
                addresses: vec![address],
            }],
            default_routes: vec![route],
            node_name_addresses: Vec::new(),
        },
    }
}
