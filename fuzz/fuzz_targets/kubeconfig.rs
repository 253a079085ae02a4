//! Turns what libFuzzer makes up into a trial of `checks/kubeconfig.rs`.

#![no_main]

#[path = "../checks/kubeconfig.rs"]
mod kubeconfig;
#[path = "../checks/text.rs"]
mod text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kubeconfig::check(bytes));
