//! Turns what libFuzzer makes up into a trial of `checks/features.rs`.

#![no_main]

#[path = "../checks/features.rs"]
mod features;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| features::check(bytes));
