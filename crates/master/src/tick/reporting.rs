//! What a tick reports: what SHOW is to know, and that the tick has ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::observation::{ObservedEngine, Publication};
use planner::{DesiredState, Instance};

use super::{Reconciler, bounded};
use crate::ctx::{ControllerCtx, Engines, Failure};
use crate::failpoints;
use crate::memory::parts_of;

/// The most engines that are reported, the first by name: more than one installation is made for.
const MAX_REPORTED: usize = 20_000;

impl Reconciler {
    pub(super) async fn report(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: &DesiredState,
        rows: Vec<Arc<ObservedEngine>>,
        waits_for: Option<String>,
        engines: &Engines,
    ) -> Result<(), Failure> {
        let mut rows = rows;
        rows.truncate(MAX_REPORTED);
        let mut report = self.memory.report(&rows, waits_for, &engines.cluster_warnings);
        report.after_tick_ms = Some(desired.snapshot.master.last_tick_ms);
        report.namespaces_in_use = Some(namespaces(&engines.instances));
        let now = ctx.now();
        report.nodes = self.memory.nodes.due(&desired.snapshot.catalog, engines.nodes.as_deref(), now);
        let written = self.send(ctx, &mut report).await;
        self.memory.reported(written.is_ok().then_some((rows, &engines.cluster_warnings)));
        self.memory.nodes.told(written.is_ok(), report.nodes, now);
        written?;
        model::failpoint!(failpoints::REPORTED);
        self.wait_log.clear(ctx.now());
        Ok(())
    }

    /// Thousands of rows go in parts, each in an effect's time. After one that fails the next report is complete.
    pub(super) async fn send(&self, ctx: &dyn ControllerCtx, report: &mut Publication) -> Result<(), Failure> {
        for part in parts_of(report, self.settings.report_rows) {
            self.send_part(ctx, &part).await?;
        }
        self.send_part(ctx, report).await
    }

    /// A report is an effect like any other: a master that may have been deposed meanwhile sends none.
    async fn send_part(&self, ctx: &dyn ControllerCtx, report: &Publication) -> Result<(), Failure> {
        if !ctx.holds_lease() {
            return Err(Failure::Lost("too long without an answer of ZooKeeper".to_owned()));
        }
        bounded(self.settings.effect_deadline(), ctx.publish(self.epoch, report)).await
    }
}

fn namespaces(instances: &[Instance]) -> Vec<String> {
    let names: BTreeSet<&String> =
        instances.iter().filter_map(|instance| instance.labels.get(model::labels::NAMESPACE)).collect();
    names.into_iter().cloned().collect()
}
