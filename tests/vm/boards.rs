//! Boards of other processors: each is known by its device tree, becomes Ready, and loses its link or its power.

use super::super::board::{ARM64, ARMV7, RASPBERRY_PI_3B, RISCV64};
use super::super::cluster::audit::micros;
use super::super::cluster::{AuditEntry, Cluster, NodeIdentity, Result, condition, wait_until};
use super::super::machine::{Boot, Machine};
use super::super::requests::{is_event, is_renewal, lines, now_us, status_of, wait_for_node, wait_for_requests};
use super::super::sandbox;
use super::super::stamps::Stamps;
use super::{Case, READY_WITHIN, boot, wait_until_ready};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const OUTAGE: Duration = Duration::from_secs(60);
/// How soon after the link is back the Node is: the kernel says so at once, and an emulated handshake takes its time.
const BACK_WITHIN: Duration = Duration::from_secs(20);
/// A server that is back is left in peace for ten to twenty seconds, and then told one thing a second.
const TELLING: Duration = Duration::from_secs(90);
/// Enough for the agent and a shell, and less than `evictionHard` wants.
const LITTLE_MEMORY: &str = "fill 30";

pub fn cases() -> Vec<Case> {
    cases![
        an_arm64_board_loses_its_link_for_a_minute,
        a_riscv64_board_is_reset_while_it_is_offline,
        a_board_that_is_rebooted_switched_off_or_loses_its_power_says_which_it_was,
        a_board_whose_disk_has_errors_says_so_and_stays_a_node,
        an_armv7_board_becomes_a_node,
        an_armv7_board_with_a_kernel_of_2013_becomes_a_node,
        a_raspberry_pi_with_its_network_on_usb_and_no_landlock_becomes_a_node,
    ]
}

/// A board at work, and what the test did to it.
pub struct Trial<'a> {
    cluster: &'a Cluster,
    node: &'a NodeIdentity,
    pub machine: Machine,
    stamps: Stamps,
}

impl<'a> Trial<'a> {
    /// Switched on, known by its name, and Ready.
    pub fn begin(cluster: &'a Cluster, node: &'a NodeIdentity, boot: Boot, names: [&str; 2]) -> Result<Self> {
        let (stamps, began) = (Stamps::begin(), Instant::now());
        let machine = boot.start(cluster)?;
        let mut trial = Self { cluster, node, machine, stamps };
        let booted = began.elapsed();
        let facts = trial.machine.probe()?;
        let named = [&facts["machine"]["boardModel"], &facts["machine"]["boardCompatible"][0]];
        assert_eq!(named, names, "{facts:#}");
        trial.machine.start_agent()?;
        wait_until_ready(cluster, node).map_err(|e| trial.machine.with_console(&e))?;
        trial.renews()?;
        let (booted, ready) = (booted.as_secs(), began.elapsed().as_secs());
        eprintln!("  {}: {:?}, booted in {booted} s, Ready {ready} s after it was switched on", node.name, names[0]);
        Ok(trial)
    }

    pub fn renews(&self) -> Result<()> {
        let since_us = now_us();
        let is_new = |e: &AuditEntry| is_renewal(e) && e.received_at_us > since_us;
        let found =
            wait_for_requests(&self.cluster.api, self.node, "renewals", READY_WITHIN, |all| all.iter().any(is_new));
        found.map(drop).map_err(|e| self.machine.with_console(&e))
    }

    /// The plug is pulled, and the agent has noticed.
    fn cut(&mut self) -> Result<u64> {
        let (cut_us, before) = (now_us(), self.machine.count_lines(&["Lease renewal failed"]));
        self.machine.plug(false)?;
        self.machine.wait_for_another(&["Lease renewal failed"], before, READY_WITHIN)?;
        Ok(cut_us)
    }

    /// The plug is back, and the Node is Ready: how long that took.
    fn mend(&self) -> Result<(u64, Duration)> {
        let mended_us = now_us();
        self.machine.plug(true)?;
        let says_ready = |all: &[AuditEntry]| {
            all.iter().any(|e| e.received_at_us > mended_us && status_of(&e.reply, "Ready") == "True")
        };
        let all =
            wait_for_requests(&self.cluster.api, self.node, "a report that makes it Ready", READY_WITHIN, says_ready);
        let all = all.map_err(|e| self.machine.with_console(&e))?;
        let first = all.iter().find(|e| e.received_at_us > mended_us && status_of(&e.reply, "Ready") == "True");
        let after = Duration::from_micros(first.map_or(0, |e| e.completed_at_us - mended_us));
        Ok((mended_us, after))
    }

    fn condition_since(&self, kind: &str, status: &str) -> Result<u64> {
        wait_for_node(self.cluster, self.node, &format!("{kind}={status}"), READY_WITHIN, |node| {
            let found = condition(node, kind).filter(|found| found["status"] == status)?;
            micros(found["lastTransitionTime"].as_str()?)
        })
    }

    /// The events since `since_us` that are of these reasons, once there are as many, in the order in which they came.
    fn told(&self, since_us: u64, reasons: &[&str]) -> Result<Vec<Value>> {
        // One that was told just before the power failed is told again under its name, and is there (409).
        let is_one = |e: &&AuditEntry| {
            e.received_at_us > since_us
                && is_event(e)
                && e.code == 201
                && reasons.iter().any(|reason| e.body["reason"] == *reason)
        };
        let found = wait_for_requests(&self.cluster.api, self.node, "events", TELLING, |all| {
            all.iter().filter(is_one).count() >= reasons.len()
        });
        let all = found.map_err(|e| self.machine.with_console(&e))?;
        let events: Vec<Value> = all.iter().filter(is_one).map(|e| e.body.clone()).collect();
        let told: Vec<&str> = events.iter().filter_map(|event| event["reason"].as_str()).collect();
        assert_eq!(told, reasons, "{:#?}", lines(&all));
        Ok(events)
    }

    fn last_outage(&self) -> Result<Value> {
        let noted = wait_until("the annotation", TELLING, || {
            let node = self.cluster.get_node(&self.node.name)?;
            let text = node["metadata"]["annotations"]["nodepulse.dev/last-outage"].as_str().map(str::to_owned);
            text.ok_or_else(|| node["metadata"].to_string())
        })?;
        serde_json::from_str(&noted).map_err(|e| format!("{noted}: {e}"))
    }

    pub fn end(mut self) -> Result<()> {
        self.renews()?;
        sandbox::refuses(&mut self.machine)?;
        let looked_at = self.stamps.are_true(self.cluster, self.node).map_err(|e| self.machine.with_console(&e))?;
        eprintln!("  {}: {looked_at} stamps, all true", self.node.name);
        self.machine.stop_agent()
    }
}

/// Stamps are cut to the second, and the board is looked at every two.
fn assert_within(what: &str, at_us: u64, from_us: u64, to_us: u64) {
    let (early, late) = (at_us + 3_000_000 < from_us, at_us > to_us + 3_000_000);
    assert!(!early && !late, "{what} at {at_us}, and should be from {from_us} to {to_us}");
}

fn stamp_us(stamp: &Value) -> Result<u64> {
    stamp.as_str().and_then(micros).ok_or_else(|| format!("{stamp} is no stamp"))
}

/// Waits; the machine goes on.
fn pass(span: Duration) -> Result<()> {
    let began = Instant::now();
    wait_until("time to pass", span + READY_WITHIN, || {
        if began.elapsed() >= span { Ok(()) } else { Err("not yet".to_owned()) }
    })
}

fn an_arm64_board_loses_its_link_for_a_minute(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("arm64")?;
    let mut trial = Trial::begin(cluster, &node, boot(&ARM64, &node), ["linux,dummy-virt", "linux,dummy-virt"])?;
    let began = Instant::now();
    let cut_us = trial.cut()?;
    let filled_us = now_us();
    trial.machine.tell(LITTLE_MEMORY)?;
    pass(OUTAGE.saturating_sub(began.elapsed()))?;
    cluster.wait_for_condition(&node.name, "Ready", "Unknown", READY_WITHIN)?;
    let (mended_us, after) = trial.mend()?;
    eprintln!("  {}: Ready {:.1} s after its link was back", node.name, after.as_secs_f64());
    assert!(after < BACK_WITHIN, "{after:?}");
    assert_within("MemoryPressure", trial.condition_since("MemoryPressure", "True")?, filled_us, mended_us);

    let events = trial.told(mended_us, &["NodeHasInsufficientMemory", "UplinkRestored"])?;
    for field in ["firstTimestamp", "lastTimestamp"] {
        assert_within(field, stamp_us(&events[0][field])?, filled_us, mended_us);
    }
    let noted = trial.last_outage()?;
    assert_eq!((&noted["changes"], &noted["dropped"]), (&1.into(), &0.into()), "{noted}");
    // The last answer before the cut may be as old as the pause between two renewals.
    assert_within("its beginning", stamp_us(&noted["from"])?, cut_us - 3_000_000, filled_us);
    assert_within("its end", stamp_us(&noted["to"])?, mended_us, mended_us + BACK_WITHIN.as_micros() as u64);
    assert!(noted["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{noted}");
    trial.end()
}

fn a_riscv64_board_is_reset_while_it_is_offline(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("riscv64")?;
    // Its clock has no battery: after the reset it is 1970 again, and nobody is there to ask.
    let boot = boot(&RISCV64, &node).clock("1970-01-01T00:00:00".to_owned());
    let mut trial = Trial::begin(cluster, &node, boot, ["riscv-virtio,qemu", "riscv-virtio"])?;
    let boot_id = cluster.get_node(&node.name)?["status"]["nodeInfo"]["bootID"].clone();
    trial.cut()?;
    let filled_us = now_us();
    trial.machine.tell(LITTLE_MEMORY)?;
    trial.machine.tell("until nodepulse journal | grep 'MemoryPressure False -> True'; do sleep 1; done")?;
    let reset_us = now_us();
    trial.machine.reset()?;
    // What it knows now it knows from its disk: its memory is empty, and its link is down.
    trial.machine.start_agent()?;
    trial.machine.tell("until nodepulse journal | grep 'MemoryPressure True -> False'; do sleep 1; done")?;
    let (mended_us, after) = trial.mend()?;
    eprintln!("  {}: Ready {:.1} s after its link was back", node.name, after.as_secs_f64());
    assert!(after < BACK_WITHIN, "{after:?}");

    let [changed, cleared] = ["NodeHasInsufficientMemory", "NodeHasSufficientMemory"];
    let reasons = [changed, "Starting", "Rebooted", "UnexpectedReboot", cleared, "UplinkRestored"];
    let events = trial.told(mended_us, &reasons)?;
    assert_within("the change before the reset", stamp_us(&events[0]["firstTimestamp"])?, filled_us, reset_us);
    for event in &events[1..5] {
        assert_within(&event["reason"].to_string(), stamp_us(&event["firstTimestamp"])?, reset_us, mended_us);
    }
    let noted = trial.last_outage()?;
    assert_eq!((&noted["changes"], &noted["dropped"]), (&3.into(), &0.into()), "{noted}");
    let found = cluster.get_node(&node.name)?;
    assert_ne!(found["status"]["nodeInfo"]["bootID"], boot_id, "{found:#}");
    assert_eq!(condition(&found, "UnexpectedReboot").map(|one| &one["status"]), Some(&"True".into()), "{found:#}");
    trial.end()
}

fn a_board_that_is_rebooted_switched_off_or_loses_its_power_says_which_it_was(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("comes-back")?;
    let mut trial = Trial::begin(cluster, &node, boot(&ARM64, &node), ["linux,dummy-virt", "linux,dummy-virt"])?;
    for (how, reason) in [("reboot", "Reboot"), ("poweroff", "PowerOff"), ("", "Present")] {
        let (down_us, boot_id) = (now_us(), cluster.get_node(&node.name)?["status"]["nodeInfo"]["bootID"].clone());
        if how.is_empty() {
            trial.machine.reset()?
        } else {
            trial.machine.go_down(how)?
        }
        let left = cluster.get_node(&node.name)?;
        let of = |node: &Value, kind: &str, key: &str| {
            condition(node, kind).and_then(|one| one[key].as_str().map(str::to_owned)).unwrap_or_default()
        };
        // What the cluster is told before it is away, and knows meanwhile: that it is planned, and how.
        let planned = if how.is_empty() { "False" } else { "True" };
        let said = [of(&left, "PlannedAbsence", "status"), of(&left, "PlannedAbsence", "reason")];
        assert_eq!(said, [planned, reason], "{how}: {left:#}");
        let is_farewell = |e: &AuditEntry| {
            let said = [of(&e.body, "Ready", "status"), of(&e.body, "Ready", "message")];
            e.received_at_us > down_us && e.code == 200 && said == ["False", "node is shutting down"]
        };
        assert_eq!(cluster.audit_of(&node)?.iter().filter(|e| is_farewell(e)).count(), usize::from(!how.is_empty()));

        trial.machine.start_agent()?;
        // The condition is not there before it was true once.
        let what = format!("{how}: Ready, UnexpectedReboot: {}", how.is_empty());
        let found = wait_for_node(cluster, &node, &what, READY_WITHIN, |node| {
            let is_back = of(node, "Ready", "status") == "True" && node["status"]["nodeInfo"]["bootID"] != boot_id;
            let is_cut_short = of(node, "UnexpectedReboot", "status") == "True";
            (is_back && is_cut_short == how.is_empty()).then(|| node.clone())
        });
        let found = found.map_err(|e| trial.machine.with_console(&e))?;
        assert_eq!(of(&found, "PlannedAbsence", "status"), "False", "{how}: {found:#}");
        let reasons = match how {
            "" => ["Starting", "Rebooted", "UnexpectedReboot"],
            _ => ["Shutdown", "Starting", "Rebooted"],
        };
        trial.told(down_us, &reasons)?;
        let is_unexpected = |e: &AuditEntry| e.received_at_us > down_us && e.body["reason"] == "UnexpectedReboot";
        assert_eq!(cluster.audit_of(&node)?.iter().any(is_unexpected), how.is_empty(), "{how}");
    }
    trial.end()
}

/// Linux 6.12 says nothing of it in the table of mounts: only what is written fails.
fn a_board_whose_disk_has_errors_says_so_and_stays_a_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("disk-errors")?;
    let mut trial = Trial::begin(cluster, &node, boot(&ARM64, &node), ["linux,dummy-virt", "linux,dummy-virt"])?;
    trial.machine.tell("mount -o remount,errors=remount-ro /var/lib/nodepulse")?;
    trial.condition_since("ReadonlyFilesystem", "False")?;
    trial.machine.tell("echo 1 >/sys/fs/ext4/vda/trigger_fs_error")?;
    for kind in ["FilesystemCorruptionProblem", "ReadonlyFilesystem"] {
        trial.condition_since(kind, "True").map_err(|e| trial.machine.with_console(&e))?;
    }
    let refused = "! touch /var/lib/nodepulse/anything; grep /var/lib/nodepulse /proc/self/mountinfo";
    let mount = trial.machine.tell(refused).map_err(|e| trial.machine.with_console(&e))?;
    assert!(!mount.contains("emergency_ro") && !mount.contains(" ro"), "this kernel says more: {mount}");
    trial.end()
}

fn an_armv7_board_becomes_a_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("armv7")?;
    let mut trial = Trial::begin(cluster, &node, boot(&ARMV7, &node), ["linux,dummy-virt", "linux,dummy-virt"])?;
    let broken: Vec<String> = (0..BROKEN_BLOCKS).map(|number| (number * 100 + 3).to_string()).collect();
    trial.machine.tell(&format!("flash {}", broken.join(",")))?;
    let facts = trial.machine.probe()?;
    let wear = &facts["readings"]["health"]["storageWear"];
    let expected = json!({
        "device": "ubi0", "isRaw": true, "lifeTenths": 1, "spareState": 2, "uncorrectableReads": 0, "isLosingData": false
    });
    assert_eq!(wear, &expected, "{}", trial.machine.tell("cd /sys/class; grep . ubi/ubi0/*_* mtd/mtd0/*_*")?);
    trial.end()
}

/// UBI keeps 20 blocks of 1,024 for those that break, and the chip has 8,192.
const BROKEN_BLOCKS: usize = 80;

/// `finit_module`, the last call of Linux 3.8 to 3.13: those that take the time in 64 bits came with 5.1.
const LAST_CALL: u32 = 379;

fn an_armv7_board_with_a_kernel_of_2013_becomes_a_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("armv7-2013")?;
    let stamps = Stamps::begin();
    let mut machine = boot(&ARMV7, &node).start(cluster)?;
    machine.tell(&format!("old_kernel {LAST_CALL} nodepulse run >/run/log 2>&1 & agent=$!"))?;
    wait_until_ready(cluster, &node).map_err(|e| machine.with_console(&e))?;
    machine.wait_for_line(&["agent: ", "the kernel takes no filter (seccomp)"], READY_WITHIN)?;
    let mut trial = Trial { cluster, node: &node, machine, stamps };
    trial.renews()?;
    trial.stamps.are_true(cluster, &node)?;
    trial.machine.tell("kill $agent; wait $agent").map(drop)
}

fn a_raspberry_pi_with_its_network_on_usb_and_no_landlock_becomes_a_node(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("raspberry")?;
    let names = ["Raspberry Pi 3 Model B", "raspberrypi,3-model-b"];
    Trial::begin(cluster, &node, boot(&RASPBERRY_PI_3B, &node).without_landlock(), names)?.end()
}
