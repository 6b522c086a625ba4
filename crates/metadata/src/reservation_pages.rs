//! Reads of reservations: pages of a list, those that clients wait for, and why one waits.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::ledger::{Ledger, Moment, Refusal, Request, Reservation, Role, ScopeKey, State};
use model::name::{PoolName, TenantName};

use crate::backend::Mode;
use crate::batch::keys;
use crate::error::Error;
use crate::ledger_rows;
use crate::ledger_sql as sql;
use crate::read;
use crate::rows;
use crate::store::Store;
use crate::transaction::{Arg, Transaction, args};

/// The maximum number of rows of a page.
pub const MAX_RESERVATION_ROWS: u32 = 1_001;

/// A page of reservations.
#[derive(Debug, Clone, Default)]
pub struct ReservationPage {
    pub tenant: Option<TenantName>,
    pub pool: Option<PoolName>,
    /// The user that is charged.
    pub user: Option<String>,
    /// Empty: those that have not ended.
    pub states: Vec<State>,
    /// Only those of this user or of these tenants; `None`: all.
    pub visible: Option<(String, Vec<TenantName>)>,
    /// Only ids after this one.
    pub after: Option<String>,
    /// At most [`MAX_RESERVATION_ROWS`].
    pub limit: u32,
}

/// Why a request waits.
#[derive(Debug, Clone)]
pub struct Wait {
    /// What refuses it at this moment; `None` if the next admission can grant it.
    pub refusal: Option<Refusal>,
    /// Its rank by age among the external requests that wait for the pool, from 1.
    pub position: u64,
}

impl Store {
    /// Reservations by id.
    pub async fn reservation_page(&self, filter: &ReservationPage) -> Result<Vec<Reservation>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = page(&mut tx, filter).await;
        tx.leave(read).await
    }

    /// Those of these ids, in no order.
    pub async fn reservations_of(&self, ids: &BTreeSet<Arc<str>>) -> Result<Vec<Reservation>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let ids = keys(ids.iter().map(|id| &**id));
        let read = tx.reservations_in(sql::RESERVATIONS_OF_IDS, ids).await;
        tx.leave(read).await
    }

    /// Why the request of a waiting reservation is not granted.
    pub async fn why_waiting(&self, waiting: &Reservation) -> Result<Wait, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = wait(&mut tx, waiting).await;
        tx.leave(read).await
    }
}

async fn page(tx: &mut Transaction, filter: &ReservationPage) -> Result<Vec<Reservation>, Error> {
    let (mut text, mut values) = (sql::RESERVATION_PAGE.to_owned(), args![filter.after.as_deref().unwrap_or_default()]);
    let equal = [
        (" AND tenant = ?", filter.tenant.as_ref().map(|tenant| tenant.as_str())),
        (" AND pool = ?", filter.pool.as_ref().map(|pool| pool.as_str())),
        (" AND usr = ?", filter.user.as_deref()),
    ];
    for (condition, value) in equal.into_iter().filter_map(|(condition, value)| Some((condition, value?))) {
        text.push_str(condition);
        values.push(value.into());
    }
    let active: Vec<State> = State::ALL.into_iter().filter(|state| !state.is_ended()).collect();
    let states = if filter.states.is_empty() { &active } else { &filter.states };
    add_in(&mut text, &mut values, " AND state IN (", states.iter().map(|state| state.as_str()));
    if let Some((user, tenants)) = &filter.visible {
        text.push_str(" AND (usr = ?");
        values.push(user.as_str().into());
        if !tenants.is_empty() {
            add_in(&mut text, &mut values, " OR tenant IN (", tenants.iter().map(|tenant| tenant.as_str()));
        }
        text.push(')');
    }
    text.push_str(" ORDER BY id LIMIT ?");
    values.push(filter.limit.min(MAX_RESERVATION_ROWS).into());
    tx.rows_once(text, values).await?.iter().map(ledger_rows::reservation).collect()
}

fn add_in<'a>(text: &mut String, values: &mut Vec<Arg>, head: &str, of: impl Iterator<Item = &'a str>) {
    text.push_str(head);
    for (at, value) in of.enumerate() {
        text.push_str(if at == 0 { "?" } else { ", ?" });
        values.push(value.into());
    }
    text.push(')');
}

async fn wait(tx: &mut Transaction, waiting: &Reservation) -> Result<Wait, Error> {
    let request: &Arc<Request> = &waiting.request;
    let at = Moment { now_ms: tx.now_ms().await?, epoch: read::master(tx).await?.epoch };
    let scopes: BTreeSet<ScopeKey> = request.scopes.in_lock_order().cloned().collect();
    let rows = tx.scopes(&scopes).await?;
    let mut ledger = Ledger::new(rows.into_iter().map(|row| (row.key, row.scope)), []);
    let counted = ledger.scope(request.scopes.pool()).is_none_or(|scope| match &scope.role {
        Role::Pool(pool) => pool.counted_epoch == at.epoch,
        _ => true,
    });
    let refusal = match ledger.reserve(request, at) {
        Err(refusal) => Some(refusal),
        Ok(_) => (!counted).then(|| Refusal::MustQueue(request.scopes.pool().clone())),
    };
    let asked = waiting.asked_at_ms;
    let pool = request.scopes.pool_name();
    let row = tx.row(sql::RESERVATION_POSITION, args![pool, asked, asked, &**waiting.id()]).await?;
    let before = row.map(|row| rows::int(&row, "waiting")).transpose()?.unwrap_or_default();
    Ok(Wait { refusal, position: before.unsigned_abs().max(1) })
}
