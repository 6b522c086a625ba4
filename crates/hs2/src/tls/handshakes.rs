//! The handshake limiter: how many TLS handshakes run at the same time, in total and from one address.
//!
//! A handshake above a limit waits for its turn, in the order of arrival; the deadline of its connection bounds the wait,
//! and the limit on unauthenticated connections the queue. A waiter that is dropped gives its turn up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::limits::{HANDSHAKES_AT_ONCE, HANDSHAKES_PER_ADDRESS};

/// The handshakes of one listener.
#[derive(Debug)]
pub(crate) struct Handshakes {
    all: Arc<Semaphore>,
    addresses: Mutex<HashMap<IpAddr, OfAddress>>,
}

#[derive(Debug)]
struct OfAddress {
    turns: Arc<Semaphore>,
    /// The handshakes that run or wait; without one the entry is removed.
    handshakes: usize,
}

/// The right to run a handshake, until dropped.
pub(crate) struct Turn<'a> {
    _all: OwnedSemaphorePermit,
    _of_address: OwnedSemaphorePermit,
    _counted: Counted<'a>,
}

/// A handshake that is counted in the entry of its address.
struct Counted<'a> {
    handshakes: &'a Handshakes,
    address: IpAddr,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(HANDSHAKES_AT_ONCE)), addresses: Mutex::default() }
    }
}

impl Handshakes {
    /// Waits until the address may run another handshake.
    pub(crate) async fn turn(&self, address: IpAddr) -> Result<Turn<'_>, AcquireError> {
        let address = address.to_canonical();
        let (counted, turns) = self.count(address);
        // That of the address first: an address that has all of its turns takes none of the others'.
        let of_address = turns.acquire_owned().await?;
        let all = Arc::clone(&self.all).acquire_owned().await?;
        Ok(Turn { _all: all, _of_address: of_address, _counted: counted })
    }

    fn count(&self, address: IpAddr) -> (Counted<'_>, Arc<Semaphore>) {
        let mut addresses = self.addresses.lock();
        let entry = addresses
            .entry(address)
            .or_insert_with(|| OfAddress { turns: Arc::new(Semaphore::new(HANDSHAKES_PER_ADDRESS)), handshakes: 0 });
        entry.handshakes += 1;
        (Counted { handshakes: self, address }, Arc::clone(&entry.turns))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut addresses = self.handshakes.addresses.lock();
        if let Some(entry) = addresses.get_mut(&self.address) {
            entry.handshakes -= 1;
            if entry.handshakes == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use tokio::task::unconstrained;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn is_waiting(handshakes: &Handshakes, address: IpAddr) -> bool {
        pin!(unconstrained(handshakes.turn(address))).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn an_address_with_all_of_its_turns_delays_no_other() {
        let handshakes = Handshakes::default();
        let mut turns = Vec::new();
        for _ in 0..HANDSHAKES_PER_ADDRESS {
            turns.push(handshakes.turn(address(1)).await.unwrap());
        }
        assert!(is_waiting(&handshakes, address(1)) && !is_waiting(&handshakes, address(2)));
        turns.pop();
        assert!(!is_waiting(&handshakes, address(1)));
        drop(turns);
        assert!(handshakes.addresses.lock().is_empty(), "an address without handshakes has no entry");
    }

    #[tokio::test]
    async fn handshakes_of_all_addresses_have_one_limit() {
        let handshakes = Handshakes::default();
        let mut turns = Vec::new();
        for n in 0..HANDSHAKES_AT_ONCE {
            turns.push(handshakes.turn(address((n / HANDSHAKES_PER_ADDRESS) as u8)).await.unwrap());
        }
        assert!(is_waiting(&handshakes, address(255)));
        turns.pop();
        assert!(!is_waiting(&handshakes, address(255)));
    }
}
