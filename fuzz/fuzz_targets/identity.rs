//! Turns what libFuzzer makes up into a trial of `checks/identity.rs`.

#![no_main]

#[path = "../checks/identity.rs"]
mod identity;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| identity::check(bytes));
