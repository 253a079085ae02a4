//! Turns the tables of commands, options and settings into completions for a shell.

use super::args::{Shell, TOPICS};
use super::commands::{COMMANDS, Format, OPTIONS};
use crate::config::setting::Kind;
use crate::config::table::SETTINGS;

/// A script for the shell's own folder of completions.
pub fn completions(shell: Shell) -> String {
    match shell {
        Shell::Bash => bash(),
        Shell::Zsh => zsh(),
        Shell::Fish => fish(),
    }
}

/// One option or setting as shells see it.
struct Flag {
    /// With dashes.
    names: Vec<String>,
    meaning: String,
    value: Value,
}

/// What can stand behind a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    /// `=true` or `=false`, or nothing.
    Truth,
    File,
    Directory,
    Format,
    /// Something that no shell can guess.
    Free,
}

fn flags() -> Vec<Flag> {
    let options = OPTIONS.iter().map(|row| Flag {
        names: row.names.iter().map(|name| (*name).to_owned()).collect(),
        meaning: row.meaning.to_owned(),
        value: match row.placeholder {
            "" => Value::None,
            "FILE" => Value::File,
            "DIR" => Value::Directory,
            _ => Value::Format,
        },
    });
    let settings = SETTINGS.iter().map(|setting| Flag {
        names: vec![setting.dashed_flag()],
        meaning: setting.meaning.to_owned(),
        value: match setting.kind {
            Kind::Boolean(_) => Value::Truth,
            Kind::File(_) => Value::File,
            Kind::Directory(_) => Value::Directory,
            _ => Value::Free,
        },
    });
    options.chain(settings).collect()
}

/// The names of commands that lists show, with their meaning.
fn commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().filter(|row| !row.hidden).map(|row| (row.name, row.meaning))
}

fn topics() -> String {
    let topics = TOPICS.iter().map(|(name, _)| *name).filter(|name| *name != "settings-table");
    commands().map(|(name, _)| name).chain(topics).collect::<Vec<_>>().join(" ")
}

fn formats() -> String {
    Format::ALL.map(Format::name).join(" ")
}

fn shells() -> String {
    Shell::ALL.map(|(name, _)| name).join(" ")
}

fn names_with(flags: &[Flag], value: Value, separator: &str) -> String {
    let names = flags.iter().filter(|flag| flag.value == value).flat_map(|flag| &flag.names);
    names.cloned().collect::<Vec<_>>().join(separator)
}

fn bash() -> String {
    let flags = flags();
    let all = flags.iter().flat_map(|flag| flag.names.clone()).collect::<Vec<_>>().join(" ");
    let names: Vec<&str> = commands().map(|(name, _)| name).collect();
    format!(
        r#"# bash completion for nodepulse
_nodepulse() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    COMPREPLY=()
    case $previous in
        {files}) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")); return ;;
        {directories}) compopt -o filenames; COMPREPLY=($(compgen -d -- "$current")); return ;;
        {formats_of}) COMPREPLY=($(compgen -W "{formats}" -- "$current")); return ;;
        help) COMPREPLY=($(compgen -W "{topics}" -- "$current")); return ;;
        completions) COMPREPLY=($(compgen -W "{shells}" -- "$current")); return ;;
        {free}) return ;;
    esac
    case $current in
        -*) COMPREPLY=($(compgen -W "{all}" -- "$current")) ;;
        *) COMPREPLY=($(compgen -W "{names}" -- "$current")) ;;
    esac
}}
complete -F _nodepulse nodepulse
"#,
        files = names_with(&flags, Value::File, "|"),
        directories = names_with(&flags, Value::Directory, "|"),
        formats_of = names_with(&flags, Value::Format, "|"),
        formats = formats(),
        topics = topics(),
        shells = shells(),
        free = names_with(&flags, Value::Free, "|"),
        names = names.join(" "),
    )
}

fn zsh() -> String {
    let mut specs = String::new();
    for flag in flags() {
        let meaning = quoted(&flag.meaning.replace('[', "\\[").replace(']', "\\]").replace(':', "\\:"));
        for name in &flag.names {
            let long = name.starts_with("--");
            let action = match flag.value {
                Value::None => String::new(),
                Value::Truth => "=-::truth value:(true false)".to_owned(),
                value => {
                    let after = if long { "=" } else { "+" };
                    let what = match value {
                        Value::File => "file:_files".to_owned(),
                        Value::Directory => "directory:_files -/".to_owned(),
                        Value::Format => format!("format:({})", formats()),
                        Value::None | Value::Truth | Value::Free => "value:".to_owned(),
                    };
                    format!("{after}:{what}")
                }
            };
            let (mark, what) = action.split_once(':').map_or((action.as_str(), ""), |(mark, what)| (mark, what));
            let what = if what.is_empty() { String::new() } else { format!(":{what}") };
            specs += &format!("        '{name}{mark}[{meaning}]{what}' \\\n");
        }
    }
    let mut described = String::new();
    for (name, meaning) in commands() {
        described += &format!("        '{name}:{}'\n", quoted(meaning));
    }
    format!(
        r#"#compdef nodepulse
_nodepulse_commands() {{
    local -a commands=(
{described}    )
    _describe command commands
}}
_nodepulse_argument() {{
    case $words[2] in
        help) compadd {topics} ;;
        completions) compadd {shells} ;;
    esac
}}
_nodepulse() {{
    _arguments \
{specs}        '1:command:_nodepulse_commands' \
        '2:argument:_nodepulse_argument'
}}
_nodepulse "$@"
"#,
        topics = topics(),
        shells = shells(),
    )
}

fn fish() -> String {
    let mut script = "# fish completion for nodepulse\ncomplete -c nodepulse -f\n".to_owned();
    for (name, meaning) in commands() {
        script += &format!("complete -c nodepulse -n __fish_use_subcommand -a {name} -d '{}'\n", fish_quoted(meaning));
    }
    script += &format!("complete -c nodepulse -n '__fish_seen_subcommand_from help' -a '{}'\n", topics());
    script += &format!("complete -c nodepulse -n '__fish_seen_subcommand_from completions' -a '{}'\n", shells());
    for flag in flags() {
        let names: Vec<String> = flag.names.iter().map(|name| fish_option(name)).collect();
        let value = match flag.value {
            Value::None | Value::Truth => String::new(),
            Value::File => " -r -F".to_owned(),
            Value::Directory => " -x -a '(__fish_complete_directories)'".to_owned(),
            Value::Format => format!(" -x -a '{}'", formats()),
            Value::Free => " -x".to_owned(),
        };
        script += &format!("complete -c nodepulse {}{value} -d '{}'\n", names.join(" "), fish_quoted(&flag.meaning));
    }
    script
}

fn fish_option(name: &str) -> String {
    match name.strip_prefix("--") {
        Some(long) => format!("-l {long}"),
        None => format!("-s {}", name.trim_start_matches('-')),
    }
}

/// Inside single quotes of a POSIX shell.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''")
}

/// Inside single quotes of fish.
fn fish_quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn every_flag_and_command_is_completed_in_every_shell() {
        for (shell, script) in Shell::ALL.map(|(name, shell)| (name, completions(shell))) {
            for name in flags().into_iter().flat_map(|flag| flag.names) {
                let found = match shell {
                    "fish" => script.contains(&format!(" {} ", fish_option(&name))),
                    "zsh" => ["[", "=[", "+[", "=-["].iter().any(|end| script.contains(&format!("'{name}{end}"))),
                    _ => script.split([' ', '|', '"']).any(|word| word == name),
                };
                assert!(found, "{shell}: {name}");
            }
            for (name, _) in commands() {
                assert!(script.contains(name), "{shell}: {name}");
            }
        }
    }

    /// Runs bash on a script and returns what it printed.
    fn bash(arguments: &[&str], script: &str) -> String {
        let mut child = Command::new("bash")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tests need bash");
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{script}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_script_for_bash_is_bash() {
        bash(&["-n"], &completions(Shell::Bash));
    }

    #[test]
    fn bash_completes_commands_flags_and_values() {
        let completed = |words: &str| {
            let script = completions(Shell::Bash);
            let ask = format!(
                "{script}\ncompopt() {{ :; }}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1))\n\
                 _nodepulse; echo \"${{COMPREPLY[*]}}\"\n"
            );
            bash(&["--norc"], &ask).trim_end().to_owned()
        };
        assert_eq!(completed("nodepulse re"), "render");
        assert_eq!(
            completed("nodepulse run --node-l"),
            "--node-lease-duration-seconds --node-labels".split(' ').rev().collect::<Vec<_>>().join(" ")
        );
        assert_eq!(completed("nodepulse probe -o j"), "json");
        assert_eq!(completed("nodepulse help exit"), "exit-codes");
        assert_eq!(completed("nodepulse completions z"), "zsh");
        assert_eq!(completed("nodepulse --zone ''"), "");
        assert_eq!(completed("nodepulse --root /et"), "/etc");
    }

    /// Neither shell may be there; what breaks scripts is a quote that stays open.
    #[test]
    fn quotes_are_closed_on_every_line_of_the_other_shells() {
        for shell in [Shell::Zsh, Shell::Fish] {
            for line in completions(shell).lines() {
                assert_eq!(line.replace("'\\''", "").replace("\\'", "").matches('\'').count() % 2, 0, "{line}");
            }
        }
        assert_eq!(
            (quoted("the kubelet's"), fish_quoted("it's")),
            ("the kubelet'\\''s".to_owned(), "it\\'s".to_owned())
        );
    }
}
