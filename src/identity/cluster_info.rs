//! Turns the ConfigMap `kube-public/cluster-info` into the cluster's server and CAs, and says who signed it (JOIN-1 to JOIN-4).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac::{HMAC_SHA256, Key, sign, verify};
use rustls::pki_types::CertificateDer;
use serde::Deserialize;

use super::token::BootstrapToken;
use super::{IdentityError, pem};
use crate::config::kubeconfig::{self, Material, Server};
use crate::config::limits;
use crate::config::text_map::TextMap;

/// Asked for without any credential: only `system:anonymous` may read it.
pub const PATH: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// An answer. Nothing in it is to be trusted but what [`ClusterInfo::check_signature`] or a pin vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterInfo {
    data: TextMap<String>,
}

/// What the kubeconfig in it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Often an inner address: to be tried last (JOIN-7).
    pub server: Server,
    /// The bundle of CAs, the first [`limits::CA_CERTIFICATES`]; never empty.
    pub authorities: Vec<CertificateDer<'static>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    data: TextMap<String>,
}

impl ClusterInfo {
    /// `body`: JSON, at most [`limits::CLUSTER_INFO_BYTES`].
    pub fn read(body: &[u8]) -> Result<ClusterInfo, IdentityError> {
        let malformed = |what: &str| IdentityError::AnswerMalformed(format!("cluster-info: {what}"));
        if body.len() > limits::CLUSTER_INFO_BYTES {
            return Err(malformed("it is too long"));
        }
        let ConfigMap { data } = serde_json::from_slice(body).map_err(|error| malformed(&error.to_string()))?;
        Ok(ClusterInfo { data })
    }

    /// Whether who signed it knows the token, secret included (JOIN-2). The value is computed whole and compared in constant
    /// time; nothing of theirs is parsed.
    pub fn check_signature(&self, token: BootstrapToken<'_>) -> Result<(), IdentityError> {
        let id = token.id;
        let given = self.data.get(&format!("jws-kubeconfig-{id}"));
        let given = given.ok_or_else(|| IdentityError::TokenUnknown(id.to_owned()))?;
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
        let content = URL_SAFE_NO_PAD.encode(self.kubeconfig());
        let key = Key::new(HMAC_SHA256, token.secret.as_bytes());
        let mac = sign(&key, format!("{header}.{content}").as_bytes());
        let wanted = format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac));
        // Ring compares tags in constant time, and only those.
        let tag = sign(&key, wanted.as_bytes());
        verify(&key, given.as_bytes(), tag.as_ref()).map_err(|_| IdentityError::SignatureWrong(id.to_owned()))
    }

    /// Server and CAs, whoever signed them.
    pub fn cluster(&self) -> Result<Cluster, IdentityError> {
        let malformed = |what: String| IdentityError::AnswerMalformed(format!("cluster-info: {what}"));
        let clusters = kubeconfig::clusters(self.kubeconfig(), "").map_err(|problem| malformed(problem.text))?;
        let none = || malformed("its kubeconfig has no cluster with certificate-authority-data".to_owned());
        let Some((server, Some(Material::Data(bundle)))) = clusters.into_iter().next() else { return Err(none()) };
        let authorities: Vec<_> = pem::certificates(&bundle).take(limits::CA_CERTIFICATES).collect();
        if authorities.is_empty() { Err(none()) } else { Ok(Cluster { server, authorities }) }
    }

    fn kubeconfig(&self) -> &str {
        self.data.get("kubeconfig").map_or("", String::as_str)
    }
}

/// What it means that a server has no cluster-info for somebody without credentials.
pub fn refused(code: u16) -> Option<IdentityError> {
    match code {
        401 | 403 => Some(IdentityError::AnonymousRefused(code)),
        404 => Some(IdentityError::NoClusterInfo),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Token;
    use crate::identity::samples::{self, Key};
    use crate::identity::token::Kind;
    use serde_json::json;

    const TOKEN: &str = "abcdef.0123456789abcdef";
    const CONTENT: &str = "apiVersion: v1\nkind: Config\n";
    /// Computed with another implementation: HMAC-SHA256 with `0123456789abcdef` of header and [`CONTENT`].
    const SIGNATURE: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..vH_kT4yiol-nrAWgjfCYqvum5wsKETXe0S7OOp1VgnE";

    fn signature(info: &ClusterInfo, token: &str) -> Result<(), &'static str> {
        let token = Token::parse(token).unwrap();
        let Some(Kind::Bootstrap(token)) = Kind::of(&token) else { panic!("another kind") };
        info.check_signature(token).map_err(|error| error.word())
    }

    fn info(kubeconfig: &str, signatures: &[(&str, &str)]) -> ClusterInfo {
        let mut data = json!({ "kubeconfig": kubeconfig });
        signatures.iter().for_each(|(name, value)| data[name] = json!(value));
        let body = json!({ "kind": "ConfigMap", "metadata": { "name": "cluster-info" }, "data": data });
        ClusterInfo::read(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_signature_of_the_specification_is_right_and_any_other_is_wrong() {
        let signed = info(CONTENT, &[("jws-kubeconfig-abcdef", SIGNATURE)]);
        assert_eq!(signature(&signed, TOKEN), Ok(()));
        assert_eq!(signature(&signed, "abcdef.0123456789abcdeg"), Err("signature-wrong"));
        assert_eq!(signature(&signed, "abcdeg.0123456789abcdef"), Err("token-unknown"));
        let content = CONTENT.trim_end();
        assert_eq!(signature(&info(content, &[("jws-kubeconfig-abcdef", SIGNATURE)]), TOKEN), Err("signature-wrong"));
        let wrong = |value: &str| signature(&info(CONTENT, &[("jws-kubeconfig-abcdef", value)]), TOKEN);
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"abcdef"}"#);
        for value in
            ["", "..", &SIGNATURE[1..], &format!("{none}.."), &format!("{SIGNATURE}="), &format!("{SIGNATURE} ")]
        {
            assert_eq!(wrong(value), Err("signature-wrong"), "{value}");
        }
        samples::cut_and_changed(SIGNATURE.as_bytes(), |value| {
            if let Ok(value) = std::str::from_utf8(value)
                && value != SIGNATURE
            {
                assert_eq!(wrong(value), Err("signature-wrong"), "{value}");
            }
        });
    }

    #[test]
    fn the_cluster_is_the_server_and_the_bundle_of_its_kubeconfig() {
        let authority = || CertificateDer::from(samples::leaf("ca", &Key::new(), 2026, 2036));
        let bundle: Vec<_> = (0..limits::CA_CERTIFICATES + 1).map(|_| authority()).collect();
        let kubeconfig = |certificates| {
            let data = base64::engine::general_purpose::STANDARD.encode(pem::of_certificates(certificates));
            format!(
                "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {data}\n    \
                 server: https://10.0.0.1:6443\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\n\
                 preferences: {{}}\nusers: null\n"
            )
        };
        let cluster = info(&kubeconfig(&bundle[..2]), &[]).cluster().unwrap();
        assert_eq!(cluster.server.authority(), "10.0.0.1:6443");
        assert_eq!(cluster.authorities, bundle[..2]);
        let full = info(&kubeconfig(&bundle), &[]).cluster().unwrap();
        assert_eq!(full.authorities, bundle[..limits::CA_CERTIFICATES]);
        for bad in [
            "",
            "kind: Config",
            "clusters: [{cluster: {server: a}}]",
            "clusters: 1",
            "clusters: [{cluster: {server: a, certificate-authority-data: Q0E=}}]",
            "\t",
            "clusters: [{cluster: {server: a, \
            certificate-authority: /etc/passwd}}]",
        ] {
            let error = info(bad, &[]).cluster().unwrap_err();
            assert!(error.to_string().starts_with("the answer cannot be read: cluster-info: "), "{bad}: {error}");
        }
    }

    #[test]
    fn what_is_no_config_map_is_told_and_nothing_panics() {
        for bad in [&b""[..], b"1", b"{\"data\":[]}", b"{\"data\":{\"kubeconfig\":1}}", b"\xff"] {
            assert_eq!(ClusterInfo::read(bad).unwrap_err().word(), "answer-malformed");
        }
        assert!(
            ClusterInfo::read(&vec![b' '; limits::CLUSTER_INFO_BYTES + 1])
                .unwrap_err()
                .to_string()
                .contains("too long")
        );
        let body = json!({ "data": { "kubeconfig": CONTENT, "jws-kubeconfig-abcdef": SIGNATURE } }).to_string();
        samples::cut_and_changed(body.as_bytes(), |changed| {
            if let Ok(info) = ClusterInfo::read(changed) {
                let _ = (signature(&info, TOKEN), info.cluster());
            }
        });
    }

    #[test]
    fn a_server_that_shows_nothing_says_why() {
        let word = |code| refused(code).map(|error| error.word());
        assert_eq!(
            [401, 403, 404].map(word),
            [Some("anonymous-refused"), Some("anonymous-refused"), Some("no-cluster-info")]
        );
        assert_eq!([200, 429, 500].map(word), [None; 3]);
    }
}
