//! The scaling memory: recent demand and releases of one term.
//!
//! Engines that are being started are cancelled only once demand has been low for a while, because many clients connect again
//! after a timeout of their own; and after the release of an idle engine its link is left alone for a while. A master that has
//! lost the memory cancels later and decides nothing wrong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use model::demand::{Demand, ScalingGroup};
use model::name::TenantName;
use model::shared::Shared;
use model::slot::Link;
use planner::{Limits, ObservedScaling};

/// What a term remembers of demand. All times are on the clock that counts suspension.
#[derive(Debug)]
pub(crate) struct ScalingMemory {
    /// The beginning of the term.
    since: Duration,
    /// For each group the levels of its demand: each with the last time at which so many sessions waited, highest first.
    demand: BTreeMap<ScalingGroup, VecDeque<(u64, Duration)>>,
    /// When an idle engine of the link was last released.
    released: BTreeMap<Link, Duration>,
    /// The tenants of the sessions that waited in the last plan: they may be open now, which no load shows yet.
    waited: BTreeSet<TenantName>,
}

impl ScalingMemory {
    pub fn new(now: Duration) -> Self {
        Self { since: now, demand: BTreeMap::new(), released: BTreeMap::new(), waited: BTreeSet::new() }
    }

    /// The memory as the input of a plan; forgets what is too old.
    pub fn observed(&mut self, now: Duration, limits: &Limits) -> ObservedScaling {
        self.demand.retain(|_, levels| {
            levels.retain(|(_, last)| now < *last + limits.cancel_after);
            !levels.is_empty()
        });
        self.released.retain(|_, at| now < *at + limits.cooldown);
        let recent = self.demand.iter().filter_map(|(group, levels)| Some((group.clone(), levels.front()?.0)));
        ObservedScaling {
            uses: Shared::default(),
            recent_demand: (now >= self.since + limits.cancel_after).then(|| recent.collect()),
            released: self.released.keys().cloned().collect(),
        }
    }

    /// The tenants whose engines are polled before a plan.
    pub fn tenants(&self, demand: &[Demand]) -> BTreeSet<TenantName> {
        self.waited.iter().chain(demand.iter().map(|demand| &demand.key.tenant)).cloned().collect()
    }

    /// Remembers the demand that a plan assigned to each group, and the links of which it released idle engines.
    pub fn planned(&mut self, now: Duration, demand: &BTreeMap<ScalingGroup, u64>, released: &BTreeSet<Link>) {
        let waiting = demand.iter().filter(|(_, waiting)| **waiting > 0);
        self.waited = waiting.map(|(group, _)| group.link.tenant.clone()).collect();
        for (group, waiting) in demand.iter().filter(|(_, waiting)| **waiting > 0) {
            let levels = self.demand.entry(group.clone()).or_default();
            while levels.back().is_some_and(|(level, _)| level <= waiting) {
                levels.pop_back();
            }
            levels.push_back((*waiting, now));
        }
        self.released.extend(released.iter().map(|link| (link.clone(), now)));
    }

    /// When the next input of a plan changes because time passes, from now on.
    pub fn next_change(&self, now: Duration, limits: &Limits) -> Option<Duration> {
        let beginning = (!self.demand.is_empty()).then_some(self.since);
        let levels = self.demand.values().filter_map(VecDeque::front).map(|(_, last)| *last).chain(beginning);
        let levels = levels.map(|last| last + limits.cancel_after);
        let released = self.released.values().map(|at| *at + limits.cooldown);
        levels.chain(released).filter_map(|at| at.checked_sub(now)).filter(|left| !left.is_zero()).min()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::name::{PoolName, TenantName, UnitName};

    use super::*;

    fn group() -> ScalingGroup {
        let link = Link {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
        };
        ScalingGroup { link, owner: None }
    }

    fn limits() -> Limits {
        Limits { cancel_after: at(30), cooldown: at(20), ..Limits::default() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn recent(memory: &mut ScalingMemory, now: u64) -> Option<u64> {
        memory.observed(at(now), &limits()).recent_demand.map(|demand| demand.get(&group()).copied().unwrap_or(0))
    }

    #[test]
    fn the_recent_demand_is_the_highest_of_the_last_while() {
        let mut memory = ScalingMemory::new(at(0));
        let plan = |now: u64, waiting: u64, memory: &mut ScalingMemory| {
            memory.planned(at(now), &[(group(), waiting)].into(), &BTreeSet::new());
        };
        plan(10, 5, &mut memory);
        assert_eq!(recent(&mut memory, 20), None, "the term is too young");
        plan(31, 2, &mut memory);
        assert_eq!(recent(&mut memory, 39), Some(5));
        assert_eq!(recent(&mut memory, 40), Some(2), "5 sessions waited 30 s ago");
        plan(50, 2, &mut memory);
        assert_eq!(recent(&mut memory, 79), Some(2));
        assert_eq!(memory.next_change(at(79), &limits()), Some(at(1)));
        plan(79, 7, &mut memory);
        assert_eq!(recent(&mut memory, 108), Some(7));
        assert_eq!(recent(&mut memory, 109), Some(0));
        assert_eq!(memory.next_change(at(109), &limits()), None);
    }

    #[test]
    fn a_link_is_released_for_the_cooldown() {
        let mut memory = ScalingMemory::new(at(0));
        memory.planned(at(5), &BTreeMap::new(), &[group().link].into());
        assert_eq!(memory.observed(at(24), &limits()).released.len(), 1);
        assert_eq!(memory.next_change(at(24), &limits()), Some(at(1)));
        assert!(memory.observed(at(25), &limits()).released.is_empty());
    }
}
