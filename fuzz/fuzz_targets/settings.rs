//! Turns what libFuzzer makes up into a trial of `checks/settings.rs`.

#![no_main]

#[path = "../checks/settings.rs"]
mod settings;
#[path = "../checks/text.rs"]
mod text;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| settings::check(bytes));
