//! Turns settings, kubeconfig and a few questions to the server into a list of what is well and what to do about the rest.

use std::time::Duration;

use serde_json::{Value, json};

use super::args::Sources;
use super::colour::{GREEN, RED, RESET, YELLOW};
use super::commands::exit;
use super::error::CliError;
use super::load;
use super::means::means;
use crate::api::failure::cut;
use crate::api::{Answer, Class, Document, Operation, Refusal};
use crate::config::Settings;
use crate::config::kubeconfig::{Credentials, Kubeconfig, Material, Server, parse_server};
use crate::config::limits;
use crate::config::plain_text::line;
use crate::config::settings::{Token, lists_devices};
use crate::config::text_map::TextMap;
use crate::identity::cluster_info::ClusterInfo;
use crate::identity::token::Kind;
use crate::identity::{IdentityError, pem, pin, supervisor};
use crate::io::identity::password_in;
use crate::io::sandbox::Sandbox;
use crate::io::{Session, clock};
use crate::node::desired::{delete_pods_command, taint_command};
use crate::node::{NodeName, node_name};
use crate::probe::{Absent, ContainerRuntime, Fact, Facts, Features, Health, Root, Why};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    what: &'static str,
    verdict: Verdict,
    text: String,
    /// What a person would type next.
    next: Option<String>,
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Well,
    /// It works, and may not for long.
    Warning,
    Failed,
    NoRights,
}

impl Finding {
    /// The finding as a line for people, and one below it with what to type next.
    pub fn to_line(&self) -> String {
        let (colour, word) = match self.verdict {
            Verdict::Well => (GREEN, "ok"),
            Verdict::Warning => (YELLOW, "warning"),
            Verdict::Failed => (RED, "failed"),
            Verdict::NoRights => (RED, "no-rights"),
        };
        let next = self.next.iter().map(|next| format!("{:>22} try: {}\n", "", line(next)));
        format!("{colour}{word:<9}{RESET} {:<12} {}\n", self.what, line(&self.text)) + &next.collect::<String>()
    }
}

/// 77 when rights are missing, else 70 when anything failed.
pub fn exit_code(findings: &[Finding]) -> u8 {
    let any = |verdict| findings.iter().any(|finding| finding.verdict == verdict);
    match (any(Verdict::NoRights), any(Verdict::Failed)) {
        (true, _) => exit::NO_PERMISSION,
        (false, true) => exit::SOFTWARE,
        (false, false) => exit::OK,
    }
}

/// What was looked at so far, in order, and what the commands to type next are about.
struct Check {
    findings: Vec<Finding>,
    /// Path of the kubeconfig.
    kubeconfig: String,
    /// `HOST:PORT`.
    server: String,
    node: String,
    /// A token instead of a certificate.
    has_token: bool,
    /// Of what an administrator does with the cluster.
    kubernetes_folder: String,
}

/// Looks at everything `run` needs. Wrong settings end it at once, as no other finding would be reliable.
pub fn check(sources: &Sources) -> Result<Vec<Finding>, CliError> {
    let loaded = load::settings(sources)?;
    let mut settings = loaded.settings;
    let kubeconfig = load::kubeconfig_or_join(&settings)?;
    let (Facts { machine, readings, .. }, remarks_of_board) = load::facts("/", &settings)?;
    let NodeName { name: node, from, remarks } = match &kubeconfig {
        Some(kubeconfig) => load::node_name(&settings, &machine, kubeconfig)?,
        None => node_name(&settings, &machine, None)?,
    };
    let mut check = Check {
        findings: Vec::new(),
        kubeconfig: kubeconfig.as_ref().map(|kubeconfig| kubeconfig.path.clone()).unwrap_or_default(),
        server: kubeconfig.as_ref().map(|kubeconfig| kubeconfig.server.authority()).unwrap_or_default(),
        node: node.clone(),
        has_token: kubeconfig.as_ref().is_some_and(|of| matches!(of.credentials, Credentials::Token(_))),
        kubernetes_folder: load::kubernetes_folder(&std::env::current_exe().unwrap_or_default()),
    };
    check.well("settings", load::settings_path(sources).unwrap_or("no file: defaults and flags"));
    check.note("settings", loaded.notices);
    check.note("board", remarks_of_board);
    check.note("cloud", load::complete(&mut settings, &Root::new("/")));
    check.resources(&readings.extended_resources);
    check.labels(machine.features);
    check.health(&readings.health);
    check.runtime(readings.container_runtime);
    check.well("node name", format!("{node}, from {from}"));
    check.note("node name", remarks);
    let too_open = load::too_open_files(sources, &settings, kubeconfig.as_ref())();
    check.note("permissions", too_open.into_iter().map(|(_, text)| text));
    check.join(&settings);
    let files = load::files(sources, &settings, kubeconfig.as_ref());
    let Some(kubeconfig) = kubeconfig else {
        check.sandbox(&settings, &files);
        check.clock();
        return Ok(check.findings);
    };
    check.well("kubeconfig", format!("context {}, server https://{}", kubeconfig.context, check.server));
    let look = check.look_at_credentials(&kubeconfig);
    check.sandbox(&settings, &files);
    let session = Session::open(kubeconfig, &settings, &node)?;
    check.clock();
    if check.credentials(&session, look) && check.server(&session.ask(Operation::ReadVersion)?, &session, &settings) {
        check.rights(&session, NEEDS.get(usize::from(settings.podless)..).unwrap_or_default())?;
        check.node(&session, &settings)?;
    }
    Ok(check.findings)
}

/// Of more pods it is enough to know that there are.
const PODS_NAMED: usize = 10;

const SET_THE_CLOCK: &str = "timedatectl set-ntp true";

const READ_THE_LOG: &str =
    "install -Dm644 /usr/share/nodepulse/kernel-log.conf /etc/systemd/system/nodepulse.service.d/kernel-log.conf";

/// A certificate that ends within this time gives a warning.
const EXPIRES_SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// As RBAC names it: verb, group, resource, subresource, namespace.
type Need = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Everything the agent does; the first where pods are taken.
const NEEDS: [Need; 10] = [
    ("create", "storage.k8s.io", "csinodes", "", ""),
    ("create", "", "nodes", "", ""),
    ("get", "", "nodes", "", ""),
    ("watch", "", "nodes", "", ""),
    ("patch", "", "nodes", "status", ""),
    ("get", "coordination.k8s.io", "leases", "", "kube-node-lease"),
    ("create", "coordination.k8s.io", "leases", "", "kube-node-lease"),
    ("patch", "coordination.k8s.io", "leases", "", "kube-node-lease"),
    ("create", "", "events", "", "default"),
    ("patch", "", "events", "", "default"),
];

impl Check {
    fn well(&mut self, what: &'static str, text: impl Into<String>) {
        self.findings.push(Finding { what, verdict: Verdict::Well, text: text.into(), next: None });
    }

    /// What is so, and nothing has to be done about it.
    fn note(&mut self, what: &'static str, texts: impl IntoIterator<Item = String>) {
        let note = |text| Finding { what, verdict: Verdict::Warning, text, next: None };
        self.findings.extend(texts.into_iter().map(note));
    }

    fn wrong(&mut self, what: &'static str, verdict: Verdict, text: impl Into<String>, next: impl Into<String>) {
        self.findings.push(Finding { what, verdict, text: text.into(), next: Some(next.into()) });
    }

    fn curl(&self) -> String {
        format!("curl -vk https://{}/version", self.server)
    }

    fn whoami(&self) -> String {
        format!("kubectl --kubeconfig {} auth whoami", self.kubeconfig)
    }

    fn resources(&mut self, counts: &TextMap<Fact<u64>>) {
        for (name, count) in counts {
            match count {
                Ok(count) => self.well("resource", format!("{count} of {name}")),
                Err(absent) => self.note("resource", [format!("{name} cannot be counted: {absent}")]),
            }
        }
    }

    fn labels(&mut self, found: Option<Features>) {
        let Some(found) = found else { return };
        self.well("labels", format!("{} say what this board is and has", found.labels.len()));
        self.note("labels", found.left_out.iter().map(|absent| format!("one is left out: {absent}")));
    }

    /// What this board can be judged by, and what the user who asks may not read.
    fn health(&mut self, health: &Health) {
        fn said<T>(fact: &Option<Fact<T>>) -> Option<Option<&Absent>> {
            fact.as_ref().map(|fact| fact.as_ref().err())
        }
        let firmware = health.thermal.as_ref().and_then(|fact| said(&fact.as_ref().ok()?.is_slowed_by_firmware));
        let unread = health.kernel.as_ref().map(|fact| fact.as_ref().map_or_else(Some, |log| log.unread.as_ref()));
        let all = [
            ("supply", said(&health.undervoltage)),
            ("temperature", said(&health.thermal)),
            ("firmware", firmware),
            ("wear", said(&health.storage_wear)),
            ("errors", said(&health.file_systems)),
            ("kernel log", unread),
            ("uplink", said(&health.uplink)),
            ("clock", said(&health.wall_clock)),
            ("power", said(&health.power)),
        ];
        let told: Vec<&str> = all.iter().filter(|(_, said)| *said == Some(None)).map(|(name, _)| *name).collect();
        if !told.is_empty() {
            self.well("health", format!("judged by {} (nodepulse probe --sources)", told.join(", ")));
        }
        for (name, absent) in all.into_iter().filter_map(|(name, said)| Some((name, said??))) {
            let text = format!("{name} cannot be read: {absent}");
            match (name, &absent.why) {
                ("kernel log", Why::NotPermitted) => self.wrong("health", Verdict::Warning, text, READ_THE_LOG),
                _ => self.note("health", [text]),
            }
        }
    }

    fn runtime(&mut self, said: Option<ContainerRuntime>) {
        let Some(said) = said else { return };
        if said.problems.is_empty() {
            self.well("runtime", said.version);
        } else {
            let text = format!("the Node will not be Ready: {}", said.problems.join(", "));
            self.wrong("runtime", Verdict::Warning, text, "nodepulse why Ready");
        }
        self.note("runtime", said.trouble);
    }

    /// What a board without an identity has to join with, and one with an identity to come back with.
    fn join(&mut self, settings: &Settings) {
        if !settings.can_join() {
            return;
        }
        match load::token(settings) {
            Err(wrong) => {
                let next = "nodepulse help settings  # token, tokenFile, caHash, caFile";
                self.wrong("join", Verdict::Failed, wrong.to_string(), next);
            }
            Ok(None) if settings.bootstrap_kubeconfig.is_none() => {
                let next = "kubeadm token create --ttl 24h  # or k3s token create; then nodepulse join --token TOKEN";
                self.wrong("join", Verdict::Warning, "there are servers to join, and no token", next);
            }
            Ok(token) => {
                let servers: Vec<String> = settings.servers.iter().map(Server::authority).collect();
                let of_kubeconfig = settings.bootstrap_kubeconfig.iter().map(String::as_str);
                let whom: Vec<&str> = of_kubeconfig.chain(servers.iter().map(String::as_str)).collect();
                let of = token.filter(Token::has_pin).map_or("", |_| ", with a token of k3s or rke2");
                self.well("join", format!("by {}{of}", whom.join(", ")));
            }
        }
    }

    /// What to type to see why credentials cannot be read.
    fn look_at_credentials(&self, kubeconfig: &Kubeconfig) -> String {
        let materials = kubeconfig.credentials.materials().into_iter().chain(&kubeconfig.certificate_authority);
        let files: Vec<&str> = materials.filter_map(Material::path).collect();
        if files.is_empty() {
            return format!("kubectl config view --raw --kubeconfig {}", self.kubeconfig);
        }
        format!("ls -l {}", files.join(" "))
    }

    /// Enters the sandbox until the process ends: what is asked after that shows that it allows what the agent needs.
    fn sandbox(&mut self, settings: &Settings, files: &[String]) {
        if !settings.sandbox {
            return self.note("sandbox", ["sandbox: false, so the process keeps every right it has".to_owned()]);
        }
        let lists_devices = lists_devices(&settings.extended_resources);
        for step in Sandbox::enter(Some(&settings.state_directory), files, lists_devices).steps {
            match step {
                Ok(text) => self.well("sandbox", text),
                Err(text) => self.note("sandbox", [text]),
            }
        }
    }

    fn clock(&mut self) {
        match clock::now().wall {
            Some(wall) => self.well("clock", wall.to_seconds_stamp()),
            None => {
                let text = "before this program was built; the server's time is used until the clock is set";
                self.wrong("clock", Verdict::Warning, text, SET_THE_CLOCK);
            }
        }
    }

    /// Answers whether there are credentials to ask the server with.
    fn credentials(&mut self, session: &Session, look: String) -> bool {
        let dates = match session.credentials() {
            Ok(dates) => dates,
            Err(failure) => {
                self.wrong("credentials", Verdict::Failed, failure.to_string(), look);
                return false;
            }
        };
        match (dates.not_before, dates.not_after, clock::now().wall) {
            (_, Some(end), Some(now)) if end < now => {
                let Check { kubernetes_folder, node, .. } = &*self;
                let next =
                    format!("{kubernetes_folder}/enroll {node}  # an administrator's: writes the kubeconfig anew");
                self.wrong("certificate", Verdict::Failed, format!("expired at {end}"), next);
            }
            (Some(start), _, Some(now)) if now < start => {
                self.wrong("certificate", Verdict::Failed, format!("not valid before {start}"), SET_THE_CLOCK);
            }
            (_, Some(end), Some(now)) if end.since(now) < EXPIRES_SOON => {
                self.note("certificate", [format!("valid until {end}")]);
            }
            (_, Some(end), Some(_)) => self.well("certificate", format!("valid until {end}")),
            _ => self.well("credentials", "readable"),
        }
        true
    }

    /// Answers whether more questions make sense.
    fn server(&mut self, answer: &Answer, session: &Session, settings: &Settings) -> bool {
        let server = &self.server;
        match &answer.result {
            Ok(Document::Version(version)) => self.well("server", format!("{server} answers, version {version}")),
            Ok(_) => self.well("server", format!("{server} answers")),
            Err(refusal @ Refusal::Failed(_)) => {
                let is_stranger = refusal.word() == "tls-unknown-issuer";
                let other = is_stranger.then(|| self.other_ca(session, settings)).flatten();
                let (text, next) = match (other, is_stranger) {
                    (Some(told), _) => told,
                    (None, true) => (format!("ca-changed: {refusal}"), self.curl()),
                    (None, false) => (refusal.to_string(), self.curl()),
                };
                self.wrong("server", Verdict::Failed, text, next);
                return false;
            }
            Err(refusal) if refusal.word() == "http-401" => {
                let text = format!("does not know these credentials: {refusal}");
                self.wrong("server", Verdict::NoRights, text, self.whoami());
                return false;
            }
            Err(refusal) => self.note("server", [format!("answers, but not to /version: {refusal}")]),
        }
        if let (Some(date), Some(now)) = (answer.date, clock::now().wall) {
            let off = now.since(date).max(date.since(now));
            if off > Duration::from_secs(60) {
                let text = format!("{} s away from the server's", off.as_secs());
                self.wrong("clock", Verdict::Warning, text, SET_THE_CLOCK);
            }
        }
        true
    }

    /// What the log says of a cluster that has another CA than the one that this board has joined with, and what to type (CA-4).
    fn other_ca(&self, session: &Session, settings: &Settings) -> Option<(String, String)> {
        let folder = load::identity_folder(settings);
        if !self.kubeconfig.starts_with(&folder) {
            // A kubeconfig that was given is whose it is.
            return None;
        }
        let supervisor = password_in(&folder).map(|known| known.port);
        let asked = supervisor.map_or(Operation::ReadClusterInfo, |_| supervisor::ask_authorities());
        let (shown, is_signed) = match session.ask_unproven(supervisor, asked).ok()?.result.ok()? {
            Document::HandedOut(body) => (pem::certificates(&body).collect(), false),
            Document::Json(body) => {
                let info = ClusterInfo::read(&body).ok()?;
                let known: Vec<Server> = parse_server(&self.server).into_iter().collect();
                let token = means(settings, &known, false).map(|means| means.token);
                let is_signed = match token.as_ref().ok().and_then(Kind::of) {
                    Some(Kind::Bootstrap(token)) => info.check_signature(token).is_ok(),
                    _ => false,
                };
                (info.cluster().ok()?.authorities, is_signed)
            }
            _ => return None,
        };
        let hashes = shown.iter().filter_map(|one| pin::of(one)).take(limits::CA_CERTIFICATES).collect();
        let changed = IdentityError::CaChanged(hashes, is_signed);
        let text = format!("{}: {changed}", changed.word());
        let next = text.rfind("nodepulse join").and_then(|at| text.get(at..)).unwrap_or_default().to_owned();
        Some((text, next))
    }

    fn rights(&mut self, session: &Session, needs: &[Need]) -> Result<(), CliError> {
        let mut missing = Vec::new();
        for &(verb, group, resource, subresource, namespace) in needs {
            // The authorizer knows names only where a request has one: not on create, and events have many.
            let object = if verb == "create" || resource == "events" { "" } else { &self.node };
            let body = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": {
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace, "name": object,
                } },
            });
            let separator = if subresource.is_empty() { "" } else { "/" };
            let what = format!("{verb} {resource}{separator}{subresource}");
            match session.ask(Operation::ReviewAccess { body: body.to_string() })?.result {
                Ok(review) if json_of(&review).pointer("/status/allowed") == Some(&Value::Bool(true)) => {}
                Ok(_) => missing.push(what),
                // Without the right to ask this the other questions fail too, and a server that is gone would cost ten seconds each.
                Err(refusal) => {
                    let (verdict, next) = match refusal.class() {
                        Class::Rights => (Verdict::Warning, self.whoami()),
                        _ => (Verdict::Failed, self.curl()),
                    };
                    self.wrong("rights", verdict, format!("cannot ask about {what}: {refusal}"), next);
                    return Ok(());
                }
            }
        }
        if missing.is_empty() {
            self.well("rights", format!("all {} verbs that the agent uses", needs.len()));
            return Ok(());
        }
        let Check { node, kubernetes_folder: folder, .. } = &*self;
        // Why they may be missing, and who gives them.
        let (why, next) = if self.has_token {
            let next = format!("sed s/NAME/{node}/g {folder}/service-account.yaml | kubectl apply -f -");
            (format!("service-account.yaml gives them to the service account {node}"), next)
        } else {
            let next = format!("{}  # if it is not, {folder}/enroll {node} makes one that is", self.whoami());
            (format!("is it system:node:{node} in group system:nodes?"), next)
        };
        // Without the one there are assertions (D4), and Ready waits for no CSINode.
        let is_dispensable = |right: &String| ["watch nodes", "create csinodes"].contains(&right.as_str());
        let verdict = if missing.iter().all(is_dispensable) { Verdict::Warning } else { Verdict::NoRights };
        self.wrong("rights", verdict, format!("may not {}: {why}", missing.join(", ")), next);
        Ok(())
    }

    /// What only an administrator can mend of the Node and the pods bound to it; nothing about a Node that is not there, or
    /// may not be read.
    fn node(&mut self, session: &Session, settings: &Settings) -> Result<(), CliError> {
        let Ok(Document::Node(node)) = session.ask(Operation::ReadNode { heartbeat: false })?.result else {
            return Ok(());
        };
        let name = self.node.clone();
        if let Some(command) = taint_command(&node, &name, settings) {
            let text = format!("Node {name} lacks taints that a node may not set later");
            self.wrong("taints", Verdict::Warning, text, command);
        }
        let list = session.ask(Operation::ListPods)?.result.as_ref().map(json_of).unwrap_or_default();
        let text = |pod: &Value, path| cut(pod.pointer(path).and_then(Value::as_str).unwrap_or_default());
        let pod_name = |pod| format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        let pods: Vec<String> =
            list.get("items").and_then(Value::as_array).into_iter().flatten().take(PODS_NAMED).map(pod_name).collect();
        if settings.podless && !pods.is_empty() {
            let text = format!("bound to Node {name}, and never run: {}", pods.join(", "));
            self.wrong("pods", Verdict::Warning, text, delete_pods_command(&name));
        }
        Ok(())
    }
}

fn json_of(document: &Document) -> Value {
    let Document::Json(body) = document else { return Value::Null };
    serde_json::from_slice(body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::colour::without;

    fn finding(verdict: Verdict) -> Finding {
        Finding { what: "clock", verdict, text: "1970".to_owned(), next: Some("date -u".to_owned()) }
    }

    #[test]
    fn missing_rights_win_over_other_failures_in_the_exit_code() {
        let all = [Verdict::Well, Verdict::Warning, Verdict::Failed, Verdict::NoRights].map(finding);
        let codes = [0, 2, 3, 4].map(|count| exit_code(&all[..count]));
        assert_eq!(codes, [exit::OK, exit::OK, exit::SOFTWARE, exit::NO_PERMISSION]);
    }

    #[test]
    fn a_finding_names_what_to_type_next() {
        assert_eq!(
            without(&finding(Verdict::Warning).to_line()),
            "warning   clock        1970\n                       try: date -u\n"
        );
    }
}
