//! The judge after a restore of the database: what it forgets, and what is left of the engines that the database has lost.

use model::demand_report::DemandReport;
use model::engine_name::EngineName;

use super::seen::Seen;
use crate::activity::Judge;
use crate::faults::STALE_DEMAND;
use crate::state::State;

impl State {
    /// Forgets what the database has lost; everything else is judged as before.
    pub fn judge_restored(&mut self) {
        let Self { judge, database, .. } = self;
        let Judge { outcomes, committed_at, lost, recorded, condemned_at, owners, lost_names, .. } = judge;
        lost.extend(outcomes.keys().filter(|id| database.outcome(id).is_none()).cloned());
        outcomes.retain(|id, _| database.outcome(id).is_some());
        committed_at.retain(|id, _| database.outcome(id).is_some());
        let engines = &database.state().engines;
        let has_uid = engines.iter().filter(|record| record.uid.is_some());
        *recorded = has_uid.map(|record| record.name.clone()).collect();
        condemned_at.retain(|engine, _| {
            let record = database.engine(engine);
            record.is_some_and(|record| record.end_reason.is_some() && record.ended_at_ms.is_none())
        });
        lost_names.extend(owners.keys().filter(|engine| database.engine(engine).is_none()).cloned());
        owners.retain(|engine, _| !lost_names.contains(engine));
        judge.seen = Seen::new(database);
        judge.uncharged.clear();
        judge.doubled.clear();
        judge.evidence = None;
        self.judge_whole();
    }

    /// Remembers a report that was recorded. If the database has lost the number of a later one, it has demand again that ended: a
    /// proxy without demand sends no report that would correct it before the lease ends.
    pub fn judge_reported(&mut self, report: &DemandReport, number_before: Option<i64>) {
        let newest = self.judge.reported.entry(report.proxy.clone()).or_insert(report.seq);
        let is_late = report.seq < *newest;
        *newest = report.seq.max(*newest);
        if is_late && number_before.is_none_or(|before| before < report.seq) {
            self.faults.stale_until = self.faults.stale_until.max(self.now + STALE_DEMAND);
        }
    }

    /// Checks the drain order of an engine without a row: one that was created from a newer generation than the database has is not
    /// touched.
    pub(super) fn judge_unknown(&mut self, engine: &EngineName) {
        self.activity.unknown += 1;
        let generation = self.database.state().catalog.generation;
        let Some(created_from) = self.agents.get(engine).map(|agent| agent.generation) else { return };
        if created_from > generation {
            self.violated(format!(
                "engine {engine} is drained, which was created from generation {created_from} and is unknown to the \
                 database at {generation}"
            ));
        }
    }
}
