//! Readings: the state of one reservation, which may be awaited, and pages of a list.

use std::time::Duration;

use agent_api::{ReservationAnswer, ReservationList};
use metadata::{MAX_RESERVATION_ROWS, ReservationPage};
use model::ledger::{Reservation, ReservationStatus, State, unknown};
use tokio::time::{Instant, timeout_at};

use super::context::{Failed, HolderContext};
use super::settings::MAX_HOLD;
use super::text::SHOW_RESERVATIONS;

/// The state of a reservation; the caller holds the answer back for at most `hold_ms` while the state is `known`, or
/// without a known state while it is waiting.
pub(super) async fn get(
    context: &HolderContext,
    id: &str,
    hold_ms: i64,
    known: Option<State>,
) -> Result<ReservationAnswer, Failed> {
    let catalog = context.store().catalog().await?;
    let found = context.store().reservation(id).await?;
    // One that the caller may not see does not exist for it.
    let found = found.filter(|found| context.may_see(&catalog, found)).ok_or_else(|| unknown(id))?;
    let hold = u64::try_from(hold_ms).map(Duration::from_millis).unwrap_or_default().min(MAX_HOLD);
    let is_pending = |reservation: &Reservation| reservation.state == known.unwrap_or(State::Waiting);
    if hold.is_zero() || !is_pending(&found) {
        return context.answer(&found).await;
    }
    let until = Instant::now() + hold;
    let waiter = context.agent.reservations.waiter(found.id())?;
    let mut latest = found;
    while is_pending(&latest) {
        match timeout_at(until, waiter.next()).await {
            Ok(Ok(Some(newer))) => latest = newer,
            // It was deleted after its end, or the database does not respond: the client reads again.
            Ok(Ok(None) | Err(_)) | Err(_) => break,
        }
    }
    context.answer(&latest).await
}

/// The reservations that the caller may see: its own, and those of its tenants.
pub(super) async fn list(context: &HolderContext, list: &ReservationList) -> Result<ReservationAnswer, Failed> {
    let catalog = context.store().catalog().await?;
    let subject = &context.caller.subject;
    let visible = (!subject.may_in_any(SHOW_RESERVATIONS)).then(|| {
        let tenants = subject.tenants(&catalog, SHOW_RESERVATIONS).into_iter().cloned().collect();
        (subject.user.clone(), tenants)
    });
    let limit = list.limit.clamp(1, MAX_RESERVATION_ROWS - 1);
    let filter = ReservationPage {
        tenant: list.tenant.clone(),
        pool: list.pool.clone(),
        user: list.user.clone(),
        states: list.states.clone(),
        visible,
        after: list.after.clone(),
        limit: limit + 1,
    };
    let mut found = context.store().reservation_page(&filter).await?;
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    Ok(ReservationAnswer::Page { rows: found.iter().map(ReservationStatus::from).collect(), has_more })
}
