//! Turns what libFuzzer makes up into a trial of `checks/dbus.rs`.

#![no_main]

#[path = "../checks/dbus.rs"]
mod dbus;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dbus::check(bytes));
