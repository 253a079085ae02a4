//! Turns the completions that the program prints into what zsh and fish make of them (bash is beside the code). A shell
//! that this machine has not is left out, and named at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};

/// What is typed after the program's name, and what one Tab makes of it.
const TYPED: [(&str, &str); 6] = [
    ("rend", "render "),
    ("run --node-la", "run --node-labels="),
    ("completions f", "completions fish "),
    ("probe -o j", "probe -o json "),
    ("help exit", "help exit-codes "),
    ("--root /et", "--root /etc/"),
];

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

/// Folder of the scripts, what is typed, and what it should become.
type Judge = fn(&Path, &str, &str) -> Result<(), String>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = match scripts() {
        Ok(folder) => folder,
        Err(why) => {
            eprintln!("shells: {why}");
            return ExitCode::FAILURE;
        }
    };
    let shells: [(&str, Judge); 2] = [("zsh", zsh), ("fish", fish)];
    let mut missing = Vec::new();
    let mut trials = Vec::new();
    for (shell, judge) in shells {
        let is_there = Command::new(shell).args(["-c", "true"]).status().is_ok_and(|status| status.success());
        if !is_there {
            missing.push(shell);
        }
        for (typed, wanted) in TYPED {
            let folder = folder.clone();
            let trial = Trial::test(format!("{shell}: {typed}"), move || Ok(judge(&folder, typed, wanted)?));
            trials.push(trial.with_ignored_flag(!is_there));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !missing.is_empty() {
        let why = format!("(Debian: apt-get install {})", missing.join(" "));
        println!("{} left out: there is no {} here {why}", conclusion.num_ignored, missing.join(" and no "));
    }
    let _ = fs::remove_dir_all(&folder);
    conclusion.exit_code()
}

/// A folder with what the program prints, under the names that the shells look for.
fn scripts() -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join(format!("nodepulse-shells-{}", std::process::id()));
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    for (shell, file) in [("zsh", "_nodepulse"), ("fish", "nodepulse.fish")] {
        let printed = Command::new(env!("CARGO_BIN_EXE_nodepulse")).args(["completions", shell]).output();
        fs::write(folder.join(file), printed.map_err(failed)?.stdout).map_err(failed)?;
    }
    Ok(folder)
}

fn zsh(folder: &Path, typed: &str, wanted: &str) -> Result<(), String> {
    let line = ask("zsh", &["-f", "-c", ZSH, "zsh"], folder, typed)?;
    if line == format!("nodepulse {wanted}") { Ok(()) } else { Err(format!("{typed:?} became {line:?}")) }
}

fn fish(folder: &Path, typed: &str, wanted: &str) -> Result<(), String> {
    let offered = ask("fish", &["--private", "-c", FISH], folder, typed)?;
    let last = |line: &str| line.trim_end_matches([' ', '=']).rsplit(' ').next().unwrap_or_default().to_owned();
    let words: Vec<String> = offered.lines().filter_map(|line| line.split('\t').next()).map(last).collect();
    if words.contains(&last(wanted)) { Ok(()) } else { Err(format!("for {typed:?} it offers {words:?}")) }
}

fn ask(shell: &str, arguments: &[&str], folder: &Path, typed: &str) -> Result<String, String> {
    let mut command = Command::new("timeout");
    // A terminal that waits for ever is a failure too.
    command.arg("60").arg(shell).args(arguments).arg(folder).arg(typed).env("TERM", "dumb").env("HOME", folder);
    let output = command.output().map_err(|error| format!("cannot run {shell}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{shell} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
