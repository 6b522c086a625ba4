//! The server: accepts connections, passes them to a handler, stops on request.
//!
//! Each connection is a task of its own; one that fails or panics affects no other. On shutdown the server accepts no
//! more connections, gives running calls [`Limits::close_grace`], and then ends the rest.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::error::UserError;
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::admission::{ConnectionCounts, too_many};
use crate::answer::encode_refusal;
use crate::auth::{Authenticator, Credentials, Principal};
use crate::connection::{Connection, HandshakeError};
use crate::http_api::HttpApi;
use crate::limits::Limits;
use crate::service_proof::ServiceProof;
use crate::tls::ServerTls;
use crate::tls::log::TlsLog;
use crate::wire::Wire;

/// The most connections above the limit that are rejected with a reason at the same time; others are closed at once.
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
    tls: Option<Arc<ServerTls>>,
}

impl Server {
    /// Binds a socket. Port 0 chooses a free one.
    pub async fn bind(address: impl ToSocketAddrs, limits: Limits) -> io::Result<Self> {
        Ok(Self::from_listener(TcpListener::bind(address).await?, limits))
    }

    /// For a socket that listens already.
    pub fn from_listener(listener: TcpListener, limits: Limits) -> Self {
        Self { listener, limits: Arc::new(limits), tls: None }
    }

    /// Serves clients that begin with a TLS handshake, on the same port.
    #[must_use]
    pub fn with_tls(self, tls: impl Into<Arc<ServerTls>>) -> Self {
        Self { tls: Some(tls.into()), ..self }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves connections until `stop` is cancelled and all of them have ended.
    pub async fn serve_connections<H: Handler>(self, handler: Arc<H>, stop: CancellationToken) {
        let counts = Arc::new(ConnectionCounts::new(Arc::clone(&self.limits)));
        let refusals = Arc::new(Semaphore::new(REFUSALS_AT_ONCE));
        let log = Arc::new(TlsLog::default());
        let api = handler.http_api();
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
            if let Some(admission) = counts.admit(peer, Arc::clone(&handler) as Arc<dyn Authenticator>) {
                let opening = open(stream, admission, api.clone(), limits, tls, log);
                tasks.spawn(serve_one(opening, Arc::clone(&handler), stop));
            } else if let Ok(permit) = Arc::clone(&refusals).try_acquire_owned() {
                let deadline = limits.auth_deadline;
                let opening = open(stream, Arc::new(Full), None, limits, tls, log);
                tasks.spawn(refuse_one(opening, deadline, stop, permit));
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

/// Rejects a client in its own protocol.
struct Full;

#[async_trait]
impl Authenticator for Full {
    async fn authenticate(&self, _: SocketAddr, _: &Credentials) -> Result<Principal, UserError> {
        Err(too_many())
    }

    fn accepts_services(&self) -> bool {
        true
    }

    async fn authenticate_service(&self, _: SocketAddr, _: &ServiceProof) -> Result<Principal, UserError> {
        Err(too_many())
    }

    async fn authenticate_bearer(&self, _: SocketAddr, _: &str, _: &str) -> Result<Principal, UserError> {
        Err(too_many())
    }

    fn accepts_no_user_name(&self) -> bool {
        true
    }

    fn unready(&self) -> Option<String> {
        Some(too_many().message)
    }
}

async fn refuse_one(
    opening: impl Future<Output = Option<Connection>>,
    deadline: Duration,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    let refused = async {
        // SASL and HTTP reject in the handshake; plain Thrift in the reply to the first call.
        let mut connection = opening.await?;
        let message = connection.next().await.ok()??;
        let method = message.method()?;
        connection.send(&encode_refusal(method, message.seqid(), &too_many())).await.ok()?;
        connection.close().await;
        Some(())
    };
    // A client of an unknown protocol is disconnected.
    tokio::select! {
        () = stop.cancelled() => {}
        _ = timeout(deadline, refused) => {}
    }
}
