//! What a master records and publishes: uids and ends of engines; and for SHOW the engines and nodes as it observes them.
//!
//! Facts and rows are written separately. [`Store::record`] writes what later plans rely on. [`Store::publish`] writes what
//! people read, and that the tick has ended. Both reject a deposed master. A publication is also rejected if it arrives late
//! within its epoch, after another agent has written it and later ones: it contains only changes, so an old row would stay
//! until its engine changes again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::engine_name::EngineName;
use model::millis;
use model::number::Epoch;
use model::observation::{
    CreatedEngine, EndedEngine, EngineFacts, MAX_LOG_TAIL_BYTES, MAX_NODES, MAX_REASON_BYTES, ObservedEngine,
    ObservedNode, Publication, Recorded,
};
use model::text::{cut, tail};

use crate::backend::Mode;
use crate::batch::keys;
use crate::commit::MAX_WORD_BYTES;
use crate::demand;
use crate::error::Error;
use crate::master::{POINTS, lock};
use crate::read;
use crate::rows::{self, to_json};
use crate::slot_batch;
use crate::sql;
use crate::store::Store;
use crate::transaction::{Arg, Done, Transaction, args};

/// The maximum number of engines in each list of a report, except the list of rows to keep.
pub const MAX_REPORT: usize = 20_000;
/// The maximum number of rows that a complete report may keep. A longer one is written as an incomplete one: rows of engines that
/// are gone then stay until a shorter report.
pub const MAX_KEPT: usize = 100_000;
/// The retention of a namespace after its last instance was observed.
pub const NAMESPACE_KEEP: Duration = Duration::from_hours(24);

impl Store {
    /// Records uids and ends in one transaction.
    pub async fn record(&self, epoch: Epoch, facts: &EngineFacts) -> Result<Recorded, Error> {
        limit_engines([facts.created.len(), facts.ended.len() + facts.served.len()])?;
        let mut tx = self.begin(Mode::Write).await?;
        let result = write_facts(&mut tx, epoch, facts).await;
        tx.end(POINTS, result).await
    }

    /// Publishes rows in one transaction and, unless they are a part, that the master's tick has ended now.
    pub async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), Error> {
        limit_engines([publication.engines.len(), publication.gone.len()])?;
        if publication.nodes.as_ref().is_some_and(|nodes| nodes.len() > MAX_NODES) {
            return Err(Error::Broken(format!("a report has more than {MAX_NODES} nodes").into()));
        }
        let mut tx = self.begin(Mode::Write).await?;
        let result = write_rows(&mut tx, epoch, publication).await;
        tx.end(POINTS, result).await
    }
}

fn limit_engines(counts: [usize; 2]) -> Result<(), Error> {
    if counts.into_iter().any(|count| count > MAX_REPORT) {
        return Err(Error::Broken(format!("a report has more than {MAX_REPORT} engines").into()));
    }
    Ok(())
}

async fn write_facts(tx: &mut Transaction, epoch: Epoch, facts: &EngineFacts) -> Result<Done<Recorded>, Error> {
    lock(tx, epoch).await?;
    let now_ms = tx.now_ms().await?;
    // Commits write rows of `engine` too. The lock is taken before the first read: a transaction that reads first may be
    // rejected for a change in between.
    tx.lock_catalog().await?;
    let mut recorded = Recorded::default();
    record_uids(tx, &facts.created, now_ms, &mut recorded).await?;
    record_served(tx, &facts.served).await?;
    record_ends(tx, &facts.ended, now_ms, &mut recorded).await?;
    Ok(Done::Write(recorded))
}

async fn write_rows(tx: &mut Transaction, epoch: Epoch, publication: &Publication) -> Result<Done<()>, Error> {
    lock(tx, epoch).await?;
    let now_ms = tx.now_ms().await?;
    if publication.part {
        check_same_tick(tx, publication).await?;
    } else {
        end_tick(tx, publication, now_ms).await?;
    }
    if let Some(cluster_warnings) = &publication.cluster_warnings {
        tx.execute(sql::MASTER_CLUSTER_WARNINGS, args![to_json(cluster_warnings)?]).await?;
    }
    if let Some(in_use) = &publication.namespaces_in_use {
        let changes = namespace_changes(tx, in_use, now_ms).await?;
        if !changes.is_empty() {
            tx.lock_catalog().await?;
        }
        write_namespaces(tx, &changes, now_ms).await?;
    }
    write_engines(tx, &publication.engines, now_ms, epoch).await?;
    tx.execute_in(sql::OBSERVED_DELETE, &[], keys(publication.gone.iter().map(EngineName::as_str))).await?;
    if publication.complete && publication.kept.len() > MAX_KEPT {
        tracing::warn!(
            kept = publication.kept.len(),
            limit = MAX_KEPT,
            "report too long to delete the rows of other engines"
        );
    } else if publication.complete {
        delete_others(tx, publication).await?;
    }
    if let Some(unmet) = &publication.unmet {
        demand::report_unmet(tx, unmet).await?;
    }
    if let Some(nodes) = &publication.nodes {
        write_nodes(&mut *tx, nodes, now_ms, epoch).await?;
    }
    Ok(Done::Write(()))
}

/// Replaces the table by these nodes. Writes only rows that differ: there may be thousands.
async fn write_nodes(tx: &mut Transaction, nodes: &[ObservedNode], now_ms: i64, epoch: Epoch) -> Result<(), Error> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for row in tx.rows(sql::NODES_OBSERVED, args![]).await? {
        known.insert(rows::text(&row, "name")?, rows::text(&row, "facts")?);
    }
    let (mut written, mut replaced) = (Vec::new(), Vec::new());
    for node in nodes {
        let facts = to_json(node)?;
        match known.remove(&node.name) {
            Some(stored) if stored == facts => continue,
            Some(_) => replaced.push(node.name.as_str()),
            None => {}
        }
        written.push(args![node.name.as_str(), facts, now_ms, epoch]);
    }
    replaced.extend(known.keys().map(String::as_str));
    tx.execute_in(sql::NODES_DELETE, &[], keys(replaced)).await?;
    tx.insert_all(sql::NODES_INSERT, written).await
}

/// Rejects a part of a tick that has ended since. The master's row is locked.
async fn check_same_tick(tx: &mut Transaction, publication: &Publication) -> Result<(), Error> {
    let Some(before_ms) = publication.after_tick_ms else { return Ok(()) };
    if read::master(tx).await?.last_tick_ms != before_ms {
        return Err(Error::Conflict("this tick's report, or a later one's, was written already".to_owned()));
    }
    Ok(())
}

/// Writes the end of a tick, unless another one has ended since the previous one.
async fn end_tick(tx: &mut Transaction, publication: &Publication, now_ms: i64) -> Result<(), Error> {
    let waits_for = publication.waits_for.as_deref();
    let Some(before_ms) = publication.after_tick_ms else {
        tx.execute(sql::MASTER_TICK, args![now_ms, waits_for]).await?;
        return Ok(());
    };
    // Two ticks within one millisecond count as two.
    let end_ms = if now_ms == before_ms { now_ms + 1 } else { now_ms };
    if tx.execute(sql::MASTER_TICK_AFTER, args![end_ms, waits_for, before_ms]).await? == 0 {
        return Err(Error::Conflict("this tick's report, or a later one's, was written already".to_owned()));
    }
    Ok(())
}

/// Records uids behind the catalog's lock: each engine's once.
async fn record_uids(
    tx: &mut Transaction,
    created: &[CreatedEngine],
    now_ms: i64,
    to: &mut Recorded,
) -> Result<(), Error> {
    let mut uids = uids(tx, keys(created.iter().map(|created| created.name.as_str()))).await?;
    let mut first = Vec::new();
    for created in created {
        match uids.get_mut(created.name.as_str()) {
            None => to.unknown.push(created.name.clone()),
            Some(Some(uid)) if *uid != created.uid => to.other_uid.push((created.name.clone(), uid.clone())),
            Some(Some(_)) => {}
            Some(unknown) => {
                *unknown = Some(created.uid.clone());
                first.push(args![created.name.as_str(), created.uid.as_str(), created.config.as_str()]);
            }
        }
    }
    tx.update_each(&sql::ENGINES_MADE, &[Arg::from(now_ms)], first).await.map(drop)
}

/// The recorded uid of each name that was ever issued.
async fn uids(tx: &mut Transaction, names: Vec<Arg>) -> Result<BTreeMap<String, Option<String>>, Error> {
    let rows = tx.rows_in(sql::ENGINES_UIDS, names).await?;
    rows.iter().map(|row| Ok((rows::text(row, "name")?, rows::text_or_none(row, "uid")?))).collect()
}

/// Why its slot gave up each engine that was ever issued, if it did.
async fn given_up(tx: &mut Transaction, names: Vec<Arg>) -> Result<BTreeMap<String, Option<String>>, Error> {
    let rows = tx.rows_in(sql::ENGINES_UIDS, names).await?;
    rows.iter().map(|row| Ok((rows::text(row, "name")?, rows::text_or_none(row, "ended_reason")?))).collect()
}

/// Records how many sessions were opened, before the ends: a statement for each number.
async fn record_served(tx: &mut Transaction, served: &[(EngineName, u64)]) -> Result<(), Error> {
    let mut names: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    for (name, count) in served {
        names.entry(i64::try_from(*count).unwrap_or(i64::MAX)).or_default().push(name.as_str());
    }
    for (count, names) in names {
        tx.execute_in(sql::ENGINES_SERVED, &[Arg::from(count)], keys(names)).await?;
    }
    Ok(())
}

async fn record_ends(tx: &mut Transaction, ended: &[EndedEngine], now_ms: i64, to: &mut Recorded) -> Result<(), Error> {
    let issued = given_up(tx, keys(ended.iter().map(|ended| ended.name.as_str()))).await?;
    let mut first = BTreeMap::new();
    let mut classes = BTreeMap::new();
    for ended in ended {
        let Some(given_up) = issued.get(ended.name.as_str()) else {
            to.unknown.push(ended.name.clone());
            continue;
        };
        let log = ended.log_tail.as_deref().map(|text| tail(text, MAX_LOG_TAIL_BYTES));
        let reason = given_up.as_deref().unwrap_or(&ended.reason);
        let row = args![ended.name.as_str(), cut(reason, MAX_REASON_BYTES), log];
        first.entry(ended.name.as_str()).or_insert(row);
        classes.entry(ended.name.as_str()).or_insert((ended.class, &ended.name));
    }
    let classes = classes.into_values().filter_map(|(class, name)| Some((class?, name.clone())));
    slot_batch::write_words(tx, classes).await?;
    tx.execute_in(sql::ENGINES_CHARGED, &[], keys(first.keys().copied())).await?;
    tx.update_each(&sql::ENGINES_ENDED, &[Arg::from(now_ms)], first.into_values().collect()).await.map(drop)
}

/// Replaces the rows of the observed engines; of two rows with one name the last counts.
async fn write_engines(
    tx: &mut Transaction,
    engines: &[ObservedEngine],
    now_ms: i64,
    epoch: Epoch,
) -> Result<(), Error> {
    let engines: BTreeMap<&str, &ObservedEngine> =
        engines.iter().map(|engine| (engine.name.as_str(), engine)).collect();
    let mut written = Vec::new();
    for (name, engine) in &engines {
        written.push(args![
            *name,
            engine.uid.as_deref(),
            engine.phase.as_str(),
            engine.reason.as_deref().map(|text| cut(text, MAX_REASON_BYTES)),
            engine.node.as_deref().map(|text| cut(text, MAX_WORD_BYTES)),
            engine.address.as_deref().map(|text| cut(text, MAX_WORD_BYTES)),
            engine.registered,
            engine.draining,
            engine.sessions,
            engine.running,
            engine.idle_since_ms,
            engine.stateful,
            engine.started_at_ms,
            engine.log_tail.as_deref().map(|text| tail(text, MAX_LOG_TAIL_BYTES)),
            to_json(&engine.labels)?,
            to_json(&engine.details)?,
            engine.answered,
            now_ms,
            epoch,
        ]);
    }
    tx.execute_in(sql::OBSERVED_DELETE, &[], keys(engines.into_keys())).await?;
    tx.insert_all(sql::OBSERVED_INSERT, written).await
}

async fn delete_others(tx: &mut Transaction, publication: &Publication) -> Result<(), Error> {
    let seen = publication.engines.iter().map(|engine| &engine.name).chain(&publication.kept);
    let seen: BTreeSet<&str> = seen.map(EngineName::as_str).collect();
    let mut others = Vec::new();
    for row in tx.rows(sql::OBSERVED_NAMES, args![]).await? {
        others.push(rows::text(&row, "name")?);
    }
    others.retain(|name| !seen.contains(name.as_str()));
    tx.execute_in(sql::OBSERVED_DELETE, &[], keys(others)).await.map(drop)
}

#[derive(Debug, Default)]
struct NamespaceChanges {
    /// In use: remembered, and not retired.
    remember: Vec<String>,
    /// Neither in use nor wanted by an engine that has not ended: retired from now on.
    retire: Vec<String>,
    /// Retired a day ago or longer: forgotten.
    forget: Vec<String>,
}

impl NamespaceChanges {
    fn is_empty(&self) -> bool {
        self.remember.is_empty() && self.retire.is_empty() && self.forget.is_empty()
    }
}

async fn namespace_changes(tx: &mut Transaction, in_use: &[String], now_ms: i64) -> Result<NamespaceChanges, Error> {
    let known = read::namespaces(tx).await?;
    let mut kept: BTreeSet<String> = in_use.iter().cloned().collect();
    let mut changes = NamespaceChanges {
        remember: kept.iter().filter(|name| !known.contains(&((*name).clone(), None))).cloned().collect(),
        ..NamespaceChanges::default()
    };
    for row in tx.rows(sql::NAMESPACES_WANTED, args![]).await? {
        kept.insert(rows::text(&row, "namespace")?);
    }
    let before_ms = forgotten_before_ms(now_ms);
    for (name, retired) in known.into_iter().filter(|(name, _)| !kept.contains(name)) {
        match retired {
            None => changes.retire.push(name),
            Some(at_ms) if at_ms <= before_ms => changes.forget.push(name),
            Some(_) => {}
        }
    }
    Ok(changes)
}

/// Namespaces that were retired until then are forgotten.
fn forgotten_before_ms(now_ms: i64) -> i64 {
    now_ms.saturating_sub(millis::from_duration(NAMESPACE_KEEP))
}

async fn write_namespaces(tx: &mut Transaction, changes: &NamespaceChanges, now_ms: i64) -> Result<(), Error> {
    slot_batch::remember_namespaces(tx, changes.remember.iter().map(String::as_str).collect()).await?;
    tx.execute_in(sql::NAMESPACES_RETIRE, &[Arg::from(now_ms)], keys(changes.retire.iter().map(String::as_str)))
        .await?;
    let before = Arg::from(forgotten_before_ms(now_ms));
    tx.execute_in(sql::NAMESPACES_FORGET, &[before], keys(changes.forget.iter().map(String::as_str))).await?;
    Ok(())
}
