//! What the nodes of all pools have free: the observed capacity without what reserved engines need whose pods are not there yet.
//!
//! A pod that is on a node is part of what the node reports as used. An engine with a reservation and without an instance, or
//! whose instance is on no node yet, takes part of it soon; so do the executors of an engine that are on no node yet, up to what
//! it is charged. External programs run where no node is reserved for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::fit::{Nodes, Pods, Taken};
use model::ledger::{Ledger, Reservation};
use model::slot::Link;

use crate::desired::DesiredState;
use crate::engine_request;
use crate::inventory::sorted;
use crate::observed::{Instance, ObservedState};
use crate::succession::Successions;

/// The nodes, less what the charged reservations of `ledger` need of them. Without observed nodes they are unknown. Also what the
/// nodes have for each reservation that passes to a successor, or of which executors are on none yet.
pub(crate) fn of(
    desired: &DesiredState,
    observed: &ObservedState,
    ledger: &Ledger,
    successions: &Successions<'_>,
) -> (Nodes, BTreeMap<Arc<str>, Taken>) {
    let catalog = &desired.snapshot.catalog;
    let mut nodes = Nodes::of_pools(observed.capacity.clone(), |node| observed.nodes.get(node), catalog);
    if observed.capacity.is_empty() {
        return (nodes, BTreeMap::new());
    }
    let on_a_node: Vec<&Instance> =
        observed.instances.iter().map(AsRef::as_ref).filter(|instance: &&Instance| instance.node.is_some()).collect();
    let on_a_node = sorted(on_a_node, |instance| &instance.name);
    let mut freed: BTreeMap<Arc<str>, Taken> = BTreeMap::new();
    for reservation in successions.predecessors() {
        let id: &str = reservation.id();
        let end = on_a_node.partition_point(|instance| instance.name.as_str() <= id);
        if let Some(instance) = on_a_node[..end].last().filter(|instance| instance.name.as_str() == id) {
            freed.insert(reservation.id().clone(), taken_by(&nodes, instance, reservation));
        }
    }
    let mut pods_of: BTreeMap<Link, Option<Pods>> = BTreeMap::new();
    // Reservations are in the order of their ids.
    let mut on_a_node = on_a_node.into_iter().peekable();
    for reservation in ledger.reservations().filter(|reservation| reservation.state.is_charged()) {
        let id: &str = reservation.id();
        while on_a_node.next_if(|instance| instance.name.as_str() < id).is_some() {}
        let mut instance = None;
        while let Some(of_name) = on_a_node.next_if(|instance| instance.name.as_str() == id) {
            instance = Some(of_name);
        }
        if instance.is_some_and(|instance| has_all_pods(instance, reservation)) {
            continue;
        }
        let Some(link) = reservation.request.link() else { continue };
        let whole = Pods::whole(reservation.amounts.requests());
        let pods = pods_of.entry(link).or_insert_with_key(|link| pods(desired, link)).unwrap_or(whole);
        let observed = instance.and_then(|instance| instance.pods.as_deref());
        let pods = observed.map_or(Some(pods), |observed| pods.missing_executors(whole.driver, observed));
        let Some(pods) = pods else { continue };
        let taken = nodes.set_aside(reservation.request.scopes.pool_name(), &pods);
        if instance.is_some() || successions.has_kept(reservation.id()) {
            let there = || instance.map(|instance| taken_by(&nodes, instance, reservation)).unwrap_or_default();
            freed.entry(reservation.id().clone()).or_insert_with(there).extend(taken);
        }
    }
    (nodes, freed)
}

/// What the instance takes of its nodes. Without its pods all of it is assumed to be where it began.
fn taken_by(nodes: &Nodes, instance: &Instance, reservation: &Reservation) -> Taken {
    let Some(pods) = &instance.pods else {
        let whole = Pods::whole(reservation.amounts.requests()).driver;
        return nodes.used_by(instance.node.as_deref().map(|node| (node, whole)));
    };
    nodes.used_by(pods.on_nodes.iter().map(|(node, amount)| (node.as_str(), *amount)))
}

/// Whether no pod of an instance on a node is still to come, as far as it is known.
fn has_all_pods(instance: &Instance, reservation: &Reservation) -> bool {
    let Some(pods) = instance.pods.as_deref().filter(|_| instance.is_alive()) else { return true };
    Pods::whole(reservation.amounts.requests()).driver.fits(pods.requests())
}

fn pods(desired: &DesiredState, link: &Link) -> Option<Pods> {
    engine_request::charge(desired, &link.pool, &link.unit).map(|charge| Pods::from(&charge))
}
