//! The statements of the control language: parser and printer.
//!
//! One file per family parses and prints its statements; this one dispatches by the head and holds what they share.

mod alterations;
mod amounts;
mod audit;
mod change;
mod demand;
mod describe;
mod engine_history;
mod engines;
mod explain;
mod like;
mod limit;
mod options;
mod pools;
mod quotas;
mod reservations;
mod show;
mod tenants;
mod units;

use std::fmt;
use std::time::Duration;

use model::EngineName;
use model::alteration::{ObjectKind, ObjectRef};
use model::change::{Change, ObjectPatch};
use model::error::{ErrorKind, UserError};
use model::name::{PoolName, TenantName, UnitName};
use model::rights::StatementKind;
use model::secret::{MASK, SecretKeys};
use model::span;

pub use audit::AuditScope;
pub(crate) use change::printed as printed_options;
pub use engine_history::HistoryScope;
pub use engines::{EngineScope, Grace};
pub use limit::MAX_LIMIT;
pub use quotas::QuotaFilter;
pub use reservations::ReservationFilter;

use crate::cursor::Cursor;
use crate::error::{ParseError, Position};
use crate::near_miss::near_miss;
use crate::quote::quoted_string;
use crate::sniff::{Head, sniff_at};

/// The longest wait of a WAIT without a duration: the default start deadline.
pub const DEFAULT_WAIT: Duration = Duration::from_mins(5);

/// One control statement. Prints as canonical text on one line, including secret values: see [`masked_text`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// `SHOW ENGINES …`
    ShowEngines(EngineScope),
    /// `START ENGINE t_1 rp_1 uc_1`
    StartEngine {
        tenant: TenantName,
        pool: PoolName,
        unit: UnitName,
        /// Whether it is refused, rather than queued, if it cannot be granted at once.
        nowait: bool,
        /// How long to wait until the engine is ready; `None` returns at once.
        wait: Option<Duration>,
    },
    /// `RESTART ENGINE rp_1 'engine-name'`
    RestartEngine {
        pool: PoolName,
        engine: EngineName,
        /// Whether the new engine waits until the old one is gone, instead of the old one standing in. Never with
        /// [`Grace::Force`].
        in_place: bool,
        /// The grace period of the old engine.
        grace: Grace,
        /// How long to wait until the new engine is ready; `None` returns at once.
        wait: Option<Duration>,
    },
    /// `STOP ENGINE rp_1 'engine-name'`
    StopEngine {
        pool: PoolName,
        engine: EngineName,
        grace: Grace,
        /// How long to wait until the engine is gone; `None` returns at once.
        wait: Option<Duration>,
    },
    /// `DESCRIBE ENGINE rp_1 'engine-name'`
    DescribeEngine { pool: PoolName, engine: EngineName },
    /// `SHOW TENANTS`, `SHOW RESOURCE POOLS`, `SHOW RESOURCE UNITS`, `SHOW QUOTAS`
    ShowObjects {
        kind: ObjectKind,
        /// A pattern for the names: see [`crate::like_matches`].
        like: Option<String>,
    },
    /// `SHOW QUOTAS TENANT t_1` and the like.
    ShowQuotas {
        of: QuotaFilter,
        /// A pattern for the names.
        like: Option<String>,
    },
    /// `SHOW RESOURCE UNIT uc_1 FOR POOL`: the pools that offer the unit.
    ShowPoolsOfUnit { unit: UnitName },
    /// `SHOW RESOURCE POOL rp_1 FOR TENANT`: the tenants that use the pool.
    ShowTenantsOfPool { pool: PoolName },
    /// `DESCRIBE TENANT t_1` and the like.
    Describe(ObjectRef),
    /// `SHOW CREATE TENANT t_1` and the like.
    ShowCreate(ObjectRef),
    /// CREATE, ALTER or DROP of a tenant, pool, unit or quota.
    Change {
        change: Change,
        /// ALTER of a resource pool or unit only: whether engines are replaced without stand-ins.
        in_place: bool,
        /// How long to wait until the affected engines are ready or gone; `None` returns at once.
        wait: Option<Duration>,
    },
    /// `EXPLAIN {CREATE | ALTER | DROP} …`
    Explain {
        change: Change,
        /// As in [`Statement::Change`].
        in_place: bool,
    },
    /// `EXPLAIN START ENGINE t_1 rp_1 uc_1`
    ExplainStart { tenant: TenantName, pool: PoolName, unit: UnitName },
    /// `EXPLAIN RESTART ENGINE rp_1 'engine-name'`
    ExplainRestart {
        pool: PoolName,
        engine: EngineName,
        /// As in [`Statement::RestartEngine`].
        in_place: bool,
    },
    /// `SHOW RESERVATIONS`
    ShowReservations {
        of: Option<ReservationFilter>,
        /// Whether reservations that have ended are listed.
        all: bool,
        /// The most rows, from 1 to [`MAX_LIMIT`].
        limit: Option<u32>,
    },
    /// `SHOW DEMAND`
    ShowDemand {
        /// Only sessions of this tenant.
        tenant: Option<TenantName>,
        /// The most rows, from 1 to [`MAX_LIMIT`].
        limit: Option<u32>,
    },
    /// `SHOW ENGINE HISTORY t_1`
    ShowEngineHistory {
        scope: HistoryScope,
        /// The most rows, from 1 to [`MAX_LIMIT`].
        limit: Option<u32>,
    },
    /// `DESCRIBE RESERVATION 'id'`
    DescribeReservation { id: String },
    /// `CANCEL RESERVATION 'id'`
    CancelReservation { id: String },
    /// `SHOW ALTERATIONS`
    ShowAlterations {
        /// The most rows, from 1 to [`MAX_LIMIT`].
        limit: Option<u32>,
    },
    /// `SHOW AUDIT [FOR USER 'alice' | FOR TENANT t_1] [SINCE '1d']`
    ShowAudit {
        scope: AuditScope,
        /// The maximum age of a row.
        since: Option<Duration>,
        /// The most rows, from 1 to [`MAX_LIMIT`].
        limit: Option<u32>,
    },
    /// `SHOW MASTER`
    ShowMaster,
}

/// Parses a control statement. One `;` may end it.
///
/// Errors: 42601 with what was expected, 42602 for names, 22023 for values, 0A000 for values of later versions, 54000
/// for limits; each with its position. Text that is not a control statement is a syntax error: check it with
/// [`crate::sniff()`] first.
pub fn parse(text: &str) -> Result<Statement, ParseError> {
    let Some((head, end)) = sniff_at(text) else { return Err(not_ours(text)) };
    let mut cursor = Cursor::new(text, end)?;
    let cursor = &mut cursor;
    let statement = match head {
        Head::ShowEngines => engines::show(cursor)?,
        Head::StartEngine => engines::start(cursor)?,
        Head::RestartEngine => engines::restart(cursor)?,
        Head::StopEngine => engines::stop(cursor)?,
        Head::DescribeEngine => engines::describe(cursor)?,
        Head::ShowObjects(kind) => show::objects(cursor, kind)?,
        Head::ShowObjectFor(kind) => show::users_of(cursor, kind)?,
        Head::Describe(kind) => describe::describe(cursor, kind)?,
        Head::ShowCreate(kind) => describe::show_create(cursor, kind)?,
        Head::Change(verb, kind) => change::read(cursor, verb, kind)?,
        Head::Explain(verb, kind) => explain::read(cursor, verb, kind)?,
        Head::ExplainStart => explain::start(cursor)?,
        Head::ExplainRestart => explain::restart(cursor)?,
        Head::ShowReservations => reservations::show(cursor)?,
        Head::ShowDemand => demand::show(cursor)?,
        Head::ShowEngineHistory => engine_history::show(cursor)?,
        Head::DescribeReservation => Statement::DescribeReservation { id: reservations::read_id(cursor)? },
        Head::CancelReservation => Statement::CancelReservation { id: reservations::read_id(cursor)? },
        Head::ShowAlterations => alterations::show(cursor)?,
        Head::ShowAudit => audit::show(cursor)?,
        Head::ShowMaster => Statement::ShowMaster,
    };
    cursor.finish()?;
    Ok(statement)
}

fn not_ours(text: &str) -> ParseError {
    let error = UserError::new(ErrorKind::Syntax, "not a statement of the control language");
    let error = ParseError::at(Position { line: 1, column: 1, offset: 0 }, error);
    match near_miss(text) {
        Some(hint) => error.or_hint(hint),
        None => error,
    }
}

/// The statement as canonical text with masked secret values: for the alteration's node, its row, and logs. It is
/// equivalent to the statement, except that CREATE with a masked value is refused.
pub fn masked_text(statement: &Statement, keys: &SecretKeys) -> String {
    let mut shown = statement.clone();
    if let Statement::Change { change, .. } | Statement::Explain { change, .. } = &mut shown
        && let Change::Create { object, .. } | Change::Alter { object, .. } = change
        && let ObjectPatch::ResourceUnit(_, patch) = object
    {
        for (key, value) in &mut patch.properties.set {
            if value.is_some() && keys.is_secret(key) {
                *value = Some(MASK.to_owned());
            }
        }
    }
    shown.to_string()
}

/// Parses `[WAIT ['5m']]`.
fn read_wait(cursor: &mut Cursor<'_>) -> Result<Option<Duration>, ParseError> {
    if !cursor.eat("WAIT") {
        return Ok(None);
    }
    if cursor.at_scalar() {
        return cursor.span().map(Some);
    }
    cursor.could_be("a length of time such as '5m'");
    Ok(Some(DEFAULT_WAIT))
}

fn write_in_place(f: &mut fmt::Formatter<'_>, in_place: bool) -> fmt::Result {
    f.write_str(if in_place { " IN PLACE" } else { "" })
}

fn write_wait(f: &mut fmt::Formatter<'_>, wait: Option<Duration>) -> fmt::Result {
    match wait {
        Some(wait) => write!(f, " WAIT {}", quoted_string(&span::print(wait))),
        None => Ok(()),
    }
}

impl Statement {
    /// How long the statement waits for its effect; `None` if it does not wait.
    pub const fn wait(&self) -> Option<Duration> {
        match self {
            Self::StartEngine { wait, .. }
            | Self::RestartEngine { wait, .. }
            | Self::StopEngine { wait, .. }
            | Self::Change { wait, .. } => *wait,
            _ => None,
        }
    }

    /// Its kind in the rights table.
    pub const fn kind(&self) -> StatementKind {
        match self {
            Self::ShowEngines(_) | Self::ShowEngineHistory { .. } => StatementKind::ShowEngines,
            Self::StartEngine { .. } => StatementKind::StartEngine,
            Self::RestartEngine { .. } => StatementKind::RestartEngine,
            Self::StopEngine { .. } => StatementKind::StopEngine,
            Self::DescribeEngine { .. } => StatementKind::DescribeEngine,
            Self::ShowObjects { kind: ObjectKind::ResourceQuota, .. } | Self::ShowQuotas { .. } => {
                StatementKind::ShowQuotas
            }
            Self::ShowObjects { .. } => StatementKind::ShowObjects,
            Self::ShowPoolsOfUnit { .. } | Self::ShowTenantsOfPool { .. } => StatementKind::ShowObjectFor,
            Self::Describe(_) => StatementKind::Describe,
            Self::ShowCreate(_) => StatementKind::ShowCreate,
            Self::Change { change: Change::Create { .. }, .. } => StatementKind::Create,
            Self::Change { change: Change::Alter { .. }, .. } => StatementKind::Alter,
            Self::Change { change: Change::Drop { .. }, .. } => StatementKind::Drop,
            Self::Explain { .. } => StatementKind::Explain,
            Self::ExplainStart { .. } | Self::ExplainRestart { .. } => StatementKind::ExplainStart,
            Self::ShowReservations { .. } | Self::DescribeReservation { .. } => StatementKind::ShowReservations,
            Self::ShowDemand { .. } => StatementKind::ShowDemand,
            Self::CancelReservation { .. } => StatementKind::CancelReservation,
            Self::ShowAlterations { .. } => StatementKind::ShowAlterations,
            Self::ShowAudit { .. } => StatementKind::ShowAudit,
            Self::ShowMaster => StatementKind::ShowMaster,
        }
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShowEngines(scope) => engines::write_show(f, scope),
            Self::StartEngine { tenant, pool, unit, nowait, wait } => {
                engines::write_start(f, tenant, pool, unit)?;
                f.write_str(if *nowait { " NOWAIT" } else { "" })?;
                write_wait(f, *wait)
            }
            Self::RestartEngine { pool, engine, in_place, grace, wait } => {
                engines::write_engine(f, "RESTART", pool, engine)?;
                write_in_place(f, *in_place)?;
                engines::write_grace(f, *grace)?;
                write_wait(f, *wait)
            }
            Self::StopEngine { pool, engine, grace, wait } => {
                engines::write_engine(f, "STOP", pool, engine)?;
                engines::write_grace(f, *grace)?;
                write_wait(f, *wait)
            }
            Self::DescribeEngine { pool, engine } => engines::write_engine(f, "DESCRIBE", pool, engine),
            Self::ShowObjects { kind, like } => show::write_objects(f, *kind, like.as_deref()),
            Self::ShowQuotas { of, like } => quotas::write_show(f, of, like.as_deref()),
            Self::ShowPoolsOfUnit { unit } => show::write_pools_of_unit(f, unit),
            Self::ShowTenantsOfPool { pool } => show::write_tenants_of_pool(f, pool),
            Self::Describe(object) => describe::write(f, "DESCRIBE", object),
            Self::ShowCreate(object) => describe::write(f, "SHOW CREATE", object),
            Self::Change { change, in_place, wait } => {
                change::write(f, change)?;
                write_in_place(f, *in_place)?;
                write_wait(f, *wait)
            }
            Self::Explain { change, in_place } => {
                explain::write(f, change)?;
                write_in_place(f, *in_place)
            }
            Self::ExplainStart { tenant, pool, unit } => {
                f.write_str("EXPLAIN ")?;
                engines::write_start(f, tenant, pool, unit)
            }
            Self::ExplainRestart { pool, engine, in_place } => {
                f.write_str("EXPLAIN ")?;
                engines::write_engine(f, "RESTART", pool, engine)?;
                write_in_place(f, *in_place)
            }
            Self::ShowReservations { of, all, limit } => reservations::write_show(f, of.as_ref(), *all, *limit),
            Self::ShowDemand { tenant, limit } => demand::write_show(f, tenant.as_ref(), *limit),
            Self::ShowEngineHistory { scope, limit } => engine_history::write_show(f, scope, *limit),
            Self::DescribeReservation { id } => reservations::write_one(f, "DESCRIBE", id),
            Self::CancelReservation { id } => reservations::write_one(f, "CANCEL", id),
            Self::ShowAlterations { limit } => alterations::write_show(f, *limit),
            Self::ShowAudit { scope, since, limit } => audit::write_show(f, scope, *since, *limit),
            Self::ShowMaster => f.write_str("SHOW MASTER"),
        }
    }
}
