//! What a container runtime says of itself, from a look to the Node: its version, Ready, and how soon.

use super::outage::settled;
use super::*;
use crate::probe::{ContainerImage, ContainerRuntime, HandlerFeatures, RuntimeFeatures, RuntimeHandler};

const DOWN: &str = "container runtime is down";
pub(super) const NO_NETWORK: &str =
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:x";
const SECOND: Duration = Duration::from_secs(1);

pub(super) fn runtime(problems: &[&str]) -> ContainerRuntime {
    ContainerRuntime {
        version: "containerd://2.2.9".to_owned(),
        problems: problems.iter().map(|&one| one.to_owned()).collect(),
        handlers: vec![RuntimeHandler { name: String::new(), features: HandlerFeatures::default() }],
        features: Some(RuntimeFeatures { supplemental_groups_policy: true }),
        images: Vec::new(),
        pod_cidr: None,
        trouble: None,
    }
}

/// What a server keeps of a report.
pub(super) fn keep(node: &mut Node, patch: &Value) {
    let status = &patch["status"];
    if let Some(version) = status["nodeInfo"]["containerRuntimeVersion"].as_str() {
        node.status.node_info.container_runtime_version = version.to_owned();
    }
    let read: Node = serde_json::from_value(serde_json::json!({ "status": status })).unwrap();
    if status.get("runtimeHandlers").is_some() {
        node.status.runtime_handlers = read.status.runtime_handlers;
    }
    if status.get("images").is_some() {
        node.status.images = read.status.images;
    }
    if let Some(features) = status.get("features") {
        node.status.features = read.status.features.filter(|_| !features.is_null());
    }
}

pub(super) fn says(script: &mut Script, said: ContainerRuntime) {
    script.facts.readings.container_runtime = Some(said);
}

/// The bodies of reports within so long that say something of these fields, and the first such moment.
fn reports(script: &mut Script, span: Duration, pointer: &str) -> Vec<(Duration, Value)> {
    let began = script.up;
    let mut found = Vec::new();
    while script.up < began + span {
        for operation in script.pass(SECOND) {
            let is_report = matches!(operation, Operation::PatchStatus { .. });
            let said = is_report.then(|| body_of(&operation).pointer(pointer).cloned()).flatten();
            found.extend(said.map(|value| (script.up - began, value)));
        }
    }
    found
}

fn ready(script: &mut Script, span: Duration) -> Vec<(Duration, String)> {
    let words = |conditions: Value| {
        let all = conditions.as_array().cloned().unwrap_or_default();
        let ready = all.into_iter().find(|one| one["type"] == "Ready" && !one["status"].is_null());
        ready.map(|one| format!("{} {}", one["status"].as_str().unwrap(), one["message"].as_str().unwrap_or_default()))
    };
    let all = reports(script, span, "/status/conditions");
    all.into_iter().filter_map(|(after, conditions)| Some((after, words(conditions)?))).collect()
}

#[test]
fn a_new_node_says_at_once_what_its_runtime_is() {
    let mut script = Script::new();
    says(&mut script, runtime(&[]));
    let created = loop {
        let (ticket, operation) = script.next(Lane::Status);
        if matches!(operation, Operation::CreateNode { .. }) {
            break body_of(&operation);
        }
        let result = script.reply(&operation);
        script.answer(ticket, result);
    };
    let status = &created["status"];
    assert_eq!(status["nodeInfo"]["containerRuntimeVersion"], "containerd://2.2.9");
    let features = serde_json::json!({ "recursiveReadOnlyMounts": false, "userNamespaces": false });
    assert_eq!(status["runtimeHandlers"], serde_json::json!([{ "name": "", "features": features }]));
    assert_eq!(status["features"], serde_json::json!({ "supplementalGroupsPolicy": true }));
}

#[test]
fn another_version_is_one_report_and_the_same_one_is_none() {
    let mut script = settled();
    says(&mut script, runtime(&[]));
    let version = |script: &mut Script| reports(script, 60 * SECOND, "/status/nodeInfo/containerRuntimeVersion");
    assert!(matches!(&version(&mut script)[..], [(after, _)] if *after <= 12 * SECOND));
    assert_eq!(version(&mut script), []);
    says(&mut script, ContainerRuntime { version: "containerd://Unknown".to_owned(), ..runtime(&[]) });
    assert_eq!(version(&mut script).len(), 1);
    script.facts.readings.container_runtime = None;
    let gone = reports(&mut script, 60 * SECOND, "/status");
    let gone = gone.iter().find(|(_, status)| status.get("features").is_some()).unwrap();
    assert_eq!((&gone.1["runtimeHandlers"], &gone.1["features"]), (&Value::Null, &Value::Null));
    assert_eq!(gone.1["nodeInfo"]["containerRuntimeVersion"], "none://Unknown");
}

#[test]
fn other_handlers_or_features_alone_are_a_report_too() {
    let mut script = settled();
    says(&mut script, runtime(&[]));
    script.pass(60 * SECOND);
    let more = RuntimeHandler { name: "runc".to_owned(), features: HandlerFeatures::default() };
    let handlers = [runtime(&[]).handlers, vec![more]].concat();
    says(&mut script, ContainerRuntime { handlers: handlers.clone(), ..runtime(&[]) });
    assert_eq!(reports(&mut script, 20 * SECOND, "/status/runtimeHandlers/1/name").len(), 1);
    says(&mut script, ContainerRuntime { handlers, features: None, ..runtime(&[]) });
    let features = reports(&mut script, 20 * SECOND, "/status/features");
    assert!(matches!(&features[..], [(_, Value::Null)]), "{features:?}");
}

#[test]
fn other_images_alone_are_a_report_of_all_of_them_and_the_same_are_none() {
    let mut script = settled();
    says(&mut script, runtime(&[]));
    script.pass(60 * SECOND);
    let image = |name: &str, bytes| ContainerImage { names: vec![name.to_owned()], size_bytes: Some(bytes) };
    let images = vec![image("a@sha256:1", 7), ContainerImage { names: Vec::new(), size_bytes: None }];
    says(&mut script, ContainerRuntime { images, ..runtime(&[]) });
    let told = reports(&mut script, 60 * SECOND, "/status/images");
    let expected = serde_json::json!([{ "names": ["a@sha256:1"], "sizeBytes": 7 }, {}]);
    assert!(matches!(&told[..], [(_, images)] if *images == expected), "{told:?}");
    says(&mut script, runtime(&[]));
    let told = reports(&mut script, 60 * SECOND, "/status/images");
    assert!(matches!(&told[..], [(_, Value::Null)]), "{told:?}");
}

#[test]
fn a_runtime_that_fails_is_not_ready_with_the_next_look_and_so_is_its_return() {
    let mut script = settled();
    says(&mut script, runtime(&[]));
    script.pass(60 * SECOND);
    says(&mut script, runtime(&[DOWN]));
    let fallen = ready(&mut script, 60 * SECOND);
    assert!(
        matches!(&fallen[..], [(after, words)] if *after <= 12 * SECOND && *words == format!("False {DOWN}")),
        "{fallen:?}"
    );
    says(&mut script, runtime(&[DOWN, NO_NETWORK]));
    let all = reports(&mut script, 60 * SECOND, "/status/conditions");
    let message = format!("[{DOWN}, {NO_NETWORK}]");
    let says_so = |conditions: &Value| conditions.as_array().unwrap().iter().any(|one| one["message"] == *message);
    let told = all.iter().filter(|(_, conditions)| says_so(conditions)).map(|(after, _)| *after).collect::<Vec<_>>();
    assert!(matches!(told[..], [after] if after <= 12 * SECOND), "as a kubelet joins them: {all:?}");
    says(&mut script, runtime(&[]));
    let risen = ready(&mut script, 60 * SECOND);
    assert!(matches!(&risen[..], [(after, words)] if *after <= 12 * SECOND && words.starts_with("True")), "{risen:?}");
}

#[test]
fn a_runtime_that_starts_after_the_agent_is_ready_within_two_seconds_of_the_first_two_minutes() {
    for (late, most) in [(30, 2), (115, 2), (300, 12)] {
        let mut script = Script::new();
        says(
            &mut script,
            runtime(&["container runtime status check may not have completed yet", "network state unknown"]),
        );
        script.register();
        script.pass(late * SECOND);
        says(&mut script, runtime(&[]));
        let risen = ready(&mut script, 30 * SECOND);
        let (after, words) = risen.first().unwrap_or_else(|| panic!("it is not ready {late} s later"));
        assert!(words.starts_with("True") && *after <= most * SECOND, "{late} s: {risen:?}");
    }
}

#[test]
fn while_a_runtime_is_awaited_nothing_more_is_sent() {
    let mut script = Script::new();
    says(&mut script, runtime(&["container runtime status check may not have completed yet"]));
    script.register();
    script.pass(20 * SECOND);
    let sent = script.pass(60 * SECOND);
    let others = sent.iter().filter(|one| !matches!(one, Operation::RenewLease { .. })).count();
    assert!(others <= 2, "{others} requests beside renewals: {sent:?}");
}

#[test]
fn a_runtime_is_told_the_addresses_of_pods_until_it_has_taken_them() {
    let mut script = settled();
    script.stored.get_or_insert_with(registered_node).spec.pod_cidrs =
        vec!["10.1.0.0/24".to_owned(), "fd00::/64".to_owned()];
    script.pass(400 * SECOND);
    assert_eq!(script.pod_cidr, None, "there is no runtime");
    says(&mut script, runtime(&[]));
    script.pass(30 * SECOND);
    assert_eq!(script.pod_cidr.as_deref(), Some("10.1.0.0/24,fd00::/64"));
    let taken = ContainerRuntime { pod_cidr: script.pod_cidr.clone(), ..runtime(&[]) };
    says(&mut script, taken);
    script.pass(30 * SECOND);
    assert_eq!(script.pod_cidr, None);
    says(&mut script, runtime(&[]));
    script.pass(30 * SECOND);
    assert!(script.pod_cidr.is_some(), "it is another one");
}
