//! The context of a statement: the agent's components, the user, the request's id and deadline, the log.

use std::sync::Arc;
use std::time::Duration;

use coordination::{Session, Supervisor};
use metadata::{Caller, Store, user_error};
use model::alteration::{RequestId, Source};
use model::catalog::Catalog;
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use model::name::TenantName;
use model::rights::{StatementKind, Subject};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::database::Database;
use super::holders::ReservationPoller;
use super::operation::Log;
use super::overview_poller::OverviewPoller;
use super::refusal_limit::RefusalLimit;
use super::settings::Settings;

pub(super) struct Agent {
    pub(super) id: String,
    pub(super) settings: Settings,
    pub(super) store: Store,
    /// For statements that WAIT.
    pub(super) overviews: OverviewPoller,
    /// For clients that wait for a reservation.
    pub(super) reservations: ReservationPoller,
    pub(super) clock: SharedClock,
    pub(super) supervisor: Supervisor,
    pub(super) database: Database,
    pub(super) refusals: RefusalLimit,
}

impl Agent {
    /// The session with ZooKeeper, or the error of a statement about `object` that needs it.
    pub(super) fn zookeeper(&self, object: &str) -> Result<Session, UserError> {
        self.supervisor.session().map_err(|error| error.user(object))
    }

    /// Wakes the master. A lost ring delays the effect by at most one tick interval.
    pub(super) async fn ring(&self) {
        let rung = match self.supervisor.session() {
            Ok(session) => coordination::bell::ring(&session).await,
            Err(error) => Err(error),
        };
        if let Err(error) = rung {
            debug!(%error, "could not ring the bell; the master ticks at its interval");
        }
    }

    /// A grace that a statement names, within its limit.
    pub(super) fn grace(&self, grace: ddl::Grace) -> Result<Duration, UserError> {
        let most = self.settings.drain_grace_max;
        match grace {
            ddl::Grace::Default => Ok(self.settings.drain_grace),
            ddl::Grace::Force => Ok(Duration::ZERO),
            ddl::Grace::Within(grace) if grace <= most => Ok(grace),
            ddl::Grace::Within(grace) => {
                Err(UserError::new(ErrorKind::InvalidValue, "the time after WITHIN is too long").detail(format!(
                    "It is {}, and the limit is {}.",
                    model::span::print(grace),
                    model::span::print(most)
                )))
            }
        }
    }
}

pub(super) struct Context {
    pub(super) agent: Arc<Agent>,
    pub(super) subject: Subject,
    /// The kind of the statement, which the rights depend on.
    pub(super) kind: StatementKind,
    /// How the statement reached this agent, for the audit.
    pub(super) source: Source,
    /// The client application, which the engines that it starts are charged to.
    pub(super) creator: String,
    /// Created by the proxy, the same with every retry.
    pub(super) id: RequestId,
    /// When its transaction must have begun, by the clock that counts suspension.
    pub(super) deadline: Duration,
    /// The timeout of its client or session, by the same clock. Ends waits, never a transaction.
    pub(super) timeout: Option<Duration>,
    /// What the proxy that sent it cannot reach, as text.
    pub(super) proxy_lacks: Option<String>,
    pub(super) log: Log,
    /// Cancelled by the client. Ends waits, never a transaction.
    pub(super) cancelled: CancellationToken,
}

impl Context {
    pub(super) fn caller(&self) -> Caller {
        Caller { subject: self.subject.clone(), source: self.source.clone() }
    }

    pub(super) fn store(&self) -> &Store {
        &self.agent.store
    }

    /// Refuses a user who may not run the statement on an object of the installation.
    pub(super) fn require_right(&self) -> Result<(), UserError> {
        if self.subject.may(self.kind) { Ok(()) } else { Err(self.denied()) }
    }

    /// Refuses a user who may not run the statement on the objects of every tenant.
    pub(super) fn require_right_in_any(&self) -> Result<(), UserError> {
        if self.subject.may_in_any(self.kind) { Ok(()) } else { Err(self.denied()) }
    }

    /// Refuses a user who may not run the statement on the tenant; the refusal does not reveal whether it exists.
    pub(super) fn require_right_in(&self, catalog: &Catalog, tenant: &TenantName) -> Result<(), UserError> {
        user_error::unless_allowed(catalog, &self.caller(), self.kind, tenant)
    }

    fn denied(&self) -> UserError {
        UserError::new(ErrorKind::InsufficientPrivilege, "permission denied").detail(self.kind.permitted_to())
    }
}

/// The error of a statement that its client cancelled.
pub(super) fn canceled() -> UserError {
    UserError::new(ErrorKind::Canceled, "canceling statement due to user request")
}
