//! Turns settings, kubeconfig and a few questions to the server into a list of what is well and what to do about the rest.

use std::time::Duration;

use serde_json::json;

use super::CliError;
use super::args::Sources;
use super::check_node;
use super::commands::exit;
use super::load;
use super::palette::Palette;
use crate::api::{Answer, Class, Document, Operation, Refusal};
use crate::config::Settings;
use crate::config::kubeconfig::{Credentials, Kubeconfig, Material};
use crate::config::plain_text::line;
use crate::io::sandbox::Sandbox;
use crate::io::{Session, clock};
use crate::probe::{self, Root};

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

    fn well(&mut self, what: &'static str, text: impl Into<String>) {
        self.findings.push(Finding { what, verdict: Verdict::Well, text: text.into(), next: None });
    }

    /// Something that is so, and that nothing has to be done about.
    fn note(&mut self, what: &'static str, text: impl Into<String>) {
        self.findings.push(Finding { what, verdict: Verdict::Warning, text: text.into(), next: None });
    }

    pub fn trouble(&mut self, what: &'static str, verdict: Verdict, text: impl Into<String>, next: impl Into<String>) {
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
        let mut shown = format!("{colour}{:<9}{reset} {:<12} {}\n", self.verdict.word(), self.what, line(&self.text));
        if let Some(next) = &self.next {
            shown.push_str(&format!("{:>22} try: {}\n", "", line(next)));
        }
        shown
    }
}

/// Looks at everything `run` needs. Wrong settings end it at once, as nothing else would mean anything.
pub fn check(sources: &Sources) -> Result<Report, CliError> {
    let loaded = load::settings(sources)?;
    let settings = loaded.settings;
    let mut report = Report::default();
    report.well("settings", load::settings_path(sources).unwrap_or("no file: defaults and flags"));
    loaded.notices.into_iter().for_each(|notice| report.note("settings", notice));
    let root = Root::new("/");
    probe::remarks(&root).into_iter().for_each(|remark| report.note("board", remark));
    let kubeconfig = load::kubeconfig(&settings)?;
    let (name, remark) = load::node_name(&settings, &probe::machine(&root), &kubeconfig)?;
    report.well("node name", name.as_str());
    remark.into_iter().for_each(|remark| report.note("node name", remark));
    let kubeconfig_path = load::kubeconfig_path(&settings)?;
    let names = Names {
        kubeconfig: &kubeconfig_path,
        server: kubeconfig.server.authority(),
        node: &name,
        has_token: matches!(kubeconfig.credentials, Credentials::Token(_)),
        cluster_folder: load::cluster_folder(&std::env::current_exe().unwrap_or_default()),
    };
    report.well("kubeconfig", format!("context {}, server https://{}", kubeconfig.context, names.server));
    for (_, text) in load::open_to_all(sources, &settings, &kubeconfig)() {
        report.note("permissions", text);
    }
    let look = look_at_credentials(&kubeconfig, &names);
    check_sandbox(&settings, &load::files(sources, &settings, Some(&kubeconfig)), &mut report);
    let session = Session::open(kubeconfig, name.clone()).map_err(CliError::Io)?;
    check_clock(&mut report);
    if !check_credentials(&session, &names, look, &mut report) {
        return Ok(report);
    }
    let answer = session.ask(Operation::ReadVersion).map_err(CliError::Io)?;
    if check_server(&answer, &names, &mut report) {
        check_rights(&session, &names, &mut report)?;
        check_node::check(&session, &settings, names.node, &mut report)?;
    }
    Ok(report)
}

/// Goes into it for good: what follows shows that it leaves the agent what it needs.
fn check_sandbox(settings: &Settings, files: &[String], report: &mut Report) {
    if !settings.sandbox {
        return report.note("sandbox", "sandbox: false, so nothing is given up");
    }
    for step in Sandbox::enter(Some(&settings.state_directory), files).steps {
        match step {
            Ok(text) => report.well("sandbox", text),
            Err(text) => report.note("sandbox", text),
        }
    }
}

/// What the commands to type next are about.
struct Names<'a> {
    /// Path of the kubeconfig.
    kubeconfig: &'a str,
    /// `HOST:PORT`.
    server: String,
    node: &'a str,
    /// A token instead of a certificate.
    has_token: bool,
    /// Of what an administrator does with the cluster.
    cluster_folder: String,
}

impl Names<'_> {
    fn curl(&self) -> String {
        format!("curl -vk https://{}/version", self.server)
    }

    fn whoami(&self) -> String {
        format!("kubectl --kubeconfig {} auth whoami", self.kubeconfig)
    }

    fn enroll(&self) -> String {
        format!("{}/enroll {}  # an administrator's: writes the kubeconfig anew", self.cluster_folder, self.node)
    }

    /// Answers why these rights may be missing, and who gives them.
    fn grant(&self) -> (String, String) {
        let Names { node, cluster_folder, .. } = self;
        if self.has_token {
            let next = format!("sed s/NAME/{node}/g {cluster_folder}/service-account.yaml | kubectl apply -f -");
            return (format!("service-account.yaml gives them to the service account {node}"), next);
        }
        let next = format!("{}  # if it is not, {cluster_folder}/enroll {node} makes one that is", self.whoami());
        (format!("is it system:node:{node} in group system:nodes?"), next)
    }
}

const SET_THE_CLOCK: &str = "timedatectl set-ntp true";

fn check_clock(report: &mut Report) {
    match clock::now().wall {
        Some(wall) => report.well("clock", wall.to_seconds_stamp()),
        None => {
            let text = "before this program was built; the server's time is used until it is set";
            report.trouble("clock", Verdict::Warning, text, SET_THE_CLOCK);
        }
    }
}

/// What to type to see why credentials cannot be read.
fn look_at_credentials(kubeconfig: &Kubeconfig, names: &Names) -> String {
    let materials = kubeconfig.credentials.materials().into_iter().chain(&kubeconfig.certificate_authority);
    let files: Vec<&str> = materials.filter_map(Material::path).collect();
    if files.is_empty() {
        return format!("kubectl config view --raw --kubeconfig {}", names.kubeconfig);
    }
    format!("ls -l {}", files.join(" "))
}

/// Answers whether there is anything to ask the server with.
fn check_credentials(session: &Session, names: &Names, look: String, report: &mut Report) -> bool {
    let now = clock::now().wall;
    let dates = match session.credentials() {
        Ok(dates) => dates,
        Err(failure) => {
            report.trouble("credentials", Verdict::Failed, failure.to_string(), look);
            return false;
        }
    };
    match (dates.not_before, dates.not_after, now) {
        (_, Some(end), Some(now)) if end < now => {
            report.trouble("certificate", Verdict::Failed, format!("expired at {end}"), names.enroll());
        }
        (Some(start), _, Some(now)) if now < start => {
            report.trouble("certificate", Verdict::Failed, format!("not valid before {start}"), SET_THE_CLOCK);
        }
        (_, Some(end), Some(now)) if end.since(now) < EXPIRES_SOON => {
            report.note("certificate", format!("valid until {end}"));
        }
        (_, Some(end), Some(_)) => report.well("certificate", format!("valid until {end}")),
        _ => report.well("credentials", "readable"),
    }
    true
}

/// A certificate that ends within a month is worth a word.
const EXPIRES_SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// Answers whether asking on makes sense.
fn check_server(answer: &Answer, names: &Names, report: &mut Report) -> bool {
    let server = &names.server;
    match &answer.result {
        Ok(Document::Version(version)) => report.well("server", format!("{server} answers, version {version}")),
        Ok(_) => report.well("server", format!("{server} answers")),
        Err(refusal @ Refusal::Failed(_)) => {
            report.trouble("server", Verdict::Failed, refusal.to_string(), names.curl());
            return false;
        }
        Err(refusal) if refusal.word() == "http-401" => {
            let text = format!("does not know these credentials: {refusal}");
            report.trouble("server", Verdict::NoRights, text, names.whoami());
            return false;
        }
        Err(refusal) => report.note("server", format!("answers, but not to /version: {refusal}")),
    }
    if let (Some(date), Some(now)) = (answer.date, clock::now().wall) {
        let off = now.since(date).max(date.since(now));
        if off > Duration::from_secs(60) {
            let text = format!("{} s away from the server's", off.as_secs());
            report.trouble("clock", Verdict::Warning, text, SET_THE_CLOCK);
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

fn check_rights(session: &Session, names: &Names, report: &mut Report) -> Result<(), CliError> {
    let mut missing = Vec::new();
    for (verb, group, resource, subresource, namespace) in NEEDS {
        // The authorizer knows names only where a request has one: not on create, and events have many.
        let object = if verb == "create" || resource == "events" { "" } else { names.node };
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace, "name": object,
            } },
        });
        let answer = session.ask(Operation::ReviewAccess { body: body.to_string() }).map_err(CliError::Io)?;
        let separator = if subresource.is_empty() { "" } else { "/" };
        let what = format!("{verb} {resource}{separator}{subresource}");
        match answer.result {
            Ok(Document::Access(true)) => {}
            Ok(_) => missing.push(what),
            // Whoever may not ask this may not ask the rest, and a server that is gone would cost ten seconds each.
            Err(refusal) => {
                let may_not_ask = refusal.class() == Class::Rights;
                let verdict = if may_not_ask { Verdict::Warning } else { Verdict::Failed };
                let next = if may_not_ask { names.whoami() } else { names.curl() };
                report.trouble("rights", verdict, format!("cannot ask about {what}: {refusal}"), next);
                return Ok(());
            }
        }
    }
    if missing.is_empty() {
        report.well("rights", format!("all {} verbs that the agent uses", NEEDS.len()));
        return Ok(());
    }
    let (why, next) = names.grant();
    report.trouble("rights", Verdict::NoRights, format!("may not {}: {why}", missing.join(", ")), next);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_win_over_other_failures_in_the_exit_code() {
        let mut report = Report::default();
        assert_eq!(report.exit_code(), exit::OK);
        report.note("server", "slow");
        assert_eq!(report.exit_code(), exit::OK);
        report.trouble("server", Verdict::Failed, "gone", "curl");
        assert_eq!(report.exit_code(), exit::SOFTWARE);
        report.trouble("rights", Verdict::NoRights, "may not create nodes", "kubectl create clusterrolebinding");
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
