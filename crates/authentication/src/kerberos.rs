//! The method `kerberos`: tickets for this service (RFC 4120), by the GSSAPI library of the machine.
//!
//! | file | content |
//! | --- | --- |
//! | `settings` | the accepted services and realms |
//! | `principal` | the names in a ticket: client, service and realm |
//! | `context` | the contexts of clients, whose calls run on threads that may block |
//!
//! A client sends a raw Kerberos token or one of SPNEGO (RFC 4178); both are accepted, and any other mechanism is not. The keys are those of
//! the keytab that `KRB5_KTNAME` names; the library reads it for each ticket, so a new key counts at once. It also keeps the cache in
//! which it finds tickets that were sent twice.
//!
//! Invariants: a ticket counts once, for an accepted service and from an accepted realm. The user is the client of the ticket without its
//! realm. A ticket has no groups; other methods may know those of its user. A stale caller with a ticket that has expired is refused; a
//! session that was opened with it goes on.

mod context;
mod principal;
mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use hs2::HttpScheme;
use libgssapi::credential::{Cred, CredUsage};
use libgssapi::oid::{GSS_MECH_KRB5, GSS_MECH_SPNEGO, OidSet};
use tokio::sync::Semaphore;

use self::context::AcceptedContext;
pub use self::settings::KerberosSettings;
use crate::chain::{Method, TicketAcceptor, TicketContext, Verdict};

/// The name of the method, as in `access.authentication`.
const NAME: &str = "kerberos";

/// The most calls of the library at the same time; further ones wait.
const MAX_CALLS: usize = 16;

/// The keytab cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KerberosError(String);

/// Users with a ticket of a Kerberos realm.
pub struct KerberosMethod {
    settings: Arc<KerberosSettings>,
    credential: Cred,
    calls: Arc<Semaphore>,
}

impl KerberosMethod {
    /// Reads the keytab. An error if it has no key, or cannot be read.
    pub fn new(settings: KerberosSettings) -> Result<Self, KerberosError> {
        let credential = Self::credential()?;
        Ok(Self { settings: Arc::new(settings), credential, calls: Arc::new(Semaphore::new(MAX_CALLS)) })
    }

    /// Whether the keytab can be used.
    pub fn probe() -> Result<(), KerberosError> {
        Self::credential().map(drop)
    }

    /// The keys of every principal in the keytab, for both forms of tokens.
    fn credential() -> Result<Cred, KerberosError> {
        let mut mechanisms = OidSet::new();
        let acquired = mechanisms
            .add(GSS_MECH_KRB5)
            .and_then(|()| mechanisms.add(GSS_MECH_SPNEGO))
            .and_then(|()| Cred::acquire(None, None, CredUsage::Accept, Some(&mechanisms)));
        acquired.map_err(|error| KerberosError(context::text(error)))
    }
}

#[async_trait]
impl Method for KerberosMethod {
    fn name(&self) -> &'static str {
        NAME
    }

    fn http_schemes(&self) -> &'static [HttpScheme] {
        &[HttpScheme::Negotiate]
    }

    /// Any user may have a ticket.
    fn may_have(&self, _: &str) -> bool {
        true
    }

    /// No password is sent to a key distribution center.
    async fn login(&self, _: &str, _: &str) -> Verdict {
        Verdict::Unknown
    }

    fn tickets(&self) -> Option<&dyn TicketAcceptor> {
        Some(self)
    }

    async fn groups(&self, _: &str) -> Option<Vec<String>> {
        None
    }
}

impl TicketAcceptor for KerberosMethod {
    fn begin(&self) -> Box<dyn TicketContext> {
        Box::new(AcceptedContext::new(self.credential.clone(), Arc::clone(&self.settings), Arc::clone(&self.calls)))
    }
}
