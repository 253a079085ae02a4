//! Turns the API server's audit log into what each client asked, in the order in which it arrived.

use super::Result;
use serde_json::Value;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Bodies and replies of what nodes do, and of requests for certificates; who and when for the rest.
pub const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  resources:
  - {group: "", resources: [nodes, nodes/status, events]}
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: events.k8s.io, resources: [events]}
  - {group: certificates.k8s.io, resources: [certificatesigningrequests]}
- level: Metadata
"#;

/// One request and its answer, as the server saw them.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Kubernetes' verb: create, get, patch, update, list, watch ...
    pub verb: String,
    /// Path and query.
    pub uri: String,
    pub user_agent: String,
    /// `system:anonymous` where nothing was brought; empty where what was brought is not valid (401).
    pub user: String,
    /// HTTP status of the answer; 0 if there was none.
    pub code: u16,
    /// What was sent, `Null` if nothing or if the policy does not keep it.
    pub body: Value,
    pub reply: Value,
    /// ResponseComplete, ResponseStarted (a watch that goes on) or Panic.
    pub stage: String,
    /// Microseconds since 1970 on this machine's wall clock.
    pub received_at_us: u64,
    pub completed_at_us: u64,
    pub audit_id: String,
}

impl AuditEntry {
    /// What is refused for its credentials is written down once, as if it went on.
    fn was_nobody(&self) -> bool {
        self.user.is_empty() && self.code == 401
    }
}

/// Users whose requests are left out: the tests' own administrator and the controllers ask a hundred times as
/// often as all nodes together.
const NOISE: [&str; 4] =
    ["admin\"", "system:apiserver\"", "system:kube-controller-manager\"", "system:serviceaccount:kube-system:"];

/// What a request of the administrator's has in its query so that it is not left out.
pub const MARK: &str = "audited-so-far";

/// The requests of clients in one log, read on from where the last look ended.
pub struct AuditLog {
    path: PathBuf,
    read: Mutex<(u64, Vec<AuditEntry>)>,
}

impl AuditLog {
    pub fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::new((0, Vec::new())) }
    }

    /// The finished requests that `keep` accepts, in order of arrival.
    pub fn entries(&self, keep: impl Fn(&AuditEntry) -> bool) -> Result<Vec<AuditEntry>> {
        self.select(|e| (e.stage == "ResponseComplete" || e.was_nobody()) && keep(e))
    }

    /// The watches that `keep` accepts, whether they go on or not, in order of arrival.
    pub fn watches(&self, keep: impl Fn(&AuditEntry) -> bool) -> Result<Vec<AuditEntry>> {
        self.select(|e| e.stage == "ResponseStarted" && !e.was_nobody() && keep(e))
    }

    fn select(&self, keep: impl Fn(&AuditEntry) -> bool) -> Result<Vec<AuditEntry>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let (offset, entries) = &mut *read;
        self.read_on(offset, entries).map_err(|e| format!("cannot read {}: {e}", self.path.display()))?;
        let mut found: Vec<_> = entries.iter().filter(|e| keep(e)).cloned().collect();
        found.sort_by_key(|e| e.received_at_us);
        Ok(found)
    }

    fn read_on(&self, offset: &mut u64, entries: &mut Vec<AuditEntry>) -> std::io::Result<()> {
        let mut file = match File::open(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(*offset))?;
        let mut fresh = Vec::new();
        file.read_to_end(&mut fresh)?;
        // The last line may be half written; it is read at the next look.
        let whole = fresh.iter().rposition(|b| *b == b'\n').map_or(0, |last| last + 1);
        *offset += whole as u64;
        let text = String::from_utf8_lossy(&fresh[..whole]);
        let lines = text.lines().filter(|line| is_of_interest(line));
        entries.extend(lines.filter_map(|line| entry(&serde_json::from_str(line).ok()?)));
        Ok(())
    }
}

/// Looks at the user before the whole line is parsed, which is what takes time.
fn is_of_interest(line: &str) -> bool {
    let user = line.split_once("\"username\":\"").map_or("", |(_, rest)| rest);
    !NOISE.iter().any(|noise| user.starts_with(noise)) || line.contains(MARK)
}

fn entry(line: &Value) -> Option<AuditEntry> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(AuditEntry {
        verb: text(&line["verb"]),
        uri: text(&line["requestURI"]),
        user_agent: text(&line["userAgent"]),
        user: text(&line["user"]["username"]),
        code: line["responseStatus"]["code"].as_u64().and_then(|c| u16::try_from(c).ok()).unwrap_or(0),
        body: line["requestObject"].clone(),
        reply: line["responseObject"].clone(),
        stage: text(&line["stage"]),
        received_at_us: micros(line["requestReceivedTimestamp"].as_str()?)?,
        completed_at_us: micros(line["stageTimestamp"].as_str()?)?,
        audit_id: text(&line["auditID"]),
    })
}

/// `2026-01-02T03:04:05.678901Z` in microseconds since 1970.
pub fn micros(stamp: &str) -> Option<u64> {
    let (date, time) = stamp.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut date = date.split('-').map(|n| n.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let seconds = time.split(':').try_fold(0, |sum, n| Some(sum * 60 + n.parse::<u64>().ok()?))?;
    let fraction: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    // Days since 1970 of the proleptic Gregorian calendar, years counted from March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some((days * 86_400 + seconds) * 1_000_000 + fraction)
}
