//! Turns what is typed into what bash, zsh and fish make of it with `targets/completions`. A shell that this machine has not
//! is left out, and said so.

#[path = "support/left_out.rs"]
mod left_out;

use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};

/// What is typed after the program's name, and what one Tab makes of it.
const TYPED: [(&str, &str); 11] = [
    ("rend", "render "),
    ("joi", "join "),
    ("ident", "identity "),
    ("join --ca-ha", "join --ca-hash="),
    ("run --node-la", "run --node-labels="),
    ("check --config /et", "check --config /etc/"),
    ("probe -o j", "probe -o json "),
    ("help exit", "help exit-codes "),
    ("help jour", "help journal "),
    ("--state-directory /et", "--state-directory /etc/"),
    ("--root /et", "--root /etc/"),
];

/// What bash puts into COMPREPLY, one word a line.
const BASH: &str = r#"compopt() { :; }
source $1/nodepulse.bash
COMP_WORDS=(nodepulse $2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_nodepulse
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// A terminal with zsh in it: Control-X shows the line as it is then.
const ZSH: &str = r#"zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PROMPT=; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w z "show() { print -r -- \"<\$BUFFER>\" }; zle -N show; bindkey '^X' show; print rea''dy"
zpty -r z out '*ready*'
zpty -w -n z "nodepulse $2"$'\t\x18'
zpty -r z out '*<*>*'
print -rn -- "${${out#*<}%%>*}"
"#;

/// fish lists what could stand there, each with its meaning behind a tab.
const FISH: &str = r#"source $argv[1]/nodepulse.fish; complete -C "nodepulse $argv[2]""#;

/// What is typed, and what it should become.
type Judge = fn(&str, &str) -> Result<(), String>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let shells: [(&str, Judge); 3] = [("bash", bash), ("zsh", zsh), ("fish", fish)];
    let mut trials = Vec::new();
    for (shell, judge) in shells {
        let is_there = Command::new(shell).args(["-c", "true"]).status().is_ok_and(|status| status.success());
        if !is_there && !arguments.list {
            left_out::leave_out(&format!("completions for {shell}"), &format!("apt-get install {shell} (Debian)"));
        }
        for (typed, wanted) in TYPED {
            let trial = Trial::test(format!("{shell}: {typed}"), move || Ok(judge(typed, wanted)?));
            trials.push(trial.with_ignored_flag(!is_there));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    conclusion.exit_code()
}

/// The last word of a line, without what a shell puts behind it.
fn last(line: &str) -> &str {
    line.trim_end_matches([' ', '=', '/']).rsplit(' ').next().unwrap_or_default()
}

fn bash(typed: &str, wanted: &str) -> Result<(), String> {
    let offered = ask("bash", &["--norc", "-c", BASH, "bash"], typed)?;
    let offered: Vec<&str> = offered.lines().collect();
    if offered.contains(&last(wanted)) { Ok(()) } else { Err(format!("for {typed:?} it offers {offered:?}")) }
}

fn zsh(typed: &str, wanted: &str) -> Result<(), String> {
    let line = ask("zsh", &["-f", "-c", ZSH, "zsh"], typed)?;
    if line == format!("nodepulse {wanted}") { Ok(()) } else { Err(format!("{typed:?} became {line:?}")) }
}

fn fish(typed: &str, wanted: &str) -> Result<(), String> {
    let offered = ask("fish", &["--private", "-c", FISH], typed)?;
    let words: Vec<&str> = offered.lines().filter_map(|line| line.split('\t').next()).map(last).collect();
    if words.contains(&last(wanted)) { Ok(()) } else { Err(format!("for {typed:?} it offers {words:?}")) }
}

fn ask(shell: &str, arguments: &[&str], typed: &str) -> Result<String, String> {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/targets/completions");
    let beside = Path::new(env!("CARGO_BIN_EXE_nodepulse")).parent().unwrap_or(Path::new("/")).display();
    let path = format!("{beside}:{}", std::env::var("PATH").unwrap_or_default());
    let home = env!("CARGO_TARGET_TMPDIR");
    let mut command = Command::new("timeout");
    // A terminal that waits for ever is a failure too.
    command.arg("60").arg(shell).args(arguments).arg(scripts).arg(typed);
    command.env("TERM", "dumb").env("HOME", home).env("PATH", path);
    let output = command.output().map_err(|error| format!("cannot run {shell}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{shell} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
