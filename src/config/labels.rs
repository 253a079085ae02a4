//! Turns a label of the settings into a verdict: would the API server take it from a node's own identity?

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
/// Where node-feature-discovery has its labels.
const FEATURE_DOMAINS: [&str; 2] = ["feature.node.kubernetes.io", "profile.node.kubernetes.io"];
const KUBERNETES_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// Longest name of a key, and longest value.
pub const NAME_MAX: usize = 63;
const PREFIX_MAX: usize = 253;

/// Checks the syntax, and then NodeRestriction's list: one forbidden label would fail every later request (D9). An error
/// is to stand after the key.
pub fn check_node_label(key: &str, value: &str) -> Result<(), String> {
    check_key(key)?;
    check_value(value)?;
    if may_set(key) {
        return Ok(());
    }
    Err(format!(
        "a node may not set this label on itself (NodeRestriction), every request would be refused; remove it here and \
         let an administrator run: kubectl label node NAME {key}={value}"
    ))
}

/// The same for what an owner's programs say of a board: of the Kubernetes domains only those that node-feature-discovery takes.
pub fn check_feature_label(key: &str, value: &str) -> Result<(), String> {
    check_key(key)?;
    check_value(value)?;
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_kubernetes = KUBERNETES_DOMAINS.iter().any(|domain| in_domain(prefix, domain));
    if !is_kubernetes || FEATURE_DOMAINS.iter().any(|domain| in_domain(prefix, domain)) {
        return Ok(());
    }
    Err(format!("of Kubernetes' own labels only those of {} may come from a board", FEATURE_DOMAINS.join(" and ")))
}

/// Whether `key` is a qualified name; the error says what is wrong with it.
pub fn check_key(key: &str) -> Result<(), &'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) {
        return Err("the part before '/' must be a lower-case DNS name of at most 253 characters");
    }
    if name.is_empty() || name.len() > NAME_MAX {
        return Err("the name must have 1 to 63 characters");
    }
    if is_label_text(name) {
        Ok(())
    } else {
        Err("the name may hold only A-Z a-z 0-9 - _ . and must begin and end alphanumeric")
    }
}

/// Whether `name` is a resource made by a device plug-in or an administrator, not by Kubernetes (`IsExtendedResourceName`); the
/// error says what is wrong with it.
pub fn check_extended_resource(name: &str) -> Result<(), &'static str> {
    if !name.contains('/') {
        return Err("the name must have a domain before it, as in example.com/relay");
    }
    if name.contains("kubernetes.io/") || name.starts_with("requests.") {
        return Err("the part before '/' must not end with kubernetes.io, nor begin with 'requests.'");
    }
    // A quota names it so, and that is to be a name as well.
    check_key(&format!("requests.{name}"))
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

fn is_label_text(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let at_the_ends = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(at_the_ends) && text.ends_with(at_the_ends) && text.chars().all(inside)
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
            assert!(problem.contains("NodeRestriction"), "{problem}");
            assert!(problem.contains(&format!("kubectl label node NAME {key}=x")), "{problem}");
        }
    }

    #[test]
    fn what_is_not_a_label_is_refused_by_key_or_by_value() {
        let long = "a".repeat(64);
        let long_prefix = format!("{}/a", "a.".repeat(127) + "a");
        for key in
            ["", "/a", "a/", "a/b/c", "-a", "a-", "a b", "Example.com/a", "a..b/c", "\u{e9}", &long, &long_prefix]
        {
            let problem = check_node_label(key, "").unwrap_err();
            assert!(problem.starts_with("the name ") || problem.starts_with("the part before '/' "), "{problem}");
        }
        for value in ["-a", "a.", "a b", "a/b", "\u{e9}", &long] {
            let problem = check_node_label("key", value).unwrap_err();
            assert!(problem.starts_with("the value "), "{problem}");
        }
        assert_eq!(check_node_label("A_b.c-D", ""), Ok(()));
        assert_eq!(check_node_label(&"a".repeat(63), &"a".repeat(63)), Ok(()));
    }

    #[test]
    fn an_extended_resource_has_a_domain_that_is_not_of_kubernetes_and_room_for_its_quota() {
        let fits = format!("{}/a", "a.".repeat(121) + "ab");
        let too_long = format!("{}/a", "a.".repeat(122) + "a");
        for name in ["example.com/relay", "nvidia.com/gpu", "k8s.io/a", "example.com/A_b.c-D", &fits] {
            assert_eq!(check_extended_resource(name), Ok(()), "{name}");
        }
        for (name, wrong) in [
            ("cpu", "must have a domain"),
            ("hugepages-2Mi", "must have a domain"),
            ("kubernetes.io/relay", "kubernetes.io"),
            ("x.kubernetes.io/relay", "kubernetes.io"),
            ("requests.example.com/relay", "'requests.'"),
            ("Example.com/relay", "lower-case DNS name"),
            (&too_long, "lower-case DNS name"),
            ("/relay", "lower-case DNS name"),
            ("example.com/", "1 to 63 characters"),
            ("example.com/-a", "must begin and end alphanumeric"),
        ] {
            let problem = check_extended_resource(name).unwrap_err();
            assert!(problem.contains(wrong), "{name}: {problem}");
        }
    }
}
