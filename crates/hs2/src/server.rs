//! The server: accepts connections, passes them to a handler, stops on request.
//!
//! Each connection is a task of its own; one that fails or panics affects no other. On shutdown the server accepts no
//! more connections, gives running calls [`Limits::close_grace`], and then ends the rest.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::{SharedClock, SystemClock};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::admission::{ConnectionCounts, Refusal};
use crate::answer::encode_refusal;
use crate::auth::Authenticator;
use crate::connection::{Connection, HandshakeError};
use crate::http_api::HttpApi;
use crate::limits::Limits;
use crate::tls::ServerTls;
use crate::tls::log::TlsLog;
use crate::wire::Wire;

/// The most connections above a limit that are rejected with a reason at the same time; others are closed at once.
const REFUSALS_AT_ONCE: usize = 32;

/// How long accepting pauses when the operating system refuses (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A handler of connections at the level of messages.
#[async_trait]
pub trait Handler: Authenticator + Send + Sync + 'static {
    /// Serves one connection to its end. When `stop` is cancelled, running calls should end.
    async fn connection(self: Arc<Self>, connection: Connection, stop: CancellationToken);

    /// What is served below `/api/`, to authenticated clients over HTTP; `None` if nothing is. Called once for each
    /// listener.
    fn http_api(&self) -> Option<Arc<dyn HttpApi>> {
        None
    }
}

/// A listening socket that is not served yet.
pub struct Server {
    listener: TcpListener,
    limits: Arc<Limits>,
    clock: SharedClock,
    tls: Option<Arc<ServerTls>>,
}

impl Server {
    /// Binds a socket. Port 0 chooses a free one.
    pub async fn bind(address: impl ToSocketAddrs, limits: Limits) -> io::Result<Self> {
        Ok(Self::from_listener(TcpListener::bind(address).await?, limits))
    }

    /// For a socket that listens already.
    pub fn from_listener(listener: TcpListener, limits: Limits) -> Self {
        Self { listener, limits: Arc::new(limits), clock: SystemClock::shared(), tls: None }
    }

    /// Serves clients that begin with a TLS handshake, on the same port.
    #[must_use]
    pub fn with_tls(self, tls: impl Into<Arc<ServerTls>>) -> Self {
        Self { tls: Some(tls.into()), ..self }
    }

    /// Measures the rate of new connections with this clock, in place of the machine's.
    #[must_use]
    pub fn with_clock(self, clock: SharedClock) -> Self {
        Self { clock, ..self }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves connections until `stop` is cancelled and all of them have ended.
    pub async fn serve_connections<H: Handler>(self, handler: Arc<H>, stop: CancellationToken) {
        let counts = Arc::new(ConnectionCounts::new(Arc::clone(&self.limits), self.clock));
        let refusals = Arc::new(Semaphore::new(REFUSALS_AT_ONCE));
        let log = Arc::new(TlsLog::default());
        let api = handler.http_api();
        let authenticator = Arc::clone(&handler) as Arc<dyn Authenticator>;
        let mut tasks = JoinSet::new();
        let mut fails = false;
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                    report(ended);
                    continue;
                }
                accepted = self.listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => {
                    fails = false;
                    accepted
                }
                Err(error) => {
                    // Without free file descriptors every accept fails: log it once.
                    if !fails {
                        warn!(%error, "cannot accept connections");
                    }
                    fails = true;
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (limits, tls, stop) = (Arc::clone(&self.limits), self.tls.clone(), stop.clone());
            let log = Arc::clone(&log);
            match counts.admit(peer, &authenticator) {
                Ok(admission) => {
                    let opening = open(stream, admission, api.clone(), limits, tls, log);
                    tasks.spawn(serve_one(opening, Arc::clone(&handler), stop));
                }
                Err(refusal) => {
                    let Ok(permit) = Arc::clone(&refusals).try_acquire_owned() else { continue };
                    let (deadline, refusal) = (limits.auth_deadline, Arc::new(refusal));
                    let opening = open(stream, Arc::clone(&refusal) as Arc<dyn Authenticator>, None, limits, tls, log);
                    tasks.spawn(refuse_one(opening, refusal, deadline, stop, permit));
                }
            }
        }
        drop(self.listener);
        let ended = timeout(self.limits.close_grace, async {
            while let Some(ended) = tasks.join_next().await {
                report(ended);
            }
        });
        if ended.await.is_err() {
            debug!(connections = tasks.len(), "closing the remaining connections");
            tasks.shutdown().await;
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "connection task panicked");
    }
}

async fn serve_one<H: Handler>(
    opening: impl Future<Output = Option<Connection>>,
    handler: Arc<H>,
    stop: CancellationToken,
) {
    let connection = tokio::select! {
        () = stop.cancelled() => return,
        connection = opening => connection,
    };
    if let Some(connection) = connection {
        handler.connection(connection, stop).await;
    }
}

/// The handshake enforces its own deadline.
async fn open(
    stream: TcpStream,
    authenticator: Arc<dyn Authenticator>,
    api: Option<Arc<dyn HttpApi>>,
    limits: Arc<Limits>,
    tls: Option<Arc<ServerTls>>,
    log: Arc<TlsLog>,
) -> Option<Connection> {
    let wire = Wire::new(stream, limits.stall);
    let peer = wire.peer().ok();
    match Connection::accept(wire, authenticator, api, limits, tls.as_deref(), &log).await {
        Ok(connection) => Some(connection),
        Err(HandshakeError::GoneAway) => None,
        Err(error) => {
            debug!(peer = peer.map(tracing::field::display), %error, "handshake failed");
            None
        }
    }
}

async fn refuse_one(
    opening: impl Future<Output = Option<Connection>>,
    refusal: Arc<Refusal>,
    deadline: Duration,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    let refused = async {
        // SASL and HTTP reject in the handshake; plain Thrift in the reply to the first call.
        let mut connection = opening.await?;
        let message = connection.next().await.ok()??;
        let method = message.method()?;
        connection.send(&encode_refusal(method, message.seqid(), &refusal.error())).await.ok()?;
        connection.close().await;
        Some(())
    };
    // A client of an unknown protocol is disconnected.
    tokio::select! {
        () = stop.cancelled() => {}
        _ = timeout(deadline, refused) => {}
    }
}
