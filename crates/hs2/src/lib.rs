//! HiveServer2 on the wire: types, transports, server, client, relay.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`tcli`] | the generated structs of `TCLIService`; for the control path only |
//! | [`scan`] | the zero-copy scanner: what a relay must know of a message, read in place |
//! | [`message`], [`method`], [`handle`], [`answer`] | whole messages, to structs and back |
//! | [`server`], [`connection`], [`auth`] | the listener and its connections at the level of messages |
//! | `security_context` | the trait of a login by a ticket |
//! | [`tls`] | TLS below a connection: certificates of listeners, roots of clients, pinned keys between roles |
//! | `http` | HTTP on such a connection: Thrift in POSTs, and the probes of every role |
//! | [`http_api`] | the trait of what is served below `/api/` |
//! | [`service`] | the trait of typed servers above them |
//! | [`client`], [`session`] | the client: calls, and the statements of a session |
//! | [`relay`] | sends a request to a backend and copies the reply without decoding results |
//! | [`handle_table`] | the sessions of a server and their operations, by handle |
//! | [`value`], [`schema`], [`rowset`] | values, columns and result sets |
//! | [`status`], [`protocol`], [`error`], [`limits`] | errors on the wire, versions, limits |
//!
//! Invariants: no length on the wire is trusted before it was compared with its limit and with the bytes that are
//! present; a rejected peer gets the reason in its own protocol, where it speaks one; an idle connection owns no
//! buffer; every wait has a deadline, except the wait for a client's next call. A caller with a stale handle or a
//! closed connection gets an error; nothing is ever resent.

mod admission;
pub mod answer;
pub mod auth;
mod byte_budget;
mod calls;
pub mod client;
mod connect_rate;
pub mod connection;
mod dispatch;
pub mod error;
pub mod failpoints;
mod framing;
pub mod handle;
pub mod handle_table;
mod http;
pub mod http_api;
pub mod limit_hits;
pub mod limits;
pub mod message;
pub mod method;
mod not_admitted;
mod principal;
pub mod protocol;
mod rejection;
pub mod relay;
mod request_memory;
pub mod rowset;
mod sasl;
pub mod scan;
pub mod schema;
mod scratch;
mod security_context;
pub mod server;
pub mod service;
mod service_proof;
pub mod session;
mod socket;
pub mod status;
mod tcp_io;
pub mod tls;
mod transport;
mod typed_server;
pub mod value;
mod wire;

/// The structs of `TCLIService`, generated from `idl/TCLIService.thrift`.
#[allow(missing_docs, unused_qualifications, unused_variables, unreachable_pub, dead_code)]
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::panic)]
#[rustfmt::skip]
pub mod tcli;

pub use auth::{Authenticator, Credentials, HttpScheme, Mechanism, Principal};
pub use client::{Auth, Client, ClientError, ClientOptions};
pub use connection::Connection;
pub use error::{WireError, WireErrorKind};
pub use handle::{Handle, HandleMap};
pub use handle_table::HandleTable;
pub use http_api::{ApiRequest, HttpApi};
pub use limit_hits::{Limit, LimitHits};
pub use limits::Limits;
pub use message::{Call, Message};
pub use method::{Method, Scope};
pub use request_memory::RequestMemory;
pub use schema::Column;
pub use security_context::{ContextStep, SecurityContext, TicketHolder};
pub use server::{Handler, Server};
pub use service::{Context, Service};
pub use service_proof::{ServiceLogin, ServiceProof, Sign};
pub use session::{Session, Statement};
pub use tls::certificate::{CertificateError, Certified, ServerCertificate, Validity};
pub use tls::client::{ClientTls, RootsError};
pub use tls::pinned::ServerKey;
pub use tls::{ServerTls, TlsVersion};
pub use value::{SqlType, Value};
