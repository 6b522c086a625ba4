//! Engines on failed nodes: when an engine that is still listed counts as unreachable, and its slot is given another one at once.
//!
//! The orchestrator lists the pods of a dead machine as running for minutes. Two pieces of evidence are needed instead: the engine
//! is not registered, and its node is not ready, or no longer exists, for `node_grace`. One of them has no effect: an agent can
//! lose its session, and the program of a node that reports it as ready can restart. For an engine of which a missing registration
//! says nothing, because it never registered or may not, the node alone counts after [`NODE_ALONE`].
//!
//! An unreachable engine serves no session, and nothing waits for it: it takes no turn, and once its slot wants another engine or is
//! gone, its charge ends although it is listed. If its node returns it is adopted like every engine that runs without a
//! reservation. Its name is unique and it holds nothing exclusively, so it is harmless at any time.
//!
//! If more than half of the nodes with engines, and at least [`MIN_FAILED`], are not ready, the reason is hardly the nodes: then the
//! rule is suspended, and every engine is treated as if its node were ready, except that no charge comes back that has ended.
//! Afterwards the time of every node starts again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::engine_state::Phase;
use model::failed_node;
use model::slot::{Slot, SlotKey};

use crate::coarse_age::coarse_age;
use crate::inventory::{Engine, Inventory};
use crate::limits::{Limits, NODE_ALONE};
use crate::observed::{Instance, ObservedState, UnreadyNode};

/// The rule is suspended only if so many nodes with engines are not ready.
const MIN_FAILED: usize = 3;

/// The rules of the design.
struct Design;

impl Evidence for Design {}

/// What is evidence. The methods that are provided are those of the design; the tests replace one at a time and show that each
/// replacement is detected.
trait Evidence: Sync {
    /// Whether the registration says that the engine serves.
    fn is_registered(&self, engine: &Engine<'_>) -> bool {
        engine.registration.is_some()
    }

    /// Since when the node is not ready. `None`: it is ready, or unknown.
    fn unready(&self, observed: &ObservedState, node: &str) -> Option<UnreadyNode> {
        observed.unready.get(node).copied()
    }

    /// Of two nodes of an engine, the one that counts.
    fn later(&self, one: UnreadyNode, other: UnreadyNode) -> bool {
        one.lasted < other.lasted
    }

    /// Whether a missing registration says that the engine does not serve. Without a permit, or below one that was not read, it says
    /// nothing.
    fn was_registered(&self, engine: &Engine<'_>) -> bool {
        engine.permit.is_some_and(|permit| permit.answered && permit.sessions.is_some())
    }

    /// How long the node must not have been ready.
    fn needed(&self, was_registered: bool, grace: Duration) -> Duration {
        if was_registered { grace } else { grace.max(NODE_ALONE) }
    }

    /// How long it has not been, as far as that counts. Nodes that failed together return one after the other.
    fn counted(&self, unready: UnreadyNode, since_suspended: Option<Duration>) -> Duration {
        unready.lasted.min(since_suspended.unwrap_or(Duration::MAX))
    }

    /// Whether every registration was read that there may be.
    fn is_complete(&self, observed: &ObservedState) -> bool {
        observed.registry_complete
    }

    /// Whether so many nodes have failed that those with engines are counted.
    fn may_suspend(&self, failed: usize) -> bool {
        failed >= MIN_FAILED
    }

    /// Whether so many of the nodes with engines have failed that the reason is hardly the nodes.
    fn suspends(&self, failed: usize, with_engines: usize) -> bool {
        failed >= MIN_FAILED && failed * 2 > with_engines
    }

    /// Whether an engine that runs, or still may, is on the node of the instance.
    fn counts(&self, instance: &Instance) -> bool {
        instance.phase != Phase::Ended
    }
}

/// The evidence of failed nodes.
pub(crate) struct FailedNodes<'a> {
    observed: &'a ObservedState,
    grace: Duration,
    suspended: Option<String>,
    rules: &'static dyn Evidence,
}

/// An engine without a registration on a node that is not ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnFailedNode<'a> {
    node: &'a str,
    unready: UnreadyNode,
    /// The time until the engine is unreachable; `None` while the rule does not apply.
    pub left: Option<Duration>,
}

impl<'a> FailedNodes<'a> {
    pub fn new(observed: &'a ObservedState, limits: &Limits) -> Self {
        Self::by(&Design, observed, limits)
    }

    fn by(rules: &'static dyn Evidence, observed: &'a ObservedState, limits: &Limits) -> Self {
        Self { observed, grace: limits.node_grace, suspended: suspended(rules, observed), rules }
    }

    /// Why no engine is replaced because of its node, although some nodes are not ready.
    pub fn suspended(&self) -> Option<&String> {
        self.suspended.as_ref()
    }

    /// `None` if the engine is registered or has no instance, or if a node of its instances is ready or unknown.
    pub fn assess(&self, engine: &Engine<'_>) -> Option<OnFailedNode<'a>> {
        let Self { observed, rules, .. } = self;
        if observed.unready.is_empty() || rules.is_registered(engine) {
            return None;
        }
        let mut latest: Option<(&'a str, UnreadyNode)> = None;
        for instance in engine.instances() {
            let node = instance.node.as_deref()?;
            let unready = rules.unready(observed, node)?;
            let node = observed.unready.get_key_value(node).map_or("", |(node, _)| node.as_str());
            if latest.is_none_or(|(_, other)| rules.later(unready, other)) {
                latest = Some((node, unready));
            }
        }
        let (node, unready) = latest?;
        let needed = rules.needed(rules.was_registered(engine), self.grace);
        let applies = self.suspended.is_none() && rules.is_complete(observed);
        let counted = rules.counted(unready, observed.since_suspended);
        Some(OnFailedNode { node, unready, left: applies.then(|| needed.saturating_sub(counted)) })
    }

    /// Whether the engine is unreachable.
    pub fn is_unreachable(&self, engine: &Engine<'_>) -> bool {
        self.assess(engine).is_some_and(|on| on.is_unreachable())
    }

    /// The slots with an older engine that is unreachable. One of an earlier row with the same key was not replaced by the slot.
    pub fn slots<'i>(&self, inventory: &'i Inventory<'_>) -> BTreeSet<&'i SlotKey> {
        if self.observed.unready.is_empty() {
            return BTreeSet::new();
        }
        let rows: BTreeMap<&SlotKey, &Slot> = inventory.slots.iter().map(|(slot, _)| (&slot.key, *slot)).collect();
        let older =
            inventory.engines.iter().filter(|engine| engine.current_of.is_none() && self.is_unreachable(engine));
        let owned = older.filter(|engine| {
            engine.record.is_some_and(|record| rows.get(&record.slot).is_some_and(|slot| slot.owns(record.incarnation)))
        });
        owned.filter_map(|engine| engine.slot.as_deref()).collect()
    }

    /// Whether an engine without a charge stays without one although it is listed: it is unreachable, or was when its charge ended,
    /// and its node has not returned since. A new master measures the time of the node from the start.
    pub fn stays_uncharged(&self, engine: &Engine<'_>) -> bool {
        let has_ended = engine.reservation.is_some_and(|reservation| reservation.state.is_ended());
        engine.current_of.is_none() && self.assess(engine).is_some_and(|on| on.is_unreachable() || has_ended)
    }
}

impl OnFailedNode<'_> {
    pub fn is_unreachable(&self) -> bool {
        self.left.is_some_and(|left| left.is_zero())
    }

    /// Why the engine's slot is given another engine.
    pub fn reason(&self) -> String {
        if self.unready.is_absent {
            return format!("node \"{}\" no longer exists", self.node);
        }
        format!("node \"{}\" is not ready", self.node)
    }

    /// The state of the node for SHOW, with the time that it has lasted.
    pub fn shown(&self) -> String {
        failed_node::shown(self.node, self.unready.is_absent, &coarse_age(self.unready.lasted))
    }
}

/// Whether so many nodes have failed that no engine is replaced because of its node.
pub fn suspends_failed_nodes(observed: &ObservedState) -> bool {
    suspended(&Design, observed).is_some()
}

/// Why the rule is suspended. The time does not count: nodes that fail together are reported one after the other.
fn suspended(rules: &dyn Evidence, observed: &ObservedState) -> Option<String> {
    if !rules.may_suspend(observed.unready.len()) {
        return None;
    }
    let running = observed.instances.iter().filter(|instance| rules.counts(instance));
    let nodes: BTreeSet<&String> = running.filter_map(|instance| instance.node.as_ref()).collect();
    let failed = nodes.iter().filter(|node| observed.unready.contains_key(**node)).count();
    rules.suspends(failed, nodes.len()).then(|| {
        format!(
            "{failed} of {} nodes with engines are not ready: no engine is replaced because of its node",
            nodes.len()
        )
    })
}

#[cfg(test)]
mod tests;
