//! Every command, option and exit code: the tables that parsing, help and completions follow.

/// What the program can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Run,
    Join,
    Identity,
    Renew,
    Leave,
    Away,
    Back,
    Probe,
    Render,
    Check,
    Journal,
    Cost,
    Status,
    Why,
    Version,
    Help,
}

/// One command, for people.
pub struct CommandRow {
    pub command: Command,
    /// Its name, and what may stand behind it on the command line.
    pub usage: &'static str,
    /// One sentence for the help text, without a full stop.
    pub meaning: &'static str,
    /// The options that it takes; `--config` goes with the settings' flags.
    options: &'static [&'static str],
}

const fn command(
    command: Command,
    usage: &'static str,
    meaning: &'static str,
    options: &'static [&'static str],
) -> CommandRow {
    CommandRow { command, usage, meaning, options }
}

/// What runs when no command is named.
pub const RUN: &CommandRow =
    &command(Command::Run, "run", "Register the Node and keep it alive (without a COMMAND)", &["--config"]);
const SHOW: &[&str] = &["--config", "--root", "--output"];

/// Every command, in the order of the help text.
pub const COMMANDS: &[&CommandRow] = &[
    RUN,
    &command(
        Command::Join,
        "join SERVER...",
        "Join a cluster with a token: run until the Node is Ready",
        &["--config"],
    ),
    &command(
        Command::Status,
        "status",
        "Show how this board fares, since when, and why",
        &["--config", "--output", "--watch"],
    ),
    &command(
        Command::Why,
        "why [TOPIC]",
        "Show what is wrong here, how that is known, and what to do",
        &["--config", "--output"],
    ),
    &command(
        Command::Identity,
        "identity",
        "Show whose certificate this is, and when it is renewed",
        &["--config", "--output"],
    ),
    &command(Command::Renew, "renew", "Renew the certificate now", &["--config"]),
    &command(Command::Leave, "leave", "Leave the cluster, and do not join it again", &["--config"]),
    &command(
        Command::Away,
        "away",
        "Announce that this board is away until a time",
        &["--config", "--until", "--reason", "--output"],
    ),
    &command(Command::Back, "back", "End an announced absence before its time", &["--config", "--output"]),
    &command(
        Command::Probe,
        "probe",
        "Show what is known about this board, and why the rest is not",
        &["--config", "--root", "--sources", "--output"],
    ),
    &command(Command::Render, "render", "Show the Node that would be registered; nothing is sent", SHOW),
    &command(Command::Check, "check", "Test settings, server, clock, certificates and permissions", &["--config"]),
    &command(
        Command::Journal,
        "journal",
        "Show what happened and is not yet sent to the server",
        &["--config", "--file", "--plot", "--from-events", "--output"],
    ),
    &command(
        Command::Cost,
        "cost",
        "Show the bytes of today, yesterday and a month, and what for",
        &["--config", "--output"],
    ),
    &command(Command::Version, "version", "Show the version", &[]),
    &command(Command::Help, "help [TOPIC]", "Explain a command, `settings` or `exit-codes`", &[]),
];

impl CommandRow {
    pub fn by_name(name: &str) -> Option<&'static CommandRow> {
        COMMANDS.iter().copied().find(|row| row.name() == name)
    }

    pub fn name(&self) -> &'static str {
        self.usage.split(' ').next().unwrap_or_default()
    }

    /// Whether it takes the option of that long name.
    pub fn takes(&self, option: &str) -> bool {
        self.options.contains(&option) || matches!(option, "--help" | "--version")
    }

    pub fn takes_settings(&self) -> bool {
        self.takes("--config")
    }
}

/// Of one or two commands only: their own help is the place for it.
const FEW: usize = 2;

/// An option that is no setting.
pub struct OptionRow {
    /// Its names with their dashes, and in capital letters what stands for its value, if it takes one.
    pub usage: &'static str,
    /// One sentence for the help text, without a full stop.
    pub meaning: &'static str,
}

/// Every option that is no setting.
pub const OPTIONS: &[OptionRow] = &[
    OptionRow { usage: "--config FILE", meaning: "Settings file instead of /etc/nodepulse/config.yaml" },
    OptionRow { usage: "--root DIR", meaning: "Read the files of another board below DIR (probe, render)" },
    OptionRow { usage: "--sources", meaning: "Say in which file each line was read (probe)" },
    OptionRow { usage: "--file FILE", meaning: "A journal that is not in stateDirectory (journal)" },
    OptionRow { usage: "--plot", meaning: "Draw it as text, or with -o svg for a browser (journal)" },
    OptionRow { usage: "--from-events FILE", meaning: "Draw what kubectl get events -o json printed (journal)" },
    OptionRow { usage: "--until TIME", meaning: "When it is over: 8h, 90m or 2026-12-24T06:00:00Z (away)" },
    OptionRow { usage: "--reason TEXT", meaning: "Why, in at most 64 bytes (away)" },
    OptionRow { usage: "--watch", meaning: "Again every two seconds, until Ctrl-C (status)" },
    OptionRow { usage: "-o, --output FORMAT", meaning: "text or json, of commands that show something" },
    OptionRow { usage: "-h, --help", meaning: "Explain this command" },
    OptionRow { usage: "-V, --version", meaning: "Show the version" },
];

impl OptionRow {
    /// With their dashes.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.usage.split([',', ' ']).filter(|word| word.starts_with('-'))
    }

    pub fn long_name(&self) -> &'static str {
        self.names().last().unwrap_or_default()
    }

    pub fn is_of_few(&self) -> bool {
        COMMANDS.iter().filter(|row| row.takes(self.long_name())).count() <= FEW
    }

    pub fn takes_value(&self) -> bool {
        self.usage.ends_with(|last: char| last.is_ascii_uppercase())
    }
}

/// How facts and objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people; a Node is JSON all the same.
    Text,
    Json,
}

/// What a picture is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Picture {
    Text,
    Svg,
}

/// Where settings are read from when `--config` is not given; it may be absent then.
pub const DEFAULT_CONFIG: &str = "/etc/nodepulse/config.yaml";

/// And from the first of these that is there, where that is absent: the partition of a Raspberry Pi that any computer can
/// write before the first start, and where others have it.
pub const BOOT_CONFIGS: [&str; 2] = ["/boot/firmware/nodepulse.yaml", "/boot/nodepulse.yaml"];

/// Read when neither `--kubeconfig` nor the settings name one and it exists.
pub const DEFAULT_KUBECONFIG: &str = "/etc/nodepulse/kubeconfig";

/// How the program ends; the numbers are those of sysexits(3).
pub mod exit {
    pub const OK: u8 = 0;
    pub const USAGE: u8 = 64;
    pub const SOFTWARE: u8 = 70;
    pub const NO_PERMISSION: u8 = 77;
    pub const CONFIG: u8 = 78;

    /// Each code with its meaning.
    pub const ALL: [(u8, &str); 5] = [
        (OK, "Ended as asked, by SIGTERM or after Ctrl-C"),
        (USAGE, "The command line is wrong"),
        (SOFTWARE, "Something failed that should not; the message says what"),
        (NO_PERMISSION, "A permission is missing, on this machine or in the cluster"),
        (CONFIG, "The settings or the kubeconfig are wrong; nothing was sent"),
    ];
}
