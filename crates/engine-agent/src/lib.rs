//! The two agents: one beside the metadata database, one beside each engine.
//!
//! | room | role |
//! | --- | --- |
//! | [`metadata`] | the metadata agent: the only role with database credentials; executes control statements |
//! | [`engine`] | the engine agent: stands beside one engine, starts it, registers it, relays sessions to it, drains it |
//!
//! The rooms never import each other. Engines run users' code, so an agent beside one gets no database credential, and
//! what it has opens nothing but its own engine.

pub mod engine;
pub mod metadata;
