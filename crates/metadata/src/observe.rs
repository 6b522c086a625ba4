//! What a master reports: engines and nodes as it sees them, uids, ends, namespaces, the time of its tick.
//!
//! A report of a deposed master is refused as a whole. So is one that comes late within its epoch, because the agent that
//! it was sent to first stood still and another one has written it, and those after it, since: a report holds only what
//! changed, so what a late one says of an engine would stand there until that engine changes again.

use std::collections::{BTreeMap, BTreeSet};

use model::engine_name::EngineName;
use model::number::Epoch;
use model::observation::{
    EndedEngine, MAX_LOG_TAIL_BYTES, MAX_NODES, MAX_REASON_BYTES, MadeEngine, ObservedEngine, ObservedNode, Recorded,
    Report, cut, tail,
};

use crate::backend::Mode;
use crate::batch::keys;
use crate::commit::MAX_WORD_BYTES;
use crate::error::Error;
use crate::master::{POINTS, lock};
use crate::read;
use crate::rows::{self, to_json};
use crate::slot_batch;
use crate::sql;
use crate::store::Store;
use crate::transaction::{Arg, Done, Transaction, args};

/// The most engines that one report may hold, in each of its lists but the one of rows that are kept.
pub const MAX_REPORT: usize = 20_000;
/// The most rows that a complete report may keep. With more it is written as if it were not complete: rows of engines that
/// are gone may then stay until a shorter one comes, and everything else is written.
pub const MAX_KEPT: usize = 100_000;
/// A namespace without pods is forgotten no sooner than this after its last pod was seen, in milliseconds.
pub const NAMESPACE_KEEP_MS: i64 = 24 * 3600 * 1000;

impl Store {
    /// Writes a report in one transaction, and that the master's tick has ended now.
    pub async fn observed(&self, epoch: Epoch, report: &Report) -> Result<Recorded, Error> {
        let Report { engines, gone, made, ended, .. } = report;
        let longest = [engines.len(), gone.len(), made.len(), ended.len()];
        if longest.into_iter().any(|count| count > MAX_REPORT) {
            return Err(Error::Broken(format!("a report has more than {MAX_REPORT} engines")));
        }
        if report.nodes.as_ref().is_some_and(|nodes| nodes.len() > MAX_NODES) {
            return Err(Error::Broken(format!("a report has more than {MAX_NODES} nodes")));
        }
        let mut tx = self.begin(Mode::Write).await?;
        let result = write(&mut tx, epoch, report).await;
        tx.end(POINTS, result).await
    }
}

async fn write(tx: &mut Transaction, epoch: Epoch, report: &Report) -> Result<Done<Recorded>, Error> {
    lock(tx, epoch).await?;
    let now_ms = tx.now_ms().await?;
    if report.part {
        still_that_tick(tx, report).await?;
    } else {
        end_tick(tx, report, now_ms).await?;
    }
    if let Some(cluster_warnings) = &report.cluster_warnings {
        tx.execute(sql::MASTER_CLUSTER_WARNINGS, args![to_json(cluster_warnings)?]).await?;
    }
    // Rows of `engine` and `namespace` are written by commits too: in one order, behind one lock. It is taken before the
    // first reading of a table where that can be known: who reads first may be refused for what came in between.
    let engines = !(report.made.is_empty() && report.ended.is_empty());
    if engines {
        tx.draw(0).await?;
    }
    let namespaces = match &report.namespaces_in_use {
        None => NamespaceChanges::default(),
        Some(in_use) => namespace_changes(tx, in_use, now_ms).await?,
    };
    let mut recorded = Recorded::default();
    if !(engines || namespaces.is_empty()) {
        tx.draw(0).await?;
    }
    record_uids(tx, &report.made, now_ms, &mut recorded).await?;
    record_ends(tx, &report.ended, now_ms, &mut recorded).await?;
    write_namespaces(tx, &namespaces, now_ms).await?;
    write_engines(tx, &report.engines, now_ms, epoch).await?;
    tx.execute_in(sql::OBSERVED_DELETE, &[], keys(report.gone.iter().map(EngineName::as_str))).await?;
    if report.complete && report.kept.len() > MAX_KEPT {
        tracing::warn!(
            kept = report.kept.len(),
            limit = MAX_KEPT,
            "report too long to delete the rows of other engines"
        );
    } else if report.complete {
        delete_others(tx, report).await?;
    }
    if let Some(nodes) = &report.nodes {
        write_nodes(&mut *tx, nodes, now_ms, epoch).await?;
    }
    Ok(Done::Write(recorded))
}

/// Makes the table what the report says. Only rows that differ are written: there may be thousands.
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

/// Refuses a part of a tick that has ended since. The master's row is locked.
async fn still_that_tick(tx: &mut Transaction, report: &Report) -> Result<(), Error> {
    let Some(before_ms) = report.after_tick_ms else { return Ok(()) };
    if read::master(tx).await?.last_tick_ms != before_ms {
        return Err(Error::Conflict("this tick's report, or a later one's, was written already".to_owned()));
    }
    Ok(())
}

/// Writes that a tick has ended, unless another one has since the one before.
async fn end_tick(tx: &mut Transaction, report: &Report, now_ms: i64) -> Result<(), Error> {
    let waits_for = report.waits_for.as_deref();
    let Some(before_ms) = report.after_tick_ms else {
        tx.execute(sql::MASTER_TICK, args![now_ms, waits_for]).await?;
        return Ok(());
    };
    // Two ticks of one millisecond are two all the same.
    let end_ms = if now_ms == before_ms { now_ms + 1 } else { now_ms };
    if tx.execute(sql::MASTER_TICK_AFTER, args![end_ms, waits_for, before_ms]).await? == 0 {
        return Err(Error::Conflict("this tick's report, or a later one's, was written already".to_owned()));
    }
    Ok(())
}

/// Records uids behind the catalog's lock: each engine's once.
async fn record_uids(tx: &mut Transaction, made: &[MadeEngine], now_ms: i64, to: &mut Recorded) -> Result<(), Error> {
    let mut uids = uids(tx, keys(made.iter().map(|made| made.name.as_str()))).await?;
    let mut first = Vec::new();
    for made in made {
        match uids.get_mut(made.name.as_str()) {
            None => to.unknown.push(made.name.clone()),
            Some(Some(uid)) if *uid != made.uid => to.other_uid.push((made.name.clone(), uid.clone())),
            Some(Some(_)) => {}
            Some(unknown) => {
                *unknown = Some(made.uid.clone());
                first.push(args![made.name.as_str(), made.uid.as_str(), made.config.as_str()]);
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

async fn record_ends(tx: &mut Transaction, ended: &[EndedEngine], now_ms: i64, to: &mut Recorded) -> Result<(), Error> {
    let issued = uids(tx, keys(ended.iter().map(|ended| ended.name.as_str()))).await?;
    let mut first = BTreeMap::new();
    for ended in ended {
        if !issued.contains_key(ended.name.as_str()) {
            to.unknown.push(ended.name.clone());
            continue;
        }
        let log = ended.log_tail.as_deref().map(|text| tail(text, MAX_LOG_TAIL_BYTES));
        let row = args![ended.name.as_str(), cut(&ended.reason, MAX_REASON_BYTES), log];
        first.entry(ended.name.as_str()).or_insert(row);
    }
    tx.update_each(&sql::ENGINES_ENDED, &[Arg::from(now_ms)], first.into_values().collect()).await.map(drop)
}

/// Replaces the rows of the engines that were seen; of two rows of one name the last counts.
async fn write_engines(
    tx: &mut Transaction,
    engines: &[ObservedEngine],
    now_ms: i64,
    epoch: Epoch,
) -> Result<(), Error> {
    let engines: BTreeMap<&str, &ObservedEngine> = engines.iter().map(|it| (it.name.as_str(), it)).collect();
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

async fn delete_others(tx: &mut Transaction, report: &Report) -> Result<(), Error> {
    let seen = report.engines.iter().map(|engine| &engine.name).chain(&report.kept);
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
    for (name, retired) in known.into_iter().filter(|(name, _)| !kept.contains(name)) {
        match retired {
            None => changes.retire.push(name),
            Some(at_ms) if at_ms <= now_ms.saturating_sub(NAMESPACE_KEEP_MS) => changes.forget.push(name),
            Some(_) => {}
        }
    }
    Ok(changes)
}

async fn write_namespaces(tx: &mut Transaction, changes: &NamespaceChanges, now_ms: i64) -> Result<(), Error> {
    slot_batch::remember_namespaces(tx, changes.remember.iter().map(String::as_str).collect()).await?;
    tx.execute_in(sql::NAMESPACES_RETIRE, &[Arg::from(now_ms)], keys(changes.retire.iter().map(String::as_str)))
        .await?;
    let before_ms = now_ms.saturating_sub(NAMESPACE_KEEP_MS);
    tx.execute_in(sql::NAMESPACES_FORGET, &[Arg::from(before_ms)], keys(changes.forget.iter().map(String::as_str)))
        .await?;
    Ok(())
}
