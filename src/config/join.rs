//! Turns settings about joining a cluster that do not go together into problems, each with what to do about it.

use super::field::Field;
use super::join_values::Token;
use super::problem::Findings;
use super::settings::Settings;

/// Settings that each bring a token: a flag goes before any of them in the file.
pub(super) const TOKENS: [&str; 3] = ["token", "tokenFile", "bootstrapKubeconfig"];

/// What prints the hash of a cluster's CA, for its administrator to type; `sha256:` belongs before it.
pub const PRINT_CA_HASH: &str = "kubectl config view --raw --minify --flatten -o \
    jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d | openssl x509 -pubkey -noout | \
    openssl pkey -pubin -outform der | sha256sum";

/// Whether these settings say which server may have the token; the error says what to add. Without that, whoever sits
/// between a board and the cluster could have it.
pub fn check_trust(token: &Token, settings: &Settings) -> Result<(), String> {
    let says_which = !settings.ca_hash.is_empty() || settings.ca_file.is_some() || settings.unsafe_skip_ca_verification;
    if token.has_pin() || says_which {
        return Ok(());
    }
    let text = "nothing says which server may have it: add caHash: sha256:HASH (--ca-hash) with the HASH of the cluster's CA, \
        which its administrator prints with: ";
    Err(format!("{text}{PRINT_CA_HASH}"))
}

/// `given` is where a setting was given last.
pub(super) fn check<'a>(settings: &Settings, given: impl Fn(&str) -> Option<Field<'a>>, findings: &mut Findings) {
    let is_set = [settings.token.is_some(), settings.token_file.is_some(), settings.bootstrap_kubeconfig.is_some()];
    let tokens = TOKENS.iter().zip(is_set).filter(|(_, is_set)| *is_set);
    let mut tokens = tokens.filter_map(|(name, _)| given(name));
    if let Some(first) = tokens.next() {
        for other in tokens {
            let place = if first.line > 0 { format!(" in line {}", first.line) } else { String::new() };
            let text = format!("{}{place} brings a token as well: keep one of them", first.name);
            findings.refuse(other.problem(text));
        }
    }
    if let (Some(token), Some(field)) = (&settings.token, given("token"))
        && let Err(wrong) = check_trust(token, settings)
    {
        findings.refuse(field.problem(wrong));
    }
    let decides = if settings.ca_hash.is_empty() { "caFile" } else { "caHash" };
    if settings.unsafe_skip_ca_verification
        && (settings.ca_file.is_some() || !settings.ca_hash.is_empty())
        && let Some(field) = given("unsafeSkipCaVerification")
    {
        findings.notice(field.problem(format!("has no effect: {decides} says which server may have the token")));
    }
}
