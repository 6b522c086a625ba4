//! Idle engines in SHOW and DESCRIBE: since when no session is open, and what becomes of them.
//!
//! Only the master releases an engine, and only with the consent of its agent. Here is when that is due; a session that opens, a
//! spare that is needed and the cooldown of the link delay it.

use std::time::Duration;

use model::catalog::Catalog;
use model::clock::utc;
use model::configuration::Defaults;
use model::observation::ObservedEngine;
use model::slot::{Origin, Slot};
use model::span;

/// What becomes of an idle engine.
enum Outlook {
    /// It is released at this time, in milliseconds since 1970.
    Released(i64),
    /// It stays, for this reason.
    Kept(&'static str),
}

/// Why an engine is shown as idle: `idle for 2 min, released in 3 min`. `None` for one that is not idle, and for one that has
/// to stay until it has been idle for longer than its timeout.
pub(super) fn reason(
    engine: &ObservedEngine,
    slot: &Slot,
    catalog: &Catalog,
    defaults: &Defaults,
    now_ms: i64,
) -> Option<String> {
    let since_ms = idle_since_ms(engine)?;
    let unit = &catalog.unit(&slot.key.unit)?;
    let timeout = unit.idle_timeout(defaults).duration()?;
    let idle = format!("idle for {}", span::age(between(since_ms, now_ms)));
    Some(match outlook(slot, timeout, since_ms) {
        Outlook::Released(at_ms) if now_ms < at_ms => {
            format!("{idle}, released in {}", span::age(between(now_ms, at_ms)))
        }
        Outlook::Released(_) if unit.spare_engines > 0 => format!("{idle}; SPARE_ENGINES is {}", unit.spare_engines),
        Outlook::Released(_) => format!("{idle}, longer than IDLE_TIMEOUT {}", span::print(timeout)),
        Outlook::Kept(_) if between(since_ms, now_ms) < timeout => return None,
        Outlook::Kept(by) => format!("{idle}, kept by {by}"),
    })
}

/// The rows of DESCRIBE: since when it is idle, and when it is released, or why it is not.
pub(super) fn rows(
    row: &mut impl FnMut(&str, String),
    engine: &ObservedEngine,
    slot: Option<&Slot>,
    catalog: &Catalog,
    defaults: &Defaults,
) {
    let since_ms = idle_since_ms(engine);
    row("idle since", since_ms.map(utc).unwrap_or_default());
    let release = slot.and_then(|slot| {
        let Some(timeout) = catalog.unit(&slot.key.unit)?.idle_timeout(defaults).duration() else {
            return Some("never, by IDLE_TIMEOUT".to_owned());
        };
        Some(match outlook(slot, timeout, since_ms?) {
            Outlook::Released(at_ms) => utc(at_ms),
            Outlook::Kept(by) => format!("never, by {by}"),
        })
    });
    row("release at", release.unwrap_or_default());
}

/// Since when a ready engine has had no session.
fn idle_since_ms(engine: &ObservedEngine) -> Option<i64> {
    engine.idle_since_ms.filter(|_| engine.registered && !engine.draining)
}

fn outlook(slot: &Slot, timeout: Duration, since_ms: i64) -> Outlook {
    match slot.origin {
        Origin::Minimum => Outlook::Kept("MIN_ENGINES"),
        Origin::Start => Outlook::Kept("START ENGINE"),
        Origin::Demand => {
            Outlook::Released(since_ms.saturating_add(i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX)))
        }
    }
}

fn between(from_ms: i64, until_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(until_ms.saturating_sub(from_ms)).unwrap_or(0))
}
