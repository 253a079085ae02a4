//! Turns facts, settings and the time into the Node we want, and into the patches that lead the Node they have there.

pub mod object;
