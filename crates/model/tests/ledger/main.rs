//! The ledger: the fixtures of the design, properties of random sequences of operations, and one case for each ordering
//! or rule without which capacity is granted twice or charged for ever.
#![allow(clippy::unwrap_used, clippy::panic)]

mod derivation;
mod fixtures;
mod properties;
mod rules;
mod sample;
