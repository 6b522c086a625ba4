//! The reservation poller: reads the reservations that clients wait for, once each [`RESERVATION_POLL`] for all of them.
//! At most [`MAX_RESERVATION_WAITERS`] wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metadata::Store;
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use model::ledger::Reservation;
use parking_lot::Mutex;

use super::settings::{MAX_RESERVATION_WAITERS, RESERVATION_POLL};
use crate::metadata::overview_poller::SharedReads;

/// The ids that are awaited, with the number of their waiters.
#[derive(Default)]
struct Awaited {
    waiters: usize,
    ids: BTreeMap<Arc<str>, usize>,
}

/// Polls the reservations that clients wait for.
pub(in crate::metadata) struct ReservationPoller {
    store: Store,
    reads: SharedReads<BTreeMap<Arc<str>, Reservation>>,
    awaited: Arc<Mutex<Awaited>>,
}

/// A waiting client; counted until this is dropped.
pub(super) struct Waiter<'a> {
    poller: &'a ReservationPoller,
    id: Arc<str>,
}

impl ReservationPoller {
    pub(in crate::metadata) fn new(store: Store, clock: SharedClock) -> Self {
        Self { store, reads: SharedReads::new(clock, RESERVATION_POLL), awaited: Arc::default() }
    }

    /// Counts a client that waits for the reservation.
    pub(super) fn waiter(&self, id: &Arc<str>) -> Result<Waiter<'_>, UserError> {
        let mut awaited = self.awaited.lock();
        if awaited.waiters >= MAX_RESERVATION_WAITERS {
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many clients wait for reservations")
                .detail(format!("The limit of the metadata agent is {MAX_RESERVATION_WAITERS}."))
                .hint("Read the state without a wait."));
        }
        awaited.waiters += 1;
        *awaited.ids.entry(Arc::clone(id)).or_default() += 1;
        Ok(Waiter { poller: self, id: Arc::clone(id) })
    }
}

impl Waiter<'_> {
    /// The reservation by the next reading; `None` if it was deleted.
    pub(super) async fn next(&self) -> Result<Option<Reservation>, String> {
        let (store, awaited) = (self.poller.store.clone(), Arc::clone(&self.poller.awaited));
        let reading = self.poller.reads.next(|| async move {
            let ids: BTreeSet<Arc<str>> = awaited.lock().ids.keys().cloned().collect();
            let read = store.reservations_of(&ids).await.map_err(|error| error.to_string())?;
            Ok(read.into_iter().map(|reservation| (Arc::clone(reservation.id()), reservation)).collect())
        });
        Ok(reading.await?.get(&self.id).cloned())
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut awaited = self.poller.awaited.lock();
        awaited.waiters -= 1;
        if let Some(count) = awaited.ids.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                awaited.ids.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::change::Rules;
    use model::clock::SystemClock;

    use super::*;

    #[tokio::test]
    async fn the_number_of_waiting_clients_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let settings = metadata::StoreSettings::sqlite(&folder.path().join("metadata.db"));
        Store::migrate(&settings).await.unwrap();
        let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
        let poller = ReservationPoller::new(store, SystemClock::shared());
        let id: Arc<str> = "r".into();
        let mut all: Vec<_> = (0..MAX_RESERVATION_WAITERS).map(|_| poller.waiter(&id).unwrap()).collect();
        assert_eq!(poller.waiter(&id).map(drop).unwrap_err().sqlstate(), "54000");
        all.pop();
        drop(poller.waiter(&id).unwrap());
        assert_eq!(all[0].next().await, Ok(None), "it does not exist");
        drop(all);
        assert!(poller.awaited.lock().ids.is_empty());
    }
}
