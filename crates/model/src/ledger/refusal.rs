//! Refusals: why an operation of the ledger changed nothing, and what a user reads about it.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::reservation::{Request, State};
use super::scope::{ScopeKey, ScopeKind};
use crate::error::{EMPTY_POOL, ErrorKind, NO_POOL, POOL_NOT_REGISTERED, UNKNOWN_RESERVATION, UserError};
use crate::resource::Component;
use crate::text::as_detail;

/// Which counter of a scope a request is short of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// Its limit.
    Limit,
    /// What several tenants of the pool can use.
    Shared,
    /// What no guarantee of the pool covers.
    Unguaranteed,
}

/// What a request is short of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub scope: ScopeKey,
    pub of: Of,
    pub component: Component,
    /// What the request adds to the scope; if it can never fit, its whole amount.
    pub asked: i64,
    /// Negative if the limit was lowered below what is held.
    pub left: i64,
    pub limit: i64,
    /// Whether it fits once others have released enough.
    pub is_retryable: bool,
    /// Whether it is short of the capacity of a pool that has none: nothing of what is limited is left without its protected part,
    /// whatever it holds.
    #[serde(default)]
    pub is_of_empty_pool: bool,
}

/// Why an operation changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    Short(Box<Shortage>),
    /// The scope has no row.
    NoScope(ScopeKey),
    /// Grants of the scope are disabled.
    Closed(ScopeKey),
    /// Requests of the pool are queued, or its engines are not all counted yet: only a master grants.
    MustQueue(ScopeKey),
    /// That many requests wait for the scope.
    QueueFull {
        scope: ScopeKey,
        limit: i64,
    },
    /// The key, or the lineage, is that of a request with another content.
    OtherRequest(Arc<str>),
    /// No reservation of this id, user, pool and instance that the operation applies to. The holder must stop.
    Unknown(Arc<str>),
    /// The reservation is in another state than the operation needs.
    WrongState {
        id: Arc<str>,
        from: Option<State>,
        to: State,
    },
    /// A sum would leave 64 bits, or fall below 0.
    OutOfRange,
}

impl Shortage {
    /// `TENANT_CPU`, or `EMPTY_POOL`
    pub fn word(&self) -> String {
        if self.is_of_empty_pool {
            return "EMPTY_POOL".to_owned();
        }
        let scope = match self.scope.kind {
            ScopeKind::User => "USER",
            ScopeKind::Creator => "CREATOR",
            ScopeKind::Tenant => "TENANT",
            ScopeKind::Pool => "POOL",
        };
        format!("{scope}_{}", self.component.keyword())
    }

    /// The `errorCode`.
    pub const fn code(&self) -> i32 {
        if self.is_of_empty_pool {
            return EMPTY_POOL;
        }
        let of_scope = match self.scope.kind {
            ScopeKind::Pool => 46_011,
            ScopeKind::Tenant => 46_021,
            ScopeKind::Creator => 46_031,
            ScopeKind::User => 46_041,
        };
        let of_component = match self.component {
            Component::Cpu => 0,
            Component::Memory => 1,
            Component::Engines => 2,
        };
        of_scope + of_component
    }

    /// Whether only shared or pool amounts are short, which other tenants may have to return.
    pub const fn is_of_pool(&self) -> bool {
        matches!(self.scope.kind, ScopeKind::Pool)
    }

    /// The error for the request. `remedy` is the statement that raises the limit, or what else does, as the second half of a
    /// sentence; `position` is the rank of a queued request.
    pub fn error(&self, request: &Request, remedy: Option<&str>, position: Option<usize>) -> UserError {
        if self.is_of_empty_pool {
            let pool = &self.scope.name;
            return UserError::new(ErrorKind::WrongState, format!("resource pool \"{pool}\" has no capacity"))
                .detail(self.detail(position))
                .hint(format!("Give it a CAPACITY that exceeds its PROTECTED part: see DESCRIBE RESOURCE POOL {pool}."))
                .with_error_code(EMPTY_POOL);
        }
        let kind = if self.is_retryable { ErrorKind::InsufficientResources } else { ErrorKind::LimitReached };
        let message = format!("not enough {} for {}", self.component.noun(), request.what());
        UserError::new(kind, message).detail(self.detail(position)).hint(self.hint(remedy)).with_error_code(self.code())
    }

    /// `Tenant "t_a" on resource pool "rp_1": asked 1, left 0 of 18 (TENANT_CPU, retryable).` With the position of a queued
    /// request, if it is to be named.
    pub fn detail(&self, position: Option<usize>) -> String {
        let scope = match self.of {
            Of::Limit => self.scope.to_string(),
            Of::Shared => format!("shared part of {}", self.scope),
            Of::Unguaranteed => format!("unguaranteed part of {}", self.scope),
        };
        let mut text: String =
            scope.chars().take(1).flat_map(char::to_uppercase).chain(scope.chars().skip(1)).collect();
        let [asked, left, limit] = [self.asked, self.left, self.limit].map(|amount| self.component.number(amount));
        let retryable = if self.is_retryable { "retryable" } else { "not retryable" };
        let _ = write!(text, ": asked {asked}, left {left} of {limit} ({}, {retryable}", self.word());
        if let Some(position) = position {
            let _ = write!(text, ", position {position}");
        }
        text + ")."
    }

    fn hint(&self, remedy: Option<&str>) -> String {
        let remedy = remedy.map_or_else(|| format!("raise the limit of {}", self.scope), str::to_owned);
        match (self.is_retryable, self.scope.tenant_and_pool()) {
            (false, _) => as_detail(&remedy),
            (true, Some((tenant, pool))) => {
                format!("Stop an engine of SHOW ENGINES POOL {tenant} {pool}, or {remedy}.")
            }
            (true, None) => format!("Stop an engine of SHOW ENGINES, or {remedy}."),
        }
    }
}

impl Refusal {
    /// The error for the request that was refused. `remedy` as in [`Shortage::error`].
    pub fn error(&self, request: &Request, remedy: Option<&str>) -> UserError {
        match self {
            Self::Short(shortage) => shortage.error(request, remedy, None),
            Self::NoScope(key) if key.kind == ScopeKind::Pool => no_pool(key),
            Self::NoScope(key) | Self::Closed(key) => not_open(key),
            Self::MustQueue(key) => {
                UserError::new(ErrorKind::InsufficientResources, format!("{key} grants only queued requests now"))
                    .detail("Other requests wait for it, or a new master has not yet counted its engines.")
                    .hint("Retry, or request with a wait.")
            }
            Self::QueueFull { scope, limit } => {
                UserError::new(ErrorKind::ProgramLimit, format!("too many requests wait for {scope}"))
                    .detail(format!("At most {limit} requests wait for it."))
                    .hint("Retry later.")
            }
            Self::OtherRequest(id) => {
                UserError::new(ErrorKind::InvalidValue, format!("reservation \"{id}\" was requested with other values"))
                    .detail("A request key is valid for one request.")
                    .hint("Send the same request, or another key.")
            }
            Self::Unknown(id) => unknown(id),
            Self::WrongState { id, from, to } => {
                let from = from.map_or("missing", State::as_str);
                UserError::new(ErrorKind::WrongState, format!("reservation \"{id}\" is {from}"))
                    .detail(format!("A reservation in this state cannot become {to}."))
            }
            Self::OutOfRange => UserError::new(ErrorKind::DataException, "bigint out of range")
                .detail("The charged amounts of a scope are outside of 64 bits or below 0.")
                .with_sqlstate("22003"),
        }
    }
}

/// The error for a holder whose reservation does not exist in the state that it assumes.
pub fn unknown(id: &str) -> UserError {
    UserError::new(ErrorKind::UndefinedObject, format!("reservation \"{id}\" does not exist"))
        .detail(
            "No reservation of this user, resource pool and instance can be used (UNKNOWN_RESERVATION, not retryable).",
        )
        .hint("Stop the program that uses it, and request another reservation.")
        .with_error_code(UNKNOWN_RESERVATION)
}

fn no_pool(key: &ScopeKey) -> UserError {
    UserError::new(ErrorKind::UndefinedObject, format!("{key} does not exist"))
        .detail("It has no scope to charge (NO_POOL, not retryable).")
        .hint("SHOW RESOURCE POOLS lists the resource pools.")
        .with_error_code(NO_POOL)
}

fn not_open(key: &ScopeKey) -> UserError {
    let error = UserError::new(ErrorKind::WrongState, format!("{key} grants no reservations"));
    match key.kind {
        ScopeKind::Pool => error
            .detail("No capacity of it is registered, or its lease has ended (POOL_NOT_REGISTERED, retryable).")
            .hint("Register its capacity.")
            .with_error_code(POOL_NOT_REGISTERED),
        ScopeKind::Tenant => error.detail("The tenant does not use the resource pool."),
        ScopeKind::User | ScopeKind::Creator => error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ledger::reservation::{Amounts, Holder};
    use crate::ledger::scope::Scopes;
    use crate::name::{PoolName, TenantName, UnitName};
    use crate::number::Incarnation;
    use crate::resource::Amount;

    fn request() -> Request {
        let (tenant, pool) = (TenantName::new("t_a").unwrap(), PoolName::new("rp_1").unwrap());
        Request {
            id: "e".into(),
            holder: Holder::Engine { unit: UnitName::new("uc_1").unwrap(), incarnation: Incarnation(1) },
            lineage: "l".into(),
            scopes: Scopes::new(&tenant, &pool, Some("alice"), Some("IDE")),
            amounts: Amounts::same(Amount { cpu_m: 1_000, memory: 1 << 30, engines: 1 }).unwrap(),
            asked: None,
            ttl_ms: None,
        }
    }

    fn shortage(scope: ScopeKey) -> Shortage {
        Shortage {
            scope,
            of: Of::Limit,
            component: Component::Cpu,
            asked: 1_000,
            left: 0,
            limit: 18_000,
            is_retryable: true,
            is_of_empty_pool: false,
        }
    }

    #[test]
    fn a_shortage_names_scope_amounts_and_the_statement_that_changes_the_limit() {
        let request = request();
        let error = shortage(request.scopes.tenant().clone()).error(
            &request,
            Some("ALTER RESOURCE QUOTA q_a GUARANTEE (CPU 19)"),
            None,
        );
        assert_eq!(
            error.text(),
            "not enough CPU for an engine of resource unit \"uc_1\"\n\
             Detail: Tenant \"t_a\" on resource pool \"rp_1\": asked 1, left 0 of 18 (TENANT_CPU, retryable).\n\
             Hint: Stop an engine of SHOW ENGINES POOL t_a rp_1, or ALTER RESOURCE QUOTA q_a GUARANTEE (CPU 19)."
        );
        assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_021));
    }

    #[test]
    fn a_request_above_the_limit_itself_is_not_retryable() {
        let request = request();
        let shortage = Shortage {
            component: Component::Memory,
            asked: 65 << 30,
            left: 64 << 30,
            limit: 64 << 30,
            is_retryable: false,
            ..shortage(ScopeKey::user("alice"))
        };
        let remedy = "ALTER RESOURCE QUOTA q_u LIMIT (MEMORY '65G', ENGINES 3)";
        let error = shortage.error(&request, Some(remedy), Some(4));
        assert_eq!(
            error.text(),
            "not enough memory for an engine of resource unit \"uc_1\"\n\
             Detail: User \"alice\": asked 65G, left 64G of 64G (USER_MEMORY, not retryable, position 4).\n\
             Hint: ALTER RESOURCE QUOTA q_u LIMIT (MEMORY '65G', ENGINES 3)."
        );
        assert_eq!((error.sqlstate(), error.error_code()), ("53400", 46_042));
    }

    #[test]
    fn a_pool_without_capacity_has_a_code_of_its_own() {
        let request = request();
        let pool = request.scopes.pool().clone();
        let empty = Shortage { is_retryable: false, limit: 0, is_of_empty_pool: true, ..shortage(pool) };
        let error = empty.error(&request, None, None);
        assert_eq!((error.sqlstate(), error.error_code()), ("55000", EMPTY_POOL));
        let text = error.text();
        assert!(text.contains("Resource pool \"rp_1\": asked 1, left 0 of 0 (EMPTY_POOL, not retryable)."), "{text}");
        assert_eq!(Shortage { is_of_empty_pool: false, ..empty }.code(), 46_011);
    }

    #[test]
    fn every_scope_and_component_has_a_code_of_its_own() {
        let scopes = Scopes::new(&TenantName::new("t").unwrap(), &PoolName::new("p").unwrap(), Some("u"), Some("c"));
        let codes: Vec<i32> = scopes
            .in_lock_order()
            .flat_map(|key| Component::ALL.map(|component| Shortage { component, ..shortage(key.clone()) }.code()))
            .collect();
        let expected = [46_041, 46_042, 46_043, 46_031, 46_032, 46_033, 46_021, 46_022, 46_023, 46_011, 46_012, 46_013];
        assert_eq!(codes, expected);
    }

    #[test]
    fn parts_of_a_pool_are_named() {
        let request = request();
        let pool = shortage(request.scopes.pool().clone());
        let text = Shortage { of: Of::Shared, ..pool }.error(&request, None, None).text();
        assert!(
            text.contains("Shared part of resource pool \"rp_1\": asked 1, left 0 of 18 (POOL_CPU, retryable)"),
            "{text}"
        );
        assert!(text.ends_with("or raise the limit of resource pool \"rp_1\"."), "{text}");
    }
}
