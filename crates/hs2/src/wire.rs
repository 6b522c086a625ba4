//! One TCP connection: reads and writes of bytes, without a buffer while it is idle.
//!
//! A read waits for readability first and then reads into the worker thread's one scratch buffer; only received bytes
//! are kept, and only until their message is taken. The only state is `pending`, so every read is cancel safe.

use std::future::Future;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::byte_budget::BudgetGuard;
use crate::error::WireError;
use crate::limits::UNCOUNTED_REQUEST_BYTES;
use crate::request_memory::Share;
use crate::scan::ScanError;
use crate::scratch::{self, try_receive};
use crate::socket::Socket;

/// How often a connection with unread bytes is checked for a closed peer.
const HANG_UP_POLL: Duration = Duration::from_millis(250);

/// Two pieces of at most so many bytes together are copied to be written as one.
const JOINED_BYTES: usize = 1024;

/// The most bytes that are discarded from a peer before closing, so that the last response reaches it.
pub(crate) const LINGER_BYTES: usize = 256 * 1024;
/// The deadline for that, and how long the peer may be silent meanwhile.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// A connection, with the bytes received but not taken.
pub(crate) struct Wire {
    /// Shared with the HTTP stack, on a connection that speaks HTTP.
    socket: Arc<Socket>,
    pub(crate) pending: Vec<u8>,
    stall: Duration,
    /// While one is received that is long enough to be counted.
    arriving: Option<Box<Arriving>>,
    /// The share of the user, once known.
    share: Option<Share>,
}

/// A request that is being received and is counted in the process's budget.
#[derive(Default)]
struct Arriving {
    budget_guard: BudgetGuard,
    until: Option<Instant>,
}

impl Wire {
    /// For a connection with [its options](crate::socket::set_options).
    pub(crate) fn new(stream: TcpStream, stall: Duration) -> Self {
        let socket = Arc::new(Socket::new(stream));
        Self { socket, pending: Vec::new(), stall, arriving: None, share: None }
    }

    pub(crate) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.socket)
    }

    /// Performs a TLS handshake, for which the caller has a deadline.
    pub(crate) async fn start_tls(&mut self, session: rustls::Connection) -> io::Result<()> {
        let socket = Arc::get_mut(&mut self.socket).ok_or(io::ErrorKind::AlreadyExists)?;
        socket.start_tls(session).await
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.socket.is_tls()
    }

    /// Waits for the first byte of the connection, which stays unread; `None` when the peer has closed.
    pub(crate) async fn first_byte(&self) -> Result<Option<u8>, WireError> {
        Ok(self.socket.peek_byte().await?)
    }

    /// Waits without a deadline until bytes arrive. `false` when the peer has closed.
    pub(crate) async fn fill(&mut self) -> Result<bool, WireError> {
        loop {
            self.socket.readable().await?;
            match self.try_fill(usize::MAX) {
                Ok(length) => return Ok(length > 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits without a deadline until something may be read. Reads nothing, and keeps almost nothing while it waits.
    pub(crate) async fn readable(&self) -> Result<(), WireError> {
        Ok(self.socket.readable().await?)
    }

    /// Reads the available bytes and passes them on, with those that are pending as the place for what is to stay. None are pending
    /// before. `Ok(None)` if nothing was available.
    pub(crate) fn try_receive<T>(
        &mut self,
        received: impl FnOnce(&mut [u8], &mut Vec<u8>) -> T,
    ) -> io::Result<Option<T>> {
        let Self { socket, pending, .. } = self;
        match try_receive(socket, usize::MAX, |bytes| received(bytes, pending)) {
            Ok(result) => Ok(Some(result)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the available bytes, up to `most` and the size of the scratch buffer.
    fn try_fill(&mut self, most: usize) -> io::Result<usize> {
        try_receive(&self.socket, most, |bytes| {
            self.pending.extend_from_slice(bytes);
            bytes.len()
        })
    }

    /// Whether no bytes are available and the peer appears to be connected.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.pending.is_empty()
            && self.try_fill(usize::MAX).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits until bytes arrive (`true`) or the peer closes. Reads nothing.
    pub(crate) async fn has_unread(&self) -> bool {
        !self.pending.is_empty() || self.socket.peek().await.is_ok_and(|length| length > 0)
    }

    /// Waits until `length` bytes are pending. The message has begun, so it must make progress within the stall
    /// limit.
    pub(crate) async fn fill_to(&mut self, length: usize) -> Result<(), WireError> {
        while self.pending.len() < length {
            match timeout(self.stall, self.fill()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Err(WireError::ClosedInside),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(WireError::Stalled("the limit for reading a message")),
            }
        }
        Ok(())
    }

    /// Long requests are counted in this share from now on.
    pub(crate) fn sent_by(&mut self, share: Share) {
        self.share = Some(share);
    }

    /// The same for a request of up to `most` bytes: a long one waits for the process's budget, and then has
    /// `deadline` to arrive. It is counted until [`Wire::request_taken`].
    pub(crate) async fn fill_request(
        &mut self,
        length: usize,
        most: usize,
        deadline: Duration,
    ) -> Result<(), WireError> {
        if most <= UNCOUNTED_REQUEST_BYTES {
            return self.fill_to(length).await;
        }
        // The first message of a client that is not known yet is never longer than what is not counted.
        let arriving = self.arriving.get_or_insert_default();
        if let Some(share) = &self.share {
            arriving.budget_guard.acquire_for_request(most, share, self.stall).await?;
        }
        if length == most {
            // Its length is known: no growth copies what has arrived, and nothing beyond it is allocated.
            self.pending.reserve_exact(length.saturating_sub(self.pending.len()));
        }
        let until = *arriving.until.get_or_insert_with(|| Instant::now() + deadline);
        let late = |_| Err(WireError::Stalled("the limit for receiving a request"));
        timeout_at(until, self.fill_to(length)).await.unwrap_or_else(late)
    }

    /// The same for a request with at least `known` bytes: a long one is counted with the limit.
    pub(crate) async fn fill_growing(
        &mut self,
        length: usize,
        known: usize,
        limit: usize,
        deadline: Duration,
    ) -> Result<(), WireError> {
        let most = if known > UNCOUNTED_REQUEST_BYTES { limit } else { known };
        self.fill_request(length, most, deadline).await
    }

    /// The request is complete: its handler accounts for it from now on.
    pub(crate) fn request_taken(&mut self) {
        self.arriving = None;
    }

    /// Takes the first `length` pending bytes, without a copy if they are all.
    pub(crate) fn take(&mut self, length: usize) -> Vec<u8> {
        if length >= self.pending.len() {
            return std::mem::take(&mut self.pending);
        }
        let rest = self.pending.split_off(length);
        std::mem::replace(&mut self.pending, rest)
    }

    /// Discards the first `length` pending bytes.
    pub(crate) fn discard(&mut self, length: usize) {
        if length >= self.pending.len() {
            self.pending = Vec::new();
        } else {
            self.pending.drain(..length);
        }
    }

    /// Writes two pieces as one.
    pub(crate) async fn write(&self, first: &[u8], second: &[u8]) -> Result<(), WireError> {
        let done = match self.try_write_both(first, second) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        if done == first.len() + second.len() && self.socket.try_flush().is_ok() {
            return Ok(());
        }
        // In a box: most writes end here.
        Box::pin(self.write_from(done, first, second)).await
    }

    /// The same from so many bytes on.
    async fn write_from(&self, mut done: usize, first: &[u8], second: &[u8]) -> Result<(), WireError> {
        let total = first.len() + second.len();
        while done < total {
            let head = first.get(done..).unwrap_or_default();
            let tail = &second[done.saturating_sub(first.len())..];
            match self.try_write_both(head, tail) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(length) => done += length,
                Err(error) => self.writable_after(error).await?,
            }
        }
        while let Err(error) = self.socket.try_flush() {
            self.writable_after(error).await?;
        }
        Ok(())
    }

    /// Writes as much of two pieces as the operating system takes at once.
    fn try_write_both(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        let total = first.len() + second.len();
        if first.is_empty() || second.is_empty() {
            return self.socket.try_write(&[IoSlice::new(if first.is_empty() { second } else { first })]);
        }
        if total > JOINED_BYTES || self.socket.is_tls() {
            return self.socket.try_write(&[IoSlice::new(first), IoSlice::new(second)]);
        }
        // One piece is less work for the operating system, more than a short copy is.
        scratch::with(total, |joined| {
            joined[..first.len()].copy_from_slice(first);
            joined[first.len()..].copy_from_slice(second);
            self.socket.try_write(&[IoSlice::new(joined)])
        })
    }

    /// Writes as much as the operating system takes at once. Returns what is left for [`Wire::write`]; `None` if all was sent.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let written = match self.socket.try_write(&[IoSlice::new(bytes)]) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if written == bytes.len() && self.socket.try_flush().is_ok() {
            return Ok(None);
        }
        // Empty when all was encrypted, but not yet sent.
        Ok(Some(bytes[written..].to_vec()))
    }

    /// Writes as much of two pieces as the operating system takes at once.
    pub(crate) fn write_at_once(&self, first: &[u8], second: &[u8]) {
        let _ = self.try_write_both(first, second);
        let _ = self.socket.try_flush();
    }

    /// Waits after a write that could not be done at once; any other error is returned.
    async fn writable_after(&self, error: io::Error) -> Result<(), WireError> {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error.into());
        }
        match timeout(self.stall, self.socket.writable()).await {
            Ok(ready) => Ok(ready?),
            Err(_) => Err(WireError::Stalled("the limit for writing a message")),
        }
    }

    /// Copies up to `left` received bytes to `to`, through the scratch buffer alone as long as `to` accepts them at
    /// once. A piece that `check` rejects is not written. Returns the number of copied bytes, at least one. An error
    /// of `to` is the second kind.
    pub(crate) async fn copy_some(
        &mut self,
        to: &Self,
        left: usize,
        mut check: impl FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<usize, CopyError> {
        // Counts as a wait for tokio: a stream that never has to wait lets others have their turn.
        tokio::task::coop::consume_budget().await;
        loop {
            match self.try_copy(to, left, &mut check)? {
                Copied::All(length) => return Ok(length),
                Copied::Rest(length, rest) => {
                    to.write(&rest, &[]).await.map_err(CopyError::To)?;
                    return Ok(length);
                }
                Copied::Nothing => {}
            }
            match timeout(self.stall, self.socket.readable()).await {
                Ok(ready) => ready.map_err(|error| CopyError::From(error.into()))?,
                Err(_) => return Err(CopyError::From(WireError::Stalled("the limit for reading a reply"))),
            }
        }
    }

    /// The next piece of a reply with `left` more bytes. It must begin to arrive within the stall limit.
    pub(crate) async fn piece(&mut self, left: usize) -> Result<Vec<u8>, WireError> {
        while self.pending.is_empty() {
            match timeout(self.stall, self.socket.readable()).await {
                Ok(ready) => ready?,
                Err(_) => return Err(WireError::Stalled("the limit for reading a reply")),
            }
            match self.try_fill(left) {
                Ok(0) => return Err(WireError::ClosedInside),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(std::mem::take(&mut self.pending))
    }

    fn try_copy(
        &mut self,
        to: &Self,
        left: usize,
        check: &mut impl FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<Copied, CopyError> {
        // More than is left may be read: a read that leaves room shows that the socket is empty.
        scratch::with(usize::MAX, |scratch| {
            let length = match self.socket.try_read(scratch) {
                Ok(0) => return Err(CopyError::From(WireError::ClosedInside)),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Copied::Nothing),
                Err(error) => return Err(CopyError::From(error.into())),
            };
            let (length, surplus) = (length.min(left), length.saturating_sub(left));
            self.pending.extend_from_slice(&scratch[length..length + surplus]);
            check(&scratch[..length]).map_err(|error| CopyError::From(error.into()))?;
            match to.try_write(&scratch[..length]) {
                Ok(None) => Ok(Copied::All(length)),
                Ok(Some(rest)) => Ok(Copied::Rest(length, rest)),
                Err(error) => Err(CopyError::To(error.into())),
            }
        })
    }

    /// Completes when the peer has closed the connection. Reads nothing.
    pub(crate) async fn hung_up(&self) {
        self.socket.received().await;
        // In a box: most waits are given up before.
        Box::pin(self.hung_up_after_receiving()).await;
    }

    async fn hung_up_after_receiving(&self) {
        loop {
            match self.socket.is_closed_by_peer().await {
                Err(_) | Ok(true) => return,
                Ok(false) => match self.socket.peek().await {
                    Ok(0) | Err(_) => return,
                    // Unexpected bytes while a response is awaited: check again later.
                    Ok(_) => tokio::time::sleep(HANG_UP_POLL).await,
                },
            }
        }
    }

    /// Discards the next `left` bytes as they arrive, and counts them down. They must arrive within the stall limit.
    pub(crate) async fn skip(&mut self, left: &mut usize) -> Result<(), WireError> {
        while *left > 0 {
            match timeout(self.stall, self.socket.readable()).await {
                Ok(ready) => ready?,
                Err(_) => return Err(WireError::Stalled("the limit for reading a message")),
            }
            match self.try_fill(*left) {
                Ok(0) => return Err(WireError::ClosedInside),
                Ok(length) => {
                    *left -= length;
                    self.pending = Vec::new();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Closes the write half and lets the peer read the last response: closing a connection with unread bytes resets
    /// it, and the peer would lose the response. Bytes that the peer still sends are discarded, at most `bytes` and
    /// for `deadline`, until it closes or is silent for [`LINGER`].
    pub(crate) async fn part(&mut self, bytes: usize, deadline: Duration) {
        if self.socket.shutdown().is_err() {
            return;
        }
        let _ = timeout(deadline, async {
            let mut seen = 0;
            while seen < bytes {
                self.pending = Vec::new();
                match timeout(LINGER, self.fill()).await {
                    Ok(Ok(true)) => seen += self.pending.len(),
                    _ => return,
                }
            }
        })
        .await;
        self.pending = Vec::new();
    }
}

enum Copied {
    All(usize),
    Rest(usize, Vec<u8>),
    Nothing,
}

/// The end of a copy that failed.
#[derive(Debug)]
pub(crate) enum CopyError {
    From(WireError),
    To(WireError),
}

/// Waits for `future` no longer than `deadline`.
pub(crate) async fn within<T>(
    deadline: Duration,
    what: &'static str,
    future: impl Future<Output = Result<T, WireError>>,
) -> Result<T, WireError> {
    timeout(deadline, future).await.unwrap_or(Err(WireError::Stalled(what)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn pair() -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Wire::new(listener.accept().await.unwrap().0, Duration::from_secs(5)), there)
    }

    #[tokio::test]
    async fn a_connection_owns_no_buffer_between_two_messages() {
        let (mut here, mut there) = pair().await;
        for _ in 0..2 {
            there.write_all(&vec![7; 100_000]).await.unwrap();
            here.fill_to(100_000).await.unwrap();
            here.discard(4);
            assert_eq!(here.take(99_996).len(), 99_996);
            assert_eq!(here.pending.capacity(), 0);
            assert!(here.is_quiet());
            assert_eq!(here.pending.capacity(), 0);
        }
    }

    #[tokio::test]
    async fn what_came_behind_a_message_stays_for_the_next() {
        let (mut here, mut there) = pair().await;
        there.write_all(b"onetwo").await.unwrap();
        here.fill_to(6).await.unwrap();
        assert_eq!(here.take(3), b"one");
        assert!(!here.is_quiet());
        assert_eq!(here.take(3), b"two");
    }

    #[tokio::test]
    async fn a_peer_that_stops_reading_is_given_up_in_time() {
        let (mut here, _there) = pair().await;
        here.stall = Duration::from_millis(50);
        let error = here.write(&[0; 4], &vec![0; 64 << 20]).await.unwrap_err();
        assert!(matches!(error, WireError::Stalled(_)), "{error}");
    }
}
