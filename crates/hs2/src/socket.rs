//! The socket below a connection, plain or TLS: reads and writes that never wait, and waits that read nothing.
//!
//! With TLS, bytes that were decrypted but not read count as readable, and a write is complete once its records were
//! sent: see [`Socket::try_flush`].

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown, sockopt};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::tcp_io::{try_read, try_write};
use crate::tls::session::TlsSession;

/// TCP keep-alive: idle time, interval and probes. A machine that vanished is detected after two minutes, and its
/// sessions are ended.
const KEEPALIVE_AFTER: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Sets the options of a connection, or those which the connections that a listener accepts will have: Linux copies them.
pub(crate) fn set_options(socket: impl AsFd) {
    // Small messages are sent at once; without the option they are only slower.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    if let Err(error) = enable_keep_alive(&socket) {
        tracing::debug!(%error, "could not enable TCP keep-alive; a peer that vanishes is not detected while idle");
    }
}

fn enable_keep_alive(socket: impl AsFd) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(&socket, true)
}

pub(crate) struct Socket {
    stream: TcpStream,
    tls: Option<Box<TlsSession>>,
}

impl Socket {
    /// For a connection with [its options](set_options).
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, tls: None }
    }

    /// Performs a TLS handshake, for which the caller has a deadline. After an error the connection can only be closed: the
    /// peer has received an alert.
    pub(crate) async fn start_tls(&mut self, session: rustls::Connection) -> io::Result<()> {
        let session = Box::new(TlsSession::new(session));
        session.handshake(&self.stream).await?;
        self.tls = Some(session);
        Ok(())
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Waits until [`Socket::try_read`] may return bytes or the end. Only one task waits in this way: with several, the last one is
    /// woken. Such a wait costs less to begin and to give up than those of tokio for any number of tasks.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }

    /// The same as a poll.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.tls {
            Some(session) if session.is_readable() => Poll::Ready(Ok(())),
            _ => self.stream.poll_read_ready(cx),
        }
    }

    /// Reads what is available; zero bytes are the end.
    pub(crate) fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => try_read(&self.stream, into),
            Some(session) => session.try_read(&self.stream, into),
        }
    }

    /// Waits until bytes can be read; zero is the end. Takes none.
    pub(crate) async fn peek(&self) -> io::Result<usize> {
        match &self.tls {
            None => self.peek_byte().await.map(|byte| usize::from(byte.is_some())),
            Some(session) => session.peek(&self.stream).await,
        }
    }

    /// The first byte that is below TLS and was not read; `None` at the end. Takes none.
    pub(crate) async fn peek_byte(&self) -> io::Result<Option<u8>> {
        let mut one = [0; 1];
        let length = self.stream.peek(&mut one).await?;
        Ok((length > 0).then_some(one[0]))
    }

    /// Waits until the operating system may have something to read, or fails; in the way of [`Socket::readable`].
    pub(crate) async fn received(&self) {
        let _ = poll_fn(|cx| self.stream.poll_read_ready(cx)).await;
    }

    /// Waits until the operating system has something to read; `true` when the peer has closed its end.
    pub(crate) async fn is_closed_by_peer(&self) -> io::Result<bool> {
        Ok(self.stream.ready(Interest::READABLE).await?.is_read_closed())
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// The same as a poll, for one task.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    /// Takes bytes to send. With TLS some of them may wait for [`Socket::try_flush`].
    pub(crate) fn try_write(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.tls {
            None => try_write(&self.stream, bytes),
            Some(session) => session.try_write(&self.stream, bytes),
        }
    }

    /// Sends what was written; an error of kind `WouldBlock` while some of it still waits.
    pub(crate) fn try_flush(&self) -> io::Result<()> {
        match &self.tls {
            None => Ok(()),
            Some(session) => session.try_flush(&self.stream),
        }
    }

    /// Closes the write half. What cannot be sent at once is lost.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        if let Some(session) = &self.tls {
            session.close(&self.stream);
        }
        Ok(shutdown(&self.stream, Shutdown::Write)?)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(session) = &self.tls {
            session.close(&self.stream);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn both_ends_enable_keep_alive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        set_options(&listener);
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        set_options(&stream);
        let (accepted, _) = listener.accept().await.unwrap();
        for stream in [stream, accepted] {
            assert!(sockopt::socket_keepalive(&stream).unwrap() && sockopt::tcp_nodelay(&stream).unwrap());
            let most = sockopt::tcp_keepidle(&stream).unwrap()
                + sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
            assert_eq!(most, Duration::from_mins(2));
        }
    }
}
