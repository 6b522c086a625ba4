//! Batched writes of slots, for an alteration or a call of a master: deletes, renewals and inserts, and the names issued for
//! them.
//!
//! Called under the catalog lock with rows that were read under it: nothing else changes them, so a renewed row is deleted and
//! inserted again. `slots.rs` writes the single slot of START, STOP or RESTART and checks its observed incarnation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use model::configuration::Configuration;
use model::desired::SlotChanges;
use model::millis;
use model::number::{Generation, Incarnation};
use model::slot::{Link, Origin, Slot, SlotKey};

use crate::batch::keys;
use crate::error::Error;
use crate::read;
use crate::rows;
use crate::slots::{Issue, key_args, slot_args};
use crate::sql;
use crate::transaction::{Arg, Transaction, args};

/// Writes the slot changes of an alteration. Incarnations are the numbers after `first`: first renewed slots, then added ones,
/// each in the order of `changes`.
pub(crate) async fn write(
    tx: &mut Transaction,
    issue: &Issue<'_>,
    slots: &[Slot],
    changes: &SlotChanges,
    first: Generation,
    grace: Duration,
) -> Result<(), Error> {
    let SlotChanges { delete, add, renew } = changes;
    if !(delete.is_empty() && renew.is_empty()) {
        end_engines(tx, changes, grace).await?;
        let gone = delete.iter().map(|(key, _)| key).chain(renew).map(|key| key_args(key).into()).collect();
        tx.execute_in_tuples(sql::SLOTS_DELETE, gone).await?;
    }
    let by_key: HashMap<&SlotKey, &Slot> = slots.iter().map(|slot| (&slot.key, slot)).collect();
    let mut incarnation = Incarnation(first.get());
    let (mut of_slots, mut issued) = (Vec::new(), Vec::new());
    for key in renew {
        let slot = by_key
            .get(key)
            .ok_or_else(|| Error::Broken(format!("slot {key} changed under the catalog lock").into()))?;
        incarnation = Incarnation(incarnation.get() + 1);
        of_slots.push(slot_args(&renewed_as(slot, incarnation, 0)));
        issued.push((key, incarnation));
    }
    for key in add {
        incarnation = Incarnation(incarnation.get() + 1);
        of_slots.push(slot_args(&Slot {
            key: key.clone(),
            incarnation,
            origin: Origin::Minimum,
            failures: 0,
            forced: false,
            born: incarnation,
            started_for: None,
            asked_at_ms: issue.now_ms,
        }));
        issued.push((key, incarnation));
    }
    tx.insert_all(sql::SLOTS_INSERT, of_slots).await?;
    issue_names(tx, issue, &issued).await
}

/// A slot with a new incarnation, because its current engine has ended or does not match.
pub(crate) struct Renewed<'a> {
    pub(crate) slot: &'a Slot,
    pub(crate) incarnation: Incarnation,
    pub(crate) failures: u32,
    /// Why the older engines of the slot are condemned; `None` if they stand in.
    pub(crate) condemn: Option<&'a str>,
}

/// Renews slots, each once. Older engines that are not condemned end as they would have.
pub(crate) async fn renew(tx: &mut Transaction, issue: &Issue<'_>, renewed: &[Renewed<'_>]) -> Result<(), Error> {
    let (mut old, mut of_slots, mut issued) = (Vec::new(), Vec::new(), Vec::new());
    for Renewed { slot, incarnation, failures, .. } in renewed {
        old.push(key_args(&slot.key).into());
        of_slots.push(slot_args(&renewed_as(slot, *incarnation, *failures)));
        issued.push((&slot.key, *incarnation));
    }
    condemn_older(tx, renewed).await?;
    tx.execute_in_tuples(sql::SLOTS_DELETE, old).await?;
    tx.insert_all(sql::SLOTS_INSERT, of_slots).await?;
    issue_names(tx, issue, &issued).await
}

fn renewed_as(slot: &Slot, incarnation: Incarnation, failures: u32) -> Slot {
    Slot { incarnation, failures, forced: false, ..slot.clone() }
}

/// Condemns the older engines of slots whose renewal has a reason for it, with their grace or the default.
async fn condemn_older(tx: &mut Transaction, renewed: &[Renewed<'_>]) -> Result<(), Error> {
    let reasons: HashMap<&SlotKey, &str> =
        renewed.iter().filter_map(|renewed| Some((&renewed.slot.key, renewed.condemn?))).collect();
    if reasons.is_empty() {
        return Ok(());
    }
    let mut condemned: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in tx.rows(sql::ENGINES_UNCONDEMNED, args![]).await? {
        if let Some(reason) = reasons.get(&rows::slot_key(&row)?) {
            condemned.entry(*reason).or_default().push(rows::text(&row, "name")?);
        }
    }
    for (reason, names) in condemned {
        tx.execute_in(sql::ENGINES_CONDEMN_AS_THEY_ARE, &[Arg::from(reason)], keys(names)).await?;
    }
    Ok(())
}

/// Condemns the engines of slots that go, each with its reason, and gives the engines of renewed slots their grace as
/// stand-ins. Engines that have an order already keep it.
async fn end_engines(tx: &mut Transaction, changes: &SlotChanges, grace: Duration) -> Result<(), Error> {
    let mut living: HashMap<SlotKey, Vec<String>> = HashMap::new();
    for row in tx.rows(sql::ENGINES_UNCONDEMNED, args![]).await? {
        living.entry(rows::slot_key(&row)?).or_default().push(rows::text(&row, "name")?);
    }
    let mut condemned: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, reason) in &changes.delete {
        condemned.entry(reason).or_default().extend(living.remove(key).unwrap_or_default());
    }
    for (reason, names) in condemned {
        tx.execute_in(
            sql::ENGINES_CONDEMN_ALL,
            &[Arg::from(millis::from_duration(grace)), Arg::from(reason)],
            keys(names),
        )
        .await?;
    }
    let stand_ins = keys(changes.renew.iter().filter_map(|key| living.remove(key)).flatten());
    tx.execute_in(sql::ENGINES_GRACE_ALL, &[Arg::from(millis::from_duration(grace))], stand_ins).await?;
    Ok(())
}

/// Issues the names of engines and records their namespaces.
async fn issue_names(tx: &mut Transaction, issue: &Issue<'_>, issued: &[(&SlotKey, Incarnation)]) -> Result<(), Error> {
    let mut namespaces: HashMap<Link, String> = HashMap::new();
    for (key, _) in issued {
        if let std::collections::hash_map::Entry::Vacant(vacant) = namespaces.entry(key.link()) {
            let configuration = Configuration::from_slot(issue.catalog, key, issue.defaults);
            let configuration =
                configuration.ok_or_else(|| Error::Broken(format!("slot {key} has no unit or pool").into()))?;
            vacant.insert(configuration.namespace);
        }
    }
    remember_namespaces(tx, namespaces.values().map(String::as_str).collect()).await?;
    let mut of_engines = Vec::new();
    for (key, incarnation) in issued {
        let mut args = args![key.engine(*incarnation).as_str()];
        args.extend(key_args(key));
        let namespace = namespaces.get(&key.link()).map(String::as_str).unwrap_or_default();
        args.extend(args![*incarnation, namespace, "", issue.now_ms]);
        of_engines.push(args);
    }
    tx.insert_all(sql::ENGINES_INSERT, of_engines).await
}

/// Records namespaces before an instance can be created there, so that no list of instances misses one.
pub(crate) async fn remember_namespaces(tx: &mut Transaction, namespaces: BTreeSet<&str>) -> Result<(), Error> {
    if namespaces.is_empty() {
        return Ok(());
    }
    tx.execute_in(sql::NAMESPACES_REVIVE, &[], keys(namespaces.iter().copied())).await?;
    let recorded: BTreeSet<String> = read::namespaces(tx).await?.into_iter().map(|(name, _)| name).collect();
    let missing = namespaces.into_iter().filter(|name| !recorded.contains(*name)).map(|name| args![name]).collect();
    tx.insert_all(sql::NAMESPACES_INSERT, missing).await
}
