//! The listener: accepts connections, hands them to a handler, ends when told to.
//!
//! Each connection is a task of its own; one that fails or panics takes no other with it. Told to stop, the server
//! accepts nothing more, gives the calls that run [`Limits::close_grace`], and then ends what is left.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use model::error::UserError;
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::auth::{Authenticator, Credentials, Principal};
use crate::connection::{Connection, HandshakeError};
use crate::limits::Limits;
use crate::message::encode_refusal;
use crate::places::{Admission, Places, too_many};
use crate::service::{Service, Typed};
use crate::wire::Wire;

/// How many connections above the limit are told so at the same time; others are closed without a word.
const REFUSALS_AT_ONCE: usize = 32;

/// How long accepting pauses when the operating system refuses (no file descriptors left).
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// What serves connections at the level of messages.
#[async_trait]
pub trait Handler: Authenticator + Send + Sync + 'static {
    /// Serves one connection to its end. When `stop` is cancelled, what runs should be brought to an end.
    async fn connection(self: Arc<Self>, connection: Connection, stop: CancellationToken);
}

/// A listening socket, not yet served.
pub struct Server {
    listener: TcpListener,
    limits: Arc<Limits>,
}

impl Server {
    /// Listens. Port 0 takes a free one.
    pub async fn bind(address: impl ToSocketAddrs, limits: Limits) -> io::Result<Self> {
        Ok(Self::from_listener(TcpListener::bind(address).await?, limits))
    }

    /// Serves a socket that listens already.
    pub fn from_listener(listener: TcpListener, limits: Limits) -> Self {
        Self { listener, limits: Arc::new(limits) }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves typed calls until `stop` is cancelled and all connections have ended.
    pub async fn serve<S: Service>(self, service: Arc<S>, stop: CancellationToken) {
        self.serve_connections(Arc::new(Typed::new(service)), stop).await;
    }

    /// Serves connections until `stop` is cancelled and all of them have ended.
    pub async fn serve_connections<H: Handler>(self, handler: Arc<H>, stop: CancellationToken) {
        let places = Arc::new(Places::new(Arc::clone(&self.limits)));
        let refusals = Arc::new(Semaphore::new(REFUSALS_AT_ONCE));
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
                    // Out of file descriptors, it fails until some are free: that is said once.
                    if !fails {
                        warn!(%error, "connections can't be accepted");
                    }
                    fails = true;
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (limits, stop) = (Arc::clone(&self.limits), stop.clone());
            if let Some(admission) = places.admit(peer, Arc::clone(&handler) as Arc<dyn Authenticator>) {
                tasks.spawn(serve_one(stream, Arc::clone(&handler), admission, limits, stop));
            } else if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
                tasks.spawn(refuse_one(stream, limits, stop, place));
            }
        }
        drop(self.listener);
        let ended = timeout(self.limits.close_grace, async {
            while let Some(ended) = tasks.join_next().await {
                report(ended);
            }
        });
        if ended.await.is_err() {
            debug!(connections = tasks.len(), "closing what did not end by itself");
            tasks.shutdown().await;
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}

async fn serve_one<H: Handler>(
    stream: TcpStream,
    handler: Arc<H>,
    admission: Arc<Admission>,
    limits: Arc<Limits>,
    stop: CancellationToken,
) {
    let connection = tokio::select! {
        () = stop.cancelled() => return,
        connection = admit(stream, admission, limits) => connection,
    };
    if let Some(connection) = connection {
        handler.connection(connection, stop).await;
    }
}

/// The handshake, which keeps its deadline itself.
async fn admit(stream: TcpStream, authenticator: Arc<dyn Authenticator>, limits: Arc<Limits>) -> Option<Connection> {
    let wire = Wire::new(stream, limits.stall);
    let peer = wire.peer().ok();
    match Connection::accept(wire, authenticator, limits).await {
        Ok(connection) => Some(connection),
        Err(HandshakeError::GoneAway) => None,
        Err(error) => {
            debug!(?peer, %error, "a client did not get in");
            None
        }
    }
}

/// Says no to whoever comes, in the protocol that he speaks.
struct Full;

#[async_trait]
impl Authenticator for Full {
    async fn authenticate(&self, _: SocketAddr, _: &Credentials) -> Result<Principal, UserError> {
        Err(too_many())
    }

    fn unready(&self) -> Option<String> {
        Some(too_many().message)
    }
}

async fn refuse_one(stream: TcpStream, limits: Arc<Limits>, stop: CancellationToken, _place: OwnedSemaphorePermit) {
    let deadline = limits.auth_deadline;
    let refused = async {
        // SASL and HTTP are told by their handshake; plain Thrift by the answer to its first call.
        let mut connection = admit(stream, Arc::new(Full), limits).await?;
        let message = connection.next().await.ok()??;
        let method = message.method()?;
        connection.send(&encode_refusal(method, message.seqid(), &too_many())).await.ok()?;
        connection.close().await;
        Some(())
    };
    // One that does not speak is closed without a word.
    tokio::select! {
        () = stop.cancelled() => {}
        _ = timeout(deadline, refused) => {}
    }
}
