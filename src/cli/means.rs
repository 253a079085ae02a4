//! Turns settings, and the files that they name, into what a board joins a cluster with (JOIN-*).

use zeroize::Zeroizing;

use super::load;
use crate::agent::{Means, Trust};
use crate::config::kubeconfig::{Credentials, Kubeconfig, Material, Server};
use crate::config::settings::{CaHash, Token};
use crate::config::{Settings, limits};
use crate::identity::{CertificateDer, pem};
use crate::io::{file, identity};

/// `in_use` are the servers of a cluster that this board knows. `is_flag`: the token was typed.
pub fn means(settings: &Settings, in_use: &[Server], is_flag: bool) -> Result<Means, String> {
    if let Some(path) = &settings.bootstrap_kubeconfig {
        return means_of_kubeconfig(path);
    }
    let folder = load::identity_folder(settings);
    let kept = format!("{folder}/{}", identity::TOKEN);
    let mut pins = settings.ca_hash.clone();
    let token = match load::token(settings).map_err(|error| error.to_string())? {
        Some(token) => token,
        None => {
            let text = file::read_text(&kept, limits::CREDENTIAL_FILE_BYTES).map_err(|_| NO_TOKEN.to_owned())?;
            let text = Zeroizing::new(text);
            let mut lines = text.lines();
            let token = Token::parse(lines.next().unwrap_or_default().trim());
            pins.extend(lines.filter_map(|line| CaHash::parse(line.trim()).ok()).take(limits::CA_HASHES));
            token.map_err(|wrong| format!("the token in {kept}: {wrong}"))?
        }
    };
    let is_unsafe = pins.is_empty() && !token.has_pin() && settings.unsafe_skip_ca_verification;
    let trust = match settings.ca_file.as_ref().map(|path| certificates(path)) {
        Some(Ok(given)) => Trust::Given(given),
        // Whoever has joined may have done so long ago.
        Some(Err(wrong)) if in_use.is_empty() => return Err(wrong),
        None if is_unsafe => Trust::Token,
        _ => Trust::Pinned(pins),
    };
    let mut servers = settings.servers.clone();
    let supervisor = identity::password_in(&folder).filter(|_| token.has_pin());
    let port = |server: &Server| supervisor.as_ref().map_or(server.port, |known| known.port);
    let in_use = in_use.iter().map(|server| Server { port: port(server), ..server.clone() });
    servers.extend(in_use.filter(|server| !settings.servers.contains(server)));
    if servers.is_empty() {
        return Err("there is no server to join: set servers, or give it to nodepulse join".to_owned());
    }
    Ok(Means { servers, token, is_fleeting: is_flag && settings.keep_token, trust })
}

const NO_TOKEN: &str = "there is no token to join with: set token or tokenFile, or run nodepulse join on this board";

fn means_of_kubeconfig(path: &str) -> Result<Means, String> {
    let wrong = |what: &str| format!("bootstrapKubeconfig {path} {what}");
    let text =
        file::read_text(path, limits::SETTINGS_FILE_BYTES).map_err(|why| wrong(&format!("cannot be read: {why}")))?;
    let kubeconfig = Kubeconfig::parse(&Zeroizing::new(text), path).map_err(|problem| problem.to_string())?;
    let bytes = |material: &Material| match material {
        Material::Data(bytes) => Ok(bytes.clone()),
        Material::File(path) => file::read(path, limits::CREDENTIAL_FILE_BYTES).map_err(|why| format!("{path}: {why}")),
    };
    let Credentials::Token(token) = &kubeconfig.credentials else { return Err(wrong("has no token")) };
    let token = Zeroizing::new(bytes(token)?);
    let token = Token::parse(String::from_utf8_lossy(&token).trim())
        .map_err(|what| wrong(&format!("has a token that {what}")))?;
    let authority = kubeconfig.certificate_authority.as_ref().ok_or_else(|| wrong("has no certificate-authority"))?;
    let authorities = pem::certificates(&bytes(authority)?).take(limits::CA_CERTIFICATES).collect();
    Ok(Means { servers: vec![kubeconfig.server], token, is_fleeting: false, trust: Trust::Given(authorities) })
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes =
        file::read(path, limits::CREDENTIAL_FILE_BYTES).map_err(|why| format!("cannot read caFile {path}: {why}"))?;
    let found: Vec<_> = pem::certificates(&bytes).take(limits::CA_CERTIFICATES).collect();
    if found.is_empty() { Err(format!("caFile {path} holds no certificate in PEM form")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let servers = vec![crate::config::kubeconfig::parse_server("https://one:6443").unwrap()];
        let token = Token::parse("abcdef.0123456789abcdef").ok();
        Settings { servers, token, state_directory: "/nonexistent".to_owned(), ..Settings::default() }
    }

    #[test]
    fn a_token_is_for_a_server_that_something_proves() {
        let trust = |settings: &Settings, in_use: &[Server]| means(settings, in_use, false).map(|means| means.trust);
        assert_eq!(trust(&settings(), &[]), Ok(Trust::Pinned(Vec::new())), "nothing: the core decides what that means");
        let pin = CaHash { digest: [1; 32] };
        let pinned = Settings { ca_hash: vec![pin], ..settings() };
        assert_eq!(trust(&pinned, &[]), Ok(Trust::Pinned(vec![pin])));
        let unsafe_one = Settings { unsafe_skip_ca_verification: true, ..settings() };
        assert_eq!(trust(&unsafe_one, &[]), Ok(Trust::Token));
        let in_use = [crate::config::kubeconfig::parse_server("https://two:6443").unwrap()];
        assert_eq!(trust(&pinned, &in_use), Ok(Trust::Pinned(vec![pin])), "whatever it knows already");
        let file = Settings { ca_file: Some("/nonexistent/ca".to_owned()), ..pinned.clone() };
        assert!(trust(&file, &[]).unwrap_err().contains("/nonexistent/ca"));
        assert_eq!(trust(&file, &in_use), Ok(Trust::Pinned(vec![pin])), "it is not needed any more");
        let back = means(&settings(), &in_use, false).unwrap();
        assert_eq!(back.servers.last(), in_use.last());
        assert!(means(&pinned, &[], true).unwrap().is_fleeting && !back.is_fleeting);
        let without = Settings { token: None, ..pinned };
        assert_eq!(means(&without, &[], false).unwrap_err(), NO_TOKEN);
    }
}
