//! Scopes: the entities that hold charges, with their limits and what they hold.
//!
//! A scope has at least one counter, a limit with a held amount. A grant raises a counter only up to its limit. What is
//! held may exceed a limit that was lowered: then nothing is granted, and nothing ends for that reason.
//!
//! The parts of a pool, shared and unguaranteed, are counted where the pool's row is, so that a grant that was judged
//! by them changes the row that it was judged by. They follow from the rows of the pool's tenants, see [`Guarantees`].

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::{PoolName, TenantName};
use crate::number::Epoch;
use crate::quota::{Guarantee, Limit, PoolComponent, Share, TenantComponent};
use crate::resource::{Amount, Component, Triple};

/// What a limit of [`Limit::Unlimited`] is where limits are numbers. No grant holds more.
pub const UNLIMITED: i64 = 1 << 62;

/// The limit as a number.
pub fn bound(limit: Limit) -> i64 {
    match limit {
        Limit::Of(limit) => limit.min(UNLIMITED),
        Limit::Unlimited => UNLIMITED,
    }
}

/// The limit that [`bound`] made a number.
pub const fn limit_from(bound: i64) -> Limit {
    if bound >= UNLIMITED { Limit::Unlimited } else { Limit::Of(bound) }
}

/// The kind of a scope. The order is that in which scopes are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeKind {
    User,
    /// A client application.
    Creator,
    /// A tenant on a pool.
    Tenant,
    Pool,
}

impl ScopeKind {
    pub const ALL: [Self; 4] = [Self::User, Self::Creator, Self::Tenant, Self::Pool];

    /// The number in the database, which has the same order.
    pub const fn number(self) -> i64 {
        match self {
            Self::User => 1,
            Self::Creator => 2,
            Self::Tenant => 3,
            Self::Pool => 4,
        }
    }

    pub fn from_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// Identifies a scope. The order is the lock order: by kind, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ScopeKey {
    pub kind: ScopeKind,
    /// `alice`, `IDE`, `t_1/rp_1` or `rp_1`.
    pub name: Arc<str>,
}

impl ScopeKey {
    pub fn user(name: &str) -> Self {
        Self { kind: ScopeKind::User, name: name.into() }
    }

    pub fn creator(name: &str) -> Self {
        Self { kind: ScopeKind::Creator, name: name.into() }
    }

    pub fn tenant(tenant: &TenantName, pool: &PoolName) -> Self {
        Self { kind: ScopeKind::Tenant, name: format!("{tenant}/{pool}").into() }
    }

    pub fn pool(pool: &PoolName) -> Self {
        Self { kind: ScopeKind::Pool, name: pool.as_str().into() }
    }

    /// The tenant and the pool of a tenant on a pool. No name of either contains a slash.
    pub fn tenant_and_pool(&self) -> Option<(&str, &str)> {
        match self.kind {
            ScopeKind::Tenant => self.name.split_once('/'),
            ScopeKind::User | ScopeKind::Creator | ScopeKind::Pool => None,
        }
    }
}

impl fmt::Display for ScopeKey {
    /// `user "alice"`, `tenant "t_1" on resource pool "rp_1"`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.tenant_and_pool()) {
            (_, Some((tenant, pool))) => write!(f, "tenant \"{tenant}\" on resource pool \"{pool}\""),
            (ScopeKind::User, None) => write!(f, "user \"{}\"", self.name),
            (ScopeKind::Creator, None) => write!(f, "creator \"{}\"", self.name),
            (ScopeKind::Tenant | ScopeKind::Pool, None) => write!(f, "resource pool \"{}\"", self.name),
        }
    }
}

/// The scopes that one holder is charged to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scopes {
    user: Option<ScopeKey>,
    creator: Option<ScopeKey>,
    tenant: ScopeKey,
    pool: ScopeKey,
}

impl Scopes {
    /// Engines of `MIN_ENGINES`, and those that a tenant or group shares, are charged to no user and no creator.
    pub fn new(tenant: &TenantName, pool: &PoolName, user: Option<&str>, creator: Option<&str>) -> Self {
        Self {
            user: user.map(ScopeKey::user),
            creator: creator.map(ScopeKey::creator),
            tenant: ScopeKey::tenant(tenant, pool),
            pool: ScopeKey::pool(pool),
        }
    }

    pub const fn tenant(&self) -> &ScopeKey {
        &self.tenant
    }

    pub const fn pool(&self) -> &ScopeKey {
        &self.pool
    }

    pub fn user_name(&self) -> Option<&str> {
        self.user.as_ref().map(|key| &*key.name)
    }

    pub fn creator_name(&self) -> Option<&str> {
        self.creator.as_ref().map(|key| &*key.name)
    }

    pub fn tenant_name(&self) -> &str {
        self.tenant.tenant_and_pool().map_or("", |(tenant, _)| tenant)
    }

    pub fn pool_name(&self) -> &str {
        &self.pool.name
    }

    /// The user, creator and tenant, which are charged nominal sizes, in lock order.
    pub fn policy(&self) -> impl Iterator<Item = &ScopeKey> {
        [self.user.as_ref(), self.creator.as_ref(), Some(&self.tenant)].into_iter().flatten()
    }

    /// All scopes in the order in which the first short one is reported, the reverse of the lock order.
    pub fn reported(&self) -> impl Iterator<Item = &ScopeKey> {
        [Some(&self.pool), Some(&self.tenant), self.creator.as_ref(), self.user.as_ref()].into_iter().flatten()
    }

    /// All scopes in lock order.
    pub fn in_lock_order(&self) -> impl Iterator<Item = &ScopeKey> {
        self.policy().chain([&self.pool])
    }
}

/// A limit and what is held of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    pub limit: Triple<Limit>,
    pub held: Amount,
}

impl Counter {
    /// Without a limit, and with nothing held.
    pub const UNLIMITED: Self = Self { limit: Triple::all(Limit::Unlimited), held: Amount::ZERO };

    /// With this limit and nothing held.
    pub const fn limited(limit: Triple<Limit>) -> Self {
        Self { limit, held: Amount::ZERO }
    }

    /// Limit − held; negative if the limit was lowered. `None` if unlimited.
    pub fn left(&self, component: Component) -> Option<i64> {
        match self.limit.get(component) {
            Limit::Of(limit) => Some(limit.saturating_sub(self.held.get(component))),
            Limit::Unlimited => None,
        }
    }

    /// Whether `delta` can be added. What adds nothing is not checked, so that a replacement of the same size is
    /// granted also above the limit.
    pub fn admits(&self, component: Component, delta: i64) -> bool {
        let held = self.held.get(component).checked_add(delta);
        delta <= 0 || held.is_some_and(|held| held <= bound(self.limit.get(component)))
    }
}

/// What a tenant on a pool is guaranteed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// `None` for a component that no guarantee names, and for a tenant without a quota: it counts as unguaranteed.
    pub amount: Triple<Option<i64>>,
    /// What is reserved for the tenant even while it is not used. 0 without a guarantee.
    pub exclusive: Amount,
}

impl Guarantees {
    pub const NONE: Self = Self { amount: Triple::all(None), exclusive: Amount::ZERO };

    /// Of a tenant that holds `held`: what counts as held of the pool's shared and of its unguaranteed part.
    pub fn parts(&self, held: &Amount) -> Parts {
        Parts {
            shared: Amount::from_fn(|component| {
                held.get(component).saturating_sub(self.exclusive.get(component)).max(0)
            }),
            unguaranteed: Amount::from_fn(|component| match self.amount.get(component) {
                Some(_) => 0,
                None => held.get(component),
            }),
        }
    }
}

/// What counts as held of the two parts of a pool, or what is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    pub shared: Amount,
    pub unguaranteed: Amount,
}

impl Parts {
    /// `None` if a component leaves 64 bits.
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        let shared = self.shared.checked_add(&other.shared)?;
        Some(Self { shared, unguaranteed: self.unguaranteed.checked_add(&other.unguaranteed)? })
    }

    /// `None` if a component leaves 64 bits. Components may become negative.
    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        let shared = self.shared.checked_sub(&other.shared)?;
        Some(Self { shared, unguaranteed: self.unguaranteed.checked_sub(&other.unguaranteed)? })
    }
}

/// What only pools have. The counters are in nominal units, unlike that of [`Scope::counter`], which is in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRow {
    /// When the lease of a registered capacity ends; the maximum if there is none.
    pub open_until_ms: i64,
    /// The epoch whose master has verified that every running engine has a reservation.
    pub counted_epoch: Epoch,
    /// Requests that the last admission round left in the queue.
    pub queued: i64,
    pub shared: Counter,
    pub unguaranteed: Counter,
}

impl PoolRow {
    pub const UNLIMITED: Self = Self {
        open_until_ms: i64::MAX,
        counted_epoch: Epoch(0),
        queued: 0,
        shared: Counter::UNLIMITED,
        unguaranteed: Counter::UNLIMITED,
    };
}

/// What only scopes of some kind have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A user or a creator.
    Principal,
    /// A tenant on a pool.
    Tenant(Guarantees),
    Pool(PoolRow),
}

/// A scope. A copy that is stale decides nothing: grants are judged by the row that they change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Whether grants are enabled.
    pub is_open: bool,
    pub counter: Counter,
    pub role: Role,
}

impl Scope {
    /// An open user or creator.
    pub const fn principal(limit: Triple<Limit>) -> Self {
        Self { is_open: true, counter: Counter::limited(limit), role: Role::Principal }
    }

    /// An open tenant on a pool; `None` for a component without a guarantee.
    pub fn tenant(guarantee: &Triple<Option<Guarantee>>) -> Self {
        let tenant = guarantee.map(|guarantee| TenantComponent { guarantee, held: 0 });
        let guarantees = Guarantees {
            amount: guarantee.map(|guarantee| guarantee.map(|guarantee| guarantee.amount)),
            exclusive: tenant.map(|tenant| tenant.exclusive()),
        };
        let counter = Counter::limited(tenant.map(|tenant| tenant.limit()));
        Self { is_open: true, counter, role: Role::Tenant(guarantees) }
    }

    /// An open pool with these limits, of which `parts` has the shared and the unguaranteed one.
    pub fn pool(limit: Triple<Limit>, parts: &Triple<PoolComponent>) -> Self {
        let row = PoolRow {
            shared: Counter::limited(parts.map(|part| part.shared)),
            unguaranteed: Counter::limited(parts.map(|part| part.unguaranteed)),
            ..PoolRow::UNLIMITED
        };
        Self { is_open: true, counter: Counter::limited(limit), role: Role::Pool(row) }
    }

    /// Whether grants are enabled now.
    pub const fn admits_at(&self, now_ms: i64) -> bool {
        match self.role {
            Role::Pool(PoolRow { open_until_ms, .. }) => self.is_open && open_until_ms > now_ms,
            Role::Principal | Role::Tenant(_) => self.is_open,
        }
    }

    /// Whether any amount of it is limited; of a pool also its shared or its unguaranteed part.
    pub fn is_limited(&self) -> bool {
        let is_limited = |counter: &Counter| {
            Component::ALL.into_iter().any(|component| counter.limit.get(component) != Limit::Unlimited)
        };
        let of_parts = match &self.role {
            Role::Pool(row) => is_limited(&row.shared) || is_limited(&row.unguaranteed),
            Role::Principal | Role::Tenant(_) => false,
        };
        of_parts || is_limited(&self.counter)
    }

    /// The guarantees of a tenant; none for other scopes.
    pub const fn guarantees(&self) -> Guarantees {
        match self.role {
            Role::Tenant(guarantees) => guarantees,
            Role::Principal | Role::Pool(_) => Guarantees::NONE,
        }
    }

    /// What it counts for in the parts of its pool; nothing unless it is a tenant.
    pub fn parts(&self) -> Parts {
        match self.role {
            Role::Tenant(guarantees) => guarantees.parts(&self.counter.held),
            Role::Principal | Role::Pool(_) => Parts::default(),
        }
    }

    /// Whether the tenant would hold more than its guarantee of a component, having `ask` more.
    pub fn borrows(&self, ask: &Amount) -> bool {
        let guarantees = self.guarantees().amount;
        Component::ALL.into_iter().any(|component| {
            let held = self.counter.held.get(component).saturating_add(ask.get(component));
            guarantees.get(component).is_some_and(|guarantee| held > guarantee)
        })
    }

    /// The share of a tenant of this weight on its pool if it holds `ask` more, or less.
    pub fn share_of(&self, pool: &Self, ask: &Amount, weight: u32) -> Share {
        let components = Component::ALL.map(|component| {
            Some((pool.pool_component(component)?, self.tenant_component(component), ask.get(component)))
        });
        Share::new(components.iter().flatten().map(|(pool, tenant, ask)| (pool, tenant, *ask)), weight)
    }

    /// The input of the quota formulas for a tenant on a pool.
    pub fn tenant_component(&self, component: Component) -> TenantComponent {
        let guarantees = self.guarantees();
        let guarantee = guarantees.amount.get(component).map(|amount| Guarantee {
            amount,
            borrow: match self.counter.limit.get(component) {
                Limit::Of(limit) => Limit::Of(limit.saturating_sub(amount)),
                Limit::Unlimited => Limit::Unlimited,
            },
            lend: Limit::Of(amount.saturating_sub(guarantees.exclusive.get(component))),
        });
        TenantComponent { guarantee, held: self.counter.held.get(component) }
    }

    /// The input of the quota formulas for a pool; `None` for other scopes.
    pub const fn pool_component(&self, component: Component) -> Option<PoolComponent> {
        match self.role {
            Role::Pool(PoolRow { shared, unguaranteed, .. }) => Some(PoolComponent {
                unguaranteed: unguaranteed.limit.get(component),
                unguaranteed_held: unguaranteed.held.get(component),
                shared: shared.limit.get(component),
                shared_held: shared.held.get(component),
            }),
            Role::Principal | Role::Tenant(_) => None,
        }
    }

    /// The same with the limits of `other`, and still with what it holds and what a master wrote.
    #[must_use]
    pub const fn with_limits_of(mut self, other: &Self) -> Self {
        self.counter.limit = other.counter.limit;
        self.role = match (self.role, other.role) {
            (Role::Pool(mut row), Role::Pool(new)) => {
                row.shared.limit = new.shared.limit;
                row.unguaranteed.limit = new.unguaranteed.limit;
                Role::Pool(row)
            }
            (_, role) => role,
        };
        self
    }
}
