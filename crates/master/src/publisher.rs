//! The publisher: writes the rows for SHOW at the end of a tick, only those that have changed.
//!
//! The rows that were published are a cache. If they are unknown, because a publication failed or this is the first one of
//! the term, the next publication is complete.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::number::Epoch;
use model::observation::{ClusterWarnings, ObservedEngine, Publication};
use model::snapshot::Snapshot;
use planner::Instance;

use crate::ctx::{ControllerCtx, Failure, InstanceList};
use crate::node_reporter::NodeReporter;

/// The most published engines, the first by name: more than an installation supports.
const MAX_PUBLISHED: usize = 20_000;

/// What a tick publishes.
#[derive(Debug)]
pub(crate) struct TickReport<'a> {
    pub snapshot: &'a Snapshot,
    /// One row for each engine, in the order of names.
    pub rows: Vec<Arc<ObservedEngine>>,
    /// What the master waits for.
    pub waits_for: Option<String>,
    /// The orchestrator's list. Without it the rows are only the few that a degraded plan has.
    pub list: Option<&'a InstanceList>,
}

/// The publisher of one term.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    /// The published rows with the warnings; `None` if they are unknown.
    published: Option<(Vec<Arc<ObservedEngine>>, ClusterWarnings)>,
    nodes: NodeReporter,
}

impl Publisher {
    /// Publishes a report in parts of at most so many rows, each with an effect's deadline.
    pub async fn publish(
        &mut self,
        ctx: &dyn ControllerCtx,
        epoch: Epoch,
        part_rows: usize,
        report: TickReport<'_>,
    ) -> Result<(), Failure> {
        let TickReport { snapshot, mut rows, waits_for, list } = report;
        rows.truncate(MAX_PUBLISHED);
        let Some(list) = list else {
            // The next list is not compared with these rows: its publication is complete.
            self.published = None;
            let engines = rows.into_iter().map(Arc::unwrap_or_clone).collect();
            let mut publication = Publication { engines, waits_for, ..Publication::default() };
            publication.after_tick_ms = Some(snapshot.master.last_tick_ms);
            return send(ctx, epoch, part_rows, &mut publication).await;
        };
        let mut publication = self.publication(&rows, waits_for, &list.warnings);
        publication.after_tick_ms = Some(snapshot.master.last_tick_ms);
        publication.namespaces_in_use = Some(namespaces(&list.instances));
        let now = ctx.clock();
        publication.nodes = self.nodes.due(&snapshot.catalog, list.nodes.as_deref(), now);
        let written = send(ctx, epoch, part_rows, &mut publication).await;
        self.published = written.is_ok().then(|| (rows, list.warnings.clone()));
        self.nodes.published(written.is_ok(), publication.nodes, now);
        written
    }

    /// The publication of these rows: complete at first, then only the changes. The rows are sorted by name, each name once.
    fn publication(
        &self,
        rows: &[Arc<ObservedEngine>],
        waits_for: Option<String>,
        warnings: &ClusterWarnings,
    ) -> Publication {
        let mut publication = Publication { waits_for, ..Publication::default() };
        match &self.published {
            None => {
                publication.complete = true;
                publication.engines = rows.iter().map(|row| ObservedEngine::clone(row)).collect();
                publication.cluster_warnings = Some(warnings.clone());
            }
            Some((published, last_warnings)) => {
                publication.cluster_warnings = (last_warnings != warnings).then(|| warnings.clone());
                let mut before = published.iter().peekable();
                for row in rows {
                    while let Some(gone) = before.next_if(|old| old.name < row.name) {
                        publication.gone.push(gone.name.clone());
                    }
                    if before.next_if(|old| old.name == row.name) != Some(row) {
                        publication.engines.push(ObservedEngine::clone(row));
                    }
                }
                publication.gone.extend(before.map(|old| old.name.clone()));
            }
        }
        publication
    }
}

/// Sends thousands of rows in parts, because each is one transaction.
async fn send(
    ctx: &dyn ControllerCtx,
    epoch: Epoch,
    part_rows: usize,
    publication: &mut Publication,
) -> Result<(), Failure> {
    for part in split_parts(publication, part_rows) {
        ctx.publish(epoch, &part).await?;
    }
    ctx.publish(epoch, publication).await
}

/// Takes the rows that exceed one transaction out of a publication, as parts that are sent before it.
fn split_parts(publication: &mut Publication, rows: usize) -> Vec<Publication> {
    let mut parts = Vec::new();
    while publication.engines.len() > rows.max(1) {
        let rest = publication.engines.split_off(rows.max(1));
        let engines = std::mem::replace(&mut publication.engines, rest);
        if publication.complete {
            publication.kept.extend(engines.iter().map(|row| row.name.clone()));
        }
        parts.push(Publication {
            engines,
            part: true,
            after_tick_ms: publication.after_tick_ms,
            ..Publication::default()
        });
    }
    parts
}

fn namespaces(instances: &[Instance]) -> Vec<String> {
    let labels = instances.iter().filter_map(|instance| instance.labels.get(model::labels::NAMESPACE));
    labels.collect::<BTreeSet<&String>>().into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::engine_name::EngineName;
    use model::engine_state::Phase;

    use super::*;

    fn row(name: &str, reason: Option<&str>) -> Arc<ObservedEngine> {
        Arc::new(ObservedEngine {
            name: EngineName::new(name).unwrap(),
            uid: None,
            phase: Phase::Running,
            reason: reason.map(str::to_owned),
            node: None,
            address: None,
            registered: true,
            answered: true,
            draining: false,
            sessions: None,
            running: None,
            started_at_ms: None,
            log_tail: None,
            labels: Arc::default(),
            details: Arc::default(),
        })
    }

    #[test]
    fn a_publication_has_new_changed_and_gone_rows() {
        let mut publisher = Publisher::default();
        let warnings = ClusterWarnings::default();
        let published = |publisher: &Publisher, rows: &[Arc<ObservedEngine>]| {
            let publication = publisher.publication(rows, None, &warnings);
            let names = |names: &[EngineName]| names.iter().map(EngineName::as_str).collect::<Vec<_>>().join(" ");
            let changed: Vec<EngineName> = publication.engines.iter().map(|row| row.name.clone()).collect();
            (publication.complete, names(&changed), names(&publication.gone))
        };
        let first = vec![row("b", None), row("d", None), row("f", None)];
        assert_eq!(published(&publisher, &first), (true, "b d f".to_owned(), String::new()));
        publisher.published = Some((first.clone(), warnings.clone()));
        assert_eq!(published(&publisher, &first), (false, String::new(), String::new()));
        let second = vec![row("a", None), row("d", Some("it drains")), row("e", None), row("f", None), row("g", None)];
        assert_eq!(published(&publisher, &second), (false, "a d e g".to_owned(), "b".to_owned()));
        publisher.published = Some((second, warnings.clone()));
        assert_eq!(published(&publisher, &[]), (false, String::new(), "a d e f g".to_owned()));
        publisher.published = None;
        assert!(published(&publisher, &first).0, "the stored rows are unknown");
    }
}
