//! Every command and option: the one table that parsing, help and completions follow.

/// What the program can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Run,
    Probe,
    Render,
    Check,
    Journal,
    Version,
    Help,
}

/// How facts and objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Yaml,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
            Format::Yaml => "yaml",
        }
    }
}

impl Command {
    /// Its row of [`COMMANDS`].
    pub fn row(self) -> &'static CommandRow {
        COMMANDS.iter().find(|row| row.command == self).unwrap_or(&RUN)
    }
}

/// One command, for people.
pub struct CommandRow {
    pub command: Command,
    pub name: &'static str,
    /// One sentence for the help text, without a full stop.
    pub meaning: &'static str,
    /// The formats of `--output`, the default first; empty: it has none.
    pub formats: &'static [Format],
    /// The options that it takes; `--config` goes with the settings' flags.
    options: &'static [&'static str],
}

const RUN: CommandRow =
    command(Command::Run, "run", "Register the Node and keep it alive (without a COMMAND)").takes(&["--config"]);

/// Every command, in the order of the help text.
pub const COMMANDS: [CommandRow; 7] = [
    RUN,
    command(Command::Probe, "probe", "Show what is known of this board, and why the rest is not")
        .takes(&["--config", "--root", "--output"])
        .prints(&[Format::Text, Format::Json, Format::Yaml]),
    command(Command::Render, "render", "Show the Node that would be registered; nothing is sent")
        .takes(&["--config", "--root", "--output"])
        .prints(&[Format::Yaml, Format::Json]),
    command(Command::Check, "check", "Test settings, server, clock, certificates and permissions").takes(&["--config"]),
    command(Command::Journal, "journal", "Show what happened and the server was not yet told")
        .takes(&["--config", "--file", "--output"])
        .prints(&[Format::Text, Format::Json, Format::Yaml]),
    command(Command::Version, "version", "Show the version"),
    command(Command::Help, "help", "Explain a command, `settings` or `exit-codes`"),
];

const fn command(command: Command, name: &'static str, meaning: &'static str) -> CommandRow {
    CommandRow { command, name, meaning, formats: &[], options: &[] }
}

impl CommandRow {
    const fn takes(self, options: &'static [&'static str]) -> CommandRow {
        CommandRow { options, ..self }
    }

    const fn prints(self, formats: &'static [Format]) -> CommandRow {
        CommandRow { formats, ..self }
    }

    pub fn named(name: &str) -> Option<&'static CommandRow> {
        COMMANDS.iter().find(|row| row.name == name)
    }

    /// Whether it takes the option of that long name.
    pub fn has(&self, option: &str) -> bool {
        self.options.contains(&option) || matches!(option, "--help" | "--version")
    }

    pub fn has_settings(&self) -> bool {
        self.has("--config")
    }

    /// With what may stand behind it on the command line.
    pub fn form(&self) -> String {
        if self.command == Command::Help { format!("{} [TOPIC]", self.name) } else { self.name.to_owned() }
    }
}

/// An option that is no setting.
pub struct OptionRow {
    /// With its dashes.
    pub long: &'static str,
    /// With its dash; empty: it has none.
    pub short: &'static str,
    /// What stands for its value; empty: it takes none.
    pub placeholder: &'static str,
    /// One sentence for the help text, without a full stop.
    pub meaning: &'static str,
}

/// Every option that is no setting.
pub const OPTIONS: [OptionRow; 6] = [
    option("--config", "", "FILE", "Settings file instead of /etc/nodepulse/config.yaml"),
    option("--root", "", "DIR", "Read the files of another board below DIR (probe, render)"),
    option("--file", "", "FILE", "A journal that is not in stateDirectory (journal)"),
    option("--output", "-o", "FORMAT", "text, json or yaml (probe, render, journal)"),
    option("--help", "-h", "", "Explain this command"),
    option("--version", "-V", "", "Show the version"),
];

const fn option(
    long: &'static str,
    short: &'static str,
    placeholder: &'static str,
    meaning: &'static str,
) -> OptionRow {
    OptionRow { long, short, placeholder, meaning }
}

impl OptionRow {
    /// `-o, --output FORMAT`.
    pub fn form(&self) -> String {
        let comma = if self.short.is_empty() { "" } else { ", " };
        format!("{}{comma}{} {}", self.short, self.long, self.placeholder).trim_end().to_owned()
    }
}

/// Where settings are read from when `--config` is not given; it may be absent then.
pub const DEFAULT_CONFIG: &str = "/etc/nodepulse/config.yaml";

/// And from here where that is absent: the partition of a Raspberry Pi that any computer can write before the first start.
pub const BOOT_CONFIG: &str = "/boot/firmware/nodepulse.yaml";

/// How the program ends; the numbers are those of sysexits(3).
pub mod exit {
    /// Ended as asked, or on SIGTERM.
    pub const OK: u8 = 0;
    /// The command line is wrong.
    pub const USAGE: u8 = 64;
    /// Something failed that should not; the message says what.
    pub const SOFTWARE: u8 = 70;
    /// A permission is missing, on this machine or in the cluster.
    pub const NO_PERMISSION: u8 = 77;
    /// The settings or the kubeconfig are wrong; nothing was sent.
    pub const CONFIG: u8 = 78;

    /// Each code with its meaning, for people.
    pub const ALL: [(u8, &str); 5] = [
        (OK, "Ended as asked, by SIGTERM or after Ctrl-C"),
        (USAGE, "The command line is wrong"),
        (SOFTWARE, "Something failed that should not; the message says what"),
        (NO_PERMISSION, "A permission is missing, on this machine or in the cluster"),
        (CONFIG, "The settings or the kubeconfig are wrong; nothing was sent"),
    ];
}
