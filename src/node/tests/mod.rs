//! What the tests of this module and of others make a Node from.

pub(crate) mod samples;
