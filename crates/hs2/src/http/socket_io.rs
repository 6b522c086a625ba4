//! The socket of a connection, as hyper reads and writes it.
//!
//! Bytes pass through the worker thread's buffer into hyper's own, which has at most
//! [`HTTP_BUFFER_BYTES`](crate::limits::HTTP_BUFFER_BYTES). What follows the current head or body waits here, and is no
//! longer than that: nothing is read until hyper has received it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use super::exchange::Exchange;
use super::request_scanner::RequestScanner;
use crate::scratch::try_receive;
use crate::socket::Socket;

pub(super) struct SocketIo {
    socket: Arc<Socket>,
    /// Received, but not yet for hyper.
    unread: Vec<u8>,
    scanner: RequestScanner,
    exchange: Arc<Exchange>,
}

impl SocketIo {
    /// For a hyper connection with an empty state. `begun` was received before.
    pub(super) fn new(socket: Arc<Socket>, begun: Vec<u8>, exchange: Arc<Exchange>) -> Self {
        exchange.set_framing(None);
        Self { socket, unread: begun, scanner: RequestScanner::default(), exchange }
    }

    /// The bytes that hyper has not received.
    pub(super) fn unread(&self) -> &[u8] {
        &self.unread
    }
}

/// Passes the beginning of `bytes` to hyper. Returns its length, at least one unless there are none.
fn pass(bytes: &[u8], into: &mut ReadBufCursor<'_>, scanner: &mut RequestScanner, exchange: &Exchange) -> usize {
    if bytes.is_empty() {
        return 0;
    }
    exchange.received();
    let (length, framing) = scanner.advance(bytes);
    if framing.is_some() {
        exchange.set_framing(framing);
    }
    into.put_slice(&bytes[..length]);
    length
}

impl Read for SocketIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let Self { socket, unread, scanner, exchange } = &mut *self;
        let most = into.remaining();
        if !unread.is_empty() && most > 0 {
            let length = pass(&unread[..unread.len().min(most)], &mut into, scanner, exchange);
            *unread = unread.split_off(length);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(socket.poll_readable(cx))?;
            let received = try_receive(socket, most, |bytes| {
                let length = pass(bytes, &mut into, scanner, exchange);
                unread.extend_from_slice(&bytes[length..]);
            });
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl Write for SocketIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.socket.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.socket.poll_writable(cx))?,
                Err(error) => return Poll::Ready(Err(error)),
                Ok(length) => {
                    self.exchange.sent(length);
                    return Poll::Ready(Ok(length));
                }
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.socket.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(self.socket.poll_writable(cx))?,
                Err(error) => return Poll::Ready(Err(error)),
                Ok(()) => {
                    self.exchange.flushed();
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Only flushes: the connection parts from the client itself, see [`HttpConnection`](super::HttpConnection).
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
