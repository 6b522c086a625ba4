//! One TLS session: rustls driven by hand over reads and writes that never wait.
//!
//! Bytes are decrypted when they are read and only then, so an idle session owns rustls' read buffer of 4 KiB and
//! nothing else. At most one piece of output waits, of [`MAX_WAITING_BYTES`].

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::tcp_io::{try_read, try_write};

/// The most bytes that are encrypted before the socket accepts them.
const MAX_WAITING_BYTES: usize = 64 * 1024;

pub(crate) struct TlsSession {
    /// Never contended: a connection has one task.
    session: Mutex<rustls::Connection>,
}

/// A socket as rustls sees it: an error of kind `WouldBlock` instead of a wait.
struct NonBlocking<'a>(&'a TcpStream);

impl Read for NonBlocking<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        try_read(self.0, into)
    }
}

impl Write for NonBlocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        try_write(self.0, &[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        try_write(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Reads and decrypts once. Zero bytes are the end.
fn receive(session: &mut rustls::Connection, stream: &TcpStream) -> io::Result<usize> {
    let length = session.read_tls(&mut NonBlocking(stream))?;
    let processed = session.process_new_packets();
    // An alert, or the answer to a change of keys. What does not fit now is sent before the next write.
    if let Err(error) = send(session, stream)
        && !would_block(&error)
        && processed.is_ok()
    {
        return Err(error);
    }
    processed.map(|_| length).map_err(invalid)
}

/// Sends the encrypted bytes that wait.
fn send(session: &mut rustls::Connection, stream: &TcpStream) -> io::Result<()> {
    while session.wants_write() {
        if session.write_tls(&mut NonBlocking(stream))? == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

impl TlsSession {
    pub(crate) fn new(mut session: rustls::Connection) -> Self {
        session.set_buffer_limit(Some(MAX_WAITING_BYTES));
        Self { session: Mutex::new(session) }
    }

    pub(crate) async fn handshake(&self, stream: &TcpStream) -> io::Result<()> {
        loop {
            while let Err(error) = self.try_flush(stream) {
                if !would_block(&error) {
                    return Err(error);
                }
                stream.writable().await?;
            }
            if !self.session.lock().is_handshaking() {
                return Ok(());
            }
            stream.readable().await?;
            match receive(&mut self.session.lock(), stream) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if !would_block(&error) => return Err(error),
                _ => {}
            }
        }
    }

    /// Whether decrypted bytes, the end or an error wait to be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.session
            .lock()
            .process_new_packets()
            .map_or(true, |state| state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
    }

    /// Reads until `into` is full or nothing is available. An end without `close_notify` is an end too: whether it cuts
    /// a message short is visible in the message.
    pub(crate) fn try_read(&self, stream: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        let mut session = self.session.lock();
        let mut done = 0;
        while done < into.len() {
            match session.reader().read(&mut into[done..]) {
                Ok(0) => break,
                Ok(length) => {
                    done += length;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) if would_block(&error) => {}
                Err(error) => return Err(error),
            }
            // The error of an earlier read, if there was one.
            session.process_new_packets().map_err(invalid)?;
            match receive(&mut session, stream) {
                Err(error) if would_block(&error) && done > 0 => break,
                received => received?,
            };
        }
        Ok(done)
    }

    /// Waits until bytes can be read, and returns how many were decrypted; zero at the end.
    pub(crate) async fn peek(&self, stream: &TcpStream) -> io::Result<usize> {
        loop {
            {
                let mut session = self.session.lock();
                let state = session.process_new_packets().map_err(invalid)?;
                if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                    return Ok(state.plaintext_bytes_to_read());
                }
                match receive(&mut session, stream) {
                    Ok(0) => return Ok(0),
                    Ok(_) => continue,
                    Err(error) if would_block(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            stream.readable().await?;
        }
    }

    /// Encrypts the next piece after the last one was sent, and sends what the socket accepts.
    pub(crate) fn try_write(&self, stream: &TcpStream, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut session = self.session.lock();
        send(&mut session, stream)?;
        let length = session.writer().write_vectored(bytes)?;
        match send(&mut session, stream) {
            Err(error) if !would_block(&error) => Err(error),
            _ => Ok(length),
        }
    }

    pub(crate) fn try_flush(&self, stream: &TcpStream) -> io::Result<()> {
        send(&mut self.session.lock(), stream)
    }

    /// Sends `close_notify`, unless an alert was sent before.
    pub(crate) fn close(&self, stream: &TcpStream) {
        let mut session = self.session.lock();
        if !session.is_handshaking() {
            session.send_close_notify();
        }
        // The connection ends also if the peer does not read it.
        let _ = send(&mut session, stream);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::time::Duration;

    use ::tests::certificate::Certificate;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::tls::certificate::{Certified, ServerCertificate};
    use crate::tls::client::ClientTls;
    use crate::tls::{ServerTls, TlsVersion};

    /// How long a socket without bytes is waited for.
    const SILENCE: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn at_most_64_kib_wait_for_a_peer_that_stops_reading() {
        let folder = tempfile::tempdir().unwrap();
        let files = Certificate::create(folder.path(), "server").unwrap();
        let read = |path| std::fs::read(path).unwrap();
        let certified = Certified::from_pem(&read(&files.certificate), &read(&files.key)).unwrap();
        let server = ServerTls::new(Arc::new(ServerCertificate::new(certified)), TlsVersion::Tls13, true).unwrap();
        let server = TlsSession::new(server.session().unwrap());
        let client = ClientTls::from_ca_file(&files.certificate).unwrap();
        let client = TlsSession::new(client.session("localhost:1").unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (here, _) = listener.accept().await.unwrap();
        let (served, connected) = tokio::join!(server.handshake(&here), client.handshake(&there));
        served.unwrap();
        connected.unwrap();

        let (piece, mut accepted) = (vec![0; 1 << 20], 0);
        let refused = loop {
            match server.try_write(&here, &[IoSlice::new(&piece)]) {
                Ok(length) => accepted += length,
                Err(error) => break error,
            }
        };
        assert!(would_block(&refused), "{refused}");
        // What the kernel took is larger than its plain text.
        let (mut received, mut buffer) = (0, vec![0; 1 << 16]);
        while let Ok(length) = timeout(SILENCE, there.read(&mut buffer)).await {
            received += length.unwrap();
        }
        assert!(accepted <= received + MAX_WAITING_BYTES, "{} bytes wait", accepted - received);
    }
}
