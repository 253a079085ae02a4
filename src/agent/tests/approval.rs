//! A renewal that nobody approves: the token is tried while the certificate still serves (ROT-6).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::config::kubeconfig::parse_server;
use crate::config::settings::Token;
use crate::identity::samples::{self, Key, leaf, signature};
use crate::identity::{Renewal, SigningRequest, files, pem};

const TOKEN: &str = "abcdef.0123456789abcdef";
const HOUR: Duration = Duration::from_secs(3600);

/// The object that a request has become. `user`: who asked.
fn shown(request: &SigningRequest, user: &str, status: &Value) -> Result<Document, Refusal> {
    let object = json!({
        "metadata": { "name": request.name(), "uid": "csr-1", "resourceVersion": "5" },
        "spec": {
            "request": STANDARD.encode(request.pem(&[0x30, 0])),
            "username": user,
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        },
        "status": status,
    });
    Ok(Document::Protobuf(samples::protobuf(&object)))
}

/// cluster-info, which that token has signed.
fn cluster_info(id: &str) -> Result<Document, Refusal> {
    let authority = CertificateDer::from(leaf("kubernetes", &Key::new(), 2025, 2035));
    let kubeconfig =
        files::kubeconfig(&[parse_server("https://one:6443").unwrap()], &[], &vec![authority].into(), None);
    let name = format!("jws-kubeconfig-{id}");
    let map = json!({ "data": { "kubeconfig": kubeconfig, name: signature(&kubeconfig, (id, "0123456789abcdef")) } });
    Ok(Document::Json(map.to_string().into_bytes()))
}

fn make(script: &mut Script, request: &SigningRequest) {
    let made = Input::RequestMade { request: Box::new(request.clone()), signature: vec![0x30, 0], node_password: None };
    script.agent.handle(made, script.now());
}

/// Passes time, with this answer to whatever the lane asks, until there is another of what it counts.
fn pass_until(script: &mut Script, answer: &Result<Document, Refusal>, count: fn(&Script) -> usize) -> Duration {
    let (began, before) = (script.up, count(script));
    while count(script) == before {
        assert!(script.up - began < HOUR * 30, "{:?}", script.words());
        let (sent, until) = script.drain();
        if sent.is_empty() && count(script) == before {
            script.up = script.up.max(until.as_duration());
        }
        for (ticket, operation) in sent {
            let is_ours = ticket.lane() == Lane::Identity;
            let reply = if is_ours { answer.clone() } else { script.reply(&operation) };
            script.answer(ticket, reply);
        }
    }
    script.up - began
}

fn introduce(script: &mut Script) {
    let servers = vec![parse_server("https://one:6443").unwrap()];
    let trust = Trust::Pinned(Vec::new());
    let means = Means { servers, token: Token::parse(TOKEN).unwrap(), is_fleeting: false, trust };
    script.agent.handle(Input::Means(Ok(Box::new(means))), script.now());
}

/// A board whose renewal is a day old.
fn unapproved(request: &SigningRequest) -> Script {
    let mut script = Script::new();
    script.register();
    let renewal = Renewal::of(&leaf("n1", &Key::new(), 2025, 2027), None).unwrap();
    let dates = CredentialDates { renewal: Some(renewal), not_after: Some(renewal.end), ..CredentialDates::default() };
    script.agent.handle(Input::Credentials(dates), script.now());
    script.pass(Duration::from_secs(30));
    make(&mut script, request);
    script.play(Lane::Identity, Ok(metadata("rv1")));
    let waited = pass_until(&mut script, &shown(request, "system:node:n1", &json!({})), |script| script.means_asked);
    assert!((HOUR * 24..HOUR * 25).contains(&waited), "{waited:?}");
    introduce(&mut script);
    script
}

#[test]
fn a_renewal_that_nobody_approves_is_asked_for_with_the_token_and_another_key() {
    let (first, second) = (SigningRequest::new("n1", Key::new().point()), Key::new());
    let mut script = unapproved(&first);
    assert_eq!(script.play(Lane::Identity, cluster_info("abcdef")).1, Operation::ReadClusterInfo);
    assert!(matches!(&script.access, Some(Access::Introduced { authorities: None, token: None, .. })));
    let node = Ok(Document::Node(Box::new(registered_node())));
    assert_eq!(script.play(Lane::Identity, node).1, Operation::ReadNode { heartbeat: false });
    script.drain();
    make(&mut script, &first);
    // What the node has asked for is there.
    script.play(Lane::Identity, refused(409, "AlreadyExists"));
    assert!(matches!(&script.access, Some(Access::Introduced { token: Some(_), .. })), "{:?}", script.access);
    script.play(Lane::Identity, shown(&first, "system:node:n1", &json!({})));
    script.drain();
    assert_eq!(script.keys_asked, [false, false, true]);
    let request = SigningRequest::new("n1", second.point());
    make(&mut script, &request);
    script.play(Lane::Identity, Ok(metadata("rv1")));
    let mut text = String::new();
    pem::write(&mut text, pem::CERTIFICATE, &leaf("n1", &second, 2026, 2028));
    let status = json!({ "conditions": [{ "type": "Approved" }], "certificate": STANDARD.encode(text) });
    script.play(Lane::Identity, shown(&request, "system:bootstrap:abcdef", &status));
    assert_eq!(script.play(Lane::Identity, Ok(metadata("rv1"))).1, Operation::ProveCertificate);
    script.drain();
    assert_eq!(script.kept.len(), 1);
}

#[test]
fn where_the_token_is_of_no_use_the_renewal_goes_on_waiting_and_tries_it_a_day_later() {
    let request = SigningRequest::new("n1", Key::new().point());
    let mut script = unapproved(&request);
    // Meanwhile nothing else stands still, and whoever asks for a renewal is told so.
    script.agent.handle(Input::Renew, script.now());
    let spent = pass_until(&mut script, &cluster_info("fedcba"), |script| script.keys_asked.len());
    assert!(spent <= HOUR, "{spent:?}");
    let told: Vec<_> = script.told.iter().map(|told| told.clone().unwrap_err()).collect();
    assert!(told.len() == 1 && told[0].contains("being asked for with the token"), "{told:?}");
    assert_eq!(script.keys_asked, [false, false], "the same key");
    make(&mut script, &request);
    script.play(Lane::Identity, refused(409, "AlreadyExists"));
    assert_eq!(script.access, Some(Access::InUse));
    let pending = shown(&request, "system:node:n1", &json!({}));
    let waited = pass_until(&mut script, &pending, |script| script.means_asked);
    assert!((HOUR * 24..HOUR * 25).contains(&waited), "{waited:?}");
}

#[test]
fn a_token_that_gets_no_answer_is_tried_for_ten_minutes_and_no_longer() {
    let mut script = unapproved(&SigningRequest::new("n1", Key::new().point()));
    let spent = pass_until(&mut script, &refused(500, ""), |script| script.keys_asked.len());
    assert!((HOUR / 7..HOUR / 2).contains(&spent), "{spent:?}");
    assert_eq!(script.keys_asked, [false, false], "the same key");
}
