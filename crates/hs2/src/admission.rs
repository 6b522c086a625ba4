//! Admission control: the connection limits of a server, in total, per user, per address, and before authentication, and the
//! rate of new connections from an address.
//!
//! A connection counts as unauthenticated from its admission until its user is known, so clients that never
//! authenticate take nothing from those that do. The count is released when the connection's [`Admission`] is
//! dropped.
//!
//! Each address has a number of places for unauthenticated connections; the addresses of an IPv6 /64 share them. Further
//! connections of it are accepted and [wait](Waiting) for a place in the order of their arrival, without a buffer: the users
//! behind one address who log in at the same time are served a little later. The number of waiting connections is limited
//! too, and they take no place from another address.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::auth::{Authenticator, Credentials, HttpScheme, Principal};
use crate::connect_rate::{ConnectRate, network_of};
use crate::limit_hits::Limit;
use crate::limits::Limits;
use crate::not_admitted::{NotAdmitted, too_many};
use crate::security_context::SecurityContext;
use crate::service_proof::ServiceProof;

/// The first byte of `GET`. Thrift over HTTP has POST only.
const PROBE: u8 = b'G';

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
    /// Connections that wait for a place of their address.
    waiting: usize,
    /// Addresses with an unauthenticated or a waiting connection.
    addresses: HashMap<IpAddr, Address>,
    authenticated: usize,
    by_peer: HashMap<IpAddr, usize>,
    by_user: HashMap<String, usize>,
}

/// The unauthenticated connections of one address, or one IPv6 /64.
struct Address {
    places: Arc<Semaphore>,
    waiting: usize,
    /// Those that have a place or wait for one.
    connections: usize,
}

impl Taken {
    fn leave(&mut self, network: IpAddr) {
        if let Some(address) = self.addresses.get_mut(&network) {
            address.connections -= 1;
            if address.connections == 0 {
                self.addresses.remove(&network);
            }
        }
    }
}

/// A connection that is not rejected.
pub(crate) enum Admitted {
    Now(Arc<Admission>),
    Later(Waiting),
}

/// How one connection is counted.
enum CountedAs {
    /// With a place of its address.
    Unauthenticated { _place: OwnedSemaphorePermit },
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

    /// Counts an accepted connection. It is refused if its address exceeds the rate of new connections, if too many are
    /// unauthenticated, and if too many wait for a place of its address.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
        authenticator: &Arc<dyn Authenticator>,
    ) -> Result<Admitted, NotAdmitted> {
        let peer = peer.ip().to_canonical();
        if !self.take_from_rate(peer) {
            self.limits.hits.hit(Limit::ConnectRate);
            let (per_second, authenticator) = (self.limits.connect_rate, Arc::clone(authenticator));
            return Err(NotAdmitted::TooFast { peer, per_second, authenticator });
        }
        let (network, limits) = (network_of(peer), &self.limits);
        let mut guard = self.taken.lock();
        let taken = &mut *guard;
        let per_address = limits.unauthenticated_per_address.min(Semaphore::MAX_PERMITS);
        let new = || Address { places: Arc::new(Semaphore::new(per_address)), waiting: 0, connections: 0 };
        let address = taken.addresses.entry(network).or_insert_with(new);
        address.connections += 1;
        let places = Arc::clone(&address.places);
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            let most = limits.waiting_connections;
            if taken.waiting >= most || address.waiting >= most.div_ceil(2) {
                taken.leave(network);
                limits.hits.hit(Limit::UnauthenticatedPerAddress);
                return Err(self.address_full(peer, Duration::ZERO, authenticator));
            }
            taken.waiting += 1;
            address.waiting += 1;
            let (counts, authenticator) = (Arc::clone(self), Arc::clone(authenticator));
            return Ok(Admitted::Later(Waiting { counts, peer, network, places, authenticator }));
        };
        if taken.unauthenticated >= limits.unauthenticated_connections {
            limits.hits.hit(Limit::Unauthenticated);
            taken.leave(network);
            return Err(NotAdmitted::Full);
        }
        taken.unauthenticated += 1;
        Ok(Admitted::Now(self.admission(peer, network, place, authenticator)))
    }

    fn admission(
        self: &Arc<Self>,
        peer: IpAddr,
        network: IpAddr,
        place: OwnedSemaphorePermit,
        authenticator: &Arc<dyn Authenticator>,
    ) -> Arc<Admission> {
        let counted_as = Mutex::new(CountedAs::Unauthenticated { _place: place });
        let (counts, authenticator) = (Arc::clone(self), Arc::clone(authenticator));
        Arc::new(Admission { counts, peer, network, authenticator, counted_as })
    }

    fn address_full(&self, peer: IpAddr, waited: Duration, authenticator: &Arc<dyn Authenticator>) -> NotAdmitted {
        let (limit, authenticator) = (self.limits.unauthenticated_per_address, Arc::clone(authenticator));
        NotAdmitted::AddressFull { peer, limit, waited, authenticator }
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

/// A connection that waits for a place of its address.
pub(crate) struct Waiting {
    counts: Arc<ConnectionCounts>,
    peer: IpAddr,
    network: IpAddr,
    places: Arc<Semaphore>,
    authenticator: Arc<dyn Authenticator>,
}

/// The end of a wait without a place.
pub(crate) enum Ended {
    /// The client has sent something, and receives the reason.
    Refused(NotAdmitted),
    /// The client has sent nothing, or closed the connection.
    Silent,
}

impl Waiting {
    /// Waits until the connection has a place, for [`Limits::waiting_deadline`] at most. A client that has left
    /// meanwhile leaves its place as soon as its connection is read.
    pub(crate) async fn place(self, stream: &TcpStream) -> Result<Arc<Admission>, Ended> {
        let deadline = self.counts.limits.waiting_deadline;
        let until = Instant::now() + deadline;
        let mut place = pin!(Arc::clone(&self.places).acquire_owned());
        let first = tokio::select! {
            biased;
            place = &mut place => return self.admit(place),
            first = timeout_at(until, first_byte(stream)) => first,
        };
        match first {
            // Perhaps a probe: it is answered whatever connections of its address there are.
            Ok(Some(PROBE)) => return Err(Ended::Refused(self.full(Duration::ZERO))),
            Ok(Some(_)) => {}
            Ok(None) => return Err(Ended::Silent),
            Err(_) => {
                self.counts.limits.hits.hit(Limit::UnauthenticatedPerAddress);
                return Err(Ended::Silent);
            }
        }
        if let Ok(place) = timeout_at(until, place).await {
            return self.admit(place);
        }
        self.counts.limits.hits.hit(Limit::UnauthenticatedPerAddress);
        Err(Ended::Refused(self.full(deadline)))
    }

    fn full(&self, waited: Duration) -> NotAdmitted {
        self.counts.address_full(self.peer, waited, &self.authenticator)
    }

    /// Counts the connection as unauthenticated; when `self` is dropped it has ceased to wait.
    fn admit(self, place: Result<OwnedSemaphorePermit, AcquireError>) -> Result<Arc<Admission>, Ended> {
        // The semaphore is never closed.
        let place = place.map_err(|_| Ended::Silent)?;
        let mut taken = self.counts.taken.lock();
        if taken.unauthenticated >= self.counts.limits.unauthenticated_connections {
            self.counts.limits.hits.hit(Limit::Unauthenticated);
            return Err(Ended::Refused(NotAdmitted::Full));
        }
        taken.unauthenticated += 1;
        if let Some(address) = taken.addresses.get_mut(&self.network) {
            address.connections += 1;
        }
        drop(taken);
        Ok(self.counts.admission(self.peer, self.network, place, &self.authenticator))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut taken = self.counts.taken.lock();
        taken.waiting -= 1;
        if let Some(address) = taken.addresses.get_mut(&self.network) {
            address.waiting -= 1;
        }
        taken.leave(self.network);
    }
}

/// The first byte that a client has sent, which stays unread; `None` if it has closed the connection.
async fn first_byte(stream: &TcpStream) -> Option<u8> {
    let mut first = [0; 1];
    let length = stream.peek(&mut first).await.ok()?;
    (length > 0).then_some(first[0])
}

/// The authenticator of one connection, which also counts the connection for its user.
pub(crate) struct Admission {
    counts: Arc<ConnectionCounts>,
    peer: IpAddr,
    /// The address, or the IPv6 /64.
    network: IpAddr,
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
            limits.hits.hit(Limit::Connections);
            return Err(too_many());
        }
        let of_peer = count(&taken.by_peer, &self.peer);
        if of_peer >= limits.connections_per_peer {
            limits.hits.hit(Limit::ConnectionsPerAddress);
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many connections from one address")
                .detail(format!("{of_peer} connections of {} are open.", self.peer))
                .hint("Close connections that are not used."));
        }
        if let Some(user) = &user {
            let of_user = count(&taken.by_user, user);
            if of_user >= limits.connections_per_user {
                limits.hits.hit(Limit::ConnectionsPerUser);
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
            CountedAs::Unauthenticated { .. } => {
                taken.unauthenticated = taken.unauthenticated.saturating_sub(1);
                taken.leave(self.network);
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
