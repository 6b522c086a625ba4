//! The log of clients that fail because of TLS: one line for each address and reason in a minute.
//!
//! Such a client is anonymous and may connect as often as it likes, so its lines have a throttle. They are at level info:
//! the client has the reason too.

use std::net::SocketAddr;

use model::log_throttle::KeyedLogThrottle;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::info;

/// Why a client failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mismatch {
    /// It speaks TLS where there is none.
    NoTls,
    /// It does not speak TLS where its login needs TLS.
    LacksTls,
    /// Its handshake failed.
    Handshake,
}

pub(crate) struct TlsLog {
    begun: Instant,
    throttle: Mutex<KeyedLogThrottle<(std::net::IpAddr, Mismatch)>>,
}

impl Default for TlsLog {
    fn default() -> Self {
        Self { begun: Instant::now(), throttle: Mutex::default() }
    }
}

impl TlsLog {
    pub(crate) fn note(&self, peer: SocketAddr, mismatch: Mismatch, reason: &dyn std::fmt::Display) {
        let address = peer.ip().to_canonical();
        let Some(count) = self.throttle.lock().hit((address, mismatch), self.begun.elapsed()) else { return };
        match mismatch {
            Mismatch::NoTls => info!(%address, count, "refused a TLS client: this listener does not speak TLS"),
            Mismatch::LacksTls => info!(%address, count, "refused a client without TLS: its login requires TLS"),
            Mismatch::Handshake => info!(%address, count, %reason, "TLS handshake failed"),
        }
    }
}
