//! Refusals: why an operation of the ledger changed nothing, and what a user reads about it.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::reservation::{Holder, Request, State};
use super::scope::{ScopeKey, ScopeKind};
use crate::error::{ErrorKind, NO_POOL, POOL_NOT_REGISTERED, UNKNOWN_RESERVATION, UserError};
use crate::resource::{Component, Triple};

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
    /// What the statement that changes the limit must name, in all components: those of the guarantee, or of the limit.
    pub declared: Triple<Option<i64>>,
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
    /// `TENANT_CPU`
    pub fn word(&self) -> String {
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

    /// The error for the request. `quota` is the name of the scope's quota, and `position` the rank of a queued
    /// request.
    pub fn error(&self, request: &Request, quota: Option<&str>, position: Option<usize>) -> UserError {
        let kind = if self.is_retryable { ErrorKind::InsufficientResources } else { ErrorKind::LimitReached };
        let message = match &request.holder {
            Holder::Engine { unit, .. } => {
                format!("not enough {} for an engine of resource unit \"{unit}\"", self.component.noun())
            }
            Holder::External { .. } => {
                let pool = request.scopes.pool_name();
                format!("not enough {} for a reservation on resource pool \"{pool}\"", self.component.noun())
            }
        };
        UserError::new(kind, message).detail(self.detail(position)).hint(self.hint(quota)).with_error_code(self.code())
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

    fn hint(&self, quota: Option<&str>) -> String {
        let missing = self.component.number(self.asked.saturating_sub(self.left));
        let stop = match (self.is_retryable, self.scope.tenant_and_pool()) {
            (false, _) => String::new(),
            (true, Some((tenant, pool))) => format!("Stop an engine of SHOW ENGINES POOL {tenant} {pool}, or "),
            (true, None) => "Stop an engine of SHOW ENGINES, or ".to_owned(),
        };
        let clause = match self.scope.kind {
            ScopeKind::Pool => {
                let pool = &self.scope.name;
                let with = format!("ALTER RESOURCE POOL {pool} CAPACITY to an amount with {missing} more {}.", {
                    self.component.keyword()
                });
                return stop + &with;
            }
            ScopeKind::Tenant => format!("GUARANTEE ({})", self.amounts()),
            ScopeKind::User | ScopeKind::Creator => format!("LIMIT ({})", self.amounts()),
        };
        match quota {
            Some(quota) => format!("{stop}ALTER RESOURCE QUOTA {quota} {clause}."),
            None => format!("{stop}ALTER RESOURCE QUOTA of {} to {clause}.", self.scope),
        }
    }

    /// `CPU 19, MEMORY '64G'`: the declared amounts with the one that is short raised.
    fn amounts(&self) -> String {
        let named = Component::ALL.into_iter().filter_map(|component| {
            let declared = self.declared.get(component)?;
            let missing = if component == self.component { self.asked.saturating_sub(self.left).max(0) } else { 0 };
            let number = component.number(declared.saturating_add(missing));
            let quote = if component == Component::Memory { "'" } else { "" };
            Some(format!("{} {quote}{number}{quote}", component.keyword()))
        });
        named.collect::<Vec<_>>().join(", ")
    }
}

impl Refusal {
    /// The error for the request that was refused.
    pub fn error(&self, request: &Request, quota: Option<&str>) -> UserError {
        match self {
            Self::Short(shortage) => shortage.error(request, quota, None),
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
    use crate::ledger::reservation::Amounts;
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
            declared: Triple { cpu_m: Some(18_000), memory: None, engines: None },
        }
    }

    #[test]
    fn a_shortage_names_scope_amounts_and_the_statement_that_changes_the_limit() {
        let request = request();
        let error = shortage(request.scopes.tenant().clone()).error(&request, Some("q_a"), None);
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
        let declared = Triple { cpu_m: None, memory: Some(64 << 30), engines: Some(3) };
        let shortage = Shortage {
            component: Component::Memory,
            asked: 65 << 30,
            left: 64 << 30,
            limit: 64 << 30,
            is_retryable: false,
            declared,
            ..shortage(ScopeKey::user("alice"))
        };
        let error = shortage.error(&request, Some("q_u"), Some(4));
        assert_eq!(
            error.text(),
            "not enough memory for an engine of resource unit \"uc_1\"\n\
             Detail: User \"alice\": asked 65G, left 64G of 64G (USER_MEMORY, not retryable, position 4).\n\
             Hint: ALTER RESOURCE QUOTA q_u LIMIT (MEMORY '65G', ENGINES 3)."
        );
        assert_eq!((error.sqlstate(), error.error_code()), ("53400", 46_042));
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
        assert!(text.ends_with("or ALTER RESOURCE POOL rp_1 CAPACITY to an amount with 1 more CPU."), "{text}");
    }
}
