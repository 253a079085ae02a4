//! Turns seeds into worlds.

mod model;
