//! Turns the paths and flags of a command line into checked settings and a kubeconfig, files bounded.

use std::io::Read;
use std::path::Path;

use super::args::Sources;
use super::commands::DEFAULT_CONFIG;
use super::{CliError, DEFAULT_KUBECONFIG};
use crate::config::kubeconfig::Kubeconfig;
use crate::config::{self, Loaded, Settings, limits};
use crate::probe::Root;

/// Settings file and flags, checked together.
pub fn settings(sources: &Sources) -> Result<Loaded, CliError> {
    let path = match &sources.config {
        Some(path) => Some(path.as_str()),
        None => Some(DEFAULT_CONFIG).filter(|path| Path::new(path).exists()),
    };
    let text = path.map(read_bounded).transpose()?;
    config::settings(path.zip(text.as_deref()), &sources.flags).map_err(CliError::Settings)
}

/// The kubeconfig that `settings` name, or the default one.
pub fn kubeconfig(settings: &Settings) -> Result<Kubeconfig, CliError> {
    let path = match &settings.kubeconfig {
        Some(path) => path.as_str(),
        None if Path::new(DEFAULT_KUBECONFIG).exists() => DEFAULT_KUBECONFIG,
        None => return Err(CliError::NoKubeconfig),
    };
    let text = read_bounded(path)?;
    let folder = Path::new(path).parent().and_then(Path::to_str).unwrap_or_default();
    Kubeconfig::parse(&text, folder, None).map_err(|error| CliError::Kubeconfig { path: path.to_owned(), error })
}

/// The folder of `--root`. One that is not there would be a board without any facts.
pub fn root(path: &str) -> Result<Root, CliError> {
    if Path::new(path).is_dir() { Ok(Root::new(path)) } else { Err(CliError::Root { path: path.to_owned() }) }
}

fn read_bounded(path: &str) -> Result<String, CliError> {
    let failed = |detail: String| CliError::File { path: path.to_owned(), detail };
    let limit_bytes = limits::SETTINGS_FILE_BYTES;
    let file = std::fs::File::open(path).map_err(|error| failed(format!("cannot be opened: {error}")))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(failed("is a directory, not a file".to_owned()));
    }
    let mut text = String::new();
    let read = file.take(limit_bytes as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| failed(format!("cannot be read: {error}")))?;
    if text.len() > limit_bytes {
        return Err(failed(format!("is longer than {limit_bytes} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_that_is_a_directory_says_so() {
        let settings = Settings { kubeconfig: Some("/proc".to_owned()), ..Settings::default() };
        assert_eq!(kubeconfig(&settings).unwrap_err().to_string(), "/proc: is a directory, not a file");
    }

    #[test]
    fn an_endless_file_is_read_to_the_limit_and_no_further() {
        let settings = Settings { kubeconfig: Some("/dev/zero".to_owned()), ..Settings::default() };
        assert_eq!(kubeconfig(&settings).unwrap_err().to_string(), "/dev/zero: is longer than 262144 bytes");
    }

    #[test]
    fn a_settings_file_that_was_named_must_exist() {
        let sources = Sources { config: Some("/nonexistent/config.yaml".to_owned()), flags: Vec::new() };
        let error = super::settings(&sources).unwrap_err();
        assert_eq!(error.exit_code(), crate::cli::commands::exit::CONFIG);
        assert!(error.to_string().starts_with("/nonexistent/config.yaml: cannot be opened"), "{error}");
    }
}
