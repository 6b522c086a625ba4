//! The rate limiter of new connections: a token bucket for each client address.
//!
//! A full bucket holds the connections of [`BURST`], and is refilled at the rate; a refused connection takes nothing from it.
//! The addresses of an IPv6 /64 share a bucket, because one host can use all of them.
//!
//! Invariant: only buckets that are not full are kept, at most [`ADDRESSES`]. One more evicts the bucket that would be full
//! first: the addresses closest to their limit stay limited.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The most addresses with a bucket.
const ADDRESSES: usize = 10_000;

/// The time in which an empty bucket is full again.
const BURST: u32 = 2;

/// The network part of an IPv6 address.
const PREFIX: u128 = u128::MAX << 64;

/// The buckets of one server.
#[derive(Debug)]
pub(crate) struct ConnectRate {
    /// The time that refills one connection; zero without a limit.
    interval: Duration,
    /// The time that refills an empty bucket.
    capacity: Duration,
    /// When the bucket of an address is full again.
    full_at: HashMap<IpAddr, Duration>,
    /// The same in the order of time.
    by_time: BTreeSet<(Duration, IpAddr)>,
}

impl ConnectRate {
    /// A limiter for this many connections per second and address; 0 is no limit.
    pub(crate) fn new(per_second: u32) -> Self {
        let interval = Duration::from_secs(1).checked_div(per_second).unwrap_or_default();
        let capacity = interval * Self::burst(per_second);
        Self { interval, capacity, full_at: HashMap::new(), by_time: BTreeSet::new() }
    }

    /// The connections of a full bucket.
    pub(crate) fn burst(per_second: u32) -> u32 {
        per_second.saturating_mul(BURST)
    }

    /// Takes a connection from the bucket of its address; `false` if the bucket is empty. `now` never decreases.
    pub(crate) fn take(&mut self, address: IpAddr, now: Duration) -> bool {
        if self.interval.is_zero() {
            return true;
        }
        let bucket = network_of(address);
        self.drop_full(now);
        let before = self.full_at.get(&bucket).copied();
        let after = before.unwrap_or(now) + self.interval;
        if after > now + self.capacity {
            return false;
        }
        match before {
            Some(before) => {
                self.by_time.remove(&(before, bucket));
            }
            // Before the insertion: a new bucket would be the next one itself, and its address never be limited.
            None if self.full_at.len() >= ADDRESSES => self.drop_first(),
            None => {}
        }
        self.full_at.insert(bucket, after);
        self.by_time.insert((after, bucket));
        true
    }

    /// A full bucket is the same as none.
    fn drop_full(&mut self, now: Duration) {
        while self.by_time.first().is_some_and(|(full_at, _)| *full_at <= now) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some((_, bucket)) = self.by_time.pop_first() {
            self.full_at.remove(&bucket);
        }
    }
}

/// The address, or the first one of an IPv6 /64.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & PREFIX).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const START: Duration = Duration::from_secs(1_000);

    fn v4(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + n).into()
    }

    /// How many of 1,000 connections at one time are admitted.
    fn admitted(rate: &mut ConnectRate, address: IpAddr, now: Duration) -> usize {
        (0..1_000).filter(|_| rate.take(address, now)).count()
    }

    #[test]
    fn an_address_has_a_burst_and_then_its_rate() {
        for per_second in [1, 3, 7, 100] {
            let mut rate = ConnectRate::new(per_second);
            let burst = 2 * per_second as usize;
            assert_eq!(admitted(&mut rate, v4(1), START), burst, "{per_second}");
            // One more for each interval, also if refused ones came before.
            let interval = Duration::from_secs(1).div_f64(per_second.into()) + Duration::from_nanos(1);
            for n in 1..=5 {
                assert_eq!(admitted(&mut rate, v4(1), START + n * interval), 1, "{per_second}");
            }
            // Never more than the burst, however long it was silent.
            let later = START + 5 * interval;
            assert_eq!(admitted(&mut rate, v4(1), later + Duration::from_secs(1)), per_second as usize);
            assert_eq!(admitted(&mut rate, v4(1), later + Duration::from_hours(1)), burst);
        }
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        let mut rate = ConnectRate::new(0);
        assert_eq!(admitted(&mut rate, v4(1), START), 1_000);
        assert!(rate.full_at.is_empty());
        assert!(ConnectRate::new(u32::MAX).take(v4(1), START));
    }

    #[test]
    fn addresses_are_independent_and_those_of_an_ipv6_64_are_one() {
        let mut rate = ConnectRate::new(5);
        let of = |text: &str| text.parse::<IpAddr>().unwrap();
        for (address, expected) in [
            ("10.0.0.1", 10),
            ("10.0.0.2", 10),
            ("::ffff:10.0.0.1", 0),
            ("2001:db8:0:1::1", 10),
            ("2001:db8:0:1:ffff:ffff:ffff:ffff", 0),
            ("2001:db8:0:2::1", 10),
            ("127.0.0.1", 10),
            ("::1", 10),
        ] {
            assert_eq!(admitted(&mut rate, of(address), START), expected, "{address}");
        }
    }

    #[test]
    fn a_full_table_evicts_the_bucket_that_is_full_first() {
        let mut rate = ConnectRate::new(10);
        assert_eq!(admitted(&mut rate, v4(0), START), 20);
        for n in 1..ADDRESSES as u32 {
            assert!(rate.take(v4(n), START) && rate.take(v4(n), START));
        }
        for n in 0..1_000 {
            assert!(rate.take(v4(20_000 + n), START));
            assert_eq!((rate.full_at.len(), rate.by_time.len()), (ADDRESSES, ADDRESSES));
        }
        // That of an address above its limit stays, and that of the last new address.
        assert!(!rate.take(v4(0), START));
        assert_eq!(admitted(&mut rate, v4(20_999), START), 19);
        assert_eq!(admitted(&mut rate, v4(20_998), START), 20);
        // Full buckets are dropped without an eviction.
        assert!(rate.take(v4(1), START + Duration::from_secs(2)));
        assert_eq!((rate.full_at.len(), rate.by_time.len()), (1, 1));
    }
}
