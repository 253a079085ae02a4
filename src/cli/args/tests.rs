//! What command lines mean, and what each wrong one is told.

use std::os::unix::ffi::OsStringExt;

use super::*;

fn parsed(line: &str) -> Result<Invocation, String> {
    parse(line.split_whitespace().map(OsString::from))
}

fn sources(config: Option<&str>, flags: &[(&str, &str)]) -> Sources {
    let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sources { config: config.map(str::to_owned), flags }
}

fn invocation(command: Command, format: Format, sources: Sources) -> Invocation {
    Invocation {
        command,
        topic: String::new(),
        root: "/".to_owned(),
        file: None,
        picture: None,
        from_events: None,
        until: None,
        reason: None,
        watch: false,
        with_sources: false,
        format,
        sources,
    }
}

fn run(sources: Sources) -> Result<Invocation, String> {
    Ok(invocation(Command::Run, Format::Text, sources))
}

#[test]
fn without_a_command_it_runs() {
    assert_eq!(parsed(""), run(Sources::default()));
    assert_eq!(parsed("run"), run(Sources::default()));
    assert_eq!(parsed("--config a.yaml"), run(sources(Some("a.yaml"), &[])));
    assert_eq!(parsed("--config a --config b"), run(sources(Some("b"), &[])));
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
    assert_eq!(parsed(line), run(sources(None, &flags)));
    assert_eq!(parsed("--zone= run --config=c"), run(sources(Some("c"), &[("zone", "")])));
}

#[test]
fn every_setting_of_the_table_is_a_flag() {
    for setting in SETTINGS {
        let given = parse([OsString::from(format!("{}=x", setting.dashed_flag()))].into_iter());
        assert_eq!(given, run(sources(None, &[(setting.flag, "x")])));
    }
}

#[test]
fn facts_and_objects_have_formats_and_roots() {
    let plain = |command, format| invocation(command, format, Sources::default());
    assert_eq!(parsed("probe"), Ok(plain(Command::Probe, Format::Text)));
    let root = "tests/boards/pi4".to_owned();
    let of_pi4 = Invocation { root, ..plain(Command::Probe, Format::Json) };
    assert_eq!(parsed("probe -o json --root tests/boards/pi4"), Ok(of_pi4));
    let zone = || sources(None, &[("zone", "a")]);
    assert_eq!(parsed("render --zone a"), Ok(invocation(Command::Render, Format::Text, zone())));
    assert_eq!(parsed("--zone a check"), Ok(invocation(Command::Check, Format::Text, zone())));
    assert_eq!(parsed("journal"), Ok(plain(Command::Journal, Format::Text)));
    let drawn = Invocation { picture: Some(Picture::Text), ..plain(Command::Journal, Format::Text) };
    assert_eq!(parsed("journal --plot"), Ok(drawn.clone()));
    let svg = Invocation { picture: Some(Picture::Svg), ..drawn.clone() };
    assert_eq!((parsed("journal -o svg"), parsed("journal --plot -o svg")), (Ok(svg.clone()), Ok(svg)));
    let of_events = Invocation { from_events: Some("-".to_owned()), ..drawn };
    assert_eq!(parsed("journal --from-events -"), Ok(of_events));
    assert_eq!(
        parsed("journal --plot -o json"),
        Err("a picture is text or svg; without --plot -o json has all of it".to_owned())
    );
    assert_eq!(parsed("cost -o svg"), Err("unknown format \"svg\": use text or json".to_owned()));
    let of_file = Invocation { file: Some("j".to_owned()), ..plain(Command::Journal, Format::Json) };
    assert_eq!(parsed("journal --file j -o json"), Ok(of_file));
}

#[test]
fn a_board_joins_servers_with_a_token() {
    let line = "join https://a:6443 b:6443 --token T --ca-hash sha256:1 --ca-hash sha256:2 --token-file -";
    let flags = [
        ("token", "T"),
        ("ca-hash", "sha256:1"),
        ("ca-hash", "sha256:2"),
        ("token-file", "-"),
        ("servers", "https://a:6443"),
        ("servers", "b:6443"),
    ];
    assert_eq!(parsed(line), Ok(invocation(Command::Join, Format::Text, sources(None, &flags))));
    assert_eq!(parsed("join"), Ok(invocation(Command::Join, Format::Text, Sources::default())));
    for (word, command) in [("identity", Command::Identity), ("renew", Command::Renew), ("leave", Command::Leave)] {
        let line = format!("{word} --state-directory /s");
        let of = sources(None, &[("state-directory", "/s")]);
        assert_eq!(parsed(&line), Ok(invocation(command, Format::Text, of)));
    }
    for json in ["identity -o json", "identity --json", "--json identity"] {
        assert_eq!(parsed(json), Ok(invocation(Command::Identity, Format::Json, Sources::default())));
    }
}

/// As kubeadm v1.36.3 prints it, and with the flags that this stands for.
#[test]
fn the_line_that_kubeadm_prints_is_understood() {
    let hash = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let token = "abcdef.0123456789abcdef";
    let joined = [("token", token), ("ca-hash", hash), ("servers", "10.0.0.1:6443")];
    let line = format!("join 10.0.0.1:6443 --token {token} --discovery-token-ca-cert-hash {hash} ");
    assert_eq!(parsed(&line), Ok(invocation(Command::Join, Format::Text, sources(None, &joined))));
    let line = format!("join 10.0.0.1:6443 --discovery-token={token} --tls-bootstrap-token {token} --node-name n1");
    let joined = [("token", token), ("token", token), ("hostname-override", "n1"), ("servers", "10.0.0.1:6443")];
    assert_eq!(parsed(&line), Ok(invocation(Command::Join, Format::Text, sources(None, &joined))));
    let skipped = parsed("join a:1 --discovery-token-unsafe-skip-ca-verification").unwrap().sources;
    assert_eq!(skipped, sources(None, &[("unsafe-skip-ca-verification", "true"), ("servers", "a:1")]));
    let two = parsed(&format!("join a:1 --discovery-token {token} --tls-bootstrap-token zzzzzz.0123456789abcdef"));
    assert!(two.is_err_and(|wrong| wrong.starts_with("two different tokens") && !wrong.contains("0123")));
}

#[test]
fn no_token_is_in_the_debug_text_of_a_command_line() {
    let found = parsed("join a:1 --token abcdef.0123456789abcdef --discovery-token abcdef.0123456789abcdef").unwrap();
    assert!(!format!("{found:?} {found:#?}").contains("0123"), "{found:?}");
}

#[test]
fn help_is_where_people_look_for_it() {
    for (line, command, topic) in [
        ("--help", Command::Help, ""),
        ("help", Command::Help, ""),
        ("help settings", Command::Help, "settings"),
        ("help exit-codes", Command::Help, "exit-codes"),
        ("help probe", Command::Help, "probe"),
        ("probe -h", Command::Help, "probe"),
        ("probe -o xml --help", Command::Help, "probe"),
        ("version", Command::Version, ""),
        ("-V", Command::Version, ""),
        ("run --version", Command::Version, ""),
    ] {
        let found = parsed(line).map(|invocation| (invocation.command, invocation.topic));
        assert_eq!(found, Ok((command, topic.to_owned())), "{line}");
    }
}

#[test]
fn a_wrong_command_line_is_told_in_one_line_what_to_write() {
    for (line, text) in [
        ("prob", "unknown command \"prob\": did you mean probe?"),
        ("start", "unknown command \"start\": see nodepulse help"),
        ("--podless false", "\"false\" is no command: write the value of a setting with `=`, as in --podless=false"),
        ("--node-lables a=b", "unknown option \"--node-lables\": did you mean --node-labels?"),
        ("--confg x", "unknown option \"--confg\": did you mean --config?"),
        ("--image-service-endpoint=x", "unknown option \"--image-service-endpoint\": see nodepulse help settings"),
        ("run --root /", "run does not take --root: see nodepulse help run"),
        ("run -o json", "run does not take --output: see nodepulse help run"),
        ("check --output=json", "check does not take --output: see nodepulse help check"),
        ("version --config x", "version does not take --config: see nodepulse help version"),
        ("help -v 4", "help does not take -v: see nodepulse help help"),
        ("run --config", "--config needs a value: write --config VALUE"),
        ("-v", "-v needs a value: write -v VALUE"),
        ("--help=me", "--help takes no value"),
        ("run fast", "\"fast\" is one argument too many: see nodepulse help"),
        ("help run now", "\"now\" is one argument too many: see nodepulse help"),
        ("probe --file j", "probe does not take --file: see nodepulse help probe"),
        ("check --json", "check does not take --output: see nodepulse help check"),
        ("renew now", "\"now\" is one argument too many: see nodepulse help"),
        ("join a:1 --tokn x", "unknown option \"--tokn\": did you mean --token?"),
        ("probe -o xml", "unknown format \"xml\": use text or json"),
    ] {
        assert_eq!(parsed(line), Err(text.to_owned()), "{line}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let bytes = || OsString::from_vec(vec![b'a', 0xff]);
    let refused = |whose: &str| Err(format!("the value of {whose} is not UTF-8 text"));
    assert_eq!(parse(["--zone".into(), bytes()].into_iter()), refused("--zone"));
    assert_eq!(parse([bytes()].into_iter()), refused("an argument"));
}
