//! The tables of the ledger, and its arithmetic: one component, one user, two tenants on one pool.

pub(super) const USER: usize = 0;
pub(super) const A: usize = 1;
pub(super) const B: usize = 2;
pub(super) const POOL: usize = 3;

/// What tenant A may borrow.
const BORROW: u8 = 4;

/// A request: of an engine, or of an external holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Request {
    pub key: u8,
    /// Its engines are charged once to user and tenant.
    pub lineage: u8,
    pub tenant: usize,
    /// Whether it is charged to the user.
    pub user: bool,
    pub amount: u8,
}

impl Request {
    /// One unit, in a lineage of its own.
    pub const fn of(key: u8, tenant: usize) -> Self {
        Self { key, lineage: key, tenant, user: false, amount: 1 }
    }

    /// In lock order.
    pub fn scopes(self) -> Vec<usize> {
        let user = self.user.then_some(USER);
        user.into_iter().chain([self.tenant, POOL]).collect()
    }
}

/// The row of a reservation: charged, or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reservation {
    pub request: Request,
    pub charged: bool,
}

/// The row of a scope. The shared part is that of a pool, the exclusive part that of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    pub held: u8,
    pub limit: u8,
    pub exclusive: u8,
    pub shared_held: u8,
    pub shared_limit: u8,
}

impl Scope {
    pub const fn new(limit: u8) -> Self {
        Self { held: 0, limit, exclusive: 0, shared_held: 0, shared_limit: 0 }
    }

    /// What the tenant uses of the shared part if it holds `held`.
    pub const fn shared(self, held: u8) -> u8 {
        held.saturating_sub(self.exclusive)
    }

    /// What it uses more of the shared part if it holds `delta` more than `held`.
    pub fn shared_by(self, held: u8, delta: i8) -> i8 {
        self.shared(plus(held, delta)) as i8 - self.shared(held) as i8
    }
}

/// The rows: as committed, or as a transaction reads them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Data {
    pub epoch: u8,
    /// The catalog: the limit of the user, and the guarantee of tenant A, of which nothing is lent.
    pub user_limit: u8,
    pub guarantee: u8,
    /// The row of the user is inserted at its first request.
    pub scopes: [Option<Scope>; 4],
    /// In order.
    pub reservations: Vec<Reservation>,
}

/// The change of what the scopes of a request hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effect {
    /// Of user and tenant.
    pub policy: i8,
    pub pool: i8,
    pub shared: i8,
}

fn plus(amount: u8, delta: i8) -> u8 {
    amount.saturating_add_signed(delta)
}

impl Data {
    /// A pool with that capacity, the guarantee of tenant A, and no user.
    pub fn new(capacity: u8, guarantee: u8) -> Self {
        let pool = Scope { shared_limit: capacity - guarantee, ..Scope::new(capacity) };
        let a = Scope { exclusive: guarantee, ..Scope::new(guarantee + BORROW) };
        let scopes = [None, Some(a), Some(Scope::new(BORROW)), Some(pool)];
        Self { epoch: 1, user_limit: 2, guarantee, scopes, reservations: Vec::new() }
    }

    /// With the row of the user.
    pub fn with_user(mut self) -> Self {
        self.scopes[USER] = Some(Scope::new(self.user_limit));
        self
    }

    /// With a charged reservation.
    pub fn with(mut self, request: Request) -> Self {
        let effect = self.effect(request, None, Some(request.amount), None);
        self.charge(request, effect);
        self.put(Reservation { request, charged: true });
        self
    }

    pub fn put(&mut self, reservation: Reservation) {
        self.reservations.retain(|other| other.request.key != reservation.request.key);
        self.insert(reservation);
    }

    /// Inserts without regard to the key.
    pub fn insert(&mut self, reservation: Reservation) {
        self.reservations.push(reservation);
        self.reservations.sort_unstable();
    }

    pub fn of_key(&self, key: u8) -> Option<Reservation> {
        self.reservations.iter().find(|reservation| reservation.request.key == key).copied()
    }

    /// The largest charge of the lineage, with one of `removed` less and one of `added` more.
    fn lineage(&self, lineage: u8, removed: Option<u8>, added: Option<u8>) -> u8 {
        let charged = self.reservations.iter().filter(|row| row.charged && row.request.lineage == lineage);
        let mut sizes: Vec<u8> = charged.map(|row| row.request.amount).collect();
        if let Some(at) = removed.and_then(|removed| sizes.iter().position(|size| *size == removed)) {
            sizes.remove(at);
        }
        sizes.into_iter().chain(added).max().unwrap_or(0)
    }

    /// What a change of the request's lineage adds. `tenant_held` is what its tenant holds before, if it is not what its
    /// row says.
    pub fn effect(&self, request: Request, removed: Option<u8>, added: Option<u8>, tenant_held: Option<u8>) -> Effect {
        let lineage = request.lineage;
        let policy = self.lineage(lineage, removed, added) as i8 - self.lineage(lineage, None, None) as i8;
        let pool = added.unwrap_or(0) as i8 - removed.unwrap_or(0) as i8;
        let tenant = self.scopes[request.tenant];
        let shared = tenant.map_or(0, |row| row.shared_by(tenant_held.unwrap_or(row.held), policy));
        Effect { policy, pool, shared }
    }

    /// Whether the effect exceeds no limit. `None` if a scope has no row.
    pub fn admits(&self, request: Request, effect: Effect) -> Option<bool> {
        let mut admitted = true;
        for scope in request.scopes() {
            let row = self.scopes[scope]?;
            let fits = |held: u8, delta: i8, limit: u8| delta <= 0 || plus(held, delta) <= limit;
            admitted &= if scope == POOL {
                let shared = fits(row.shared_held, effect.shared, row.shared_limit);
                fits(row.held, effect.pool, row.limit) && shared
            } else {
                fits(row.held, effect.policy, row.limit)
            };
        }
        Some(admitted)
    }

    /// Changes what the scopes hold, regardless of limits.
    pub fn charge(&mut self, request: Request, effect: Effect) {
        for scope in request.scopes() {
            let Some(row) = &mut self.scopes[scope] else { continue };
            if scope == POOL {
                row.held = plus(row.held, effect.pool);
                row.shared_held = plus(row.shared_held, effect.shared);
            } else {
                row.held = plus(row.held, effect.policy);
            }
        }
    }

    /// ALTER of the guarantee of tenant A: its row and what follows for the pool.
    pub fn alter_guarantee(&mut self, guarantee: u8) {
        let [_, Some(tenant), _, Some(pool)] = &mut self.scopes else { return };
        let before = tenant.shared(tenant.held);
        pool.shared_limit = (pool.shared_limit + self.guarantee).saturating_sub(guarantee);
        self.guarantee = guarantee;
        (tenant.exclusive, tenant.limit) = (guarantee, guarantee + BORROW);
        let after = tenant.shared(tenant.held);
        pool.shared_held = plus(pool.shared_held, after as i8 - before as i8);
    }

    /// What the scope must hold, by the reservations; of a pool also its shared part, by the rows of its tenants.
    pub fn computed(&self, scope: usize) -> (u8, u8) {
        let charged = || self.reservations.iter().filter(|row| row.charged).map(|row| row.request);
        if scope == POOL {
            let held = charged().map(|request| request.amount).sum();
            let shared = [A, B].iter().filter_map(|tenant| self.scopes[*tenant]).map(|row| row.shared(row.held)).sum();
            return (held, shared);
        }
        let mut lineages: Vec<u8> = charged()
            .filter(|request| if scope == USER { request.user } else { request.tenant == scope })
            .map(|request| request.lineage)
            .collect();
        lineages.sort_unstable();
        lineages.dedup();
        (lineages.into_iter().map(|lineage| self.lineage(lineage, None, None)).sum(), 0)
    }

    /// The scopes that hold what they must not.
    pub fn drifts(&self, scope: usize) -> bool {
        let computed = self.computed(scope);
        self.scopes[scope].is_some_and(|row| (row.held, row.shared_held) != computed)
    }

    /// Whether a scope of the request holds more than its limit, by the reservations, of what the effect raises.
    pub fn exceeds(&self, request: Request, effect: Effect) -> bool {
        let shared = || {
            let of_tenant = |tenant: &usize| self.scopes[*tenant].map(|row| row.shared(self.computed(*tenant).0));
            [A, B].iter().filter_map(of_tenant).sum::<u8>()
        };
        request.scopes().into_iter().any(|scope| {
            let Some(row) = self.scopes[scope] else { return false };
            let delta = if scope == POOL { effect.pool } else { effect.policy };
            let over = delta > 0 && self.computed(scope).0 > row.limit;
            over || scope == POOL && effect.shared > 0 && shared() > row.shared_limit
        })
    }
}
