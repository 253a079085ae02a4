//! Turns any text into a kubeconfig or one sentence.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nodepulse::config::kubeconfig::Kubeconfig;

fuzz_target!(|text: &str| {
    match Kubeconfig::parse(text, "/etc/nodepulse", None) {
        Ok(kubeconfig) => assert!(!kubeconfig.server.authority().is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
