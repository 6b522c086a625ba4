//! The audit of refused statements: a row for each CREATE, ALTER, DROP, START, STOP, RESTART and CANCEL that was refused before
//! it could take effect, as far as the database responds and within a limit for each user.
//!
//! What took effect or was aborted is audited in its own transaction, by `metadata`, and is never recorded here again.

use ddl::Statement;
use metadata::Refusal;
use model::alteration::ObjectKind;
use model::error::{ErrorKind, UserError};
use model::name::TenantName;
use tracing::{debug, info};

use super::context::Context;
use super::refusal_limit::Admission;
use super::show::reservations::shown;

/// Records that the statement failed, unless it only reads, or its outcome is unknown or differs from the error.
pub(super) async fn record_refusal(context: &Context, statement: &Statement, error: &UserError) {
    let Some(Target { object, tenant }) = Target::of(statement) else { return };
    // Without the database there is no row; with an unknown outcome there may be one of the effect.
    if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::OutcomeUnknown) {
        return;
    }
    match context.agent.refusals.admit(&context.subject.user, context.agent.clock.boottime()) {
        Admission::Admitted => {}
        Admission::First => {
            info!(target: "audit", user = context.subject.user, "refused statements are not audited until the minute ends");
            return;
        }
        Admission::Repeated => return,
    }
    let refusal = Refusal {
        id: context.id.clone(),
        caller: context.caller(),
        statement: ddl::masked_text(statement, &context.agent.settings.rules.secret_keys),
        object,
        tenant,
        sqlstate: error.sqlstate().to_owned(),
    };
    if let Err(error) = context.store().record_refusal(&refusal).await {
        debug!(%error, id = %context.id, "could not audit a refused statement");
    }
}

/// What a statement would have changed.
struct Target {
    object: Option<String>,
    tenant: Option<TenantName>,
}

impl Target {
    /// `None` for a statement that only reads.
    fn of(statement: &Statement) -> Option<Self> {
        match statement {
            Statement::Change { change, .. } => {
                let object = change.object();
                let tenant = match object.kind {
                    ObjectKind::Tenant => TenantName::new(object.name.clone()).ok(),
                    ObjectKind::ResourcePool | ObjectKind::ResourceUnit | ObjectKind::ResourceQuota => None,
                };
                Some(Self { object: Some(object.to_string()), tenant })
            }
            // Its engine has no name yet.
            Statement::StartEngine { tenant, .. } => Some(Self { object: None, tenant: Some(tenant.clone()) }),
            Statement::RestartEngine { engine, .. } | Statement::StopEngine { engine, .. } => {
                Some(Self { object: Some(format!("engine \"{engine}\"")), tenant: None })
            }
            Statement::CancelReservation { id } => {
                Some(Self { object: Some(format!("reservation \"{}\"", shown(id))), tenant: None })
            }
            _ => None,
        }
    }
}
