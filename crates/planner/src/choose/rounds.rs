//! One assignment: the keys in order, each with what the earlier ones have left.

use std::collections::BTreeMap;

use model::demand::{Demand, DemandKey, ScalingGroup};
use model::name::{PoolName, TenantName};
use model::owner::Owner;

use super::assignment::{AssignedKey, Assignment, Futility, GroupDemand, Label, Obstacle, Outcome, Rest, Seated};
use super::links::{GroupState, LinkState, PoolCondition, PoolState};
use super::rules::{Candidate, Rules};

/// Assigns demand by the rules.
pub(super) fn choose(
    rules: &dyn Rules,
    demand: &[Demand],
    links: &[LinkState],
    pools: &BTreeMap<PoolName, PoolState>,
    now_ms: i64,
) -> Assignment {
    let mut keys = keys(rules, demand, now_ms);
    rules.order(&mut keys);
    let mut round = Round::new(rules, links, pools, now_ms);
    let mut groups: BTreeMap<ScalingGroup, GroupDemand> = BTreeMap::new();
    for key in &mut keys {
        round.assign(key);
        let rest = key.rest.as_ref().and_then(|rest| match &rest.outcome {
            Outcome::Starts(group) | Outcome::Waits(group, _) => Some((group, rest.sessions)),
            Outcome::WaitsForSeat(_) | Outcome::Futile(_) | Outcome::OutdatedKey => None,
        });
        for (group, sessions) in key.seated.iter().map(|seated| (&seated.group, seated.sessions)).chain(rest) {
            let none = GroupDemand { waiting: 0, since_ms: key.since_ms };
            let of_group = groups.entry(group.clone()).or_insert(none);
            of_group.waiting = of_group.waiting.saturating_add(sessions);
            of_group.since_ms = of_group.since_ms.min(key.since_ms);
        }
    }
    Assignment { groups, keys }
}

/// The keys of the demand whose lease has not ended, each with the sessions of all proxies.
fn keys(rules: &dyn Rules, demand: &[Demand], now_ms: i64) -> Vec<AssignedKey> {
    let mut keys: BTreeMap<&DemandKey, (u64, i64)> = BTreeMap::new();
    for demand in demand.iter().filter(|demand| rules.is_current(demand, now_ms)) {
        let (waiting, since_ms) = keys.entry(&demand.key).or_insert((0, demand.since_ms));
        *waiting = waiting.saturating_add(demand.waiting);
        *since_ms = (*since_ms).min(demand.since_ms);
    }
    let assigned = |(key, (waiting, since_ms)): (&DemandKey, (u64, i64))| AssignedKey {
        key: key.clone(),
        waiting,
        since_ms,
        seated: Vec::new(),
        rest: None,
    };
    keys.into_iter().map(assigned).collect()
}

/// The seats of a group that no key has taken yet.
#[derive(Debug, Clone, Copy)]
struct SeatsLeft {
    free: u64,
    pending: u64,
    /// Of engines that are started for earlier keys.
    planned: u64,
}

/// A link that matches a key, with the owner of the engines that serve it.
struct Match {
    /// The index of the link.
    at: usize,
    owner: Option<Owner>,
}

struct Round<'a> {
    rules: &'a dyn Rules,
    links: &'a [LinkState],
    now_ms: i64,
    /// The indexes of the links of each tenant, in list order.
    of_tenant: BTreeMap<&'a TenantName, Vec<usize>>,
    /// With what earlier keys start.
    pools: BTreeMap<PoolName, PoolState>,
    /// For each tenant on each pool, with those that earlier keys start.
    pending: BTreeMap<(&'a TenantName, &'a PoolName), u64>,
    /// For each link.
    below_max: Vec<u64>,
    /// For each link.
    admissible: Vec<u64>,
    /// Of the groups that a key has looked at.
    seats: BTreeMap<(usize, Option<Owner>), SeatsLeft>,
}

impl<'a> Round<'a> {
    fn new(rules: &'a dyn Rules, links: &'a [LinkState], pools: &BTreeMap<PoolName, PoolState>, now_ms: i64) -> Self {
        let mut of_tenant: BTreeMap<&TenantName, Vec<usize>> = BTreeMap::new();
        let mut pending: BTreeMap<(&TenantName, &PoolName), u64> = BTreeMap::new();
        for (at, state) in links.iter().enumerate() {
            of_tenant.entry(&state.link.tenant).or_default().push(at);
            let of_pool = pending.entry((&state.link.tenant, &state.link.pool)).or_default();
            *of_pool = state.groups.values().fold(*of_pool, |sum, group| sum.saturating_add(group.pending));
        }
        Self {
            rules,
            links,
            now_ms,
            of_tenant,
            pools: pools.clone(),
            pending,
            below_max: links.iter().map(|link| link.below_max).collect(),
            admissible: links.iter().map(|link| link.admissible).collect(),
            seats: BTreeMap::new(),
        }
    }

    fn assign(&mut self, key: &mut AssignedKey) {
        let matches = match self.matching(&key.key) {
            Ok(matches) => matches,
            Err(label) => {
                let outcome = Outcome::Futile(Futility::NoMatch(label));
                key.rest = Some(Rest { sessions: key.waiting, outcome });
                return;
            }
        };
        let left = self.take_seats(key, &matches);
        if left > 0 {
            key.rest = Some(Rest { sessions: left, outcome: self.start(&matches, left) });
        }
    }

    /// The links whose labels match, in list order, where the key has the owner of their engines; else the first label that
    /// excludes all.
    fn matching(&self, key: &DemandKey) -> Result<Vec<Match>, Label> {
        let mut links: Vec<usize> = self.of_tenant.get(&key.tenant).cloned().unwrap_or_default();
        for label in [Label::Tenant, Label::Pool, Label::Unit, Label::EngineType] {
            links.retain(|at| has_label(&self.links[*at], key, label));
            if links.is_empty() {
                return Err(label);
            }
        }
        let owned = |at: usize| Some(Match { at, owner: key.owner(self.links[at].shared_by)? });
        Ok(links.into_iter().filter_map(owned).collect())
    }

    /// Takes free seats of all links, then pending ones, then those of engines that earlier keys start. The number of sessions
    /// that are left.
    fn take_seats(&mut self, key: &mut AssignedKey, matches: &[Match]) -> u64 {
        let mut left = key.waiting;
        let kinds: [fn(&mut SeatsLeft) -> &mut u64; 3] =
            [|seats| &mut seats.free, |seats| &mut seats.pending, |seats| &mut seats.planned];
        for kind in kinds {
            for of in matches.iter().take(self.rules.looks_at(matches.len())) {
                if left == 0 {
                    return 0;
                }
                let taken = self.rules.take(kind(self.seats_of(of)), left);
                if taken > 0 {
                    key.seated.push(Seated { group: self.group(of), sessions: taken });
                    left = left.saturating_sub(taken);
                }
            }
        }
        left
    }

    fn seats_of(&mut self, of: &Match) -> &mut SeatsLeft {
        let (rules, link, state) = (self.rules, &self.links[of.at], self.state(of));
        self.seats.entry((of.at, of.owner.clone())).or_insert_with(|| SeatsLeft {
            free: state.free_seats,
            pending: rules.pending_seats(link, state.pending),
            planned: 0,
        })
    }

    fn state(&self, of: &Match) -> GroupState {
        self.links[of.at].groups.get(&of.owner).copied().unwrap_or_default()
    }

    fn group(&self, of: &Match) -> ScalingGroup {
        ScalingGroup { link: self.links[of.at].link.clone(), owner: of.owner.clone() }
    }

    /// Chooses the link that starts engines for the sessions.
    fn start(&mut self, matches: &[Match], sessions: u64) -> Outcome {
        let Some(first) = matches.first() else { return Outcome::OutdatedKey };
        let startable = match self.startable(matches, first) {
            Ok(startable) => startable,
            Err(reason) => {
                let states = || matches.iter().map(|of| self.state(of));
                let has_engine = states().any(|state| state.serving > 0 || state.pending > 0);
                return if has_engine { Outcome::WaitsForSeat(reason) } else { Outcome::Futile(reason) };
            }
        };
        let ranked = startable.into_iter().filter_map(|of| Some((of, self.candidate(of)?)));
        let best = ranked.min_by_key(|(_, candidate)| self.rules.rank(candidate, self.now_ms));
        let Some((of, candidate)) = best else { return Outcome::OutdatedKey };
        let obstacle = match &candidate {
            Candidate { is_backing_off: true, .. } => Some(Obstacle::BackOff),
            Candidate { below_max: 0, .. } => Some(Obstacle::AtMaximum),
            candidate if !self.rules.is_admitted(candidate) => Some(Obstacle::ShortOfCapacity),
            _ => None,
        };
        if let Some(obstacle) = obstacle {
            return Outcome::Waits(self.group(of), obstacle);
        }
        self.plan(of, sessions);
        Outcome::Starts(self.group(of))
    }

    /// The matches on which an engine can be started at some time; else why there is none.
    fn startable<'m>(&self, matches: &'m [Match], first: &'m Match) -> Result<Vec<&'m Match>, Futility> {
        let condition = |of: &Match| {
            let pool = self.pools.get(&self.links[of.at].link.pool);
            pool.map_or(PoolCondition::NoNodes, |pool| pool.condition)
        };
        let open: Vec<&Match> = matches.iter().filter(|of| condition(of) == PoolCondition::Open).collect();
        if open.is_empty() {
            return Err(match condition(first) {
                PoolCondition::NotRegistered => Futility::PoolIsNotRegistered(self.group(first)),
                PoolCondition::NoNodes | PoolCondition::Open => Futility::PoolHasNoNodes(self.group(first)),
            });
        }
        let on_demand = self.filter(&open, |link| self.rules.starts_on_demand(link), Futility::NotOnDemand)?;
        let fitting = self.filter(&on_demand, |link| self.rules.can_ever_fit(link), Futility::NeverFits)?;
        let starting: Vec<&Match> = fitting.iter().copied().filter(|of| !self.state(of).is_refused).collect();
        match fitting.first() {
            Some(first) if starting.is_empty() => Err(Futility::StartFails(self.group(first))),
            _ => Ok(starting),
        }
    }

    /// The matches whose link passes; else the reason, with the first of them.
    fn filter<'m>(
        &self,
        matches: &[&'m Match],
        passes: impl Fn(&LinkState) -> bool,
        reason: fn(ScalingGroup) -> Futility,
    ) -> Result<Vec<&'m Match>, Futility> {
        let passing: Vec<&Match> = matches.iter().copied().filter(|of| passes(&self.links[of.at])).collect();
        match matches.first() {
            Some(first) if passing.is_empty() => Err(reason(self.group(first))),
            _ => Ok(passing),
        }
    }

    fn candidate(&self, of: &Match) -> Option<Candidate<'_>> {
        let link = &self.links[of.at];
        Some(Candidate {
            link,
            pool: self.pools.get(&link.link.pool)?,
            below_max: self.below_max[of.at],
            admissible: self.admissible[of.at],
            is_backing_off: self.state(of).is_backing_off,
            pending: self.pending.get(&(&link.link.tenant, &link.link.pool)).copied().unwrap_or_default(),
            position: of.at,
        })
    }

    /// Counts the engines that are started for the sessions, for the keys that follow.
    fn plan(&mut self, of: &Match, sessions: u64) {
        let link = &self.links[of.at];
        let engines = self.rules.engines_for(sessions, link).min(self.below_max[of.at]).min(self.admissible[of.at]);
        self.below_max[of.at] -= engines;
        self.admissible[of.at] -= engines;
        let pending = self.pending.entry((&link.link.tenant, &link.link.pool)).or_default();
        *pending = pending.saturating_add(engines);
        if let Some(pool) = self.pools.get_mut(&link.link.pool) {
            pool.hold(&link.engine, engines);
        }
        let left = self.rules.left_by_starts(engines, sessions, link);
        self.seats_of(of).planned = left;
    }
}

/// Whether the link, which is one of the tenant's, has what the key specifies.
fn has_label(link: &LinkState, key: &DemandKey, label: Label) -> bool {
    match label {
        Label::Tenant => true,
        Label::Pool => key.pool.as_ref().is_none_or(|pool| *pool == link.link.pool),
        Label::Unit => key.unit.as_ref().is_none_or(|unit| *unit == link.link.unit),
        Label::EngineType => key.engine_type.as_ref().is_none_or(|label| link.has_type(label)),
    }
}
