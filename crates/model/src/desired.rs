//! The slot rows that follow from a catalog: the arithmetic of MIN and MAX.
//!
//! [`derive()`] compares the existing rows with a catalog and computes which rows to delete, to add and to renew. It
//! is idempotent: applied to its own result it changes nothing. The metadata agent applies it in the transaction of
//! an alteration; EXPLAIN applies it to a copy.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::Catalog;
use crate::configuration::{Configuration, Defaults};
use crate::end::{EndOrder, EndWord};
use crate::owner::{Owner, SharedBy};
use crate::slot::Link;
use crate::slot::{Origin, Slot, SlotKey};

/// The changes to the slot rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotChanges {
    /// Rows to delete, with the order for their engines.
    pub delete: Vec<(SlotKey, EndOrder)>,
    /// Rows to add, all of origin [`Origin::Minimum`]; each needs a new incarnation.
    pub add: Vec<SlotKey>,
    /// Rows that stay but whose engine configuration changes; each needs a new incarnation.
    pub renew: Vec<SlotKey>,
    /// The new owners of rows that are renewed; the others keep theirs.
    pub owners: BTreeMap<SlotKey, Option<Owner>>,
}

/// The changes to the rows when the catalog goes from `before` to `after`.
///
/// - A (tenant, pool, unit) that is no longer linked loses its rows.
/// - Rows of origin *minimum* above MIN are deleted, highest ordinal first; then rows above MAX, started ones first,
///   highest ordinal first; then rows of origin *minimum* are added at the lowest free ordinals until MIN is met. Rows of
///   any origin count for MIN.
/// - Rows of origin *demand* neither count for MAX here nor are they deleted while their (tenant, pool, unit) is linked,
///   not even if the unit no longer starts on demand: the master releases them when they are idle, and selects those above
///   MAX, because it knows the sessions of their engines.
/// - Rows whose owner is not of the kind that `SHARED_BY` names are deleted if they follow demand. A started row loses its owner
///   if the tenant shares its engine now, is owned by the user that it was started for if users have engines of their own, and is
///   deleted otherwise, because its owner is not known.
/// - A row that stays is renewed if its effective configuration or its owner changes.
pub fn derive(before: &Catalog, after: &Catalog, slots: &[impl Borrow<Slot>], defaults: &Defaults) -> SlotChanges {
    let links = after.links();
    let mut by_link: BTreeMap<Link, Vec<&Slot>> = links.iter().map(|link| (link.clone(), Vec::new())).collect();
    for slot in slots.iter().map(Borrow::borrow) {
        by_link.entry(slot.key.link()).or_default().push(slot);
    }
    let mut changes = SlotChanges::default();
    for (link, mut rows) in by_link {
        rows.sort_by_key(|slot| slot.key.ordinal);
        let Some(unit) = after.unit(&link.unit).filter(|_| links.contains(&link)) else {
            let reason = gone_reason(after, &link);
            changes.delete.extend(rows.iter().map(|slot| (slot.key.clone(), reason.clone().into())));
            continue;
        };
        let mut gone = BTreeMap::new();
        for slot in rows.iter().filter(|slot| !unit.shared_by.is_kind_of(slot.owner.as_ref())) {
            match owner_after(slot, unit.shared_by) {
                Ok(owner) => {
                    changes.owners.insert(slot.key.clone(), owner);
                }
                Err(UnknownOwner) => {
                    gone.insert(slot.key.ordinal, format!("SHARED_BY is now '{}'", unit.shared_by).into());
                }
            }
        }
        let left: Vec<&Slot> = rows.iter().copied().filter(|slot| !gone.contains_key(&slot.key.ordinal)).collect();
        gone.extend(surplus(&left, unit.min_engines as usize, unit.max_engines as usize));
        changes.owners.retain(|key, _| key.link() != link || !gone.contains_key(&key.ordinal));
        let kept: Vec<&&Slot> = rows.iter().filter(|slot| !gone.contains_key(&slot.key.ordinal)).collect();
        // The configuration follows from the link alone: compare it once for all its slots.
        let configuration =
            |of: &Catalog| kept.first().and_then(|slot| Configuration::from_slot(of, &slot.key, defaults));
        let is_renewed = configuration(before) != configuration(after);
        let renewed = kept.iter().filter(|slot| is_renewed || changes.owners.contains_key(&slot.key));
        changes.renew.extend(renewed.map(|slot| slot.key.clone()));
        let taken: BTreeSet<u32> = kept.iter().map(|slot| slot.key.ordinal).collect();
        let missing = (unit.min_engines as usize).saturating_sub(kept.len());
        changes.add.extend(free_ordinals(&taken).take(missing).map(|ordinal| key(&link, ordinal)));
        changes.delete.extend(gone.into_iter().map(|(ordinal, reason)| (key(&link, ordinal), reason)));
    }
    changes
}

/// No owner of the kind that `SHARED_BY` names is known for a row.
struct UnknownOwner;

/// The new owner of a row whose owner is of another kind. One that follows demand has none: its sessions are demand again.
fn owner_after(slot: &Slot, shared_by: SharedBy) -> Result<Option<Owner>, UnknownOwner> {
    match (shared_by, &slot.started_for) {
        _ if slot.origin == Origin::Demand => Err(UnknownOwner),
        (SharedBy::Tenant, _) => Ok(None),
        (SharedBy::User, Some(started_for)) => Ok(Some(Owner::User(started_for.user.clone()))),
        (SharedBy::User, None) | (SharedBy::Group | SharedBy::Session, _) => Err(UnknownOwner),
    }
}

/// The lowest ordinal that is free for the (tenant, pool, unit): START uses it.
pub fn lowest_free_ordinal(link: &Link, slots: &[impl Borrow<Slot>]) -> u32 {
    let taken =
        slots.iter().map(Borrow::borrow).filter(|slot| slot.key.is_of(link)).map(|slot| slot.key.ordinal).collect();
    free_ordinals(&taken).next().unwrap_or(u32::MAX)
}

fn free_ordinals(taken: &BTreeSet<u32>) -> impl Iterator<Item = u32> {
    (0..u32::MAX).filter(move |ordinal| !taken.contains(ordinal))
}

fn key(link: &Link, ordinal: u32) -> SlotKey {
    SlotKey { tenant: link.tenant.clone(), pool: link.pool.clone(), unit: link.unit.clone(), ordinal }
}

/// The ordinals above MIN and MAX, each with its reason, none of them on demand. `rows` are sorted by ordinal.
fn surplus(rows: &[&Slot], min: usize, max: usize) -> BTreeMap<u32, EndOrder> {
    let mut gone = BTreeMap::new();
    let minimum: Vec<u32> =
        rows.iter().filter(|slot| slot.origin == Origin::Minimum).map(|slot| slot.key.ordinal).collect();
    for ordinal in minimum.iter().rev().take(minimum.len().saturating_sub(min)) {
        gone.insert(*ordinal, format!("MIN_ENGINES is now {min}").into());
    }
    let stays = |slot: &&&Slot| slot.origin != Origin::Demand && !gone.contains_key(&slot.key.ordinal);
    let mut left: Vec<&&Slot> = rows.iter().filter(stays).collect();
    // Started rows are deleted before rows of the minimum, higher ordinals before lower ones.
    left.sort_by_key(|slot| (slot.origin == Origin::Minimum, std::cmp::Reverse(slot.key.ordinal)));
    for slot in left.iter().take(left.len().saturating_sub(max)) {
        gone.insert(slot.key.ordinal, EndOrder::new(EndWord::OverMax, format!("MAX_ENGINES is now {max}")));
    }
    gone
}

fn gone_reason(after: &Catalog, link: &Link) -> String {
    let Some(tenant) = after.tenant(&link.tenant) else {
        return format!("tenant \"{}\" was dropped", link.tenant);
    };
    if tenant.pools.contains(&link.pool) {
        format!("resource pool \"{}\" no longer offers unit \"{}\"", link.pool, link.unit)
    } else {
        format!("tenant \"{}\" no longer uses resource pool \"{}\"", link.tenant, link.pool)
    }
}
