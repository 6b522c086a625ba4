//! The order in which the creates of a tick are started: in turns by tenant, and within a tenant by pool and unit.
//!
//! Few creates are at the orchestrator at once, and a create that hangs occupies its call for a whole effect deadline. In
//! the order of slots, a tenant with enough hanging creates would occupy all calls of every tick. So each tenant starts
//! one create before any tenant starts a second, and within one (tenant, pool, unit) the slot that was tried least
//! recently is first. The order decides nothing else: chains are independent of each other.

use std::collections::BTreeMap;
use std::time::Duration;

use model::engine_name::EngineName;
use model::name::{PoolName, TenantName, UnitName};
use planner::Chain;

/// Sorts creates. `last_tried` is when the create of an engine last failed, `None` if it was not tried or did not fail.
pub(crate) fn in_turns<'a>(
    creates: Vec<&'a Chain>,
    last_tried: impl Fn(&EngineName) -> Option<Duration>,
) -> Vec<&'a Chain> {
    let mut tenants: BTreeMap<Option<TenantName>, Units<'a>> = BTreeMap::new();
    for chain in creates {
        let first = chain.decisions.first();
        let tried = first.and_then(|decision| decision.engine.as_ref()).and_then(&last_tried);
        let slot = first.and_then(|decision| decision.slot.clone());
        let (tenant, unit) = slot.map(|slot| (slot.tenant, (slot.pool, slot.unit))).unzip();
        tenants.entry(tenant).or_default().entry(unit).or_default().push((tried, chain));
    }
    let of_tenants = tenants.into_values().map(|units| take_turns(units.into_values().map(oldest_first).collect()));
    take_turns(of_tenants.collect()).into_iter().map(|(_, chain)| chain).collect()
}

/// A chain with the time when it was last tried. `None` sorts before every time.
type Tried<'a> = (Option<Duration>, &'a Chain);
type Units<'a> = BTreeMap<Option<(PoolName, UnitName)>, Vec<Tried<'a>>>;

fn oldest_first(mut chains: Vec<Tried<'_>>) -> Vec<Tried<'_>> {
    chains.sort_by_key(|(tried, _)| *tried);
    chains
}

/// One chain of each group, then the next one of each; within a round the chain that was tried least recently is first.
fn take_turns(groups: Vec<Vec<Tried<'_>>>) -> Vec<Tried<'_>> {
    let ranked = groups.into_iter().flat_map(|group| group.into_iter().enumerate());
    let mut ranked: Vec<(usize, Tried<'_>)> = ranked.collect();
    ranked.sort_by_key(|(rank, (tried, _))| (*rank, *tried));
    ranked.into_iter().map(|(_, chain)| chain).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::number::Incarnation;
    use model::slot::SlotKey;
    use planner::{Action, Decision, Stage};

    use super::*;

    fn chain(tenant: &str, pool: &str, ordinal: u32) -> Chain {
        let slot = SlotKey {
            tenant: TenantName::new(tenant).unwrap(),
            pool: PoolName::new(pool).unwrap(),
            unit: UnitName::new("u").unwrap(),
            ordinal,
        };
        let decision = Decision {
            engine: Some(slot.engine(Incarnation(1))),
            slot: Some(slot),
            reason: String::new(),
            action: Action::CreatePermit { uid: None, sessions: None, owner: None },
        };
        Chain { stage: Stage::Create, decisions: vec![decision] }
    }

    #[test]
    fn tenants_take_turns_and_the_least_recently_tried_is_first() {
        let stage = [
            chain("a", "p", 0),
            chain("a", "p", 1),
            chain("a", "p", 2),
            chain("a", "q", 0),
            chain("b", "p", 0),
            chain("b", "p", 1),
        ];
        let order = |tried: &[(usize, u64)]| {
            let at = |engine: &EngineName| {
                let found = tried.iter().find(|(at, _)| stage[*at].decisions[0].engine.as_ref() == Some(engine));
                found.map(|(_, seconds)| Duration::from_secs(*seconds))
            };
            let chains = in_turns(stage.iter().collect(), at);
            let keys = chains.iter().map(|chain| chain.decisions[0].slot.as_ref().unwrap());
            keys.map(|key| format!("{}{}{}", key.tenant, key.pool, key.ordinal)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(&[]), "ap0 bp0 aq0 bp1 ap1 ap2");
        assert_eq!(order(&[(0, 9), (1, 5)]), "ap2 bp0 aq0 bp1 ap1 ap0");
        // A tenant whose creates all failed is behind one that was not tried.
        assert_eq!(order(&[(0, 1), (1, 2), (2, 3), (3, 4)]), "bp0 ap0 bp1 aq0 ap1 ap2");
    }
}
