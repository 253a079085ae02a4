//! Turns what libFuzzer makes up into a trial of `checks/watch.rs`.

#![no_main]

#[path = "../checks/watch.rs"]
mod watch;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| watch::check(bytes));
