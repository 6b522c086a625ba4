//! Calls about reservations and registered capacities: what a proxy passes to a metadata agent on behalf of a user.
//!
//! They are no statements, because programs send them as JSON, many of them, and wait for the state of one. The agent
//! decides about the rights of the user. Each call is idempotent: after [`ApiError::Unavailable`],
//! [`ApiError::Conflict`] or [`ApiError::OutcomeUnknown`] the same call may be sent to another agent.

use async_trait::async_trait;
use hs2::Call;
use model::UserError;
use model::alteration::{RequestId, Source};
use model::ledger::{LedgerError, RegistrationStatus, ReservationStatus, State};
use model::name::{PoolName, TenantName};
use model::resource::{Kind, Resource};
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::method;

/// A call with its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationRequest {
    /// Of the user and the key of the request; the same with every retry.
    pub id: RequestId,
    pub user: String,
    /// Without `@`.
    pub groups: Vec<String>,
    pub source: Source,
    /// How long it may take from its arrival on: afterwards it is refused, and changes nothing. `None`: as long as a transaction.
    #[serde(default)]
    pub deadline_ms: Option<i64>,
    pub call: ReservationCall,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationCall {
    Reserve(Box<Reserve>),
    /// The state of a reservation. Held for at most `hold_ms` while it is waiting, or while it is `known`.
    Get {
        id: String,
        hold_ms: i64,
        known: Option<State>,
    },
    List(ReservationList),
    /// The reservation is used from now on.
    Confirm {
        claim: HolderClaim,
        resource: Option<Resource>,
        lease_ms: Option<i64>,
    },
    /// Extends the lease.
    Renew {
        claim: HolderClaim,
        lease_ms: Option<i64>,
    },
    /// Returns the charge.
    Release {
        claim: HolderClaim,
    },
    /// About the capacity of a pool that a program registers.
    Registration {
        pool: PoolName,
        call: RegistrationCall,
    },
}

/// What a provider of a pool's capacity asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistrationCall {
    /// Registers the capacity, or replaces what the same instance has registered.
    Register(Box<Register>),
    /// Extends the lease of a registration that has not ended.
    Renew { instance: String, lease_ms: Option<i64> },
    /// Closes the pool. `instance`: refused if another one is registered. `force`: reservations of programs end as lost.
    Unregister { instance: Option<String>, force: bool },
    /// The registration as it is.
    Get,
}

/// A capacity to be registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The program.
    pub name: String,
    /// The instance of the program.
    pub instance: String,
    pub capacity: Resource,
    /// What the program keeps of the capacity for others.
    pub protected: Option<Resource>,
    /// `None`: `RESOURCE_KIND` of the pool.
    pub kind: Option<Kind>,
    /// How long it is valid without a renewal; `None`: the default of the installation.
    pub lease_ms: Option<i64>,
}

/// Where a reservation is requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Pool(PoolName),
    /// The pool whose `QUEUE_PREFIX` matches.
    Queue(String),
}

/// A request for a reservation. Its key is the id of the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    pub tenant: TenantName,
    pub target: Target,
    /// The user that is charged; `None`: the caller.
    pub user: Option<String>,
    pub creator: String,
    pub resource: Resource,
    /// How long it may wait in the queue; `None`: it is refused if it cannot be granted.
    pub wait_ms: Option<i64>,
    /// How long it may stay unconfirmed; `None`: the default of the installation.
    pub ttl_ms: Option<i64>,
    /// The instance of the program that requests.
    pub instance: String,
}

/// The reservation that a program claims to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderClaim {
    pub id: String,
    /// `None`: the caller.
    pub user: Option<String>,
    pub pool: String,
    pub instance: String,
}

/// Which reservations, by id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReservationList {
    pub tenant: Option<TenantName>,
    pub pool: Option<PoolName>,
    /// The user that is charged.
    pub user: Option<String>,
    /// Empty: those that have not ended.
    pub states: Vec<State>,
    /// The last id of the page before.
    pub after: Option<String>,
    /// The most rows.
    pub limit: u32,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationAnswer {
    One(Box<ReservationStatus>),
    /// In the order of their ids, and whether there are more.
    Page {
        rows: Vec<ReservationStatus>,
        has_more: bool,
    },
    Registration(Box<RegistrationStatus>),
}

/// Why a call changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationRefused {
    pub error: UserError,
    /// What the ledger adds to the error.
    pub ledger: Option<LedgerError>,
}

impl From<UserError> for ReservationRefused {
    fn from(error: UserError) -> Self {
        let ledger = LedgerError::of(&error);
        Self { error, ledger }
    }
}

/// The result, or why nothing changed.
pub type ReservationReply = Result<ReservationAnswer, ReservationRefused>;

/// The calls of a metadata agent for programs that hold reservations.
#[async_trait]
pub trait ReservationApi: Send + Sync + 'static {
    /// Runs the call with the rights of its user.
    async fn reservations(&self, request: ReservationRequest) -> Result<ReservationReply, ApiError>;
}

/// Serves a call for HiveServer2's extension hook: the whole reply, or `None` for another method.
pub async fn serve_reservations(api: &dyn ReservationApi, call: &Call<'_>) -> Option<Vec<u8>> {
    if call.name != method::RESERVATIONS {
        return None;
    }
    let served = async {
        let request = crate::server::read::<crate::wire::TReservationsReq>(call)?;
        api.reservations(method::from_json(&request.request)?).await
    };
    Some(call.reply(&method::to_answer(served.await)))
}
