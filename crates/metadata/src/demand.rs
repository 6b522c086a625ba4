//! Demand: the sessions of each proxy that wait for an engine, recorded with a lease.
//!
//! A report replaces all rows of its proxy in one transaction. It first raises the proxy's number, a row of its own with an
//! empty digest: a report whose number is not higher has no effect, so a late repeat never brings back a key that a newer
//! report has removed. The statement that raises the number renews the lease of all rows of the proxy.
//!
//! Rows of different proxies are independent. A proxy that has died needs no cleaning up: rows whose lease has ended count for
//! nothing, and housekeeping deletes them.

use std::collections::{BTreeMap, BTreeSet};

use model::demand::{Demand, DemandKey, MAX_DEMAND_KEYS};
use model::demand_report::{DemandRecorded, DemandReport, UnmetDemand, WaitingSessions};
use model::failpoint;
use model::name::{PoolName, TenantName, UnitName};
use model::observation::MAX_UNMET;
use model::text::cut;
use sqlx::any::AnyRow;

use crate::backend::Mode;
use crate::commit::MAX_WORD_BYTES;
use crate::error::{ATTEMPTS, Error};
use crate::failpoints;
use crate::rows;
use crate::store::Store;
use crate::transaction::{Arg, CommitPoints, Done, Transaction, args};

const RENEW: &str = "UPDATE demand SET seq = ?, until_ms = ? WHERE proxy = ? AND seq < ?";
const SEQ: &str = "SELECT seq FROM demand WHERE proxy = ? AND digest = ''";
const OF_PROXY: &str = "SELECT digest, waiting, since_ms FROM demand WHERE proxy = ? AND digest <> ''";
const INSERT: &str = "INSERT INTO demand (proxy, digest, tenant, pool, unit, engine_type, creator, usr, grp, session, \
     waiting, since_ms, until_ms, seq)";
const DELETE: &str = "DELETE FROM demand WHERE (proxy, digest) IN";
const CURRENT: &str = "SELECT tenant, pool, unit, engine_type, creator, usr, grp, session, waiting, since_ms, until_ms \
     FROM demand WHERE digest <> '' AND until_ms > ?";
const UNMET: &str = "SELECT unmet FROM observed_demand WHERE id = 1";
const UNMET_SET: &str = "UPDATE observed_demand SET unmet = ? WHERE id = 1";
/// Ended leases, oldest first: `(proxy, digest)`.
pub(crate) const ENDED: &str = "SELECT proxy, digest FROM demand WHERE until_ms < ? ORDER BY until_ms LIMIT ?";
pub(crate) const DELETE_ENDED: &str = DELETE;

const POINTS: CommitPoints = CommitPoints { before: failpoints::DEMAND_BEFORE, after: failpoints::DEMAND_AFTER };

impl Store {
    /// Replaces what the proxy has recorded.
    pub async fn record_demand(&self, report: &DemandReport) -> Result<DemandRecorded, Error> {
        if report.demand.len() > MAX_DEMAND_KEYS {
            return Err(Error::Broken(format!("a report has more than {MAX_DEMAND_KEYS} keys of demand").into()));
        }
        let mut attempt = 1;
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = record(&mut tx, report).await;
            match tx.end(POINTS, result).await {
                // Two reports of one proxy may both insert its first row.
                Err(Error::Conflict(_)) if attempt < ATTEMPTS => attempt += 1,
                other => return other,
            }
        }
    }

    /// All demand, and the part of it that no engine was found for, as a master last reported it.
    pub async fn demand_overview(&self) -> Result<(Vec<Demand>, Vec<UnmetDemand>), Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = overview(&mut tx).await;
        tx.leave(read).await
    }

    /// The demand of all proxies whose lease has not ended, added up by key.
    pub async fn demand(&self) -> Result<Vec<Demand>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let read = match tx.now_ms().await {
            Ok(now_ms) => current(&mut tx, now_ms).await,
            Err(error) => Err(error),
        };
        tx.leave(read).await
    }
}

async fn overview(tx: &mut Transaction) -> Result<(Vec<Demand>, Vec<UnmetDemand>), Error> {
    let now_ms = tx.now_ms().await?;
    Ok((current(tx, now_ms).await?, unmet(tx).await?))
}

/// A recorded key.
struct Recorded {
    sessions: i64,
    since_ms: i64,
}

async fn record(tx: &mut Transaction, report: &DemandReport) -> Result<Done<DemandRecorded>, Error> {
    let now_ms = tx.now_ms().await?;
    let until_ms = now_ms.saturating_add(report.lease_ms.max(0));
    let Some(recorded) = number(tx, report, until_ms).await? else {
        return Ok(Done::Same(DemandRecorded::Superseded));
    };
    let mut wanted: BTreeMap<String, &WaitingSessions> = BTreeMap::new();
    for waiting in report.demand.iter().filter(|waiting| waiting.sessions > 0) {
        wanted.insert(waiting.key.digest(), waiting);
    }
    let (mut replaced, mut written, mut is_increased) = (BTreeSet::new(), Vec::new(), false);
    replaced.extend(recorded.keys().filter(|digest| !wanted.contains_key(*digest)).cloned());
    for (digest, waiting) in wanted {
        let sessions = i64::try_from(waiting.sessions).unwrap_or(i64::MAX);
        let before = recorded.get(&digest);
        is_increased |= before.is_none_or(|before| before.sessions < sessions);
        if before.is_some_and(|before| before.sessions == sessions) {
            continue;
        }
        // The age of the key is that of its first report: a renewal doesn't change it.
        let since_ms = before.map_or(now_ms.saturating_sub(waiting.waited_ms.max(0)), |before| before.since_ms);
        if before.is_some() {
            replaced.insert(digest.clone());
        }
        written.push(key_row(report, &waiting.key, digest, [sessions, since_ms, until_ms]));
    }
    let replaced = replaced.into_iter().map(|digest| args![report.proxy.as_str(), digest]).collect();
    tx.execute_in_tuples(DELETE, replaced).await?;
    tx.insert_all(INSERT, written).await?;
    Ok(Done::Write(if is_increased { DemandRecorded::Increased } else { DemandRecorded::Recorded }))
}

/// Raises the number of the proxy and renews its leases. Returns what it had recorded; `None` if the report is not newer.
async fn number(
    tx: &mut Transaction,
    report: &DemandReport,
    until_ms: i64,
) -> Result<Option<BTreeMap<String, Recorded>>, Error> {
    let proxy = report.proxy.as_str();
    if tx.execute(RENEW, args![report.seq, until_ms, proxy, report.seq]).await? > 0 {
        failpoint!(failpoints::DEMAND_NUMBERED);
        let rows = tx.rows(OF_PROXY, args![proxy]).await?;
        let recorded = rows.iter().map(|row| {
            let recorded = Recorded { sessions: rows::int(row, "waiting")?, since_ms: rows::int(row, "since_ms")? };
            Ok((rows::text(row, "digest")?, recorded))
        });
        return recorded.collect::<Result<_, Error>>().map(Some);
    }
    if let Some(row) = tx.row(SEQ, args![proxy]).await? {
        // The first report of the proxy may have been committed after the update above, which did not see it.
        if rows::int(&row, "seq")? < report.seq {
            return Err(Error::Conflict("an earlier report of the proxy was first".to_owned()));
        }
        return Ok(None);
    }
    let first = row(report, String::new(), [0, 0, until_ms], ["", "", "", "", "", "", "", ""]);
    if !tx.insert_all_new(INSERT, vec![first]).await? {
        return Err(Error::Conflict("another report of the proxy was first".to_owned()));
    }
    failpoint!(failpoints::DEMAND_NUMBERED);
    Ok(Some(BTreeMap::new()))
}

fn key_row(report: &DemandReport, key: &DemandKey, digest: String, numbers: [i64; 3]) -> Vec<Arg> {
    let DemandKey { tenant, pool, unit, engine_type, creator, user, group, session } = key;
    let word = |text: &Option<String>| cut(text.as_deref().unwrap_or_default(), MAX_WORD_BYTES).to_owned();
    let texts = [word(engine_type), word(&Some(creator.clone())), word(user), word(group), word(session)];
    let [engine_type, creator, user, group, session] = &texts;
    let (pool, unit) = (pool.as_ref().map_or("", PoolName::as_str), unit.as_ref().map_or("", UnitName::as_str));
    row(report, digest, numbers, [tenant.as_str(), pool, unit, engine_type, creator, user, group, session])
}

fn row(report: &DemandReport, digest: String, numbers: [i64; 3], texts: [&str; 8]) -> Vec<Arg> {
    let mut row = args![report.proxy.as_str(), digest];
    row.extend(texts.map(Arg::from));
    row.extend(numbers.map(Arg::from));
    row.push(report.seq.into());
    row
}

/// The demand whose lease has not ended, added up by key, in the order of the keys.
pub(crate) async fn current(tx: &mut Transaction, now_ms: i64) -> Result<Vec<Demand>, Error> {
    let mut demand: BTreeMap<DemandKey, Demand> = BTreeMap::new();
    for row in tx.rows(CURRENT, args![now_ms]).await? {
        let of_proxy = decoded(&row)?;
        match demand.get_mut(&of_proxy.key) {
            Some(all) => {
                all.waiting = all.waiting.saturating_add(of_proxy.waiting);
                all.since_ms = all.since_ms.min(of_proxy.since_ms);
                all.until_ms = all.until_ms.max(of_proxy.until_ms);
            }
            None => {
                demand.insert(of_proxy.key.clone(), of_proxy);
            }
        }
    }
    Ok(demand.into_values().collect())
}

/// Replaces the demand that no engine was found for.
pub(crate) async fn report_unmet(tx: &mut Transaction, unmet: &[UnmetDemand]) -> Result<(), Error> {
    tx.execute(UNMET_SET, args![rows::to_json(&&unmet[..unmet.len().min(MAX_UNMET)])?]).await?;
    Ok(())
}

/// The demand that no engine was found for, as a master last reported it.
pub(crate) async fn unmet(tx: &mut Transaction) -> Result<Vec<UnmetDemand>, Error> {
    let Some(row) = tx.row(UNMET, args![]).await? else { return Ok(Vec::new()) };
    serde_json::from_str(&rows::text(&row, "unmet")?).map_err(|error| Error::Broken(format!("unmet: {error}").into()))
}

fn decoded(row: &AnyRow) -> Result<Demand, Error> {
    let specified = |column| rows::text(row, column).map(|text| (!text.is_empty()).then_some(text));
    let invalid = |error: model::UserError| Error::Broken(error.text().into());
    Ok(Demand {
        key: DemandKey {
            tenant: TenantName::new(rows::text(row, "tenant")?).map_err(invalid)?,
            pool: specified("pool")?.map(PoolName::new).transpose().map_err(invalid)?,
            unit: specified("unit")?.map(UnitName::new).transpose().map_err(invalid)?,
            engine_type: specified("engine_type")?,
            creator: rows::text(row, "creator")?,
            user: specified("usr")?,
            group: specified("grp")?,
            session: specified("session")?,
        },
        waiting: rows::int(row, "waiting")?.max(0).unsigned_abs(),
        since_ms: rows::int(row, "since_ms")?,
        until_ms: rows::int(row, "until_ms")?,
    })
}
