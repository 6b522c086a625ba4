//! The check of idle engines: the master releases those that were started on demand.
//!
//! | code | condition |
//! | --- | --- |
//! | `EH2604` | an engine on demand has been idle for longer than its `IDLE_TIMEOUT`, nothing keeps it, and it is not released |
//!
//! A session that waits, a spare, `MIN_ENGINES` and the cooldown of the link keep an engine that is idle, and so they do here. The
//! usual cause of a finding is an agent that grants no release, or does not answer.

use std::collections::BTreeMap;
use std::time::Duration;

use model::clock::utc;
use model::configuration::Defaults;
use model::demand::ScalingGroup;
use model::engine_name::EngineName;
use model::observation::ObservedEngine;
use model::owner::Owner;
use model::slot::{Link, Origin, Slot};
use model::snapshot::Snapshot;
use model::span;

use super::checks::IDLE;
use super::facts::{Facts, elapsed};
use super::report::{Finding, Report, count};
use super::target::Target;

/// How long a release may take once it is due.
const RELEASE_PATIENCE: Duration = Duration::from_mins(2);

/// The settings that decide when an idle engine is released.
struct Rules {
    defaults: Defaults,
    cooldown: Duration,
    cancel_after: Duration,
}

pub fn check(target: &Target, facts: &Facts, report: &mut Report) {
    let desired = match &facts.desired {
        Ok(desired) => desired,
        Err(reason) => return report.skip(&[IDLE], reason),
    };
    let configuration = &target.configuration;
    let rules = Rules {
        defaults: Defaults { on_demand: configuration.engines.on_demand(), ..Defaults::default() },
        cooldown: configuration.master.cooldown.0,
        cancel_after: configuration.master.cancel_after.0,
    };
    let observed: Vec<&ObservedEngine> = desired.observed.iter().map(|(engine, _)| engine).collect();
    let (idle, findings) = findings(&rules, &desired.snapshot, &observed);
    let summary = match idle {
        0 => "no engine on demand is idle".to_owned(),
        1 => "1 engine on demand is idle".to_owned(),
        more => format!("{} on demand are idle", count(more, "engine")),
    };
    report.checked(IDLE, summary, findings);
}

/// An engine on demand without a session.
struct IdleEngine<'a> {
    slot: &'a Slot,
    name: EngineName,
    since_ms: i64,
}

/// The number of idle engines on demand, and those that should have been released.
fn findings(rules: &Rules, snapshot: &Snapshot, observed: &[&ObservedEngine]) -> (usize, Vec<Finding>) {
    let seen: BTreeMap<&EngineName, &ObservedEngine> = observed.iter().map(|engine| (&engine.name, *engine)).collect();
    let mut groups: BTreeMap<ScalingGroup, Vec<IdleEngine<'_>>> = BTreeMap::new();
    let (mut idle, mut in_use, mut slots_of) = (0, BTreeMap::new(), BTreeMap::<Link, usize>::new());
    for slot in &snapshot.slots {
        *slots_of.entry(slot.key.link()).or_default() += 1;
        let (name, group) = (slot.engine(), ScalingGroup::of(slot));
        let Some(engine) = seen.get(&name).filter(|engine| engine.registered && !engine.draining) else { continue };
        match engine.idle_since_ms {
            Some(since_ms) if slot.origin == Origin::Demand => {
                idle += 1;
                groups.entry(group).or_default().push(IdleEngine { slot, name, since_ms });
            }
            Some(_) => {}
            None => *in_use.entry(group).or_insert(0_usize) += 1,
        }
    }
    let mut findings = Vec::new();
    for (group, mut engines) in groups {
        let ScalingGroup { link, owner } = &group;
        let Some(unit) = snapshot.catalog.unit(&link.unit) else { continue };
        let waits =
            |demand: &model::demand::Demand| demand.is_current(snapshot.now_ms) && demand.key.tenant == link.tenant;
        if snapshot.demand.iter().any(waits) {
            continue;
        }
        let slots = slots_of.get(link).copied().unwrap_or_default();
        let timeout = match owner {
            // It ends with its session, or if that never came.
            Some(Owner::Session(_)) => Some(rules.cancel_after),
            _ => unit.idle_timeout(&rules.defaults).duration(),
        };
        let Some(timeout) = timeout else { continue };
        // One engine of a link at a time.
        let turns = u32::try_from(slots).unwrap_or(u32::MAX);
        let patience = timeout.saturating_add(RELEASE_PATIENCE).saturating_add(rules.cooldown.saturating_mul(turns));
        let spare = if in_use.contains_key(&group) { unit.spare_engines as usize } else { 0 };
        let above_minimum = slots.saturating_sub(unit.min_engines as usize);
        let released = engines.len().saturating_sub(spare).min(above_minimum);
        // The longest idle ones are released first.
        engines.sort_by_key(|engine| engine.since_ms);
        let due = engines.iter().take(released);
        let late = due.filter(|engine| elapsed(engine.since_ms, snapshot.now_ms) >= patience);
        findings.extend(late.map(|engine| finding(engine, timeout, snapshot.now_ms)));
    }
    (idle, findings)
}

fn finding(IdleEngine { slot, name, since_ms }: &IdleEngine<'_>, timeout: Duration, now_ms: i64) -> Finding {
    let idle = span::age(elapsed(*since_ms, now_ms));
    let after = match slot.owner {
        Some(Owner::Session(_)) => "its session has closed".to_owned(),
        _ => format!("IDLE_TIMEOUT is {}", span::print(timeout)),
    };
    Finding::warning(
        name.to_string(),
        format!("EH2604: it has been idle for {idle} (since {}) and is not released; {after}", utc(*since_ms)),
        format!(
            "see the logs of the master, which asks the engine's agent, and of that agent; at once: STOP ENGINE {} '{name}'",
            ddl::quoted_name(slot.key.pool.as_str())
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::catalog::{UnitSpec, Versioned};
    use model::change::UnitPatch;
    use model::demand::{Demand, DemandKey};
    use model::engine_state::Phase;
    use model::name::{PoolName, TenantName, UnitName};
    use model::number::{Generation, Incarnation};
    use model::on_demand::IdleTimeout;
    use model::slot::{Replacement, SlotKey};

    use super::*;

    const NOW_MS: i64 = 1_800_000_000_000;
    const MINUTE_MS: i64 = 60_000;
    const NONE: [usize; 0] = [];

    /// An engine, and for how long it has been idle, in minutes; `None` for one that is in use.
    type Given = (Origin, Option<Owner>, Option<i64>);

    fn idle(minutes: i64) -> Given {
        (Origin::Demand, None, Some(minutes))
    }

    fn tenant() -> TenantName {
        TenantName::new("t_1").unwrap()
    }

    /// The engines with findings, by their ordinals. The timeout is 5 min, the cooldown 1 min and `master.cancel_after` 3 min.
    fn late(change: impl Fn(&mut UnitSpec), engines: &[Given], demand: &[Demand]) -> Vec<usize> {
        let mut spec = UnitPatch::default().create(&Defaults::default()).unwrap();
        spec.idle_timeout = Some(IdleTimeout::After(Duration::from_mins(5)));
        change(&mut spec);
        let unit = UnitName::new("uc_1").unwrap();
        let mut snapshot = Snapshot { now_ms: NOW_MS, demand: demand.to_vec(), ..Snapshot::default() };
        snapshot.catalog.units.insert(unit.clone(), Versioned { spec, generation: Generation(1) });
        let mut observed = Vec::new();
        for (ordinal, (origin, owner, idle)) in engines.iter().enumerate() {
            let key = SlotKey {
                tenant: tenant(),
                pool: PoolName::new("rp_1").unwrap(),
                unit: unit.clone(),
                ordinal: u32::try_from(ordinal).unwrap(),
            };
            let slot = Slot {
                key,
                incarnation: Incarnation(1),
                origin: *origin,
                failures: 0,
                replacement: Replacement::StandIn,
                born: Incarnation(1),
                started_for: None,
                asked_at_ms: 0,
                owner: owner.clone(),
            };
            observed.push(ObservedEngine {
                name: slot.engine(),
                uid: Some("u".to_owned()),
                phase: Phase::Running,
                reason: None,
                node: None,
                address: None,
                registered: true,
                answered: true,
                draining: false,
                sessions: Some(u32::from(idle.is_none())),
                running: Some(0),
                idle_since_ms: idle.map(|minutes| NOW_MS - minutes * MINUTE_MS),
                stateful: Some(0),
                started_at_ms: None,
                log_tail: None,
                labels: std::sync::Arc::default(),
                details: std::sync::Arc::default(),
            });
            snapshot.slots.push(slot.into());
        }
        let rules = Rules {
            defaults: Defaults::default(),
            cooldown: Duration::from_mins(1),
            cancel_after: Duration::from_mins(3),
        };
        let (_, found) = findings(&rules, &snapshot, &observed.iter().collect::<Vec<_>>());
        let names: Vec<String> = found.into_iter().map(|finding| finding.subject).collect();
        let position = |name: &String| observed.iter().position(|engine| engine.name.as_str() == name).unwrap();
        names.iter().map(position).collect()
    }

    #[test]
    fn an_idle_engine_is_reported_once_its_release_is_late() {
        let plain = |_: &mut UnitSpec| ();
        // The timeout, the patience of 2 min and one cooldown.
        assert_eq!(late(plain, &[idle(7)], &[]), NONE);
        assert_eq!(late(plain, &[idle(8)], &[]), [0]);
        assert_eq!(late(plain, &[idle(8), idle(9)], &[]), [1], "they are released one at a time");
        assert_eq!(late(plain, &[(Origin::Minimum, None, Some(99)), (Origin::Start, None, Some(99))], &[]), NONE);
        assert_eq!(late(|unit| unit.idle_timeout = Some(IdleTimeout::Never), &[idle(99)], &[]), NONE);
    }

    #[test]
    fn what_keeps_an_idle_engine_is_no_finding() {
        let in_use = (Origin::Demand, None, None);
        let spare = |unit: &mut UnitSpec| unit.spare_engines = 1;
        assert_eq!(late(spare, &[in_use.clone(), idle(98), idle(99)], &[]), [2], "one of both is the spare");
        assert_eq!(late(spare, &[idle(99)], &[]), [0], "nothing is in use");
        assert_eq!(late(|unit| unit.min_engines = 2, &[idle(98), idle(97), idle(99)], &[]), [2]);
        let demand = |until_ms| Demand {
            key: DemandKey::of_tenant(tenant(), "default"),
            waiting: 1,
            since_ms: NOW_MS,
            until_ms,
        };
        assert_eq!(late(|_| (), &[idle(99)], &[demand(NOW_MS + 1)]), NONE);
        assert_eq!(late(|_| (), &[idle(99)], &[demand(NOW_MS)]), [0], "its lease has ended");
    }

    #[test]
    fn the_engine_of_a_session_ends_whatever_the_timeout() {
        let never = |unit: &mut UnitSpec| unit.idle_timeout = Some(IdleTimeout::Never);
        let of_session = |minutes| (Origin::Demand, Some(Owner::Session("s".to_owned())), Some(minutes));
        assert_eq!(late(never, &[of_session(5)], &[]), NONE);
        assert_eq!(late(never, &[of_session(6)], &[]), [0]);
        let of_user = (Origin::Demand, Some(Owner::User("ann".to_owned())), Some(99));
        assert_eq!(late(never, &[of_user], &[]), NONE);
    }
}
