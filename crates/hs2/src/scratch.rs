//! The scratch buffer: the one buffer that each worker thread reads into, so that an idle connection needs none.
//!
//! What it holds is valid inside of one call, which does not wait.

use std::cell::RefCell;
use std::io;

use crate::socket::Socket;

/// Its size.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
}

/// Passes it on, at most `most` bytes of it.
pub(crate) fn with<T>(most: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        let length = scratch.len().min(most);
        work(&mut scratch[..length])
    })
}

/// Reads the available bytes, at most `most`, and passes them on; none are the end.
pub(crate) fn try_receive<T>(socket: &Socket, most: usize, received: impl FnOnce(&mut [u8]) -> T) -> io::Result<T> {
    with(most, |scratch| {
        let length = socket.try_read(scratch)?;
        Ok(received(&mut scratch[..length]))
    })
}
