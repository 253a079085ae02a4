//! Turns what libFuzzer makes up into a trial of `checks/device_plugins.rs`.

#![no_main]

#[path = "../checks/device_plugins.rs"]
mod device_plugins;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| device_plugins::check(bytes));
