//! Checks of limits: none is below what is held, except for a while after it was lowered; and what is promised exists.
//!
//! When less became left of a scope is known only if the database can be read; through a metadata agent a negative amount is
//! reported at once.

use std::collections::BTreeMap;
use std::time::Duration;

use model::capacity::{Amount, PoolCapacity};
use model::change::{excess_capacity, excess_guarantees};
use model::clock::utc;
use model::ledger::{Counter, Role, ScopeKey, ScopeKind};
use model::resource::Component;

use super::checks::LIMITS;
use super::facts::{Desired, elapsed};
use super::report::{Finding, Report, count};

/// How long less than nothing may be left of a limit: engines may be about to end.
const NEGATIVE_PATIENCE: Duration = Duration::from_mins(10);

/// Limits below what is held, and amounts that are promised and do not exist.
pub fn check(desired: &Desired, report: &mut Report) {
    let mut findings: Vec<Finding> = Vec::new();
    let snapshot = &desired.snapshot;
    for (key, scope) in snapshot.ledger.scopes() {
        let Some(since) = negative_since(desired.reductions.as_ref(), key, snapshot.now_ms) else { continue };
        findings.extend(negative(key, &scope.counter, "", &since).map(|what| below(key, what)));
        if let Role::Pool(pool) = &scope.role {
            findings.extend(negative(key, &pool.shared, "shared part: ", &since).map(|what| below(key, what)));
            findings
                .extend(negative(key, &pool.unguaranteed, "unguaranteed part: ", &since).map(|what| below(key, what)));
        }
    }
    let catalog = &snapshot.catalog;
    for (name, pool) in &catalog.pools {
        let nodes = desired.nodes.as_deref().filter(|nodes| !nodes.is_empty());
        let total: Option<Amount> = nodes.map(|nodes| PoolCapacity::new(catalog, name, &pool.spec, nodes).total());
        let subject = format!("resource pool \"{name}\"");
        findings.extend(excess_guarantees(catalog, name, &pool.spec, total).map(|what| {
            let mend = format!("lower guarantees of SHOW QUOTAS POOL {name}, or raise its capacity");
            Finding::warning(&subject, format!("EH2504: {what}"), mend).about_set_up()
        }));
        findings.extend(total.and_then(|total| excess_capacity(name, &pool.spec, total)).map(|what| {
            let mend = format!("ALTER RESOURCE POOL {name} CAPACITY NODES, or an amount that its nodes have");
            Finding::warning(&subject, format!("EH2505: {what}"), mend).about_set_up()
        }));
    }
    let limited = snapshot.ledger.scopes().filter(|(_, scope)| scope.is_limited()).count();
    report.checked(LIMITS, format!("{} limited", count(limited, "scope")), findings);
}

/// Since when an amount of the scope that is negative has been so, as the rest of a sentence; `None` if that may be shorter
/// than it may last.
fn negative_since(reductions: Option<&BTreeMap<ScopeKey, i64>>, key: &ScopeKey, now_ms: i64) -> Option<String> {
    match reductions.and_then(|reductions| reductions.get(key)) {
        Some(at_ms) if elapsed(*at_ms, now_ms) < NEGATIVE_PATIENCE => None,
        Some(at_ms) => Some(format!(" since {} or earlier", utc(*at_ms))),
        None => Some(String::new()),
    }
}

/// The components of which less than nothing is left.
fn negative(key: &ScopeKey, counter: &Counter, part: &str, since: &str) -> Option<String> {
    debug_assert!(part.is_empty() || key.kind == ScopeKind::Pool);
    let short = Component::ALL.into_iter().filter_map(|component| {
        let left = counter.left(component).filter(|left| *left < 0)?;
        Some(component.shown(left))
    });
    let short: Vec<String> = short.collect();
    (!short.is_empty())
        .then(|| format!("EH2502: {part}{} left{since}: nothing is granted, and nothing ends", short.join(", ")))
}

fn below(key: &ScopeKey, what: String) -> Finding {
    let mend = "wait until engines end, stop some, or raise the limit";
    Finding::warning(key.to_string(), what, mend).about_set_up()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_amount_is_reported_once_it_has_lasted() {
        let (now_ms, patience_ms) = (1_800_000_000_000, 600_000);
        let (alice, bob) = (ScopeKey::user("alice"), ScopeKey::user("bob"));
        let reductions = |at_ms| BTreeMap::from([(alice.clone(), at_ms)]);
        let of = |at_ms, key| negative_since(Some(&reductions(at_ms)), key, now_ms);
        assert_eq!(of(now_ms, &alice), None);
        assert_eq!(of(now_ms - patience_ms + 1, &alice), None);
        let since = format!(" since {} or earlier", utc(now_ms - patience_ms));
        assert_eq!(of(now_ms - patience_ms, &alice), Some(since));
        assert_eq!(of(now_ms, &bob).as_deref(), Some(""), "older than what is kept");
        assert_eq!(negative_since(None, &alice, now_ms).as_deref(), Some(""), "not known through an agent");
    }
}
