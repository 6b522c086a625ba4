//! A handshake probe: opens a session at one server of the ensemble and closes it, to see whether that server serves and which
//! session timeout it grants.
//!
//! The client library chooses a server itself and does not expose which, so this module speaks the first frames of ZooKeeper's
//! protocol. If the close request is lost, the server expires the session.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::error::Error;
use crate::tls::ZookeeperTls;

/// The length of a session's password in the handshake, in bytes.
const PASSWORD_BYTES: usize = 16;
/// The maximum length of a response to a connect request.
const MAX_RESPONSE_BYTES: usize = 1_024;
/// The type of the request that closes a session.
const CLOSE_SESSION: i32 = -11;

/// A session that a server granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedSession {
    /// The session timeout: the requested one, bounded by the server's limits.
    pub timeout: Duration,
    /// How long the handshake took, including the connection.
    pub took: Duration,
}

/// Opens a session with the timeout `requested_timeout` at the server `address` (`host:port`), and closes it. With `tls`, inside
/// TLS.
pub async fn probe_handshake(
    address: &str,
    tls: Option<&ZookeeperTls>,
    requested_timeout: Duration,
    deadline: Duration,
) -> Result<GrantedSession, Error> {
    match timeout(deadline, connected(address, tls, requested_timeout)).await {
        Ok(Ok(granted)) => Ok(granted),
        Ok(Err(reason)) => Err(Error::unavailable(reason)),
        Err(_) => Err(Error::unavailable(format!("no session within {} ms", deadline.as_millis()))),
    }
}

async fn connected(
    address: &str,
    tls: Option<&ZookeeperTls>,
    requested_timeout: Duration,
) -> Result<GrantedSession, String> {
    let began = Instant::now();
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    match tls {
        Some(tls) => exchange(tls.trust().handshake(address, stream).await?, began, requested_timeout).await,
        None => exchange(stream, began, requested_timeout).await,
    }
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    began: Instant,
    requested_timeout: Duration,
) -> Result<GrantedSession, String> {
    let no_session = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
            "it accepts connections but grants no session: it is not part of a quorum, or not a ZooKeeper server"
                .to_owned()
        }
        _ => error.to_string(),
    };
    stream.write_all(&connect_request(requested_timeout)).await.map_err(no_session)?;
    stream.flush().await.map_err(no_session)?;
    let length = stream.read_i32().await.map_err(no_session)?;
    let length = usize::try_from(length).ok().filter(|length| (24..=MAX_RESPONSE_BYTES).contains(length));
    let length = length.ok_or_else(|| "its response is not in ZooKeeper's protocol".to_owned())?;
    let mut response = vec![0; length];
    stream.read_exact(&mut response).await.map_err(no_session)?;
    let number = |at: usize| i32::from_be_bytes([response[at], response[at + 1], response[at + 2], response[at + 3]]);
    let granted_ms = u32::try_from(number(4)).ok().filter(|ms| *ms > 0);
    let took = began.elapsed();
    // If this is lost, the server expires the session.
    let mut close = Vec::from(8_i32.to_be_bytes());
    close.extend([1_i32, CLOSE_SESSION].map(i32::to_be_bytes).concat());
    if stream.write_all(&close).await.is_ok() && stream.flush().await.is_ok() {
        let mut rest = Vec::new();
        let _ = stream.take(MAX_RESPONSE_BYTES as u64).read_to_end(&mut rest).await;
    }
    let granted_ms = granted_ms.ok_or_else(|| "it rejected the session".to_owned())?;
    Ok(GrantedSession { timeout: Duration::from_millis(u64::from(granted_ms)), took })
}

/// Protocol version, last seen transaction, timeout, session 0, an empty password, not read-only.
fn connect_request(requested_timeout: Duration) -> Vec<u8> {
    let timeout_ms = i32::try_from(requested_timeout.as_millis()).unwrap_or(i32::MAX);
    let mut body = Vec::new();
    body.extend(0_i32.to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.extend(timeout_ms.to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.extend((PASSWORD_BYTES as i32).to_be_bytes());
    body.extend([0; PASSWORD_BYTES]);
    body.push(0);
    let mut frame = Vec::from((body.len() as i32).to_be_bytes());
    frame.append(&mut body);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connect_request_has_the_length_in_its_header() {
        let frame = connect_request(Duration::from_secs(4));
        assert_eq!(frame.len(), 4 + 45);
        assert_eq!(frame[..4], 45_i32.to_be_bytes());
        assert_eq!(frame[16..20], 4_000_i32.to_be_bytes());
    }
}
