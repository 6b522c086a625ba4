//! A pool of connections to a directory. Each operation has a connection for itself until it has ended: a bind changes the identity
//! of its connection.
//!
//! A connection that fails, or does not respond in time, is closed. One that had been idle may have been closed by the server
//! meanwhile: then the operation is sent once more, over a new one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hs2::ClientTls;
use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, LdapError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::failure::Failure;
use super::identity::SearchIdentity;
use super::settings::{LdapSettings, LdapUrl};

/// The result code of a success (RFC 4511).
pub(super) const SUCCESS: u32 = 0;

/// A pool, whose connections are bound with an identity when they are opened.
pub(super) struct Pool {
    urls: Vec<LdapUrl>,
    /// The index of the server to which the last connection was opened; both pools of a directory share it.
    preferred: Arc<AtomicUsize>,
    tls: ClientTls,
    start_tls: bool,
    connect_timeout: Duration,
    timeout: Duration,
    /// `None`: connections are anonymous, until an operation binds them.
    identity: Option<SearchIdentity>,
    turns: Semaphore,
    idle: Mutex<Vec<Ldap>>,
}

impl Pool {
    pub fn new(settings: &LdapSettings, preferred: Arc<AtomicUsize>, identity: Option<SearchIdentity>) -> Self {
        Self {
            urls: settings.urls.clone(),
            preferred,
            tls: settings.tls.clone(),
            start_tls: settings.start_tls,
            connect_timeout: settings.connect_timeout,
            timeout: settings.timeout,
            identity,
            turns: Semaphore::new(settings.connections.max(1)),
            idle: Mutex::default(),
        }
    }

    /// Runs an operation, which returns its connection with its result.
    pub async fn run<T, F>(&self, operation: impl Fn(Ldap) -> F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<(Ldap, T), LdapError>> + Send + 'static,
    {
        let turn = timeout(self.timeout, self.turns.acquire()).await;
        let _turn = turn.map_err(|_| Failure::Busy)?.map_err(|_| Failure::Busy)?;
        if let Some(ldap) = self.take_idle() {
            match self.bounded(operation(ldap)).await {
                Ok((ldap, result)) => return Ok(self.keep(ldap, result)),
                Err(Failure::Library(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        let ldap = self.connect().await?;
        let (ldap, result) = self.bounded(operation(ldap)).await?;
        Ok(self.keep(ldap, result))
    }

    fn take_idle(&self) -> Option<Ldap> {
        let mut idle = self.idle.lock();
        loop {
            let mut ldap = idle.pop()?;
            if !ldap.is_closed() {
                return Some(ldap);
            }
        }
    }

    fn keep<T>(&self, ldap: Ldap, result: T) -> T {
        self.idle.lock().push(ldap);
        result
    }

    async fn bounded<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T, LdapError>> + Send + 'static,
    ) -> Result<T, Failure> {
        within(self.timeout, operation).await
    }

    /// A new connection, to the first server that accepts one. The server of the last connection comes first: a login has too little
    /// time to wait for one that does not answer with each of its connections.
    async fn connect(&self) -> Result<Ldap, Failure> {
        let (mut last, first) = (Failure::Busy, self.preferred.load(Ordering::Relaxed));
        for at in (first..self.urls.len()).chain(0..first) {
            match self.connect_to(&self.urls[at]).await {
                Ok(ldap) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return Ok(ldap);
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, url: &LdapUrl) -> Result<Ldap, Failure> {
        let settings = LdapConnSettings::new().set_config(self.tls.config()).set_starttls(self.start_tls);
        let text = url.as_str().to_owned();
        let opening = async move {
            let (connection, ldap) = LdapConnAsync::with_settings(settings, &text).await?;
            // Ends with the last handle.
            tokio::spawn(async move {
                if let Err(error) = connection.drive().await {
                    tracing::debug!(%error, "a connection to the directory ended");
                }
            });
            Ok(ldap)
        };
        let mut ldap = within(self.connect_timeout, opening).await?;
        let Some(identity) = self.identity.clone() else { return Ok(ldap) };
        let binding = async move {
            let (dn, password) = identity.current().await;
            let bound = ldap.simple_bind(&dn, &password).await?.rc;
            Ok((ldap, bound))
        };
        match self.bounded(binding).await? {
            (ldap, SUCCESS) => Ok(ldap),
            (_, code) => Err(Failure::Identity(code)),
        }
    }
}

/// The result of an operation, which runs in a task of its own: the library panics on a response that it cannot parse.
async fn within<T: Send + 'static>(
    limit: Duration,
    operation: impl Future<Output = Result<T, LdapError>> + Send + 'static,
) -> Result<T, Failure> {
    let task = AbortOnDropHandle::new(tokio::spawn(operation));
    match timeout(limit, task).await {
        Ok(Ok(result)) => result.map_err(Failure::Library),
        Ok(Err(_)) => Err(Failure::Unreadable),
        Err(_) => Err(Failure::Timeout(limit)),
    }
}
