//! Admission: node fit, the order of grants, and reclaim; by the tables of the design, and by properties of random
//! pools.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fit_fixtures;
mod fit_properties;
mod queue_fixtures;
mod queue_properties;
mod reclaim_fixtures;
mod rounds;
mod sample;
