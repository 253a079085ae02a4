//! Turns what libFuzzer makes up into a trial of `checks/cri.rs`.

#![no_main]

#[path = "../checks/cri.rs"]
mod cri;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cri::check(bytes));
