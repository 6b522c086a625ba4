//! The judge of replacements IN PLACE: one engine of a slot at a time, few slots down, and a charge that stays.

use std::collections::{BTreeMap, BTreeSet};

use model::engine_name::EngineName;
use model::ledger::{Reservation, lineage_of};
use model::slot::{Link, Replacement, Slot, SlotKey};
use model::snapshot::EngineRecord;
use planner::{Action, Plan, Simulation};

use super::Cluster;
use super::judge::{Judge, is_ready};
use super::node_judge::may_be_unreachable;

/// The older engines of the slot's row that have an instance, whatever its phase.
fn older<'a>(cluster: &'a Cluster, slot: &'a Slot) -> impl Iterator<Item = &'a EngineRecord> {
    let Simulation { desired, observed, .. } = &cluster.simulation;
    let records = desired.snapshot.engines.iter().map(AsRef::as_ref).filter(move |record: &&EngineRecord| {
        record.slot == slot.key && record.incarnation != slot.incarnation && slot.owns(record.incarnation)
    });
    records.filter(|record| observed.instances.iter().any(|instance| instance.name == record.name))
}

/// IN PLACE never creates an engine beside an older one of its slot that may be reached.
pub fn judge_create(cluster: &Cluster, engine: &EngineName) {
    let Simulation { desired, observed, .. } = &cluster.simulation;
    let Some(slot) = desired.snapshot.slots.iter().find(|slot| slot.engine() == *engine) else { return };
    let exists = observed.instances.iter().any(|instance| instance.name == *engine);
    if slot.replacement == Replacement::InPlace && !exists {
        let left = older(cluster, slot).map(|record| &record.name);
        let left: Vec<&EngineName> = left.filter(|name| !may_be_unreachable(cluster, name)).collect();
        assert!(left.is_empty(), "{engine} is created beside {left:?}");
    }
}

/// An engine that serves is drained IN PLACE only if the slot has nothing newer, and only few in one plan.
pub fn judge_turn(cluster: &Cluster, plan: &Plan, slot: &Slot) {
    let Simulation { desired, .. } = &cluster.simulation;
    let slots: BTreeMap<&EngineName, &SlotKey> =
        desired.snapshot.engines.iter().map(|record| (&record.name, &record.slot)).collect();
    let in_place = plan.decisions().filter(|decision| {
        matches!(decision.action, Action::Drain { .. }) && decision.reason.starts_with("replaced in place by")
    });
    let drained = in_place.filter_map(|decision| slots.get(decision.engine.as_ref()?).copied());
    let of_link: BTreeSet<&SlotKey> = drained.filter(|key| key.link() == slot.key.link()).collect();
    assert!(of_link.len() <= desired.limits.surge as usize, "{of_link:?} are drained in place at once");
}

/// By link, the slots that IN PLACE has taken down: they are charged, and none of their engines serves or has registered since. Where an
/// older engine may be unreachable, the failure of its node has taken the slot down.
fn down(cluster: &Cluster) -> BTreeMap<Link, BTreeSet<SlotKey>> {
    let Simulation { desired, observed, .. } = &cluster.simulation;
    let snapshot = &desired.snapshot;
    let mut down: BTreeMap<Link, BTreeSet<SlotKey>> = BTreeMap::new();
    for slot in snapshot.slots.iter().filter(|slot| slot.replacement == Replacement::InPlace) {
        let serves = older(cluster, slot).any(|record| {
            let mut instances = observed.instances.iter().filter(|instance| instance.name == record.name);
            let is_drained = |uid: &String| observed.drains.iter().any(|drain| drain.uid.as_ref() == Some(uid));
            record.end_reason.is_none() && instances.any(|instance| instance.is_alive() && !is_drained(&instance.uid))
        });
        let is_lost = older(cluster, slot).any(|record| may_be_unreachable(cluster, &record.name));
        if !has_registered(cluster, slot) && !serves && !is_lost && charged(cluster, slot).next().is_some() {
            down.entry(slot.key.link()).or_default().insert(slot.key.clone());
        }
    }
    down
}

/// As far as a plan knows: an engine that was adopted is taken for one that has registered.
fn has_registered(cluster: &Cluster, slot: &Slot) -> bool {
    let current = slot.engine();
    cluster.simulation.observed.registrations.iter().any(|registration| registration.engine == current)
        || cluster.reservation(&current).is_some_and(|reservation| reservation.used_at_ms.is_some())
}

/// The charged reservations of the slot.
fn charged<'a>(cluster: &'a Cluster, slot: &Slot) -> impl Iterator<Item = &'a Reservation> {
    let lineage = lineage_of(&slot.key, slot.incarnation, Some(slot));
    let reservations = cluster.simulation.desired.snapshot.ledger.reservations().map(AsRef::as_ref);
    reservations.filter(move |reservation: &&Reservation| {
        reservation.state.is_charged() && reservation.request.lineage == lineage
    })
}

/// A plan takes down a slot that is served only if at most `surge` of its (tenant, pool, unit) are down then. Failures, and
/// slots that start, may be more.
pub fn judge_down(judge: &Judge, cluster: &Cluster, before: &Cluster) {
    let snapshot = &before.simulation.desired.snapshot;
    let is_served =
        |cluster: &Cluster, slot: &Slot| older(cluster, slot).any(|record| judge.stands_in(cluster, record));
    let mut taken: BTreeMap<Link, usize> = BTreeMap::new();
    for slot in snapshot.slots.iter().filter(|slot| slot.replacement == Replacement::InPlace) {
        if is_served(before, slot) && !is_served(cluster, slot) && !is_ready(before, &slot.engine()) {
            *taken.entry(slot.key.link()).or_default() += 1;
        }
    }
    let down = down(before);
    for (link, taken) in taken {
        let down = down.get(&link).map_or(0, BTreeSet::len) + taken;
        assert!(down <= cluster.simulation.desired.limits.surge as usize, "{down} slots of {link:?} are down at once");
    }
}

/// The charge of a slot whose successor waits for it is never returned: a plan leaves at least one.
pub fn judge_charges(cluster: &Cluster, before: &Cluster) {
    for slot in &before.simulation.desired.snapshot.slots {
        let stays = cluster.simulation.desired.snapshot.slots.iter().find(|each| each.key == slot.key);
        let Some(after) = stays.filter(|after| after.born == slot.born) else { continue };
        let waits =
            |cluster: &Cluster, slot: &Slot| slot.replacement == Replacement::InPlace && !has_registered(cluster, slot);
        if waits(before, slot) && waits(cluster, after) && charged(before, slot).next().is_some() {
            assert!(charged(cluster, after).next().is_some(), "the charge of {} was returned", slot.key);
        }
    }
}
