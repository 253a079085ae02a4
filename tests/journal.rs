//! Turns seeds into lives of a journal on a disk that loses, halves and reorders, and files into every damage that one
//! byte can do; the oracle: what was synced is there, what was forgotten is not, no number comes twice.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "journal/damage.rs"]
mod damage;
mod disk;
#[path = "support/left_out.rs"]
mod left_out;
#[path = "journal/life.rs"]
mod life;
#[path = "journal/oracle.rs"]
mod oracle;
#[path = "sim/random.rs"]
#[allow(dead_code, reason = "the simulator takes the rest of it")]
mod random;
#[path = "journal/real.rs"]
mod real;
