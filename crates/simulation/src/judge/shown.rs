//! The judge of SHOW: every session that waits, and every engine that is not ready, has a reason there.

use std::collections::BTreeSet;
use std::time::Duration;

use model::shared::Shared;
use model::snapshot::EngineRecord;

use crate::session::{Phase, Session};
use crate::state::State;

/// Until then a reason is shown: a report, two ticks, and the calls of a tick.
const EXPLAINED: Duration = Duration::from_secs(30);

impl State {
    /// Checks what a tick has published.
    pub fn judge_shown(&mut self) {
        let now = self.now;
        // The database has other demand than there is, or the tick has read less than there is.
        if now < self.faults.stale_until + EXPLAINED || self.faults.is_frozen {
            self.shown.unexplained.clear();
            return;
        }
        let issued_before = self.database.state().now_ms - EXPLAINED.as_millis() as i64;
        let snapshot = self.database.state();
        let current = &self.judge.seen.current;
        let is_current = |record: &&Shared<EngineRecord>| current.contains(&record.incarnation);
        let mut old = snapshot.engines.iter().filter(|record| record.issued_at_ms <= issued_before).filter(is_current);
        if let Some(record) = old.find(|record| !self.shown.explains(&record.name)) {
            let row = self.shown.engines.get(&record.name);
            return self.violated(format!("SHOW does not explain why {} is not ready: {row:?}", record.name));
        }
        let waits = |session: &Session| session.phase == Phase::Waiting && !self.is_explained(session);
        let waiting: BTreeSet<u64> =
            self.sessions.iter().filter(|(_, session)| waits(session)).map(|(id, _)| *id).collect();
        self.shown.unexplained.retain(|id, _| waiting.contains(id));
        for id in waiting {
            // A tick whose engines were refused has published that they are on their way.
            let since = *self.shown.unexplained.entry(id).or_insert(now);
            if since + EXPLAINED < now {
                let key = self.sessions.get(&id).map(|session| session.key.clone());
                return self.violated(format!("a session of {key:?} waits, and SHOW has no reason"));
            }
        }
    }

    /// Whether SHOW has a reason why the session waits, or an engine that may serve it starts.
    fn is_explained(&self, session: &Session) -> bool {
        let is_listed = self.shown.unmet.iter().any(|unmet| unmet.key == session.key && !unmet.reason.is_empty());
        is_listed || self.has_engine_on_its_way(session)
    }

    /// Whether an engine that may serve the session is not registered yet.
    fn has_engine_on_its_way(&self, session: &Session) -> bool {
        let catalog = &self.database.state().catalog;
        let of_tenant = self.database.state().slots.iter().filter(|slot| slot.key.tenant == session.asked.key.tenant);
        let mut usable = of_tenant.filter(|slot| session.asked.may_use(&slot.key.link(), slot.owner.as_ref(), catalog));
        usable.any(|slot| self.nodes.registration(&slot.engine()).is_none())
    }
}
