//! The slot rows that follow from a catalog: the arithmetic of MIN and MAX.
//!
//! [`derive()`] compares the existing rows with a catalog and computes which rows to delete, to add and to renew. It
//! is idempotent: applied to its own result it changes nothing. The metadata agent applies it in the transaction of
//! an alteration; EXPLAIN applies it to a copy.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::Catalog;
use crate::configuration::{Configuration, Defaults};
use crate::slot::Link;
use crate::slot::{Origin, Slot, SlotKey};

/// The changes to the slot rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotChanges {
    /// Rows to delete, with the reason for their engines.
    pub delete: Vec<(SlotKey, String)>,
    /// Rows to add, all of origin [`Origin::Minimum`]; each needs a new incarnation.
    pub add: Vec<SlotKey>,
    /// Rows that stay but whose engine configuration changes; each needs a new incarnation.
    pub renew: Vec<SlotKey>,
}

/// The changes to the rows when the catalog goes from `before` to `after`.
///
/// - A (tenant, pool, unit) that is no longer linked loses its rows.
/// - Rows of origin *minimum* above MIN are deleted, highest ordinal first; then rows above MAX, started ones first,
///   highest ordinal first; then rows of origin *minimum* are added at the lowest free ordinals until MIN is met.
/// - A row that stays is renewed if its effective configuration changes.
pub fn derive(before: &Catalog, after: &Catalog, slots: &[Slot], defaults: &Defaults) -> SlotChanges {
    let links = after.links();
    let mut by_link: BTreeMap<Link, Vec<&Slot>> = links.iter().map(|link| (link.clone(), Vec::new())).collect();
    for slot in slots {
        by_link.entry(slot.key.link()).or_default().push(slot);
    }
    let mut changes = SlotChanges::default();
    for (link, mut rows) in by_link {
        rows.sort_by_key(|slot| slot.key.ordinal);
        let Some(unit) = after.unit(&link.unit).filter(|_| links.contains(&link)) else {
            let reason = gone_reason(after, &link);
            changes.delete.extend(rows.iter().map(|slot| (slot.key.clone(), reason.clone())));
            continue;
        };
        let gone = surplus(&rows, unit.min_engines as usize, unit.max_engines as usize);
        let kept: Vec<&&Slot> = rows.iter().filter(|slot| !gone.contains_key(&slot.key.ordinal)).collect();
        // The configuration follows from the link alone: compare it once for all its slots.
        let configuration =
            |of: &Catalog| kept.first().and_then(|slot| Configuration::from_slot(of, &slot.key, defaults));
        if configuration(before) != configuration(after) {
            changes.renew.extend(kept.iter().map(|slot| slot.key.clone()));
        }
        let taken: BTreeSet<u32> = kept.iter().map(|slot| slot.key.ordinal).collect();
        let missing = (unit.min_engines as usize).saturating_sub(kept.len());
        changes.add.extend(free_ordinals(&taken).take(missing).map(|ordinal| key(&link, ordinal)));
        changes.delete.extend(gone.into_iter().map(|(ordinal, reason)| (key(&link, ordinal), reason)));
    }
    changes
}

/// The lowest ordinal that is free for the (tenant, pool, unit): START uses it.
pub fn lowest_free_ordinal(link: &Link, slots: &[Slot]) -> u32 {
    let taken = slots.iter().filter(|slot| slot.key.link() == *link).map(|slot| slot.key.ordinal).collect();
    free_ordinals(&taken).next().unwrap_or(u32::MAX)
}

fn free_ordinals(taken: &BTreeSet<u32>) -> impl Iterator<Item = u32> {
    (0..u32::MAX).filter(move |ordinal| !taken.contains(ordinal))
}

fn key(link: &Link, ordinal: u32) -> SlotKey {
    SlotKey { tenant: link.tenant.clone(), pool: link.pool.clone(), unit: link.unit.clone(), ordinal }
}

/// The ordinals above MIN and MAX, each with its reason. `rows` are sorted by ordinal.
fn surplus(rows: &[&Slot], min: usize, max: usize) -> BTreeMap<u32, String> {
    let mut gone = BTreeMap::new();
    let minimum: Vec<u32> =
        rows.iter().filter(|slot| slot.origin == Origin::Minimum).map(|slot| slot.key.ordinal).collect();
    for ordinal in minimum.iter().rev().take(minimum.len().saturating_sub(min)) {
        gone.insert(*ordinal, format!("MIN_ENGINES is now {min}"));
    }
    let mut left: Vec<&&Slot> = rows.iter().filter(|slot| !gone.contains_key(&slot.key.ordinal)).collect();
    // Started rows are deleted before rows of the minimum, higher ordinals before lower ones.
    left.sort_by_key(|slot| (slot.origin == Origin::Minimum, std::cmp::Reverse(slot.key.ordinal)));
    for slot in left.iter().take(left.len().saturating_sub(max)) {
        gone.insert(slot.key.ordinal, format!("MAX_ENGINES is now {max}"));
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
