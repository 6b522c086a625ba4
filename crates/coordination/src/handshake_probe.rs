//! One server of an ensemble asked for a session, and given it back: whether it serves, and how long a session it grants.
//!
//! The client library chooses a server by itself and doesn't tell which; whoever wants to know of each one speaks the
//! first frame of ZooKeeper's protocol here. The session holds nothing and is closed at once; if that is lost, the server
//! expires it.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::error::Error;

/// Bytes of a session's password in the first frames.
const PASSWORD_BYTES: usize = 16;
/// The longest answer that can be one to a wish for a session.
const MAX_ANSWER_BYTES: usize = 1_024;
/// The request that gives a session back.
const CLOSE_SESSION: i32 = -11;

/// A session that a server granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedSession {
    /// How long it would live without a sign of life: what was asked for, within the server's limits.
    pub timeout: Duration,
    /// How long it took, connecting included.
    pub took: Duration,
}

/// Asks the server at `address` (`host:port`) for a session of `timeout_wanted`, and gives it back.
pub async fn probe_handshake(
    address: &str,
    timeout_wanted: Duration,
    deadline: Duration,
) -> Result<GrantedSession, Error> {
    match timeout(deadline, exchange(address, timeout_wanted)).await {
        Ok(Ok(granted)) => Ok(granted),
        Ok(Err(reason)) => Err(Error::Unavailable { reason }),
        Err(_) => Err(Error::Unavailable { reason: format!("no session within {} ms", deadline.as_millis()) }),
    }
}

async fn exchange(address: &str, timeout_wanted: Duration) -> Result<GrantedSession, String> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let no_session = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
            "it accepts connections and grants no session: it is not part of a quorum, or not a ZooKeeper server"
                .to_owned()
        }
        _ => error.to_string(),
    };
    stream.write_all(&wish(timeout_wanted)).await.map_err(no_session)?;
    let length = stream.read_i32().await.map_err(no_session)?;
    let length = usize::try_from(length).ok().filter(|it| (24..=MAX_ANSWER_BYTES).contains(it));
    let length = length.ok_or_else(|| "it answers with something that is not ZooKeeper's protocol".to_owned())?;
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.map_err(no_session)?;
    let number = |at: usize| i32::from_be_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]]);
    let granted_ms = u32::try_from(number(4)).ok().filter(|it| *it > 0);
    let took = began.elapsed();
    // Given back; a server that does not hear it expires the session.
    let mut close = Vec::from(8_i32.to_be_bytes());
    close.extend([1_i32, CLOSE_SESSION].map(i32::to_be_bytes).concat());
    if stream.write_all(&close).await.is_ok() {
        let mut rest = Vec::new();
        let _ = stream.take(MAX_ANSWER_BYTES as u64).read_to_end(&mut rest).await;
    }
    let granted_ms = granted_ms.ok_or_else(|| "it refuses the session".to_owned())?;
    Ok(GrantedSession { timeout: Duration::from_millis(u64::from(granted_ms)), took })
}

/// Protocol version, last transaction seen, time-out, session 0, an empty password, not read-only.
fn wish(timeout_wanted: Duration) -> Vec<u8> {
    let wanted_ms = i32::try_from(timeout_wanted.as_millis()).unwrap_or(i32::MAX);
    let mut body = Vec::new();
    body.extend(0_i32.to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.extend(wanted_ms.to_be_bytes());
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
    fn the_wish_has_the_length_that_it_says() {
        let frame = wish(Duration::from_secs(4));
        assert_eq!(frame.len(), 4 + 45);
        assert_eq!(frame[..4], 45_i32.to_be_bytes());
        assert_eq!(frame[16..20], 4_000_i32.to_be_bytes());
    }
}
