//! A row of the audit: one control statement with its caller and outcome.

use model::alteration::{AlterationRecord, ObjectKind, Outcome, RequestId, Source};
use model::number::Generation;
use model::text::cut;

/// The maximum length of a stored statement, in bytes; longer ones are truncated.
pub const MAX_AUDIT_STATEMENT_BYTES: usize = 16 << 10;

/// How a control statement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditOutcome {
    /// It took effect.
    Committed,
    /// It succeeded and had nothing to change.
    Unchanged,
    /// An alteration that failed, or that a master aborted.
    Aborted,
    /// It was refused before it could change anything.
    Refused,
}

impl AuditOutcome {
    pub(crate) const ALL: [Self; 4] = [Self::Committed, Self::Unchanged, Self::Aborted, Self::Refused];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Unchanged => "unchanged",
            Self::Aborted => "aborted",
            Self::Refused => "refused",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }

    /// The second column of the key.
    pub(crate) const fn part(self) -> i64 {
        match self {
            Self::Committed | Self::Unchanged => 0,
            Self::Refused => 1,
            Self::Aborted => 2,
        }
    }
}

/// One control statement with its caller and outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub request: RequestId,
    /// By the database's clock, in milliseconds since 1970.
    pub at_ms: i64,
    pub user: String,
    pub source: Source,
    /// Secret values masked.
    pub statement: String,
    pub object: Option<String>,
    /// The tenant that the object is or belongs to.
    pub tenant: Option<String>,
    pub outcome: AuditOutcome,
    /// Of the error; `None` for a statement that succeeded, and for an alteration that a master aborted.
    pub sqlstate: Option<String>,
    /// The number that the statement drew.
    pub generation: Option<Generation>,
}

impl AuditRow {
    /// The row of an alteration with an outcome.
    pub(crate) fn of_alteration(record: &AlterationRecord, source: &Source, sqlstate: Option<&str>) -> Self {
        let is_committed = record.outcome == Outcome::Committed;
        let tenant = record.object.as_ref().filter(|object| object.kind == ObjectKind::Tenant);
        Self {
            request: record.id.clone(),
            at_ms: record.decided_at_ms,
            user: record.requested_by.clone(),
            source: source.clone(),
            statement: record.statement.clone(),
            object: record.object.as_ref().map(ToString::to_string),
            tenant: tenant.map(|object| object.name.clone()),
            outcome: match (is_committed, record.note()) {
                (true, None) => AuditOutcome::Committed,
                (true, Some(_)) => AuditOutcome::Unchanged,
                (false, _) => AuditOutcome::Aborted,
            },
            sqlstate: sqlstate.map(str::to_owned),
            generation: is_committed.then_some(record.generation),
        }
    }

    /// Logs the row after its COMMIT.
    pub(crate) fn log(&self) {
        let Source { via, method, proxy, client } = &self.source;
        tracing::info!(
            target: "audit",
            request = self.request.as_str(),
            user = self.user,
            via,
            method,
            proxy,
            client,
            statement = cut(&self.statement, MAX_AUDIT_STATEMENT_BYTES),
            object = self.object,
            tenant = self.tenant,
            outcome = self.outcome.as_str(),
            sqlstate = self.sqlstate,
            generation = self.generation.map(Generation::get),
            at_ms = self.at_ms,
            "control statement"
        );
    }
}
