//! Turns what libFuzzer makes up into a trial of `checks/hpack.rs`.

#![no_main]

#[path = "../checks/hpack.rs"]
mod hpack;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hpack::check(bytes));
