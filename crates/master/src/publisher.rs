//! The publisher: writes the rows for SHOW at the end of a tick, only those that have changed.
//!
//! The rows that were published are a cache. If they are unknown, because a publication failed or this is the first one of
//! the term, the next publication is complete.
//!
//! Each grant changes the position of every engine behind it in the queue. Of rows in which nothing else has changed, a bounded
//! number is published per second, in turns by name: a long queue costs the same in each second, and its texts are some seconds
//! old ([`QueueTurns`]).
//!
//! Since when an engine has been idle is no part of a plan, whose rows do not change with time. It is added here.

mod queue_turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::demand_report::UnmetDemand;
use model::engine_name::EngineName;
use model::in_order::InOrder;
use model::ledger::queue_position;
use model::number::Epoch;
use model::observation::{ClusterWarnings, ObservedEngine, Publication};
use model::snapshot::Snapshot;
use planner::EngineUse;

use self::queue_turns::QueueTurns;
use crate::ctx::{ControllerCtx, Failure, InstanceList};
use crate::node_reporter::NodeReporter;

/// The most published engines, the first by name: more than an installation supports.
const MAX_PUBLISHED: usize = 20_000;

/// Two readings of the time since which an engine has been idle that differ by less are the same one: an answer takes its time,
/// and the clocks of agent, master and database do not run alike.
const SAME_SINCE_MS: u64 = 2_000;

/// What a tick publishes.
#[derive(Debug)]
pub(crate) struct TickReport<'a> {
    pub snapshot: &'a Snapshot,
    /// One row for each engine, in the order of names.
    pub rows: Vec<Arc<ObservedEngine>>,
    /// What agents reported of their sessions, apart from the number.
    pub uses: &'a BTreeMap<EngineName, EngineUse>,
    /// What the master waits for.
    pub waits_for: Option<String>,
    /// The orchestrator's list. Without it the rows are only the few that a degraded plan has.
    pub list: Option<&'a InstanceList>,
    /// The demand that no engine was found for; `None` if the plan does not know it.
    pub unmet: Option<Vec<UnmetDemand>>,
}

/// What was published.
#[derive(Debug, Clone, Default)]
struct Published {
    /// The plan's rows.
    rows: Vec<Arc<ObservedEngine>>,
    /// What was added to them.
    uses: Uses,
    warnings: ClusterWarnings,
}

/// How sessions use an engine, as far as that is no part of the plan's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Use {
    /// In milliseconds since 1970; `None` while a session is open.
    idle_since_ms: Option<i64>,
    stateful: Option<u32>,
}

/// In the order of names.
type Uses = Vec<(EngineName, Use)>;

/// The publisher of one term. What it published is unknown from before a write until the write has succeeded.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    /// `None` if they are unknown.
    published: Option<Published>,
    turns: QueueTurns,
    nodes: NodeReporter,
    /// `None` if it is unknown.
    unmet: Option<Vec<UnmetDemand>>,
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
        let TickReport { snapshot, mut rows, uses, waits_for, list, unmet } = report;
        let (published, mut nodes, now) = (self.published.take(), std::mem::take(&mut self.nodes), ctx.clock());
        rows.truncate(MAX_PUBLISHED);
        let uses = published_uses(uses, published.as_ref().map(|published| &published.uses), snapshot.now_ms);
        self.turns.earn(now);
        let mut publication = match list {
            Some(list) => changes(published.as_ref(), &mut rows, &uses, &list.warnings, &mut self.turns),
            None => Publication { engines: with_uses(&rows, &uses), ..Publication::default() },
        };
        let last_unmet = self.unmet.take();
        publication.unmet = unmet.clone().filter(|unmet| last_unmet.as_ref() != Some(unmet));
        publication.waits_for = waits_for;
        publication.after_tick_ms = Some(snapshot.master.last_tick_ms);
        let parts = split_parts(&mut publication, part_rows);
        if let Some(list) = list {
            publication.namespaces_in_use = Some(list.namespaces.iter().map(ToString::to_string).collect());
            publication.nodes = nodes.due(&snapshot.catalog, list.nodes.as_deref(), now);
        }
        for part in parts.iter().chain([&publication]) {
            ctx.publish(epoch, part).await?;
        }
        if let Some(sent) = publication.nodes {
            nodes.published(sent, now);
        }
        self.nodes = nodes;
        self.unmet = unmet;
        // Rows of a degraded plan are no base of a comparison: the next publication is complete.
        self.published = list.map(|list| Published { rows, uses, warnings: list.warnings.clone() });
        Ok(())
    }
}

/// What the reports of agents add to rows. A reading that hardly differs from the published one does not replace it.
fn published_uses(seen: &BTreeMap<EngineName, EngineUse>, last: Option<&Uses>, now_ms: i64) -> Uses {
    let mut last = last.map(|last| InOrder::new(by_name(last)));
    let of = |(name, seen): (&EngineName, &EngineUse)| {
        let idle_ms = i64::try_from(seen.idle_for.as_millis()).unwrap_or(i64::MAX);
        let since = (idle_ms > 0).then(|| now_ms.saturating_sub(idle_ms));
        let published = last.as_mut().and_then(|last| last.get(name)?.idle_since_ms);
        let same = published.filter(|at| since.is_some_and(|since| since.abs_diff(*at) < SAME_SINCE_MS));
        (name.clone(), Use { idle_since_ms: same.or(since), stateful: seen.stateful })
    };
    seen.iter().map(of).collect()
}

/// The row with what is added to it. An engine whose load is unknown has not answered: what it reported before may be over.
fn with_use(row: &ObservedEngine, uses: &Uses) -> ObservedEngine {
    let Use { idle_since_ms, stateful } = use_of(row, found(uses, &row.name));
    ObservedEngine { idle_since_ms, stateful, ..row.clone() }
}

fn by_name(uses: &Uses) -> impl Iterator<Item = (&EngineName, &Use)> {
    uses.iter().map(|(name, seen)| (name, seen))
}

fn found<'a>(uses: &'a Uses, name: &EngineName) -> Option<&'a Use> {
    let at = uses.binary_search_by(|(other, _)| other.cmp(name)).ok()?;
    Some(&uses[at].1)
}

fn use_of(row: &ObservedEngine, seen: Option<&Use>) -> Use {
    row.sessions.and(seen).copied().unwrap_or_default()
}

/// The publication of these rows: complete if the published ones are unknown, otherwise only the changes. The rows are
/// sorted by name, each name once. Afterwards they are those that the publication leads to: the ones that it leaves for the next
/// tick are as they were.
fn changes(
    published: Option<&Published>,
    rows: &mut [Arc<ObservedEngine>],
    uses: &Uses,
    warnings: &ClusterWarnings,
    turns: &mut QueueTurns,
) -> Publication {
    let Some(published) = published else {
        return Publication {
            complete: true,
            engines: with_uses(rows, uses),
            cluster_warnings: Some(warnings.clone()),
            ..Publication::default()
        };
    };
    let cluster_warnings = (published.warnings != *warnings).then(|| warnings.clone());
    let mut publication = Publication { cluster_warnings, ..Publication::default() };
    let mut reasons = Vec::new();
    let (mut uses_now, mut uses_before) = (InOrder::new(by_name(uses)), InOrder::new(by_name(&published.uses)));
    let mut before = published.rows.iter().peekable();
    for (at, row) in rows.iter().enumerate() {
        while let Some(gone) = before.next_if(|old| old.name < row.name) {
            publication.gone.push(gone.name.clone());
        }
        let is_same_use = use_of(row, uses_now.get(&row.name)) == use_of(row, uses_before.get(&row.name));
        match before.next_if(|old| old.name == row.name) {
            Some(old) if old == row && is_same_use => {}
            Some(old) if is_only_moved_in_queue(old, row) => reasons.push((at, old)),
            _ => publication.engines.push(with_use(row, uses)),
        }
    }
    publication.gone.extend(before.map(|old| old.name.clone()));
    let (moved, left) = turns.take(reasons, rows);
    publication.engines.extend(moved.iter().map(|(at, _)| ObservedEngine::clone(&rows[*at])));
    for (at, old) in left {
        rows[at] = Arc::clone(old);
    }
    publication
}

/// Whether the engine was and is queued, and nothing but the reason has changed.
fn is_only_moved_in_queue(old: &ObservedEngine, row: &ObservedEngine) -> bool {
    let is_queued = |engine: &ObservedEngine| engine.reason.as_deref().and_then(queue_position).is_some();
    is_queued(old) && is_queued(row) && ObservedEngine { reason: old.reason.clone(), ..row.clone() } == *old
}

fn with_uses(rows: &[Arc<ObservedEngine>], uses: &Uses) -> Vec<ObservedEngine> {
    rows.iter().map(|row| with_use(row, uses)).collect()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use model::engine_state::Phase;

    use super::queue_turns::MAX_QUEUE_REASONS;
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
            idle_since_ms: None,
            stateful: None,
            started_at_ms: None,
            log_tail: None,
            labels: Arc::default(),
            details: Arc::default(),
        })
    }

    #[test]
    fn a_publication_has_new_changed_and_gone_rows() {
        let changes = |published: Option<&[Arc<ObservedEngine>]>, rows: &[Arc<ObservedEngine>]| {
            let published = published.map(|rows| Published { rows: rows.to_vec(), ..Published::default() });
            let none = (Uses::new(), ClusterWarnings::default());
            let publication =
                changes(published.as_ref(), &mut rows.to_vec(), &none.0, &none.1, &mut QueueTurns::default());
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

    #[test]
    fn a_long_queue_is_published_in_turns() {
        const QUEUED: usize = 2 * MAX_QUEUE_REASONS + 100;
        let none = (Uses::new(), ClusterWarnings::default());
        let queue = |granted: usize| -> Vec<Arc<ObservedEngine>> {
            let reason = |at: usize| format!("queued at position {}: asked 1, left 0", QUEUED + 1 - at - granted);
            (0..QUEUED - granted).map(|at| row(&format!("e-{at:04}"), Some(&reason(at)))).collect()
        };
        let (mut published, mut turns) = (Published { rows: queue(0), ..Published::default() }, QueueTurns::default());
        let mut publish = |now_ms: u64, mut rows: Vec<Arc<ObservedEngine>>| {
            turns.earn(Duration::from_millis(now_ms));
            let publication = changes(Some(&published), &mut rows, &none.0, &none.1, &mut turns);
            // Exactly what is stored is compared with the next rows.
            let mut stored: BTreeMap<EngineName, Arc<ObservedEngine>> =
                published.rows.iter().map(|row| (row.name.clone(), Arc::clone(row))).collect();
            stored.retain(|name, _| !publication.gone.contains(name));
            stored.extend(publication.engines.iter().map(|row| (row.name.clone(), Arc::new(row.clone()))));
            assert!(stored.values().eq(rows.iter()));
            published.rows = rows;
            (publication.engines.len(), publication.gone.len(), published.rows.clone())
        };
        // The last one is granted, and each other one moves up.
        let (engines, gone, _) = publish(10_000, queue(1));
        assert_eq!((engines, gone), (MAX_QUEUE_REASONS, 1));
        let (engines, gone, _) = publish(10_100, queue(1));
        assert_eq!((engines, gone), (100, 0), "a thousand in each second");
        assert_eq!(publish(10_500, queue(1)).0, 400);
        let (engines, _, rows) = publish(10_600, queue(1));
        assert_eq!(engines, 99);
        assert_eq!(rows, queue(1), "all are as they should be");
        assert_eq!(publish(11_000, queue(1)).0, 0);
        // What is more than a place in the queue never waits.
        let mut rows = queue(2);
        for engine in &mut rows {
            *engine = row(engine.name.as_str(), Some("waits to be scheduled"));
        }
        let (engines, _, published) = publish(11_000, rows.clone());
        assert_eq!((engines, published), (rows.len(), rows));
    }

    #[test]
    fn the_start_of_idleness_is_published_once_and_ends_with_it() {
        let named = |name: &str| EngineName::new(name).unwrap();
        let with_sessions = |name: &str, sessions: Option<u32>| {
            Arc::new(ObservedEngine { sessions, ..ObservedEngine::clone(&row(name, None)) })
        };
        let idle = |idle_ms: u64, stateful| {
            let idle_for = Duration::from_millis(idle_ms);
            BTreeMap::from([(named("e"), EngineUse { idle_for, stateful, ..EngineUse::default() })])
        };
        let mut published = Published { rows: vec![with_sessions("e", Some(0))], ..Published::default() };
        let mut publish = |sessions, idle: &BTreeMap<EngineName, EngineUse>, now_ms| {
            let mut rows = vec![with_sessions("e", sessions)];
            let uses = published_uses(idle, Some(&published.uses), now_ms);
            let publication =
                changes(Some(&published), &mut rows, &uses, &ClusterWarnings::default(), &mut QueueTurns::default());
            published = Published { rows, uses, ..Published::default() };
            publication.engines.first().map(|row| (row.idle_since_ms, row.stateful))
        };
        assert_eq!(publish(Some(0), &idle(500, Some(0)), 10_000), Some((Some(9_500), Some(0))));
        assert_eq!(publish(Some(0), &idle(6_000, Some(0)), 16_400), None, "10,400 is the same reading");
        assert_eq!(publish(Some(0), &idle(12_000, Some(0)), 21_500), None, "and is compared with the published one");
        assert_eq!(publish(Some(1), &idle(0, Some(1)), 22_000), Some((None, Some(1))));
        assert_eq!(publish(Some(0), &idle(400, Some(0)), 30_000), Some((Some(29_600), Some(0))));
        assert_eq!(publish(None, &idle(2_400, Some(0)), 32_000), Some((None, None)), "its agent did not answer");
    }
}
