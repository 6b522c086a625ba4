//! The in-memory ledger: scopes and reservations, and the arithmetic that charges one to the other.
//!
//! Invariants, after every operation:
//!
//! - what a user, creator or tenant holds is the sum over its lineages of the component-wise maximum of their charged
//!   reservations, in nominal sizes; what a pool holds is the sum of the requests of its charged reservations;
//! - what a pool holds of its shared and of its unguaranteed part follows from the rows of its tenants;
//! - a grant raises no counter above its limit, and no counter is negative;
//! - an operation that is refused has changed nothing.
//!
//! It is the reference for the transactions of the metadata database, which load the rows of an operation into it. The
//! planner grants in a copy; what is not changed is shared with the original, so a copy is cheap. What a stale copy grants
//! is decided again by the database.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::refusal::{Of, Refusal, Shortage};
use super::reservation::{Amounts, Request, Reservation};
use super::scope::{Counter, Parts, Role, Scope, ScopeKey, ScopeKind, Scopes, bound};
use crate::number::Epoch;
use crate::quota::{Limit, Share};
use crate::resource::{Amount, Component};

/// When, and under which master, an operation is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// By the database's clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// 0 for the operations of holders.
    pub epoch: Epoch,
}

/// The charged reservations of one lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lineage {
    /// One of them, for the scopes that all of them have.
    request: Arc<Request>,
    /// The nominal size of each.
    sizes: Vec<Amount>,
}

/// What an operation adds to the scopes of one holder. Components may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effect {
    /// For users, creators and tenants: the change of the lineage's maximum.
    pub policy: Amount,
    /// For the pool.
    requests: Amount,
}

/// All scopes, and all reservations or those of a part of the scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Hashed, and with a fast hasher of a random seed, because a round of admission looks up each one many times.
    scopes: HashMap<ScopeKey, Scope, RandomState>,
    /// Shared with copies of the ledger until one of them changes it, like `lineages`.
    reservations: Arc<BTreeMap<Arc<str>, Arc<Reservation>>>,
    /// The reservation of each request key of an external holder.
    keys: HashMap<Arc<str>, Arc<str>, RandomState>,
    lineages: Arc<HashMap<Arc<str>, Arc<Lineage>, RandomState>>,
}

impl Ledger {
    /// From rows that were read at one moment. No charge is computed: the scopes hold what their rows say.
    pub fn new(
        scopes: impl IntoIterator<Item = (ScopeKey, Scope)>,
        reservations: impl IntoIterator<Item = Reservation>,
    ) -> Self {
        let mut ledger = Self { scopes: scopes.into_iter().collect(), ..Self::default() };
        for reservation in reservations {
            ledger.put(reservation);
        }
        ledger
    }

    pub fn scope(&self, key: &ScopeKey) -> Option<&Scope> {
        self.scopes.get(key)
    }

    /// In lock order.
    pub fn scopes(&self) -> impl Iterator<Item = (&ScopeKey, &Scope)> {
        let mut scopes: Vec<(&ScopeKey, &Scope)> = self.scopes.iter().collect();
        scopes.sort_unstable_by_key(|(key, _)| *key);
        scopes.into_iter()
    }

    /// In no order, which costs less.
    pub fn scopes_in_no_order(&self) -> impl Iterator<Item = (&ScopeKey, &Scope)> {
        self.scopes.iter()
    }

    pub fn reservation(&self, id: &str) -> Option<&Arc<Reservation>> {
        self.reservations.get(id)
    }

    /// Whether a program has, or had, a reservation.
    pub fn has_external(&self) -> bool {
        !self.keys.is_empty()
    }

    /// By id.
    pub fn reservations(&self) -> impl Iterator<Item = &Arc<Reservation>> {
        self.reservations.values()
    }

    /// The reservation of the same request key.
    pub fn of_key(&self, request: &Request) -> Option<&Arc<Reservation>> {
        let of_key = if request.holder.is_external() { self.keys.get(request.key()) } else { None };
        self.reservations.get(of_key.unwrap_or(&request.id))
    }

    /// Replaces the row of a scope, and nothing that follows from it.
    pub fn put_scope(&mut self, key: ScopeKey, scope: Scope) {
        self.scopes.insert(key, scope);
    }

    /// Removes the ended reservations that are not kept, which charge nothing.
    pub fn forget_ended(&mut self, keep: impl Fn(&Reservation) -> bool) {
        let keys = &mut self.keys;
        Arc::make_mut(&mut self.reservations).retain(|_, reservation| {
            let stays = !reservation.state.is_ended() || keep(reservation);
            if !stays && reservation.request.holder.is_external() {
                keys.remove(reservation.request.key());
            }
            stays
        });
    }

    /// The largest amount of each component that the lineage is charged.
    pub fn charged_to_lineage(&self, lineage: &str) -> Amount {
        maximum(self.sizes(lineage))
    }

    /// What granting the request adds to its user, creator and tenant.
    pub fn raise(&self, request: &Request) -> Amount {
        self.effect(&request.lineage, None, Some(&request.amounts)).map_or(Amount::ZERO, |effect| effect.policy)
    }

    /// The share of the tenant of these scopes if it holds `ask` more, or less. Infinite if it or its pool has no row.
    pub fn share(&self, scopes: &Scopes, ask: &Amount, weight: u32) -> Share {
        match (self.scope(scopes.tenant()), self.scope(scopes.pool())) {
            (Some(tenant), Some(pool)) => tenant.share_of(pool, ask, weight),
            _ => Share::Infinite,
        }
    }

    /// Whether the tenant of these scopes would hold more than its guarantee of a component, having `ask` more.
    pub fn borrows(&self, scopes: &Scopes, ask: &Amount) -> bool {
        self.scope(scopes.tenant()).is_some_and(|tenant| tenant.borrows(ask))
    }

    /// Whether any of these scopes has a limit. Without one a request is never refused, and needs no deadline.
    pub fn is_limited(&self, scopes: &Scopes) -> bool {
        scopes.in_lock_order().filter_map(|key| self.scope(key)).any(Scope::is_limited)
    }

    /// The first of these scopes that has no row; nothing can be charged to it.
    pub fn missing<'a>(&self, scopes: &'a Scopes) -> Option<&'a ScopeKey> {
        scopes.in_lock_order().find(|key| self.scope(key).is_none())
    }

    /// What the request will be short of however much others release; `None` if it can fit one day. The limits of a scope that
    /// is closed now are not known.
    pub fn impossible(&self, request: &Request, now_ms: i64) -> Option<Shortage> {
        let scopes = &request.scopes;
        let (nominal, requests) = (request.amounts.nominal(), request.amounts.requests());
        let guarantees = self.scope(scopes.tenant()).map(Scope::guarantees);
        let exclusive = guarantees.map_or(Amount::ZERO, |guarantees| guarantees.exclusive);
        let guaranteed = guarantees.map(|guarantees| guarantees.amount);
        scopes.reported().find_map(|key| {
            // A closed scope may be opened with other limits.
            let scope = self.scope(key).filter(|scope| scope.admits_at(now_ms))?;
            Component::ALL.into_iter().find_map(|component| {
                let asked = nominal.get(component);
                let short = |of, counter: &Counter, asked: i64, in_addition: i64| {
                    let most = bound(counter.limit.get(component)).saturating_add(in_addition);
                    (asked > 0 && asked > most).then(|| Shortage {
                        asked,
                        is_retryable: false,
                        is_of_empty_pool: of == Of::Limit && key.kind == ScopeKind::Pool && has_nothing(counter),
                        ..shortage(key, of, counter, component)
                    })
                };
                let Role::Pool(pool) = &scope.role else { return short(Of::Limit, &scope.counter, asked, 0) };
                let is_unguaranteed = guaranteed.is_some_and(|guaranteed| guaranteed.get(component).is_none());
                short(Of::Limit, &scope.counter, requests.get(component), 0)
                    .or_else(|| short(Of::Shared, &pool.shared, asked, exclusive.get(component)))
                    .or_else(|| short(Of::Unguaranteed, &pool.unguaranteed, asked, 0).filter(|_| is_unguaranteed))
            })
        })
    }

    /// All that the request is short of now, in the order pool, tenant, creator, user, and in each CPU, memory,
    /// engines. Empty if it can be granted.
    pub fn shortages(&self, request: &Request, now_ms: i64) -> Result<Vec<Shortage>, Refusal> {
        let effect = self.effect(&request.lineage, None, Some(&request.amounts))?;
        self.shortages_of(&request.scopes, &effect, now_ms)
    }

    /// All that the scopes are short of for the effect.
    pub(super) fn shortages_of(&self, scopes: &Scopes, effect: &Effect, now_ms: i64) -> Result<Vec<Shortage>, Refusal> {
        let mut all = Vec::new();
        self.each_shortage(scopes, effect, now_ms, |shortage| {
            all.push(shortage);
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }

    /// Checks the conditions of a grant: each scope that is raised is open, and no counter is raised above its limit.
    pub(super) fn check(&self, scopes: &Scopes, effect: &Effect, now_ms: i64) -> Result<(), Refusal> {
        let mut first = None;
        self.each_shortage(scopes, effect, now_ms, |shortage| {
            first = Some(shortage);
            ControlFlow::Break(())
        })?;
        first.map_or(Ok(()), |shortage| Err(Refusal::Short(Box::new(shortage))))
    }

    /// Calls `each` with the shortages of the scopes until it breaks. Each scope that is raised must be open.
    fn each_shortage(
        &self,
        scopes: &Scopes,
        effect: &Effect,
        now_ms: i64,
        mut each: impl FnMut(Shortage) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        let mut rows = [None; ScopeKind::ALL.len()];
        for (row, key) in rows.iter_mut().zip(scopes.reported()) {
            let scope = self.scope(key).ok_or_else(|| Refusal::NoScope(key.clone()))?;
            if effect.of(key.kind).any_more(&Amount::ZERO) && !scope.admits_at(now_ms) {
                return Err(Refusal::Closed(key.clone()));
            }
            *row = Some((key, scope));
        }
        let tenant = rows.iter().flatten().find(|(key, _)| key.kind == ScopeKind::Tenant);
        let added = tenant.map_or(Ok(Parts::default()), |(_, tenant)| parts_added(tenant, effect))?;
        for (key, scope) in rows.into_iter().flatten() {
            if shortages_in((key, scope), effect, &added, &mut each).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// What a change of a lineage adds: `removed` is one of its charged reservations, `added` becomes one.
    pub(super) fn effect(
        &self,
        lineage: &str,
        removed: Option<&Amounts>,
        added: Option<&Amounts>,
    ) -> Result<Effect, Refusal> {
        let sizes = self.sizes(lineage);
        let gone = removed.and_then(|removed| sizes.iter().position(|size| size == removed.nominal()));
        let kept = sizes.iter().enumerate().filter(|(at, _)| Some(*at) != gone).map(|(_, size)| size);
        let after = maximum(kept.chain(added.map(Amounts::nominal)));
        let requests = |amounts: Option<&Amounts>| amounts.map_or(Amount::ZERO, |amounts| *amounts.requests());
        let policy = after.checked_sub(&maximum(sizes)).ok_or(Refusal::OutOfRange)?;
        let requests = requests(added).checked_sub(&requests(removed)).ok_or(Refusal::OutOfRange)?;
        Ok(Effect { policy, requests })
    }

    fn sizes(&self, lineage: &str) -> &[Amount] {
        self.lineages.get(lineage).map_or(&[], |lineage| &lineage.sizes)
    }

    /// Whether the lineage has charged reservations with other scopes.
    pub(super) fn has_other_scopes(&self, request: &Request) -> bool {
        self.lineages.get(&request.lineage).is_some_and(|lineage| lineage.request.scopes != request.scopes)
    }

    /// Changes what the scopes hold, regardless of limits.
    pub(super) fn charge(&mut self, scopes: &Scopes, effect: &Effect) -> Result<(), Refusal> {
        let tenant = self.scope(scopes.tenant());
        let added = tenant.map_or(Ok(Parts::default()), |tenant| parts_added(tenant, effect))?;
        let mut changed = [None; ScopeKind::ALL.len()];
        for (changed, key) in changed.iter_mut().zip(scopes.in_lock_order()) {
            let mut scope = *self.scope(key).ok_or_else(|| Refusal::NoScope(key.clone()))?;
            scope.counter.held = sum(&scope.counter.held, &effect.of(key.kind))?;
            if let Role::Pool(pool) = &mut scope.role {
                pool.shared.held = sum(&pool.shared.held, &added.shared)?;
                pool.unguaranteed.held = sum(&pool.unguaranteed.held, &added.unguaranteed)?;
            }
            *changed = Some((key, scope));
        }
        for (key, scope) in changed.into_iter().flatten() {
            if let Some(row) = self.scopes.get_mut(key) {
                *row = scope;
            }
        }
        Ok(())
    }

    /// Inserts or replaces a reservation, and counts it in its lineage while it is charged. Charges no scope.
    pub(super) fn put(&mut self, reservation: Reservation) -> Arc<Reservation> {
        let reservation = Arc::new(reservation);
        let id = reservation.id();
        if reservation.request.holder.is_external() {
            self.keys.insert(Arc::clone(reservation.request.key()), Arc::clone(id));
        }
        if let Some(old) = Arc::make_mut(&mut self.reservations).insert(Arc::clone(id), Arc::clone(&reservation)) {
            self.remove_size(&old);
        }
        if reservation.state.is_charged() {
            let lineage = Arc::make_mut(&mut self.lineages).entry(Arc::clone(&reservation.request.lineage));
            let request = || Arc::clone(&reservation.request);
            let lineage = lineage.or_insert_with(|| Arc::new(Lineage { request: request(), sizes: Vec::new() }));
            Arc::make_mut(lineage).sizes.push(*reservation.amounts.nominal());
        }
        reservation
    }

    fn remove_size(&mut self, old: &Reservation) {
        let name = &old.request.lineage;
        if !old.state.is_charged() {
            return;
        }
        let lineages = Arc::make_mut(&mut self.lineages);
        if let Some(lineage) = lineages.get_mut(name).map(Arc::make_mut) {
            if let Some(at) = lineage.sizes.iter().position(|size| size == old.amounts.nominal()) {
                lineage.sizes.swap_remove(at);
            }
            if lineage.sizes.is_empty() {
                lineages.remove(name);
            }
        }
    }
}

impl Effect {
    /// Of a request of a lineage that is charged nothing.
    pub const fn of_new(amounts: &Amounts) -> Self {
        Self { policy: *amounts.nominal(), requests: *amounts.requests() }
    }

    /// So many times the same; `None` if a component leaves 64 bits.
    pub fn times(&self, count: u64) -> Option<Self> {
        let count = i64::try_from(count).ok()?;
        Some(Self { policy: self.policy.checked_mul(count)?, requests: self.requests.checked_mul(count)? })
    }

    const fn of(&self, kind: ScopeKind) -> Amount {
        match kind {
            ScopeKind::User | ScopeKind::Creator | ScopeKind::Tenant => self.policy,
            ScopeKind::Pool => self.requests,
        }
    }
}

/// What the effect adds to the parts of the tenant's pool.
fn parts_added(tenant: &Scope, effect: &Effect) -> Result<Parts, Refusal> {
    let held = sum(&tenant.counter.held, &effect.policy)?;
    let after = tenant.guarantees().parts(&held);
    after.checked_sub(&tenant.parts()).ok_or(Refusal::OutOfRange)
}

/// Calls `each` with the shortages of one scope until it breaks.
fn shortages_in(
    (key, scope): (&ScopeKey, &Scope),
    effect: &Effect,
    added: &Parts,
    each: &mut impl FnMut(Shortage) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let delta = effect.of(key.kind);
    for component in Component::ALL {
        let of_limit = Some((Of::Limit, &scope.counter, &delta));
        let counters = match &scope.role {
            Role::Pool(pool) => [
                of_limit,
                Some((Of::Shared, &pool.shared, &added.shared)),
                Some((Of::Unguaranteed, &pool.unguaranteed, &added.unguaranteed)),
            ],
            Role::Principal | Role::Tenant(_) => [of_limit, None, None],
        };
        for (of, counter, delta) in counters.into_iter().flatten() {
            let asked = delta.get(component);
            if !counter.admits(component, asked) {
                each(Shortage { asked, ..shortage(key, of, counter, component) })?;
            }
        }
    }
    ControlFlow::Continue(())
}

fn maximum<'a>(sizes: impl IntoIterator<Item = &'a Amount>) -> Amount {
    sizes.into_iter().fold(Amount::ZERO, |most, size| most.maximum(size))
}

/// A held amount after a change: at least 0.
fn sum(held: &Amount, delta: &Amount) -> Result<Amount, Refusal> {
    held.checked_add(delta).filter(|held| !Amount::ZERO.any_more(held)).ok_or(Refusal::OutOfRange)
}

/// Whether every limit is 0 or less.
fn has_nothing(counter: &Counter) -> bool {
    Component::ALL.into_iter().all(|component| match counter.limit.get(component) {
        Limit::Of(limit) => limit <= 0,
        Limit::Unlimited => true,
    })
}

/// A retryable shortage that asks for nothing.
fn shortage(key: &ScopeKey, of: Of, counter: &Counter, component: Component) -> Shortage {
    let limit = counter.limit.get(component);
    Shortage {
        scope: key.clone(),
        of,
        component,
        asked: 0,
        left: bound(limit).saturating_sub(counter.held.get(component)),
        limit: bound(limit),
        is_retryable: true,
        is_of_empty_pool: false,
    }
}
