//! What a tick reports: what SHOW is to know, and that the tick has ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::observation::{ObservedEngine, Report};
use planner::{Desired, Pod};

use super::{Driver, bounded};
use crate::failpoints;
use crate::recollection::parts_of;
use crate::world::{Engines, Failure, World};

/// The most engines that are reported, the first by name: more than one installation is made for.
const MAX_REPORTED: usize = 20_000;

impl Driver {
    pub(super) async fn report(
        &mut self,
        world: &dyn World,
        desired: &Desired,
        rows: Vec<Arc<ObservedEngine>>,
        waits_for: Option<String>,
        engines: &Engines,
    ) -> Result<(), Failure> {
        let mut rows = rows;
        rows.truncate(MAX_REPORTED);
        let mut report = self.recollection.report(&rows, waits_for, &engines.cluster_warnings);
        report.after_tick_ms = Some(desired.snapshot.master.last_tick_ms);
        report.namespaces_in_use = Some(namespaces(&engines.pods));
        let now = world.now();
        report.nodes = self.recollection.nodes.due(&desired.snapshot.catalog, engines.nodes.as_deref(), now);
        let written = self.send(world, &mut report).await;
        self.recollection.reported(written.is_ok().then_some((rows, &engines.cluster_warnings)));
        self.recollection.nodes.told(written.is_ok(), report.nodes, now);
        written?;
        model::failpoint!(failpoints::REPORTED);
        self.wait_log.clear(world.now());
        Ok(())
    }

    /// Thousands of rows go in parts, each in an effect's time. After one that fails the next report is complete.
    pub(super) async fn send(&self, world: &dyn World, report: &mut Report) -> Result<(), Failure> {
        for part in parts_of(report, self.settings.report_rows) {
            self.send_part(world, &part).await?;
        }
        self.send_part(world, report).await
    }

    /// A report is an effect like any other: a master that may have been deposed meanwhile sends none.
    async fn send_part(&self, world: &dyn World, report: &Report) -> Result<(), Failure> {
        if !world.holds_lease() {
            return Err(Failure::Lost("too long without an answer of ZooKeeper".to_owned()));
        }
        bounded(self.settings.effect_deadline(), world.report(self.epoch, report)).await
    }
}

fn namespaces(pods: &[Pod]) -> Vec<String> {
    let names: BTreeSet<&String> = pods.iter().filter_map(|pod| pod.labels.get(model::labels::NAMESPACE)).collect();
    names.into_iter().cloned().collect()
}
