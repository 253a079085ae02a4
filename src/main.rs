//! Turns the process into one command of `cli`.

fn main() {}
