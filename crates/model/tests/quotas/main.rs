//! Quota formulas: the tables of the design, and properties of random pools.
#![allow(clippy::unwrap_used, clippy::panic)]

mod properties;
mod sample;
mod tables;
