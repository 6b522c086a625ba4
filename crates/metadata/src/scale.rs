//! Slots that follow demand: the one transaction in which a master adds and removes slots.
//!
//! Every added slot is charged in the same transaction, so on-demand slots never queue: what is short of capacity is not
//! inserted, and its demand stays demand. The links of a call share the transaction and its locks: the master's row, the
//! catalog, then the scopes of users, creators, tenants and pools. Engines of one user are charged to the user and the client
//! application, other ones to their tenant only; a user without a row has one inserted before, in a transaction of its own.
//!
//! A stale caller: a deposed master changes nothing. A link whose slots are not those of the plan is refused, which a repeat
//! after a lost answer also meets; no slot is added either if one was issued for the link since the plan and is gone again. An added slot has an owner of the kind by which the unit is shared now. A removed slot must still
//! be of origin *demand* with the incarnation of the plan, and the others must meet `MIN_ENGINES`, which an ALTER may have raised
//! without changing a row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::catalog::{Catalog, UnitSpec};
use model::charge::Charge;
use model::configuration::Configuration;
use model::desired::{self, SlotChanges};
use model::end::EndOrder;
use model::failpoint;
use model::ledger::{self, Ledger, Moment, Refusal, ScopeKey};
use model::millis;
use model::number::{Epoch, Generation, Incarnation};
use model::scaling::{
    AddedSlot, LinkScale, LinkScaled, MAX_SCALED_SLOTS, ScaleRequest, SlotAddition, SlotRemoval, SlotsSeen,
};
use model::slot::{Origin, Replacement, Slot, SlotKey};

use crate::backend::Mode;
use crate::error::{ATTEMPTS, Error};
use crate::failpoints;
use crate::ledger::Loaded;
use crate::master::{self, POINTS};
use crate::read;
use crate::reserve::is_principal;
use crate::rows;
use crate::slot_batch;
use crate::slots::Issue;
use crate::sql;
use crate::store::Store;
use crate::transaction::{Done, Transaction, args};

impl Store {
    /// Adds and removes slots of origin *demand*, at most [`MAX_SCALED_SLOTS`]; a result for each link, in the same order.
    pub async fn scale(&self, epoch: Epoch, request: &ScaleRequest) -> Result<Vec<LinkScaled>, Error> {
        let links = &request.links;
        if request.slots() > MAX_SCALED_SLOTS {
            return Err(Error::Broken(format!("a call scales more than {MAX_SCALED_SLOTS} slots").into()));
        }
        if links.iter().map(|scale| &scale.link).collect::<BTreeSet<_>>().len() < links.len() {
            return Err(Error::Broken("a call scales a link twice".into()));
        }
        let (mut attempt, mut inserts) = (1, 0);
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = self.scale_in(&mut tx, epoch, request).await;
            match tx.end(POINTS, result).await {
                Ok(Attempt::Scaled(results)) => return Ok(results),
                Ok(Attempt::Missing(scopes)) if inserts < ATTEMPTS => {
                    inserts += 1;
                    self.insert_principals(&scopes).await?;
                }
                Ok(Attempt::Missing(scopes)) => {
                    return Err(Error::Broken(format!("scopes without a row: {scopes:?}").into()));
                }
                Err(Error::Conflict(_)) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn scale_in(
        &self,
        tx: &mut Transaction,
        epoch: Epoch,
        ScaleRequest { links, reservation_ttl_ms, grace_ms }: &ScaleRequest,
    ) -> Result<Done<Attempt>, Error> {
        master::lock(tx, epoch).await?;
        let added: u32 = links.iter().map(LinkScale::added).sum();
        let drawn = tx.draw(added as usize).await?;
        let catalog = read::catalog(tx).await?;
        let mut checked = Vec::with_capacity(links.len());
        for scale in links {
            let slots = read::slots_of(tx, &scale.link).await?;
            let issued = issued_since(tx, scale).await?;
            checked.push(issued.map_or_else(|| self.check(&catalog, scale, slots), Err));
        }
        let Ledgers { before, mut after, missing } = lock_ledger(tx, &checked).await?;
        if !missing.is_empty() {
            return Ok(Done::Same(Attempt::Missing(missing)));
        }
        let mut round = Round {
            store: self,
            catalog: &catalog,
            at: Moment { now_ms: drawn.at_ms, epoch },
            reservation_ttl_ms: *reservation_ttl_ms,
            free: self.rules().max_engines.saturating_sub(read::slots_count(tx).await?),
            next: drawn.last.get() - i64::from(added),
            slots: Vec::new(),
            removed: Vec::new(),
            delete: Vec::new(),
        };
        let mut results = Vec::with_capacity(checked.len());
        for checked in checked {
            results.push(match checked {
                Ok(link) => round.scale(&mut after, link)?,
                Err(reason) => LinkScaled::Refused(reason),
            });
        }
        let Round { slots, removed, delete, .. } = round;
        if slots.is_empty() && delete.is_empty() {
            return Ok(Done::Same(Attempt::Scaled(results)));
        }
        let grace = millis::to_duration(*grace_ms);
        let issue = Issue { catalog: &catalog, defaults: &self.rules().defaults, now_ms: drawn.at_ms };
        let changes = SlotChanges { delete, ..SlotChanges::default() };
        slot_batch::write(tx, &issue, &removed, &changes, drawn.last, (Replacement::StandIn, grace)).await?;
        slot_batch::insert(tx, &issue, &slots).await?;
        failpoint!(failpoints::SCALE_SLOTS);
        tx.write_ledger(&before, &after).await?;
        Ok(Done::Write(Attempt::Scaled(results)))
    }

    /// The link as the transaction sees it, or why nothing is changed there.
    fn check<'a>(
        &self,
        catalog: &'a Catalog,
        scale: &'a LinkScale,
        slots: Vec<Slot>,
    ) -> Result<CheckedLink<'a>, String> {
        let link = &scale.link;
        let pool = catalog.pool(&link.pool).filter(|pool| pool.units.contains(&link.unit));
        let linked = catalog.tenant(&link.tenant).is_some_and(|tenant| tenant.pools.contains(&link.pool));
        let unit = catalog.unit(&link.unit).filter(|_| linked && pool.is_some());
        let unit = unit.ok_or_else(|| "tenant, pool and unit are no longer linked".to_owned())?;
        let seen = SlotsSeen::of(&slots);
        if !seen.are_those_of(&scale.seen) {
            return Err(format!(
                "the link has {} slots up to incarnation {}, not {} up to {}",
                seen.count, seen.newest, scale.seen.count, scale.seen.newest
            ));
        }
        if scale.add.is_empty() {
            return Ok(CheckedLink { scale, unit, slots });
        }
        if !unit.starts_on_demand(&self.rules().defaults) {
            return Err(format!("resource unit \"{}\" does not start engines on demand", link.unit));
        }
        // An ALTER may have changed by whom the unit is shared since the plan.
        let shared_by = unit.shared_by;
        if scale.add.iter().any(|addition| !shared_by.is_kind_of(addition.owner.as_ref())) {
            return Err(format!("resource unit \"{}\" is shared by {shared_by}", link.unit));
        }
        if scale.add.iter().any(|addition| shared_by.charges_users() != addition.started_for.is_some()) {
            let charged = if shared_by.charges_users() { "the user, too" } else { "the tenant only" };
            return Err(format!("an engine of resource unit \"{}\" is charged to {charged}", link.unit));
        }
        if let Err(error) = self.unless_nodes(catalog, &link.pool) {
            return Err(error.text());
        }
        Ok(CheckedLink { scale, unit, slots })
    }
}

/// What was issued for a link that gains slots since its plan, also if that is gone again: then what it lacked may have been served.
async fn issued_since(tx: &mut Transaction, scale: &LinkScale) -> Result<Option<String>, Error> {
    let (link, read_at) = (&scale.link, scale.seen.read_at);
    if scale.add.is_empty() || read_at == Generation::default() {
        return Ok(None);
    }
    let args = args![link.tenant.as_str(), link.pool.as_str(), link.unit.as_str(), read_at.get()];
    let newest = tx.row(sql::ENGINE_ISSUED_SINCE, args).await?;
    let newest = newest.map(|row| rows::int_or_none(&row, "newest")).transpose()?.flatten();
    Ok(newest.map(|newest| format!("incarnation {newest} was issued for the link after generation {read_at}")))
}

/// The end of an attempt.
enum Attempt {
    Scaled(Vec<LinkScaled>),
    /// These users or creators have no row.
    Missing(BTreeSet<ScopeKey>),
}

/// A link whose slots are those of the plan.
struct CheckedLink<'a> {
    scale: &'a LinkScale,
    unit: &'a UnitSpec,
    slots: Vec<Slot>,
}

/// The ledger under the locks of the transaction, and as it is to be written.
struct Ledgers {
    before: Loaded,
    after: Ledger,
    /// The users and creators without a row.
    missing: BTreeSet<ScopeKey>,
}

/// Locks and reads the scopes that added slots are charged to.
async fn lock_ledger(tx: &mut Transaction, links: &[Result<CheckedLink<'_>, String>]) -> Result<Ledgers, Error> {
    let mut scopes: BTreeSet<ScopeKey> = BTreeSet::new();
    for CheckedLink { scale, .. } in links.iter().flatten() {
        for SlotAddition { started_for, .. } in &scale.add {
            let user = started_for.as_ref().map(|started_for| started_for.user.as_str());
            let creator = started_for.as_ref().map(|started_for| started_for.creator.as_str());
            let of_addition = ledger::Scopes::new(&scale.link.tenant, &scale.link.pool, user, creator);
            scopes.extend(of_addition.in_lock_order().cloned());
        }
    }
    let locked = tx.lock_scopes(&scopes).await?;
    let missing = scopes.difference(&locked).filter(|key| is_principal(key)).cloned().collect();
    let before = Loaded::new(tx.scopes(&locked).await?, Vec::new());
    let after = before.ledger.clone();
    Ok(Ledgers { before, after, missing })
}

/// The links of a call, one after the other.
struct Round<'a> {
    store: &'a Store,
    catalog: &'a Catalog,
    at: Moment,
    reservation_ttl_ms: i64,
    /// How many slots the installation may still have.
    free: usize,
    /// The last incarnation that was used.
    next: i64,
    slots: Vec<Slot>,
    /// The rows of `delete`.
    removed: Vec<Slot>,
    delete: Vec<(SlotKey, EndOrder)>,
}

impl Round<'_> {
    fn scale(&mut self, ledger: &mut Ledger, link: CheckedLink<'_>) -> Result<LinkScaled, Error> {
        let CheckedLink { scale, unit, slots } = link;
        if let Err(reason) = removable(scale, unit, &slots) {
            return Ok(LinkScaled::Refused(reason));
        }
        let order = |removal: &SlotRemoval| EndOrder::new(removal.word, removal.reason.as_str());
        self.delete.extend(scale.remove.iter().map(|removal| (removal.slot.clone(), order(removal))));
        let gone: BTreeSet<&SlotKey> = scale.remove.iter().map(|removal| &removal.slot).collect();
        let (removed, mut left): (Vec<Slot>, Vec<Slot>) = slots.into_iter().partition(|slot| gone.contains(&slot.key));
        self.removed.extend(removed);
        let (mut added, mut short) = (Vec::new(), None::<String>);
        for addition in &scale.add {
            for _ in 0..addition.count {
                // What one owner is short of another one may have.
                if let Some(of_owner) = self.add(ledger, (scale, unit), addition, &mut left)? {
                    short.get_or_insert(of_owner);
                    break;
                }
                let slot = left.last();
                added.extend(slot.map(|slot| AddedSlot { slot: slot.key.clone(), incarnation: slot.incarnation }));
            }
        }
        Ok(LinkScaled::Scaled { added, short })
    }

    /// Adds a slot with its reservation; returns what it is short of.
    fn add(
        &mut self,
        ledger: &mut Ledger,
        (scale, unit): (&LinkScale, &UnitSpec),
        addition: &SlotAddition,
        left: &mut Vec<Slot>,
    ) -> Result<Option<String>, Error> {
        if left.len() >= unit.max_engines as usize {
            return Ok(Some(format!("MAX_ENGINES is {}", unit.max_engines)));
        }
        if self.free == 0 {
            return Ok(Some("the installation has as many engines as it may have".to_owned()));
        }
        let link = &scale.link;
        let key = SlotKey {
            tenant: link.tenant.clone(),
            pool: link.pool.clone(),
            unit: link.unit.clone(),
            ordinal: desired::lowest_free_ordinal(link, left),
        };
        self.next += 1;
        let incarnation = Incarnation(self.next);
        let slot = Slot {
            key,
            incarnation,
            origin: Origin::Demand,
            failures: 0,
            replacement: Replacement::StandIn,
            born: incarnation,
            started_for: addition.started_for.clone(),
            owner: addition.owner.clone(),
            asked_at_ms: self.at.now_ms,
        };
        if let Some(short) = self.reserve(ledger, unit, &slot)? {
            return Ok(Some(short));
        }
        self.free -= 1;
        left.push(slot.clone());
        self.slots.push(slot);
        Ok(None)
    }

    fn reserve(&self, ledger: &mut Ledger, unit: &UnitSpec, slot: &Slot) -> Result<Option<String>, Error> {
        let defaults = &self.store.rules().defaults;
        let broken = || Error::Broken(format!("slot {} has no unit or pool", slot.key).into());
        let configuration = Configuration::from_slot(self.catalog, &slot.key, defaults).ok_or_else(broken)?;
        let charge = Charge::new(&configuration, defaults.instances).charged_by(unit);
        let ttl_ms = Some(self.reservation_ttl_ms);
        let request = ledger::Request::of_engine(&slot.key, slot.incarnation, Some(slot), &charge, ttl_ms);
        let Some(mut request) = request else {
            return Ok(Some(format!("resource unit \"{}\" is too large", slot.key.unit)));
        };
        if !ledger.is_limited(&request.scopes) {
            request.ttl_ms = None;
        }
        Ok(match ledger.reserve(&Arc::new(request.clone()), self.at) {
            Ok(_) => None,
            Err(Refusal::Short(shortage)) => Some(shortage.detail(None)),
            Err(refusal) => Some(refusal.error(&request, None).text()),
        })
    }
}

/// Refuses removals that the slots do not allow any more.
fn removable(scale: &LinkScale, unit: &UnitSpec, slots: &[Slot]) -> Result<(), String> {
    let by_key: BTreeMap<&SlotKey, &Slot> = slots.iter().map(|slot| (&slot.key, slot)).collect();
    for SlotRemoval { slot, incarnation, .. } in &scale.remove {
        let found = by_key.get(slot).ok_or_else(|| format!("slot {slot} is gone"))?;
        if found.incarnation != *incarnation || found.origin != Origin::Demand {
            return Err(format!("slot {slot} has changed"));
        }
    }
    // What is added doesn't count: it may be short of capacity.
    let left = slots.len().saturating_sub(scale.remove.len());
    if !scale.remove.is_empty() && left < unit.min_engines as usize {
        return Err(format!("MIN_ENGINES is {}", unit.min_engines));
    }
    Ok(())
}
