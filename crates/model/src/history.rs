//! The history of engines: one row for each that ended, for people.

use crate::end::EndWord;
use crate::engine_name::EngineName;
use crate::owner::Owner;
use crate::slot::{Origin, SlotKey};

/// An engine that has ended. Times are those of the database's clock, in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRecord {
    pub name: EngineName,
    pub slot: SlotKey,
    /// Why its slot existed. `None`: it was issued by a version that did not record it.
    pub origin: Option<Origin>,
    /// To whom it was dedicated; `None` if the tenant shared it.
    pub owner: Option<Owner>,
    /// When its name was issued.
    pub wanted_at_ms: i64,
    pub reserved_at_ms: Option<i64>,
    /// When its uid was recorded.
    pub created_at_ms: Option<i64>,
    pub registered_at_ms: Option<i64>,
    pub ended_at_ms: i64,
    /// `None`: it was recorded by a version without words.
    pub word: Option<EndWord>,
    /// Of a start that failed, whether the same start may succeed later.
    pub retryable: Option<bool>,
    /// How it ended.
    pub reason: Option<String>,
    /// Why it was to end, if it was.
    pub ordered: Option<String>,
    /// The sessions that it had opened when its agent was last asked; `None` if that never happened.
    pub sessions_served: Option<i64>,
    /// What its tenant was charged: thousandths of a core, and bytes.
    pub charge: Option<(i64, i64)>,
}
