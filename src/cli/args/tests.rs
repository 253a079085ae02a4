//! What command lines mean, and what each wrong one is told.

use std::os::unix::ffi::OsStringExt;

use super::*;

fn parsed(line: &str) -> Result<Invocation, UsageError> {
    parse(line.split_whitespace().map(OsString::from))
}

fn sources(config: Option<&str>, flags: &[(&str, &str)]) -> Sources {
    let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sources { config: config.map(str::to_owned), flags }
}

#[test]
fn without_a_command_it_runs() {
    assert_eq!(parsed(""), Ok(Invocation::Run(Sources::default())));
    assert_eq!(parsed("run"), Ok(Invocation::Run(Sources::default())));
    assert_eq!(parsed("--config a.yaml"), Ok(Invocation::Run(sources(Some("a.yaml"), &[]))));
}

#[test]
fn flags_of_the_kubelet_are_taken_as_the_kubelet_takes_them() {
    let line = "--kubeconfig=/k --node-labels a=b,c=d --register-node=false --podless --v=4 -v 5 -v6 --node-ip ::";
    let flags = [
        ("kubeconfig", "/k"),
        ("node-labels", "a=b,c=d"),
        ("register-node", "false"),
        ("podless", "true"),
        ("v", "4"),
        ("v", "5"),
        ("v", "6"),
        ("node-ip", "::"),
    ];
    assert_eq!(parsed(line), Ok(Invocation::Run(sources(None, &flags))));
    assert_eq!(parsed("--zone= run --config=c"), Ok(Invocation::Run(sources(Some("c"), &[("zone", "")]))));
}

#[test]
fn every_setting_of_the_table_is_a_flag() {
    for setting in SETTINGS {
        let given = parse([OsString::from(format!("{}=x", setting.dashed_flag()))].into_iter());
        assert_eq!(given, Ok(Invocation::Run(sources(None, &[(setting.flag, "x")]))));
    }
}

#[test]
fn facts_and_objects_have_formats_and_roots() {
    let probe = |root: &str, format| Invocation::Probe { root: root.to_owned(), format, sources: Sources::default() };
    assert_eq!(parsed("probe"), Ok(probe("/", Format::Text)));
    assert_eq!(parsed("probe -o json --root tests/boards/pi4"), Ok(probe("tests/boards/pi4", Format::Json)));
    let sources = sources(None, &[("zone", "a")]);
    let render = Invocation::Render { root: "/".to_owned(), format: Format::Yaml, sources: sources.clone() };
    assert_eq!(parsed("render --zone a"), Ok(render));
    assert_eq!(parsed("--zone a check"), Ok(Invocation::Check(sources)));
    let journal = |file: Option<&str>, format| Invocation::Journal {
        file: file.map(str::to_owned),
        format,
        sources: Sources::default(),
    };
    assert_eq!(parsed("journal"), Ok(journal(None, Format::Text)));
    assert_eq!(parsed("journal --file j -o yaml"), Ok(journal(Some("j"), Format::Yaml)));
}

#[test]
fn help_is_where_people_look_for_it() {
    assert_eq!(parsed("--help"), Ok(Invocation::Help(Topic::Main)));
    assert_eq!(parsed("help"), Ok(Invocation::Help(Topic::Main)));
    assert_eq!(parsed("help settings"), Ok(Invocation::Help(Topic::Settings)));
    assert_eq!(parsed("help exit-codes"), Ok(Invocation::Help(Topic::ExitCodes)));
    assert_eq!(parsed("help probe"), Ok(Invocation::Help(Topic::Command(Command::Probe))));
    assert_eq!(parsed("probe -h"), Ok(Invocation::Help(Topic::Command(Command::Probe))));
    assert_eq!(parsed("version"), Ok(Invocation::Version));
    assert_eq!(parsed("-V"), Ok(Invocation::Version));
    assert_eq!(parsed("run --version"), Ok(Invocation::Version));
    assert_eq!(parsed("man"), Ok(Invocation::Man));
    assert_eq!(parsed("completions zsh"), Ok(Invocation::Completions(Shell::Zsh)));
}

#[test]
fn a_wrong_command_line_is_told_in_one_line_what_to_write() {
    for (line, word, text) in [
        ("prob", "unknown-command", "unknown command \"prob\": did you mean probe?"),
        ("start", "unknown-command", "unknown command \"start\": see nodepulse help"),
        (
            "--podless false",
            "unknown-command",
            "\"false\" stands alone: write a truth value with `=`, as in --podless=false",
        ),
        ("--node-lables a=b", "unknown-option", "unknown option --node-lables: did you mean --node-labels?"),
        ("--confg x", "unknown-option", "unknown option --confg: did you mean --config?"),
        (
            "--container-runtime-endpoint=x",
            "unknown-option",
            "unknown option --container-runtime-endpoint: see nodepulse help settings",
        ),
        ("run --root /", "option-not-here", "run does not take --root: see nodepulse help run"),
        ("run -o json", "option-not-here", "run does not take -o: see nodepulse help run"),
        ("check --output=json", "option-not-here", "check does not take --output: see nodepulse help check"),
        ("version --config x", "option-not-here", "version does not take --config: see nodepulse help version"),
        ("man -v 4", "option-not-here", "man does not take -v: see nodepulse help man"),
        ("run --config", "missing-value", "--config needs a value: write --config VALUE"),
        ("-v", "missing-value", "-v needs a value: write -v VALUE"),
        ("--help=me", "unexpected-value", "--help takes no value"),
        ("run fast", "extra-argument", "\"fast\" is one argument too many: see nodepulse help"),
        ("help run now", "extra-argument", "\"now\" is one argument too many: see nodepulse help"),
        ("render -o text", "unknown-format", "unknown format \"text\": use yaml, json"),
        ("probe --file j", "option-not-here", "probe does not take --file: see nodepulse help probe"),
        ("probe -o xml", "unknown-format", "unknown format \"xml\": use text, json, yaml"),
        ("help me", "unknown-topic", "no help on \"me\": name a command, settings or exit-codes"),
        ("completions tcsh", "unknown-shell", "no completions for \"tcsh\": use bash, zsh or fish"),
        ("completions", "unknown-shell", "no completions for \"\": use bash, zsh or fish"),
    ] {
        let error = parsed(line).unwrap_err();
        assert_eq!((error.word(), error.to_string().as_str()), (word, text), "{line}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let bytes = || OsString::from_vec(vec![b'a', 0xff]);
    let error = parse(["--zone".into(), bytes()].into_iter()).unwrap_err();
    assert_eq!(error, UsageError::NotText("--zone".to_owned()));
    assert_eq!(parse([bytes()].into_iter()), Err(UsageError::NotText("an argument".to_owned())));
    assert_eq!(error.word(), "not-text");
}
