//! What can be wrong with a board, each with where that is read from, by what it is judged, and what to do about it.

/// One of them. Each text is a sentence's end, without a full stop; empty where there is nothing to say.
pub struct Remedy {
    /// A condition, a machine word of the log, or how a board fares.
    pub topic: &'static str,
    /// What `probe` calls the values that it is judged by.
    pub values: &'static [&'static str],
    pub read_from: &'static str,
    pub judged_by: &'static str,
    pub to_do: &'static str,
}

const fn of_board(
    topic: &'static str,
    values: &'static [&'static str],
    [read_from, judged_by, to_do]: [&'static str; 3],
) -> Remedy {
    Remedy { topic, values, read_from, judged_by, to_do }
}

const fn of_server(topic: &'static str, to_do: &'static str) -> Remedy {
    Remedy { topic, values: &[], read_from: "", judged_by: "", to_do }
}

const EVICTION: &str =
    "evictionHard, evictionSoft with its grace periods, and evictionPressureTransitionPeriod until it ends";

impl Remedy {
    /// Whether the board itself is what it is read from.
    pub fn is_of_board(&self) -> bool {
        !self.read_from.is_empty()
    }
}

/// Every condition of ours, every word with which a request fails, and every exit code but that of success.
#[rustfmt::skip]
pub static REMEDIES: &[Remedy] = &[
    of_board("Ready", &["cpus", "memory", "disk", "runtime"], [
        "/proc/cpuinfo, /proc/meminfo, statfs of stateDirectory, the socket of containerRuntimeEndpoint; and the announcement of a shutdown",
        "whether cpu, memory and ephemeral-storage can be told (RDY-3), whether a runtime that is configured says that it and its network are ready, and whether the machine goes down",
        "the message names what is missing; nodepulse probe says why it cannot be read; start the runtime (systemctl status containerd crio), give it a network (/etc/cni/net.d), or take containerRuntimeEndpoint away",
    ]),
    of_board("MemoryPressure", &["memory", "available"], [
        "the memory controller of /sys/fs/cgroup, else /proc/meminfo",
        EVICTION,
        "end what takes the memory (ps aux --sort=-rss | head), or lower memory.available in evictionHard",
    ]),
    of_board("DiskPressure", &["disk"], [
        "statfs of the file system of stateDirectory, and of the one with the images of a container runtime",
        EVICTION,
        "make room there (df -h; df -i; journalctl --vacuum-size=50M; crictl rmi --prune), or lower nodefs or imagefs in evictionHard",
    ]),
    of_board("PIDPressure", &["pids"], [
        "/proc/loadavg, /proc/sys/kernel/pid_max and threads-max",
        EVICTION,
        "end what makes so many processes or threads (ps -eLf | wc -l), or lower pid.available in evictionHard",
    ]),
    of_board("CertificateExpiring", &[], [
        "the certificate in use (nodepulse identity)",
        "the thirty days before its end",
        "with rotateCertificates the agent renews it, and the log says what is in the way; nodepulse renew tries now; without, enroll the board again",
    ]),
    of_board("MeteredBudgetLow", &[], [
        "the kernel's counters of this agent's connections (nodepulse cost)",
        "dailyBytes, and the day of UTC",
        "nothing: renewals go on, and the rest is sent tomorrow; or raise dailyBytes, or choose another profile",
    ]),
    of_board("PlannedAbsence", &[], [
        "nodepulse away, or the shutdown of the machine",
        "the time that was announced",
        "nothing: it ends by itself; nodepulse back ends it now",
    ]),
    of_board("ReadonlyFilesystem", &["read-only"], [
        "the tables of mounts in /proc, once a minute, and what becomes of writes to stateDirectory",
        "a file system that the kernel has made read-only since it was mounted, as it does after errors, or two writes in a row that failed",
        "dmesg says which errors; save what is needed, run fsck on it from elsewhere, and replace a card that goes on failing",
    ]),
    of_board("FilesystemCorruptionProblem", &["errors"], [
        "errors_count and last_error_time of each ext4 in /sys/fs/ext4, once a minute",
        "an error since the boot; over when the board was started again and a day went by without one",
        "dmesg says which errors; save what is needed, run fsck on it, and replace a card that goes on failing",
    ]),
    of_board("KernelDeadlock", &["kernel log"], [
        "lines about hung tasks in the kernel's log, or /proc/sys/kernel/hung_task_detect_count, once a minute",
        "a task that waited in the kernel for hung_task_timeout_secs (120); over after an hour without another one",
        "dmesg says where it waits: mostly for a card, a disk or a network file system that does not answer; replace or unmount that, and start the board again",
    ]),
    of_board("XfsShutdown", &["kernel log"], [
        "lines of XFS in the kernel's log, /dev/kmsg, once a minute",
        "a file system that has shut itself down after an error; over when it is mounted again",
        "dmesg says which error; unmount it, run xfs_repair, and replace a disk that goes on failing",
    ]),
    of_board("NTPProblem", &["clock"], [
        "adjtimex(2): what an NTP client has told the kernel",
        "ten minutes in which nobody keeps the clock right, or it may be more than a second off (conditions: NTPProblem); at once where it was never set",
        "timedatectl set-ntp true, or start chrony or ntpd, and let UDP port 123 through; with a client that tells the kernel nothing, conditions: NTPProblem: false",
    ]),
    of_board("Undervoltage", &["supply"], [
        "the hwmon device rpi_volt (kernel module raspberrypi-hwmon)",
        "its alarm; over after five minutes without",
        "use a stronger power supply and a shorter, thicker cable, and unplug what it feeds over USB",
    ]),
    of_board("ThermalThrottled", &["temperature"], [
        "/sys/class/thermal: zones, trip points and cooling devices; package_throttle_count of an x86",
        "half a minute at a passive trip point, or at conditions: ThermalThrottled in degrees; over after five minutes",
        "give the board air or a heat sink, or less to do",
    ]),
    of_board("StorageWearHigh", &["wear"], [
        "the eMMC in /sys/block, the UFS, or the raw flash in /sys/class/ubi: how much of its life and of its spare blocks is used up",
        "conditions: StorageWearHigh in percent, 90 by default, 80 for raw flash; it recovers with other storage, UncorrectableEcc with the next boot",
        "replace the storage, or the board, before it becomes read-only",
    ]),
    of_board("UplinkDegraded", &["uplink"], [
        "the interface of the default route in /sys/class/net, and /proc/net/wireless",
        "what its reason says, by conditions: LinkFlapping, InterfaceErrors, WeakSignal, LinkSlow; over after 15 minutes without",
        "look at the cable, its plugs and the port of the switch, or move the antenna; what is in order here, conditions: LinkSlow: false",
    ]),
    of_board("OnBattery", &["power"], [
        "/sys/class/power_supply",
        "a minute without mains",
        "look after the mains supply",
    ]),
    of_board("BatteryLow", &["power"], [
        "/sys/class/power_supply",
        "conditions: BatteryLow in percent",
        "bring the mains supply back, or shut the board down in good order",
    ]),
    of_board("UnexpectedReboot", &["last reset"], [
        "what an agent that nobody had told to stop left in the journal; bootstatus in /sys/class/watchdog",
        "another boot than that agent's, with no absence announced; over a day after the boot",
        "PowerLoss: look after its supply; WatchdogReset, KernelPanic: the kernel's log of before (journalctl -kb -1, /sys/fs/pstore) says what it hung on",
    ]),
    of_server("connect-failed", "is the server up, and the port open from here? curl -vk https://SERVER/version; ip route get SERVER"),
    of_server("name-not-resolved", "getent hosts SERVER; a server's address in the place of its name needs no DNS"),
    of_server("timed-out", "the link is slow, or drops packets: ping SERVER; a tunnel or a modem may need a smaller MTU"),
    of_server("connection-broken", "the link, or a box on the way that forgets connections, ended it: nodepulse cost names those that are silent"),
    of_server("connection-closed", "the server or a proxy ended it: its log says why; a server that restarts does that"),
    of_server("redirected", "a captive portal or a proxy answers: log in there, or let the server's address pass"),
    of_server("answer-unconfirmed", "a proxy, a portal or a load balancer answers in the server's place, or has lost it: look there first"),
    of_server("proxy-refused", "the proxy of proxyURL does not connect to the server: its log and its rules say why"),
    of_server("alpn-refused", "alpnProtocol asks for a protocol that the server does not speak: remove that setting"),
    of_server("tls-failed", "it is no TLS server of today, or not this port: openssl s_client -connect SERVER"),
    of_server("tls-unknown-issuer", "the server's CA is not the one in the kubeconfig: is it the right cluster? enroll or join again if its CA was replaced"),
    of_server("tls-wrong-name", "the server's certificate is not for this name: use one that is in it, or set tls-server-name in the kubeconfig"),
    of_server("tls-certificate-expired", "the server's certificate has ended, or this board's clock is wrong: nodepulse status shows the clock"),
    of_server("tls-certificate-not-yet-valid", "the server's certificate begins later, or this board's clock is wrong: nodepulse status shows the clock"),
    of_server("server-clock-wrong", "the server's time contradicts its certificate: look at its clock"),
    of_server("credentials-unreadable", "nodepulse check says which file of the kubeconfig is missing, unreadable or wrong"),
    of_server("header-too-large", "this is no API server, or a proxy adds to its answers: curl -vk https://SERVER/version"),
    of_server("body-too-large", "the Node is longer than it should be: kubectl get node NAME -o yaml, and remove what fills it"),
    of_server("reply-too-large", "this is no API server, or a proxy adds to its answers: curl -vk https://SERVER/version"),
    of_server("reply-malformed", "this is no API server: curl -vk https://SERVER/version"),
    of_server("reply-not-json", "this is no API server: curl -vk https://SERVER/version"),
    of_server("tls-refused-by-peer", "the server refuses this board's certificate: nodepulse identity shows it; join or enroll again if the cluster's CA was replaced"),
    of_server("stream-reset", "the server, or what stands before it, ends requests of HTTP/2: where that goes on, alpnProtocol: http/1.1 does without"),
    of_server("event-too-large", "the Node's metadata is long: kubectl get node NAME -o yaml --show-managed-fields, and remove what fills it"),
    of_server("credentials-silent", "the file system of the kubeconfig or its keys does not answer: mount it anew, or move them"),
    of_server("state-silent", "the file system of stateDirectory does not answer: dmesg says why; replace a card that goes on failing"),
    of_server("http-401", "the server does not know this identity: nodepulse check; enroll or join the board again"),
    of_server("http-403", "this identity may not do that: nodepulse check names the right that is missing, and who gives it"),
    of_server("64", "the command line is wrong: nodepulse help says what a command takes"),
    of_server("70", "the sentence before it says what failed; the log has more (journalctl -u nodepulse)"),
    of_server("77", "a permission is missing: run it as root or as the service's user, or nodepulse check for those in the cluster"),
    of_server("78", "the sentences before it name each setting that is wrong, with its line"),
    of_server("not-sent", "a limit of this agent's own kept the request: it is sent with the next one"),
];

/// The one of this name, however it is spelled.
pub fn remedy(topic: &str) -> Option<&'static Remedy> {
    REMEDIES.iter().find(|remedy| remedy.topic.eq_ignore_ascii_case(topic))
}
