//! What every statement has at hand: the agent's parts, who says it, its id and deadline, its log.

use std::sync::Arc;
use std::time::Duration;

use coordination::{Session, Supervisor};
use metadata::{Caller, Store, user_error};
use model::alteration::RequestId;
use model::catalog::Catalog;
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use model::name::TenantName;
use tokio_util::sync::CancellationToken;

use super::database::Database;
use super::looks::Looks;
use super::operation::Log;
use super::settings::Settings;

/// The agent's parts.
pub(super) struct Agent {
    pub(super) id: String,
    pub(super) settings: Settings,
    pub(super) store: Store,
    /// For statements that WAIT.
    pub(super) looks: Looks,
    pub(super) clock: SharedClock,
    pub(super) supervisor: Supervisor,
    pub(super) database: Database,
}

impl Agent {
    /// The session with ZooKeeper, or the error of a statement about `object` that needs it.
    pub(super) fn zookeeper(&self, object: &str) -> Result<Session, UserError> {
        self.supervisor.session().map_err(|error| error.user(object))
    }

    pub(super) fn is_admin(&self, user: &str) -> bool {
        self.settings.admins.iter().any(|admin| admin == user)
    }

    /// A grace that a statement names, within its limit.
    pub(super) fn grace(&self, said: ddl::Grace) -> Result<Duration, UserError> {
        let most = self.settings.drain_grace_max;
        match said {
            ddl::Grace::Default => Ok(self.settings.drain_grace),
            ddl::Grace::Force => Ok(Duration::ZERO),
            ddl::Grace::Within(grace) if grace <= most => Ok(grace),
            ddl::Grace::Within(grace) => Err(UserError::new(
                ErrorKind::InvalidValue,
                "the time after WITHIN is too long",
            )
            .detail(format!("it is {} and may be {}", model::span::print(grace), model::span::print(most)))),
        }
    }
}

/// One statement on its way.
pub(super) struct Context {
    pub(super) agent: Arc<Agent>,
    pub(super) user: String,
    /// Made by the proxy, the same with every retry.
    pub(super) id: RequestId,
    /// The moment by which its transaction must have begun, on the clock that counts suspension.
    pub(super) deadline: Duration,
    /// The moment at which its client or session wants it to have ended, on the same clock. Ends waits; never a
    /// transaction.
    pub(super) timeout: Option<Duration>,
    /// What the proxy that sent it can't reach, in words.
    pub(super) proxy_lacks: Option<String>,
    pub(super) log: Log,
    /// Cancelled when the client cancels. Ends waits; never a transaction.
    pub(super) cancelled: CancellationToken,
}

impl Context {
    pub(super) fn caller(&self) -> Caller {
        Caller { user: self.user.clone(), admin: self.agent.is_admin(&self.user) }
    }

    pub(super) fn store(&self) -> &Store {
        &self.agent.store
    }

    /// Refuses whoever is not an admin.
    pub(super) fn require_admin(&self) -> Result<(), UserError> {
        if self.agent.is_admin(&self.user) {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::InsufficientPrivilege, "permission denied")
            .detail(format!("user \"{}\" is no admin", self.user))
            .hint("SHOW ENGINES, DESCRIBE, START, RESTART and STOP ENGINE are open to the users of a tenant"))
    }

    /// Refuses whoever may not use the tenant; the refusal does not reveal what exists.
    pub(super) fn require_tenant(&self, catalog: &Catalog, tenant: &TenantName) -> Result<(), UserError> {
        user_error::unless_allowed(catalog, &self.caller(), tenant)
    }
}

/// The error of a statement that its client cancelled.
pub(super) fn canceled() -> UserError {
    UserError::new(ErrorKind::Canceled, "the statement was cancelled")
}
