//! The limits of sessions of a tenant, and of running statements of a user and of a tenant.
//!
//! A statement runs from its admission until its end, also while it waits for an engine. The proxy learns the end of a statement
//! that its client polls from the reply to a poll, and otherwise from the close of the operation or the loss of its engine. Only
//! statements that engines execute count: a user at the limit can still look at them and stop them with control statements.
//!
//! A [`CountGuard`] is released when it is dropped. What is beyond a limit is refused with 54000 and has no effect.

use std::collections::HashMap;
use std::sync::Arc;

use hs2::{Limit, LimitHits};
use model::error::{ErrorKind, UserError};
use model::name::TenantName;
use parking_lot::Mutex;

use crate::settings::Limits;

/// The counts of one proxy.
pub(crate) struct Usage {
    sessions_of_tenant: Arc<KeyedLimit>,
    statements_of_user: Arc<KeyedLimit>,
    statements_of_tenant: Arc<KeyedLimit>,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    SessionsOfTenant,
    StatementsOfUser,
    StatementsOfTenant,
}

/// A limit that each user or tenant has.
#[derive(Debug)]
struct KeyedLimit {
    counted: Counted,
    limit: usize,
    hits: Arc<LimitHits>,
    counts: Mutex<HashMap<String, usize>>,
}

/// One session or statement that is counted.
#[derive(Debug)]
struct CountGuard {
    of: Arc<KeyedLimit>,
    key: String,
}

/// A session, counted for its tenant once that is known.
#[derive(Debug, Default)]
pub(crate) struct SessionCount(Option<CountGuard>);

/// A statement that runs, or waits for an engine.
#[derive(Debug)]
pub(crate) struct RunningStatement {
    _of_user: CountGuard,
    /// Once its tenant is known.
    of_tenant: Mutex<Option<CountGuard>>,
}

impl Usage {
    pub(crate) fn new(limits: &Limits) -> Self {
        let of = |counted, limit| {
            let hits = Arc::clone(&limits.wire.hits);
            Arc::new(KeyedLimit { counted, limit, hits, counts: Mutex::default() })
        };
        Self {
            sessions_of_tenant: of(Counted::SessionsOfTenant, limits.sessions_per_tenant),
            statements_of_user: of(Counted::StatementsOfUser, limits.statements_per_user),
            statements_of_tenant: of(Counted::StatementsOfTenant, limits.statements_per_tenant),
        }
    }

    /// Counts a statement of a user.
    pub(crate) fn statement_of(&self, user: &str) -> Result<Arc<RunningStatement>, UserError> {
        let of_user = self.statements_of_user.take(user)?;
        Ok(Arc::new(RunningStatement { _of_user: of_user, of_tenant: Mutex::default() }))
    }
}

impl SessionCount {
    /// Counts the session for this tenant, and no longer for the one before.
    pub(crate) fn count_for(&mut self, usage: &Usage, tenant: &TenantName) -> Result<(), UserError> {
        usage.sessions_of_tenant.move_to(&mut self.0, tenant.as_str())
    }
}

impl RunningStatement {
    /// Counts the statement for this tenant, too.
    pub(crate) fn count_for(&self, usage: &Usage, tenant: &TenantName) -> Result<(), UserError> {
        usage.statements_of_tenant.move_to(&mut self.of_tenant.lock(), tenant.as_str())
    }
}

impl KeyedLimit {
    fn take(self: &Arc<Self>, key: &str) -> Result<CountGuard, UserError> {
        let mut counts = self.counts.lock();
        let count = counts.get(key).copied().unwrap_or_default();
        if count >= self.limit {
            self.hits.hit(self.counted.limit());
            return Err(self.counted.refusal(key, self.limit));
        }
        counts.insert(key.to_owned(), count + 1);
        Ok(CountGuard { of: Arc::clone(self), key: key.to_owned() })
    }

    /// Counts one more of this key, in place of what `guard` counts, unless that is of the same key. A refusal leaves `guard` as it is.
    fn move_to(self: &Arc<Self>, guard: &mut Option<CountGuard>, key: &str) -> Result<(), UserError> {
        if guard.as_ref().is_none_or(|guard| guard.key != key) {
            *guard = Some(self.take(key)?);
        }
        Ok(())
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        let mut counts = self.of.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

impl Counted {
    const fn limit(self) -> Limit {
        match self {
            Self::SessionsOfTenant => Limit::SessionsPerTenant,
            Self::StatementsOfUser => Limit::StatementsPerUser,
            Self::StatementsOfTenant => Limit::StatementsPerTenant,
        }
    }

    fn refusal(self, key: &str, limit: usize) -> UserError {
        let (message, detail, hint) = match self {
            Self::SessionsOfTenant => (
                format!("tenant \"{key}\" has too many sessions"),
                format!("{limit} sessions are open at this proxy."),
                "Close sessions that are not used",
            ),
            Self::StatementsOfUser => (
                format!("user \"{key}\" has too many running statements"),
                format!("{limit} statements run at this proxy or wait for an engine."),
                "Retry when one of them has ended, and close statements that are not used",
            ),
            Self::StatementsOfTenant => (
                format!("tenant \"{key}\" has too many running statements"),
                format!("{limit} statements run at this proxy or wait for an engine."),
                "Retry when one of them has ended",
            ),
        };
        UserError::new(ErrorKind::ProgramLimit, message)
            .detail(detail)
            .hint(format!("{hint}. The limit is proxy.{}.", self.limit().name()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn usage() -> Usage {
        Usage::new(&Limits {
            sessions_per_tenant: 2,
            statements_per_user: 2,
            statements_per_tenant: 3,
            ..Limits::default()
        })
    }

    fn tenant(name: &str) -> TenantName {
        TenantName::new(name).unwrap()
    }

    #[test]
    fn a_session_counts_for_one_tenant_and_stays_there_if_the_next_is_full() {
        let (usage, one, two) = (usage(), tenant("t_1"), tenant("t_2"));
        let mut sessions = [SessionCount::default(), SessionCount::default(), SessionCount::default()];
        sessions[0].count_for(&usage, &one).unwrap();
        sessions[1].count_for(&usage, &one).unwrap();
        sessions[1].count_for(&usage, &one).unwrap();
        let refused = sessions[2].count_for(&usage, &one).unwrap_err();
        assert_eq!((refused.sqlstate(), refused.message.as_str()), ("54000", "tenant \"t_1\" has too many sessions"));
        assert!(refused.hint.unwrap().contains("proxy.max_sessions_per_tenant"));
        sessions[2].count_for(&usage, &two).unwrap();
        assert!(sessions[2].count_for(&usage, &one).is_err());
        assert_eq!(usage.sessions_of_tenant.counts.lock()["t_2"], 1);
        sessions[0].count_for(&usage, &two).unwrap();
        sessions[2].count_for(&usage, &one).unwrap();
        drop(sessions);
        assert!(usage.sessions_of_tenant.counts.lock().is_empty());
    }

    #[test]
    fn statements_count_for_user_and_tenant_until_they_are_dropped() {
        let (usage, one) = (usage(), tenant("t_1"));
        let of_ann = [usage.statement_of("ann").unwrap(), usage.statement_of("ann").unwrap()];
        let refused = usage.statement_of("ann").unwrap_err();
        assert_eq!(refused.message, "user \"ann\" has too many running statements");
        assert!(refused.hint.unwrap().contains("proxy.max_statements_per_user"));
        assert_eq!(usage.statements_of_user.hits.count(Limit::StatementsPerUser), 1);
        let of_bob = [usage.statement_of("bob").unwrap(), usage.statement_of("bob").unwrap()];
        for statement in of_ann.iter().chain(&of_bob[..1]) {
            statement.count_for(&usage, &one).unwrap();
        }
        let refused = of_bob[1].count_for(&usage, &one).unwrap_err();
        assert_eq!(refused.message, "tenant \"t_1\" has too many running statements");
        assert!(refused.hint.unwrap().contains("proxy.max_statements_per_tenant"));
        drop(of_ann);
        of_bob[1].count_for(&usage, &one).unwrap();
        drop(of_bob);
        assert!(usage.statements_of_user.counts.lock().is_empty());
        assert!(usage.statements_of_tenant.counts.lock().is_empty());
    }
}
