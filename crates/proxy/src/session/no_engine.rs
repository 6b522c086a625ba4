//! Why a session has no engine: one is on its way, or nothing is to be waited for.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use model::error::{ErrorKind, UserError};
use model::slot::Link;
use model::snapshot::ProxySnapshot;

use super::binding::NotBound;
use crate::Gateway;
use crate::routes::Wanted;

/// Why no engine fits: one is on its way, or there is nothing to wait for.
pub(super) async fn why_none(gateway: &Arc<Gateway>, wanted: &Wanted) -> NotBound {
    if let Some(reason) = on_its_way(&gateway.catalog.reading().snapshot, wanted) {
        return wait(gateway, reason);
    }
    gateway.catalog.refresh().await;
    let snapshot = gateway.catalog.reading().snapshot;
    match on_its_way(&snapshot, wanted) {
        Some(reason) => wait(gateway, reason),
        None => NotBound::Refused(nothing_to_wait_for(&snapshot, wanted)),
    }
}

/// It may be there already, unseen.
fn wait(gateway: &Gateway, reason: String) -> NotBound {
    NotBound::Wait(match gateway.zookeeper.waiting_hint() {
        Some(hint) => format!("{reason}; {hint}"),
        None => reason,
    })
}

/// Whether an engine of the link is one that the session could get.
pub(super) fn fits(link: &Link, wanted: &Wanted) -> bool {
    link.tenant == wanted.tenant
        && wanted.pool.as_ref().is_none_or(|pool| link.pool == *pool)
        && wanted.unit.as_ref().is_none_or(|unit| link.unit == *unit)
}

fn on_its_way(snapshot: &ProxySnapshot, wanted: &Wanted) -> Option<String> {
    let slot = snapshot.slots.iter().find(|slot| fits(&slot.key.link(), wanted))?;
    let name = slot.engine();
    let observed = snapshot.observed.iter().find(|it| it.name == name);
    let reason = observed.and_then(|it| it.reason.clone()).unwrap_or_else(|| {
        observed.map_or_else(|| "it is not created yet".to_owned(), |it| format!("it is {}", it.phase))
    });
    Some(format!("waiting for engine \"{name}\": {reason}"))
}

fn nothing_to_wait_for(snapshot: &ProxySnapshot, wanted: &Wanted) -> UserError {
    let links = snapshot.catalog.links();
    let offered = links.iter().find(|link| fits(link, wanted));
    let mut place = String::new();
    if let Some(pool) = &wanted.pool {
        let _ = write!(place, " in resource pool \"{pool}\"");
    }
    if let Some(unit) = &wanted.unit {
        let _ = write!(place, " of resource unit \"{unit}\"");
    }
    let error = UserError::new(ErrorKind::WrongState, format!("tenant \"{}\" has no engine{place}", wanted.tenant));
    match offered {
        Some(link) => error.hint(format!(
            "START ENGINE {} {} {}",
            ddl::quoted_name(link.tenant.as_str()),
            ddl::quoted_name(link.pool.as_str()),
            ddl::quoted_name(link.unit.as_str())
        )),
        None => error.detail("the tenant uses no resource pool that offers a resource unit like that").hint(format!(
            "an admin gives it one with ALTER TENANT {} RESOURCE_POOL_LIST (…)",
            ddl::quoted_name(wanted.tenant.as_str())
        )),
    }
}

/// The error of a statement that waited for an engine until its deadline.
pub(super) fn waited_too_long(waited: Duration, reason: &str) -> UserError {
    UserError::new(ErrorKind::Timeout, "no engine was ready in time")
        .detail(format!("after {} s: {reason}", waited.as_secs()))
        .hint("SHOW ENGINES says what each engine waits for")
}
