//! The embedded engine: Apache `DataFusion` behind HiveServer2.
//!
//! One engine serves one tenant, as a process of its own or inside its engine agent, on loopback and to that agent only.
//! [`Server`] listens; [`Engine`] holds what the sessions share: the pool of memory (the unit's `DRIVER_MEMORY`), the threads
//! that execute (`DRIVER_CPU`), the tenant's catalog. The layers, outside in:
//!
//! | module | what it does |
//! | --- | --- |
//! | [`service`], [`server`] | HiveServer2's calls, the listener |
//! | [`engine`], [`operation`], [`execution`] | sessions and operations, threads of their own, rows on their way out |
//! | [`session`], [`statement`] | settings, and from a text to rows |
//! | [`functions`] | what functions and operators mean, and how much they may allocate |
//! | [`catalog`] | tables, views and schemas in the tenant's folder |
//! | [`storage`] | which files may be touched, how much memory and disk may be used |
//! | [`rows`], [`metadata_calls`] | Arrow to HiveServer2, JDBC's metadata |
//! | [`sample`] | data whose every value can be recomputed |
//!
//! Invariants: nothing that a statement does ends the engine; a result is never held whole; a file outside the allowed
//! locations is neither read nor written. A stale caller (a handle that was closed, a dropped table) gets an error with its
//! SQLSTATE and changes nothing.

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
