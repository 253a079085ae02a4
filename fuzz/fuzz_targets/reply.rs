//! Turns what libFuzzer makes up into a trial of `checks/reply.rs`.

#![no_main]

#[path = "../checks/reply.rs"]
mod reply;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reply::check(bytes));
