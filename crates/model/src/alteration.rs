//! An alteration: one CREATE, ALTER or DROP of a tenant, pool or unit on its way.
//!
//! Its outcome is a row of the database that is written once: commit and abort race for one primary key, and the
//! first wins. Nobody infers an outcome from absence or time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, UserError};
use crate::number::Generation;

/// The longest request or alteration id, in bytes.
pub const MAX_ID_BYTES: usize = 64;

/// The kinds of objects that admins define.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// Who runs engines.
    Tenant,
    /// Where engines run.
    ResourcePool,
    /// The template of an engine.
    ResourceUnit,
}

impl ObjectKind {
    /// The words of the control language: `RESOURCE POOL`.
    pub const fn keywords(self) -> &'static str {
        match self {
            Self::Tenant => "TENANT",
            Self::ResourcePool => "RESOURCE POOL",
            Self::ResourceUnit => "RESOURCE UNIT",
        }
    }

    /// The word of the database and of JSON: `resource_pool`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::ResourcePool => "resource_pool",
            Self::ResourceUnit => "resource_unit",
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tenant => "tenant",
            Self::ResourcePool => "resource pool",
            Self::ResourceUnit => "resource unit",
        })
    }
}

/// One object of the catalog by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name, valid for the kind.
    pub name: String,
}

impl ObjectRef {
    /// `tenant "t_1" does not exist`.
    pub fn undefined(&self) -> UserError {
        UserError::new(ErrorKind::UndefinedObject, format!("{self} does not exist"))
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.kind, self.name)
    }
}

/// The id of an alteration, or of a START, STOP or RESTART request: made by whoever first sends the statement, the
/// same with every retry, never used for another statement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId(String);

impl RequestId {
    /// Checks that the text can be an id: 1 to 64 of `A-Z a-z 0-9 _ -`, so that it can be a znode's name.
    pub fn new(text: impl Into<String>) -> Result<Self, UserError> {
        let text = text.into();
        let fits = (1..=MAX_ID_BYTES).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if fits {
            Ok(Self(text))
        } else {
            Err(UserError::new(ErrorKind::InvalidValue, "invalid request id")
                .detail("an id has 1 to 64 letters, digits, - and _"))
        }
    }

    /// The id's text.
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

/// How an alteration ended: written once, by whoever came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The catalog has changed.
    Committed,
    /// Nothing has changed, and nothing ever will under this id.
    Aborted,
}

impl Outcome {
    /// The word of the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Aborted => "aborted",
        }
    }

    /// Reads the word of the database.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Committed, Self::Aborted].into_iter().find(|it| it.as_str() == word)
    }
}

/// How far the engines have followed a committed alteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlterationProgress {
    /// Engines still differ from what it says.
    Converging,
    /// Every engine that it reaches has been created or condemned accordingly.
    Converged,
    /// The deadline passed before that; reconciliation goes on.
    Stalled,
    /// A newer committed alteration of the same object took over.
    Superseded,
}

impl AlterationProgress {
    /// The word of the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Converging => "converging",
            Self::Converged => "converged",
            Self::Stalled => "stalled",
            Self::Superseded => "superseded",
        }
    }

    /// Reads the word of the database.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Converging, Self::Converged, Self::Stalled, Self::Superseded].into_iter().find(|it| it.as_str() == word)
    }
}

/// A row of table `alteration`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterationRecord {
    /// Its id.
    pub id: RequestId,
    /// What it changes; `None` only for an aborted one whose alter node could not be read.
    pub object: Option<ObjectRef>,
    /// The object's generation that it was computed from; 0 for CREATE.
    pub base_generation: Generation,
    /// The highest number that its transaction drew; 0 when aborted.
    pub generation: Generation,
    /// The statement, secret values masked.
    pub statement: String,
    /// The user who said it.
    pub requested_by: String,
    /// When it was said, in milliseconds since 1970.
    pub requested_at_ms: i64,
    /// Committed or aborted.
    pub outcome: Outcome,
    /// Who decided: an agent's id, or `master <epoch>`.
    pub decided_by: String,
    /// When, by the database's clock, in milliseconds since 1970.
    pub decided_at_ms: i64,
    /// For a committed one, how far the engines have followed.
    pub progress: Option<AlterationProgress>,
    /// Why it stalled or was aborted.
    pub reason: Option<String>,
    /// When it stopped converging.
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

/// What is known of an alteration that is to be aborted: becomes its row, unless a commit came first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// Its id.
    pub id: RequestId,
    /// What it was to change; `None` if its alter node could not be read.
    pub object: Option<ObjectRef>,
    /// The object's generation that it was computed from; 0 for CREATE, and when unknown.
    pub base_generation: Generation,
    /// The statement, secret values masked; empty when unknown.
    pub statement: String,
    /// The user who said it; empty when unknown.
    pub requested_by: String,
    /// When it was said, in milliseconds since 1970; 0 when unknown.
    pub requested_at_ms: i64,
    /// Who aborts it: an agent's id, or `master <epoch>`.
    pub decided_by: String,
    /// Why.
    pub reason: String,
}
