//! Reservations and refusals as programs read them: the JSON of the API.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::refusal::{Of, Shortage};
use super::reservation::{Holder, Reservation, State};
use super::scope::ScopeKey;
use crate::clock::utc;
use crate::error::{
    EMPTY_POOL, FENCED, KIND_MISMATCH, KIND_UNKNOWN, LOCK_TIMEOUT, NO_POOL, POOL_NOT_REGISTERED, REQUEST_TIMEOUT,
    UNKNOWN_RESERVATION, UserError,
};
use crate::resource::{Component, Resource};

/// What holds a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HolderKind {
    Engine,
    External,
}

/// A reservation at one moment. Times are UTC: `2026-11-21T12:51:53.004Z`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationStatus {
    pub id: Arc<str>,
    pub state: State,
    /// The end of the wait, of the time to confirm, or of the lease; `None` without one.
    pub expires_at: Option<String>,
    pub holder: HolderKind,
    pub tenant: String,
    pub pool: String,
    /// The user that is charged; `None` if none is.
    pub user: Option<String>,
    /// The client application that is charged; `None` if none is.
    pub creator: Option<String>,
    /// The instance that uses it; before that, the one that requested it. `None` for an engine that has no instance.
    pub instance: Option<String>,
    /// What was requested; `None` for an engine.
    pub resource: Option<Resource>,
    /// What users, creators and tenants are charged, in thousandths of a core.
    pub cpu_m: i64,
    /// In bytes.
    pub memory: i64,
    pub engines: i64,
    pub asked_at: String,
    pub ended_at: Option<String>,
    /// The rank of a waiting request among those that wait for the pool, from 1.
    pub position: Option<u64>,
    /// Why it waits, or why it has ended.
    pub reason: Option<String>,
}

impl From<&Reservation> for ReservationStatus {
    fn from(reservation: &Reservation) -> Self {
        let request = &reservation.request;
        let (holder, requesting) = match &request.holder {
            Holder::Engine { .. } => (HolderKind::Engine, None),
            Holder::External { instance, .. } => (HolderKind::External, Some(instance)),
        };
        let charged = reservation.amounts.nominal();
        Self {
            id: Arc::clone(reservation.id()),
            state: reservation.state,
            expires_at: reservation.deadline_ms.filter(|_| !reservation.state.is_ended()).map(utc),
            holder,
            tenant: request.scopes.tenant_name().to_owned(),
            pool: request.scopes.pool_name().to_owned(),
            user: request.scopes.user_name().map(str::to_owned),
            creator: request.scopes.creator_name().map(str::to_owned),
            instance: reservation.uid.as_ref().or(requesting).map(ToString::to_string),
            resource: request.asked.clone(),
            cpu_m: charged.cpu_m,
            memory: charged.memory,
            engines: charged.engines,
            asked_at: utc(reservation.asked_at_ms),
            ended_at: reservation.ended_at_ms.filter(|_| reservation.state.is_ended()).map(utc),
            position: None,
            reason: reservation.reason.as_ref().map(ToString::to_string),
        }
    }
}

/// The members that the ledger adds to the problem details of an error (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerError {
    #[serde(rename = "errorCode")]
    pub error_code: i32,
    /// The word of the code, such as `TENANT_CPU`.
    pub code: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<ShortageStatus>,
}

/// What a request is short of. Amounts are in thousandths of a core, in bytes, or numbers of engines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortageStatus {
    pub scope: ScopeKey,
    /// The counter of the scope.
    pub of: Of,
    pub component: Component,
    pub asked: i64,
    /// Negative if the limit was lowered below what is held.
    pub left: i64,
    pub limit: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

impl LedgerError {
    /// The members for a shortage.
    pub fn short(shortage: &Shortage) -> Self {
        Self {
            error_code: shortage.code(),
            code: shortage.word(),
            retryable: shortage.is_retryable,
            shortage: Some(ShortageStatus {
                scope: shortage.scope.clone(),
                of: shortage.of,
                component: shortage.component,
                asked: shortage.asked,
                left: shortage.left,
                limit: shortage.limit,
                position: None,
            }),
        }
    }

    /// The members for an error whose code is one of the ledger's and is no shortage; `None` for any other error.
    pub fn of(error: &UserError) -> Option<Self> {
        let error_code = error.error_code();
        let code = word(error_code)?;
        let retryable = matches!(error_code, LOCK_TIMEOUT | REQUEST_TIMEOUT | POOL_NOT_REGISTERED);
        Some(Self { error_code, code: code.to_owned(), retryable, shortage: None })
    }
}

/// The word of a code of the ledger that is no shortage.
const fn word(error_code: i32) -> Option<&'static str> {
    Some(match error_code {
        LOCK_TIMEOUT => "LOCK_TIMEOUT",
        REQUEST_TIMEOUT => "REQUEST_TIMEOUT",
        UNKNOWN_RESERVATION => "UNKNOWN_RESERVATION",
        NO_POOL => "NO_POOL",
        EMPTY_POOL => "EMPTY_POOL",
        POOL_NOT_REGISTERED => "POOL_NOT_REGISTERED",
        KIND_UNKNOWN => "KIND_UNKNOWN",
        KIND_MISMATCH => "KIND_MISMATCH",
        FENCED => "FENCED",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::ErrorKind;
    use crate::ledger::unknown;

    #[test]
    fn members_of_a_shortage_follow_the_code() {
        let shortage = Shortage {
            scope: ScopeKey::user("alice"),
            of: Of::Limit,
            component: Component::Cpu,
            asked: 1_000,
            left: -500,
            limit: 18_000,
            is_retryable: true,
            is_of_empty_pool: false,
        };
        let members = LedgerError::short(&shortage);
        let json = serde_json::to_value(&members).unwrap();
        let expected = serde_json::json!({
            "errorCode": 46_041, "code": "USER_CPU", "retryable": true, "scope": {"kind": "user", "name": "alice"},
            "of": "limit", "component": "cpu", "asked": 1_000, "left": -500, "limit": 18_000
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<LedgerError>(json).unwrap(), members);
    }

    #[test]
    fn only_codes_of_the_ledger_have_members() {
        let members = LedgerError::of(&unknown("r")).unwrap();
        let json = serde_json::to_value(&members).unwrap();
        let expected = serde_json::json!({"errorCode": 46_061, "code": "UNKNOWN_RESERVATION", "retryable": false});
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<LedgerError>(json).unwrap(), members);
        for (code, word, retryable) in [
            (LOCK_TIMEOUT, "LOCK_TIMEOUT", true),
            (REQUEST_TIMEOUT, "REQUEST_TIMEOUT", true),
            (EMPTY_POOL, "EMPTY_POOL", false),
            (POOL_NOT_REGISTERED, "POOL_NOT_REGISTERED", true),
            (FENCED, "FENCED", false),
        ] {
            let members = LedgerError::of(&UserError::new(ErrorKind::Conflict, "x").with_error_code(code)).unwrap();
            assert_eq!((members.code.as_str(), members.retryable), (word, retryable));
        }
        assert_eq!(LedgerError::of(&UserError::new(ErrorKind::EngineDraining, "x")), None);
        assert_eq!(LedgerError::of(&UserError::new(ErrorKind::WrongState, "x")), None);
    }
}
