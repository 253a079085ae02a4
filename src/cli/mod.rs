//! Turns arguments into one command, text and an exit code.
