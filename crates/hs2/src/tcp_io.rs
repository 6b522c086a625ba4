//! Reads and writes of a TCP socket that never wait.
//!
//! A read that fills less than its buffer has emptied the socket, and a write that takes less than it is given has filled it. tokio is to
//! know that without a second call, which would cost as much: the next wait is one for what comes then. An event since the call began is
//! not forgotten, nor is the end of the stream.

use std::io::{self, ErrorKind, IoSlice};

use rustix::io::writev;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Reads what is available; zero bytes are the end.
pub(crate) fn try_read(stream: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    let whole = into.len();
    try_io(stream, Interest::READABLE, whole, || Ok(recv(stream, &mut *into, RecvFlags::empty())?.1))
}

/// Writes what the operating system takes at once.
pub(crate) fn try_write(stream: &TcpStream, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
    let whole = bytes.iter().map(|piece| piece.len()).sum();
    try_io(stream, Interest::WRITABLE, whole, || match bytes {
        [only] => Ok(send(stream, only, SendFlags::NOSIGNAL)?),
        _ => Ok(writev(stream, bytes)?),
    })
}

fn try_io(
    stream: &TcpStream,
    interest: Interest,
    whole: usize,
    call: impl FnOnce() -> io::Result<usize>,
) -> io::Result<usize> {
    let mut last = None;
    let done = stream.try_io(interest, || {
        let length = call()?;
        if length == 0 || length == whole {
            return Ok(length);
        }
        last = Some(length);
        Err(ErrorKind::WouldBlock.into())
    });
    last.map_or(done, Ok)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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

    #[tokio::test]
    async fn a_write_that_fills_the_socket_waits_until_there_is_room() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (here, _) = listener.accept().await.unwrap();
        let (piece, mut written) = (vec![7; 1 << 20], 0);
        // The one that takes a part tells that the next would take nothing.
        loop {
            here.writable().await.unwrap();
            let length = try_write(&here, &[IoSlice::new(&piece[..10]), IoSlice::new(&piece[10..])]).unwrap();
            written += length;
            if length < piece.len() {
                break;
            }
        }
        assert!(timeout(SILENCE, here.writable()).await.is_err());
        let mut received = vec![0; written];
        there.read_exact(&mut received).await.unwrap();
        here.writable().await.unwrap();
        assert!(try_write(&here, &[IoSlice::new(&piece)]).unwrap() > 0);
        assert!(received.iter().all(|byte| *byte == 7));
    }
}
