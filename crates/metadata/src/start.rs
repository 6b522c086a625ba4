//! START ENGINE: one transaction that adds a slot, idempotent by the request id.
//!
//! The slot names the user and the client application that its engines are charged to. Their scopes are inserted before,
//! in a transaction of their own; a user whose statement is refused for another reason adds none.
//!
//! The slot's owner is the user, or its first group, if the unit is shared by one of them. On a unit shared by session START is
//! refused: an engine without a session would be of no use to any.
//!
//! A request that can never fit with the current limits is refused. Limits change only under the catalog lock, which this
//! transaction holds, so they are read without locks of their own. With NOWAIT the engine's reservation is decided under
//! the locks of its scopes and inserted in the same transaction: the master creates the engine without another request.
//! Its pods must also find nodes, as far as they are known.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::catalog::{Catalog, UnitSpec};
use model::charge::Charge;
use model::configuration::Configuration;
use model::desired;
use model::error::{ErrorKind, UserError};
use model::failpoint;
use model::instance::InstanceKind;
use model::ledger::{self, Ledger, Moment, Refusal, Role, ScopeKey, Scopes};
use model::millis;
use model::name::UnitName;
use model::number::{Epoch, Incarnation};
use model::owner::Owner;
use model::quota::Limit;
use model::resource::Component;
use model::rights::{StatementKind, Subject};
use model::slot::{Link, Origin, Replacement, Slot, SlotKey, StartedFor};
use model::text::cut;

use crate::caller::Caller;
use crate::commit::MAX_WORD_BYTES;
use crate::error::{ATTEMPTS, Error};
use crate::failpoints;
use crate::ledger::Loaded;
use crate::node_fit;
use crate::read;
use crate::remedy::remedy;
use crate::request::{EngineAnswer, POINTS, Request, RequestEffect, finish_request};
use crate::slots::{self, Issue};
use crate::store::Store;
use crate::transaction::{Done, Transaction};
use crate::user_error;

/// START ENGINE.
#[derive(Debug, Clone)]
pub struct StartRequest {
    pub request: Request,
    pub link: Link,
    /// The client application, which the engines are charged to with the user of the request. Not empty; a long name is
    /// truncated.
    pub creator: String,
    /// Refuses the request unless its reservation is granted now.
    pub nowait: bool,
    /// With `nowait`: how long the reservation may stay unconfirmed, if a scope of it has a limit.
    pub reservation_ttl: Duration,
}

/// Whether a new engine can be granted what it asks for.
enum Admitted {
    /// Now, as far as the limits of its scopes decide.
    Fits,
    /// Once others have released enough; what is short, as a sentence.
    Short(String),
    /// These users or creators have no row, so nothing was decided.
    Missing(BTreeSet<ScopeKey>),
}

/// The end of an attempt that is not refused.
enum Attempt {
    Answered(EngineAnswer),
    /// These users or creators have no row.
    Missing(BTreeSet<ScopeKey>),
}

impl Store {
    /// START: adds a slot at the lowest free ordinal. Refused above `MAX_ENGINES`, if tenant, pool and unit are not linked, if
    /// each session has an engine of its own, if the pool has no nodes, and if the engine can never fit.
    pub async fn start(&self, start: &StartRequest) -> Result<EngineAnswer, Error> {
        let (mut attempt, mut inserts) = (1, 0);
        loop {
            let mut tx = self.begin_for_catalog().await?;
            let result = self.start_in(&mut tx, start).await;
            match tx.end(POINTS, result).await {
                Ok(Attempt::Answered(answer)) => return Ok(answer),
                Ok(Attempt::Missing(scopes)) if inserts < ATTEMPTS => {
                    inserts += 1;
                    self.insert_principals(&scopes).await?;
                }
                Ok(Attempt::Missing(scopes)) => {
                    return Err(Error::Broken(format!("scopes without a row: {scopes:?}").into()));
                }
                Err(error) if error.is_retried(&mut attempt) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn start_in(&self, tx: &mut Transaction, start: &StartRequest) -> Result<Done<Attempt>, Error> {
        let drawn = tx.lock_catalog_and_draw().await?;
        if let Some(answer) = self.begin_request(tx, &start.request).await? {
            return Ok(Done::Same(Attempt::Answered(answer)));
        }
        let catalog = read::catalog(tx).await?;
        let caller = &start.request.caller;
        user_error::unless_allowed(&catalog, caller, StatementKind::StartEngine, &start.link.tenant)?;
        let unit = linked(&catalog, &start.link, caller)?;
        let owner = owner_of_started(&start.link.unit, unit, &caller.subject)?;
        self.unless_nodes(&catalog, &start.link.pool)?;
        let slots = read::slots_of(tx, &start.link).await?;
        if slots.len() >= unit.max_engines as usize {
            return Err(user_error::above_max(&start.link, slots.len(), unit.max_engines).into());
        }
        let (all, most) = (read::slots_count(tx).await?, self.rules().max_engines);
        if all >= most {
            return Err(user_error::above_total(all, all + 1, most).into());
        }
        let now_ms = drawn.at_ms;
        let slot = new_slot((start, owner), &slots, Incarnation(drawn.last.get()), now_ms);
        let short = match self.admit(tx, &catalog, start, &slot).await? {
            Admitted::Missing(missing) => return Ok(Done::Same(Attempt::Missing(missing))),
            Admitted::Short(short) => Some(short),
            Admitted::Fits => None,
        };
        failpoint!(failpoints::REQUEST_VALIDATED);
        let issue = Issue { catalog: &catalog, defaults: &self.rules().defaults, now_ms };
        slots::add(tx, &issue, &slot).await?;
        failpoint!(failpoints::REQUEST_WRITTEN);
        let (engine, incarnation) = (slot.engine(), slot.incarnation);
        let answer = EngineAnswer { effect: RequestEffect::Started, engine, slot: slot.key, incarnation, short };
        Ok(match finish_request(tx, &start.request, answer, drawn).await? {
            Done::Write(answer) => Done::Write(Attempt::Answered(answer)),
            Done::Same(answer) => Done::Same(Attempt::Answered(answer)),
        })
    }

    /// Refuses an engine that can never fit and, with NOWAIT, one that does not fit now; reserves for it with NOWAIT.
    async fn admit(
        &self,
        tx: &mut Transaction,
        catalog: &Catalog,
        start: &StartRequest,
        slot: &Slot,
    ) -> Result<Admitted, Error> {
        let defaults = &self.rules().defaults;
        let broken = || Error::Broken(format!("slot {} has no unit or pool", slot.key).into());
        let configuration = Configuration::from_slot(catalog, &slot.key, defaults).ok_or_else(broken)?;
        let unit = catalog.unit(&slot.key.unit).ok_or_else(broken)?;
        let charge = Charge::new(&configuration, defaults.instances).charged_by(unit);
        let ttl_ms = millis::from_duration(start.reservation_ttl);
        let request = ledger::Request::of_engine(&slot.key, slot.incarnation, Some(slot), &charge, Some(ttl_ms));
        let mut request = request.ok_or_else(|| {
            UserError::new(ErrorKind::LimitReached, format!("resource unit \"{}\" is too large", slot.key.unit))
        })?;
        let scopes: BTreeSet<ScopeKey> = request.scopes.in_lock_order().cloned().collect();
        if start.nowait {
            tx.lock_scopes(&scopes).await?;
        }
        let rows = tx.scopes(&scopes).await?;
        let missing: BTreeSet<ScopeKey> =
            scopes.into_iter().filter(|key| rows.iter().all(|row| row.key != *key)).collect();
        if !missing.is_empty() {
            return Ok(Admitted::Missing(missing));
        }
        let loaded = Loaded::new(rows, Vec::new());
        let now_ms = slot.asked_at_ms;
        if let Some(shortage) = loaded.ledger.impossible(&request, now_ms) {
            let remedy = remedy(catalog, &shortage);
            return Err(shortage.error(&request, remedy.as_deref(), None).into());
        }
        if defaults.instances == InstanceKind::Pod {
            node_fit::unless_oversized(tx, catalog, &request, &charge).await?;
        }
        if start.nowait {
            if !has_limit(&loaded.ledger, &request.scopes) {
                request.ttl_ms = None;
            }
            self.reserve_now(tx, catalog, &loaded, (&Arc::new(request), &charge)).await?;
            return Ok(Admitted::Fits);
        }
        let shortages = loaded.ledger.shortages(&request, now_ms).unwrap_or_default();
        Ok(shortages.first().map_or(Admitted::Fits, |shortage| Admitted::Short(shortage.detail(None))))
    }

    /// Reserves for a new engine, or refuses: without waiting, so never before a request that is queued.
    async fn reserve_now(
        &self,
        tx: &mut Transaction,
        catalog: &Catalog,
        loaded: &Loaded,
        (request, charge): (&Arc<ledger::Request>, &Charge),
    ) -> Result<(), Error> {
        let at = Moment { now_ms: tx.now_ms().await?, epoch: Epoch::default() };
        let mut ledger = loaded.ledger.clone();
        let refusal = ledger.reserve(request, at).err();
        let refused = refusal.as_ref().map(|refusal| {
            let remedy = match refusal {
                Refusal::Short(shortage) => remedy(catalog, shortage),
                _ => None,
            };
            refusal.error(request, remedy.as_deref())
        });
        let refused = match refused {
            None if self.rules().defaults.instances == InstanceKind::Pod => {
                node_fit::shortage(tx, (catalog, &self.rules().defaults), request, charge).await?
            }
            refused => refused,
        };
        let before = comes_before(&loaded.ledger, request, read::master(tx).await?.epoch);
        match (refused, before) {
            (None, None) => tx.write_ledger(loaded, &ledger).await.map(drop),
            (Some(error), None) => Err(error.into()),
            (None, Some(before)) => {
                let error = UserError::new(ErrorKind::InsufficientResources, "engine cannot start without waiting");
                Err(error.detail(before).hint("Retry later, or START ENGINE without NOWAIT.").into())
            }
            (Some(error), Some(before)) => {
                let detail = error.detail.as_deref().map_or_else(|| before.clone(), |own| format!("{own} {before}"));
                Err(error.detail(detail).into())
            }
        }
    }
}

/// The owner of an engine of the unit that the user starts; an error if each session has an engine of its own.
pub fn owner_of_started(name: &UnitName, unit: &UnitSpec, subject: &Subject) -> Result<Option<Owner>, UserError> {
    unit.shared_by.owner_of(&subject.user, &subject.groups).ok_or_else(|| user_error::shared_by_session(name))
}

fn new_slot(
    (start, owner): (&StartRequest, Option<Owner>),
    slots: &[Slot],
    incarnation: Incarnation,
    now_ms: i64,
) -> Slot {
    let Link { tenant, pool, unit } = start.link.clone();
    let ordinal = desired::lowest_free_ordinal(&start.link, slots);
    let word = |text: &str| cut(text, MAX_WORD_BYTES).to_owned();
    let started_for = StartedFor { user: word(&start.request.caller.subject.user), creator: word(&start.creator) };
    Slot {
        key: SlotKey { tenant, pool, unit, ordinal },
        incarnation,
        origin: Origin::Start,
        failures: 0,
        replacement: Replacement::StandIn,
        born: incarnation,
        started_for: Some(started_for),
        owner,
        asked_at_ms: now_ms,
    }
}

/// Why the request has to wait although it may fit, as a sentence.
fn comes_before(ledger: &Ledger, request: &ledger::Request, master: Epoch) -> Option<String> {
    let Role::Pool(pool) = ledger.scope(request.scopes.pool())?.role else { return None };
    let name = request.scopes.pool_name();
    if pool.queued > 0 {
        let (verb, noun) = if pool.queued == 1 { ("is", "request") } else { ("are", "requests") };
        Some(format!("{} {noun} {verb} queued for resource pool \"{name}\" before it.", pool.queued))
    } else if pool.counted_epoch != master {
        Some(format!("The master has not counted the engines of resource pool \"{name}\" yet."))
    } else {
        None
    }
}

/// Whether anything limits what the scopes hold.
fn has_limit(ledger: &Ledger, scopes: &Scopes) -> bool {
    let is_limited = |counter: &ledger::Counter| {
        Component::ALL.into_iter().any(|component| counter.limit.get(component) != Limit::Unlimited)
    };
    scopes.in_lock_order().filter_map(|key| ledger.scope(key)).any(|scope| {
        let of_parts = match &scope.role {
            Role::Pool(pool) => is_limited(&pool.shared) || is_limited(&pool.unguaranteed),
            Role::Principal | Role::Tenant(_) => false,
        };
        of_parts || is_limited(&scope.counter)
    })
}

/// The unit, if tenant, pool and unit are linked; otherwise an error that names the missing link. A user who may not
/// see the objects of all tenants sees only the pools of its own and the units of those pools, so for such a user the error
/// does not reveal whether the other object exists.
pub fn linked<'a>(catalog: &'a Catalog, link: &Link, caller: &Caller) -> Result<&'a UnitSpec, UserError> {
    let Link { tenant, pool, unit } = link;
    let tenant_spec = catalog.tenant(tenant).ok_or_else(|| user_error::no_tenant(tenant))?;
    if !caller.subject.may_in_any(StatementKind::ShowObjects) {
        if !tenant_spec.pools.contains(pool) {
            return Err(user_error::tenant_lacks_pool(tenant, pool, &tenant_spec.pools));
        }
        let offered = catalog.pool(pool).map_or(&[][..], |spec| &spec.units);
        if !offered.contains(unit) {
            return Err(user_error::pool_lacks_unit(pool, unit, offered));
        }
    }
    let pool_spec = catalog.pool(pool).ok_or_else(|| user_error::no_pool(pool))?;
    let spec = catalog.unit(unit).ok_or_else(|| user_error::no_unit(unit))?;
    if !tenant_spec.pools.contains(pool) {
        return Err(user_error::tenant_lacks_pool(tenant, pool, &tenant_spec.pools));
    }
    if !pool_spec.units.contains(unit) {
        return Err(user_error::pool_lacks_unit(pool, unit, &pool_spec.units));
    }
    Ok(spec)
}
