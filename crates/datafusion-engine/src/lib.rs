//! The embedded engine: Apache `DataFusion` behind HiveServer2.
//!
//! One engine serves one tenant, as a process of its own or inside its engine agent, on loopback and to that agent only.
//! [`Server`] listens; [`Engine`] holds the resources that sessions share: the memory pool (the unit's `DRIVER_MEMORY`),
//! the executor threads (`DRIVER_CPU`) and the tenant's catalog. The layers, from the outside in:
//!
//! | module | what it does |
//! | --- | --- |
//! | [`service`], [`server`] | HiveServer2's calls, the listener |
//! | [`engine`], [`operation`], [`execution`] | sessions and operations, the executor, queued result rows |
//! | [`session`], [`statement`] | settings, and the execution of a statement |
//! | [`functions`] | semantics of functions and operators, and limits on their allocations |
//! | [`catalog`] | tables, views and schemas of the tenant |
//! | [`storage`] | the files that statements may access, limits on memory and disk |
//! | [`rows`], [`metadata_calls`] | conversion of Arrow to HiveServer2, JDBC's metadata |
//! | [`sample`] | data whose every value can be recomputed |
//!
//! Invariants: no statement ends the engine; a result is never held whole; a file outside the allowed locations is
//! neither read nor written. A stale caller (with a closed handle or a dropped table) receives an error with its SQLSTATE
//! and changes nothing.

pub mod catalog;
pub mod config;
pub mod context;
pub mod dialect;
pub mod engine;
pub mod error;
pub mod execution;
pub mod failpoints;
pub mod functions;
pub mod metadata_calls;
pub mod opaque;
pub mod operation;
pub mod rows;
pub mod sample;
pub mod server;
pub mod service;
pub mod session;
pub mod statement;
pub mod storage;

pub use config::{BucketConfig, Config, Credential, Limits};
pub use engine::{Engine, Load};
pub use error::EngineError;
pub use server::{Server, serve};
pub use service::EngineService;
