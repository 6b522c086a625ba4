//! The check of demand: which sessions have waited for an engine for long, although none is on its way.
//!
//! | code | condition |
//! | --- | --- |
//! | `EH2601` | sessions have waited for 5 minutes, and the master's last plan starts no engine for some of them |
//!
//! Sessions whose engine is being started are left to the checks of engines. The master reports the others with the reason, and
//! proxies record how long they have waited, with a lease: what a dead proxy recorded is no demand.

use std::time::Duration;

use model::clock::utc;
use model::demand::{Demand, DemandKey};
use model::demand_report::UnmetDemand;
use model::owner::SharedBy;
use model::span;

use super::checks::DEMAND;
use super::facts::{Desired, Facts, elapsed};
use super::report::{Finding, Report, count};

/// How long sessions may wait while no engine is on its way.
const DEMAND_PATIENCE: Duration = Duration::from_mins(5);

pub fn check(facts: &Facts, report: &mut Report) {
    let desired = match &facts.desired {
        Ok(desired) => desired,
        Err(reason) => return report.skip(&[DEMAND], reason),
    };
    let Desired { snapshot, unmet, .. } = desired;
    let now_ms = snapshot.now_ms;
    let current: Vec<&Demand> = snapshot.demand.iter().filter(|demand| demand.is_current(now_ms)).collect();
    let sessions: u64 = current.iter().map(|demand| demand.waiting).sum();
    let summary = match usize::try_from(sessions).unwrap_or(usize::MAX) {
        0 => "no session waits for an engine".to_owned(),
        1 => "1 session waits for an engine".to_owned(),
        more => format!("{} wait for an engine", count(more, "session")),
    };
    let findings = current.into_iter().filter_map(|demand| finding(demand, unmet, now_ms));
    report.checked(DEMAND, summary, findings.collect());
}

fn finding(demand: &Demand, unmet: &[UnmetDemand], now_ms: i64) -> Option<Finding> {
    let waited = elapsed(demand.since_ms, now_ms);
    let unmet = unmet.iter().find(|unmet| unmet.key == demand.key).filter(|_| waited >= DEMAND_PATIENCE)?;
    // The report may be of a moment at which more sessions waited.
    let without_engine = unmet.sessions.min(demand.waiting);
    let what = format!(
        "EH2601: sessions have waited for {} (since {}), and no engine is started for {without_engine} of {}: {}",
        span::age(waited),
        utc(demand.since_ms),
        demand.waiting,
        unmet.reason
    );
    let mend = format!(
        "raise the limit that is named, or add capacity; SHOW DEMAND TENANT {} lists who waits, SHOW QUOTAS what is held",
        ddl::quoted_name(demand.key.tenant.as_str())
    );
    Some(Finding::warning(subject(&demand.key), what, mend).about_set_up())
}

/// What the sessions of the key have in common.
fn subject(key: &DemandKey) -> String {
    let DemandKey { tenant, pool, unit, engine_type, creator, .. } = key;
    let owners = [SharedBy::Group, SharedBy::User, SharedBy::Session];
    let owners = owners.into_iter().filter_map(|shared_by| key.owner(shared_by).flatten());
    let parts = [
        Some(format!("tenant \"{tenant}\"")),
        pool.as_ref().map(|pool| format!("resource pool \"{pool}\"")),
        unit.as_ref().map(|unit| format!("resource unit \"{unit}\"")),
        engine_type.as_ref().map(|engine_type| format!("engine type {engine_type}")),
    ];
    let parts = parts.into_iter().flatten().chain(owners.map(|owner| owner.to_string()));
    parts.chain([format!("creator \"{creator}\"")]).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::name::{TenantName, UnitName};
    use model::number::Generation;

    use super::*;

    const NOW_MS: i64 = 1_800_000_000_000;
    const PATIENCE_MS: i64 = 300_000;

    fn key(user: Option<&str>) -> DemandKey {
        let unit = UnitName::new("own").ok();
        DemandKey {
            unit,
            user: user.map(str::to_owned),
            ..DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "IDE")
        }
    }

    fn demand(user: Option<&str>, waited_ms: i64) -> Demand {
        Demand { key: key(user), waiting: 3, since_ms: NOW_MS - waited_ms, until_ms: NOW_MS + 1 }
    }

    fn unmet(user: Option<&str>, sessions: u64) -> UnmetDemand {
        let reason = "all engines are full, and MAX_ENGINES is 1".to_owned();
        UnmetDemand {
            key: key(user),
            sessions,
            reason,
            position: None,
            is_futile: false,
            generation: Generation::default(),
        }
    }

    #[test]
    fn unmet_demand_is_reported_once_it_has_lasted() {
        let of = |demand: &Demand, unmet: &[UnmetDemand]| finding(demand, unmet, NOW_MS);
        assert_eq!(of(&demand(None, PATIENCE_MS - 1), &[unmet(None, 2)]), None);
        assert_eq!(of(&demand(None, PATIENCE_MS), &[]), None, "an engine is on its way");
        assert_eq!(of(&demand(None, PATIENCE_MS), &[unmet(Some("ann"), 2)]), None, "the demand of another");
        let found = of(&demand(Some("ann"), PATIENCE_MS), &[unmet(None, 1), unmet(Some("ann"), 5)]).unwrap();
        assert_eq!(found.subject, "tenant \"t_1\", resource unit \"own\", user \"ann\", creator \"IDE\"");
        let expected = format!(
            "EH2601: sessions have waited for 5 min (since {}), and no engine is started for 3 of 3: all engines are full, and \
             MAX_ENGINES is 1",
            utc(NOW_MS - PATIENCE_MS)
        );
        assert_eq!(found.what, expected);
    }
}
