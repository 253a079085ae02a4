//! What kubeconfigs say, and every reason to refuse one.

use super::*;

const PATH: &str = "/etc/nodepulse/kubeconfig";

fn server(host: &str, port: u16) -> Server {
    Server { host: host.to_owned(), port, path_prefix: String::new() }
}

/// As kubeadm writes it, with `user` as the body of the one user.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster:
    server: https://10.0.0.1:6443
{cluster}
contexts:
- name: node@kubernetes
  context:
    cluster: kubernetes
    user: node
current-context: node@kubernetes
users:
- name: node
  user:
{user}
"
    )
}

fn parse(text: &str) -> Result<Kubeconfig, Problem> {
    Kubeconfig::parse(text, PATH)
}

/// That a text is refused because of this field, in a sentence that begins so.
fn is_refused(text: &str, field: &str, start: &str) {
    let problem = parse(text).unwrap_err();
    assert_eq!(problem.field, field, "{problem}");
    assert!(problem.text.starts_with(start), "{problem}");
    assert!(problem.to_string().starts_with("/etc/nodepulse/kubeconfig:"), "{problem}");
}

#[test]
fn a_kubelet_kubeconfig_points_at_its_rotated_certificate() {
    let pem = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    let text = kubeconfig(
        "    certificate-authority-data: Q0E=",
        &format!("    client-certificate: {pem}\n    client-key: {pem}"),
    );
    assert_eq!(
        parse(&text).unwrap(),
        Kubeconfig {
            server: server("10.0.0.1", 6443),
            other_servers: Vec::new(),
            last_resorts: Vec::new(),
            certificate_authority: Some(Material::Data(b"CA".to_vec())),
            tls_server_name: None,
            proxy: None,
            credentials: Credentials::Certificate {
                certificate: Material::File(pem.to_owned()),
                key: Material::File(pem.to_owned()),
            },
            context: "node@kubernetes".to_owned(),
            path: PATH.to_owned(),
        }
    );
}

#[test]
fn relative_paths_start_at_the_folder_of_the_kubeconfig() {
    let text = kubeconfig(
        "    certificate-authority: pki/ca.crt\n    tls-server-name: kubernetes\n    proxy-url: http://proxy:3128",
        "    tokenFile: token\n    token: old",
    );
    let read = parse(&text).unwrap();
    assert_eq!(read.certificate_authority, Some(Material::File("/etc/nodepulse/pki/ca.crt".to_owned())));
    assert_eq!(read.credentials, Credentials::Token(Material::File("/etc/nodepulse/token".to_owned())));
    assert_eq!(read.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(read.proxy, Some(server("proxy", 3128)));
}

#[test]
fn data_wins_over_a_file_and_may_be_folded() {
    let text = kubeconfig(
        "    certificate-authority: ca.crt\n    certificate-authority-data: |\n      SGVs\n      bG8=\n",
        "    client-certificate-data: Yw==\n    client-key-data: aw==\n    token: also",
    );
    let read = parse(&text).unwrap();
    assert_eq!(read.certificate_authority, Some(Material::Data(b"Hello".to_vec())));
    let (certificate, key) = (Material::Data(b"c".to_vec()), Material::Data(b"k".to_vec()));
    assert_eq!(read.credentials, Credentials::Certificate { certificate, key });
}

#[test]
fn one_of_several_contexts_is_used() {
    let text = "{\"kind\": \"Config\", \"clusters\": [
\t{\"name\": \"a\", \"cluster\": {\"server\":\"https://a:1\"}},
\t{\"name\": \"b\", \"cluster\": {\"server\":\"https:\\/\\/b:2\"}}],
\"users\": [{\"name\":\"u\",\"user\":{\"token\":\"secret\"}}],
\"contexts\": [
\t{\"name\": \"first\", \"context\": {\"cluster\": \"a\", \"user\": \"u\"}},
\t{\"name\": \"second\", \"context\": {\"cluster\": \"b\", \"user\": \"\"}}],
\"current-context\": \"first\"}";
    let first = parse(text).unwrap();
    assert_eq!((first.server, first.context.as_str()), (server("a", 1), "first"));
    assert_eq!(first.credentials, Credentials::Token(Material::Data(b"secret".to_vec())));
    let current = |name: &str| parse(&text.replace("\"first\"}", &format!("\"{name}\"}}")));
    let second = current("second").unwrap();
    assert_eq!((second.server, second.credentials), (server("b", 2), Credentials::Anonymous));
    assert_eq!(current("third").unwrap_err().text, "no entry is named \"third\"; there are first, second");
}

/// What an administrator has in one file are different clusters.
#[test]
fn more_servers_are_those_of_numbered_clusters_with_the_same_ca() {
    let others = |text: &str| parse(text).unwrap().servers().map(Server::authority).collect::<Vec<_>>();
    let cluster =
        |name: &str, server: &str, rest: &str| format!("- {{name: {name}, cluster: {{server: {server}{rest}}}}}\n");
    let ca = ", certificate-authority-data: Q0E=";
    let rest = "users: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
                current-context: c\n";
    let clusters = [
        cluster("k-3", "https://c:1", ca),
        cluster("k", "https://a:1", ca),
        cluster("k-2", "https://b:1", ca),
        cluster("k-4", "https://other-ca:1", ", certificate-authority-data: Q0I="),
        cluster("k-5", "https://system-roots:1", ""),
        cluster("k-6", "http://plain:1", ca),
        cluster("k2", "https://another:1", ca),
        cluster("k-two", "https://another:1", ca),
        cluster("j-2", "https://another:1", ca),
    ];
    assert_eq!(others(&format!("clusters:\n{}{rest}", clusters.concat())), ["a:1", "c:1", "b:1"]);
    let without = clusters.concat().replace(ca, "");
    assert_eq!(others(&format!("clusters:\n{without}{rest}")), ["a:1"], "the system's roots say nothing of a cluster");
    let many: String =
        (2..60).map(|number| cluster(&format!("k-{number}"), &format!("https://s{number}"), ca)).collect();
    let many = others(&format!("clusters:\n{}{many}{rest}", clusters[1]));
    assert_eq!(many.len(), 1 + limits::JOIN_SERVERS);
}

#[test]
fn every_cluster_is_read_without_a_context() {
    let cluster_info = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: Q0E=\n    \
        server: https://10.0.0.1:6443\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n";
    let expected = (server("10.0.0.1", 6443), Some(Material::Data(b"CA".to_vec())));
    assert_eq!(clusters(cluster_info, ""), Ok(vec![expected]));
    let two = "clusters:\n- cluster: {server: a}\n- cluster: {server: 'b:1', certificate-authority: ca.crt}\n";
    let found = clusters(two, PATH).unwrap();
    assert_eq!(found[0], (server("a", 443), None));
    assert_eq!(found[1], (server("b", 1), Some(Material::File("/etc/nodepulse/ca.crt".to_owned()))));
    assert_eq!(clusters("kind: Config", PATH), Ok(Vec::new()));
    let wrong = clusters("clusters:\n- name: a\n", PATH).unwrap_err();
    assert_eq!((wrong.field.as_str(), wrong.text.as_str()), ("clusters[0].cluster.server", "is missing"));
    assert_eq!(clusters("kind: Pod", PATH).unwrap_err().field, "kind");
    let many = format!("clusters: [{}]", "{cluster: {server: a}}, ".repeat(100));
    assert_eq!(clusters(&many, PATH).unwrap().len(), limits::JOIN_SERVERS);
}

#[test]
fn a_secret_never_reaches_a_log() {
    let read = parse(&kubeconfig("", "    token: secret")).unwrap();
    assert!(!format!("{read:?}").contains("secret"));
}

#[test]
fn an_unverified_server_is_refused_with_what_to_do() {
    for yes in ["true", "'yes'"] {
        let text = kubeconfig(&format!("    insecure-skip-tls-verify: {yes}"), "    token: t");
        is_refused(
            &text,
            "clusters[kubernetes].cluster.insecure-skip-tls-verify",
            "is refused: anybody between this board",
        );
        assert!(parse(&text).unwrap_err().text.contains("set certificate-authority"));
    }
    assert!(parse(&kubeconfig("    insecure-skip-tls-verify: false", "    token: t")).is_ok());
}

#[test]
fn ways_to_log_in_that_we_lack_are_refused_with_a_sentence() {
    for (user, name, why) in [
        ("    exec:\n      command: aws", "exec", "a plugin is another program"),
        ("    auth-provider:\n      name: gcp", "auth-provider", "a plugin is another program"),
        ("    username: admin", "username", "no passwords since 1.19"),
        ("    password: admin", "password", "no passwords since 1.19"),
        ("    as: system:admin\n    token: t", "as", "a node acts as itself"),
        ("    as-groups: [system:masters]", "as-groups", "a node acts as itself"),
        ("    as-uid: '0'", "as-uid", "a node acts as itself"),
    ] {
        let text = kubeconfig("", user);
        is_refused(&text, &format!("users[node].user.{name}"), "is not supported");
        assert!(parse(&text).unwrap_err().text.contains(why), "{name}");
    }
    assert!(parse(&kubeconfig("", "    token: t\n    exec: null\n    as: ''")).is_ok());
}

#[test]
fn a_server_must_be_there_and_be_https() {
    let field = "clusters[kubernetes].cluster.server";
    is_refused(&kubeconfig("", "").replace("https://", "http://"), field, "http:// is refused");
    let none = kubeconfig("", "").replace("    server: https://10.0.0.1:6443", "    tls-server-name: x");
    is_refused(&none, field, "is missing");
    let proxy = kubeconfig("    proxy-url: socks5://p:1", "");
    is_refused(&proxy, "clusters[kubernetes].cluster.proxy-url", "a proxy by socks5:// is not supported");
}

#[test]
fn names_must_lead_somewhere() {
    let lost = kubeconfig("", "    token: t").replace("    user: node", "    user: nobody");
    is_refused(&lost, "users", "no entry is named \"nobody\"; there are node");
    let userless = &lost[..lost.find("users:").unwrap()];
    is_refused(userless, "users", "no entry is named \"nobody\": the list is empty");
    let no_current = kubeconfig("", "").replace("current-context: node@kubernetes", "");
    is_refused(&no_current, "", "no current-context: set it to one of node@kubernetes");
    is_refused("kind: Config", "", "no context: is this file a kubeconfig?");
    let clusterless = kubeconfig("", "").replace("    cluster: kubernetes", "    namespace: x");
    is_refused(&clusterless, "contexts[node@kubernetes].context.cluster", "is missing");
}

#[test]
fn values_must_have_the_right_shape() {
    let list = kubeconfig("    certificate-authority: [a]", "");
    is_refused(&list, "clusters[kubernetes].cluster.certificate-authority", "must be a single value, not a list");
    let scalar = kubeconfig("", "").replace("  user:\n", "  user: token");
    is_refused(&scalar, "users[node].user", "must be a map, not a single value");
    let base64 = kubeconfig("    certificate-authority-data: '-----BEGIN CERTIFICATE-----'", "");
    is_refused(&base64, "clusters[kubernetes].cluster.certificate-authority-data", "is not base64: take the output");
    let half = kubeconfig("", "    client-certificate: node.crt");
    is_refused(&half, "users[node].user.client-key", HALF_A_CERTIFICATE);
    let half = kubeconfig("", "    client-key-data: aw==");
    is_refused(&half, "users[node].user.client-certificate", HALF_A_CERTIFICATE);
    let token = kubeconfig("", "    token: \"a\\r\\nb: c\"");
    is_refused(&token, "users[node].user.token", "has spaces or characters");
}

#[test]
fn what_is_no_kubeconfig_says_what_it_is() {
    is_refused("", "", "not a kubeconfig (kind Config) but nothing");
    is_refused("- a", "", "not a kubeconfig (kind Config) but a list");
    is_refused(
        "kind: NodePulseConfiguration",
        "kind",
        "not a kubeconfig (kind Config) but kind NodePulseConfiguration",
    );
    is_refused("kind: Config\nkind: Config", "", "`kind` is already in line 1");
    let text = parse("a: 1\nb: &x [*x]").unwrap_err().to_string();
    assert_eq!(text, "/etc/nodepulse/kubeconfig:2: aliases (`*name`) are not read: write the value out");
}

#[test]
fn every_prefix_of_a_kubeconfig_is_read_or_refused_without_a_panic() {
    let text =
        kubeconfig("    certificate-authority-data: Q0E=", "    client-certificate: \"\u{e9}\"\n    client-key: 'k'");
    for (end, _) in text.char_indices() {
        let _ = parse(&text[..end]);
    }
}

#[test]
fn servers_that_the_settings_name_go_before_those_that_are_known() {
    let servers = |names: &[&str]| -> Vec<Server> {
        names.iter().map(|name| parse_server(&format!("https://{name}:6443")).unwrap()).collect()
    };
    let known = servers(&["b", "a", "inner"]);
    for unchanged in [&[][..], &["a", "b"], &["b"], &["b", "inner"]] {
        assert_eq!(Server::moved(&known, &servers(unchanged)), None, "{unchanged:?}");
    }
    for (named, then) in [
        (&["new"][..], &["new", "b", "a", "inner"][..]),
        (&["new", "b"], &["new", "b", "a", "inner"]),
        (&["a"], &["a", "b", "inner"]),
    ] {
        let moved = Server::moved(&known, &servers(named)).unwrap();
        assert_eq!(moved, servers(then), "{named:?}");
        assert_eq!(Server::moved(&moved, &servers(named)), None, "once");
    }
    let many: Vec<String> = (0..40).map(|number| format!("s{number}")).collect();
    let many = servers(&many.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(Server::moved(&known, &many).unwrap().len(), limits::JOIN_SERVERS);
    let of_rke2 = parse_server("https://new:9345").unwrap();
    assert_eq!(of_rke2.clone().of_api(Some((9345, 6443))).port, 6443);
    assert_eq!((of_rke2.clone().of_api(Some((6443, 6443))).port, of_rke2.of_api(None).port), (9345, 9345));
}
