//! Turns what a board's kernel says of the agent into complaints about its sandbox: one that does not hold, or that takes what
//! the agent needs.

use super::cluster::Result;
use super::machine::Machine;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const RELOADS: usize = 6;
const RELOAD_AFTER: Duration = Duration::from_secs(15);
/// The line in which an agent says what holds.
pub const SAYS: [&str; 2] = ["agent: ", " sandbox: "];
/// A folder that no setting has named so far.
const MOVE_KUBECONFIG: &str = "mkdir -p /elsewhere && cp /etc/nodepulse/kubeconfig /elsewhere/ && \
    cp /etc/nodepulse/config.yaml /elsewhere/ && echo 'kubeconfig: /elsewhere/kubeconfig' >>/etc/nodepulse/config.yaml";

/// An agent that has just been started is in all of it that its kernel has, says so, and so does `check`.
pub fn is_entered(machine: &mut Machine, before: usize) -> Result<()> {
    let line = machine.wait_for_another(&SAYS, before, SOON)?;
    let is_on = machine.tell("echo $(cat /sys/kernel/security/lsm)")?.contains("landlock");
    assert_eq!(is_on, machine.has_landlock, "Landlock of this kernel");
    let landlock = if is_on { "; Landlock " } else { "; not held: Landlock is switched off in this kernel (lsm=" };
    let held = line.contains("seccomp: ") && line.contains(landlock);
    assert!(held && is_on != line.contains("not held"), "{line}");
    // Of all its threads: but for one they come and go.
    let status = machine.tell("cat /proc/$agent/task/*/status 2>/dev/null; true")?;
    for wanted in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapPrm:\t0000000000000002", "CapEff:\t0000000000000002"] {
        let name = wanted.split('\t').next().unwrap_or_default();
        let found: Vec<&str> = status.lines().filter(|line| line.split('\t').next() == Some(name)).collect();
        assert!(!found.is_empty() && found.iter().all(|line| *line == wanted), "{wanted}: {found:?}");
    }
    let check = machine.tell("nodepulse check | cat")?;
    let steps: Vec<&str> = check.lines().filter(|line| line.split_whitespace().nth(1) == Some("sandbox")).collect();
    let verdict =
        if is_on { "ok        sandbox      Landlock " } else { "warning   sandbox      Landlock is switched off " };
    assert!(steps.len() == 5 && steps.iter().any(|step| step.starts_with(verdict)), "{check}");
    assert_eq!(steps.iter().filter(|step| step.starts_with("ok ")).count(), if is_on { 5 } else { 4 }, "{check}");
    Ok(())
}

/// Of all that the agent ever asked of its kernel nothing was refused. How often that was the time.
pub fn nothing_was_refused(machine: &mut Machine) -> Result<u32> {
    let calls = Calls::of(machine)?;
    assert!(calls.refused.is_empty(), "{}", machine.with_console(&format!("refused: {:?}", calls.refused)));
    Ok(calls.clocks)
}

/// What an agent never needs its kernel refuses: the calls of the filter and, by Landlock, a file that lies elsewhere.
pub fn refuses(machine: &mut Machine) -> Result<()> {
    reload(machine, "settings read again")?;
    let clocks = nothing_was_refused(machine)?;
    assert!(clocks > 0, "{}", machine.with_console("nobody asked after the clock, or nobody looked"));
    eprintln!("  no call refused; the clock was asked after {clocks} times");
    machine.tell("forbidden $agent").map_err(|e| format!("not in the sandbox of this kernel: {e}"))?;
    if !machine.has_landlock {
        return Ok(());
    }
    machine.tell(MOVE_KUBECONFIG)?;
    reload(machine, "/elsewhere/kubeconfig is in a folder that the sandbox does not open")?;
    machine.wait_for_line(&["agent: ", "reload-refused", "/elsewhere/kubeconfig"], SOON)?;
    let refused = Calls::of(machine)?.refused;
    assert!(!refused.is_empty(), "{}", machine.with_console("it was told, and not refused by the kernel"));
    machine.tell("cp /elsewhere/config.yaml /etc/nodepulse/ && echo >$trace/trace")?;
    reload(machine, "settings read again")
}

/// SIGHUP, and what the agent says to it; again, as a minute has only so many lines of log.
fn reload(machine: &mut Machine, says: &str) -> Result<()> {
    let before = machine.count_lines(&["agent: ", says]);
    let mut said = Err(String::new());
    for _ in 0..RELOADS {
        machine.tell("kill -HUP $agent")?;
        said = machine.wait_for_another(&["agent: ", says], before, RELOAD_AFTER).map(drop);
        if said.is_ok() {
            break;
        }
    }
    said
}

/// What the kernel wrote down of the agent.
struct Calls {
    /// How often the clock was asked after, and answered.
    clocks: u32,
    /// How often, number of the call, error.
    refused: Vec<String>,
}

impl Calls {
    fn of(machine: &mut Machine) -> Result<Self> {
        let mut calls = Self { clocks: 0, refused: Vec::new() };
        for line in machine.tell("calls")?.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [times, "clock", answer] if !answer.starts_with('-') => {
                    calls.clocks += times.parse::<u32>().map_err(|e| format!("{line:?}: {e}"))?;
                }
                _ => calls.refused.push(line.to_owned()),
            }
        }
        Ok(calls)
    }
}
