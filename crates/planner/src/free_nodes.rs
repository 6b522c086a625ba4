//! What the nodes of all pools have free: the observed capacity without what reserved engines need whose pods are not there yet.
//!
//! A pod that is on a node is part of what the node reports as used. An engine with a reservation and without an instance, or
//! whose instance is on no node yet, takes part of it soon. External programs run where no node is reserved for them.

use std::collections::{BTreeMap, HashSet};

use model::ledger::{Holder, Ledger, Reservation};
use model::name::{PoolName, TenantName};
use model::slot::{Link, SlotKey};

use crate::desired::DesiredState;
use crate::engine_request;
use crate::fit::{NodeAmount, Nodes, Pods};
use crate::observed::ObservedState;

/// The nodes, less what the charged reservations of `ledger` need of them. Without observed nodes they are unknown.
pub(crate) fn of(desired: &DesiredState, observed: &ObservedState, ledger: &Ledger) -> Nodes {
    let catalog = &desired.snapshot.catalog;
    let mut nodes = Nodes::of_pools(observed.capacity.clone(), |node| observed.nodes.get(node), catalog);
    if observed.capacity.is_empty() {
        return nodes;
    }
    let on_a_node = observed.instances.iter().filter(|instance| instance.node.is_some());
    let on_a_node: HashSet<&str> = on_a_node.map(|instance| instance.name.as_str()).collect();
    let mut pods_of: BTreeMap<Link, Option<Pods>> = BTreeMap::new();
    for reservation in ledger.reservations().filter(|reservation| reservation.state.is_charged()) {
        let Some(link) = link(reservation).filter(|_| !on_a_node.contains(&**reservation.id())) else { continue };
        let pods = pods_of.entry(link).or_insert_with_key(|link| pods(desired, link));
        occupy(&mut nodes, reservation.request.scopes.pool_name(), pods.unwrap_or_else(|| single(reservation)));
    }
    nodes
}

/// The tenant, pool and unit of an engine; `None` for an external program.
fn link(reservation: &Reservation) -> Option<Link> {
    let Holder::Engine { unit, .. } = &reservation.request.holder else { return None };
    let scopes = &reservation.request.scopes;
    let (tenant, pool) = (TenantName::new(scopes.tenant_name()).ok()?, PoolName::new(scopes.pool_name()).ok()?);
    Some(Link { tenant, pool, unit: unit.clone() })
}

fn pods(desired: &DesiredState, link: &Link) -> Option<Pods> {
    let Link { tenant, pool, unit } = link.clone();
    engine_request::charge(desired, &SlotKey { tenant, pool, unit, ordinal: 0 }).map(|charge| Pods::from(&charge))
}

/// One pod with all that is charged, if the pods are not known.
fn single(reservation: &Reservation) -> Pods {
    let requests = reservation.amounts.requests();
    Pods::single(NodeAmount {
        cpu_millis: requests.cpu_m.max(0).unsigned_abs(),
        memory_bytes: requests.memory.max(0).unsigned_abs(),
    })
}

/// Puts the pods on nodes of the pool; if not all find one, as many as do, because the others wait for a node.
fn occupy(nodes: &mut Nodes, pool: &str, pods: Pods) {
    if nodes.take(pool, &pods).is_ok() {
        return;
    }
    // The result is of no interest: a pod that fits on no node takes nothing.
    let _ = nodes.take(pool, &Pods::single(pods.driver));
    let (mut left, mut step) = (pods.executors, pods.executors);
    while left > 0 && step > 0 {
        let executors = step.min(left);
        match nodes.take(pool, &Pods { driver: NodeAmount::ZERO, executor: pods.executor, executors }) {
            Ok(_) => left -= executors,
            Err(_) => step /= 2,
        }
    }
}
