//! Turns the tables of commands, options and settings into help for a terminal. What a line looks like is also what the
//! completions of the shells go by (`targets/completions`).

use super::commands::{COMMANDS, Command, OPTIONS, exit};
use super::palette::Palette;
use crate::config::settings::{SETTINGS, Whose};

/// What help is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    Main,
    Command(Command),
    Settings,
    ExitCodes,
}

/// Columns of the narrowest terminal that help is made for.
pub const WIDTH: usize = 80;
/// The settings that the first screen names: what most boards need.
const FIRST: [&str; 2] = ["kubeconfig", "nodeLabels"];

/// The text of a topic, with a line feed at its end.
pub fn help(topic: Topic, palette: &Palette) -> String {
    match topic {
        Topic::Main => main(palette),
        Topic::Command(command) => command_help(command, palette),
        Topic::Settings => settings(palette),
        Topic::ExitCodes => exit_codes(palette),
    }
}

/// `nodepulse 0.1.0 (linux/aarch64)`.
pub fn version() -> String {
    format!("nodepulse {} ({}/{})\n", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH)
}

fn heading(text: &str, palette: &Palette) -> String {
    format!("{}{text}{}\n", palette.bold, palette.reset)
}

/// One screen of 80 columns and 24 lines.
fn main(palette: &Palette) -> String {
    let mut text = "Makes this Linux board a live Kubernetes Node, and keeps it one. Runs no pods.\n\n".to_owned();
    text += &heading("Usage: nodepulse [COMMAND] [OPTION]... [SETTING]...", palette);
    for row in &COMMANDS {
        text += &entry(&row.form(), row.meaning, 14);
    }
    text += "\n";
    text += &heading("Options", palette);
    for row in &OPTIONS {
        text += &entry(&row.form(), row.meaning, 21);
    }
    text += "\n";
    text += &heading("Settings (keys of the file, or flags, which win)", palette);
    for setting in SETTINGS.iter().filter(|setting| FIRST.contains(&setting.name)) {
        text += &format!("  {}\n", setting.usage());
    }
    text + &format!("All {}: nodepulse help settings\n", SETTINGS.len())
}

fn command_help(command: Command, palette: &Palette) -> String {
    let row = command.row();
    let more = if row.has_settings() { " [OPTION]... [SETTING]..." } else { "" };
    let usage = format!("Usage: nodepulse {}{more}", row.form());
    let mut text = format!("{}\n\n{}", row.meaning, heading(&usage, palette));
    for option in OPTIONS.iter().filter(|option| row.has(option.long)) {
        text += &entry(&option.form(), option.meaning, 21);
    }
    if let Some(first) = row.formats.first() {
        let names: Vec<&str> = row.formats.iter().map(|format| format.name()).collect();
        text += &format!("\nFormats of -o: {}; {} if it is not given.\n", names.join(", "), first.name());
    }
    if row.has_settings() {
        text += "\nSettings: nodepulse help settings\n";
    }
    if command == Command::Check || command == Command::Run {
        text += "Exit codes: nodepulse help exit-codes\n";
    }
    text
}

fn settings(palette: &Palette) -> String {
    let mut text = String::new();
    for line in wrap(
        "Every setting is a key of the settings file (kind NodePulseConfiguration) and a flag; flags win. \
         A file of kind KubeletConfiguration is read as well, as far as it applies. Names, defaults and meaning are \
         the kubelet's, unless marked with *.",
        WIDTH,
    ) {
        text += &format!("{line}\n");
    }
    for setting in SETTINGS {
        let mark = if setting.whose == Whose::Ours { " *" } else { "" };
        text += &format!("\n{}{}{}{mark}\n  {}\n", palette.bold, setting.name, palette.reset, setting.usage());
        let default =
            if setting.default.is_empty() { String::new() } else { format!(" (default: {})", setting.default) };
        for line in wrap(&format!("{}{default}", setting.meaning), WIDTH - 4) {
            text += &format!("    {line}\n");
        }
    }
    text
}

fn exit_codes(palette: &Palette) -> String {
    let mut text = heading("Exit codes", palette);
    for (code, meaning) in exit::ALL {
        text += &entry(&code.to_string(), meaning, 4);
    }
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

    const PLAIN: Palette = Palette::for_terminal(false);

    fn topics() -> Vec<Topic> {
        let commands = COMMANDS.iter().map(|row| Topic::Command(row.command));
        commands.chain([Topic::Main, Topic::Settings, Topic::ExitCodes]).collect()
    }

    #[test]
    fn the_first_screen_is_one_screen() {
        let text = help(Topic::Main, &PLAIN);
        assert!(text.lines().count() <= 24, "{} lines:\n{text}", text.lines().count());
        for row in &COMMANDS {
            assert!(text.contains(row.meaning), "{}", row.name);
        }
        for row in &OPTIONS {
            assert!(text.contains(row.long) && text.contains(row.short), "{}", row.long);
        }
    }

    #[test]
    fn no_line_of_help_is_wider_than_a_terminal() {
        for topic in topics() {
            for line in help(topic, &PLAIN).lines() {
                assert!(line.chars().count() <= WIDTH, "{topic:?}: {line}");
                assert_eq!(line, line.trim_end(), "{topic:?}");
            }
        }
    }

    #[test]
    fn every_setting_is_explained_by_key_and_by_flag() {
        let text = help(Topic::Settings, &PLAIN);
        for setting in SETTINGS {
            assert!(text.contains(setting.name) && text.contains(&setting.dashed_flag()), "{}", setting.name);
        }
    }

    #[test]
    fn a_flag_shows_the_form_of_its_value() {
        let text = help(Topic::Settings, &PLAIN);
        for form in ["--node-ip ADDRESS", "--register-with-taints KEY=VALUE:EFFECT,...", "--podless[=true|false]"] {
            assert!(text.contains(form), "{form}");
        }
    }

    #[test]
    fn every_exit_code_is_explained() {
        let text = help(Topic::ExitCodes, &PLAIN);
        for code in ["  0 ", "  64 ", "  70 ", "  77 ", "  78 "] {
            assert!(text.contains(code), "{code}");
        }
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let bright = Palette::for_terminal(true);
        for topic in topics() {
            let stripped = help(topic, &bright).replace(bright.bold, "").replace(bright.reset, "");
            assert_eq!(stripped, help(topic, &PLAIN));
        }
    }

    #[test]
    fn a_command_explains_only_what_it_takes() {
        let run = help(Topic::Command(Command::Run), &PLAIN);
        assert!(run.contains("--config FILE") && !run.contains("--root DIR") && !run.contains("--output"));
        let render = help(Topic::Command(Command::Render), &PLAIN);
        assert!(render.contains("--root DIR") && render.contains("Formats of -o: yaml, json; yaml if"));
        assert!(version().starts_with("nodepulse 0."));
    }
}
