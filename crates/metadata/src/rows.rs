//! Decoding of rows. A row that cannot be decoded is [`Error::Broken`]: it was not written by this program.

use model::alteration::{AlterationProgress, AlterationRecord, ObjectKind, ObjectRef, Outcome, RequestId};
use model::catalog::Versioned;
use model::end::EndWord;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::error::UserError;
use model::name::{PoolName, TenantName, UnitName};
use model::number::{Epoch, Generation, Incarnation};
use model::observation::{ClusterWarnings, ObservedEngine, ObservedNode};
use model::owner::Owner;
use model::slot::{Origin, Replacement, Slot, SlotKey, StartedFor};
use model::snapshot::{EngineRecord, MasterRecord};
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::error::Error;

/// A row of `observed_engine`: an engine as a master last observed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedRow {
    pub engine: ObservedEngine,
    /// By the database's clock, in milliseconds since 1970.
    pub observed_at_ms: i64,
    /// The epoch of that master.
    pub epoch: Epoch,
}

fn broken(what: &str, reason: impl std::fmt::Display) -> Error {
    Error::Broken(format!("{what}: {reason}").into())
}

fn user(error: &UserError) -> Error {
    Error::Broken(error.text().into())
}

pub(crate) fn int(row: &AnyRow, column: &str) -> Result<i64, Error> {
    row.try_get(column).map_err(|error| broken(column, error))
}

pub(crate) fn int_or_none(row: &AnyRow, column: &str) -> Result<Option<i64>, Error> {
    row.try_get(column).map_err(|error| broken(column, error))
}

pub(crate) fn text(row: &AnyRow, column: &str) -> Result<String, Error> {
    row.try_get(column).map_err(|error| broken(column, error))
}

pub(crate) fn text_or_none(row: &AnyRow, column: &str) -> Result<Option<String>, Error> {
    row.try_get(column).map_err(|error| broken(column, error))
}

fn count(row: &AnyRow, column: &str) -> Result<u32, Error> {
    u32::try_from(int(row, column)?).map_err(|error| broken(column, error))
}

fn count_or_none(row: &AnyRow, column: &str) -> Result<Option<u32>, Error> {
    int_or_none(row, column)?.map(u32::try_from).transpose().map_err(|error| broken(column, error))
}

fn json<T: DeserializeOwned>(row: &AnyRow, column: &str) -> Result<T, Error> {
    serde_json::from_str(&text(row, column)?).map_err(|error| broken(column, error))
}

pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| broken("a value", error))
}

pub(crate) fn object<N, S>(
    row: &AnyRow,
    name: impl Fn(String) -> Result<N, UserError>,
) -> Result<(N, Versioned<S>), Error>
where
    S: DeserializeOwned,
{
    let spec = Versioned { spec: json(row, "spec")?, generation: Generation(int(row, "generation")?) };
    Ok((name(text(row, "name")?).map_err(|error| user(&error))?, spec))
}

pub(crate) fn slot_key(row: &AnyRow) -> Result<SlotKey, Error> {
    Ok(SlotKey {
        tenant: TenantName::new(text(row, "tenant")?).map_err(|error| user(&error))?,
        pool: PoolName::new(text(row, "pool")?).map_err(|error| user(&error))?,
        unit: UnitName::new(text(row, "unit")?).map_err(|error| user(&error))?,
        ordinal: count(row, "ordinal")?,
    })
}

fn replacement(row: &AnyRow) -> Result<Replacement, Error> {
    let number = int(row, "forced")?;
    Replacement::from_number(number).ok_or_else(|| broken("forced", number))
}

fn owner(row: &AnyRow) -> Result<Option<Owner>, Error> {
    let (kind, name) = (text(row, "owner_kind")?, text(row, "owner")?);
    if kind.is_empty() {
        return Ok(None);
    }
    Owner::from_parts(&kind, name).map(Some).ok_or_else(|| broken("owner_kind", kind))
}

pub(crate) fn slot(row: &AnyRow) -> Result<Slot, Error> {
    let origin = text(row, "origin")?;
    let (user, creator) = (text(row, "usr")?, text(row, "creator")?);
    Ok(Slot {
        key: slot_key(row)?,
        incarnation: Incarnation(int(row, "incarnation")?),
        origin: Origin::from_word(&origin).ok_or_else(|| broken("origin", origin))?,
        failures: count(row, "failures")?,
        replacement: replacement(row)?,
        born: Incarnation(int(row, "born")?),
        started_for: (!user.is_empty()).then_some(StartedFor { user, creator }),
        owner: owner(row)?,
        asked_at_ms: int(row, "asked_at_ms")?,
    })
}

pub(crate) fn engine_name(row: &AnyRow) -> Result<EngineName, Error> {
    EngineName::new(text(row, "name")?).map_err(|error| user(&error))
}

/// The word of an engine's end, if it has one.
pub(crate) fn end_word(row: &AnyRow) -> Result<Option<EndWord>, Error> {
    let Some(word) = text_or_none(row, "ended_word")? else { return Ok(None) };
    EndWord::from_word(&word).map(Some).ok_or_else(|| broken("ended_word", word))
}

/// An engine's row with the last lines of its log.
pub(crate) fn engine_with_log(row: &AnyRow) -> Result<EngineRecord, Error> {
    Ok(EngineRecord { log_tail: text_or_none(row, "log_tail")?, ..engine(row)? })
}

/// An engine's row without the last lines of its log, as in a snapshot.
pub(crate) fn engine(row: &AnyRow) -> Result<EngineRecord, Error> {
    Ok(EngineRecord {
        name: engine_name(row)?,
        slot: slot_key(row)?,
        incarnation: Incarnation(int(row, "incarnation")?),
        uid: text_or_none(row, "uid")?,
        config: text(row, "config")?,
        issued_at_ms: int(row, "issued_at_ms")?,
        started_at_ms: int_or_none(row, "started_at_ms")?,
        end_grace_ms: int_or_none(row, "end_grace_ms")?,
        end_reason: text_or_none(row, "end_reason")?,
        ended_at_ms: int_or_none(row, "ended_at_ms")?,
        ended_reason: text_or_none(row, "ended_reason")?,
        ended_word: end_word(row)?,
        retryable: int_or_none(row, "retryable")?.map(|retryable| retryable != 0),
        log_tail: None,
        failure_before: None,
    })
}

fn object_kind(word: &str) -> Result<ObjectKind, Error> {
    ObjectKind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| broken("object_kind", word))
}

pub(crate) fn alteration(row: &AnyRow) -> Result<AlterationRecord, Error> {
    let (outcome, progress) = (text(row, "outcome")?, text_or_none(row, "progress")?);
    let object = match (text_or_none(row, "object_kind")?, text_or_none(row, "object_name")?) {
        (Some(kind), Some(name)) => Some(ObjectRef { kind: object_kind(&kind)?, name }),
        _ => None,
    };
    Ok(AlterationRecord {
        id: RequestId::new(text(row, "id")?).map_err(|error| user(&error))?,
        object,
        base_generation: Generation(int(row, "base_generation")?),
        generation: Generation(int(row, "generation")?),
        statement: text(row, "statement")?,
        requested_by: text(row, "requested_by")?,
        requested_at_ms: int(row, "requested_at_ms")?,
        outcome: Outcome::from_word(&outcome).ok_or_else(|| broken("outcome", outcome))?,
        decided_by: text(row, "decided_by")?,
        decided_at_ms: int(row, "decided_at_ms")?,
        progress: match progress {
            None => None,
            Some(word) => Some(AlterationProgress::from_word(&word).ok_or_else(|| broken("progress", word))?),
        },
        reason: text_or_none(row, "reason")?,
        finished_at_ms: int_or_none(row, "finished_at_ms")?,
    })
}

pub(crate) fn master(row: &AnyRow) -> Result<MasterRecord, Error> {
    Ok(MasterRecord {
        epoch: Epoch(int(row, "epoch")?),
        holder: text(row, "holder")?,
        since_ms: int(row, "since_ms")?,
        last_tick_ms: int(row, "last_tick_ms")?,
        waits_for: text_or_none(row, "waits_for")?,
        cluster_warnings: match text_or_none(row, "surroundings")? {
            None => ClusterWarnings::default(),
            Some(text) => serde_json::from_str(&text).map_err(|error| broken("surroundings", error))?,
        },
    })
}

pub(crate) fn node(row: &AnyRow) -> Result<ObservedNode, Error> {
    // The column is the key; the JSON has the same name.
    Ok(ObservedNode { name: text(row, "name")?, ..json(row, "facts")? })
}

pub(crate) fn observed(row: &AnyRow) -> Result<ObservedRow, Error> {
    let phase = text(row, "phase")?;
    let engine = ObservedEngine {
        name: engine_name(row)?,
        uid: text_or_none(row, "uid")?,
        phase: Phase::from_word(&phase).ok_or_else(|| broken("phase", phase))?,
        reason: text_or_none(row, "reason")?,
        node: text_or_none(row, "node")?,
        address: text_or_none(row, "address")?,
        registered: int(row, "registered")? != 0,
        draining: int(row, "draining")? != 0,
        sessions: count_or_none(row, "sessions")?,
        running: count_or_none(row, "running")?,
        idle_since_ms: int_or_none(row, "idle_since_ms")?,
        stateful: count_or_none(row, "stateful")?,
        started_at_ms: int_or_none(row, "started_at_ms")?,
        log_tail: text_or_none(row, "log_tail")?,
        labels: json(row, "labels")?,
        // Null in a row that was written before schema version 2.
        details: match text_or_none(row, "details")? {
            Some(text) => serde_json::from_str(&text).map_err(|error| broken("details", error))?,
            None => std::sync::Arc::default(),
        },
        // Null, and so unknown, in a row that was written before schema version 3.
        answered: int_or_none(row, "answered")?.is_none_or(|answered| answered != 0),
    };
    Ok(ObservedRow { engine, observed_at_ms: int(row, "observed_at_ms")?, epoch: Epoch(int(row, "epoch")?) })
}
