//! The judge of reservations: the invariants of the ledger over plans and their effects. I1 … I11 are those of the design.

use std::collections::BTreeSet;

use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::ledger::{Change, Ledger, Moment, Reservation, Role, State, lineage_of};
use model::resource::Component;
use model::slot::{Replacement, Slot};
use planner::{Action, Plan};

use super::Cluster;
use super::node_judge::may_be_unreachable;

/// I1, I6: what scopes hold is what their reservations are charged, and is not negative.
pub fn judge_sums(cluster: &Cluster) {
    let ledger = &cluster.simulation.desired.snapshot.ledger;
    let drifts = ledger.drifts().unwrap();
    assert!(drifts.is_empty(), "{}", drifts[0]);
    let mut held = ledger.scopes().flat_map(|(_, scope)| Component::ALL.map(|each| scope.counter.held.get(each)));
    assert!(held.all(|held| held >= 0));
}

/// What is held above each limit, by scope, counter and component.
fn excess(ledger: &Ledger) -> Vec<i64> {
    let mut all = Vec::new();
    for (_, scope) in ledger.scopes() {
        let mut counters = vec![scope.counter];
        if let Role::Pool(row) = scope.role {
            counters.extend([row.shared, row.unguaranteed]);
        }
        for counter in counters {
            all.extend(Component::ALL.map(|each| counter.left(each).map_or(0, |left| (-left).max(0))));
        }
    }
    all
}

/// I2: the ledger makes every change of the plan, and no grant raises anything further above its limit. I11: an engine is created
/// only with a reservation. Nothing is granted in a pool in which the plan adopts, and all others are counted.
pub fn judge_changes(cluster: &Cluster, plan: &Plan) {
    let snapshot = &cluster.simulation.desired.snapshot;
    let mut ledger = snapshot.ledger.clone();
    let at = Moment { now_ms: snapshot.now_ms, epoch: snapshot.master.epoch };
    let mut adopting = BTreeSet::new();
    for chain in &plan.chains {
        for (place, decision) in chain.decisions.iter().enumerate() {
            match &decision.action {
                Action::Ledger(change) => {
                    assert_eq!(place, 0, "a change of reservations leads its chain");
                    let before = excess(&ledger);
                    let reservation = ledger.apply(&change.change, at).unwrap_or_else(|refusal| {
                        panic!("{:?} is refused: {refusal:?}", change.change);
                    });
                    assert_eq!(reservation.request.scopes, change.scopes);
                    match &change.change {
                        Change::Adopt { .. } => drop(adopting.insert(change.scopes.pool_name().to_owned())),
                        Change::Reserve(_) | Change::Admit { .. } => {
                            assert!(reservation.state.is_charged());
                            assert!(!adopting.contains(change.scopes.pool_name()), "granted where engines are adopted");
                            let after = excess(&ledger);
                            assert!(before.iter().zip(&after).all(|(before, after)| after <= before));
                        }
                        _ => {}
                    }
                }
                Action::CreateEngine(_) => {
                    let engine = decision.engine.as_ref().unwrap();
                    let is_reserved = ledger.reservation(engine.as_str()).is_some_and(|held| held.state.is_charged());
                    assert!(is_reserved, "{engine} is created without a reservation");
                }
                _ => {}
            }
        }
    }
    let Some(queued) = &plan.queued else { return };
    for pool in snapshot.catalog.pools.keys() {
        assert_eq!(queued.contains_key(pool), !adopting.contains(pool.as_str()), "{pool}");
    }
}

/// Whether the charge stays without an engine, because the slot's current or next engine takes it over.
fn passes_on(cluster: &Cluster, held: &Reservation, slot: &Slot) -> bool {
    let current = slot.engine();
    let is_charged = cluster.reservation(&current).is_some_and(|reservation| reservation.state.is_charged());
    let is_own = *current.as_str() == **held.id();
    let is_in_lineage = held.request.lineage == lineage_of(&slot.key, slot.incarnation, Some(slot));
    match slot.replacement {
        Replacement::StandIn => false,
        Replacement::Force => is_in_lineage && !is_charged,
        Replacement::InPlace => is_in_lineage && (!is_charged || is_own && held.used_at_ms.is_none()),
    }
}

/// After two ticks. I4: every instance under a name that has not ended is charged, unless it may be unreachable and no slot wants it. I5: every reservation that is used has an
/// instance. And one that is not used yet belongs to an engine that exists or is being created.
pub fn judge_counted(cluster: &Cluster) {
    let (snapshot, observed) = (&cluster.simulation.desired.snapshot, &cluster.simulation.observed);
    let is_charged =
        |name: &EngineName| snapshot.ledger.reservation(name.as_str()).is_some_and(|held| held.state.is_charged());
    let current: BTreeSet<EngineName> = snapshot.slots.iter().map(|slot| slot.engine()).collect();
    for instance in observed.instances.iter().filter(|instance| instance.phase != Phase::Ended) {
        if !current.contains(&instance.name) && may_be_unreachable(cluster, &instance.name) {
            continue;
        }
        let has_row = snapshot.engines.iter().any(|row| row.name == instance.name && row.ended_at_ms.is_none());
        assert!(!has_row || is_charged(&instance.name), "{} is not charged", instance.name);
    }
    for held in snapshot.ledger.reservations().filter(|held| !held.request.holder.is_external()) {
        if snapshot.slots.iter().any(|slot| passes_on(cluster, held, slot)) {
            continue;
        }
        let is_there = observed.instances.iter().any(|instance| *instance.name.as_str() == **held.id());
        let is_current = current.iter().any(|name| *name.as_str() == **held.id());
        match held.state {
            State::Used => assert!(is_there, "{} is used without an instance", held.id()),
            State::Locked => assert!(is_there || is_current, "{} has no engine", held.id()),
            _ => {}
        }
    }
}
