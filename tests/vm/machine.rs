//! Turns a board, a node's keys and a few settings into an emulated machine that runs the agent, with its console kept.

use super::archive::Archive;
use super::board::Board;
use super::cluster::daemon::{Daemon, tail, write_private};
use super::cluster::{Cluster, NodeIdentity, Result, Token, wait_until};
use super::monitor;
use super::requests::now_us;
use super::sandbox;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An emulated processor on a machine that is busy: ten to thirty seconds are usual.
const BOOT_WITHIN: Duration = Duration::from_secs(120);
/// QEMU 7.2 breaks one in twelve boots of a PC in the kernel's first five seconds, before anything of ours has run; on a
/// machine with ten times more to do than cores, three in four.
const BOOT_TRIES: usize = 12;
/// What our part of a boot says first.
const OURS: &str = "\ninit: network device";
/// How long a board may take for what it is told on its console.
const DONE_WITHIN: Duration = Duration::from_secs(120);
/// How much of the console a failure shows; the rest is in the file that it names.
const SHOWN_LINES: usize = 30;
/// Where a machine of QEMU's user network finds the loopback of its host.
const HOST: &str = "10.0.2.2";
const DISK_BYTES: u64 = 48 * 1024 * 1024;

/// What a machine is started with.
pub struct Boot<'a> {
    board: &'a Board,
    node: &'a NodeIdentity,
    settings: String,
    clock: Option<String>,
    port: Option<u16>,
    kernel_words: &'static str,
    /// It has no kubeconfig: its settings say how to join.
    joins: bool,
    /// Its settings are on the card that its firmware starts from.
    has_card: bool,
}

impl<'a> Boot<'a> {
    pub fn new(board: &'a Board, node: &'a NodeIdentity) -> Self {
        let settings = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n".to_owned();
        Self { board, node, settings, clock: None, port: None, kernel_words: "", joins: false, has_card: false }
    }

    /// A key of the settings file; the value is YAML.
    pub fn set(mut self, key: &str, yaml: &str) -> Self {
        self.settings.push_str(&format!("{key}: {yaml}\n"));
        self
    }

    /// Nothing but a token, and whom to trust with it.
    pub fn joining(self, cluster: &Cluster, token: &Token) -> Self {
        let server = format!("['https://{HOST}:{}']", cluster.api.port);
        let pins = format!("['{}']", cluster.pin());
        let boot = self.set("servers", &server).set("token", &format!("'{token}'")).set("caHash", &pins);
        Self { joins: true, ..boot }
    }

    /// Its settings are where a person writes them who has nothing but a card reader: on the FAT partition.
    pub fn with_settings_on_its_card(self) -> Self {
        Self { has_card: true, ..self }
    }

    /// What its clock shows when it is switched on: `2026-01-01T00:00:00`.
    pub fn clock(mut self, stamp: String) -> Self {
        self.clock = Some(stamp);
        self
    }

    /// The port of this machine where it finds the API server; without one, the server's own.
    pub fn via(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// As a kernel that was built without switching Landlock on, like many of those that come with boards.
    pub fn without_landlock(mut self) -> Self {
        self.kernel_words = " lsm=";
        self
    }

    /// Switches it on, and waits until its network is there; the agent waits for the test.
    pub fn start(self, cluster: &Cluster) -> Result<Machine> {
        for left in (0..BOOT_TRIES).rev() {
            let mut machine = self.switch_on(cluster)?;
            match machine.wait_for_line(&["init: ready"], BOOT_WITHIN) {
                Ok(_) => return Ok(machine),
                Err(e) if left == 0 || machine.said().contains(OURS) => return Err(e),
                Err(e) => {
                    eprintln!("  {}: switched on again: {}", self.node.name, e.lines().next().unwrap_or_default())
                }
            }
        }
        Err("it was never switched on".to_owned())
    }

    fn switch_on(&self, cluster: &Cluster) -> Result<Machine> {
        let name = &self.node.name;
        let file = |kind: &str| self.node.dir.join(format!("{name}.{kind}"));
        let console = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.console", self.node.name));
        let _ = fs::remove_file(&console);
        let (wires, root) = (file("console"), file("initramfs"));
        let asked = file("monitor");
        fs::write(&root, self.root(cluster)?).map_err(|e| format!("{}: {e}", root.display()))?;
        let mut command = self.board.command()?;
        let mut set = |words: &[&str]| command.extend(words.iter().map(|word| (*word).to_owned()));
        set(&["-accel", "tcg", "-display", "none", "-monitor", "none", "-no-user-config", "-nodefaults"]);
        // Switched off, it is there to be switched on again.
        set(&["-no-shutdown"]);
        let words = format!("{}{}", self.board.kernel_line, self.kernel_words);
        set(&["-initrd", &root.display().to_string(), "-append", &words]);
        set(&["-netdev", "user,id=uplink,ipv6=off"]);
        set(&["-device", &format!("{},netdev=uplink", self.board.network)]);
        for _ in 0..self.board.ports_before {
            set(&["-serial", "null"]);
        }
        let socket = format!("path={},server=on,wait=off", wires.display());
        set(&["-chardev", &format!("socket,id=console,{socket},logfile={}", console.display())]);
        set(&["-serial", "chardev:console", "-qmp", &format!("unix:{},server=on,wait=off", asked.display())]);
        if let Some(clock) = &self.clock {
            set(&["-rtc", &format!("base={clock}")]);
        }
        if let Some(kind) = self.board.disk {
            let disk = file("disk");
            make_disk(&disk)?;
            set(&["-drive", &format!("if=none,id=state,format=raw,file={}", disk.display())]);
            set(&["-device", &format!("{kind},drive=state")]);
        }
        if self.has_card {
            let card = file("card");
            make_card(&card, &self.settings)?;
            set(&["-drive", &format!("if=sd,format=raw,file={}", card.display())]);
        }
        let daemon = Daemon::start(cluster.home(), &format!("{name}-qemu"), &command)?;
        Ok(Machine { daemon, console, wires, asked, has_landlock: self.kernel_words.is_empty() })
    }

    /// Everything that the machine has: there is no other disk to read from.
    fn root(&self, cluster: &Cluster) -> Result<Vec<u8>> {
        let read = |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let mut archive = Archive::new();
        archive.program("init", include_str!("init"));
        archive.program("bin/busybox", read(&self.board.part("busybox")?)?);
        archive.program("bin/nodepulse", read(&self.board.program()?)?);
        archive.program("bin/forbidden", read(&self.board.forbidden()?)?);
        archive.program("bin/old_kernel", read(&self.board.old_kernel()?)?);
        archive.file("etc/hostname", format!("{}\n", self.node.name));
        archive.file("etc/os-release", "NAME=BusyBox\nPRETTY_NAME=\"BusyBox on Debian's kernel\"\n");
        for folder in ["modules", "flash"] {
            let modules = self.board.part(folder)?;
            if folder == "flash" && !modules.exists() {
                continue;
            }
            for entry in fs::read_dir(&modules).map_err(|e| format!("{}: {e}", modules.display()))? {
                let path = entry.map_err(|e| e.to_string())?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                archive.file(&format!("{folder}/{name}"), read(&path)?);
            }
        }
        if self.has_card {
            archive.file("etc/card", "");
        } else {
            archive.file("etc/nodepulse/config.yaml", &self.settings);
        }
        if self.joins {
            return Ok(archive.finish());
        }
        // The kubeconfig names its files by path: each is where it is here.
        for path in [&self.node.certificate, &self.node.key, &self.node.authority] {
            archive.file(&path.display().to_string(), read(path)?);
        }
        let port = self.port.unwrap_or(cluster.api.port);
        let kubeconfig = self.node.kubeconfig_via(&format!("https://{HOST}:{port}"))?;
        // The server's certificate does not know how a guest of ours calls it.
        let named = String::from_utf8_lossy(&read(&kubeconfig)?)
            .replace("    server: ", "    tls-server-name: localhost\n    server: ");
        archive.file("etc/nodepulse/kubeconfig", named);
        Ok(archive.finish())
    }
}

/// An emulated machine. It ends with this value.
pub struct Machine {
    daemon: Daemon,
    /// Everything that it wrote on its console, for good.
    pub console: PathBuf,
    wires: PathBuf,
    asked: PathBuf,
    pub has_landlock: bool,
}

impl Machine {
    /// The console so far.
    pub fn said(&self) -> String {
        let bytes = fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }

    /// The lines of the agent so far.
    pub fn agent_said(&self) -> Vec<String> {
        self.said().lines().filter_map(|line| line.strip_prefix("agent: ")).map(str::to_owned).collect()
    }

    /// The first line of the console with all of these words.
    pub fn wait_for_line(&mut self, words: &[&str], within: Duration) -> Result<String> {
        self.wait_for_another(words, 0, within)
    }

    /// The same after `before` such lines.
    pub fn wait_for_another(&mut self, words: &[&str], before: usize, within: Duration) -> Result<String> {
        let found = wait_until(&format!("{words:?} on the console"), within, || {
            if let Err(e) = self.daemon.check() {
                return Ok(Err(e));
            }
            let said = self.said();
            if said.contains("Kernel panic") {
                return Ok(Err("its kernel has given up".to_owned()));
            }
            let mut lines = said.lines().filter(|line| words.iter().all(|word| line.contains(word)));
            lines.nth(before).map(|line| Ok(line.to_owned())).ok_or_else(|| "no such line".to_owned())
        });
        found.map_err(|e| self.with_console(&e))?
    }

    pub fn count_lines(&self, words: &[&str]) -> usize {
        self.said().lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// Says a line of shell on the console; what the machine says until it is done with it, without the agent's lines.
    pub fn tell(&mut self, line: &str) -> Result<String> {
        self.daemon.check()?;
        self.talk(line).map_err(|e| self.with_console(&format!("told {line:?}: {e}")))
    }

    fn talk(&self, line: &str) -> Result<String> {
        let mut stream = UnixStream::connect(&self.wires).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(DONE_WITHIN)).map_err(|e| e.to_string())?;
        let console = BufReader::new(stream.try_clone().map_err(|e| e.to_string())?);
        writeln!(stream, "{line}").map_err(|e| e.to_string())?;
        let mut said = String::new();
        for heard in console.lines() {
            let heard = heard.map_err(|e| format!("{e}; so far {said:?}"))?;
            match heard.trim_end_matches('\r') {
                // Whatever was before it, half a line perhaps, is no answer.
                told if told.ends_with("init: told") => said.clear(),
                "init: done 0" => return Ok(said),
                failed if failed.starts_with("init: done ") => return Err(format!("{failed}: {said}")),
                agent if agent.starts_with("agent: ") => {}
                other => said.push_str(&format!("{other}\n")),
            }
        }
        Err(format!("the console has ended; so far {said:?}"))
    }

    /// What `probe` says of the board.
    pub fn probe(&mut self) -> Result<Value> {
        let text = self.tell("nodepulse probe -o json")?;
        serde_json::from_str(&text).map_err(|e| self.with_console(&format!("probe: {e}: {text}")))
    }

    pub fn start_agent(&mut self) -> Result<()> {
        let before = self.count_lines(&sandbox::SAYS);
        self.tell("start")?;
        sandbox::is_entered(self, before)
    }

    /// SIGTERM; whether it ended well is the answer of the shell. Until then nothing that it asked of its kernel was refused.
    pub fn stop_agent(&mut self) -> Result<()> {
        sandbox::nothing_was_refused(self)?;
        self.tell("kill $agent; wait $agent").map(drop)
    }

    /// What its own clock shows: seconds since 1970, and since it was switched on.
    pub fn clocks(&mut self) -> Result<(i64, i64)> {
        let said = self.tell("echo $(date +%s) $(cut -d . -f 1 /proc/uptime)")?;
        let mut numbers = said.split_whitespace().map(|word| word.parse::<i64>().map_err(|e| format!("{said:?}: {e}")));
        Ok((numbers.next().ok_or("no date")??, numbers.next().ok_or("no uptime")??))
    }

    /// Pulls the plug of its network, or puts it back.
    pub fn plug(&self, is_in: bool) -> Result<()> {
        monitor::ask(&self.asked, "set_link", &json!({"name": "uplink", "up": is_in})).map(drop)
    }

    /// Suspends it, and lets its clock wake it after so long: `mem` stops all but its memory, `freeze` only its programs.
    pub fn fall_asleep(&mut self, state: &str, span: Duration) -> Result<()> {
        self.tell(&format!("sleep_for {} {state} &", span.as_secs())).map(drop)
    }

    /// Waits until its programs go on; when they did, in microseconds since 1970 by the clock of this machine.
    pub fn wait_until_awake(&mut self) -> Result<u64> {
        let line = self.wait_for_line(&["init: awake at "], DONE_WITHIN)?;
        let asked_us = now_us();
        let said = self.tell("uptime_s")?;
        let uptime = |text: &str| text.trim().parse::<f64>().map_err(|e| format!("{text:?}: {e}"));
        let since = uptime(&said)? - uptime(line.rsplit(' ').next().unwrap_or_default())?;
        Ok(asked_us.saturating_sub(Duration::from_secs_f64(since.max(0.0)).as_micros() as u64))
    }

    /// Starts the agent, whose power then goes in the moment that `cut` waits for (`cut_at_line`, `cut_at_file` in `init`): before
    /// anything else is synced. Waits until it is there again.
    pub fn start_agent_until_power_fails(&mut self, cut: &str) -> Result<()> {
        let before = self.count_lines(&["init: ready"]);
        self.tell(&format!("{cut}; start"))?;
        self.wait_for_another(&["init: ready"], before, BOOT_WITHIN).map(drop)
    }

    /// Goes down in order, as a service manager does it: the word that says how, SIGTERM, and when the agent has ended the
    /// machine does so (`reboot` or `poweroff`). One that is off is switched on again. Waits until it is there again.
    pub fn go_down(&mut self, how: &str) -> Result<()> {
        let before = self.count_lines(&["init: ready"]);
        self.tell(&format!("mkdir -p /run/nodepulse; echo {how} >/run/nodepulse/leaving; kill $agent; wait $agent"))?;
        self.tell(&format!("(sync; sleep 1; {how} -f) &"))?;
        if how == "poweroff" {
            wait_until("the machine to be off", DONE_WITHIN, || {
                let status = monitor::ask(&self.asked, "query-status", &json!({}))?;
                if status["status"] == "shutdown" { Ok(()) } else { Err(status.to_string()) }
            })?;
            monitor::ask(&self.asked, "system_reset", &json!({}))?;
            monitor::ask(&self.asked, "cont", &json!({}))?;
        }
        self.wait_for_another(&["init: ready"], before, BOOT_WITHIN).map(drop)
    }

    /// As if somebody pressed the button; waits until it is there again.
    pub fn reset(&mut self) -> Result<()> {
        let before = self.count_lines(&["init: ready"]);
        monitor::ask(&self.asked, "system_reset", &json!({}))?;
        self.wait_for_another(&["init: ready"], before, BOOT_WITHIN).map(drop)
    }

    /// An error with the end of the console, and where the rest is.
    pub fn with_console(&self, error: &str) -> String {
        format!("{error}\n{}", tail(&self.console, SHOWN_LINES))
    }
}

/// A card as a Raspberry Pi's: a table of partitions, and one with FAT32, on which stand the settings.
fn make_card(path: &Path, settings: &str) -> Result<()> {
    const CARD_BYTES: u64 = 64 * 1024 * 1024;
    const BEGIN: u32 = 2048;
    const FAT32: u8 = 0x0c;
    let sectors = u32::try_from(CARD_BYTES / 512).map_err(|e| e.to_string())? - BEGIN;
    let mut table = vec![0; 512];
    table[450] = FAT32;
    table[454..458].copy_from_slice(&BEGIN.to_le_bytes());
    table[458..462].copy_from_slice(&sectors.to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    fs::write(path, table).map_err(|e| e.to_string())?;
    let file = fs::OpenOptions::new().write(true).open(path).map_err(|e| e.to_string())?;
    file.set_len(CARD_BYTES).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = write_private(&path.with_extension("yaml"), settings)?.display().to_string();
    let (card, blocks) = (path.display().to_string(), (sectors / 2).to_string());
    run("mkfs.vfat", &["-F", "32", "--offset", &BEGIN.to_string(), &card, &blocks])?;
    run("mcopy", &["-i", &format!("{card}@@{}", u64::from(BEGIN) * 512), &text, "::nodepulse.yaml"])
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let search = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let made = Command::new(program).args(arguments).env("PATH", search).output();
    let made = made.map_err(|e| format!("{program}: {e}"))?;
    if made.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&made.stderr).into_owned()) }
}

/// An empty disk with a file system that every kernel here knows.
fn make_disk(path: &Path) -> Result<()> {
    write_private(path, "")?;
    let file = fs::OpenOptions::new().write(true).open(path).map_err(|e| e.to_string())?;
    file.set_len(DISK_BYTES).map_err(|e| format!("{}: {e}", path.display()))?;
    run("mkfs.ext4", &["-q", "-F", &path.display().to_string()])
}
