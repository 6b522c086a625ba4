//! The two agents: the metadata agent and the engine agent.
//!
//! | module | role |
//! | --- | --- |
//! | [`metadata`] | the metadata agent: the only role with database credentials; executes control statements |
//! | [`engine`] | the engine agent: starts, registers and drains one engine, and relays sessions to it |
//!
//! The modules never import each other. Engines run users' code, so an engine agent has no database credentials, and its
//! own credentials open only its engine.

pub mod engine;
pub mod metadata;
