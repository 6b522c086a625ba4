//! EXPLAIN: every decision until nothing is left to do, from the same plan that the master executes. Changes nothing.

use hs2::SqlType;
use model::change::Change;
use model::error::UserError;
use model::observation::ObservedEngine;

use crate::metadata::answer::{Answer, number, text};
use crate::metadata::context::Context;
use crate::metadata::show::engines::freshness;
use crate::metadata::show::freshness::tell;

pub(in crate::metadata) async fn explain(context: &Context, change: &Change) -> Result<Answer, UserError> {
    context.require_admin()?;
    let overview = context.store().overview(None).await.map_err(|error| error.user_error())?;
    context.log.line("the plan starts from what the master saw last");
    tell(context, &freshness(context, &overview), &overview.snapshot.master).await;
    let seen: Vec<ObservedEngine> = overview.observed.iter().map(|it| it.engine.clone()).collect();
    let mut observed = planner::Observed::from_report(&seen, &overview.snapshot);
    let place = context.store().place().await.map_err(|error| error.user_error())?;
    observed.nodes = place.nodes.into_iter().map(|node| (node.name, node.labels)).collect();
    let settings = &context.agent.settings;
    let desired = planner::Desired {
        snapshot: overview.snapshot,
        cluster: settings.cluster.clone(),
        defaults: settings.rules.defaults.clone(),
        limits: settings.plan_limits,
    };
    let mut answer = Answer::new(&[
        ("step", SqlType::BigInt),
        ("decision", SqlType::String),
        ("engine", SqlType::String),
        ("slot", SqlType::String),
        ("because", SqlType::String),
    ]);
    // The plan of a large installation is computed for seconds: not where everybody's calls are answered.
    let (change, rules) = (change.clone(), settings.rules.clone());
    let explained =
        tokio::task::spawn_blocking(move || planner::explain_change(&desired, &change, &rules, &observed)).await;
    let rows = explained.map_err(|error| UserError::internal(format!("EXPLAIN came to no end: {error}")))??;
    for row in rows {
        answer.row(vec![number(row.step), text(row.decision), text(row.engine), text(row.slot), text(row.because)]);
    }
    Ok(answer)
}
