//! Writes of single slots: the row, the name issued for it, and the termination of engines that are no longer desired.
//!
//! Every function here is called under the catalog lock.

use std::time::Duration;

use model::catalog::Catalog;
use model::configuration::{Configuration, Defaults};
use model::end::{EndOrder, EndWord};
use model::millis;
use model::number::Incarnation;
use model::slot::{Replacement, Slot, SlotKey, StartedFor};

use crate::error::Error;
use crate::sql;
use crate::transaction::{Arg, Transaction, args};

/// The inputs for issuing names.
pub(crate) struct Issue<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) defaults: &'a Defaults,
    pub(crate) now_ms: i64,
}

/// How the older engines of a slot are treated when it has a new incarnation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Older<'a> {
    /// They stand in; `grace` applies once they are superseded.
    StandIn { grace: Duration },
    /// They are condemned at once.
    Condemned { reason: &'a str },
}

pub(crate) fn key_args(key: &SlotKey) -> [Arg; 4] {
    [key.tenant.as_str().into(), key.pool.as_str().into(), key.unit.as_str().into(), key.ordinal.into()]
}

/// The values of an insert.
pub(crate) fn slot_args(slot: &Slot) -> Vec<Arg> {
    let Slot { key, incarnation, origin, failures, replacement, born, started_for, asked_at_ms, owner } = slot;
    let mut args: Vec<Arg> = key_args(key).into();
    args.extend(args![*incarnation, *born, origin.as_str(), *failures, replacement.number()]);
    let [user, creator] = match started_for {
        Some(StartedFor { user, creator }) => [user.as_str(), creator.as_str()],
        None => ["", ""],
    };
    let [kind, name] = owner.as_ref().map_or(["", ""], |owner| [owner.kind(), owner.name()]);
    args.extend(args![user, creator, *asked_at_ms, kind, name]);
    args
}

/// Adds a slot and issues the name of its engine.
pub(crate) async fn add(tx: &mut Transaction, issue: &Issue<'_>, slot: &Slot) -> Result<(), Error> {
    tx.execute(sql::SLOT_INSERT, slot_args(slot)).await?;
    issue_name(tx, issue, slot, slot.incarnation).await
}

/// Gives a slot a new incarnation and issues the name of its engine; returns false if the observed incarnation is stale.
pub(crate) async fn renew(
    tx: &mut Transaction,
    issue: &Issue<'_>,
    slot: &Slot,
    incarnation: Incarnation,
    (failures, replacement): (u32, Replacement),
    older: Older<'_>,
) -> Result<bool, Error> {
    let key = &slot.key;
    let mut args = args![incarnation, failures, replacement.number()];
    args.extend(key_args(key));
    args.push(slot.incarnation.into());
    if tx.execute(sql::SLOT_RENEW, args).await? == 0 {
        return Ok(false);
    }
    match older {
        Older::StandIn { grace } => {
            let mut args = args![millis::from_duration(grace)];
            args.extend(key_args(key));
            args.push(incarnation.into());
            tx.execute(sql::ENGINES_GRACE, args).await?;
        }
        Older::Condemned { reason } => {
            let order = EndOrder::new(EndWord::Superseded, reason);
            condemn(tx, key, incarnation, Duration::ZERO, &order).await?;
        }
    }
    issue_name(tx, issue, slot, incarnation).await?;
    Ok(true)
}

/// Deletes a slot and condemns all its engines that have not ended, including stand-ins.
pub(crate) async fn delete(
    tx: &mut Transaction,
    key: &SlotKey,
    grace: Duration,
    order: &EndOrder,
) -> Result<(), Error> {
    tx.execute(sql::SLOT_DELETE, key_args(key).into()).await?;
    condemn(tx, key, Incarnation(i64::MAX), grace, order).await
}

async fn condemn(
    tx: &mut Transaction,
    key: &SlotKey,
    below: Incarnation,
    grace: Duration,
    EndOrder { word, reason }: &EndOrder,
) -> Result<(), Error> {
    let mut args = args![millis::from_duration(grace), reason.as_str(), word.as_str()];
    args.extend(key_args(key));
    args.push(below.into());
    tx.execute(sql::ENGINES_CONDEMN, args).await?;
    Ok(())
}

async fn issue_name(
    tx: &mut Transaction,
    issue: &Issue<'_>,
    slot: &Slot,
    incarnation: Incarnation,
) -> Result<(), Error> {
    let key = &slot.key;
    let configuration = Configuration::from_slot(issue.catalog, key, issue.defaults)
        .ok_or_else(|| Error::Broken(format!("slot {key} has no unit or pool").into()))?;
    remember_namespace(tx, &configuration.namespace).await?;
    let name = key.engine(incarnation);
    let mut args = args![name.as_str()];
    args.extend(key_args(key));
    args.extend(args![incarnation, configuration.namespace, issue.now_ms]);
    args.extend(origin_args(slot));
    tx.execute(sql::ENGINE_INSERT, args).await?;
    Ok(())
}

/// The values of an engine's origin and owner.
pub(crate) fn origin_args(slot: &Slot) -> [Arg; 3] {
    let (kind, owner) = slot.owner.as_ref().map_or(("", ""), |owner| (owner.kind(), owner.name()));
    [slot.origin.as_str().into(), kind.into(), owner.into()]
}

/// Records a namespace before an instance can be created there, so that no list of instances misses it.
pub(crate) async fn remember_namespace(tx: &mut Transaction, namespace: &str) -> Result<(), Error> {
    if tx.execute(sql::NAMESPACE_REVIVE, args![namespace]).await? == 0 {
        tx.execute(sql::NAMESPACE_INSERT, args![namespace]).await?;
    }
    Ok(())
}
