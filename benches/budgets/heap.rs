//! Turns 10,000 simulated renewals of the pure agent into what each allocates, and what of it stays.

use std::alloc::System;
use std::time::Duration;

use nodepulse::agent::{Agent, Input, Output, Ticket};
use nodepulse::api::{Answer, Document, Exchange, Lane, PatchAnswer, Progress, Refusal, StatusError, Target, Wish};
use nodepulse::config::Settings;
use nodepulse::journal::{BootId, Journal};
use nodepulse::probe::{self, Root};
use nodepulse::time::{Now, Up, Wall};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use super::cluster::Result;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What a kube-apiserver answers a renewal with, but for the bytes of the body.
const RENEWED: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Audit-Id: 5bd5bcd9-40e6-4b1f-9e40-5a1de28e9f4d\r\n\
    Cache-Control: no-cache, private\r\n\
    Content-Type: application/vnd.kubernetes.protobuf\r\n\
    X-Kubernetes-Pf-Flowschema-Uid: 0f0e8a43-7c1c-4a6f-8f39-6a8b7d1b1a51\r\n\
    X-Kubernetes-Pf-Prioritylevel-Uid: 8ea1e9ac-3f26-4cc5-a1f1-a6b4f7d9f3b1\r\n\
    Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
    Content-Length: 224\r\n\r\n";
const RENEWED_BODY_BYTES: usize = 224;

const RENEWALS: u32 = 10_000;
/// Queues and maps have their final size by then.
const SETTLED_AFTER: u32 = 1_000;

/// What the core and the HTTP codec do to the heap.
pub struct Heap {
    pub renewals: u32,
    /// Allocations per renewal, status runs and assertions included.
    pub allocations: f64,
    pub bytes: f64,
    /// Live bytes after all renewals minus live bytes before.
    pub growth_bytes: i64,
}

/// Must run alone: every thread of this process is counted.
pub fn simulate() -> Result<Heap> {
    let mut world = World::new();
    let whole = Region::new(COUNTING);
    world.renew(SETTLED_AFTER)?;
    let before = world.least_live_bytes(&whole)?;
    let region = Region::new(COUNTING);
    world.renew(RENEWALS)?;
    let change = region.change();
    let after = world.least_live_bytes(&whole)?;
    let per_renewal = |number: usize| number as f64 / f64::from(RENEWALS);
    Ok(Heap {
        renewals: RENEWALS,
        allocations: per_renewal(change.allocations + change.reallocations),
        bytes: per_renewal(change.bytes_allocated),
        growth_bytes: after - before,
    })
}

/// A board whose every request succeeds at once.
struct World {
    agent: Agent,
    target: Target,
    up: Duration,
    facts: probe::Facts,
    node: Option<Box<nodepulse::node::object::Node>>,
}

impl World {
    fn new() -> World {
        let settings = Settings::default();
        let facts = probe::facts(&Root::new("/"), &settings.state_directory);
        let target = Target {
            authority: "127.0.0.1:6443".to_owned(),
            path_prefix: String::new(),
            node_name: "board".to_owned(),
            bearer_token: None,
        };
        let start = Now { up: Up::BOOT, wall: Some(START) };
        let journal = Journal::recover(&[], 64 * 1024, BootId(1)).0;
        World {
            agent: Agent::new(settings, "board".to_owned(), 1, journal, "", start),
            target,
            up: Duration::ZERO,
            facts,
            node: None,
        }
    }

    fn now(&self) -> Now {
        Now { up: Up::since_boot(self.up), wall: Some(START.plus(self.up)) }
    }

    /// The least that is live at any renewal of some minutes: what is in flight at one moment is not growth.
    fn least_live_bytes(&mut self, since: &Region<System>) -> Result<i64> {
        let mut least = i64::MAX;
        for _ in 0..60 {
            self.renew(1)?;
            let change = since.change();
            let bytes = |count: usize| i64::try_from(count).map_err(|error| error.to_string());
            least = least.min(bytes(change.bytes_allocated)? - bytes(change.bytes_deallocated)?);
        }
        Ok(least)
    }

    fn renew(&mut self, renewals: u32) -> Result<()> {
        let mut seen = 0;
        while seen < renewals {
            match self.agent.poll(self.now()) {
                Output::Probe => self.agent.handle(Input::Facts(Box::new(self.facts.clone())), self.now()),
                Output::Send(ticket, wish) => {
                    seen += u32::from(ticket.lane() == Lane::Lease);
                    self.answer(ticket, wish)?;
                }
                Output::Wait { until, .. } => {
                    self.up = until.as_duration();
                    self.agent.handle(Input::Woke, self.now());
                }
                Output::Write(_) => self.agent.handle(Input::Written { done: true }, self.now()),
                Output::Say(_) | Output::ReloadCredentials | Output::DropConnections | Output::Stopped => {}
            }
        }
        Ok(())
    }

    fn answer(&mut self, ticket: Ticket, wish: Wish) -> Result<()> {
        let answer = match &wish {
            Wish::RenewLease { .. } => self.through_http(wish)?,
            _ => Answer { date: self.now().wall, result: self.document(&wish) },
        };
        self.agent.handle(Input::Answered(ticket, answer), self.now());
        Ok(())
    }

    /// A renewal as bytes, both ways.
    fn through_http(&mut self, wish: Wish) -> Result<Answer> {
        let (request, mut exchange) = Exchange::start(wish, &self.target).map_err(|failure| failure.to_string())?;
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

    fn document(&mut self, wish: &Wish) -> std::result::Result<Document, Refusal> {
        match wish {
            Wish::ReadVersion => Ok(Document::Version("v1.36.3".to_owned())),
            Wish::CreateNode { body } => {
                let mut node: Box<nodepulse::node::object::Node> = serde_json::from_str(body).map_err(|_| missing())?;
                node.metadata.uid = "8d9cbbf2-2b1d-44b0-a9ae-3b1e7a3c9d10".to_owned();
                node.metadata.resource_version = "1".to_owned();
                self.node = Some(node.clone());
                Ok(Document::Node(node))
            }
            Wish::PatchStatus { answer: PatchAnswer::Metadata, .. } => {
                let node = self.node.as_ref().ok_or_else(missing)?;
                let metadata = node.metadata.clone();
                Ok(Document::Metadata { uid: metadata.uid, resource_version: metadata.resource_version })
            }
            Wish::PatchStatus { .. } | Wish::ReadNode { .. } => {
                self.node.clone().map(Document::Node).ok_or_else(missing)
            }
            Wish::ReadLease => Err(missing()),
            _ => Ok(Document::Nothing),
        }
    }
}

const START: Wall = Wall::from_unix_seconds(1_767_225_600);

fn missing() -> Refusal {
    let (reason, message) = ("NotFound".to_owned(), "not there".to_owned());
    Refusal::Status(StatusError { code: 404, reason, message, retry_after: None })
}
