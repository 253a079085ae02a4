//! Turns what libFuzzer makes up into a trial of `checks/http2_frames.rs`.

#![no_main]

#[path = "../checks/http2_frames.rs"]
mod http2_frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http2_frames::check(bytes));
