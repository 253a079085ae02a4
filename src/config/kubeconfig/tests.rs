//! What kubeconfigs say, and every reason to refuse one.

use super::*;
use crate::config::yaml::Why as Yaml;

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

fn parse(text: &str) -> Result<Kubeconfig, KubeconfigError> {
    Kubeconfig::parse(text, PATH, None)
}

/// The reason, and that the error names its place and has words.
fn refused(text: &str, field: &str) -> Why {
    let error = parse(text).unwrap_err();
    assert_eq!(error.field, field, "{error}");
    assert!(!error.why.word().is_empty() && error.to_string().contains(&error.why.to_string()));
    error.why
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
    let second = Kubeconfig::parse(text, PATH, Some("second")).unwrap();
    assert_eq!((second.server, second.credentials), (server("b", 2), Credentials::Anonymous));
    let third = Kubeconfig::parse(text, PATH, Some("third")).unwrap_err();
    assert_eq!(third.why, Why::NoSuchName { name: "third".to_owned(), known: "first, second".to_owned() });
}

#[test]
fn a_secret_never_reaches_a_log() {
    let read = parse(&kubeconfig("", "    token: secret")).unwrap();
    assert!(!format!("{read:?}").contains("secret"));
}

#[test]
fn an_unverified_server_is_refused_with_what_to_do() {
    let field = "clusters[kubernetes].cluster.insecure-skip-tls-verify";
    let why = refused(&kubeconfig("    insecure-skip-tls-verify: true", "    token: t"), field);
    assert_eq!(why, Why::InsecureSkipTlsVerify);
    assert!(why.to_string().contains("certificate-authority"));
    assert_eq!(refused(&kubeconfig("    insecure-skip-tls-verify: 'yes'", ""), field), Why::InsecureSkipTlsVerify);
    assert!(parse(&kubeconfig("    insecure-skip-tls-verify: false", "    token: t")).is_ok());
}

#[test]
fn ways_to_log_in_that_we_lack_are_refused_with_a_sentence() {
    for (user, name) in [
        ("    exec:\n      command: aws", "exec"),
        ("    auth-provider:\n      name: gcp", "auth-provider"),
        ("    username: admin", "username"),
        ("    password: admin", "password"),
        ("    as: system:admin\n    token: t", "as"),
        ("    as-groups: [system:masters]", "as-groups"),
        ("    as-uid: '0'", "as-uid"),
    ] {
        let why = refused(&kubeconfig("", user), &format!("users[node].user.{name}"));
        assert_eq!(why, Why::Refused(name));
        assert!(why.to_string().starts_with("is not supported"));
    }
    assert!(parse(&kubeconfig("", "    token: t\n    exec: null\n    as: ''")).is_ok());
}

#[test]
fn a_server_must_be_there_and_be_https() {
    let plain = kubeconfig("", "").replace("https://", "http://");
    assert_eq!(refused(&plain, "clusters[kubernetes].cluster.server"), Why::Server(ServerError::PlainHttp));
    let none = kubeconfig("", "").replace("    server: https://10.0.0.1:6443", "    tls-server-name: x");
    assert_eq!(refused(&none, "clusters[kubernetes].cluster.server"), Why::Missing);
    let proxy = kubeconfig("    proxy-url: socks5://p:1", "");
    let why = Why::Proxy(ServerError::ProxyScheme("socks5".to_owned()));
    assert_eq!(refused(&proxy, "clusters[kubernetes].cluster.proxy-url"), why);
}

#[test]
fn names_must_lead_somewhere() {
    let lost = kubeconfig("", "    token: t").replace("    user: node", "    user: nobody");
    let why = Why::NoSuchName { name: "nobody".to_owned(), known: "node".to_owned() };
    assert_eq!(refused(&lost, "users"), why);
    let no_current = kubeconfig("", "").replace("current-context: node@kubernetes", "");
    assert_eq!(refused(&no_current, ""), Why::NoContext("node@kubernetes".to_owned()));
    assert_eq!(refused("kind: Config", ""), Why::NoContext(String::new()));
    let clusterless = kubeconfig("", "").replace("    cluster: kubernetes", "    namespace: x");
    assert_eq!(refused(&clusterless, "contexts[node@kubernetes].context.cluster"), Why::Missing);
}

#[test]
fn values_must_have_the_right_shape() {
    let list = kubeconfig("    certificate-authority: [a]", "");
    assert_eq!(refused(&list, "clusters[kubernetes].cluster.certificate-authority"), Why::NotText("a list"));
    let scalar = kubeconfig("", "").replace("  user:\n", "  user: token");
    assert_eq!(refused(&scalar, "users[node].user"), Why::NotAMap("a single value"));
    let base64 = kubeconfig("    certificate-authority-data: '-----BEGIN CERTIFICATE-----'", "");
    assert_eq!(refused(&base64, "clusters[kubernetes].cluster.certificate-authority-data"), Why::NotBase64);
    let half = kubeconfig("", "    client-certificate: node.crt");
    assert_eq!(refused(&half, "users[node].user.client-key"), Why::HalfACertificate);
    let half = kubeconfig("", "    client-key-data: aw==");
    assert_eq!(refused(&half, "users[node].user.client-certificate"), Why::HalfACertificate);
    let token = kubeconfig("", "    token: \"a\\r\\nb: c\"");
    assert_eq!(refused(&token, "users[node].user.token"), Why::Token);
}

#[test]
fn what_is_no_kubeconfig_says_what_it_is() {
    assert_eq!(refused("", ""), Why::NotAKubeconfig("nothing".to_owned()));
    assert_eq!(refused("- a", ""), Why::NotAKubeconfig("a list".to_owned()));
    assert_eq!(
        refused("kind: NodePulseConfiguration", "kind"),
        Why::NotAKubeconfig("kind NodePulseConfiguration".to_owned())
    );
    assert_eq!(
        refused("kind: Config\nkind: Config", ""),
        Why::Yaml(Yaml::DuplicateKey { key: "kind".to_owned(), first_line: 1 })
    );
    assert_eq!(parse("a: 1\nb: &x [*x]").unwrap_err().to_string(), format!("2: {}", Yaml::Alias));
}

#[test]
fn every_prefix_of_a_kubeconfig_is_read_or_refused_without_a_panic() {
    let text =
        kubeconfig("    certificate-authority-data: Q0E=", "    client-certificate: \"\u{e9}\"\n    client-key: 'k'");
    for (end, _) in text.char_indices() {
        let _ = parse(&text[..end]);
    }
}
