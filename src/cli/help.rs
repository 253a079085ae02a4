//! Turns the tables of commands, options and settings into help for a terminal. What a line looks like is also what the
//! completions of the shells go by (`targets/completions`).

use super::colour::{BOLD, RESET};
use super::commands::{COMMANDS, Command, CommandRow, OPTIONS, exit};
use crate::config::settings::{DefinedBy, SETTINGS};

/// Columns of the narrowest terminal that help is made for.
pub const WIDTH: usize = 80;
/// The settings that the help of `join` names.
const TO_JOIN: [&str; 8] = [
    "token",
    "tokenFile",
    "caHash",
    "caFile",
    "unsafeSkipCaVerification",
    "bootstrapKubeconfig",
    "hostnameOverride",
    "stateDirectory",
];
const KUBEADMS_LINE: &str = "The line of kubeadm token create --print-join-command does as well, with nodepulse in the place of \
    kubeadm. To a service that is to join by itself the same settings are given in its file: what stands on a command \
    line, others see in the list of processes.";

/// The text of a topic (a command, `settings`, `exit-codes`, or nothing for all), with a line feed at its end.
pub fn help(topic: &str) -> Option<String> {
    match topic {
        "" => Some(main()),
        "settings" => Some(settings()),
        "exit-codes" => Some(exit_codes()),
        name => CommandRow::by_name(name).map(command_help),
    }
}

/// `nodepulse 0.1.0 (linux/aarch64)`.
pub fn version() -> String {
    format!("nodepulse {} ({}/{})\n", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH)
}

fn heading(text: &str) -> String {
    format!("{BOLD}{text}{RESET}\n")
}

/// One screen of 80 columns and 24 lines.
fn main() -> String {
    let mut text = "Makes this Linux board a live Kubernetes Node, and keeps it one. Runs no pods.\n".to_owned();
    text += &heading("Usage: nodepulse [COMMAND] [OPTION]... [SETTING]...");
    text.extend(COMMANDS.iter().map(|row| entry(row.usage, row.meaning, 16)));
    text += &heading("Options");
    text.extend(OPTIONS.iter().filter(|row| !row.is_of_few()).map(|row| entry(row.usage, row.meaning, 21)));
    text + &format!("{} settings, keys of the file or flags, which win: nodepulse help settings\n", SETTINGS.len())
}

fn command_help(row: &CommandRow) -> String {
    let more = if row.takes_settings() { " [OPTION]... [SETTING]..." } else { "" };
    let mut text = format!("{}\n\n{}", row.meaning, heading(&format!("Usage: nodepulse {}{more}", row.usage)));
    let options = OPTIONS.iter().filter(|option| row.takes(option.long_name()));
    text.extend(options.map(|option| entry(option.usage, option.meaning, 21)));
    if row.command == Command::Join {
        let named = SETTINGS.iter().filter(|setting| TO_JOIN.contains(&setting.name));
        text.extend(named.map(|setting| format!("  {}\n", setting.usage())));
        text += "\n";
        text.extend(wrap(KUBEADMS_LINE, WIDTH).iter().map(|line| format!("{line}\n")));
    }
    if row.takes_settings() {
        text += "\nSettings: nodepulse help settings\n";
    }
    if matches!(row.command, Command::Check | Command::Run | Command::Join) {
        text += "Exit codes: nodepulse help exit-codes\n";
    }
    text
}

fn settings() -> String {
    let about = "Every setting is a key of the settings file (kind NodePulseConfiguration) and a flag; flags win. \
        A file of kind KubeletConfiguration is read as well, as far as it applies. Names, defaults and meaning are \
        the kubelet's, unless marked with *.";
    let mut text = wrap(about, WIDTH).join("\n") + "\n";
    text += &format!("\n{}", heading("Options of single commands, which are no settings"));
    text.extend(OPTIONS.iter().filter(|row| row.is_of_few()).map(|row| entry(row.usage, row.meaning, 21)));
    for setting in SETTINGS {
        let mark = if setting.defined_by == DefinedBy::Ours { " *" } else { "" };
        text += &format!("\n{BOLD}{}{RESET}{mark}\n  {}\n", setting.name, setting.usage());
        let default =
            if setting.default.is_empty() { String::new() } else { format!(" (default: {})", setting.default) };
        let lines = wrap(&format!("{}{default}", setting.meaning), WIDTH - 4);
        text.extend(lines.iter().map(|line| format!("    {line}\n")));
    }
    text
}

fn exit_codes() -> String {
    let mut text = heading("Exit codes");
    text.extend(exit::ALL.map(|(code, meaning)| entry(&code.to_string(), meaning, 4)));
    text + "\nOnce it runs, no answer of the server and no state of the network ends it.\n"
}

/// `  left   right`, the right column at `column` + 2, wrapped below itself.
fn entry(left: &str, right: &str, column: usize) -> String {
    let mut text = String::new();
    let mut left = left.trim_end();
    for line in wrap(right, WIDTH - column - 2) {
        text += &format!("  {left:<column$}{line}\n");
        left = "";
    }
    text
}

/// Lines of at most `width` characters, broken at blanks; a longer word stands alone.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::colour::without;

    fn topics() -> Vec<&'static str> {
        COMMANDS.iter().map(|row| row.name()).chain(["", "settings", "exit-codes"]).collect()
    }

    fn plain(topic: &str) -> String {
        without(&help(topic).unwrap())
    }

    #[test]
    fn the_first_screen_is_one_screen() {
        let text = plain("");
        assert!(text.lines().count() <= 24, "{} lines:\n{text}", text.lines().count());
        for row in COMMANDS {
            assert!(text.contains(row.usage) && text.contains(row.meaning), "{}", row.usage);
        }
        let of_few = plain("settings");
        for row in OPTIONS {
            let text = if row.is_of_few() { &of_few } else { &text };
            assert!(text.contains(row.usage) && text.contains(row.meaning), "{}", row.usage);
        }
    }

    #[test]
    fn the_help_of_each_command_is_one_screen() {
        for row in COMMANDS {
            assert!(plain(row.name()).lines().count() <= 24, "{}", row.name());
        }
        let text = plain("join");
        for written in [
            "Usage: nodepulse join SERVER... [OPTION]...",
            "--token TOKEN",
            "--ca-hash sha256:HASH,...",
            "--print-join-command",
        ] {
            assert!(text.contains(written), "{text}");
        }
    }

    #[test]
    fn no_line_of_help_is_wider_than_a_terminal() {
        for topic in topics() {
            for line in plain(topic).lines() {
                assert!(line.chars().count() <= WIDTH, "{topic:?}: {line}");
                assert_eq!(line, line.trim_end(), "{topic:?}");
            }
        }
    }

    #[test]
    fn every_setting_is_explained_by_key_and_by_flag() {
        let text = plain("settings");
        for setting in SETTINGS {
            assert!(text.contains(setting.name) && text.contains(&setting.dashed_flag()), "{}", setting.name);
        }
    }

    #[test]
    fn a_flag_shows_the_form_of_its_value() {
        let text = plain("settings");
        for form in ["--node-ip ADDRESS", "--register-with-taints KEY=VALUE:EFFECT,...", "--podless[=true|false]"] {
            assert!(text.contains(form), "{form}");
        }
    }

    #[test]
    fn every_exit_code_is_explained() {
        let text = plain("exit-codes");
        for code in ["  0 ", "  64 ", "  70 ", "  77 ", "  78 "] {
            assert!(text.contains(code), "{code}");
        }
    }

    #[test]
    fn a_command_explains_only_what_it_takes() {
        let run = plain("run");
        assert!(run.contains("--config FILE") && !run.contains("--root DIR") && !run.contains("--output"));
        let render = plain("render");
        assert!(render.contains("--root DIR") && render.contains("-o, --output FORMAT"));
        assert!(version().starts_with("nodepulse 0."));
        assert_eq!(help("me"), None);
    }
}
