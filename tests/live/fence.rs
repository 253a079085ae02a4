//! Turns attacks with a fleet's token into refusals: `names-policy` on a real server lets through what nodepulse asks for, and
//! nothing with which somebody would be another node (FLEET-2).

use super::super::cluster::joining::{FLEET_GROUP, KUBEADM_GROUP, REQUESTS};
use super::super::cluster::{Client, Cluster, Options, Reply, Result, wait_until};
use super::super::pkcs10::{
    COMMON_NAME, Curve, ORGANIZATION, PRINTABLE, SEQUENCE, UTF8, attribute, block, lines, node_subject, pem, request,
    request_of_version, subject, tlv,
};
use super::super::trials::Case;
use super::SOON;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::process::Command;

pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/targets/kubernetes");
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

pub fn cases() -> Vec<Case> {
    cases![
        &[],
        a_fleets_token_makes_nodes_of_its_names_and_nothing_else,
        a_fence_holds_for_beginnings_of_every_length,
        a_fence_without_any_one_of_its_conditions_lets_something_through,
        a_fence_is_not_printed_for_what_is_no_name,
    ]
}

/// What `names-policy` prints; its exit code and what it says if it refuses.
pub fn names_policy(arguments: &[&str]) -> Result<std::result::Result<String, (i32, String)>> {
    let output = Command::new(format!("{FOLDER}/names-policy")).args(arguments).output().map_err(|e| e.to_string())?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.code() {
        Some(0) => Ok(Ok(said(&output.stdout))),
        code => Ok(Err((code.unwrap_or(-1), said(&output.stderr)))),
    }
}

/// Applies text, as `kubectl apply -f -` does.
pub fn apply(cluster: &Cluster, name: &str, text: &str) -> Result<()> {
    let file = super::super::cluster::daemon::write_private(&cluster.folder().join(name), text)?;
    cluster.kubectl(&["apply", "-f", &file.display().to_string()]).map(drop)
}

/// An administrator's words, each a file of the folder.
pub fn apply_files(cluster: &Cluster, names: &[&str]) -> Result<()> {
    names.iter().try_for_each(|name| cluster.kubectl(&["apply", "-f", &format!("{FOLDER}/{name}")]).map(drop))
}

/// A request for a node of a name that begins with `p`, in whose text as the policy sees it three dashes seem to stand where
/// there are none: once in some ten thousand.
const DASHES_BY_CHANCE: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
    MIIBAjCBqQIBADBHMRUwEwYDVQQKEwxzeXN0ZW06bm9kZXMxLjAsBgNVBAMTJXN5\n\
    c3RlbTpub2RlOnB6enp6enp6enp6enp6enp6enp6enp6enowWTATBgcqhkjOPQIB\n\
    BggqhkjOPQMBBwNCAASdnUoYA3NhBgRjRCaobqf1KKKG1reS0GKx+KSCbpoBMdnJ\n\
    G3tSpVIveD3MhARcimKuQIfG0kc2CWygWHWTyHr5oAAwCgYIKoZIzj0EAwIDSAAw\n\
    RQIhANrXOjLtSARvD7RmMnoxhjCwDe00lOcCDq2P9pLl3qJCAiBLjccoXTfHFfXJ\n\
    zWjYlGsVOckot8a3gvY7wIJTgnwQEg==\n\
    -----END CERTIFICATE REQUEST-----\n";

/// The holder of a token, who asks for certificates.
struct Holder {
    client: Client,
    policy: String,
}

impl Holder {
    fn new(cluster: &Cluster, group: &str, policy: &str) -> Result<Self> {
        let token = cluster.token(&[group], None)?;
        let client = cluster.api.anonymous()?.with_header("Authorization", &format!("Bearer {token}"));
        Ok(Self { client, policy: policy.to_owned() })
    }

    /// `query` is `?dryRun=All`, or nothing to be in earnest.
    fn ask_for(&self, name: &str, text: &str, signer: &str, query: &str) -> Result<Reply> {
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": if name.is_empty() { json!({"generateName": "attack-"}) } else { json!({"name": name}) },
            "spec": {
                "request": BASE64_STANDARD.encode(text), "signerName": signer,
                "usages": ["digital signature", "client auth"],
            },
        });
        self.client.request("POST", &format!("{REQUESTS}{query}"), Some(("application/json", &object)))
    }

    fn is_let_through(&self, text: &str) -> Result<bool> {
        let reply = self.ask_for("", text, SIGNER, "?dryRun=All")?;
        match reply.status {
            201 => Ok(true),
            422 => Ok(false),
            _ => Err(format!("{} {}", reply.status, reply.body)),
        }
    }

    /// Of a board of ours: if it is not, the error says who said no, and to what.
    fn lets_through(&self, what: &str, text: &str) -> Result<()> {
        let reply = self.ask_for("", text, SIGNER, "?dryRun=All")?;
        if reply.status == 201 { Ok(()) } else { Err(format!("{what}: {} {}\n{text}", reply.status, reply.body)) }
    }

    /// It was the policy, and no other check, that said no.
    fn is_fenced_off(&self, what: &str, text: &str) -> Result<()> {
        let reply = self.ask_for("", text, SIGNER, "?dryRun=All")?;
        let said = reply.body["message"].as_str().unwrap_or_default();
        let is_policy = said.contains(&format!("ValidatingAdmissionPolicy '{}'", self.policy));
        if reply.status == 422 && is_policy { Ok(()) } else { Err(format!("{what}: {} {said:.120}", reply.status)) }
    }

    /// Policies take a moment until the server follows them.
    fn wait_for_the_fence(&self) -> Result<()> {
        let other = pem(&request(&node_subject("cp-1"), Curve::P256, &[])?);
        wait_until("the fence", SOON, || self.is_fenced_off("cp-1", &other))
    }
}

/// As a board asks, byte for byte.
fn own_request(name: &str) -> Result<String> {
    request(&node_subject(name), Curve::P256, &[]).map(|der| pem(&der))
}

fn name_of_length(prefix: &str, length: usize) -> String {
    let rest = "0123456789-abcdefghijklmnopqrstuvwxyz.0123456789abcdefghijklmnop";
    format!("{prefix}{}", &rest[..length - prefix.len()])
}

/// A cluster of its own, with the files of the folder as an administrator applies them.
fn a_fleets_token_makes_nodes_of_its_names_and_nothing_else(_: &Cluster) -> Result<()> {
    let cluster = Cluster::start(Options::default())?;
    apply_files(&cluster, &["bootstrap.yaml", "auto-approve.yaml"])?;
    apply(&cluster, "names.yaml", &names_policy(&["edge-"])?.map_err(|e| e.1)?)?;
    let thief = Holder::new(&cluster, FLEET_GROUP, "nodepulse-names")?;
    thief.wait_for_the_fence()?;
    for length in 6..=52 {
        for _ in 0..3 {
            let name = name_of_length("edge-", length);
            thief.lets_through(&format!("{name} ({length})"), &own_request(&name)?)?;
        }
    }
    let through: Vec<String> =
        attacks()?.iter().filter_map(|(what, text)| thief.is_fenced_off(what, text).err()).collect();
    assert!(through.is_empty(), "{through:#?}");
    for signer in ["kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving", "example.com/own"] {
        let reply = thief.ask_for("", &own_request("edge-1")?, signer, "?dryRun=All")?;
        assert!(reply.status == 422 || reply.status == 403, "{signer}: {} {}", reply.status, reply.body);
    }
    // In earnest: what is let through is signed, for that name.
    thief.ask_for("board", &own_request("edge-77")?, SIGNER, "")?.accepted("POST", REQUESTS)?;
    let signed = signed(&cluster, "board")?;
    assert!(holds(&signed, "system:node:edge-77"), "another name was signed");
    whatever_is_put_together_is_signed_for_its_names_alone(&cluster, &thief)?;
    // Tokens of other groups are not its business.
    let other = Holder::new(&cluster, KUBEADM_GROUP, "nodepulse-names")?;
    other.lets_through("cp-1", &own_request("cp-1")?)?;
    Ok(())
}

/// What somebody tries who knows how the fence is built.
fn attacks() -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    let mut add = |what: &str, text: String| all.push((what.to_owned(), text));
    for name in ["cp-1", "edge", "edge-", "xedge-1", "Edge-1", "edgE-1", "edg-e1", "edgf-1", "fdge-1", "edge.1", "e"] {
        add(name, own_request(name)?);
    }
    for length in (4..=60).step_by(2) {
        add(&format!("another name of {length}"), own_request(&name_of_length("node", length))?);
    }
    for length in 53..=60 {
        add(&format!("too long, {length}"), own_request(&name_of_length("edge-", length))?);
    }
    odd_subjects(&mut add)?;
    smuggled(&mut add)?;
    Ok(all)
}

fn odd_subjects(add: &mut impl FnMut(&str, String)) -> Result<()> {
    let organization = |text: &str| attribute(ORGANIZATION, PRINTABLE, text);
    let node = |name: &str| attribute(COMMON_NAME, PRINTABLE, &format!("system:node:{name}"));
    let nodes = || organization("system:nodes");
    let utf8_name = attribute(COMMON_NAME, UTF8, "system:node:edge-1");
    let utf8_group = attribute(ORGANIZATION, UTF8, "system:nodes");
    for (what, subject) in [
        ("the name first", subject(&[vec![node("edge-1")], vec![nodes()]])),
        ("both in one set", subject(&[vec![node("edge-1"), nodes()]])),
        ("masters", subject(&[vec![organization("system:masters")], vec![node("edge-1")]])),
        ("masters as well", subject(&[vec![nodes()], vec![organization("system:masters")], vec![node("edge-1")]])),
        ("masters in the same set", subject(&[vec![nodes(), organization("system:masters")], vec![node("edge-1")]])),
        ("masters at the end", subject(&[vec![nodes()], vec![node("edge-1")], vec![organization("system:masters")]])),
        ("a second name", subject(&[vec![nodes()], vec![node("edge-1")], vec![node("cp-1")]])),
        ("a first name", subject(&[vec![nodes()], vec![node("cp-1")], vec![node("edge-1")]])),
        ("two names in one set", subject(&[vec![nodes()], vec![node("edge-1"), node("cp-1")]])),
        ("no group", subject(&[vec![node("edge-1")]])),
        ("no name", subject(&[vec![nodes()]])),
        ("nothing", subject(&[])),
        ("a name in UTF-8", subject(&[vec![nodes()], vec![utf8_name]])),
        ("a group in UTF-8", subject(&[vec![utf8_group], vec![node("edge-1")]])),
        ("another user", subject(&[vec![nodes()], vec![attribute(COMMON_NAME, PRINTABLE, "system:admin:edge-1")]])),
        ("the prefix without the user", subject(&[vec![nodes()], vec![attribute(COMMON_NAME, PRINTABLE, "edge-1")]])),
    ] {
        add(what, pem(&request(&subject, Curve::P256, &[])?));
    }
    add("another curve", pem(&request(&node_subject("edge-1"), Curve::P384, &[])?));
    // Of the second, all but the length of the whole is as it should be.
    for (name, bytes) in [("edge-1", 200), ("edge-0123456789-abcdefghijklmn", 30)] {
        let text = tlv(0x31, &tlv(0x0c, &vec![b'x'; bytes]));
        let oid = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 7];
        let password = tlv(SEQUENCE, &[&oid, text.as_slice()].concat());
        add("attributes", pem(&request(&node_subject(name), Curve::P256, &password)?));
    }
    add("another version", pem(&request_of_version(1, &node_subject("edge-1"), Curve::P256, &[])?));
    Ok(())
}

/// The server reads the first block that it can; the policy sees text.
fn smuggled(add: &mut impl FnMut(&str, String)) -> Result<()> {
    let (own, evil) = (own_request("edge-1")?, own_request("cp-1")?);
    let kind = "CERTIFICATE REQUEST";
    let body = |text: &str| text.lines().filter(|line| !line.starts_with('-')).collect::<Vec<_>>().join("\n") + "\n";
    let (own_body, evil_body) = (body(&own), body(&evil));
    let half: String = own.lines().take(3).map(|line| format!("{line}\n")).collect();
    let mut broken = own.clone();
    broken.replace_range(200..201, "*");
    let mut flat = own_body.replace('\n', "");
    flat.insert(180, '*');
    for (what, text) in [
        ("a broken block first", format!("{broken}{evil}")),
        ("a block that never ends first", format!("{half}{evil}")),
        ("a block of another kind inside", format!("{half}-----END CERTIFICATE-----\n{evil}")),
        ("an end with words behind it", format!("{half}-----END {kind}----- x\n{evil}")),
        ("a broken line first", format!("{}{evil}", block(kind, &lines(&flat, 64)))),
        ("two good blocks", format!("{own}{evil}")),
        ("the other first", format!("{evil}{own}")),
        ("words before it", format!("hello\n{own}")),
        ("a line before it", format!("\n{own}")),
        ("a header", block(kind, &format!("A: b\n\n{own_body}"))),
        ("a header and another body", format!("{half}A: b\n\n{}", block(kind, &evil_body))),
        ("lines of 76", block(kind, &lines(&own_body.replace('\n', ""), 76))),
        ("one line", block(kind, &lines(&own_body.replace('\n', ""), 4096))),
        ("line ends of DOS", own.replace('\n', "\r\n")),
        ("a space in the body", block(kind, &own_body.replacen("MI", "M I", 1))),
        ("a line end in the body", block(kind, &own_body.replacen("MI", "M\nI", 1))),
        ("line ends at the start", block(kind, &format!("\n\n\n\n{own_body}"))),
        ("a block with more dashes first", format!("{}{evil}", own.replacen("-----\n", "------\n", 1))),
        ("dashes behind it", format!("{own}-----\n")),
        ("many dashes behind it", format!("{own}----------------\n")),
        ("the other behind a comment", format!("{own}# {evil}")),
    ] {
        add(what, text);
    }
    Ok(())
}

/// Pieces of own and other requests in any order: what the fence lets through is signed for a name of the fleet.
fn whatever_is_put_together_is_signed_for_its_names_alone(cluster: &Cluster, thief: &Holder) -> Result<()> {
    const TRIES: u32 = 400;
    let (own, evil) = (own_request("edge-9")?, own_request("cp-9")?);
    let pieces = |text: &str| text.lines().map(|line| format!("{line}\n")).collect::<Vec<_>>();
    let mut all = [pieces(&own), pieces(&evil)].concat();
    all.extend(["\n", "-----", "*\n", "x: y\n", "-----END CERTIFICATE-----\n", "\t", "-----BEGIN "].map(str::to_owned));
    let mut state = 0x9e37_79b9_u32;
    let mut next = |below: usize| {
        // xorshift: the same attacks each time.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % below
    };
    let (mut passed, mut signed_names) = (0, 0);
    for number in 0..TRIES {
        // An own request, into which one or two pieces are put somewhere, or which loses some.
        let mut text = if next(4) == 0 { pieces(&evil) } else { pieces(&own) };
        for _ in 0..=next(2) {
            match next(3) {
                0 => text.insert(next(text.len() + 1), all[next(all.len())].clone()),
                1 => drop(text.remove(next(text.len()))),
                _ => text.extend(pieces(if next(2) == 0 { &evil } else { &own })),
            }
        }
        let text = text.concat();
        if !thief.is_let_through(&text)? {
            continue;
        }
        passed += 1;
        let name = format!("composed-{number}");
        thief.ask_for(&name, &text, SIGNER, "")?.accepted("POST", REQUESTS)?;
        if let Ok(certificate) = signed(cluster, &name) {
            signed_names += 1;
            assert!(holds(&certificate, "system:node:edge-9"), "signed for another name: {text}");
        }
    }
    assert!(passed >= 5 && signed_names >= 1, "{passed} passed: the pieces attack nothing");
    Ok(())
}

/// The certificate that came of a request, as DER.
fn signed(cluster: &Cluster, request: &str) -> Result<Vec<u8>> {
    wait_until("a signed certificate", SOON, || {
        let found: Value = cluster.api.admin.get(&format!("{REQUESTS}/{request}"))?;
        let pem = found["status"]["certificate"].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        let pem = pem.and_then(|pem| String::from_utf8(pem).ok()).ok_or_else(|| found["status"].to_string())?;
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        BASE64_STANDARD.decode(body).map_err(|e| e.to_string())
    })
}

fn holds(der: &[u8], user: &str) -> bool {
    let wanted = tlv(PRINTABLE, user.as_bytes());
    der.windows(wanted.len()).any(|window| window == wanted)
}

/// Whoever is in the group may ask for certificates.
fn bootstrapper(group: &str) -> String {
    format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: '{group}'}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:node-bootstrapper'}}\n\
         subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: '{group}'}}]\n"
    )
}

/// The conditions of a fence, each as its text. Two forms of a request are each compared in three parts.
fn conditions(policy: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for (start, end) in [
        ("object.spec.signerName == '", "'"),
        ("variables.text.matches('", "')"),
        ("variables.text.substring(64, 148) in [", "]"),
        ("variables.text.substring(148).matches('", "')"),
    ] {
        for (at, _) in policy.match_indices(start) {
            let length = policy[at + start.len()..].find(end).map(|length| start.len() + length + end.len());
            all.extend(length.map(|length| &policy[at..at + length]));
        }
    }
    all
}

fn a_fence_without_any_one_of_its_conditions_lets_something_through(_: &Cluster) -> Result<()> {
    let cluster = Cluster::start(Options::default())?;
    let group = |number: usize| format!("system:bootstrappers:piece:{number}");
    let fence = |number: usize| names_policy(&["edge-", &group(number)])?.map_err(|e| e.1);
    let count = conditions(&fence(0)?).len();
    assert_eq!(count, 8, "the signer, the blocks, and two forms of three parts");
    let mut text = String::new();
    for number in 0..count {
        let whole = fence(number)?;
        text += &format!("---\n{}", whole.replacen(conditions(&whole)[number], "1 == 1", 1));
        text += &bootstrapper(&group(number));
    }
    apply(&cluster, "pieces.yaml", &text)?;
    let attacks = attacks()?;
    for number in 0..count {
        let thief = Holder::new(&cluster, &group(number), &format!("nodepulse-names-piece.{number}"))?;
        const OF_CLIENTS: &str = "kubernetes.io/kube-apiserver-client";
        let signer = if number == 0 { OF_CLIENTS } else { SIGNER };
        let ours = ("of another signer".to_owned(), own_request("edge-1")?);
        let attacks = if number == 0 { std::slice::from_ref(&ours) } else { &attacks };
        // Before the server follows it, everything is let through. This is fenced off by two conditions.
        wait_until("a fence", SOON, || {
            let reply = thief.ask_for("", &own_request("cp-1")?, OF_CLIENTS, "?dryRun=All")?;
            let said = reply.body["message"].as_str().unwrap_or_default().to_owned();
            if said.contains(&thief.policy) { Ok(()) } else { Err(said) }
        })?;
        let mut through = Vec::new();
        for (what, text) in attacks {
            if thief.ask_for("", text, signer, "?dryRun=All")?.status == 201 {
                through.push(what.as_str());
            }
        }
        assert!(!through.is_empty(), "nothing of the fence is missing without its condition {number}");
        println!("without condition {number}: {} of {} let through, {}", through.len(), attacks.len(), through[0]);
    }
    Ok(())
}

fn a_fence_holds_for_beginnings_of_every_length(_: &Cluster) -> Result<()> {
    let cluster = Cluster::start(Options::default())?;
    let prefixes: Vec<String> = (1..=32).step_by(3).chain([2, 6, 26]).map(|many| name_of_length("p", many)).collect();
    let (mut policies, mut bindings) = (String::new(), String::new());
    for (number, prefix) in prefixes.iter().enumerate() {
        let group = format!("system:bootstrappers:batch:{number}");
        policies.push_str(&names_policy(&[prefix, &group])?.map_err(|e| e.1)?.replacen("#", "---\n#", 1));
        bindings.push_str(&bootstrapper(&group));
    }
    apply(&cluster, "batches.yaml", &format!("{policies}{bindings}"))?;
    for (number, prefix) in prefixes.iter().enumerate() {
        let group = format!("system:bootstrappers:batch:{number}");
        let holder = Holder::new(&cluster, &group, &format!("nodepulse-names-batch.{number}"))?;
        holder.wait_for_the_fence()?;
        if prefix == "p" {
            holder.lets_through("dashes by chance", DASHES_BY_CHANCE)?;
        }
        for length in (prefix.len() + 1..=52).step_by(5).chain([20, 21, 22, 25, 26, 52]).filter(|n| *n > prefix.len()) {
            let name = format!("{prefix}{}", "z".repeat(length - prefix.len()));
            holder.lets_through(&format!("{name} ({length}) of {prefix}"), &own_request(&name)?)?;
            // Its last letter, its first, and one in the middle are another's.
            for at in [prefix.len() - 1, 0, prefix.len() / 2] {
                let mut other = name.clone();
                let letter = if other.as_bytes()[at] == b'q' { "r" } else { "q" };
                other.replace_range(at..=at, letter);
                holder.is_fenced_off(&format!("{other} of {prefix}"), &own_request(&other)?)?;
            }
        }
    }
    Ok(())
}

fn a_fence_is_not_printed_for_what_is_no_name(_: &Cluster) -> Result<()> {
    let long = "x".repeat(33);
    for arguments in [
        &[][..],
        &[""],
        &["Edge-"],
        &["-edge"],
        &["edge'"],
        &["edge*"],
        &["edge\n"],
        &[&long],
        &["edge-", "system:masters"],
        &["edge-", "system:bootstrappers:"],
        &["edge-", "system:bootstrappers:a-"],
        &["edge-", "system:bootstrappers:a'b"],
        &["edge-", "system:bootstrappers:a", "more"],
    ] {
        let refused = names_policy(arguments)?;
        assert!(
            matches!(&refused, Err((64, said)) if said.starts_with("names-policy: ")),
            "{arguments:?}: {refused:?}"
        );
    }
    Ok(())
}
