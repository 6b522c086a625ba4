//! CANCEL RESERVATION: ends the reservation of a program that is not an engine. Its holder finds out with its next call.
//!
//! Users cancel their own reservations, admins all. It is idempotent: a repeat changes nothing.

use ddl::Statement;
use hs2::SqlType;
use model::error::{ErrorKind, UserError};
use model::ledger::Reservation;
use tracing::info;

use super::answer::{Answer, text};
use super::context::Context;
use super::request::{request, ring};
use super::show::reservations::{absent, shown};

pub(super) async fn cancel(context: &Context, statement: &Statement, id: &str) -> Result<Answer, UserError> {
    let found = context.store().reservation(id).await.map_err(|error| error.user_error())?;
    let may_all = context.require_right();
    let is_own =
        |reservation: &Reservation| reservation.request.scopes.user_name() == Some(context.subject.user.as_str());
    let reservation = match found {
        Some(reservation) if may_all.is_ok() || is_own(&reservation) => reservation,
        None if may_all.is_ok() => return Err(absent(id)),
        Some(_) | None => {
            let message = format!("permission denied for reservation \"{}\"", shown(id));
            return Err(UserError::new(ErrorKind::InsufficientPrivilege, message)
                .detail("Only its user and admins may cancel a reservation."));
        }
    };
    if !reservation.request.holder.is_external() {
        let (id, pool) = (reservation.id(), reservation.request.scopes.pool_name());
        return Err(UserError::new(ErrorKind::WrongState, format!("reservation \"{id}\" is held by an engine"))
            .detail("It ends when its engine has ended.")
            .hint(format!("Use STOP ENGINE {pool} '{id}'.")));
    }
    let decided = context
        .store()
        .cancel_reservation(&request(context, statement), id)
        .await
        .map_err(|error| error.user_error())?;
    let cancelled = decided.map_err(|refusal| refusal.error(&reservation.request, None))?;
    info!(id = &**cancelled.id(), user = context.subject.user, "reservation cancelled");
    // What it held may admit others.
    ring(context).await;
    let mut answer = Answer::new(&[
        ("id", SqlType::String),
        ("state", SqlType::String),
        ("tenant", SqlType::String),
        ("pool", SqlType::String),
    ]);
    answer.row(vec![
        text(&**cancelled.id()),
        text(cancelled.state.as_str()),
        text(cancelled.request.scopes.tenant_name()),
        text(cancelled.request.scopes.pool_name()),
    ]);
    Ok(answer)
}
