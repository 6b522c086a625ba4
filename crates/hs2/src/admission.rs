//! Admission control: the connection limits of a server, in total, per user, per address, and before authentication, and the
//! rate of new connections from an address.
//!
//! A connection counts as unauthenticated from its acceptance until its user is known, so clients that never
//! authenticate take nothing from those that do. The count is released when the connection's [`Admission`] is
//! dropped.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;

use crate::auth::{Authenticator, Credentials, HttpScheme, Principal};
use crate::connect_rate::ConnectRate;
use crate::limits::Limits;
use crate::security_context::SecurityContext;
use crate::service_proof::ServiceProof;

/// The connection counts of one server.
pub(crate) struct ConnectionCounts {
    limits: Arc<Limits>,
    clock: SharedClock,
    rate: Mutex<ConnectRate>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    unauthenticated: usize,
    unauthenticated_by_peer: HashMap<IpAddr, usize>,
    authenticated: usize,
    by_peer: HashMap<IpAddr, usize>,
    by_user: HashMap<String, usize>,
}

/// How one connection is counted.
enum CountedAs {
    Unauthenticated,
    /// For this user; `None` for a component of Enginehouse, which acts for many.
    Authenticated(Option<String>),
    /// Between two users of an HTTP connection, or rejected.
    Nothing,
}

fn count<K: Hash + Eq>(counts: &HashMap<K, usize>, key: &K) -> usize {
    counts.get(key).copied().unwrap_or_default()
}

fn decrement<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl ConnectionCounts {
    pub(crate) fn new(limits: Arc<Limits>, clock: SharedClock) -> Self {
        let rate = Mutex::new(ConnectRate::new(limits.connect_rate));
        Self { limits, clock, rate, taken: Mutex::default() }
    }

    /// Counts an accepted connection. It is refused if its address exceeds the rate of new connections, and if too many are
    /// unauthenticated, in total or from its address, which may have half of them.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
        authenticator: &Arc<dyn Authenticator>,
    ) -> Result<Arc<Admission>, Refusal> {
        let peer = peer.ip().to_canonical();
        if !self.take_from_rate(peer) {
            let (per_second, authenticator) = (self.limits.connect_rate, Arc::clone(authenticator));
            return Err(Refusal::TooFast { peer, per_second, authenticator });
        }
        let most = self.limits.unauthenticated_connections;
        let mut taken = self.taken.lock();
        let of_peer = count(&taken.unauthenticated_by_peer, &peer);
        if taken.unauthenticated >= most || of_peer >= most.div_ceil(2) {
            return Err(Refusal::Full);
        }
        taken.unauthenticated += 1;
        *taken.unauthenticated_by_peer.entry(peer).or_default() += 1;
        let counted_as = Mutex::new(CountedAs::Unauthenticated);
        let authenticator = Arc::clone(authenticator);
        Ok(Arc::new(Admission { counts: Arc::clone(self), peer, authenticator, counted_as }))
    }

    fn take_from_rate(&self, peer: IpAddr) -> bool {
        // The clock is read under the lock: the limiter's time never decreases.
        let mut rate = self.rate.lock();
        rate.take(peer, self.clock.boottime())
    }

    fn is_full(&self) -> bool {
        self.taken.lock().authenticated >= self.limits.connections
    }
}

fn too_many() -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "too many connections").hint("Retry later, or close other sessions.")
}

/// Why a connection is not admitted. As its authenticator it rejects the client in the client's own protocol.
pub(crate) enum Refusal {
    /// Too many connections are unauthenticated.
    Full,
    /// The address opens more connections than [`Limits::connect_rate`].
    TooFast {
        peer: IpAddr,
        per_second: u32,
        /// The authenticator of connections that are admitted.
        authenticator: Arc<dyn Authenticator>,
    },
}

impl Refusal {
    pub(crate) fn error(&self) -> UserError {
        match self {
            Self::Full => too_many(),
            Self::TooFast { peer, per_second, .. } => {
                let burst = ConnectRate::burst(*per_second);
                UserError::new(ErrorKind::ProgramLimit, "too many new connections from one address")
                    .detail(format!(
                        "The limit for {peer} is {per_second} new connections per second, with bursts of {burst}."
                    ))
                    .hint("Retry later, or reuse connections.")
            }
        }
    }
}

#[async_trait]
impl Authenticator for Refusal {
    async fn authenticate(&self, _: SocketAddr, _: &Credentials) -> Result<Principal, UserError> {
        Err(self.error())
    }

    fn accepts_services(&self) -> bool {
        true
    }

    async fn authenticate_service(&self, _: SocketAddr, _: &ServiceProof) -> Result<Principal, UserError> {
        Err(self.error())
    }

    async fn authenticate_bearer(&self, _: SocketAddr, _: &str, _: &str) -> Result<Principal, UserError> {
        Err(self.error())
    }

    fn begin_ticket_login(&self, _: SocketAddr) -> Result<Box<dyn SecurityContext>, UserError> {
        Err(self.error())
    }

    /// All, so that each client gets the error.
    fn http_schemes(&self) -> Vec<HttpScheme> {
        vec![HttpScheme::Basic, HttpScheme::Bearer, HttpScheme::Negotiate]
    }

    fn accepts_no_user_name(&self) -> bool {
        true
    }

    fn unready(&self) -> Option<String> {
        match self {
            Self::Full => Some(too_many().message),
            // Other addresses are served. Where clients come through a load balancer, its probe has their address, and must not
            // take the server out of service.
            Self::TooFast { authenticator, .. } => authenticator.unready(),
        }
    }
}

/// The authenticator of one connection, which also counts the connection for its user.
pub(crate) struct Admission {
    counts: Arc<ConnectionCounts>,
    peer: IpAddr,
    authenticator: Arc<dyn Authenticator>,
    counted_as: Mutex<CountedAs>,
}

impl Admission {
    fn count_for(&self, principal: &Principal) -> Result<(), UserError> {
        let user = principal.service.is_none().then(|| principal.user.clone());
        let mut counted_as = self.counted_as.lock();
        if matches!(&*counted_as, CountedAs::Authenticated(known) if *known == user) {
            return Ok(());
        }
        let limits = &self.counts.limits;
        let mut taken = self.counts.taken.lock();
        self.release(&mut counted_as, &mut taken);
        if taken.authenticated >= limits.connections {
            return Err(too_many());
        }
        let of_peer = count(&taken.by_peer, &self.peer);
        if of_peer >= limits.connections_per_peer {
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many connections from one address")
                .detail(format!("{of_peer} connections of {} are open.", self.peer))
                .hint("Close connections that are not used."));
        }
        if let Some(user) = &user {
            let of_user = count(&taken.by_user, user);
            if of_user >= limits.connections_per_user {
                return Err(UserError::new(
                    ErrorKind::ProgramLimit,
                    format!("too many connections of user \"{user}\""),
                )
                .detail(format!("{of_user} are open."))
                .hint("Close connections that are not used."));
            }
            taken.by_user.insert(user.clone(), of_user + 1);
        }
        taken.authenticated += 1;
        taken.by_peer.insert(self.peer, of_peer + 1);
        *counted_as = CountedAs::Authenticated(user);
        Ok(())
    }

    fn release(&self, counted_as: &mut CountedAs, taken: &mut Taken) {
        match std::mem::replace(counted_as, CountedAs::Nothing) {
            CountedAs::Unauthenticated => {
                taken.unauthenticated = taken.unauthenticated.saturating_sub(1);
                decrement(&mut taken.unauthenticated_by_peer, &self.peer);
            }
            CountedAs::Authenticated(user) => {
                taken.authenticated = taken.authenticated.saturating_sub(1);
                decrement(&mut taken.by_peer, &self.peer);
                if let Some(user) = user {
                    decrement(&mut taken.by_user, &user);
                }
            }
            CountedAs::Nothing => {}
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut counted_as = self.counted_as.lock();
        self.release(&mut counted_as, &mut self.counts.taken.lock());
    }
}

#[async_trait]
impl Authenticator for Admission {
    async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        let principal = self.authenticator.authenticate(peer, credentials).await?;
        self.count_for(&principal)?;
        Ok(principal)
    }

    fn accepts_services(&self) -> bool {
        self.authenticator.accepts_services()
    }

    async fn authenticate_service(&self, peer: SocketAddr, proof: &ServiceProof) -> Result<Principal, UserError> {
        let principal = self.authenticator.authenticate_service(peer, proof).await?;
        self.count_for(&principal)?;
        Ok(principal)
    }

    async fn authenticate_bearer(&self, peer: SocketAddr, token: &str, authzid: &str) -> Result<Principal, UserError> {
        let principal = self.authenticator.authenticate_bearer(peer, token, authzid).await?;
        self.count_for(&principal)?;
        Ok(principal)
    }

    fn begin_ticket_login(&self, peer: SocketAddr) -> Result<Box<dyn SecurityContext>, UserError> {
        self.authenticator.begin_ticket_login(peer)
    }

    async fn authenticate_ticket(
        &self,
        peer: SocketAddr,
        context: Box<dyn SecurityContext>,
        authzid: &str,
    ) -> Result<Principal, UserError> {
        let principal = self.authenticator.authenticate_ticket(peer, context, authzid).await?;
        self.count_for(&principal)?;
        Ok(principal)
    }

    fn http_schemes(&self) -> Vec<HttpScheme> {
        self.authenticator.http_schemes()
    }

    fn accepts_no_user_name(&self) -> bool {
        self.authenticator.accepts_no_user_name()
    }

    fn authenticate_cookie(&self, cookie: &str) -> Result<Principal, UserError> {
        let principal = self.authenticator.authenticate_cookie(cookie)?;
        self.count_for(&principal)?;
        Ok(principal)
    }

    fn issue_cookie(&self, principal: &Principal) -> Option<String> {
        self.authenticator.issue_cookie(principal)
    }

    fn serves_host(&self, name: &str) -> bool {
        self.authenticator.serves_host(name)
    }

    fn unready(&self) -> Option<String> {
        if self.counts.is_full() { Some(too_many().message) } else { self.authenticator.unready() }
    }
}
