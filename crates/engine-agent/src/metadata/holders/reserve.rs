//! A request for a reservation: granted at once, queued until a master grants it, or refused.

use std::sync::Arc;
use std::time::Duration;

use agent_api::{ReservationAnswer, Reserve, Target};
use metadata::user_error;
use model::catalog::Catalog;
use model::error::{ErrorKind, UserError};
use model::ledger::{Change, Holder, Refusal, Request, Reservation, Scopes, State};
use model::name::PoolName;
use model::rights::StatementKind;
use model::{millis, span};

use super::context::{Failed, HolderContext, charge, check_name, decided, refused};
use super::settings::{MAX_LEASE, QUEUED_WITHOUT_WAIT};

/// The reservation that the request makes, or that its key has.
pub(super) async fn reserve(
    context: &HolderContext,
    ask: &Reserve,
    statement: Option<String>,
) -> Result<ReservationAnswer, Failed> {
    let catalog = context.store().catalog().await?;
    let request = match permitted(context, &catalog, ask) {
        Ok(request) => Arc::new(request),
        // A repeat returns what the first request made, although the catalog has changed since.
        Err(error) => match repeated(context, ask).await? {
            Some(reservation) => return context.answer(&reservation).await,
            None => return Err(error.into()),
        },
    };
    let wait = ask.wait_ms.map(|wait_ms| time("wait", wait_ms)).transpose()?;
    let statement = statement.as_deref();
    let change = Change::Reserve(Arc::clone(&request));
    let refusal = match context.change(request.scopes.clone(), change, statement).await? {
        Ok(reservation) => return context.answer(&reservation).await,
        Err(refusal) => refusal,
    };
    let wait = match &refusal {
        Refusal::Short(shortage) if shortage.is_retryable => wait,
        // Only the next round of admission knows whether it is short.
        Refusal::MustQueue(_) => Some(wait.unwrap_or(QUEUED_WITHOUT_WAIT)),
        _ => None,
    };
    let Some(wait) = wait else { return Err(refused(&catalog, &request, &refusal)) };
    let change = Change::Enqueue { request: Arc::clone(&request), wait_ms: millis::from_duration(wait) };
    let queued = context.change(request.scopes.clone(), change, statement).await?;
    let queued = decided(&catalog, &request, queued)?;
    if queued.state == State::Waiting {
        context.agent.ring().await;
    }
    context.answer(&queued).await
}

/// The request, if the caller may make it.
fn permitted(context: &HolderContext, catalog: &Catalog, ask: &Reserve) -> Result<Request, UserError> {
    user_error::unless_allowed(catalog, &context.caller, StatementKind::StartEngine, &ask.tenant)?;
    request(context, catalog, ask)
}

/// The reservation that the same request made under its key.
async fn repeated(context: &HolderContext, ask: &Reserve) -> Result<Option<Reservation>, Failed> {
    let found = context.store().reservation_of_key(context.id.as_str()).await?;
    Ok(found.filter(|reservation| {
        let Request { scopes, holder, asked, .. } = &*reservation.request;
        let is_same_instance = matches!(holder, Holder::External { instance, .. } if **instance == *ask.instance);
        is_same_instance
            && scopes.tenant_name() == ask.tenant.as_str()
            && scopes.user_name() == Some(ask.user.as_deref().unwrap_or(context.user()))
            && scopes.creator_name() == Some(ask.creator.as_str())
            && asked.as_ref() == Some(&ask.resource)
            && match &ask.target {
                Target::Pool(pool) => scopes.pool_name() == pool.as_str(),
                Target::Queue(_) => true,
            }
    }))
}

fn request(context: &HolderContext, catalog: &Catalog, ask: &Reserve) -> Result<Request, UserError> {
    let pool = pool(catalog, ask)?;
    let user = context.acting_for(ask.user.as_deref())?;
    check_name("creator", &ask.creator)?;
    check_name("instance", &ask.instance)?;
    let ttl = match ask.ttl_ms {
        Some(ttl_ms) => time("ttl", ttl_ms)?,
        None => context.settings().ttl,
    };
    let id: Arc<str> = uuid::Uuid::new_v4().to_string().into();
    Ok(Request {
        id: Arc::clone(&id),
        holder: Holder::External { key: context.id.as_str().into(), instance: ask.instance.as_str().into() },
        lineage: id,
        scopes: Scopes::new(&ask.tenant, pool, Some(user), Some(&ask.creator)),
        amounts: charge(catalog, pool, &ask.resource)?,
        asked: Some(ask.resource.clone()),
        ttl_ms: Some(millis::from_duration(ttl)),
    })
}

/// The pool, which the tenant must use. The refusal does not reveal whether another pool exists.
fn pool<'a>(catalog: &'a Catalog, ask: &'a Reserve) -> Result<&'a PoolName, UserError> {
    let tenant = catalog.tenant(&ask.tenant).ok_or_else(|| user_error::no_tenant(&ask.tenant))?;
    let pool = match &ask.target {
        Target::Pool(pool) => Some(pool),
        Target::Queue(queue) => catalog.pool_of_queue(queue),
    };
    match pool {
        Some(pool) if tenant.pools.contains(pool) => Ok(pool),
        Some(pool) if matches!(ask.target, Target::Pool(_)) => {
            Err(user_error::tenant_lacks_pool(&ask.tenant, pool, &tenant.pools))
        }
        _ => {
            let Target::Queue(queue) = &ask.target else { return Err(UserError::internal("a pool has no name")) };
            Err(UserError::new(ErrorKind::UndefinedObject, format!("queue \"{queue}\" does not exist"))
                .detail(format!("No resource pool of tenant \"{}\" has this queue.", ask.tenant))
                .hint("Name the resource pool."))
        }
    }
}

/// A time that a call names, which must be more than 0 and at most [`MAX_LEASE`].
pub(super) fn time(member: &str, ms: i64) -> Result<Duration, UserError> {
    let time = u64::try_from(ms).map(Duration::from_millis).unwrap_or_default();
    if time > Duration::ZERO && time <= MAX_LEASE {
        return Ok(time);
    }
    Err(UserError::new(ErrorKind::InvalidValue, format!("invalid {member}: {}", span::print(time)))
        .detail(format!("It is more than 0s and at most {}.", span::print(MAX_LEASE))))
}
