//! EXPLAIN: every decision until nothing is left to do, from the same plan that the master executes. Changes nothing.

use std::collections::BTreeSet;

use hs2::SqlType;
use model::catalog::Catalog;
use model::change::Change;
use model::error::UserError;
use model::observation::ObservedEngine;
use model::rights::StatementKind;
use model::slot::Replacement;
use model::snapshot::Snapshot;
use model::table_catalog::DETAIL;

use crate::metadata::answer::{Answer, number, text};
use crate::metadata::context::Context;
use crate::metadata::show::engines::freshness;
use crate::metadata::show::freshness::log_freshness;

/// What a plan starts from, as the master last observed it.
pub(super) struct Input {
    pub(super) desired: planner::DesiredState,
    pub(super) observed: planner::ObservedState,
    /// The engines whose tables end with them.
    pub(super) own: BTreeSet<String>,
}

/// Reads the input of a plan, unless the check of its catalog fails.
pub(super) async fn input(
    context: &Context,
    check: impl FnOnce(&Catalog) -> Result<(), UserError>,
) -> Result<Input, UserError> {
    let overview = context.store().overview(None).await.map_err(|error| error.user_error())?;
    check(&overview.snapshot.catalog)?;
    context.log.line("the plan starts from the master's last observation");
    log_freshness(context, &freshness(context, &overview), &overview.snapshot.master).await;
    log_demand(context, &overview.snapshot);
    let seen: Vec<ObservedEngine> = overview.observed.iter().map(|row| row.engine.clone()).collect();
    let mut observed = planner::ObservedState::from_report(&seen, &overview.snapshot);
    let place = context.store().node_overview().await.map_err(|error| error.user_error())?;
    observed.capacity = place.nodes.iter().map(planner::NodeCapacity::from).collect();
    observed.nodes = place.nodes.into_iter().map(|node| (node.name, node.labels)).collect();
    let settings = &context.agent.settings;
    let desired = planner::DesiredState {
        snapshot: overview.snapshot,
        cluster: settings.cluster.clone(),
        defaults: settings.rules.defaults.clone(),
        limits: settings.plan_limits,
    };
    let own = seen.iter().filter(|engine| engine.details.contains_key(DETAIL)).map(|engine| engine.name.to_string());
    Ok(Input { desired, observed, own: own.collect() })
}

/// Sessions that wait are part of the plan. The log counts those that the caller may see.
fn log_demand(context: &Context, snapshot: &Snapshot) {
    let Snapshot { catalog, demand, .. } = snapshot;
    let sees_all = context.subject.may_in_any(StatementKind::ShowDemand);
    let visible = context.subject.tenants(catalog, StatementKind::ShowDemand);
    let seen = demand.iter().filter(|demand| sees_all || visible.contains(&&demand.key.tenant));
    match seen.map(|demand| demand.waiting).sum::<u64>() {
        0 => {}
        1 => context.log.line("1 session waits for an engine: the plan assumes that it goes on waiting"),
        waiting => {
            let line = format!("{waiting} sessions wait for an engine: the plan assumes that they go on waiting");
            context.log.line(line);
        }
    }
}

pub(in crate::metadata) async fn explain(
    context: &Context,
    change: &Change,
    replacement: Replacement,
) -> Result<Answer, UserError> {
    context.require_right()?;
    let Input { desired, observed, own } = input(context, |_| Ok(())).await?;
    let mut answer = Answer::new(&[
        ("step", SqlType::BigInt),
        ("decision", SqlType::String),
        ("engine", SqlType::String),
        ("slot", SqlType::String),
        ("because", SqlType::String),
    ]);
    // Computing the plan of a large installation takes seconds: not on a thread that serves other calls.
    let (change, rules) = (change.clone(), context.agent.settings.rules.clone());
    let explained =
        tokio::task::spawn_blocking(move || planner::explain_change(&desired, &change, replacement, &rules, &observed));
    let rows = explained.await.map_err(|error| UserError::internal(format!("EXPLAIN did not finish: {error}")))??;
    warn_of_lost_tables(context, &own, &rows);
    for row in rows {
        answer.row(vec![number(row.step), text(row.decision), text(row.engine), text(row.slot), text(row.because)]);
    }
    Ok(answer)
}

/// The most engines that the warning of EXPLAIN names; it counts the others.
const MAX_WARNED: usize = 10;

/// One line for each engine that is to end and whose tables end with it.
fn warn_of_lost_tables(context: &Context, own: &BTreeSet<String>, rows: &[planner::Row]) {
    let drained =
        rows.iter().filter(|row| row.decision == "drain engine" && own.contains(&row.engine)).map(|row| &row.engine);
    let lost: BTreeSet<&String> = drained.collect();
    for engine in lost.iter().take(MAX_WARNED) {
        context
            .log
            .line(format!("warning: the tables and views that were created in engine \"{engine}\" are lost with it"));
    }
    if lost.len() > MAX_WARNED {
        context.log.line(format!("warning: the same applies to {} more engines", lost.len() - MAX_WARNED));
    }
}
