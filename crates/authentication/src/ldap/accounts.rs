//! What was read of users a short time ago: their names and groups. Losing it costs a search.

use std::collections::HashMap;
use std::time::Duration;

use model::clock::SharedClock;
use parking_lot::Mutex;

use super::Account;

/// The most accounts that are kept; the oldest are dropped.
const MAX_ACCOUNTS: usize = 10_000;

/// The accounts by the names that users typed.
#[derive(Debug)]
pub(super) struct Accounts {
    /// For how long an account is used without being read again.
    refresh: Duration,
    /// For how long it is used while the directory does not respond.
    stale: Duration,
    clock: SharedClock,
    read: Mutex<HashMap<String, (Account, Duration)>>,
}

impl Accounts {
    pub fn new(refresh: Duration, stale: Duration, clock: SharedClock) -> Self {
        Self { refresh, stale, clock, read: Mutex::default() }
    }

    /// The account, if it was read a short time ago.
    pub fn fresh(&self, user: &str) -> Option<Account> {
        self.younger_than(user, self.refresh)
    }

    /// The account, for use while the directory does not respond.
    pub fn stale(&self, user: &str) -> Option<Account> {
        self.younger_than(user, self.stale.max(self.refresh))
    }

    fn younger_than(&self, user: &str, age: Duration) -> Option<Account> {
        let now = self.clock.boottime();
        let read = self.read.lock();
        read.get(user).filter(|(_, at)| now.saturating_sub(*at) < age).map(|(account, _)| account.clone())
    }

    /// Keeps an account that was just read.
    pub fn keep(&self, user: &str, account: Account) {
        let now = self.clock.boottime();
        let mut read = self.read.lock();
        if read.len() >= MAX_ACCOUNTS && !read.contains_key(user) {
            let oldest = read.iter().min_by_key(|(_, (_, at))| *at).map(|(user, _)| user.clone());
            oldest.and_then(|user| read.remove(&user));
        }
        read.insert(user.to_owned(), (account, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::clock::ManualClock;

    fn account(name: &str) -> Account {
        Account { name: name.to_owned(), groups: vec!["g".to_owned()] }
    }

    #[test]
    fn an_account_is_fresh_for_a_short_time_and_stale_for_a_longer_one() {
        let clock = ManualClock::at(0);
        let accounts = Accounts::new(Duration::from_mins(1), Duration::from_hours(1), clock.clone());
        assert_eq!((accounts.fresh("ann"), accounts.stale("ann")), (None, None));
        accounts.keep("ann", account("ann"));
        assert_eq!(accounts.fresh("ann"), Some(account("ann")));
        clock.advance(Duration::from_mins(1));
        assert_eq!((accounts.fresh("ann"), accounts.stale("ann")), (None, Some(account("ann"))));
        clock.advance(Duration::from_hours(1));
        assert_eq!(accounts.stale("ann"), None);
    }

    #[test]
    fn the_oldest_account_is_dropped() {
        let clock = ManualClock::at(0);
        let accounts = Accounts::new(Duration::from_hours(1), Duration::ZERO, clock.clone());
        accounts.keep("first", account("first"));
        clock.advance(Duration::from_secs(1));
        for user in 0..MAX_ACCOUNTS {
            accounts.keep(&user.to_string(), account("x"));
        }
        assert_eq!(accounts.read.lock().len(), MAX_ACCOUNTS);
        assert_eq!(accounts.fresh("first"), None);
    }
}
