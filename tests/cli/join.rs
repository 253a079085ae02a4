//! Turns what people type to join a cluster into what they see, without a cluster.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use base64::prelude::{BASE64_STANDARD, Engine};
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair, date_time_ymd};

use crate::{Folder, Running, err, nodepulse, out};

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
    assert_eq!(output.status.code(), Some(78));
    let said = out(&output) + &err(&output);
    let wrong = format!("the token in {token}: is neither a token of kubeadm");
    assert!(said.contains(&wrong) && !said.contains("hunter2"), "{said}");
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
    assert!(out(&output).contains("\"name\": \"edge-10000000d15c0ffe\""), "{}{}", out(&output), err(&output));
}

/// An identity as the agent keeps it: the certificate of a Node, and its key.
fn identity(folder: &Folder, node: &str, years: (i32, i32)) -> String {
    let (authority, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let named = |names: &[(DnType, &str)]| {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name = DistinguishedName::new();
        names.iter().for_each(|(kind, name)| params.distinguished_name.push(kind.clone(), *name));
        params
    };
    let issuer = Issuer::new(named(&[(DnType::CommonName, "the-cluster")]), authority);
    let user = format!("system:node:{node}");
    let mut params = named(&[(DnType::OrganizationName, "system:nodes"), (DnType::CommonName, &user)]);
    (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    fs::create_dir_all(folder.path("state/identity")).expect("a folder");
    let text = format!("received 2026-01-01T00:05:00Z\n{}{}", certificate.pem(), key.serialize_pem());
    folder.write("state/identity/node.pem", &text)
}

#[test]
fn identity_says_who_this_board_is_and_never_its_key() {
    let folder = Folder::new();
    let state = folder.path("state");
    let show = |more: &[&str]| nodepulse(&[&["identity", "--state-directory", &state][..], more].concat());
    assert_eq!(out(&show(&[])), "node         none: this board has no certificate\n");
    let path = identity(&folder, "edge-7", (2026, 2036));
    let output = show(&[]);
    let said = out(&output);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    for line in [
        "node         edge-7\n",
        "issuer       the-cluster\n",
        "received     2026-01-01T00:05:00Z\n",
        "ends         2036-01-01T00:00:00Z\n",
        &format!("key          {path}\n"),
    ] {
        assert!(said.contains(line), "{line:?} is not in\n{said}");
    }
    let renewed = said.lines().find_map(|line| line.strip_prefix("renewed      ")).expect("when").to_owned();
    assert!(("2029-01-01".."2030-01-02").contains(&&renewed[..10]), "{renewed}");
    let json: serde_json::Value = serde_json::from_slice(&show(&["--json"]).stdout).expect("JSON");
    assert_eq!((&json["certificate"]["node"], &json["certificate"]["renewed"]), (&"edge-7".into(), &renewed.into()));
    assert!(out(&show(&["--rotate-certificates=false"])).contains("renewed      never: rotateCertificates is false\n"));
    let key = fs::read_to_string(&path).expect("a file");
    let secret = key.lines().rev().nth(1).expect("a line of the key");
    for output in [show(&[]), show(&["--json"])] {
        assert!(!out(&output).contains(secret) && !(out(&output) + &err(&output)).contains("PRIVATE"));
    }
    identity(&folder, "edge-7", (2020, 2021));
    assert!(out(&show(&[])).ends_with("expired\n"), "{}", out(&show(&[])));
    fs::write(&path, key.replacen("CERTIFICATE", "CERTIFIED", 2)).expect("a file");
    let output = show(&[]);
    assert_eq!(output.status.code(), Some(70));
    assert!(err(&output).contains(&path) && !err(&output).contains(secret), "{}", err(&output));
}

#[test]
fn a_request_that_waits_is_named_with_the_command_that_approves_it() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("state/identity")).expect("a folder");
    let key = KeyPair::generate().expect("a key").serialize_pem();
    folder.write("state/identity/pending.pem", &format!("nodepulse pending 1 edge-7\n{key}"));
    let said = out(&nodepulse(&["identity", "--state-directory", &folder.path("state")]));
    assert!(said.contains("waiting      edge-7, for: kubectl certificate approve node-csr-"), "{said}");
}

#[test]
fn who_leaves_forgets_everything_and_says_what_an_administrator_has_to_do() {
    let folder = Folder::new();
    let state = folder.path("state");
    let leave = || nodepulse(&["leave", "--state-directory", &state]);
    let output = leave();
    assert_eq!(output.status.code(), Some(78));
    assert!(err(&output).contains("there is no cluster to leave"), "{}", err(&output));
    let path = identity(&folder, "edge-7", (2026, 2036));
    for name in ["node.pem.old", "pending.pem", "kubeconfig", "token", "mine"] {
        folder.write(&format!("state/identity/{name}"), "x");
    }
    fs::remove_file(folder.path("state/identity/kubeconfig")).expect("it was there");
    let output = leave();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("kubectl delete node edge-7\n"), "{}", out(&output));
    let mut left: Vec<_> = fs::read_dir(folder.path("state/identity"))
        .expect("a folder")
        .map(|file| file.expect("a file").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["left", "mine"]);
    assert!(!PathBuf::from(path).exists());
    let said = out(&nodepulse(&["identity", "--state-directory", &state]));
    assert!(said.contains("this board has left its cluster"), "{said}");
    assert_eq!(leave().status.code(), Some(78));
    // Nor does what a power cut may have kept of it.
    let kubeconfig = joined_to_nowhere(&folder);
    let output = nodepulse(&["run", "--state-directory", &state]);
    assert_eq!(output.status.code(), Some(78), "{}", err(&output));
    assert!(err(&output).contains("this board has left its cluster"), "{}", err(&output));
    fs::remove_file(kubeconfig).expect("it is there");
    fs::remove_file(folder.path("state/identity/node.pem")).expect("it is there");
    // The image's token does not bring it back; a person does.
    let settings = ["--servers=127.0.0.1:1", "--token", TOKEN, "--ca-hash", HASH, "--state-directory", &state];
    let output = nodepulse(&[&["run"][..], &settings].concat());
    assert_eq!(output.status.code(), Some(78), "{}", err(&output));
    assert!(err(&output).contains("this board has left its cluster, and joins none by itself"), "{}", err(&output));
    let mut agent = Running::start(&[&["join", "--hostname-override=edge-7"][..], &settings].concat());
    agent.wait_for("127.0.0.1:1");
    assert!(!PathBuf::from(folder.path("state/identity/left")).exists());
    assert!(agent.seen.iter().all(|line| !line.contains("abcdef.0123")), "{:?}", agent.seen);
}

/// The identity of edge-7 in a cluster that nobody answers for; the path of its kubeconfig.
fn joined_to_nowhere(folder: &Folder) -> String {
    identity(folder, "edge-7", (2026, 2036));
    let own = KeyPair::generate().expect("a key");
    let authority = CertificateParams::new(Vec::new()).expect("parameters").self_signed(&own).expect("a certificate");
    let authority = BASE64_STANDARD.encode(authority.pem());
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1', certificate-authority-data: {authority}}}}}]\n\
         users: [{{name: a, user: {{client-certificate: node.pem, client-key: node.pem}}}}]\n"
    );
    folder.write("state/identity/kubeconfig", &text)
}

#[test]
fn an_agent_that_runs_is_asked_and_without_a_link_it_is_said_what_was_not_done() {
    let folder = Folder::new();
    let state = folder.path("state");
    joined_to_nowhere(&folder);
    let mut agent = Running::start(&["run", "--state-directory", &state]);
    agent.wait_for("127.0.0.1:1");
    let output = nodepulse(&["renew", "--state-directory", &state]);
    assert_eq!(output.status.code(), Some(70));
    assert!(err(&output).contains("no Lease is being renewed just now"), "{}", err(&output));
    let output = nodepulse(&["away", "--until", "8h", "--reason", "no uplink", "--state-directory", &state]);
    let said = out(&output);
    assert!(output.status.success() && said.contains(": kept, and told as soon as"), "{said} {}", err(&output));
    let journal = out(&nodepulse(&["journal", "--state-directory", &state]));
    assert!(journal.contains("the board is away until 20") && journal.contains(" (no uplink)"), "{journal}");
    let output = nodepulse(&["back", "-o", "json", "--state-directory", &state]);
    assert!(out(&output).contains("\"wasAway\": true"), "{}", err(&output));
    assert!(agent.child.try_wait().expect("a state").is_none());
    let output = nodepulse(&["status", "--state-directory", &state]);
    let said = out(&output);
    assert!(output.status.success() && said.starts_with("Node edge-7 is not registered: cannot connect to "), "{said}");
    assert!(said.contains("\n  next ") && said.contains("\n  journal ") && said.contains(", running for "), "{said}");
    let output = nodepulse(&["status", "-o", "json", "--state-directory", &state]);
    assert!(out(&output).contains("\"state\": \"registering\""), "{}", out(&output));
    let output = nodepulse(&["leave", "--state-directory", &state]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let said = out(&output);
    for line in [
        "Node edge-7 and its Lease stay as they are, as nobody could be told: cannot connect to 127.0.0.1",
        "edge-7 has forgotten its identity, and joins no more by itself\n",
        "kubectl delete node edge-7\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(agent.child.wait().expect("an end").code(), Some(0));
    assert!(!fs::exists(folder.path("state/identity/node.pem")).expect("a look"));
}

#[test]
fn what_a_renewal_needs_is_said() {
    let folder = Folder::new();
    let state = folder.path("state");
    let renew = |more: &[&str]| {
        let output = nodepulse(&[&["renew", "--state-directory", &state][..], more].concat());
        (output.status.code(), err(&output))
    };
    let (code, said) = renew(&[]);
    assert!(code == Some(78) && said.contains("no certificate that could be renewed"), "{said}");
    identity(&folder, "edge-7", (2026, 2036));
    let (code, said) = renew(&["--rotate-certificates=false"]);
    assert!(code == Some(78) && said.contains("rotateCertificates is false"), "{said}");
    let (code, said) = renew(&[]);
    assert!(code == Some(70) && said.contains(&format!("no agent runs with {state}")), "{said}");
}

#[test]
fn join_says_what_it_lacks() {
    let folder = Folder::new();
    let state = folder.path("state");
    let join = |more: &[&str]| nodepulse(&[&["join", "--state-directory", &state][..], more].concat());
    let lacking = |more: &[&str], code: i32, text: &str| {
        let output = join(more);
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
        assert!(err(&output).contains(text), "{}", err(&output));
        is_silent_about_the_token(&output);
    };
    lacking(&[], 64, "join needs a server: nodepulse join https://SERVER:6443 --token TOKEN");
    lacking(&["10.0.0.1:6443"], 64, "join needs a token: --token TOKEN");
    lacking(&["10.0.0.1:6443", "--token", TOKEN], 78, "--token: nothing says which server may have it");
    lacking(&["http://10.0.0.1", "--token", TOKEN, "--ca-hash", HASH], 78, "http:// is refused");
    lacking(
        &["10.0.0.1:6443", "--token", TOKEN, "--discovery-token-ca-cert-hash", "sha256:12"],
        78,
        "64 hexadecimal digits",
    );
    lacking(
        &["10.0.0.1:6443", "--discovery-token", "abcdef.0123456789abcdeF", "--ca-hash", HASH],
        78,
        "is neither a token of",
    );
    assert!(!PathBuf::from(state).exists(), "nothing was done");
}

/// What root joins belongs to the service from the first file on.
#[test]
fn root_joins_as_the_user_whose_state_directory_it_is() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = Folder::new();
    let state = folder.path("state");
    fs::create_dir_all(&state).expect("a folder");
    std::os::unix::fs::chown(&folder.0, Some(65_534), Some(65_534)).expect("an owner");
    std::os::unix::fs::chown(&state, Some(65_534), Some(65_534)).expect("an owner");
    let args = ["join", "127.0.0.1:1", "--token", TOKEN, "--ca-hash", HASH, "--state-directory", &state];
    let mut agent = Running::start(&[&args[..], &["--hostname-override=edge-7", "--sandbox=false"]].concat());
    agent.wait_for("127.0.0.1:1");
    let status = fs::read_to_string(format!("/proc/{}/status", agent.child.id())).expect("a status");
    for line in ["Uid:\t65534\t65534\t65534\t65534\n", "Gid:\t65534\t65534\t65534\t65534\n", "Groups:\t65534 \n"] {
        assert!(status.contains(line), "{status}");
    }
}
