//! SHOW ALTERATIONS: undecided, converging, stalled and recent ones, newest first.

use coordination::{AlterNode, alter_node};
use hs2::{SqlType, Value};
use model::alteration::{AlterationProgress, AlterationRecord};
use model::clock::utc;
use model::error::UserError;
use model::snapshot::MasterRecord;

use crate::metadata::answer::{Answer, maybe, text};
use crate::metadata::context::Context;
use crate::metadata::settings::DEFAULT_ALTERATIONS;
use crate::metadata::show::freshness::{Freshness, log_freshness};

const COLUMNS: [(&str, SqlType); 9] = [
    ("id", SqlType::String),
    ("object", SqlType::String),
    ("statement", SqlType::String),
    ("by", SqlType::String),
    ("outcome", SqlType::String),
    ("progress", SqlType::String),
    ("since", SqlType::String),
    ("waits_for", SqlType::String),
    ("reason", SqlType::String),
];

pub(in crate::metadata) async fn show(context: &Context, limit: Option<u32>) -> Result<Answer, UserError> {
    context.require_right()?;
    let store = context.store();
    let limit = limit.unwrap_or(DEFAULT_ALTERATIONS);
    let records = store.alterations(limit).await.map_err(|error| error.user_error())?;
    let (master, now_ms) = store.master_now().await.map_err(|error| error.user_error())?;
    let freshness = Freshness::new(&master, now_ms, context.agent.settings.tick_interval);
    log_freshness(context, &freshness, &master).await;
    let mut answer = Answer::new(&COLUMNS);
    if let Some(node) = undecided(context, &records).await {
        answer.row(undecided_row(&node, &master, &freshness));
    }
    for record in &records {
        answer.row(row(record, &master, &freshness));
    }
    answer.rows.truncate(limit as usize);
    Ok(answer)
}

/// The alteration that has its node and no outcome yet.
async fn undecided(context: &Context, records: &[AlterationRecord]) -> Option<AlterNode> {
    let session = match context.agent.zookeeper("the alter node") {
        Ok(session) => session,
        Err(error) => {
            context.log.line(format!("undecided alterations are not shown: {}", error.message));
            return None;
        }
    };
    match alter_node::read(&session).await {
        Ok(node) => node.filter(|node| match &node.content {
            Ok(alteration) => records.iter().all(|record| record.id != alteration.id),
            Err(_) => true,
        }),
        Err(error) => {
            context.log.line(format!("undecided alterations are not shown: {}", error.user("the alter node").message));
            None
        }
    }
}

fn undecided_row(node: &AlterNode, master: &MasterRecord, freshness: &Freshness) -> Vec<Value> {
    let waits = freshness
        .remark()
        .or_else(|| master.waits_for.clone())
        .unwrap_or_else(|| "its agent's transaction, or the master to abort it".to_owned());
    match &node.content {
        Ok(alteration) => vec![
            text(alteration.id.as_str()),
            text(alteration.object.to_string()),
            text(alteration.statement.clone()),
            text(alteration.by.clone()),
            text("undecided"),
            Value::Null,
            text(utc(alteration.requested_at_ms)),
            text(waits),
            Value::Null,
        ],
        Err(reason) => vec![
            maybe(node.children.first().map(|child| child.id.to_string())),
            Value::Null,
            Value::Null,
            Value::Null,
            text("undecided"),
            Value::Null,
            text(utc(node.ctime_ms)),
            text(waits),
            text(format!("its node could not be decoded: {reason}")),
        ],
    }
}

fn row(record: &AlterationRecord, master: &MasterRecord, freshness: &Freshness) -> Vec<Value> {
    let open = matches!(record.progress, Some(AlterationProgress::Converging | AlterationProgress::Stalled));
    let waits = open.then(|| freshness.remark().or_else(|| master.waits_for.clone())).flatten();
    vec![
        text(record.id.as_str()),
        maybe(record.object.as_ref().map(ToString::to_string)),
        text(record.statement.clone()),
        text(record.requested_by.clone()),
        text(record.outcome.as_str()),
        maybe(record.progress.map(AlterationProgress::as_str)),
        text(utc(record.decided_at_ms)),
        maybe(waits),
        maybe(record.reason.clone()),
    ]
}
