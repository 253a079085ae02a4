//! Turns a simulated board into time that passes: its every request succeeds at once, or fails while it is offline.

use std::time::Duration;

use nodepulse::agent::{Agent, Input, Output, Ticket};
use nodepulse::api::{
    Answer, AuditId, Document, Exchange, Failure, Lane, Operation, PatchAnswer, Progress, Refusal, StatusError, Target,
};
use nodepulse::config::Settings;
use nodepulse::journal::{BootId, Journal, Write};
use nodepulse::node::object::Node;
use nodepulse::probe::facts::{MemorySource, MemoryUse};
use nodepulse::probe::{self, Facts, LastReset, Machine, Network, Readings, Root};
use nodepulse::time::{Now, Up, Wall};

use super::cluster::Result;

/// What a kube-apiserver answers a renewal with, but for the bytes of the body.
const RENEWED: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Audit-Id: AAAAAAAAAAAA\r\n\
    Cache-Control: no-cache, private\r\n\
    Content-Type: application/vnd.kubernetes.protobuf\r\n\
    X-Kubernetes-Pf-Flowschema-Uid: 0f0e8a43-7c1c-4a6f-8f39-6a8b7d1b1a51\r\n\
    X-Kubernetes-Pf-Prioritylevel-Uid: 8ea1e9ac-3f26-4cc5-a1f1-a6b4f7d9f3b1\r\n\
    Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
    Content-Length: 224\r\n\r\n";
const RENEWED_BODY_BYTES: usize = 224;

const START: Wall = Wall::from_unix_seconds(1_767_225_600);

pub struct World {
    agent: Agent,
    target: Target,
    up: Duration,
    /// Before it is given.
    board: Option<Box<(Machine, Network)>>,
    readings: Readings,
    node: Option<Box<Node>>,
    pub is_offline: bool,
    /// How often the memory runs short or is enough again; `None`: never.
    pub changes_every: Option<Duration>,
    /// What went to the disk; `None`: nobody wants to know.
    pub writes: Option<Vec<Write>>,
}

impl World {
    pub fn new() -> World {
        // A pressure ends when it ends, so that there may be a change a minute.
        let settings = Settings {
            eviction_pressure_transition_period: Duration::ZERO,
            // What this machine has had of trouble is none of the idle board that is counted.
            kernel_events: false,
            ..Settings::default()
        };
        let Facts { machine, network, readings } =
            probe::facts(&Root::new("/"), &settings, nodepulse::io::clock::now().wall);
        let target = Target {
            authority: "127.0.0.1:6443".to_owned(),
            path_prefix: String::new(),
            node_name: "board".to_owned(),
            bearer_token: None,
        };
        let start = Now { up: Up::BOOT, wall: Some(START) };
        let journal = Journal::recover(&[], settings.journal_quota_bytes, BootId(1)).0;
        World {
            agent: Agent::new(settings, "board".to_owned(), 1, journal, &LastReset::default(), start),
            target,
            up: Duration::ZERO,
            board: Some(Box::new((machine, network))),
            readings,
            node: None,
            is_offline: false,
            changes_every: None,
            writes: None,
        }
    }

    fn now(&self) -> Now {
        Now { up: Up::since_boot(self.up), wall: Some(START.plus(self.up)) }
    }

    /// Lets so many renewals pass.
    pub fn renew(&mut self, renewals: u32) -> Result<()> {
        let mut seen = 0;
        while seen < renewals {
            seen += u32::from(self.step()? == Some(Lane::Lease));
        }
        Ok(())
    }

    /// Lets so much time pass.
    pub fn pass(&mut self, span: Duration) -> Result<()> {
        let end = self.up + span;
        while self.up < end {
            self.step()?;
        }
        Ok(())
    }

    /// The next thing that the agent does; the lane if that was a request.
    fn step(&mut self) -> Result<Option<Lane>> {
        match self.agent.poll(self.now()) {
            Output::Probe { .. } => {
                // As the shell does it: the whole board once, and then what moves.
                let board = self.board.take();
                self.agent.handle(Input::Looked { readings: Box::new(self.look()), board }, self.now());
            }
            Output::Send(ticket, operation) => {
                let lane = ticket.lane();
                self.answer(ticket, operation)?;
                return Ok(Some(lane));
            }
            Output::Wait { until, .. } => {
                self.up = until.as_duration();
                self.agent.handle(Input::Woke, self.now());
            }
            Output::Write(write) => {
                self.writes.iter_mut().for_each(|writes| writes.push(write.clone()));
                self.agent.handle(Input::Written { done: true }, self.now());
            }
            Output::Say(_) | Output::ReloadCredentials | Output::DropConnections { .. } | Output::Stopped => {}
            Output::Identity(_) | Output::Told(_) | Output::EndWatch | Output::ReleaseLock => {}
        }
        Ok(None)
    }

    fn look(&self) -> Readings {
        let mut readings = self.readings.clone();
        if let Some(period) = self.changes_every {
            let is_short = (self.up.as_secs() / period.as_secs().max(1)).is_multiple_of(2);
            let available_bytes = if is_short { 0 } else { u64::from(u32::MAX) };
            readings.memory = Ok(MemoryUse { available_bytes, source: MemorySource::MemAvailable });
        }
        readings
    }

    fn answer(&mut self, ticket: Ticket, operation: Operation) -> Result<()> {
        let answer = match &operation {
            _ if self.is_offline => {
                let failure = Failure::new("connect-failed", "no way");
                Answer { date: None, result: Err(Refusal::Failed(failure)) }
            }
            Operation::RenewLease { .. } => self.through_http(operation)?,
            _ => Answer { date: self.now().wall, result: self.document(&operation) },
        };
        self.agent.handle(Input::Answered(ticket, answer), self.now());
        Ok(())
    }

    /// A renewal as bytes, both ways.
    fn through_http(&mut self, operation: Operation) -> Result<Answer> {
        let (request, mut exchange) = Exchange::start(operation, &self.target, AuditId::new(0));
        if !request.ends_with(b"Z\"}}") {
            return Err(format!("a renewal looks different: {}", String::from_utf8_lossy(&request)));
        }
        let mut reply = RENEWED.to_vec();
        reply.resize(RENEWED.len() + RENEWED_BODY_BYTES, 0);
        match exchange.feed(&mut reply).map_err(|failure| failure.to_string())? {
            Progress::Done { answer, reusable: true } => Ok(answer),
            other => Err(format!("the reply to a renewal was not understood: {other:?}")),
        }
    }

    fn document(&mut self, operation: &Operation) -> std::result::Result<Document, Refusal> {
        match operation {
            Operation::ReadVersion => Ok(Document::Version("v1.36.3".to_owned())),
            Operation::CreateNode { body } => {
                let mut node: Box<Node> = serde_json::from_str(body).map_err(|_| missing())?;
                node.metadata.uid = "8d9cbbf2-2b1d-44b0-a9ae-3b1e7a3c9d10".to_owned();
                node.metadata.resource_version = "1".to_owned();
                self.node = Some(node.clone());
                Ok(Document::Node(node))
            }
            Operation::PatchStatus { answer: PatchAnswer::Metadata, .. } => {
                let node = self.node.as_ref().ok_or_else(missing)?;
                let metadata = node.metadata.clone();
                let (uid, resource_version) = (metadata.uid, metadata.resource_version);
                Ok(Document::Metadata { uid, resource_version, lease_duration_seconds: None, transitions: 0 })
            }
            Operation::PatchStatus { answer: PatchAnswer::Node, .. } | Operation::ReadNode { .. } => {
                self.node.clone().map(Document::Node).ok_or_else(missing)
            }
            Operation::ReadLease => Err(missing()),
            _ => Ok(Document::Nothing),
        }
    }
}

fn missing() -> Refusal {
    let (reason, message) = ("NotFound".to_owned(), "not there".to_owned());
    Refusal::Status(StatusError { code: 404, reason, message, retry_after: None })
}
