//! STOP and RESTART, and what START has in common with them: one transaction each, idempotent by the request id.
//!
//! The transaction that carries out a request inserts its row with the answer, so a repeat, however late, returns the same answer
//! and does nothing. The permissions of the user are checked again here, because the statement depends on the list of users.

use std::fmt;
use std::time::Duration;

use model::alteration::RequestId;
use model::catalog::Catalog;
use model::end::EndOrder;
use model::engine_name::EngineName;
use model::error::UserError;
use model::failpoint;
use model::name::{PoolName, TenantName};
use model::number::Incarnation;
use model::rights::StatementKind;
use model::slot::{Replacement, Slot, SlotKey};
use model::text::cut;
use serde::{Deserialize, Serialize};

use crate::audit_row::{AuditOutcome, AuditRow};
use crate::backend::Mode;
use crate::caller::Caller;
use crate::catalog_lock::Drawn;
use crate::commit::{MAX_WORD_BYTES, other_statement, too_late};
use crate::error::Error;
use crate::failpoints;
use crate::read;
use crate::rows::{self, to_json};
use crate::slots::{self, Issue, Older};
use crate::sql;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction, args};
use crate::user_error;

pub(crate) const POINTS: CommitPoints =
    CommitPoints { before: failpoints::REQUEST_BEFORE, after: failpoints::REQUEST_AFTER };

/// The fields that the three statements share.
#[derive(Debug, Clone)]
pub struct Request {
    /// The same with every retry.
    pub id: RequestId,
    pub statement: String,
    pub caller: Caller,
    /// When it is refused, on the boot clock, which includes suspend time.
    pub deadline: Duration,
}

/// STOP ENGINE.
#[derive(Debug, Clone)]
pub struct StopRequest {
    pub request: Request,
    /// The pool that the statement names.
    pub pool: PoolName,
    pub engine: EngineName,
    /// How long running statements may continue; zero for FORCE.
    pub grace: Duration,
}

/// RESTART ENGINE.
#[derive(Debug, Clone)]
pub struct RestartRequest {
    pub request: Request,
    /// The pool that the statement names.
    pub pool: PoolName,
    pub engine: EngineName,
    /// How long running statements of the old engine may continue: of a stand-in once its replacement is ready, IN PLACE once its
    /// turn has come. Ignored with FORCE.
    pub grace: Duration,
    /// How the new engine takes over. The transaction condemns the old one only with FORCE.
    pub replacement: Replacement,
}

/// The effect of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestEffect {
    /// START added a slot with the engine.
    Started,
    /// STOP deleted the slot of the engine.
    Stopped,
    /// RESTART gave the slot a new incarnation, the engine.
    Restarted,
    /// RESTART of an engine that was restarted before: the engine is its successor, nothing was changed.
    InProgress,
    /// The slot of the engine is gone: it is no longer desired, nothing was changed.
    NoLongerWanted,
}

impl fmt::Display for RequestEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Restarted => "restarted",
            Self::InProgress => "restart in progress",
            Self::NoLongerWanted => "no longer wanted",
        })
    }
}

/// The answer to a request, the same for every repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineAnswer {
    pub effect: RequestEffect,
    pub engine: EngineName,
    pub slot: SlotKey,
    pub incarnation: Incarnation,
    /// What a started engine is short of, as a sentence: it is queued. `None` if nothing is, as far as the limits of its scopes
    /// decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
}

impl Store {
    /// STOP: deletes the slot of the engine and condemns its engines. Refused below `MIN_ENGINES`, and for an engine that was
    /// restarted.
    pub async fn stop(&self, stop: &StopRequest) -> Result<EngineAnswer, Error> {
        let mut tx = self.begin_for_catalog().await?;
        let result = self.stop_in(&mut tx, stop).await;
        tx.end(POINTS, result).await
    }

    /// RESTART: gives the slot a new incarnation; the engine stays as long as `replacement` demands.
    pub async fn restart(&self, restart: &RestartRequest) -> Result<EngineAnswer, Error> {
        let mut tx = self.begin_for_catalog().await?;
        let result = self.restart_in(&mut tx, restart).await;
        tx.end(POINTS, result).await
    }

    /// The answer to an earlier request; `None` if it never took effect.
    pub async fn request(&self, id: &RequestId) -> Result<Option<EngineAnswer>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let found = answered(&mut tx, id).await.map(|found| found.map(|(_, answer)| answer));
        tx.leave(found).await
    }

    async fn stop_in(&self, tx: &mut Transaction, stop: &StopRequest) -> Result<Done<EngineAnswer>, Error> {
        let drawn = tx.lock_catalog_and_draw().await?;
        if let Some(answer) = self.begin_request(tx, &stop.request).await? {
            return Ok(Done::Same(answer));
        }
        let catalog = read::catalog(tx).await?;
        let target = (&stop.pool, &stop.engine);
        let (slot, of_link) = match named(tx, &catalog, &stop.request.caller, StatementKind::StopEngine, target).await?
        {
            Named::Gone(answer) => return finish_request(tx, &stop.request, answer, drawn).await,
            Named::Restarted(slot) => {
                return Err(user_error::stop_of_restarted(&stop.pool, &stop.engine, &slot.engine()).into());
            }
            Named::Current { slot, of_link } => (slot, of_link),
        };
        let link = slot.key.link();
        let left = of_link.saturating_sub(1);
        if let Some(unit) = catalog.unit(&link.unit).filter(|unit| left < unit.min_engines as usize) {
            return Err(user_error::below_min(&link, &stop.engine, unit.min_engines).into());
        }
        failpoint!(failpoints::REQUEST_VALIDATED);
        let order = EndOrder::from(format!("stopped by \"{}\"", stop.request.caller.subject.user));
        slots::delete(tx, &slot.key, stop.grace, &order).await?;
        failpoint!(failpoints::REQUEST_WRITTEN);
        let Slot { key, incarnation, .. } = slot;
        let answer = EngineAnswer {
            effect: RequestEffect::Stopped,
            engine: stop.engine.clone(),
            slot: key,
            incarnation,
            short: None,
        };
        finish_request(tx, &stop.request, answer, drawn).await
    }

    async fn restart_in(&self, tx: &mut Transaction, restart: &RestartRequest) -> Result<Done<EngineAnswer>, Error> {
        let drawn = tx.lock_catalog_and_draw().await?;
        if let Some(answer) = self.begin_request(tx, &restart.request).await? {
            return Ok(Done::Same(answer));
        }
        let catalog = read::catalog(tx).await?;
        let target = (&restart.pool, &restart.engine);
        let slot = match named(tx, &catalog, &restart.request.caller, StatementKind::RestartEngine, target).await? {
            Named::Gone(answer) => return finish_request(tx, &restart.request, answer, drawn).await,
            Named::Restarted(Slot { key: slot, incarnation, .. }) => {
                let engine = slot.engine(incarnation);
                let answer = EngineAnswer { effect: RequestEffect::InProgress, engine, slot, incarnation, short: None };
                return finish_request(tx, &restart.request, answer, drawn).await;
            }
            Named::Current { slot, .. } => slot,
        };
        // Otherwise there would be no replacement, and with FORCE no engine.
        self.unless_nodes(&catalog, &slot.key.pool)?;
        failpoint!(failpoints::REQUEST_VALIDATED);
        let incarnation = Incarnation(drawn.last.get());
        let reason = format!("restarted with FORCE by \"{}\"", restart.request.caller.subject.user);
        let older = match restart.replacement {
            Replacement::Force => Older::Condemned { reason: &reason },
            // IN PLACE the master condemns it in the slot's turn.
            Replacement::StandIn | Replacement::InPlace => Older::StandIn { grace: restart.grace },
        };
        let issue = Issue { catalog: &catalog, defaults: &self.rules().defaults, now_ms: drawn.at_ms };
        if !slots::renew(tx, &issue, &slot, incarnation, (0, restart.replacement), older).await? {
            return Err(Error::Broken(format!("slot {} changed under the catalog lock", slot.key).into()));
        }
        failpoint!(failpoints::REQUEST_WRITTEN);
        let engine = slot.key.engine(incarnation);
        let answer =
            EngineAnswer { effect: RequestEffect::Restarted, engine, slot: slot.key, incarnation, short: None };
        finish_request(tx, &restart.request, answer, drawn).await
    }

    /// Refuses a new engine in a pool without nodes.
    pub(crate) fn unless_nodes(&self, catalog: &Catalog, pool: &PoolName) -> Result<(), UserError> {
        let needs_nodes = self.rules().defaults.instances.needs_nodes();
        match catalog.pool(pool).and_then(|spec| spec.lacks_nodes(needs_nodes)) {
            Some(reason) => Err(user_error::pool_lacks_nodes(pool, reason)),
            None => Ok(()),
        }
    }

    /// The answer to a repeat; an error for a request after its deadline.
    pub(crate) async fn begin_request(
        &self,
        tx: &mut Transaction,
        request: &Request,
    ) -> Result<Option<EngineAnswer>, Error> {
        failpoint!(failpoints::REQUEST_LOCKED);
        match answered(tx, &request.id).await? {
            Some((statement, _)) if statement != request.statement => Err(other_statement(&request.id)),
            Some((_, answer)) => Ok(Some(answer)),
            None if self.is_past(request.deadline) => Err(too_late().into()),
            None => Ok(None),
        }
    }
}

async fn answered(tx: &mut Transaction, id: &RequestId) -> Result<Option<(String, EngineAnswer)>, Error> {
    let Some(row) = tx.row(sql::REQUEST, args![id.as_str()]).await? else { return Ok(None) };
    let answer = serde_json::from_str(&rows::text(&row, "answer")?);
    let answer = answer.map_err(|error| Error::Broken(format!("answer of request {id}: {error}").into()))?;
    Ok(Some((rows::text(&row, "statement")?, answer)))
}

pub(crate) async fn finish_request(
    tx: &mut Transaction,
    request: &Request,
    answer: EngineAnswer,
    drawn: Drawn,
) -> Result<Done<EngineAnswer>, Error> {
    let now_ms = drawn.at_ms;
    let args = args![
        request.id.as_str(),
        request.statement.as_str(),
        answer.engine.as_str(),
        cut(&request.caller.subject.user, MAX_WORD_BYTES),
        to_json(&answer)?,
        now_ms,
    ];
    tx.execute(sql::REQUEST_INSERT, args).await?;
    let row = AuditRow {
        request: request.id.clone(),
        at_ms: now_ms,
        user: request.caller.subject.user.clone(),
        source: request.caller.source.clone(),
        statement: request.statement.clone(),
        object: Some(format!("engine \"{}\"", answer.engine)),
        tenant: Some(answer.slot.tenant.to_string()),
        outcome: match answer.effect {
            RequestEffect::Started | RequestEffect::Stopped | RequestEffect::Restarted => AuditOutcome::Committed,
            RequestEffect::InProgress | RequestEffect::NoLongerWanted => AuditOutcome::Unchanged,
        },
        sqlstate: None,
        generation: Some(drawn.last),
    };
    if !tx.audit(row).await? {
        return Err(other_statement(&request.id));
    }
    Ok(Done::Write(answer))
}

/// What the name of an engine refers to.
enum Named {
    /// The current engine of this slot, one of so many of its tenant, pool and unit.
    Current { slot: Slot, of_link: usize },
    /// An older engine of this slot.
    Restarted(Slot),
    /// An engine whose slot is gone.
    Gone(EngineAnswer),
}

async fn named(
    tx: &mut Transaction,
    catalog: &Catalog,
    caller: &Caller,
    statement: StatementKind,
    (pool, name): (&PoolName, &EngineName),
) -> Result<Named, Error> {
    let engine = read::engine(tx, name).await?;
    let tenant: Option<&TenantName> = engine.as_ref().map(|engine| &engine.slot.tenant);
    user_error::unless_allowed_engine(catalog, caller, statement, (tenant, name))?;
    let Some(engine) = engine else { return Err(user_error::no_engine(name).into()) };
    if engine.slot.pool != *pool {
        return Err(user_error::engine_of_other_pool(name, pool, &engine.slot.pool).into());
    }
    let slots = read::slots_of(tx, &engine.slot.link()).await?;
    let of_link = slots.len();
    Ok(match slots.into_iter().find(|slot| slot.key == engine.slot) {
        Some(slot) if slot.incarnation == engine.incarnation => Named::Current { slot, of_link },
        // A row that is newer than the engine is another slot with the same key.
        Some(slot) if slot.owns(engine.incarnation) => Named::Restarted(slot),
        _ => Named::Gone(EngineAnswer {
            effect: RequestEffect::NoLongerWanted,
            engine: engine.name,
            slot: engine.slot,
            incarnation: engine.incarnation,
            short: None,
        }),
    })
}
