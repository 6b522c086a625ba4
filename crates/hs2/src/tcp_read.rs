//! The read of a TCP socket that never waits.
//!
//! A read that fills less than its buffer has emptied the socket. tokio is to know that without a second read, which would cost as much:
//! the next wait is one for what comes then. An event since the read began is not forgotten, nor is the end of the stream.

use std::io::{self, ErrorKind};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// Reads what is available; zero bytes are the end.
pub(crate) fn try_read(stream: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    let mut last = None;
    let read = stream.try_io(Interest::READABLE, || {
        let length = rustix::io::read(stream, &mut *into)?;
        if length == 0 || length == into.len() {
            return Ok(length);
        }
        last = Some(length);
        Err(ErrorKind::WouldBlock.into())
    });
    last.map_or(read, Ok)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// How long nothing is to arrive.
    const SILENCE: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn a_read_that_leaves_room_needs_no_second_one_and_misses_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (here, _) = listener.accept().await.unwrap();
        let mut into = [0; 8];
        for _ in 0..100 {
            there.write_all(b"seven b").await.unwrap();
            here.readable().await.unwrap();
            assert_eq!(try_read(&here, &mut into).unwrap(), 7);
        }
        // Without a second read, the socket is known to be empty.
        assert!(timeout(SILENCE, here.readable()).await.is_err());
        // A read that fills its buffer may have left something.
        there.write_all(b"eight by and the end").await.unwrap();
        drop(there);
        let mut all = Vec::new();
        loop {
            here.readable().await.unwrap();
            match try_read(&here, &mut into) {
                Ok(0) => break,
                Ok(length) => all.extend_from_slice(&into[..length]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert_eq!(all, b"eight by and the end");
    }
}
