//! Turns a list of test functions into a run against one shared cluster, and says what it left out and why.

// Every user takes a part of it.
#![allow(dead_code)]

pub mod left_out;

use super::cluster::{Cluster, Options, Result, binaries, daemon};
use left_out::leave_out;
use libtest_mimic::{Arguments, Trial};
use nix::unistd::Uid;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};

/// How many tests that work run at once: more only makes each slower on the two cores that CI has.
pub const PER_TWO_CORES: usize = 4;

/// How many daemons of a failed test have their say.
const LOGS: usize = 6;

/// What a test needs besides the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Root,
    /// kubelet and containerd.
    Kubelet,
    /// Network namespaces with cables between them.
    Networks,
    /// A bus and systemd-logind of our own.
    Logind,
    /// A folder that stops answering.
    Bindfs,
    /// HAProxy and nginx.
    Boxes,
    /// The program that makes requests for certificates.
    Openssl,
    /// The programs of every target, and something that runs them.
    Emulator,
    /// The programs of some targets, and kernels to boot them on.
    Machines,
    /// The program that ships, for this machine's processor.
    Program,
}

/// One test: it passes if it returns `Ok` and does not panic.
pub struct Case {
    pub name: &'static str,
    pub needs: &'static [Need],
    pub run: fn(&Cluster) -> Result<()>,
}

/// The cluster of this run, started by the first test that asks for it.
struct Shared {
    options: fn() -> Options,
    cluster: OnceLock<Option<Cluster>>,
}

impl Shared {
    fn cluster(&self) -> Result<&Cluster> {
        let mut why = "the cluster did not start; the first test to ask for it says why".to_owned();
        let cluster = self.cluster.get_or_init(|| match Cluster::start((self.options)()) {
            Ok(cluster) => Some(cluster),
            Err(e) => {
                why = e;
                None
            }
        });
        cluster.as_ref().ok_or(why)
    }
}

/// Runs the tests that the command line selects. What this machine cannot run is left out with a reason,
/// and fails where `CI` is set: there, what is missing is a fault of the set-up.
pub fn run(at_once: usize, options: fn() -> Options, cases: Vec<Case>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(arguments.test_threads.unwrap_or(at_once).min(at_once));
    let in_ci = std::env::var_os("CI").is_some_and(|v| !v.is_empty() && v != "false");
    let programs = binaries::obtainable(&binaries::CONTROL_PLANE);
    let kubelet = binaries::obtainable(&binaries::KUBELET);
    let shared = Arc::new(Shared { options, cluster: OnceLock::new() });
    let mut left_out: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut trials = Vec::new();
    for case in cases {
        let met = programs.clone().and_then(|()| case.needs.iter().try_for_each(|need| check(*need, &kubelet)));
        let selected = arguments.filter.as_ref().is_none_or(|filter| case.name.contains(filter.as_str()));
        if let (Err(why), false, true) = (&met, in_ci, selected && !arguments.list) {
            left_out.entry(why.clone()).or_default().push(case.name);
        }
        let shared = Arc::clone(&shared);
        let ignored = met.is_err() && !in_ci;
        let trial = Trial::test(case.name, move || {
            met?;
            let cluster = shared.cluster()?;
            daemon::take_logs();
            // A panic is an answer like any other here: what the test's own daemons said belongs to both.
            let outcome = catch_unwind(AssertUnwindSafe(|| (case.run)(cluster))).unwrap_or_else(|e| Err(message(&*e)));
            let logs = daemon::take_logs();
            Ok(outcome.map_err(|e| {
                logs.iter().take(LOGS).fold(e, |text, log| format!("{text}\n{}", daemon::tail(log, 40)))
            })?)
        });
        trials.push(trial.with_ignored_flag(ignored));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(shared);
    for (why, names) in left_out {
        names.into_iter().for_each(|name| leave_out(name, &why));
    }
    conclusion.exit_code()
}

/// What a panic said; where, the panic itself has printed.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without words"))
}

fn check(need: Need, kubelet: &Result<()>) -> Result<()> {
    match need {
        Need::Root if Uid::effective().is_root() => Ok(()),
        Need::Root => Err("it needs root".to_owned()),
        Need::Kubelet => kubelet.clone(),
        Need::Networks => networks().clone(),
        Need::Emulator => named(&["CROSS_BIN", "CROSS_QEMU"], "test-cross"),
        Need::Machines => named(&["VM_BIN", "VM_PARTS"], "test-vm"),
        Need::Program => named(&["FLEET_BIN"], "test-fleet"),
        Need::Boxes if is_set("BOXES") => Ok(()),
        Need::Boxes => Err("it needs `make test` on a Debian: tests/boxes/parts".to_owned()),
        Need::Openssl => answers("openssl", "version"),
        Need::Logind => has_logind(),
        Need::Bindfs => answers("bindfs", "--version").and_then(|()| match std::fs::metadata("/dev/fuse") {
            Ok(_) => Ok(()),
            Err(e) => Err(format!("it needs a kernel with FUSE: /dev/fuse: {e}")),
        }),
    }
}

fn has_logind() -> Result<()> {
    let programs = [("dbus-daemon", "--version"), ("busctl", "--version"), ("setpriv", "--version")];
    programs.iter().try_for_each(|(program, argument)| answers(program, argument))?;
    let is_there = ["/usr/lib", "/lib"].iter().any(|folder| Path::new(folder).join("systemd/systemd-logind").exists());
    if is_there { Ok(()) } else { Err("it needs systemd-logind: apt-get install systemd (Debian)".to_owned()) }
}

fn answers(program: &str, argument: &str) -> Result<()> {
    match Command::new(program).arg(argument).output() {
        Ok(_) => Ok(()),
        Err(e) => Err(format!("it needs {program}: {e}")),
    }
}

/// Whether `make` named what it made; whether that is any good is for the tests to say.
fn named(variables: &[&str], target: &str) -> Result<()> {
    if variables.iter().all(|name| is_set(name)) { Ok(()) } else { Err(format!("it needs `make {target}`")) }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// Whether this machine lets us make networks of our own; asked once.
pub fn networks() -> &'static Result<()> {
    static ANSWER: OnceLock<Result<()>> = OnceLock::new();
    ANSWER.get_or_init(|| {
        let needed = "it needs root, `ip` (iproute2), `unshare` and `nsenter` (util-linux), and a kernel with veth";
        let inside = "ip link add here type veth peer name there && ip rule add pref 1 ipproto tcp sport 1 blackhole";
        let tried = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "sh", "-c"])
            .arg(format!("command -v nsenter >/dev/null && {inside}"))
            .output()
            .map_err(|e| format!("{needed}: unshare: {e}"))?;
        let said = String::from_utf8_lossy(&tried.stderr);
        if tried.status.success() { Ok(()) } else { Err(format!("{needed}: {}", said.trim())) }
    })
}
