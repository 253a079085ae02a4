//! Turns settings, kubeconfig and a few questions to the server into a list of what is well and what to do about the rest.

use std::time::Duration;

use serde_json::json;

use super::CliError;
use super::args::Sources;
use super::commands::exit;
use super::load::{self, kubeconfig};
use super::palette::Palette;
use crate::api::{Answer, Class, Document, Refusal, Wish};
use crate::io::{Session, clock};
use crate::node::node_name;
use crate::probe::{self, Root};
use crate::time::Wall;

/// What was looked at, in order.
#[derive(Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub what: &'static str,
    pub verdict: Verdict,
    pub text: String,
    /// What a person would type next.
    pub next: Option<String>,
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Well,
    /// It works, and may not for long.
    Warning,
    Failed,
    NoRights,
}

impl Report {
    /// 77 when rights are missing, else 70 when anything failed.
    pub fn exit_code(&self) -> u8 {
        let any = |verdict| self.findings.iter().any(|finding| finding.verdict == verdict);
        match (any(Verdict::NoRights), any(Verdict::Failed)) {
            (true, _) => exit::NO_PERMISSION,
            (false, true) => exit::SOFTWARE,
            (false, false) => exit::OK,
        }
    }

    fn add(&mut self, what: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.findings.push(Finding { what, verdict, text: text.into(), next: None });
    }

    fn add_with(&mut self, what: &'static str, verdict: Verdict, text: impl Into<String>, next: impl Into<String>) {
        self.findings.push(Finding { what, verdict, text: text.into(), next: Some(next.into()) });
    }
}

impl Verdict {
    /// The machine word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Well => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "failed",
            Verdict::NoRights => "no-rights",
        }
    }
}

impl Finding {
    /// The finding as a line for people, and one below it with what to type next.
    pub fn to_line(&self, palette: &Palette) -> String {
        let colour = match self.verdict {
            Verdict::Well => palette.good,
            Verdict::Warning => palette.warning,
            Verdict::Failed | Verdict::NoRights => palette.bad,
        };
        let reset = palette.reset;
        let mut line = format!("{colour}{:<9}{reset} {:<12} {}\n", self.verdict.word(), self.what, self.text);
        if let Some(next) = &self.next {
            line.push_str(&format!("{:>22} try: {next}\n", ""));
        }
        line
    }
}

/// Looks at everything `run` needs. Wrong settings end it at once, as nothing else would mean anything.
pub fn check(sources: &Sources) -> Result<Report, CliError> {
    let loaded = load::settings(sources)?;
    let settings = loaded.settings;
    let mut report = Report::default();
    report.add("settings", Verdict::Well, sources.config.as_deref().unwrap_or("no file named: defaults and flags"));
    for notice in loaded.notices {
        report.add("settings", Verdict::Warning, notice);
    }
    let root = Root::new("/");
    for remark in probe::remarks(&root) {
        report.add("board", Verdict::Warning, remark);
    }
    let machine = probe::machine(&root);
    let name = node_name(&settings, &machine).map_err(CliError::Node)?;
    report.add("node name", Verdict::Well, name.as_str());
    let kubeconfig = kubeconfig(&settings)?;
    let server = kubeconfig.server.authority();
    report.add("kubeconfig", Verdict::Well, format!("context {}, server https://{server}", kubeconfig.context));
    let session = Session::open(kubeconfig, name.clone()).map_err(CliError::Io)?;
    check_clock(&mut report);
    check_credentials(&session, &mut report);
    let answer = session.ask(Wish::ReadVersion).map_err(CliError::Io)?;
    if check_server(&answer, &server, &mut report) {
        check_rights(&session, &name, &mut report)?;
    }
    Ok(report)
}

fn check_clock(report: &mut Report) {
    match clock::now().wall {
        Some(wall) => report.add("clock", Verdict::Well, wall.to_seconds_stamp()),
        None => report.add_with(
            "clock",
            Verdict::Warning,
            "before this program was built; the server's time is used until it is set",
            "timedatectl set-ntp true",
        ),
    }
}

fn check_credentials(session: &Session, report: &mut Report) {
    let now = clock::now().wall;
    match session.credentials() {
        Err(failure) => report.add_with(
            "credentials",
            Verdict::Failed,
            failure.to_string(),
            "ls -l on the files the kubeconfig names",
        ),
        Ok(dates) => match (dates.not_before, dates.not_after, now) {
            (_, Some(end), Some(now)) if end < now => report.add_with(
                "certificate",
                Verdict::Failed,
                format!("expired at {end}"),
                "kubeadm token create --print-join-command, or your own way to issue a new client certificate",
            ),
            (Some(start), _, Some(now)) if now < start => report.add_with(
                "certificate",
                Verdict::Failed,
                format!("not valid before {start}"),
                "date -u, and set this board's clock if it is behind",
            ),
            (_, Some(end), Some(now)) => {
                report.add("certificate", expiry_verdict(now, end), format!("valid until {end}"))
            }
            _ => report.add("credentials", Verdict::Well, "readable"),
        },
    }
}

/// A certificate that ends within a month is worth a word.
fn expiry_verdict(now: Wall, end: Wall) -> Verdict {
    if end.since(now) < Duration::from_secs(30 * 24 * 3600) { Verdict::Warning } else { Verdict::Well }
}

/// Answers whether asking on makes sense.
fn check_server(answer: &Answer, server: &str, report: &mut Report) -> bool {
    match &answer.result {
        Ok(Document::Version(version)) => {
            report.add("server", Verdict::Well, format!("{server} answers, version {version}"))
        }
        Ok(_) => report.add("server", Verdict::Well, format!("{server} answers")),
        Err(refusal @ Refusal::Failed(_)) => {
            let next = format!("curl -vk https://{server}/version");
            report.add_with("server", Verdict::Failed, refusal.to_string(), next);
            return false;
        }
        Err(refusal) if refusal.word() == "http-401" => {
            let next = "kubectl --kubeconfig FILE auth whoami";
            report.add_with("server", Verdict::NoRights, format!("does not know these credentials: {refusal}"), next);
            return false;
        }
        Err(refusal) => report.add("server", Verdict::Warning, format!("answers, but not to /version: {refusal}")),
    }
    if let (Some(date), Some(now)) = (answer.date, clock::now().wall) {
        let off = now.since(date).max(date.since(now));
        if off > Duration::from_secs(60) {
            let text = format!("{} s away from the server's", off.as_secs());
            report.add_with("clock", Verdict::Warning, text, "timedatectl set-ntp true");
        }
    }
    true
}

/// Everything the agent does, as RBAC names it: verb, group, resource, subresource, namespace.
const NEEDS: [(&str, &str, &str, &str, &str); 8] = [
    ("create", "", "nodes", "", ""),
    ("get", "", "nodes", "", ""),
    ("patch", "", "nodes", "status", ""),
    ("get", "coordination.k8s.io", "leases", "", "kube-node-lease"),
    ("create", "coordination.k8s.io", "leases", "", "kube-node-lease"),
    ("patch", "coordination.k8s.io", "leases", "", "kube-node-lease"),
    ("create", "", "events", "", "default"),
    ("patch", "", "events", "", "default"),
];

fn check_rights(session: &Session, name: &str, report: &mut Report) -> Result<(), CliError> {
    let mut allowed = 0;
    for (verb, group, resource, subresource, namespace) in NEEDS {
        // The authorizer knows names only where a request has one: not on create, and events have many.
        let object = if verb == "create" || resource == "events" { "" } else { name };
        let attributes = json!({
            "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": object,
        });
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        });
        let answer = session.ask(Wish::ReviewAccess { body: body.to_string() }).map_err(CliError::Io)?;
        let separator = if subresource.is_empty() { "" } else { "/" };
        let what = format!("{verb} {resource}{separator}{subresource}");
        match answer.result {
            Ok(Document::Access(true)) => allowed += 1,
            Ok(_) => report.add_with(
                "rights",
                Verdict::NoRights,
                format!("may not {what}"),
                format!("use a client certificate for system:node:{name} in group system:nodes, or an RBAC role with that verb"),
            ),
            Err(refusal) if refusal.class() == Class::Rights => {
                report.add("rights", Verdict::Warning, format!("cannot ask about {what}: {refusal}"));
            }
            Err(refusal) => report.add("rights", Verdict::Failed, format!("cannot ask about {what}: {refusal}")),
        }
    }
    if allowed == NEEDS.len() {
        report.add("rights", Verdict::Well, format!("all {allowed} verbs that the agent uses"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_win_over_other_failures_in_the_exit_code() {
        let mut report = Report::default();
        assert_eq!(report.exit_code(), exit::OK);
        report.add("server", Verdict::Warning, "slow");
        assert_eq!(report.exit_code(), exit::OK);
        report.add("server", Verdict::Failed, "gone");
        assert_eq!(report.exit_code(), exit::SOFTWARE);
        report.add_with("rights", Verdict::NoRights, "may not create nodes", "kubectl create clusterrolebinding");
        assert_eq!(report.exit_code(), exit::NO_PERMISSION);
    }

    #[test]
    fn a_finding_names_what_to_type_next() {
        let finding = Finding {
            what: "clock",
            verdict: Verdict::Warning,
            text: "1970".to_owned(),
            next: Some("date -u".to_owned()),
        };
        assert_eq!(
            finding.to_line(&Palette::for_terminal(false)),
            "warning   clock        1970\n                       try: date -u\n"
        );
    }
}
