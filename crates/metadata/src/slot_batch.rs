//! Batched writes of slots, for an alteration or a call of a master: deletes, renewals and inserts, and the names issued for
//! them.
//!
//! Called under the catalog lock with rows that were read under it: nothing else changes them, so a renewed row is deleted and
//! inserted again. `slots.rs` writes the single slot of START, STOP or RESTART and checks its observed incarnation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use model::configuration::Configuration;
use model::desired::SlotChanges;
use model::end::{EndClass, EndWord, GivenUp};
use model::engine_name::EngineName;
use model::millis;
use model::number::{Generation, Incarnation};
use model::observation::MAX_REASON_BYTES;
use model::slot::{Link, Origin, Replacement, Slot, SlotKey};
use model::text::cut;

use crate::batch::keys;
use crate::error::Error;
use crate::read;
use crate::rows;
use crate::slots::{Issue, key_args, origin_args, slot_args};
use crate::sql;
use crate::transaction::{Arg, Transaction, args};

/// Writes the slot changes of an alteration. Incarnations are the numbers after `first`: first renewed slots, then added ones,
/// each in the order of `changes`. `slots` has the rows that are deleted or renewed. Only renewed slots have engines to replace.
pub(crate) async fn write(
    tx: &mut Transaction,
    issue: &Issue<'_>,
    slots: &[Slot],
    changes: &SlotChanges,
    first: Generation,
    (replacement, grace): (Replacement, Duration),
) -> Result<(), Error> {
    let SlotChanges { delete, add, renew, owners } = changes;
    let by_key: HashMap<&SlotKey, &Slot> = slots.iter().map(|slot| (&slot.key, slot)).collect();
    if !(delete.is_empty() && renew.is_empty()) {
        end_engines(tx, changes, &by_key, grace).await?;
        let gone = delete.iter().map(|(key, _)| key).chain(renew).map(|key| key_args(key).into()).collect();
        tx.execute_in_tuples(sql::SLOTS_DELETE, gone).await?;
    }
    let mut incarnation = Incarnation(first.get());
    let (mut of_slots, mut issued) = (Vec::new(), Vec::new());
    for key in renew {
        let slot = by_key
            .get(key)
            .ok_or_else(|| Error::Broken(format!("slot {key} changed under the catalog lock").into()))?;
        incarnation = Incarnation(incarnation.get() + 1);
        let owner = owners.get(key).unwrap_or(&slot.owner).clone();
        let slot = Slot { owner, ..renewed_as(slot, incarnation, 0, replacement) };
        of_slots.push(slot_args(&slot));
        issued.push(slot);
    }
    for key in add {
        incarnation = Incarnation(incarnation.get() + 1);
        let slot = Slot {
            key: key.clone(),
            incarnation,
            origin: Origin::Minimum,
            failures: 0,
            replacement: Replacement::StandIn,
            born: incarnation,
            started_for: None,
            owner: None,
            asked_at_ms: issue.now_ms,
        };
        of_slots.push(slot_args(&slot));
        issued.push(slot);
    }
    tx.insert_all(sql::SLOTS_INSERT, of_slots).await?;
    issue_names(tx, issue, &issued).await
}

/// Inserts new slots and issues the names of their engines.
pub(crate) async fn insert(tx: &mut Transaction, issue: &Issue<'_>, slots: &[Slot]) -> Result<(), Error> {
    if slots.is_empty() {
        return Ok(());
    }
    tx.insert_all(sql::SLOTS_INSERT, slots.iter().map(slot_args).collect()).await?;
    issue_names(tx, issue, slots).await
}

/// A slot with a new incarnation, because its current engine has ended or does not match.
pub(crate) struct Renewed<'a> {
    pub(crate) slot: &'a Slot,
    pub(crate) incarnation: Incarnation,
    pub(crate) failures: u32,
    pub(crate) replacement: Replacement,
    /// Why the older engines of the slot are condemned; `None` if they stand in.
    pub(crate) condemn: Option<&'a str>,
    /// How the slot's engine ends, unless it is superseded or has ended.
    pub(crate) ends: Option<&'a GivenUp>,
}

/// Writes why slots have given up their engines, unless these have ended or have a word.
async fn give_up(tx: &mut Transaction, renewed: &[Renewed<'_>]) -> Result<(), Error> {
    let mut ends: BTreeMap<(EndWord, Option<bool>, &str), Vec<String>> = BTreeMap::new();
    for renewed in renewed {
        let Some(GivenUp { class, reason }) = renewed.ends else { continue };
        let names = ends.entry((class.word, class.retryable, reason)).or_default();
        names.push(renewed.slot.engine().to_string());
    }
    for ((word, retryable, reason), names) in ends {
        let reason = cut(reason, MAX_REASON_BYTES);
        let values = [word.as_str().into(), retryable.map(i64::from).into(), reason.into()];
        tx.execute_in(sql::ENGINES_GIVEN_UP, &values, keys(names)).await?;
    }
    Ok(())
}

/// Writes how engines have ended, unless they have a word.
pub(crate) async fn write_words(
    tx: &mut Transaction,
    ends: impl IntoIterator<Item = (EndClass, EngineName)>,
) -> Result<(), Error> {
    let mut by_class: BTreeMap<(EndWord, Option<bool>), Vec<String>> = BTreeMap::new();
    for (EndClass { word, retryable }, name) in ends {
        by_class.entry((word, retryable)).or_default().push(name.to_string());
    }
    for ((word, retryable), names) in by_class {
        let class = [Arg::from(word.as_str()), Arg::from(retryable.map(i64::from))];
        tx.execute_in(sql::ENGINES_WORD, &class, keys(names)).await?;
    }
    Ok(())
}

/// Renews slots, each once. Older engines that are not condemned end as they would have.
pub(crate) async fn renew(tx: &mut Transaction, issue: &Issue<'_>, renewed: &[Renewed<'_>]) -> Result<(), Error> {
    let (mut old, mut of_slots, mut issued) = (Vec::new(), Vec::new(), Vec::new());
    for Renewed { slot, incarnation, failures, replacement, .. } in renewed {
        old.push(key_args(&slot.key).into());
        let slot = renewed_as(slot, *incarnation, *failures, *replacement);
        of_slots.push(slot_args(&slot));
        issued.push(slot);
    }
    give_up(tx, renewed).await?;
    condemn_older(tx, renewed).await?;
    tx.execute_in_tuples(sql::SLOTS_DELETE, old).await?;
    tx.insert_all(sql::SLOTS_INSERT, of_slots).await?;
    issue_names(tx, issue, &issued).await
}

fn renewed_as(slot: &Slot, incarnation: Incarnation, failures: u32, replacement: Replacement) -> Slot {
    Slot { incarnation, failures, replacement, ..slot.clone() }
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
        // The word of an engine that is reclaimed has been written.
        let order = [Arg::from(reason), Arg::from(EndWord::Superseded.as_str())];
        tx.execute_in(sql::ENGINES_CONDEMN_AS_THEY_ARE, &order, keys(names)).await?;
    }
    Ok(())
}

/// Condemns the engines of slots that go, each with its reason, and gives the engines of renewed slots their grace as
/// stand-ins. Engines that have an order already keep it.
async fn end_engines(
    tx: &mut Transaction,
    changes: &SlotChanges,
    slots: &HashMap<&SlotKey, &Slot>,
    grace: Duration,
) -> Result<(), Error> {
    let mut living: HashMap<SlotKey, Vec<EngineName>> = HashMap::new();
    for row in tx.rows(sql::ENGINES_UNCONDEMNED, args![]).await? {
        living.entry(rows::slot_key(&row)?).or_default().push(rows::engine_name(&row)?);
    }
    let mut condemned: BTreeMap<(String, EndWord), Vec<String>> = BTreeMap::new();
    for (key, order) in &changes.delete {
        let current = slots.get(key).map(|slot| slot.engine());
        for engine in living.remove(key).unwrap_or_default() {
            let order = current.as_ref().map_or_else(|| order.clone(), |current| order.of_engine(&engine, current));
            condemned.entry((order.reason, order.word)).or_default().push(engine.to_string());
        }
    }
    for ((reason, word), names) in condemned {
        tx.execute_in(
            sql::ENGINES_CONDEMN_ALL,
            &[Arg::from(millis::from_duration(grace)), Arg::from(reason.as_str()), Arg::from(word.as_str())],
            keys(names),
        )
        .await?;
    }
    let stand_ins = changes.renew.iter().filter_map(|key| living.remove(key)).flatten();
    let stand_ins = keys(stand_ins.map(|engine| engine.to_string()));
    tx.execute_in(sql::ENGINES_GRACE_ALL, &[Arg::from(millis::from_duration(grace))], stand_ins).await?;
    Ok(())
}

/// Issues the names of engines and records their namespaces.
async fn issue_names(tx: &mut Transaction, issue: &Issue<'_>, issued: &[Slot]) -> Result<(), Error> {
    let mut namespaces: HashMap<Link, String> = HashMap::new();
    for Slot { key, .. } in issued {
        if let std::collections::hash_map::Entry::Vacant(vacant) = namespaces.entry(key.link()) {
            let configuration = Configuration::from_slot(issue.catalog, key, issue.defaults);
            let configuration =
                configuration.ok_or_else(|| Error::Broken(format!("slot {key} has no unit or pool").into()))?;
            vacant.insert(configuration.namespace);
        }
    }
    remember_namespaces(tx, namespaces.values().map(String::as_str).collect()).await?;
    let mut of_engines = Vec::new();
    for slot in issued {
        let Slot { key, incarnation, .. } = slot;
        let mut args = args![slot.engine().as_str()];
        args.extend(key_args(key));
        let namespace = namespaces.get(&key.link()).map(String::as_str).unwrap_or_default();
        args.extend(args![*incarnation, namespace, "", issue.now_ms]);
        args.extend(origin_args(slot));
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
