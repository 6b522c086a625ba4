//! Everything at once: the readings for a master, a proxy and the SHOW statements, each in one read-only transaction.

use std::collections::BTreeSet;

use model::alteration::{AlterationProgress, AlterationRecord};
use model::catalog::Catalog;
use model::engine_name::EngineName;
use model::name::TenantName;
use model::observation::{ClusterWarnings, ObservedNode};
use model::slot::Slot;
use model::snapshot::{EngineRecord, MasterRecord, ProxySnapshot, Snapshot};

use crate::backend::Mode;
use crate::error::Error;
use crate::read;
use crate::rows::{self, ObservedRow};
use crate::sql;
use crate::store::Store;
use crate::transaction::{Transaction, args};

/// The most alterations that one reading returns.
pub const MAX_ALTERATIONS: u32 = 10_000;

/// A snapshot together with what the master saw.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overview {
    /// Catalog, slots, engines, converging and stalled alterations, master, the database's clock.
    pub snapshot: Snapshot,
    /// What the master saw last.
    pub observed: Vec<ObservedRow>,
}

/// The catalog together with the nodes that the master saw.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeOverview {
    /// Tenants, pools and units.
    pub catalog: Catalog,
    /// The nodes; empty where the orchestrator knows none.
    pub nodes: Vec<ObservedNode>,
    /// The master's row.
    pub master: MasterRecord,
    /// The database's clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// One engine with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineDetail {
    /// Its row.
    pub record: EngineRecord,
    /// Its slot, if there is one at its place; the engine is the slot's present one if the incarnations are equal.
    pub slot: Option<Slot>,
    /// What the master saw last.
    pub seen: Option<ObservedRow>,
    /// The catalog.
    pub catalog: Catalog,
    /// The master's row.
    pub master: MasterRecord,
    /// The database's clock, in milliseconds since 1970.
    pub now_ms: i64,
}

impl Store {
    /// What a master plans from. The observation must have been made before.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let snapshot = snapshot(&mut tx).await;
        tx.leave(snapshot).await
    }

    /// What a proxy routes by; secret values are masked.
    pub async fn proxy_snapshot(&self) -> Result<ProxySnapshot, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = proxy_snapshot(&mut tx).await;
        let mut read = tx.leave(read).await?;
        for unit in read.catalog.units.values_mut() {
            unit.spec.properties = unit.spec.masked_properties(&self.rules().secret_keys);
        }
        Ok(read)
    }

    /// Everything that SHOW ENGINES needs; only the slots and engines of one tenant, if it is named.
    pub async fn overview(&self, tenant: Option<&TenantName>) -> Result<Overview, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let overview = overview(&mut tx).await;
        let mut overview = tx.leave(overview).await?;
        if let Some(tenant) = tenant {
            let Overview { snapshot, observed } = &mut overview;
            snapshot.slots.retain(|slot| slot.key.tenant == *tenant);
            snapshot.engines.retain(|engine| engine.slot.tenant == *tenant);
            let names: BTreeSet<&EngineName> = snapshot.engines.iter().map(|engine| &engine.name).collect();
            observed.retain(|seen| names.contains(&seen.engine.name));
        }
        Ok(overview)
    }

    /// Everything that DESCRIBE ENGINE needs; `None` if the name was never issued.
    pub async fn engine(&self, name: &EngineName) -> Result<Option<EngineDetail>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let detail = detail(&mut tx, name).await;
        tx.leave(detail).await
    }

    /// Everything that DESCRIBE RESOURCE POOL needs.
    pub async fn node_overview(&self) -> Result<NodeOverview, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let overview = node_overview(&mut tx).await;
        tx.leave(overview).await
    }

    /// Tenants, pools and units.
    pub async fn catalog(&self) -> Result<Catalog, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let catalog = read::catalog(&mut tx).await;
        tx.leave(catalog).await
    }

    /// The alterations that converge or are stalled, however old, and those that were decided last; newest first, at
    /// most `limit`, and at most [`MAX_ALTERATIONS`].
    pub async fn alterations(&self, limit: u32) -> Result<Vec<AlterationRecord>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let records = alterations(&mut tx, limit.min(MAX_ALTERATIONS)).await;
        tx.leave(records).await
    }
}

async fn snapshot(tx: &mut Transaction) -> Result<Snapshot, Error> {
    let (now_ms, catalog) = (tx.now_ms().await?, read::catalog(tx).await?);
    let slots: Vec<Slot> = read::slots(tx).await?.into_iter().map(|row| row.slot).collect();
    let mut engines = read::engines(tx).await?;
    read::failures_before(tx, &slots, &mut engines).await?;
    Ok(Snapshot {
        now_ms,
        catalog,
        slots,
        engines,
        alterations: read::open_alterations(tx).await?,
        master: read::master(tx).await?,
        namespaces: read::namespaces(tx).await?.into_iter().map(|(name, _)| name).collect(),
    })
}

async fn proxy_snapshot(tx: &mut Transaction) -> Result<ProxySnapshot, Error> {
    Ok(ProxySnapshot {
        catalog: read::catalog(tx).await?,
        slots: read::slots(tx).await?.into_iter().map(|row| row.slot).collect(),
        observed: read::observed(tx).await?.into_iter().map(|seen| seen.engine).collect(),
        // What is around the engines is nothing to route by, and may be long.
        master: MasterRecord { cluster_warnings: ClusterWarnings::default(), ..read::master(tx).await? },
        now_ms: tx.now_ms().await?,
    })
}

async fn overview(tx: &mut Transaction) -> Result<Overview, Error> {
    Ok(Overview { snapshot: snapshot(tx).await?, observed: read::observed(tx).await? })
}

async fn node_overview(tx: &mut Transaction) -> Result<NodeOverview, Error> {
    Ok(NodeOverview {
        catalog: read::catalog(tx).await?,
        nodes: read::nodes(tx).await?,
        master: read::master(tx).await?,
        now_ms: tx.now_ms().await?,
    })
}

async fn detail(tx: &mut Transaction, name: &EngineName) -> Result<Option<EngineDetail>, Error> {
    let Some(record) = read::engine(tx, name).await? else { return Ok(None) };
    let rows = read::slots_of(tx, &record.slot.link()).await?;
    let slot = rows.into_iter().map(|row| row.slot).find(|slot| slot.key == record.slot);
    let seen = tx.row(sql::OBSERVED_ONE, args![name.as_str()]).await?;
    let seen = seen.as_ref().map(rows::seen).transpose()?;
    let (catalog, master) = (read::catalog(tx).await?, read::master(tx).await?);
    Ok(Some(EngineDetail { record, slot, seen, catalog, master, now_ms: tx.now_ms().await? }))
}

async fn alterations(tx: &mut Transaction, limit: u32) -> Result<Vec<AlterationRecord>, Error> {
    let recent: Result<Vec<_>, _> =
        tx.rows(sql::ALTERATIONS, args![limit]).await?.iter().map(rows::alteration).collect();
    Ok(with_open(recent?, read::open_alterations(tx).await?, limit as usize))
}

/// Puts open alterations that are older than the recent ones at their end; where that is too much, the oldest of those
/// that are over make room.
fn with_open(recent: Vec<AlterationRecord>, open: Vec<AlterationRecord>, limit: usize) -> Vec<AlterationRecord> {
    let mut older: Vec<_> = open.into_iter().filter(|it| recent.iter().all(|other| other.id != it.id)).collect();
    older.sort_by_key(|it| std::cmp::Reverse((it.decided_at_ms, it.generation)));
    let mut listed = recent;
    listed.extend(older);
    while listed.len() > limit {
        let is_over = |it: &AlterationRecord| {
            !matches!(it.progress, Some(AlterationProgress::Converging | AlterationProgress::Stalled))
        };
        let oldest = listed.iter().rposition(is_over).unwrap_or(listed.len() - 1);
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
    fn an_open_alteration_is_listed_however_old_it_is() {
        let ids = |listed: Vec<AlterationRecord>| listed.iter().map(|it| it.id.to_string()).collect::<Vec<_>>();
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
        assert_eq!(listed(2), ["a-9", "a-2"], "where not even the open ones have room, the newest of them");
        assert_eq!(ids(with_open(recent.clone(), Vec::new(), 3)), ["a-9", "a-8", "a-7"]);
    }
}
