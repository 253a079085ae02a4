//! Turns a word of the command line into a command: the one table that parsing, help, manual and completions follow.

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
    Man,
    Completions,
}

/// One command, for people.
pub struct CommandRow {
    pub command: Command,
    pub name: &'static str,
    /// What stands behind it on the command line; empty: nothing.
    pub argument: &'static str,
    /// One sentence for the help text, without a full stop.
    pub meaning: &'static str,
    /// The formats of `-o`, the default first; empty: `-o` is refused.
    pub formats: &'static [Format],
    /// Whether `--root` is taken.
    pub root: bool,
    /// Whether `--file` is taken.
    pub file: bool,
    /// Whether `--config` and settings are taken.
    pub settings: bool,
    /// For packagers: works, and stands in no list.
    pub hidden: bool,
}

/// How facts and objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Yaml,
}

impl Format {
    pub const ALL: [Format; 3] = [Format::Text, Format::Json, Format::Yaml];

    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
            Format::Yaml => "yaml",
        }
    }
}

/// A command without arguments of its own; the table changes what differs.
const PLAIN: CommandRow = CommandRow {
    command: Command::Version,
    name: "version",
    argument: "",
    meaning: "Show the version",
    formats: &[],
    root: false,
    file: false,
    settings: false,
    hidden: false,
};

/// Every command, in the order of the help text.
pub const COMMANDS: [CommandRow; 9] = [
    CommandRow {
        command: Command::Run,
        name: "run",
        meaning: "Register the Node and keep it alive (without a COMMAND)",
        settings: true,
        ..PLAIN
    },
    CommandRow {
        command: Command::Probe,
        name: "probe",
        meaning: "Show what is known of this board, and why the rest is not",
        formats: &[Format::Text, Format::Json, Format::Yaml],
        root: true,
        settings: true,
        ..PLAIN
    },
    CommandRow {
        command: Command::Render,
        name: "render",
        meaning: "Show the Node that would be registered; nothing is sent",
        formats: &[Format::Yaml, Format::Json],
        root: true,
        settings: true,
        ..PLAIN
    },
    CommandRow {
        command: Command::Check,
        name: "check",
        meaning: "Test settings, server, clock, certificates and permissions",
        settings: true,
        ..PLAIN
    },
    CommandRow {
        command: Command::Journal,
        name: "journal",
        meaning: "Show what happened and the server was not yet told",
        formats: &[Format::Text, Format::Json, Format::Yaml],
        file: true,
        settings: true,
        ..PLAIN
    },
    PLAIN,
    CommandRow {
        command: Command::Help,
        name: "help",
        argument: "[TOPIC]",
        meaning: "Explain a command, `settings` or `exit-codes`",
        ..PLAIN
    },
    CommandRow { command: Command::Man, name: "man", meaning: "Print the manual page (roff)", hidden: true, ..PLAIN },
    CommandRow {
        command: Command::Completions,
        name: "completions",
        argument: "SHELL",
        meaning: "Print the completions of bash, zsh or fish",
        hidden: true,
        ..PLAIN
    },
];

impl Command {
    /// Its row of [`COMMANDS`].
    pub fn row(self) -> &'static CommandRow {
        COMMANDS.iter().find(|row| row.command == self).unwrap_or(&PLAIN)
    }

    pub fn named(name: &str) -> Option<Command> {
        COMMANDS.iter().find(|row| row.name == name).map(|row| row.command)
    }
}

/// An option that is no setting.
pub struct OptionRow {
    /// With its dashes; one or two ways to write it.
    pub names: &'static [&'static str],
    /// What stands for its value; empty: it takes none.
    pub placeholder: &'static str,
    /// One sentence for the help text, without a full stop.
    pub meaning: &'static str,
    /// Which commands take it.
    pub of: fn(&CommandRow) -> bool,
}

/// Where settings are read from when `--config` is not given; it may be absent then.
pub const DEFAULT_CONFIG: &str = "/etc/nodepulse/config.yaml";

/// And from here where that is absent: the partition of a Raspberry Pi that any computer can write before the first start.
pub const BOOT_CONFIG: &str = "/boot/firmware/nodepulse.yaml";

/// Every option that is no setting.
pub const OPTIONS: [OptionRow; 6] = [
    OptionRow {
        names: &["--config"],
        placeholder: "FILE",
        meaning: "Settings file instead of /etc/nodepulse/config.yaml",
        of: |row| row.settings,
    },
    OptionRow {
        names: &["--root"],
        placeholder: "DIR",
        meaning: "Read the files of another board below DIR (probe, render)",
        of: |row| row.root,
    },
    OptionRow {
        names: &["--file"],
        placeholder: "FILE",
        meaning: "A journal that is not in stateDirectory (journal)",
        of: |row| row.file,
    },
    OptionRow {
        names: &["-o", "--output"],
        placeholder: "FORMAT",
        meaning: "text, json or yaml (probe, render, journal)",
        of: |row| !row.formats.is_empty(),
    },
    OptionRow { names: &["-h", "--help"], placeholder: "", meaning: "Explain this command", of: |_| true },
    OptionRow { names: &["-V", "--version"], placeholder: "", meaning: "Show the version", of: |_| true },
];

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
