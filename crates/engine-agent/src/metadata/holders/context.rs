//! The context of a holder's call: the caller with its rights, and the changes of the ledger on its behalf.

use std::sync::Arc;
use std::time::Duration;

use agent_api::{ApiError, RegistrationCall, ReservationAnswer, ReservationCall, ReservationRefused};
use metadata::{CALL_DEADLINE, Caller, Error, HolderStatement, Refusal as RefusedStatement, Store};
use model::alteration::{RequestId, Source};
use model::catalog::{Catalog, DEFAULT_RESOURCE_KIND};
use model::error::{ErrorKind, REQUEST_TIMEOUT, UserError};
use model::ledger::{
    Amounts, Change, Decided, LedgerError, Refusal, Request, Reservation, ReservationStatus, ScopedChange, Scopes,
    State,
};
use model::name::{PoolName, TenantName};
use model::resource::{RequestPolicy, Resource};
use model::rights::{StatementKind, Subject};
use model::text::cut;
use model::user_name::{is_listed, is_user_name};
use tokio::time::Instant;
use tracing::{debug, info};

use super::settings::{HolderSettings, MAX_HOLD, MAX_NAME_BYTES};
use super::text;
use crate::metadata::api::api_error;
use crate::metadata::context::Agent;
use crate::metadata::refusal_limit::Admission;

/// The most bytes of a text about the client that are recorded.
const MAX_SOURCE_BYTES: usize = 255;

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum Failed {
    Refused(Box<ReservationRefused>),
    /// Not decided: the same call may be sent again.
    Api(ApiError),
}

impl From<UserError> for Failed {
    fn from(error: UserError) -> Self {
        Self::Refused(Box::new(error.into()))
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        // A proxy sends a call that is not decided to another agent, which would wait for the same row.
        if matches!(error, Error::LockTimeout(_)) {
            return error.user_error().into();
        }
        match api_error(error) {
            ApiError::Refused(error) => error.into(),
            undecided => Self::Api(undecided),
        }
    }
}

pub(super) struct HolderContext {
    pub(super) agent: Arc<Agent>,
    pub(super) id: RequestId,
    pub(super) caller: Caller,
    /// When the call is refused, on the boot clock.
    pub(super) deadline: Duration,
    /// Its transactions end by the deadline.
    store: Store,
}

impl HolderContext {
    pub(super) fn new(
        agent: Arc<Agent>,
        id: RequestId,
        (user, groups): (String, Vec<String>),
        source: Source,
        deadline_ms: Option<i64>,
    ) -> Self {
        let time = deadline_ms
            .map_or(MAX_HOLD + CALL_DEADLINE, |ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default()));
        let (deadline, store) = (agent.clock.boottime() + time, agent.store.until(Instant::now() + time));
        let entry = |text: Option<String>| text.map(|text| cut(&text, MAX_SOURCE_BYTES).to_owned());
        let source = Source {
            via: entry(source.via),
            method: entry(source.method),
            proxy: entry(source.proxy),
            client: entry(source.client),
        };
        let subject = Subject::new(user, groups, &agent.settings.roles);
        Self { agent, id, caller: Caller { subject, source }, deadline, store }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// The failure, or `REQUEST_TIMEOUT` if the database did not reply before the deadline of the call: nothing was changed.
    pub(super) fn in_time(&self, failed: Failed) -> Failed {
        match failed {
            Failed::Api(ApiError::Unavailable(cause)) if self.agent.clock.boottime() >= self.deadline => {
                UserError::new(ErrorKind::Timeout, "deadline of the call exceeded")
                    .detail(format!("Nothing was changed (REQUEST_TIMEOUT, retryable): {cause}."))
                    .hint("Repeat the request.")
                    .with_error_code(REQUEST_TIMEOUT)
                    .into()
            }
            other => other,
        }
    }

    pub(super) fn settings(&self) -> &HolderSettings {
        &self.agent.settings.holders
    }

    /// The user of the call.
    pub(super) fn user(&self) -> &str {
        &self.caller.subject.user
    }

    /// Whether the caller may act for other users.
    pub(super) fn is_provider(&self) -> bool {
        let Subject { user, groups, .. } = &self.caller.subject;
        // Admins alone may create objects.
        self.caller.subject.may(StatementKind::Create) || is_listed(&self.settings().providers, user, groups)
    }

    /// The user that is charged: the caller, or another one that a provider names.
    pub(super) fn acting_for<'a>(&'a self, user: Option<&'a str>) -> Result<&'a str, UserError> {
        match user {
            None => Ok(self.user()),
            Some(user) if user == self.user() => Ok(user),
            Some(user) if !self.is_provider() => {
                Err(UserError::new(ErrorKind::InsufficientPrivilege, format!("permission denied for user \"{user}\""))
                    .detail("Only admins and the users of access.resource_providers may act for another user."))
            }
            Some(user) if is_user_name(user) => Ok(user),
            Some(_) => Err(UserError::new(ErrorKind::InvalidValue, "invalid user name")),
        }
    }

    /// Whether the caller may see the reservation.
    pub(super) fn may_see(&self, catalog: &Catalog, reservation: &Reservation) -> bool {
        let scopes = &reservation.request.scopes;
        let tenant = TenantName::new(scopes.tenant_name()).ok();
        scopes.user_name() == Some(self.user())
            || self.is_provider()
            || self
                .caller
                .subject
                .may_in(text::SHOW_RESERVATIONS, tenant.as_ref().and_then(|tenant| catalog.tenant(tenant)))
    }

    /// Changes a reservation, with a row in the audit if there is a statement.
    pub(super) async fn change(
        &self,
        scopes: Scopes,
        change: Change,
        statement: Option<&str>,
    ) -> Result<Decided, Failed> {
        let change = ScopedChange { scopes, change };
        let statement = statement.map(|statement| HolderStatement {
            id: self.id.clone(),
            caller: self.caller.clone(),
            statement: statement.to_owned(),
        });
        Ok(self.store().change_for_holder(&change, statement.as_ref()).await?)
    }

    /// The answer with a reservation; for one that waits also the reason and its position.
    pub(super) async fn answer(&self, reservation: &Reservation) -> Result<ReservationAnswer, Failed> {
        let mut status = ReservationStatus::from(reservation);
        if reservation.state == State::Waiting {
            let wait = self.store().why_waiting(reservation).await?;
            status.position = Some(wait.position);
            status.reason = Some(match wait.refusal {
                Some(refusal) => {
                    let catalog = self.store().catalog().await?;
                    let error = error_of(&catalog, &refusal, &reservation.request);
                    error.detail.unwrap_or(error.message)
                }
                None => "The next round of admission can grant it.".to_owned(),
            });
        }
        Ok(ReservationAnswer::One(Box::new(status)))
    }

    /// Records that a call was refused, unless it reads or renews.
    pub(super) async fn record_refusal(&self, call: &ReservationCall, error: &UserError) {
        let Some(statement) = text::of(self.user(), call) else { return };
        match self.agent.refusals.admit(self.user(), self.agent.clock.boottime()) {
            Admission::Admitted => {}
            Admission::First => {
                info!(target: "audit", user = self.user(), "refused statements are not audited until the minute ends");
                return;
            }
            Admission::Repeated => return,
        }
        let (object, tenant) = match call {
            ReservationCall::Reserve(ask) => (None, Some(ask.tenant.clone())),
            ReservationCall::Confirm { claim, .. } | ReservationCall::Release { claim } => {
                (Some(format!("reservation \"{}\"", claim.id)), None)
            }
            ReservationCall::Registration {
                pool,
                call: RegistrationCall::Register(_) | RegistrationCall::Unregister { .. },
            } => (Some(format!("resource pool \"{pool}\"")), None),
            ReservationCall::Get { .. }
            | ReservationCall::List(_)
            | ReservationCall::Renew { .. }
            | ReservationCall::Registration { .. } => (None, None),
        };
        let refusal = RefusedStatement {
            id: self.id.clone(),
            caller: self.caller.clone(),
            statement,
            object,
            tenant,
            sqlstate: error.sqlstate().to_owned(),
        };
        // Also of a call whose deadline has passed.
        if let Err(error) = self.agent.store.record_refusal(&refusal).await {
            debug!(%error, id = %self.id, "could not audit a refused statement");
        }
    }
}

/// The reservation after a change, or the error of the refusal.
pub(super) fn decided(catalog: &Catalog, request: &Request, decided: Decided) -> Result<Arc<Reservation>, Failed> {
    decided.map_err(|refusal| refused(catalog, request, &refusal))
}

/// The error of a refusal with its amounts.
pub(super) fn refused(catalog: &Catalog, request: &Request, refusal: &Refusal) -> Failed {
    let error = error_of(catalog, refusal, request);
    let ledger = match refusal {
        Refusal::Short(shortage) => Some(LedgerError::short(shortage)),
        _ => LedgerError::of(&error),
    };
    Failed::Refused(Box::new(ReservationRefused { error, ledger }))
}

fn error_of(catalog: &Catalog, refusal: &Refusal, request: &Request) -> UserError {
    let remedy = match refusal {
        Refusal::Short(shortage) => metadata::remedy(catalog, shortage),
        _ => None,
    };
    refusal.error(request, remedy.as_deref())
}

/// What the pool charges for a resource.
pub(super) fn charge(catalog: &Catalog, pool: &PoolName, resource: &Resource) -> Result<Amounts, UserError> {
    let kind = catalog.pool(pool).and_then(|pool| pool.resource_kind).unwrap_or(DEFAULT_RESOURCE_KIND);
    let amount = RequestPolicy::of(kind)?.charge(resource)?;
    // A policy charges amounts within the limits of a request.
    Amounts::same(amount).ok_or_else(|| UserError::internal("a charged amount is out of range"))
}

/// Refuses the name of a creator or an instance that is empty or too long.
pub(super) fn check_name(member: &str, name: &str) -> Result<(), UserError> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(UserError::new(ErrorKind::InvalidValue, format!("invalid {member}"))
        .detail(format!("It has 1 to {MAX_NAME_BYTES} bytes and no control characters.")))
}
