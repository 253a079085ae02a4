//! Turns `/proc/PID` into what a process uses, and two looks at it into what it used between them.

use std::fs;
use std::path::Path;

use super::cluster::Result;

/// One look. Counters run since the process began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub threads: u64,
    pub rss_kib: u64,
    pub rss_anon_kib: u64,
    /// How often it waited, over all threads.
    pub waits: u64,
    /// How often something else got its processor.
    pub preemptions: u64,
    /// Time on a processor, over all threads.
    pub cpu_ns: u64,
    /// Sent to the storage layer.
    pub written_bytes: u64,
}

impl Usage {
    pub fn of(pid: i32) -> Result<Usage> {
        let status = read(&format!("/proc/{pid}/status"))?;
        let written_bytes = field(&read(&format!("/proc/{pid}/io"))?, "write_bytes:")?;
        let mut usage = Usage {
            threads: field(&status, "Threads:")?,
            rss_kib: field(&status, "VmRSS:")?,
            rss_anon_kib: field(&status, "RssAnon:")?,
            written_bytes,
            ..Usage::default()
        };
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| format!("/proc/{pid}/task: {e}"))?;
        for task in tasks.flatten() {
            // A thread that ends between two reads is left out.
            let _ = usage.add_thread(&task.path());
        }
        Ok(usage)
    }

    fn add_thread(&mut self, task: &Path) -> Result<()> {
        let status = read(&task.join("status").display().to_string())?;
        self.waits += field(&status, "voluntary_ctxt_switches:")?;
        self.preemptions += field(&status, "nonvoluntary_ctxt_switches:")?;
        // In nanoseconds; `stat` counts hundredths of a second, which is a day's worth of a renewal.
        let schedstat = read(&task.join("schedstat").display().to_string())?;
        self.cpu_ns += schedstat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        Ok(())
    }

    /// The counters since `earlier`; the rest as it is now.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            waits: self.waits.saturating_sub(earlier.waits),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            ..self
        }
    }
}

impl std::ops::Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage {
            threads: self.threads + other.threads,
            rss_kib: self.rss_kib + other.rss_kib,
            rss_anon_kib: self.rss_anon_kib + other.rss_anon_kib,
            waits: self.waits + other.waits,
            preemptions: self.preemptions + other.preemptions,
            cpu_ns: self.cpu_ns + other.cpu_ns,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))
}

fn field(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("no {name} where it should be"))
}

/// The highest memory since [`forget_peak`], or since the process began.
pub fn peak_rss_kib(pid: i32) -> Result<u64> {
    field(&read(&format!("/proc/{pid}/status"))?, "VmHWM:")
}

/// From now on the highest memory counts anew (proc_pid_clear_refs(5)).
pub fn forget_peak(pid: i32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").map_err(|e| format!("{path}: {e}"))
}
