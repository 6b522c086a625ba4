//! The read models of masters, proxies and SHOW statements, each read in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use model::alteration::{AlterationProgress, AlterationRecord};
use model::catalog::Catalog;
use model::change::Rules;
use model::engine_name::EngineName;
use model::name::TenantName;
use model::observation::{ClusterWarnings, ObservedNode};
use model::shared::Shared;
use model::slot::Slot;
use model::snapshot::{EngineRecord, MasterRecord, ProxySnapshot, Snapshot};

use crate::backend::Mode;
use crate::demand;
use crate::error::Error;
use crate::ledger_views;
use crate::read;
use crate::rows::{self, ObservedRow};
use crate::sql;
use crate::store::Store;
use crate::transaction::{Transaction, args};

/// The maximum number of alterations in a result.
pub const MAX_ALTERATIONS: u32 = 10_000;

/// A snapshot with the observed engines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overview {
    pub snapshot: Snapshot,
    pub observed: Vec<ObservedRow>,
}

/// The catalog with the observed nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeOverview {
    pub catalog: Catalog,
    /// Empty if the orchestrator has no nodes.
    pub nodes: Vec<ObservedNode>,
    pub master: MasterRecord,
    /// The database's clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// One engine in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineDetail {
    pub record: EngineRecord,
    /// The slot with its key, if there is one; the engine is current if the incarnations are equal.
    pub slot: Option<Slot>,
    /// As the master last observed it.
    pub seen: Option<ObservedRow>,
    pub catalog: Catalog,
    pub master: MasterRecord,
    /// The database's clock, in milliseconds since 1970.
    pub now_ms: i64,
}

impl Store {
    /// The snapshot that a master plans from, with the secret values in clear that can be opened. Read it after the observation.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let snapshot = snapshot(&mut tx, self.rules()).await;
        tx.leave(snapshot).await
    }

    /// The snapshot for a proxy; secret values are masked.
    pub async fn proxy_snapshot(&self) -> Result<ProxySnapshot, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = proxy_snapshot(&mut tx).await;
        let mut read = tx.leave(read).await?;
        for unit in read.catalog.units.values_mut() {
            unit.spec.properties = unit.spec.masked_properties(&self.rules().secret_keys);
        }
        Ok(read)
    }

    /// For SHOW ENGINES; only the slots and engines of one tenant, if it is given.
    pub async fn overview(&self, tenant: Option<&TenantName>) -> Result<Overview, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let overview = overview(&mut tx, self.rules()).await;
        let mut overview = tx.leave(overview).await?;
        if let Some(tenant) = tenant {
            let Overview { snapshot, observed } = &mut overview;
            snapshot.slots.retain(|slot| slot.key.tenant == *tenant);
            snapshot.engines.retain(|engine| engine.slot.tenant == *tenant);
            let names: BTreeSet<&EngineName> = snapshot.engines.iter().map(|engine| &engine.name).collect();
            observed.retain(|row| names.contains(&row.engine.name));
        }
        Ok(overview)
    }

    /// For DESCRIBE ENGINE; `None` if the name was never issued.
    pub async fn engine(&self, name: &EngineName) -> Result<Option<EngineDetail>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let detail = detail(&mut tx, self.rules(), name).await;
        tx.leave(detail).await
    }

    /// For DESCRIBE RESOURCE POOL.
    pub async fn node_overview(&self) -> Result<NodeOverview, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let overview = node_overview(&mut tx).await;
        tx.leave(overview).await
    }

    /// All objects, with the secret values in clear that can be opened.
    pub async fn catalog(&self) -> Result<Catalog, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let catalog = read::opened_catalog(&mut tx, self.rules()).await;
        tx.leave(catalog).await
    }

    /// All converging and stalled alterations, and the most recent others, newest first; at most `limit` and at most
    /// [`MAX_ALTERATIONS`].
    pub async fn alterations(&self, limit: u32) -> Result<Vec<AlterationRecord>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let records = alterations(&mut tx, limit.min(MAX_ALTERATIONS)).await;
        tx.leave(records).await
    }
}

async fn snapshot(tx: &mut Transaction, rules: &Rules) -> Result<Snapshot, Error> {
    let (now_ms, catalog) = (tx.now_ms().await?, read::opened_catalog(tx, rules).await?);
    let slots = read::slots(tx).await?;
    let mut engines = read::engines(tx, &slots).await?;
    read::failures_before(tx, &slots, &mut engines).await?;
    let demand = demand::current(tx, now_ms).await?;
    let ledger = ledger_views::planned(tx, (&slots, &engines), &demand).await?;
    Ok(Snapshot {
        now_ms,
        catalog,
        slots: slots.into_iter().map(Shared::from).collect(),
        engines: engines.into_iter().map(Shared::from).collect(),
        alterations: read::open_alterations(tx).await?,
        master: read::master(tx).await?,
        namespaces: read::namespaces(tx).await?.into_iter().map(|(name, _)| name).collect(),
        ledger,
        demand,
    })
}

async fn proxy_snapshot(tx: &mut Transaction) -> Result<ProxySnapshot, Error> {
    Ok(ProxySnapshot {
        // No quota decides about a route, and there may be many.
        catalog: Catalog { quotas: BTreeMap::new(), ..read::catalog(tx).await? },
        slots: read::slots(tx).await?,
        observed: read::observed(tx).await?.into_iter().map(|row| row.engine).collect(),
        // Not needed for routing, and may be long.
        master: MasterRecord { cluster_warnings: ClusterWarnings::default(), ..read::master(tx).await? },
        unmet: demand::unmet(tx).await?,
        now_ms: tx.now_ms().await?,
    })
}

async fn overview(tx: &mut Transaction, rules: &Rules) -> Result<Overview, Error> {
    Ok(Overview { snapshot: snapshot(tx, rules).await?, observed: read::observed(tx).await? })
}

async fn node_overview(tx: &mut Transaction) -> Result<NodeOverview, Error> {
    Ok(NodeOverview {
        catalog: read::catalog(tx).await?,
        nodes: read::nodes(tx).await?,
        master: read::master(tx).await?,
        now_ms: tx.now_ms().await?,
    })
}

async fn detail(tx: &mut Transaction, rules: &Rules, name: &EngineName) -> Result<Option<EngineDetail>, Error> {
    let Some(record) = read::engine(tx, name).await? else { return Ok(None) };
    let slots = read::slots_of(tx, &record.slot.link()).await?;
    let slot = slots.into_iter().find(|slot| slot.key == record.slot);
    let row = tx.row(sql::OBSERVED_ONE, args![name.as_str()]).await?;
    let seen = row.as_ref().map(rows::observed).transpose()?;
    let (catalog, master) = (read::opened_catalog(tx, rules).await?, read::master(tx).await?);
    Ok(Some(EngineDetail { record, slot, seen, catalog, master, now_ms: tx.now_ms().await? }))
}

async fn alterations(tx: &mut Transaction, limit: u32) -> Result<Vec<AlterationRecord>, Error> {
    let recent: Result<Vec<_>, _> =
        tx.rows(sql::ALTERATIONS, args![limit]).await?.iter().map(rows::alteration).collect();
    Ok(with_open(recent?, read::open_alterations(tx).await?, limit as usize))
}

/// Appends open alterations that are older than the recent ones. Beyond the limit, the oldest finished ones are removed.
fn with_open(recent: Vec<AlterationRecord>, open: Vec<AlterationRecord>, limit: usize) -> Vec<AlterationRecord> {
    let mut older: Vec<_> = open.into_iter().filter(|open| recent.iter().all(|other| other.id != open.id)).collect();
    older.sort_by_key(|record| std::cmp::Reverse((record.decided_at_ms, record.generation)));
    let mut listed = recent;
    listed.extend(older);
    while listed.len() > limit {
        let is_finished = |record: &AlterationRecord| {
            !matches!(record.progress, Some(AlterationProgress::Converging | AlterationProgress::Stalled))
        };
        let oldest = listed.iter().rposition(is_finished).unwrap_or(listed.len() - 1);
        listed.remove(oldest);
    }
    listed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use model::alteration::{Outcome, RequestId};
    use model::number::Generation;

    use super::*;

    fn record(id: &str, decided_at_ms: i64, progress: AlterationProgress) -> AlterationRecord {
        AlterationRecord {
            id: RequestId::new(id).unwrap(),
            object: None,
            base_generation: Generation(0),
            generation: Generation(1),
            statement: String::new(),
            requested_by: "admin".to_owned(),
            requested_at_ms: decided_at_ms,
            outcome: Outcome::Committed,
            decided_by: "agent".to_owned(),
            decided_at_ms,
            progress: Some(progress),
            reason: None,
            finished_at_ms: None,
        }
    }

    #[test]
    fn open_alterations_are_listed_at_any_age() {
        let ids = |listed: Vec<AlterationRecord>| listed.iter().map(|record| record.id.to_string()).collect::<Vec<_>>();
        let recent = vec![
            record("a-9", 9, AlterationProgress::Converging),
            record("a-8", 8, AlterationProgress::Converged),
            record("a-7", 7, AlterationProgress::Superseded),
        ];
        let open = vec![
            record("a-1", 1, AlterationProgress::Stalled),
            record("a-2", 2, AlterationProgress::Stalled),
            record("a-9", 9, AlterationProgress::Converging),
        ];
        let listed = |limit: usize| ids(with_open(recent[..limit.min(3)].to_vec(), open.clone(), limit));
        assert_eq!(listed(5), ["a-9", "a-8", "a-7", "a-2", "a-1"]);
        assert_eq!(listed(4), ["a-9", "a-8", "a-2", "a-1"]);
        assert_eq!(listed(2), ["a-9", "a-2"], "if the open ones exceed the limit, the newest of them");
        assert_eq!(ids(with_open(recent.clone(), Vec::new(), 3)), ["a-9", "a-8", "a-7"]);
    }
}
