//! Tests of the assignment of demand: a table of six pools, cases of several keys, properties of random states, and mutants
//! that these must detect.
#![allow(clippy::unwrap_used, clippy::panic)]

mod keys;
mod mutants;
mod pools;
mod properties;
mod state;
