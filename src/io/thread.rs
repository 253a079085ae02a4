//! Turns a call that blocks into one that is awaited: on a thread that ends with it. (A pool would keep one that wakes
//! twice a second for nothing.)

use std::io;
use std::thread::Builder;

use smol::channel::{Receiver, bounded};

/// Enough stack for one that writes a file.
pub const WRITER_STACK_BYTES: usize = 64 * 1024;

/// Begins `call`; what it answers comes out of the channel, which is closed without an answer if it panicked.
pub fn begin<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Receiver<T>> {
    let (sender, receiver) = bounded(1);
    Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(move || {
        // Whoever asked may have stopped waiting.
        let _ = sender.try_send(call());
    })?;
    Ok(receiver)
}
