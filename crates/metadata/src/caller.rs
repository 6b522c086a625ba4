//! The user on whose behalf a statement runs.

use model::alteration::Source;
use model::rights::Subject;

/// A user with groups and roles, and how the statement reached the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub subject: Subject,
    pub source: Source,
}
