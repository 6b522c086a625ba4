//! The API of metadata agents for masters and proxies, and the two calls of engine agents.
//!
//! [`AgentApi`] is the API: the metadata agent implements it over its store, [`AgentClient`] over a connection, so
//! that a master can use either. [`ReservationApi`] has the calls of programs that hold reservations. Every write is
//! idempotent and carries the epoch or the id that it was derived from: after [`ApiError::Unavailable`] or
//! [`ApiError::OutcomeUnknown`] the same call may be repeated at another agent. A stale caller is refused and receives
//! the current master's row.
//!
//! On the wire these are additional methods of the HiveServer2 connection (`idl/EnginehouseService.thrift`).

mod api;
pub mod caller;
mod client;
mod engine_status;
mod error;
pub mod failpoints;
mod method;
pub mod overlay;
mod pool;
mod report;
mod reservations;
mod retire;
mod server;
mod sharer;
pub mod tls;
pub mod verification;

/// The wire structs, generated from `idl/EnginehouseService.thrift`.
#[allow(missing_docs, unused_qualifications, unused_variables, unreachable_pub, dead_code)]
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::panic)]
#[rustfmt::skip]
mod wire;

pub use api::AgentApi;
pub use caller::{Audience, Caller, EngineEndpoint, MetadataAgentEndpoint};
pub use client::AgentClient;
pub use engine_status::{ENGINE_STATUS, EngineStatus, answer_engine_status, engine_status};
pub use error::{ApiError, ApiErrorKind};
pub use pool::{AgentPool, PoolOptions};
pub use reservations::{
    HolderClaim, Register, RegistrationCall, ReservationAnswer, ReservationApi, ReservationCall, ReservationList,
    ReservationRefused, ReservationReply, ReservationRequest, Reserve, Target, serve_reservations,
};
pub use retire::{RETIRE, RetireRequest, answer_retire, retire, retire_request};
pub use server::serve;
pub use sharer::{take_sharer, write_sharer};
pub use tls::ClusterTls;
pub use verification::{SERVICE_MASTER, SERVICE_PROXY, authenticate, authenticate_password};
