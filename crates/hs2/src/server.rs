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

use crate::admission::{Admission, Admitted, ConnectionCounts, Ended, Waiting};
use crate::answer::encode_refusal;
use crate::auth::Authenticator;
use crate::connection::{Connection, HandshakeError};
use crate::http_api::HttpApi;
use crate::limits::Limits;
use crate::not_admitted::NotAdmitted;
use crate::socket::set_options;
use crate::tls::ServerTls;
use crate::tls::log::TlsLog;
use crate::wire::Wire;

/// The most connections above a limit that are rejected with a reason at the same time; others are closed at once.
const REJECTIONS_AT_ONCE: usize = 32;

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
        set_options(&listener);
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
        let authenticator = Arc::clone(&handler) as Arc<dyn Authenticator>;
        let serving = Arc::new(Serving {
            api: handler.http_api(),
            handler,
            limits: Arc::clone(&self.limits),
            tls: self.tls,
            log: Arc::default(),
            rejections: Arc::new(Semaphore::new(REJECTIONS_AT_ONCE)),
            stop: stop.clone(),
        });
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
            match counts.admit(peer, &authenticator) {
                Ok(Admitted::Now(admission)) => {
                    tasks.spawn(Arc::clone(&serving).serve(stream, peer, admission));
                }
                Ok(Admitted::Later(waiting)) => {
                    tasks.spawn(Arc::clone(&serving).serve_later(stream, peer, waiting));
                }
                Err(reason) => {
                    if let Some(permit) = serving.may_reject() {
                        tasks.spawn(Arc::clone(&serving).reject(stream, peer, reason, permit));
                    }
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

/// What the connections of a server have in common.
struct Serving<H> {
    handler: Arc<H>,
    api: Option<Arc<dyn HttpApi>>,
    limits: Arc<Limits>,
    tls: Option<Arc<ServerTls>>,
    log: Arc<TlsLog>,
    /// A permit for each connection that is rejected with a reason at the same time.
    rejections: Arc<Semaphore>,
    stop: CancellationToken,
}

impl<H: Handler> Serving<H> {
    /// Serves an admitted connection to its end.
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, admission: Arc<Admission>) {
        let connection = tokio::select! {
            () = self.stop.cancelled() => return,
            // In a box, which ends with the handshake.
            connection = Box::pin(self.open(stream, peer, admission, self.api.clone())) => connection,
        };
        if let Some(connection) = connection {
            Arc::clone(&self.handler).connection(connection, self.stop.clone()).await;
        }
    }

    /// The same once the connection has a place of its address. If it has none in time it is rejected.
    async fn serve_later(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, waiting: Waiting) {
        let admitted = tokio::select! {
            () = self.stop.cancelled() => return,
            admitted = waiting.place(&stream) => admitted,
        };
        match admitted {
            Ok(admission) => self.serve(stream, peer, admission).await,
            Err(Ended::Refused(reason)) => {
                if let Some(permit) = self.may_reject() {
                    self.reject(stream, peer, reason, permit).await;
                }
            }
            Err(Ended::Silent) => {}
        }
    }

    /// `None` if too many connections are being rejected: one more is closed without a response.
    fn may_reject(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.rejections).try_acquire_owned().ok()
    }

    async fn reject(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        reason: NotAdmitted,
        _permit: OwnedSemaphorePermit,
    ) {
        let reason = Arc::new(reason);
        let rejected = async {
            // SASL and HTTP reject in the handshake; plain Thrift in the reply to the first call.
            let authenticator = Arc::clone(&reason) as Arc<dyn Authenticator>;
            let mut connection = self.open(stream, peer, authenticator, None).await?;
            let message = connection.next().await.ok()??;
            let method = message.method()?;
            connection.send(&encode_refusal(method, message.seqid(), &reason.error())).await.ok()?;
            connection.close().await;
            Some(())
        };
        // A client of an unknown protocol is disconnected.
        tokio::select! {
            () = self.stop.cancelled() => {}
            _ = timeout(self.limits.auth_deadline, rejected) => {}
        }
    }

    /// The handshake enforces its own deadline.
    async fn open(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        authenticator: Arc<dyn Authenticator>,
        api: Option<Arc<dyn HttpApi>>,
    ) -> Option<Connection> {
        let limits = Arc::clone(&self.limits);
        let wire = Wire::new(stream, limits.stall);
        match Connection::accept(wire, peer, authenticator, api, limits, self.tls.as_deref(), &self.log).await {
            Ok(connection) => Some(connection),
            Err(HandshakeError::GoneAway) => None,
            Err(error) => {
                debug!(%peer, %error, "handshake failed");
                None
            }
        }
    }
}
