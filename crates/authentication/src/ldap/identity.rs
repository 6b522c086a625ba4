//! The identity for searches: a DN with a password, which is read again for each connection.
//!
//! The password can be replaced without a restart: connections that are open stay bound, and the next one is bound with the new
//! password. While it cannot be read, the one that was read last stays in use, and the reason is logged once a minute.

use std::fmt;
use std::sync::Arc;

use model::cause::Cause;
use model::log_throttle::LogThrottle;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A DN, and where its password comes from. Cheap to clone.
#[derive(Clone)]
pub struct SearchIdentity(Arc<Inner>);

struct Inner {
    dn: String,
    read: Box<dyn Fn() -> Result<String, Cause> + Send + Sync>,
    last: Mutex<Last>,
    since: Instant,
}

struct Last {
    password: String,
    failures: LogThrottle,
}

impl SearchIdentity {
    /// Reads the password, and fails if that is not possible. The function may block; it must not return an empty password, with which
    /// a bind is anonymous.
    pub fn new(
        dn: impl Into<String>,
        read: impl Fn() -> Result<String, Cause> + Send + Sync + 'static,
    ) -> Result<Self, Cause> {
        let last = Mutex::new(Last { password: read()?, failures: LogThrottle::default() });
        Ok(Self(Arc::new(Inner { dn: dn.into(), read: Box::new(read), last, since: Instant::now() })))
    }

    /// The DN, with the password that it has now.
    pub(super) async fn current(self) -> (String, String) {
        let identity = self.clone();
        // On the blocking pool: the file system may block.
        if let Err(error) = tokio::task::spawn_blocking(move || identity.refresh()).await {
            tracing::error!(%error, "could not read the password of ldap.bind_dn");
        }
        (self.0.dn.clone(), self.0.last.lock().password.clone())
    }

    fn refresh(&self) {
        let read = (self.0.read)();
        let mut last = self.0.last.lock();
        match read {
            Ok(password) => {
                if last.failures.clear().is_some() {
                    tracing::info!("password of ldap.bind_dn can be read again");
                }
                if password != last.password {
                    last.password = password;
                    tracing::info!("password of ldap.bind_dn replaced; new connections to the directory use it");
                }
            }
            Err(error) => {
                if let Some(times) = last.failures.hit(self.0.since.elapsed()) {
                    tracing::warn!(%error, times, "could not read the password of ldap.bind_dn; the last one stays in use");
                }
            }
        }
    }
}

impl fmt::Debug for SearchIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchIdentity").field("dn", &self.0.dn).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn the_last_password_stays_in_use_while_none_can_be_read() {
        let passwords = Mutex::new(vec![Ok("third"), Err("gone"), Err("gone"), Ok("second"), Ok("first")]);
        let read = move || passwords.lock().pop().unwrap().map(str::to_owned).map_err(Cause::from);
        let identity = SearchIdentity::new("cn=reader", read).unwrap();
        for expected in ["second", "second", "second", "third"] {
            assert_eq!(identity.clone().current().await, ("cn=reader".to_owned(), expected.to_owned()));
        }
        assert!(!format!("{identity:?}").contains("third"));
        assert!(SearchIdentity::new("cn=reader", || Err("none".into())).is_err());
    }
}
