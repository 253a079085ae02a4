//! Turns what libFuzzer makes up into a trial of `checks/certificate.rs`.

#![no_main]

#[path = "../checks/certificate.rs"]
mod certificate;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| certificate::check(bytes));
