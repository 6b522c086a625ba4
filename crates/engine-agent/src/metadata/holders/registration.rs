//! Registered capacities: a program registers what a pool has, renews the lease, and unregisters.
//!
//! Only users of `access.resource_providers` and admins may; the refusal of others does not reveal whether the pool exists.
//! After a change the master is woken, so that queued requests are granted, or show why they are not.

use agent_api::{Register, RegistrationCall, ReservationAnswer};
use metadata::{RegisterRequest, Request, UnregisterRequest};
use model::error::{ErrorKind, UserError};
use model::ledger::RegistrationStatus;
use model::millis;
use model::name::PoolName;
use tracing::info;

use super::context::{Failed, HolderContext, check_name};
use super::reserve::time;

pub(super) async fn run(
    context: &HolderContext,
    pool: &PoolName,
    call: &RegistrationCall,
    statement: Option<String>,
) -> Result<ReservationAnswer, Failed> {
    if !context.is_provider() {
        let message = format!("permission denied for resource pool \"{pool}\"");
        return Err(UserError::new(ErrorKind::InsufficientPrivilege, message)
            .detail(
                "Only admins and the users of access.resource_providers may register the capacity of a resource pool.",
            )
            .into());
    }
    let store = context.store();
    let status = match call {
        RegistrationCall::Get => store.registration(pool).await?,
        RegistrationCall::Renew { instance, lease_ms } => {
            check_name("instance", instance)?;
            store.renew_registration(pool, instance, lease(context, *lease_ms)?).await?
        }
        RegistrationCall::Register(register) => {
            let register = checked(context, pool, register, statement)?;
            let status = store.register(&register).await?;
            info!(%pool, name = register.name, instance = register.instance, user = context.user(), "capacity registered");
            status
        }
        RegistrationCall::Unregister { instance, force } => {
            if let Some(instance) = instance {
                check_name("instance", instance)?;
            }
            let request = request(context, statement);
            let (pool, instance) = (pool.clone(), instance.clone());
            let status = store.unregister(&UnregisterRequest { request, pool, instance, force: *force }).await?;
            info!(pool = status.pool, force, user = context.user(), "capacity unregistered");
            status
        }
    };
    Ok(finish(context, call, status).await)
}

async fn finish(context: &HolderContext, call: &RegistrationCall, status: RegistrationStatus) -> ReservationAnswer {
    if matches!(call, RegistrationCall::Register(_) | RegistrationCall::Unregister { .. }) {
        context.agent.ring().await;
    }
    ReservationAnswer::Registration(Box::new(status))
}

fn checked(
    context: &HolderContext,
    pool: &PoolName,
    register: &Register,
    statement: Option<String>,
) -> Result<RegisterRequest, UserError> {
    check_name("name", &register.name)?;
    check_name("instance", &register.instance)?;
    Ok(RegisterRequest {
        request: request(context, statement),
        pool: pool.clone(),
        name: register.name.clone(),
        instance: register.instance.clone(),
        kind: register.kind,
        capacity: register.capacity.clone(),
        protected: register.protected.clone(),
        lease_ms: lease(context, register.lease_ms)?,
    })
}

fn request(context: &HolderContext, statement: Option<String>) -> Request {
    Request {
        id: context.id.clone(),
        statement: statement.unwrap_or_default(),
        caller: context.caller.clone(),
        deadline: context.deadline,
    }
}

fn lease(context: &HolderContext, lease_ms: Option<i64>) -> Result<i64, UserError> {
    let lease = lease_ms.map(|lease_ms| time("lease", lease_ms)).transpose()?;
    Ok(millis::from_duration(lease.unwrap_or(context.settings().lease)))
}
