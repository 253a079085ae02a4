//! Turns changes into bytes that survive any power cut, and any bytes back into the changes that still wait.

pub mod record;

pub use record::{BootId, Happened, Moment, Record, Sequence, Status};
