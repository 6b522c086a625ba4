//! An alteration: one CREATE, ALTER or DROP of a tenant, pool, unit or quota.
//!
//! Its outcome is a database row that is written once: commit and abort race for one primary key, and the first wins.
//! The outcome is never inferred from absence or elapsed time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, UserError};
use crate::number::Generation;

/// The longest request or alteration id, in bytes.
pub const MAX_ID_BYTES: usize = 64;

/// The kinds of catalog objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// The users who share engines.
    Tenant,
    /// Where engines run.
    ResourcePool,
    /// The template of an engine.
    ResourceUnit,
    /// The limits of a tenant on a pool, of a user, or of a creator.
    ResourceQuota,
}

impl ObjectKind {
    pub const ALL: [Self; 4] = [Self::Tenant, Self::ResourcePool, Self::ResourceUnit, Self::ResourceQuota];

    /// The words of the control language: `RESOURCE POOL`.
    pub const fn keywords(self) -> &'static str {
        match self {
            Self::Tenant => "TENANT",
            Self::ResourcePool => "RESOURCE POOL",
            Self::ResourceUnit => "RESOURCE UNIT",
            Self::ResourceQuota => "RESOURCE QUOTA",
        }
    }

    /// The word of the database and of JSON: `resource_pool`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::ResourcePool => "resource_pool",
            Self::ResourceUnit => "resource_unit",
            Self::ResourceQuota => "resource_quota",
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tenant => "tenant",
            Self::ResourcePool => "resource pool",
            Self::ResourceUnit => "resource unit",
            Self::ResourceQuota => "resource quota",
        })
    }
}

/// One object of the catalog by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    pub kind: ObjectKind,
    /// Valid for the kind.
    pub name: String,
}

impl ObjectRef {
    /// The error `tenant "t_1" does not exist`.
    pub fn undefined(&self) -> UserError {
        UserError::new(ErrorKind::UndefinedObject, format!("{self} does not exist"))
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.kind, self.name)
    }
}

/// The id of an alteration, or of a START, STOP or RESTART request. The first sender of the statement makes it; every
/// retry carries the same id, and no other statement does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId(String);

impl RequestId {
    /// Checks that the text is a valid id: 1 to 64 of `A-Z a-z 0-9 _ -`, so that it can name a znode.
    pub fn new(text: impl Into<String>) -> Result<Self, UserError> {
        let text = text.into();
        let fits = (1..=MAX_ID_BYTES).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if fits {
            Ok(Self(text))
        } else {
            Err(UserError::new(ErrorKind::InvalidValue, "invalid request id")
                .detail("An id has 1 to 64 letters, digits, - and _."))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for RequestId {
    type Error = UserError;
    fn try_from(text: String) -> Result<Self, UserError> {
        Self::new(text)
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> String {
        id.0
    }
}

/// How an alteration ended. Written once, by the first of commit and abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The catalog has changed.
    Committed,
    /// Nothing has changed, and nothing ever will under this id.
    Aborted,
}

impl Outcome {
    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Aborted => "aborted",
        }
    }

    /// Parses the word in the database.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Committed, Self::Aborted].into_iter().find(|outcome| outcome.as_str() == word)
    }
}

/// How far the engines have followed a committed alteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlterationProgress {
    /// Engines still differ from the alteration.
    Converging,
    /// Every engine that it affects has been created or condemned accordingly.
    Converged,
    /// The deadline passed first; reconciliation continues.
    Stalled,
    /// A newer committed alteration of the same object took over.
    Superseded,
}

impl AlterationProgress {
    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Converging => "converging",
            Self::Converged => "converged",
            Self::Stalled => "stalled",
            Self::Superseded => "superseded",
        }
    }

    /// Parses the word in the database.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Converging, Self::Converged, Self::Stalled, Self::Superseded]
            .into_iter()
            .find(|progress| progress.as_str() == word)
    }
}

/// A row of table `alteration`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterationRecord {
    pub id: RequestId,
    /// What it changes; `None` only for an aborted one whose alter node could not be read.
    pub object: Option<ObjectRef>,
    /// The object's generation that it was computed from; 0 for CREATE.
    pub base_generation: Generation,
    /// The highest number that its transaction drew; 0 when aborted.
    pub generation: Generation,
    /// The statement, secret values masked.
    pub statement: String,
    /// The user who ran the statement.
    pub requested_by: String,
    /// When the statement was run, in milliseconds since 1970.
    pub requested_at_ms: i64,
    pub outcome: Outcome,
    /// The decider: an agent's id, or `master <epoch>`.
    pub decided_by: String,
    /// Of the decision, by the database's clock, in milliseconds since 1970.
    pub decided_at_ms: i64,
    /// Of a committed alteration.
    pub progress: Option<AlterationProgress>,
    /// Why it stalled or was aborted.
    pub reason: Option<String>,
    /// When it stopped converging, in milliseconds since 1970.
    pub finished_at_ms: Option<i64>,
}

impl AlterationRecord {
    /// Why the statement changed nothing, if it was committed as a no-op: only such a row is converged from the moment of
    /// its decision.
    pub fn note(&self) -> Option<&str> {
        let is_noop =
            self.progress == Some(AlterationProgress::Converged) && self.finished_at_ms == Some(self.decided_at_ms);
        self.reason.as_deref().filter(|_| is_noop)
    }
}

/// How a statement reached the metadata agent, as its proxy reports it, for the audit. A proxy of an earlier version reports
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// The user who impersonates the caller.
    pub via: Option<String>,
    /// The method that authenticated the user.
    pub method: Option<String>,
    /// The address of the proxy.
    pub proxy: Option<String>,
    /// The address of the client.
    pub client: Option<String>,
}

impl Source {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An alteration that is to be aborted. It becomes the alteration's row unless a commit came first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    pub id: RequestId,
    /// What it was to change; `None` if its alter node could not be read.
    pub object: Option<ObjectRef>,
    /// The object's generation that it was computed from; 0 for CREATE, and when unknown.
    pub base_generation: Generation,
    /// The statement, secret values masked; empty when unknown.
    pub statement: String,
    /// The user who ran the statement; empty when unknown.
    pub requested_by: String,
    /// How the statement reached the agent; empty when unknown.
    #[serde(default, skip_serializing_if = "Source::is_empty")]
    pub source: Source,
    /// When the statement was run, in milliseconds since 1970; 0 when unknown.
    pub requested_at_ms: i64,
    /// The process that aborts it: an agent's id, or `master <epoch>`.
    pub decided_by: String,
    pub reason: String,
}
