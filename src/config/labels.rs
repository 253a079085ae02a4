//! Turns a label of the settings into a verdict: would the API server take it from a node's own identity?

use std::fmt;

/// Why a label cannot be set by the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelProblem {
    /// The key is not `[prefix/]name`; the text says which part is wrong.
    Key {
        key: String,
        wrong: &'static str,
    },
    Value {
        key: String,
        value: String,
        wrong: &'static str,
    },
    /// NodeRestriction lets only an administrator set this key (behaviour 4.2, D9).
    Restricted {
        key: String,
        value: String,
    },
}

/// Keys of the Kubernetes domains that a node may set on itself (behaviour 4.2).
const ALLOWED_KEYS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
const ALLOWED_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const KUBERNETES_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];

const NAME_MAX: usize = 63;
const PREFIX_MAX: usize = 253;

/// Checks the syntax, and then NodeRestriction's list: one forbidden label would fail every later request (D9).
pub fn check_node_label(key: &str, value: &str) -> Result<(), LabelProblem> {
    check_key(key).map_err(|wrong| LabelProblem::Key { key: key.to_owned(), wrong })?;
    check_value(value).map_err(|wrong| LabelProblem::Value { key: key.to_owned(), value: value.to_owned(), wrong })?;
    if may_set(key) { Ok(()) } else { Err(LabelProblem::Restricted { key: key.to_owned(), value: value.to_owned() }) }
}

/// Whether `key` is a qualified name; the error says what is wrong with it.
pub fn check_key(key: &str) -> Result<(), &'static str> {
    let name = match key.split_once('/') {
        Some((prefix, name)) => {
            if !is_dns_subdomain(prefix) {
                return Err("the part before '/' must be a lower-case DNS name of at most 253 characters");
            }
            name
        }
        None => key,
    };
    if name.is_empty() || name.len() > NAME_MAX {
        return Err("the name must have 1 to 63 characters");
    }
    if is_label_text(name) {
        Ok(())
    } else {
        Err("the name may hold only A-Z a-z 0-9 - _ . and must begin and end alphanumeric")
    }
}

/// Whether `value` is a label value (empty is one); the error says what is wrong with it.
pub fn check_value(value: &str) -> Result<(), &'static str> {
    if value.len() > NAME_MAX {
        return Err("the value must have at most 63 characters");
    }
    if value.is_empty() || is_label_text(value) {
        return Ok(());
    }
    Err("the value may hold only A-Z a-z 0-9 - _ . and must begin and end alphanumeric")
}

/// Whether `text` is a DNS-1123 subdomain: what names of objects and prefixes of keys must be.
pub fn is_dns_subdomain(text: &str) -> bool {
    let part_holds = |part: &str| {
        !part.starts_with('-')
            && !part.ends_with('-')
            && !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= PREFIX_MAX && text.split('.').all(part_holds)
}

/// Makes free text, such as a board's model, a label value; `None` when nothing of it is left.
pub fn sanitise_label_value(text: &str) -> Option<String> {
    let replaced: String =
        text.trim_end_matches('\0').chars().map(|c| if is_label_char(c) { c } else { '_' }).collect();
    let trimmed = replaced.trim_matches(['-', '_', '.']);
    let cut = trimmed.get(..NAME_MAX).unwrap_or(trimmed).trim_end_matches(['-', '_', '.']);
    (!cut.is_empty()).then(|| cut.to_owned())
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn is_label_text(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next()) && ends(text.chars().next_back()) && text.chars().all(is_label_char)
}

fn in_domain(prefix: &str, domain: &str) -> bool {
    prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn may_set(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else { return true };
    !KUBERNETES_DOMAINS.iter().any(|domain| in_domain(prefix, domain))
        || ALLOWED_KEYS.contains(&key)
        || ALLOWED_PREFIXES.iter().any(|allowed| in_domain(prefix, allowed))
}

impl LabelProblem {
    /// The machine word.
    pub fn word(&self) -> &'static str {
        match self {
            LabelProblem::Key { .. } => "label-key",
            LabelProblem::Value { .. } => "label-value",
            LabelProblem::Restricted { .. } => "label-restricted",
        }
    }
}

impl fmt::Display for LabelProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelProblem::Key { key, wrong } => write!(f, "label {key:?}: {wrong}"),
            LabelProblem::Value { key, value, wrong } => write!(f, "label {key}={value:?}: {wrong}"),
            LabelProblem::Restricted { key, value } => write!(
                f,
                "label {key}: a node may not set this key on itself (NodeRestriction), every request would be refused; \
                 remove it here and let an administrator run: kubectl label node NAME {key}={value}"
            ),
        }
    }
}

impl std::error::Error for LabelProblem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_set_what_node_restriction_lets_it() {
        for key in [
            "floor",
            "example.com/floor",
            "kubernetes.io/hostname",
            "beta.kubernetes.io/instance-type",
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/region",
            "node.kubernetes.io/anything",
            "feature.node.kubernetes.io/cpu-cpuid.NEON",
            "kubelet.kubernetes.io/anything",
            "x.kubelet.kubernetes.io/anything",
            "notkubernetes.io/anything",
            "notk8s.io/anything",
        ] {
            assert_eq!(check_node_label(key, "x"), Ok(()), "{key}");
        }
    }

    #[test]
    fn a_restricted_label_is_refused_with_the_command_of_an_administrator() {
        for key in [
            "node-role.kubernetes.io/edge",
            "node-restriction.kubernetes.io/team",
            "x.node-restriction.kubernetes.io/team",
            "kubernetes.io/anything",
            "topology.kubernetes.io/rack",
            "k8s.io/anything",
            "x.k8s.io/anything",
            "notnode.kubernetes.io/anything",
        ] {
            let problem = check_node_label(key, "x").unwrap_err();
            assert_eq!(problem.word(), "label-restricted", "{key}");
            assert!(problem.to_string().contains(&format!("kubectl label node NAME {key}=x")), "{problem}");
        }
    }

    #[test]
    fn what_is_not_a_label_is_refused_by_key_or_by_value() {
        let long = "a".repeat(64);
        let long_prefix = format!("{}/a", "a.".repeat(127) + "a");
        for key in
            ["", "/a", "a/", "a/b/c", "-a", "a-", "a b", "Example.com/a", "a..b/c", "\u{e9}", &long, &long_prefix]
        {
            assert_eq!(check_node_label(key, "").unwrap_err().word(), "label-key", "{key:?}");
        }
        for value in ["-a", "a.", "a b", "a/b", "\u{e9}", &long] {
            let problem = check_node_label("key", value).unwrap_err();
            assert_eq!(problem.word(), "label-value", "{value:?}");
            assert!(problem.to_string().contains("key="), "{problem}");
        }
        assert_eq!(check_node_label("A_b.c-D", ""), Ok(()));
        assert_eq!(check_node_label(&"a".repeat(63), &"a".repeat(63)), Ok(()));
    }

    #[test]
    fn free_text_becomes_a_label_value() {
        for (text, expected) in [
            ("Raspberry Pi 4 Model B Rev 1.1\0", Some("Raspberry_Pi_4_Model_B_Rev_1.1")),
            ("TI AM335x BeagleBone Black", Some("TI_AM335x_BeagleBone_Black")),
            ("Pimoroni Ltd.", Some("Pimoroni_Ltd")),
            ("brcm,bcm2712", Some("brcm_bcm2712")),
            ("4.14.98-imx_4.14.98_2.0.0_ga+g1175b5961153", Some("4.14.98-imx_4.14.98_2.0.0_ga_g1175b5961153")),
            ("5.10.63+", Some("5.10.63")),
            ("(none)", Some("none")),
            ("\u{4e2d}\u{6587}", None),
            ("", None),
        ] {
            assert_eq!(sanitise_label_value(text).as_deref(), expected, "{text:?}");
        }
        let cut = sanitise_label_value(&format!("{}- tail", "a".repeat(62))).unwrap();
        assert_eq!(cut, "a".repeat(62));
        assert_eq!(check_value(&cut), Ok(()));
    }
}
