//! Confirm, renew and release: the holder names the reservation that it claims to have.

use std::sync::Arc;

use agent_api::{HolderClaim, ReservationAnswer};
use model::ledger::{Actual, Change, Claim, Confirmation, Reservation, unknown};
use model::millis;
use model::name::PoolName;
use model::resource::Resource;
use tracing::info;

use super::context::{Failed, HolderContext, charge, check_name, decided};
use super::reserve::time;

/// Makes the reservation used, with what the holder uses if it says so.
pub(super) async fn confirm(
    context: &HolderContext,
    claim: &HolderClaim,
    resource: Option<&Resource>,
    lease_ms: Option<i64>,
    statement: Option<String>,
) -> Result<ReservationAnswer, Failed> {
    let lease_ms = Some(lease(context, lease_ms)?);
    let (claim, reservation) = claimed(context, claim).await?;
    let actual = match resource {
        Some(resource) => {
            let catalog = context.store().catalog().await?;
            let pool = PoolName::new(reservation.request.scopes.pool_name())?;
            Some(Actual { resource: resource.clone(), amounts: charge(&catalog, &pool, resource)? })
        }
        None => None,
    };
    let used = actual.as_ref().map(|actual| actual.amounts);
    let change = Change::Confirm(Confirmation { claim, actual, lease_ms });
    let answer = finish(context, &reservation, change, statement.as_deref()).await?;
    if used.is_some_and(|used| used.nominal().any_more(reservation.amounts.nominal())) {
        let (id, pool) = (reservation.id(), reservation.request.scopes.pool_name());
        info!(event = "over_reservation", %id, pool, user = context.user(), "holder uses more than it reserved");
    }
    Ok(answer)
}

/// Extends the lease.
pub(super) async fn renew(
    context: &HolderContext,
    claim: &HolderClaim,
    lease_ms: Option<i64>,
) -> Result<ReservationAnswer, Failed> {
    let lease_ms = lease(context, lease_ms)?;
    let (claim, reservation) = claimed(context, claim).await?;
    finish(context, &reservation, Change::Renew { claim, lease_ms }, None).await
}

/// Returns the charge. Queued requests may then be granted.
pub(super) async fn release(
    context: &HolderContext,
    claim: &HolderClaim,
    statement: Option<String>,
) -> Result<ReservationAnswer, Failed> {
    let (claim, reservation) = claimed(context, claim).await?;
    let answer = finish(context, &reservation, Change::Release(claim), statement.as_deref()).await?;
    if !reservation.state.is_ended() {
        context.agent.ring().await;
    }
    Ok(answer)
}

fn lease(context: &HolderContext, lease_ms: Option<i64>) -> Result<i64, Failed> {
    let lease = match lease_ms {
        Some(lease_ms) => time("lease", lease_ms)?,
        None => context.settings().lease,
    };
    Ok(millis::from_duration(lease))
}

/// The claim for the ledger, and the external reservation that it names. The ledger compares the rest.
async fn claimed(context: &HolderContext, claim: &HolderClaim) -> Result<(Claim, Reservation), Failed> {
    check_name("instance", &claim.instance)?;
    let user = context.acting_for(claim.user.as_deref())?;
    let found = context.store().reservation(&claim.id).await?;
    let found = found.filter(|found| found.request.holder.is_external()).ok_or_else(|| unknown(&claim.id))?;
    let of_ledger = Claim {
        id: Arc::clone(found.id()),
        user: user.to_owned(),
        pool: claim.pool.clone(),
        uid: claim.instance.clone(),
    };
    Ok((of_ledger, found))
}

async fn finish(
    context: &HolderContext,
    reservation: &Reservation,
    change: Change,
    statement: Option<&str>,
) -> Result<ReservationAnswer, Failed> {
    let scopes = reservation.request.scopes.clone();
    let outcome = context.change(scopes, change, statement).await?;
    let outcome = match outcome {
        Ok(reservation) => Ok(reservation),
        Err(refusal) => {
            let catalog = context.store().catalog().await?;
            decided(&catalog, &reservation.request, Err(refusal))
        }
    }?;
    context.answer(&outcome).await
}
