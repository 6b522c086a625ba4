//! Connection limits of a server: in all, of one user, from one address, and of clients that are not authenticated yet.
//!
//! A connection is counted as unauthenticated from its acceptance on and moves to the others when its user is known,
//! so that clients which never authenticate take nothing from those that do. A place is given back when the
//! connection's [`Admission`] is dropped.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;

use crate::auth::{Authenticator, Credentials, Principal};
use crate::limits::Limits;

/// The connections of one server.
pub(crate) struct Places {
    limits: Arc<Limits>,
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

/// What one connection is counted as.
enum Place {
    Unauthenticated,
    /// Of this user; none for a role of ours, which speaks for many.
    Authenticated(Option<String>),
    /// Between two users of an HTTP connection, or refused.
    Nothing,
}

fn count<K: Hash + Eq>(counts: &HashMap<K, usize>, key: &K) -> usize {
    counts.get(key).copied().unwrap_or_default()
}

fn release<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Places {
    pub(crate) fn new(limits: Arc<Limits>) -> Self {
        Self { limits, taken: Mutex::default() }
    }

    /// Counts a connection that was accepted; nothing when too many have not authenticated yet, in all or from its
    /// address, which may have half of them.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
        authenticator: Arc<dyn Authenticator>,
    ) -> Option<Arc<Admission>> {
        let peer = peer.ip().to_canonical();
        let most = self.limits.unauthenticated_connections;
        let mut taken = self.taken.lock();
        let of_peer = count(&taken.unauthenticated_by_peer, &peer);
        if taken.unauthenticated >= most || of_peer >= most.div_ceil(2) {
            return None;
        }
        taken.unauthenticated += 1;
        *taken.unauthenticated_by_peer.entry(peer).or_default() += 1;
        let place = Mutex::new(Place::Unauthenticated);
        Some(Arc::new(Admission { places: Arc::clone(self), peer, authenticator, place }))
    }

    fn is_full(&self) -> bool {
        self.taken.lock().authenticated >= self.limits.connections
    }
}

pub(crate) fn too_many() -> UserError {
    UserError::new(ErrorKind::ProgramLimit, "too many connections").hint("Retry later, or close other sessions.")
}

/// The authenticator of one connection, which counts it for its user.
pub(crate) struct Admission {
    places: Arc<Places>,
    peer: IpAddr,
    authenticator: Arc<dyn Authenticator>,
    place: Mutex<Place>,
}

impl Admission {
    fn count_for(&self, principal: &Principal) -> Result<(), UserError> {
        let user = principal.service.is_none().then(|| principal.user.clone());
        let mut place = self.place.lock();
        if matches!(&*place, Place::Authenticated(known) if *known == user) {
            return Ok(());
        }
        let limits = &self.places.limits;
        let mut taken = self.places.taken.lock();
        self.give_back(&mut place, &mut taken);
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
        *place = Place::Authenticated(user);
        Ok(())
    }

    fn give_back(&self, place: &mut Place, taken: &mut Taken) {
        match std::mem::replace(place, Place::Nothing) {
            Place::Unauthenticated => {
                taken.unauthenticated = taken.unauthenticated.saturating_sub(1);
                release(&mut taken.unauthenticated_by_peer, &self.peer);
            }
            Place::Authenticated(user) => {
                taken.authenticated = taken.authenticated.saturating_sub(1);
                release(&mut taken.by_peer, &self.peer);
                if let Some(user) = user {
                    release(&mut taken.by_user, &user);
                }
            }
            Place::Nothing => {}
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut place = self.place.lock();
        self.give_back(&mut place, &mut self.places.taken.lock());
    }
}

#[async_trait]
impl Authenticator for Admission {
    async fn authenticate(&self, peer: SocketAddr, credentials: &Credentials) -> Result<Principal, UserError> {
        let principal = self.authenticator.authenticate(peer, credentials).await?;
        self.count_for(&principal)?;
        Ok(principal)
    }

    fn serves_host(&self, name: &str) -> bool {
        self.authenticator.serves_host(name)
    }

    fn unready(&self) -> Option<String> {
        if self.places.is_full() { Some(too_many().message) } else { self.authenticator.unready() }
    }
}
