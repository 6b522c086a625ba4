//! SHOW MASTER: name, start, epoch, last tick, what the master waits for, its lock, and the counts of the ledger.
//!
//! The database identifies the master by the path and session of its lock; host and process are in the lock's node while it
//! exists.

use hs2::SqlType;
use metadata::LedgerCounts;
use model::clock::utc;
use model::error::UserError;
use model::snapshot::MasterRecord;
use model::span;

use super::foreign;
use super::freshness::{Freshness, candidate, log_freshness};
use crate::metadata::answer::{Answer, maybe, number, text};
use crate::metadata::context::Context;
use crate::metadata::settings::WHO_DEADLINE;

pub(in crate::metadata) async fn show(context: &Context) -> Result<Answer, UserError> {
    context.require_right()?;
    let (master, now_ms) = context.store().master_now().await.map_err(|error| error.user_error())?;
    let freshness = Freshness::new(&master, now_ms, context.agent.settings.tick_interval);
    let mut answer = Answer::new(&[
        ("master", SqlType::String),
        ("state", SqlType::String),
        ("since", SqlType::String),
        ("epoch", SqlType::BigInt),
        ("last_tick", SqlType::String),
        ("last_tick_age", SqlType::String),
        ("waits_for", SqlType::String),
        ("lock", SqlType::String),
        ("queued", SqlType::BigInt),
        ("reservations", SqlType::String),
        ("drifts", SqlType::BigInt),
    ]);
    log_freshness(context, &freshness, &master).await;
    foreign::log_warnings(context, &master);
    if freshness == Freshness::NoMaster {
        return Ok(answer);
    }
    let ledger = context.store().ledger_counts().await.map_err(|error| error.user_error())?;
    answer.row(vec![
        text(who(context, &master.holder).await),
        text(state(&freshness)),
        text(utc(master.since_ms)),
        number(master.epoch.get()),
        maybe(freshness.age().map(|_| utc(master.last_tick_ms))),
        maybe(freshness.age().map(span::age)),
        maybe(waits_for(&master)),
        text(master.holder),
        number(ledger.queued),
        text(reservations(&ledger)),
        number(ledger.drifts),
    ]);
    Ok(answer)
}

/// `2 locked, 40 used`
fn reservations(counts: &LedgerCounts) -> String {
    let named: Vec<String> = counts.reservations.iter().map(|(state, count)| format!("{count} {state}")).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

/// Whether it acts. A master that was just elected does.
fn state(freshness: &Freshness) -> String {
    let remark = freshness.remark().filter(|_| !matches!(freshness, Freshness::Inherited(_)));
    remark.unwrap_or_else(|| "acting".to_owned())
}

/// What it waits for, and the permissions that it lacks.
fn waits_for(master: &MasterRecord) -> Option<String> {
    match (master.waits_for.clone(), foreign::missing(master)) {
        (Some(waits_for), Some(missing)) => Some(format!("{waits_for}; {missing}")),
        (waits_for, missing) => waits_for.or(missing),
    }
}

/// The candidate that holds the lock; the lock itself if the candidate cannot be read.
async fn who(context: &Context, holder: &str) -> String {
    let reason = match tokio::time::timeout(WHO_DEADLINE, candidate(context, holder)).await {
        Ok(Ok(Some(who))) if !who.is_empty() => return who,
        Ok(Ok(_)) => return holder.to_owned(),
        Ok(Err(error)) => error.user("the master's lock").message,
        Err(_) => format!("no reply from ZooKeeper within {}", span::print(WHO_DEADLINE)),
    };
    context.log.line(format!("could not read the name of the master: {reason}"));
    holder.to_owned()
}
