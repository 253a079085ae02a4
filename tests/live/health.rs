//! What a board suffers from, as the cluster sees it: a file system that its kernel has made read-only, and sensors of a Raspberry Pi
//! in the place of this machine's.

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::{Cluster, NodeIdentity, Result, condition};
use super::super::trials::{Case, Need};
use super::{wait_for_event, wait_for_node, wait_until_ready};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    cases![
        &[Need::Root],
        a_state_directory_that_becomes_read_only_is_a_condition_until_it_can_be_written_again,
        a_disk_that_gives_errors_is_a_condition_though_its_mount_looks_well,
        a_disk_that_does_not_answer_is_a_condition_until_it_does,
        a_board_that_is_too_hot_on_too_weak_a_supply_says_so,
        a_board_whose_firmware_slows_it_down_says_so_where_that_is_asked_for,
    ]
}

/// Mounts are looked at once a minute, and half a minute of heat is none.
const A_MINUTE_AND_MORE: Duration = Duration::from_secs(90);

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let text = || format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    output.status.success().then_some(()).ok_or_else(text)
}

/// A file system of its own that is mounted twice: where one says that all of it is read-only, the other does not know why.
struct FileSystem {
    points: [PathBuf; 2],
}

impl FileSystem {
    fn mount(node: &NodeIdentity) -> Result<FileSystem> {
        let [image, first, second] = ["image", "first", "second"].map(|name| node.dir.join(name));
        fs::File::create(&image).and_then(|file| file.set_len(4 << 20)).map_err(|e| e.to_string())?;
        let [image_path, first_path, second_path] = [&image, &first, &second].map(|path| path.display().to_string());
        [&first, &second].into_iter().try_for_each(fs::create_dir_all).map_err(|e| e.to_string())?;
        run("mkfs.ext4", &["-q", "-F", &image_path])?;
        let mounted = FileSystem { points: [first, second] };
        run("mount", &["-t", "ext4", "-o", "loop", &image_path, &first_path])?;
        run("mount", &["--bind", &first_path, &second_path])?;
        Ok(mounted)
    }

    /// All of it: `ro` or `rw`.
    fn remount(&self, how: &str) -> Result<()> {
        run("mount", &["-o", &format!("remount,{how}"), &self.points[0].display().to_string()])
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        for point in self.points.iter().rev() {
            let _ = run("umount", &["--lazy", &point.display().to_string()]);
        }
    }
}

/// A disk that can lose all its blocks, and get them back. No journal of its file system notices that.
struct FailingDisk {
    image: PathBuf,
    whole: PathBuf,
    point: PathBuf,
    device: String,
}

impl FailingDisk {
    fn mount(node: &NodeIdentity) -> Result<FailingDisk> {
        let [image, whole, point] = ["image", "whole", "disk"].map(|name| node.dir.join(name));
        fs::File::create(&image).and_then(|file| file.set_len(4 << 20)).map_err(|e| e.to_string())?;
        fs::create_dir_all(&point).map_err(|e| e.to_string())?;
        let (image_path, point_path) = (image.display().to_string(), point.display().to_string());
        let output = Command::new("losetup").args(["--find", "--show", &image_path]).output();
        let device = String::from_utf8_lossy(&output.map_err(|e| e.to_string())?.stdout).trim().to_owned();
        let disk = FailingDisk { image, whole, point, device };
        run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", &disk.device])?;
        run("mount", &["-t", "ext4", "-o", "errors=continue", &disk.device, &point_path])?;
        Ok(disk)
    }

    fn lose_blocks(&self) -> Result<()> {
        fs::copy(&self.image, &self.whole).map_err(|e| e.to_string())?;
        fs::File::options()
            .write(true)
            .open(&self.image)
            .and_then(|image| image.set_len(0))
            .map_err(|e| e.to_string())?;
        run("losetup", &["--set-capacity", &self.device])
    }

    /// What is written waits until it is thawed.
    fn freeze(&self, how: &str) -> Result<()> {
        run("fsfreeze", &[how, &self.point.display().to_string()])
    }

    fn find_blocks(&self) -> Result<()> {
        fs::copy(&self.whole, &self.image).map_err(|e| e.to_string())?;
        run("losetup", &["--set-capacity", &self.device])
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        let _ = self.freeze("--unfreeze");
        let _ = run("umount", &["--lazy", &self.point.display().to_string()]);
        let _ = run("losetup", &["--detach", &self.device]);
    }
}

fn wait_for(cluster: &Cluster, node: &NodeIdentity, kind: &str, expected: [&str; 2]) -> Result<Value> {
    wait_for_node(cluster, node, &format!("{kind} {expected:?}"), A_MINUTE_AND_MORE, |found| {
        let found = condition(found, kind)?;
        expected.iter().zip(["status", "reason"]).all(|(text, key)| found[key] == **text).then(|| found.clone())
    })
}

fn a_state_directory_that_becomes_read_only_is_a_condition_until_it_can_be_written_again(
    cluster: &Cluster,
) -> Result<()> {
    let node = cluster.node("read-only")?;
    let mounted = FileSystem::mount(&node)?;
    let state = mounted.points[1].join("nodepulse").display().to_string();
    let start = || Launch::quick(&node).set("stateDirectory", &state).start(cluster);
    let mut first = start()?;
    wait_until_ready(cluster, &node)?;
    wait_for(cluster, &node, "ReadonlyFilesystem", ["False", "FilesystemIsNotReadOnly"])?;
    // The kernel does that on its own also under a process that writes there; nobody else may.
    assert_eq!(first.stop()?, 0);
    mounted.remount("ro")?;
    let mut second = start()?;
    let broken = wait_for(cluster, &node, "ReadonlyFilesystem", ["True", "FilesystemIsReadOnly"])?;
    let message = broken["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("/second"), "it names the mount that holds the directory: {message}");
    wait_for_event(cluster, &node, "FilesystemIsReadOnly")?;
    mounted.remount("rw")?;
    wait_for(cluster, &node, "ReadonlyFilesystem", ["False", "FilesystemIsNotReadOnly"])?;
    second.wait_for_line(&["journal-writable"], A_MINUTE_AND_MORE)?;
    second.check()
}

fn a_disk_that_gives_errors_is_a_condition_though_its_mount_looks_well(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("failing-disk")?;
    let disk = FailingDisk::mount(&node)?;
    let (mut agent, folder) = on_a_disk(cluster, &node, &disk)?;
    disk.lose_blocks()?;
    let message = after_something_to_write(cluster, &node, &folder)?;
    let begin = format!("Filesystem is read-only: cannot write {}/nodepulse/journal", disk.point.display());
    assert!(message.starts_with(&begin) && message.contains("Input/output error"), "{message}");
    wait_for_event(cluster, &node, "FilesystemIsReadOnly")?;
    disk.find_blocks()?;
    wait_for(cluster, &node, "ReadonlyFilesystem", ["False", "FilesystemIsNotReadOnly"])?;
    agent.wait_for_line(&["journal-writable"], A_MINUTE_AND_MORE)?;
    agent.check()
}

fn a_disk_that_does_not_answer_is_a_condition_until_it_does(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("frozen-disk")?;
    let disk = FailingDisk::mount(&node)?;
    let (mut agent, folder) = on_a_disk(cluster, &node, &disk)?;
    disk.freeze("--freeze")?;
    let message = after_something_to_write(cluster, &node, &folder)?;
    assert!(message.contains("/disk/nodepulse does not answer"), "{message}");
    disk.freeze("--unfreeze")?;
    wait_for(cluster, &node, "ReadonlyFilesystem", ["False", "FilesystemIsNotReadOnly"])?;
    agent.check()
}

/// The alarm of a Raspberry Pi's supply, in a folder of sensors.
const ALARM: &str = "hwmon/hwmon0/in0_lcrit_alarm";

/// An agent at work with its state there, and the folder of its sensors: an alarm of these is something to write.
fn on_a_disk(cluster: &Cluster, node: &NodeIdentity, disk: &FailingDisk) -> Result<(Nodepulse, PathBuf)> {
    let state = disk.point.join("nodepulse").display().to_string();
    let files =
        [("hwmon/hwmon0/name", "rpi_volt"), (ALARM, "0")].map(|(path, text)| (path.to_owned(), text.to_owned()));
    let agent = Launch::quick(node).set("stateDirectory", &state).folder("/sys/class", files.into()).start(cluster)?;
    wait_until_ready(cluster, node)?;
    wait_for(cluster, node, "Undervoltage", ["False", "VoltageOK"])?;
    wait_for(cluster, node, "ReadonlyFilesystem", ["False", "FilesystemIsNotReadOnly"])?;
    Ok((agent, folder_of_sensors(node)?))
}

/// What the condition says once there was something to write to that disk.
fn after_something_to_write(cluster: &Cluster, node: &NodeIdentity, folder: &Path) -> Result<String> {
    fs::write(folder.join(ALARM), "1\n").map_err(|e| e.to_string())?;
    wait_for(cluster, node, "Undervoltage", ["True", "UndervoltageDetected"])?;
    let broken = wait_for(cluster, node, "ReadonlyFilesystem", ["True", "FilesystemIsReadOnly"])?;
    Ok(broken["message"].as_str().unwrap_or_default().to_owned())
}

/// That an agent has in the place of this machine's.
fn folder_of_sensors(node: &NodeIdentity) -> Result<PathBuf> {
    let folders = fs::read_dir(&node.dir).map_err(|e| e.to_string())?.flatten().map(|entry| entry.path());
    { folders }.find(|path| path.display().to_string().ends_with("-folder-0")).ok_or("no folder of sensors".to_owned())
}

fn a_board_that_is_too_hot_on_too_weak_a_supply_says_so(cluster: &Cluster) -> Result<()> {
    let node = cluster.node("sensors")?;
    let texts = [
        ("hwmon/hwmon0/name", "rpi_volt"),
        ("hwmon/hwmon0/in0_lcrit_alarm", "0"),
        ("thermal/thermal_zone0/type", "cpu-thermal"),
        ("thermal/thermal_zone0/mode", "enabled"),
        ("thermal/thermal_zone0/temp", "61322"),
        ("thermal/thermal_zone0/trip_point_0_type", "passive"),
        ("thermal/thermal_zone0/trip_point_0_temp", "80000"),
        ("thermal/thermal_zone0/trip_point_0_hyst", "2000"),
    ];
    let files = texts.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    let launch = Launch::quick(&node).set("conditions", "{NearCriticalTrip: 83}");
    let mut agent = launch.folder("/sys/class", files).start(cluster)?;
    wait_until_ready(cluster, &node)?;
    wait_for(cluster, &node, "Undervoltage", ["False", "VoltageOK"])?;
    wait_for(cluster, &node, "ThermalThrottled", ["False", "TemperatureOK"])?;
    let folder = folder_of_sensors(&node)?;
    for (file, text) in [("hwmon/hwmon0/in0_lcrit_alarm", "1\n"), ("thermal/thermal_zone0/temp", "80918\n")] {
        fs::write(folder.join(file), text).map_err(|e| e.to_string())?;
    }
    wait_for(cluster, &node, "Undervoltage", ["True", "UndervoltageDetected"])?;
    wait_for(cluster, &node, "ThermalThrottled", ["True", "PassiveTripReached"])?;
    for reason in ["UndervoltageDetected", "ThermalThrottled"] {
        wait_for_event(cluster, &node, reason)?;
    }
    // Five degrees below the end it would be from 85 °C on.
    fs::write(folder.join("thermal/thermal_zone0/temp"), "83204\n").map_err(|e| e.to_string())?;
    wait_for(cluster, &node, "ThermalThrottled", ["True", "NearCriticalTrip"])?;
    wait_for_event(cluster, &node, "OverTemperature")?;
    agent.check()
}

/// A capped clock at 61 °C, as after an under-voltage.
fn a_board_whose_firmware_slows_it_down_says_so_where_that_is_asked_for(cluster: &Cluster) -> Result<()> {
    let nodes = [cluster.node("firmware-asked")?, cluster.node("firmware-left")?];
    let mut agents = Vec::new();
    for (node, conditions) in nodes.iter().zip(["{FirmwareThrottling: true}", "{FirmwareThrottling: false}"]) {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let zone = [file("thermal/thermal_zone0/type", "cpu-thermal\n"), file("thermal/thermal_zone0/temp", "61322\n")];
        let launch = Launch::quick(node).set("conditions", conditions).folder("/sys/class", zone.into());
        let state = file("soc/soc:firmware/get_throttled", "20002\n");
        agents.push(launch.folder("/sys/devices/platform", vec![state]).start(cluster)?);
    }
    let [asked, left] = &nodes;
    wait_for(cluster, asked, "ThermalThrottled", ["True", "FirmwareThrottling"])?;
    wait_for(cluster, left, "ThermalThrottled", ["False", "TemperatureOK"])?;
    agents.iter_mut().try_for_each(Nodepulse::check)
}
