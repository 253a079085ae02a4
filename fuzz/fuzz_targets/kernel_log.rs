//! Turns what libFuzzer makes up into a trial of `checks/kernel_log.rs`.

#![no_main]

#[path = "../checks/kernel_log.rs"]
mod kernel_log;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kernel_log::check(bytes));
