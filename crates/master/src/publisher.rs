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

/// The published rows with the warnings.
type Published = (Vec<Arc<ObservedEngine>>, ClusterWarnings);

/// The publisher of one term. What it published is unknown from before a write until the write has succeeded.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    /// `None` if they are unknown.
    published: Option<Published>,
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
        let (published, mut nodes, now) = (self.published.take(), std::mem::take(&mut self.nodes), ctx.clock());
        rows.truncate(MAX_PUBLISHED);
        let mut publication = match list {
            Some(list) => changes(published.as_ref(), &rows, &list.warnings),
            None => Publication { engines: clone_rows(&rows), ..Publication::default() },
        };
        publication.waits_for = waits_for;
        publication.after_tick_ms = Some(snapshot.master.last_tick_ms);
        let parts = split_parts(&mut publication, part_rows);
        if let Some(list) = list {
            publication.namespaces_in_use = Some(namespaces(&list.instances));
            publication.nodes = nodes.due(&snapshot.catalog, list.nodes.as_deref(), now);
        }
        for part in parts.iter().chain([&publication]) {
            ctx.publish(epoch, part).await?;
        }
        if let Some(sent) = publication.nodes {
            nodes.published(sent, now);
        }
        self.nodes = nodes;
        // Rows of a degraded plan are no base of a comparison: the next publication is complete.
        self.published = list.map(|list| (rows, list.warnings.clone()));
        Ok(())
    }
}

/// The publication of these rows: complete if the published ones are unknown, otherwise only the changes. The rows are
/// sorted by name, each name once.
fn changes(published: Option<&Published>, rows: &[Arc<ObservedEngine>], warnings: &ClusterWarnings) -> Publication {
    let Some((published, last_warnings)) = published else {
        return Publication {
            complete: true,
            engines: clone_rows(rows),
            cluster_warnings: Some(warnings.clone()),
            ..Publication::default()
        };
    };
    let cluster_warnings = (last_warnings != warnings).then(|| warnings.clone());
    let mut publication = Publication { cluster_warnings, ..Publication::default() };
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
    publication
}

fn clone_rows(rows: &[Arc<ObservedEngine>]) -> Vec<ObservedEngine> {
    rows.iter().map(|row| ObservedEngine::clone(row)).collect()
}

/// Takes the rows that exceed one transaction out of a publication, as parts that are sent before it: there may be thousands.
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
        let warnings = ClusterWarnings::default();
        let changes = |published: Option<&[Arc<ObservedEngine>]>, rows: &[Arc<ObservedEngine>]| {
            let published = published.map(|rows| (rows.to_vec(), warnings.clone()));
            let publication = changes(published.as_ref(), rows, &warnings);
            let names = |names: &[EngineName]| names.iter().map(EngineName::as_str).collect::<Vec<_>>().join(" ");
            let changed: Vec<EngineName> = publication.engines.iter().map(|row| row.name.clone()).collect();
            (publication.complete, names(&changed), names(&publication.gone))
        };
        let first = vec![row("b", None), row("d", None), row("f", None)];
        assert_eq!(changes(None, &first), (true, "b d f".to_owned(), String::new()), "the stored rows are unknown");
        assert_eq!(changes(Some(&first), &first), (false, String::new(), String::new()));
        let second = vec![row("a", None), row("d", Some("it drains")), row("e", None), row("f", None), row("g", None)];
        assert_eq!(changes(Some(&first), &second), (false, "a d e g".to_owned(), "b".to_owned()));
        assert_eq!(changes(Some(&second), &[]), (false, String::new(), "a d e f g".to_owned()));
    }
}
