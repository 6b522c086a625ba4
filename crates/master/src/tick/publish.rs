//! The end of a tick: publishes changed rows for SHOW.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::observation::{ObservedEngine, Publication};
use planner::{DesiredState, Instance};

use super::{Reconciler, bounded};
use crate::ctx::{ControllerCtx, Failure, InstanceList};
use crate::failpoints;
use crate::memory::split_parts;

/// The most published engines, the first by name: more than an installation supports.
const MAX_PUBLISHED: usize = 20_000;

impl Reconciler {
    pub(super) async fn publish(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: &DesiredState,
        mut rows: Vec<Arc<ObservedEngine>>,
        waits_for: Option<String>,
        list: &InstanceList,
    ) -> Result<(), Failure> {
        rows.truncate(MAX_PUBLISHED);
        let mut publication = self.memory.publication(&rows, waits_for, &list.warnings);
        publication.after_tick_ms = Some(desired.snapshot.master.last_tick_ms);
        publication.namespaces_in_use = Some(namespaces(&list.instances));
        let now = ctx.clock();
        publication.nodes = self.nodes.due(&desired.snapshot.catalog, list.nodes.as_deref(), now);
        let written = self.send(ctx, &mut publication).await;
        self.memory.published(written.is_ok().then_some((rows, &list.warnings)));
        self.nodes.published(written.is_ok(), publication.nodes, now);
        written?;
        model::failpoint!(failpoints::REPORTED);
        self.log.waits.clear(ctx.clock());
        Ok(())
    }

    /// Publishes the few rows of a degraded plan. The next list is not compared with them: its publication is complete.
    pub(super) async fn publish_degraded(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: &DesiredState,
        rows: Vec<Arc<ObservedEngine>>,
        waits_for: String,
    ) -> Result<(), Failure> {
        let mut publication = Publication {
            engines: rows.into_iter().map(Arc::unwrap_or_clone).collect(),
            waits_for: Some(waits_for),
            after_tick_ms: Some(desired.snapshot.master.last_tick_ms),
            ..Publication::default()
        };
        self.memory.published(None);
        self.send(ctx, &mut publication).await
    }

    /// Sends thousands of rows in parts, each with an effect's deadline. After a failed part the next publication is
    /// complete.
    async fn send(&self, ctx: &dyn ControllerCtx, publication: &mut Publication) -> Result<(), Failure> {
        for part in split_parts(publication, self.settings.report_rows) {
            self.send_part(ctx, &part).await?;
        }
        self.send_part(ctx, publication).await
    }

    async fn send_part(&self, ctx: &dyn ControllerCtx, publication: &Publication) -> Result<(), Failure> {
        ctx.lease().state().check()?;
        bounded(self.settings.effect_deadline(), ctx.publish(self.epoch, publication)).await
    }
}

fn namespaces(instances: &[Instance]) -> Vec<String> {
    let names: BTreeSet<&String> =
        instances.iter().filter_map(|instance| instance.labels.get(model::labels::NAMESPACE)).collect();
    names.into_iter().cloned().collect()
}
