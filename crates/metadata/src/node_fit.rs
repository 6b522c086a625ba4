//! Node fit of START: an engine with a pod that fits on no node can never start, and one whose pods do not all find a node now
//! has to wait.
//!
//! By the nodes as the master last published them. Unknown nodes refuse nothing: none was observed, or the pool lists one that
//! was not. What engines with a reservation need that are on no node yet is not free. A stale reading costs a refusal that a
//! retry does not repeat, or a pod that stays pending until the deadline of its reservation; the master checks again, by newer
//! nodes, whatever has no reservation.

use std::collections::BTreeMap;

use model::catalog::Catalog;
use model::charge::Charge;
use model::configuration::{Configuration, Defaults};
use model::error::UserError;
use model::fit::{Nodes, Pods};
use model::ledger;
use model::slot::{Link, SlotKey};

use crate::error::Error;
use crate::ledger_rows;
use crate::ledger_sql as sql;
use crate::read;
use crate::transaction::{Transaction, args};

/// Refuses an engine with a pod that is larger than every node of its pool.
pub(crate) async fn unless_oversized(
    tx: &mut Transaction,
    catalog: &Catalog,
    request: &ledger::Request,
    charge: &Charge,
) -> Result<(), Error> {
    let nodes = Nodes::observed(&read::nodes(tx).await?, catalog);
    let oversized = nodes.oversized(request.scopes.pool_name(), &Pods::from(charge));
    oversized.map_or(Ok(()), |oversized| Err(oversized.error(request).into()))
}

/// The error if the pods do not all find a node now. The reservation of the request is not in the database yet.
pub(crate) async fn shortage(
    tx: &mut Transaction,
    (catalog, defaults): (&Catalog, &Defaults),
    request: &ledger::Request,
    charge: &Charge,
) -> Result<Option<UserError>, Error> {
    let pool = request.scopes.pool_name();
    let mut nodes = Nodes::observed(&read::nodes(tx).await?, catalog);
    if !nodes.are_known(pool) {
        return Ok(None);
    }
    let mut pods_of: BTreeMap<Link, Option<Pods>> = BTreeMap::new();
    for row in tx.rows(sql::RESERVATIONS_ON_NO_NODE, args![]).await? {
        let reservation = ledger_rows::planned(&row)?;
        let Some(link) = reservation.request.link() else { continue };
        let pods = pods_of.entry(link).or_insert_with_key(|link| pods(catalog, defaults, link));
        let pods = pods.unwrap_or_else(|| Pods::whole(reservation.amounts.requests()));
        nodes.set_aside(reservation.request.scopes.pool_name(), &pods);
    }
    Ok(nodes.take(pool, &Pods::from(charge)).err().map(|full| full.error(request, None)))
}

/// The pods of the engines of a tenant, pool and unit; `None` if the catalog has no such unit or pool.
fn pods(catalog: &Catalog, defaults: &Defaults, link: &Link) -> Option<Pods> {
    let Link { tenant, pool, unit } = link.clone();
    let key = SlotKey { tenant, pool, unit, ordinal: 0 };
    let configuration = Configuration::from_slot(catalog, &key, defaults)?;
    Some(Pods::from(&Charge::new(&configuration, defaults.instances).charged_by(catalog.unit(&key.unit)?)))
}
