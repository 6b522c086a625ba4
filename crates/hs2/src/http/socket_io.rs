//! The socket of a connection, as hyper reads and writes it.
//!
//! Bytes pass through the worker thread's buffer into hyper's own, which has at most
//! [`HTTP_BUFFER_BYTES`](crate::limits::HTTP_BUFFER_BYTES).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use super::exchange::Exchange;
use crate::socket::Socket;
use crate::wire::try_receive;

pub(super) struct SocketIo {
    socket: Arc<Socket>,
    /// Was read to detect the transport.
    begun: Vec<u8>,
    exchange: Arc<Exchange>,
}

impl SocketIo {
    pub(super) fn new(socket: Arc<Socket>, begun: Vec<u8>, exchange: Arc<Exchange>) -> Self {
        Self { socket, begun, exchange }
    }

    /// The bytes that were read before and that hyper has not taken.
    pub(super) fn unread(&self) -> &[u8] {
        &self.begun
    }
}

impl Read for SocketIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let most = into.remaining();
        if !self.begun.is_empty() && most > 0 {
            self.exchange.received();
            let length = self.begun.len().min(most);
            into.put_slice(&self.begun[..length]);
            self.begun = self.begun.split_off(length);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.socket.poll_readable(cx))?;
            let received = try_receive(&self.socket, most, |bytes| {
                into.put_slice(bytes);
                bytes.len()
            });
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(length) => {
                    if length > 0 {
                        self.exchange.received();
                    }
                    return Poll::Ready(Ok(()));
                }
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
