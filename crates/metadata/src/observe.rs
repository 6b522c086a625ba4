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
use crate::commit::MAX_WORD_BYTES;
use crate::error::Error;
use crate::master::{POINTS, lock};
use crate::read;
use crate::rows::{self, to_json};
use crate::sql;
use crate::store::Store;
use crate::transaction::{Arg, Done, Transaction, args};
use crate::wish;

/// The most engines that one report may hold, in each of its lists.
pub const MAX_REPORT: usize = 20_000;
/// A namespace without pods is forgotten no sooner than this after its last pod was seen, in milliseconds.
pub const NAMESPACE_KEEP_MS: i64 = 24 * 3600 * 1000;

impl Store {
    /// Writes a report in one transaction, and that the master's tick has ended now.
    pub async fn observed(&self, epoch: Epoch, report: &Report) -> Result<Recorded, Error> {
        let Report { engines, kept, gone, made, ended, .. } = report;
        let longest = [engines.len(), kept.len(), gone.len(), made.len(), ended.len()];
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
    if let Some(surroundings) = &report.surroundings {
        tx.execute(sql::MASTER_SURROUNDINGS, args![to_json(surroundings)?]).await?;
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
    for made in &report.made {
        record_uid(tx, made, now_ms, &mut recorded).await?;
    }
    for ended in &report.ended {
        record_end(tx, ended, now_ms, &mut recorded).await?;
    }
    write_namespaces(tx, &namespaces, now_ms).await?;
    for engine in &report.engines {
        write_engine(tx, engine, now_ms, epoch).await?;
    }
    for name in &report.gone {
        tx.execute(sql::OBSERVED_DELETE, args![name.as_str()]).await?;
    }
    if report.complete {
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
    for node in nodes {
        let facts = to_json(node)?;
        let statement = match known.remove(&node.name) {
            Some(stored) if stored == facts => continue,
            Some(_) => sql::NODE_UPDATE,
            None => sql::NODE_INSERT,
        };
        tx.execute(statement, args![facts, now_ms, epoch, node.name.as_str()]).await?;
    }
    for name in known.keys() {
        tx.execute(sql::NODE_DELETE, args![name.as_str()]).await?;
    }
    Ok(())
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

async fn record_uid(tx: &mut Transaction, made: &MadeEngine, now_ms: i64, to: &mut Recorded) -> Result<(), Error> {
    let args = args![made.uid.as_str(), made.config.as_str(), now_ms, made.name.as_str()];
    if tx.execute(sql::ENGINE_MADE, args).await? == 1 {
        return Ok(());
    }
    match read::engine(tx, &made.name).await?.map(|engine| engine.uid) {
        None => to.unknown.push(made.name.clone()),
        Some(Some(uid)) if uid != made.uid => to.other_uid.push((made.name.clone(), uid)),
        Some(_) => {}
    }
    Ok(())
}

async fn record_end(tx: &mut Transaction, ended: &EndedEngine, now_ms: i64, to: &mut Recorded) -> Result<(), Error> {
    let log = ended.log_tail.as_deref().map(|text| tail(text, MAX_LOG_TAIL_BYTES));
    let args = args![now_ms, cut(&ended.reason, MAX_REASON_BYTES), log, ended.name.as_str()];
    if tx.execute(sql::ENGINE_ENDED, args).await? == 0 && read::engine(tx, &ended.name).await?.is_none() {
        to.unknown.push(ended.name.clone());
    }
    Ok(())
}

async fn write_engine(tx: &mut Transaction, engine: &ObservedEngine, now_ms: i64, epoch: Epoch) -> Result<(), Error> {
    let row: Vec<Arg> = args![
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
        engine.name.as_str(),
    ];
    if tx.execute(sql::OBSERVED_UPDATE, row.clone()).await? == 0 {
        tx.execute(sql::OBSERVED_INSERT, row).await?;
    }
    Ok(())
}

async fn delete_others(tx: &mut Transaction, report: &Report) -> Result<(), Error> {
    let seen = report.engines.iter().map(|engine| &engine.name).chain(&report.kept);
    let seen: BTreeSet<&str> = seen.map(EngineName::as_str).collect();
    for row in tx.rows(sql::OBSERVED_NAMES, args![]).await? {
        let name = rows::text(&row, "name")?;
        if !seen.contains(name.as_str()) {
            tx.execute(sql::OBSERVED_DELETE, args![name]).await?;
        }
    }
    Ok(())
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
    for name in &changes.remember {
        wish::remember_namespace(tx, name).await?;
    }
    for name in &changes.retire {
        tx.execute(sql::NAMESPACE_RETIRE, args![now_ms, name.as_str()]).await?;
    }
    for name in &changes.forget {
        tx.execute(sql::NAMESPACE_FORGET, args![name.as_str(), now_ms.saturating_sub(NAMESPACE_KEEP_MS)]).await?;
    }
    Ok(())
}
