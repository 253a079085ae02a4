//! Turns what people type to join a cluster into what they see, without a cluster.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::{Folder, err, nodepulse, out};

const TOKEN: &str = "abcdef.0123456789abcdef";
const HASH: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// With this on standard input.
fn typed(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nodepulse"));
    let command = command.args(args).env_remove("NOTIFY_SOCKET").env_remove("CREDENTIALS_DIRECTORY");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // It may end without having read any.
    let _ = child.stdin.take().expect("stdin").write_all(input.as_bytes());
    child.wait_with_output().expect("an end")
}

/// Neither its secret nor the beginning of that is in what the program says.
fn is_silent_about_the_token(output: &Output) {
    let said = out(output) + &err(output);
    assert!(!said.contains("0123456789abcdef\n") && !said.contains("abcdef.0123"), "{said}");
}

fn settings(folder: &Folder, more: &str) -> String {
    let head = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nsandbox: false\n";
    folder.write("config.yaml", &format!("{head}{more}"))
}

#[test]
fn a_kubeadm_token_alone_is_refused_with_what_prints_the_hash() {
    let folder = Folder::new();
    let config = settings(&folder, &format!("servers: https://127.0.0.1:1\ntoken: {TOKEN}\n"));
    for args in [["run", "--config", &config], ["check", "--config", &config]] {
        let output = nodepulse(&args);
        assert_eq!(output.status.code(), Some(78));
        let said = err(&output);
        assert!(said.contains("config.yaml:5: token: nothing says which server may have it: add caHash"), "{said}");
        assert!(said.contains("openssl pkey -pubin -outform der | sha256sum"), "{said}");
        is_silent_about_the_token(&output);
    }
}

#[test]
fn check_says_what_a_board_that_has_not_joined_would_join_with() {
    let folder = Folder::new();
    let [state, token] = [folder.path("state"), folder.write("token", &format!("{TOKEN}\n"))];
    let config =
        settings(&folder, &format!("servers: [https://127.0.0.1:1]\ncaHash: {HASH}\nstateDirectory: {state}\n"));
    let check = ["check", "--config", &config, "--hostname-override", "Edge-{hostname}-7"];
    let output = typed(&[&check[..], &["--token-file", "-"]].concat(), &format!("{TOKEN}\n"));
    let said = out(&output);
    assert!(said.contains("join         by 127.0.0.1:1\n"), "{said}{}", err(&output));
    assert!(said.contains(", from hostnameOverride edge-{hostname}-7\n"), "{said}");
    is_silent_about_the_token(&output);
    let output = nodepulse(&[&check[..], &["--token-file", &token]].concat());
    assert!(
        out(&output).contains(&format!("{token} holds a secret that every user of this board may read")),
        "{}",
        out(&output)
    );
    let output = nodepulse(&check);
    assert!(out(&output).contains("there are servers to join, and no token"), "{}", out(&output));
    folder.write("token", "hunter2");
    let output = nodepulse(&[&check[..], &["--token-file", &token]].concat());
    assert_eq!(output.status.code(), Some(70));
    let said = out(&output);
    assert!(
        said.contains(&format!("the token in {token}: is neither a token of kubeadm")) && !said.contains("hunter2"),
        "{said}"
    );
}

#[test]
fn standard_input_without_a_token_is_a_usage_error() {
    let output = typed(&["check", "--token-file", "-"], "\n");
    assert_eq!(output.status.code(), Some(64));
    assert!(err(&output).contains("standard input has no line with a token"), "{}", err(&output));
}

#[test]
fn a_template_that_this_board_cannot_fill_is_refused() {
    let folder = Folder::new();
    let output = nodepulse(&["render", "--hostname-override", "edge-{serial}", "--root", &folder.path("")]);
    assert_eq!(output.status.code(), Some(78));
    let said = err(&output);
    assert!(said.contains("hostnameOverride edge-{serial} needs what this board does not say"), "{said}");
    let board = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/boards/rpi4");
    let output = nodepulse(&["render", "--hostname-override", "edge-{serial}", "--root", board]);
    assert!(out(&output).contains(r#""name": "edge-10000000d15c0ffe""#), "{}{}", out(&output), err(&output));
}
