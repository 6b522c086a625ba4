//! Proxies and sessions: what a proxy counts, and where a session is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::catalog::Catalog;
use model::demand::DemandKey;
use model::engine_name::EngineName;
use model::owner::{Owner, SharedBy};
use model::sharing::Sharer;
use model::slot::Link;

use crate::demand::DemandCount;

/// `proxy.demand_lease`.
const LEASE: Duration = Duration::from_secs(15);

/// A proxy process.
#[derive(Debug)]
pub struct Proxy {
    /// Another one for each process.
    pub process: u64,
    /// As it was last read.
    pub catalog: Arc<Catalog>,
    pub demand: DemandCount,
    /// Until then it sends sessions to engines of any owner, as a version does that knows no owners.
    pub ignores_owners_until: Duration,
}

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It waits for an engine, and is counted.
    Waiting,
    /// It has left the count to be opened on this engine, once this version is reported.
    Leaving(EngineName, u64),
    /// It is being opened on this engine.
    Opening(EngineName),
    Open(EngineName),
    /// It looks for an engine and is not counted.
    New,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    pub proxy: usize,
    pub asked: Asked,
    /// What it is counted under.
    pub key: DemandKey,
    /// Since when it has been waiting, if it was counted under this key before.
    pub waits_since: Option<Duration>,
    pub phase: Phase,
    /// The mean.
    pub open_for: Duration,
    pub patience: Duration,
    /// Whether its client connects again after it gave up.
    pub repeats: bool,
}

/// What a session asks for, and as whom.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Tenant, pool, unit and client application.
    pub key: DemandKey,
    pub sharer: Sharer,
}

impl Proxy {
    pub fn new(process: u64, catalog: Arc<Catalog>) -> Self {
        Self {
            process,
            catalog,
            demand: DemandCount::new(format!("proxy-{process}"), LEASE),
            ignores_owners_until: Duration::ZERO,
        }
    }
}

impl Asked {
    /// Whether the session may use engines of the link, if it may use those of their owner.
    pub fn matches(&self, link: &Link) -> bool {
        let key = &self.key;
        link.tenant == key.tenant
            && key.pool.as_ref().is_none_or(|pool| *pool == link.pool)
            && key.unit.as_ref().is_none_or(|unit| *unit == link.unit)
    }

    /// Whether the session may use an engine of the link that has this owner.
    pub fn may_use(&self, link: &Link, owner: Option<&Owner>, catalog: &Catalog) -> bool {
        let shared_by = catalog.unit(&link.unit).map(|unit| unit.shared_by).unwrap_or_default();
        self.matches(link) && shared_by.is_kind_of(owner) && self.sharer.is_owner(owner)
    }

    /// The key under which the session waits: with its owners by which units that match are shared.
    pub fn counted_under(&self, catalog: &Catalog) -> DemandKey {
        let pools = catalog.tenant(&self.key.tenant).into_iter().flat_map(|tenant| &tenant.pools);
        let pools = pools.filter(|pool| self.key.pool.as_ref().is_none_or(|asked| asked == *pool));
        let units = pools.filter_map(|pool| catalog.pool(pool)).flat_map(|pool| &pool.units);
        let units = units.filter(|unit| self.key.unit.as_ref().is_none_or(|asked| asked == *unit));
        let shared: BTreeSet<SharedBy> = units.filter_map(|unit| Some(catalog.unit(unit)?.shared_by)).collect();
        let Sharer { user, group, session } = self.sharer.clone();
        let has_user = shared.iter().any(|shared_by| shared_by.charges_users());
        DemandKey {
            user: has_user.then_some(user),
            group: shared.contains(&SharedBy::Group).then_some(group),
            session: shared.contains(&SharedBy::Session).then_some(session),
            ..self.key.clone()
        }
    }
}
