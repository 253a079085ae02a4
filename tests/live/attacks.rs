//! Turns what a thief tries with a fleet's token, with a board's certificate and with a revoked one into refusals of a real API
//! server. Whoever refuses, the same request of an administrator is right: it was refused for who asked.

use super::super::cluster::joining::REQUESTS;
use super::super::cluster::{Cluster, Reply, Result, lease_path, node_path, wait_until};
use super::super::trials::Case;
use super::fence::apply_files;
use super::thief::{
    APPLY, EVENTS, JSON, LEASES, MERGE, OPERATIONS, PODS, Prey, SIGNER, STRATEGIC, Try, are_refused, event, lease,
    look, packed, pod, remove, send, signing_request,
};
use super::{SOON, stored_node};
use serde_json::{Value, json};

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        with_a_token_certificates_are_asked_for_and_nothing_else_is_touched,
        with_a_certificate_nothing_of_others_is_touched_and_with_a_revoked_one_nothing_at_all,
    ]
}

fn with_a_token_certificates_are_asked_for_and_nothing_else_is_touched(_: &Cluster) -> Result<()> {
    let prey = Prey::new()?;
    let mut tries = prey.for_nobody()?;
    let node = stored_node("edge-3", json!({}));
    tries.extend([
        send("POST", "/api/v1/nodes", JSON, node.clone()),
        send("PATCH", "/api/v1/nodes/edge-3?fieldManager=thief", APPLY, node),
        send("PATCH", "/api/v1/nodes/edge-1", STRATEGIC, json!({"metadata": {"labels": {"a": "b"}}})),
        send("PATCH", "/api/v1/nodes/edge-1/status", STRATEGIC, json!({"metadata": {"annotations": {"a": "b"}}})),
        send("POST", LEASES, JSON, lease("edge-3")),
        send("PATCH", &lease_path("edge-1"), MERGE, json!({"spec": {"holderIdentity": "thief"}})),
        send("POST", EVENTS, JSON, event("mine", "edge-1")),
        send("POST", PODS, JSON, pod("mine", "edge-1")),
        look("/api/v1/nodes"),
        look("/api/v1/nodes?watch=true&timeoutSeconds=1"),
        look("/api/v1/pods"),
        look(&lease_path("edge-1")),
        look("/api/v1/services"),
    ]);
    let mut through = are_refused(&prey.cluster, &prey.token, &tries)?;
    through.extend(prey.as_somebody_else(|| Ok(prey.token.clone()))?);
    through.extend(odd_ways_to_ask(&prey)?);
    through.extend(names_that_nobody_could_revoke(&prey)?);
    assert!(through.is_empty(), "{through:#?}");
    Ok(())
}

/// Of what the token may do: more in it than there should be, in every form that the server reads.
fn odd_ways_to_ask(prey: &Prey) -> Result<Vec<String>> {
    let (good, evil) = (packed("edge-9")?, packed("cp-9")?);
    let odd = |name: &str| json!({"generateName": name});
    let ask = |metadata: Value, request: &str| signing_request(metadata, request, SIGNER);
    let mut through = Vec::new();
    let mut expect = |what: &str, reply: Reply, is_let_through: bool| {
        if (reply.status < 300) != is_let_through {
            through.push(format!("{what}: {} {}", reply.status, reply.body));
        }
    };
    let post =
        |kind: &str, text: &str| prey.token.send("POST", &format!("{REQUESTS}?dryRun=All"), kind, text.as_bytes());
    let json_of = |request: &str| ask(odd("odd-"), request).to_string();
    expect("itself", post(JSON, &json_of(&good))?, true);
    expect("as YAML", post("application/yaml", &json_of(&good))?, true);
    expect("another as YAML", post("application/yaml", &json_of(&evil))?, false);
    // Line ends within base64 are read over by the server.
    let with_ends = |text: &str| text.replacen("LS0t", "LS\n0t", 2).replacen("Q0F", "Q0\r\nF", 1);
    expect("line ends in the base64", post(JSON, &json_of(&with_ends(&good)))?, true);
    expect("line ends in another's", post(JSON, &json_of(&with_ends(&evil)))?, false);
    expect("another's after ours", post(JSON, &json_of(&format!("{good}{evil}")))?, false);
    expect("ours twice", post(JSON, &json_of(&format!("{good}{good}")))?, false);
    // Keys twice, in either order, and in another case: what is judged is what is kept.
    for (first, second, is_let_through) in [(&good, &evil, false), (&evil, &good, true)] {
        let text = json_of(first).replacen("\"request\":", &format!("\"request\":\"{first}\",\"request\":"), 1);
        let text = text.replacen(
            &format!("\"request\":\"{first}\",\"request\":\"{first}\""),
            &format!("\"request\":\"{first}\",\"request\":\"{second}\""),
            1,
        );
        expect("a key twice", post(JSON, &text)?, is_let_through);
    }
    let capital = json_of(&good).replacen("\"request\":", &format!("\"Request\":\"{evil}\",\"request\":"), 1);
    expect("a key in capitals", post(JSON, &capital)?, true);
    for name in ["node-csr-x", "x", &"x".repeat(253), "a.b.c"] {
        expect(name, post(JSON, &ask(json!({"name": name}), &evil).to_string())?, false);
    }
    // What says who asks is the server's to write: certificates of these come, if they do, with the name of the fence.
    let mut claimed = ask(json!({"name": "claimed"}), &packed("edge-10")?);
    for (key, value) in [
        ("username", json!("system:admin")),
        ("groups", json!(["system:masters"])),
        ("uid", json!("1")),
        ("extra", json!({"a": ["b"]})),
    ] {
        claimed["spec"][key] = value;
    }
    let status = json!({"conditions": [{"type": "Approved", "status": "True"}], "certificate": "YQ=="});
    claimed["status"] = status;
    let made = prey.token.post(REQUESTS, &claimed)?;
    let spec = &made["spec"];
    let is_the_token = spec["username"].as_str().is_some_and(|user| user.starts_with("system:bootstrap:"));
    let masters = spec["groups"].as_array().is_none_or(|all| all.contains(&json!("system:masters")));
    if !is_the_token || masters || !made["status"]["certificate"].is_null() {
        through.push(format!("believed: {made}"));
    }
    // Other uses are asked for, and neither approved nor signed.
    for (name, usages) in [("serving", json!(["server auth"])), ("signing", json!(["client auth", "cert sign"]))] {
        let mut object = ask(json!({"name": name}), &packed("edge-11")?);
        object["spec"]["usages"] = usages;
        let reply = prey.token.request("POST", REQUESTS, Some((JSON, &object)))?;
        if reply.status < 300 && is_signed_soon(prey, name)? {
            through.push(format!("{name}: signed"));
        }
    }
    Ok(through)
}

/// Whether that request is signed before one that was made after it.
fn is_signed_soon(prey: &Prey, name: &str) -> Result<bool> {
    let later = format!("after-{name}");
    prey.token.post(REQUESTS, &signing_request(json!({"name": later}), &packed("edge-12")?, SIGNER))?;
    let certificate = |name: &str| -> Result<Value> {
        Ok(prey.cluster.api.admin.get(&format!("{REQUESTS}/{name}"))?["status"]["certificate"].clone())
    };
    wait_until("a certificate for the later one", SOON, || {
        if certificate(&later)?.is_string() { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    Ok(certificate(name)?.is_string())
}

fn with_a_certificate_nothing_of_others_is_touched_and_with_a_revoked_one_nothing_at_all(_: &Cluster) -> Result<()> {
    let prey = Prey::new()?;
    others_are_not_touched(&prey)?;
    a_revoked_one_writes_nothing(&prey)
}

fn others_are_not_touched(prey: &Prey) -> Result<()> {
    let thief = &prey.own.client;
    let mut tries = prey.for_nobody()?;
    let other = node_path("edge-2");
    let labels = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    let mut whole = prey.cluster.get_node("edge-2")?;
    // Whatever the controllers have written since.
    whole["metadata"]["resourceVersion"] = Value::Null;
    for (kind, body) in [
        (STRATEGIC, labels("a")),
        (MERGE, labels("a")),
        (OPERATIONS, json!([{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}])),
        (APPLY, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-2", "labels": {"a": "b"}}})),
    ] {
        let manager = if kind == APPLY { "?fieldManager=thief" } else { "" };
        tries.push(send("PATCH", &format!("{other}{manager}"), kind, body.clone()));
        tries.push(send("PATCH", &format!("{other}/status{manager}"), kind, body));
    }
    tries.extend([
        send("PUT", &other, JSON, whole.clone()),
        send("PUT", &format!("{other}/status"), JSON, whole),
        send("POST", "/api/v1/nodes", JSON, stored_node("edge-3", json!({}))),
        send("POST", "/api/v1/nodes", JSON, json!({"metadata": {"generateName": "edge-"}})),
        look(&other),
        look("/api/v1/nodes"),
        // Of its own Node what only an administrator may: roles, what keeps pods away, the Node itself.
        send("PATCH", &node_path("edge-1"), STRATEGIC, labels("node-restriction.kubernetes.io/tier")),
        send("PATCH", &node_path("edge-1"), MERGE, labels("node-role.kubernetes.io/control-plane")),
        send(
            "PATCH",
            &node_path("edge-1"),
            STRATEGIC,
            json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
        ),
        remove(&node_path("edge-1")),
        send("POST", LEASES, JSON, lease("edge-3")),
        send("POST", LEASES, JSON, json!({"metadata": {"generateName": "edge-"}, "spec": {}})),
        send("PATCH", &lease_path("edge-2"), MERGE, json!({"spec": {"holderIdentity": "thief"}})),
        send("PATCH", &lease_path("edge-2"), STRATEGIC, json!({"spec": {"renewTime": "2099-01-01T00:00:00.000000Z"}})),
        send("PATCH", &format!("{}?fieldManager=thief", lease_path("edge-2")), APPLY, lease("edge-2")),
        look(&lease_path("edge-2")),
        send("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", JSON, lease("edge-1")),
        send("POST", PODS, JSON, pod("mine", "edge-2")),
        send("POST", PODS, JSON, pod("mine", "edge-1")),
        remove(&format!("{PODS}/pod-of-edge-2?gracePeriodSeconds=0")),
        send("PATCH", &format!("{PODS}/pod-of-edge-2/status"), STRATEGIC, json!({"status": {"phase": "Failed"}})),
        send("PATCH", &format!("{PODS}/pod-of-edge-1"), STRATEGIC, labels("a")),
        look(&format!("{PODS}/pod-of-edge-2")),
        look(PODS),
    ]);
    let mut through = are_refused(&prey.cluster, thief, &tries)?;
    let again = || prey.cluster.api.client(&prey.cluster.client_keys(&prey.own.user, Some("system:nodes"))?);
    through.extend(prey.as_somebody_else(again)?);
    through.extend(requests_by_certificate(prey)?);
    assert!(through.is_empty(), "{through:#?}");
    // What Kubernetes leaves open to each node, and SECURITY.md says so: events about whatever it likes.
    thief.post(EVENTS, &event("about-another", "edge-2"))?;
    thief.patch(&format!("{EVENTS}/edge-2.1"), &json!({"message": "changed"}))?;
    Ok(())
}

/// Requests for other certificates than its own are refused, or wait for a person for ever.
fn requests_by_certificate(prey: &Prey) -> Result<Vec<String>> {
    let (thief, mut through) = (&prey.own.client, Vec::new());
    for (what, name, signer, is_approved) in [
        ("another node", "edge-2", SIGNER, false),
        ("a control plane's", "cp-1", SIGNER, false),
        ("a longer name", "edge-1.x", SIGNER, false),
        ("capitals", "EDGE-1", SIGNER, false),
        ("itself", "edge-1", SIGNER, true),
        ("for serving, another's", "edge-2", "kubernetes.io/kubelet-serving", false),
        ("as any client", "edge-1", "kubernetes.io/kube-apiserver-client", false),
    ] {
        let name_of = format!("by-certificate-{}", what.replace([' ', ',', '\''], "-"));
        let object = signing_request(json!({"name": name_of}), &packed(name)?, signer);
        let reply = thief.request("POST", REQUESTS, Some((JSON, &object)))?;
        let is_signed = reply.status < 300 && {
            let later = signing_request(json!({"name": format!("{name_of}-later")}), &packed("edge-1")?, SIGNER);
            thief.post(REQUESTS, &later)?;
            let certificate = |name: &str| -> Result<Value> {
                Ok(prey.cluster.api.admin.get(&format!("{REQUESTS}/{name}"))?["status"]["certificate"].clone())
            };
            wait_until("a certificate for the later one", SOON, || {
                if certificate(&format!("{name_of}-later"))?.is_string() { Ok(()) } else { Err("not yet".to_owned()) }
            })?;
            certificate(&name_of)?.is_string()
        };
        if is_signed != is_approved {
            through.push(format!("{what}: {} {}, signed: {is_signed}", reply.status, reply.body));
        }
    }
    Ok(through)
}

/// What a board writes, in every form; `number` makes names that are not there yet.
fn own_writes(node: &str, uid: &Value, number: u32) -> Result<Vec<Try>> {
    let (own, lease_at) = (node_path(node), lease_path(node));
    let note = json!({"metadata": {"annotations": {"example.com/seen": number.to_string()}}});
    let operations =
        json!([{"op": "add", "path": "/metadata/annotations/example.com~1n", "value": number.to_string()}]);
    let applied = |kind: &str, version: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": node, "annotations": {"example.com/a": number.to_string()}}});
    let mut mirror = pod(&format!("mirror-{number}"), node);
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    mirror["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true}]);
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": []}});
    let regarding = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": format!("new.{number}"), "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "action": "a", "reason": "r", "type": "Normal",
        "reportingController": "c", "reportingInstance": node, "regarding": {"kind": "Node", "name": node},
    });
    let mut all = vec![
        send("POST", "/api/v1/nodes", JSON, stored_node(node, json!({}))),
        send("POST", LEASES, JSON, lease(node)),
        send("PATCH", &lease_at, MERGE, json!({"spec": {"leaseDurationSeconds": number + 40}})),
        send("PATCH", &lease_at, STRATEGIC, json!({"spec": {"leaseDurationSeconds": number + 50}})),
        send(
            "PATCH",
            &format!("{lease_at}?fieldManager=x&force=true"),
            APPLY,
            applied("Lease", "coordination.k8s.io/v1"),
        ),
        send("POST", EVENTS, JSON, event(&format!("own.{number}"), node)),
        send("PATCH", &format!("{EVENTS}/{node}.1"), STRATEGIC, json!({"count": number + 7})),
        send("POST", "/apis/events.k8s.io/v1/namespaces/default/events", JSON, regarding),
        send("POST", REQUESTS, JSON, signing_request(json!({"generateName": "again-"}), &packed(node)?, SIGNER)),
        send("POST", PODS, JSON, mirror),
        send(
            "PATCH",
            &format!("{PODS}/pod-of-{node}/status"),
            STRATEGIC,
            json!({"status": {"message": number.to_string()}}),
        ),
        send("POST", "/apis/storage.k8s.io/v1/csinodes", JSON, driver),
        remove(&lease_at),
    ];
    for path in [own.clone(), format!("{own}/status")] {
        all.extend([
            send("PATCH", &path, STRATEGIC, note.clone()),
            send("PATCH", &path, MERGE, note.clone()),
            send("PATCH", &path, OPERATIONS, operations.clone()),
            send("PATCH", &format!("{path}?fieldManager=x&force=true"), APPLY, applied("Node", "v1")),
        ]);
    }
    Ok(all)
}

const REFUSAL: &str = "this node's identity is revoked";

fn a_revoked_one_writes_nothing(prey: &Prey) -> Result<()> {
    let uid = prey.cluster.get_node("edge-1")?["metadata"]["uid"].clone();
    prey.cluster.api.admin.patch(&node_path("edge-1"), &json!({"metadata": {"annotations": {"a": "b"}}}))?;
    // Before: each is let through, or is there already.
    for one in own_writes("edge-1", &uid, 1)? {
        let reply = one.by(&prey.own.client, true)?;
        assert!(
            reply.status < 300 || reply.status == 409,
            "{}: {} {}",
            one.name(),
            reply.status,
            reply.body["message"]
        );
    }
    let revoke = json!({"data": {"edge-1": "stolen"}}).to_string();
    let patch =
        || prey.cluster.kubectl(&["-n", "kube-system", "patch", "configmap", "nodepulse-revoked", "-p", &revoke]);
    patch()?;
    let refused =
        |reply: &Reply| reply.status == 422 && reply.body["message"].as_str().unwrap_or_default().contains(REFUSAL);
    let touch = || {
        send(
            "PATCH",
            &format!("{}/status", node_path("edge-1")),
            STRATEGIC,
            json!({"metadata": {"labels": {"x": "y"}}}),
        )
    };
    wait_until("the revocation", SOON, || match touch().by(&prey.own.client, true)? {
        reply if refused(&reply) => Ok(()),
        reply => Err(reply.status.to_string()),
    })?;
    // Whoever applies the file once more forgets nobody.
    apply_files(&prey.cluster, &["revoked.yaml"])?;
    let mut through = Vec::new();
    for (number, is_dry) in [(2, true), (3, false)] {
        for one in own_writes("edge-1", &uid, number)? {
            let reply = one.by(&prey.own.client, is_dry)?;
            if !refused(&reply) {
                through.push(format!("{} (dry: {is_dry}): {} {}", one.name(), reply.status, reply.body["message"]));
            }
        }
    }
    assert!(through.is_empty(), "{through:#?}");
    // The other goes on, and a new certificate for the same name changes nothing.
    for one in own_writes("edge-2", &prey.cluster.get_node("edge-2")?["metadata"]["uid"], 4)?.iter().take(4) {
        let reply = one.by(&prey.other.client, true)?;
        assert!(reply.status < 300 || reply.status == 409, "{}: {}", one.name(), reply.body);
    }
    let fresh = prey.cluster.api.client(&prey.cluster.client_keys("system:node:edge-1", Some("system:nodes"))?)?;
    assert!(refused(&touch().by(&fresh, false)?));
    Ok(())
}

/// A key of a ConfigMap holds letters, digits, `-`, `_` and `.`; a certificate's name may hold more.
fn names_that_nobody_could_revoke(prey: &Prey) -> Result<Vec<String>> {
    let mut through = Vec::new();
    for name in
        ["edge-1:x", "edge-1 ", "edge-a b", "edge-/etc", "edge-A", "edge-(x)", "edge-x.", "edge-1'", "edge-=,+?"]
    {
        // The fence sees the beginning of a name.
        let object = signing_request(json!({"generateName": "odd-"}), &packed(name)?, SIGNER);
        prey.token.post(REQUESTS, &object)?;
        let keys = prey.cluster.client_keys(&format!("system:node:{name}"), Some("system:nodes"))?;
        let client = prey.cluster.api.client(&keys)?;
        for one in [
            send("POST", EVENTS, JSON, event("odd.1", "edge-2")),
            send("POST", REQUESTS, JSON, signing_request(json!({"generateName": "odd-"}), &packed(name)?, SIGNER)),
        ] {
            let reply = one.by(&client, true)?;
            if reply.status < 400 {
                through.push(format!("{name:?}: {}: {}", one.name(), reply.status));
            }
        }
    }
    Ok(through)
}
