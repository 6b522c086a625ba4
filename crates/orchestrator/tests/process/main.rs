//! Properties of local processes beyond the contract: real processes, real signals, crashes at every step.

#![allow(clippy::unwrap_used, clippy::panic)]

mod crashes;
mod diagnose;
mod engines;
mod full_disk;
mod guest;
mod keeper_log;
mod run_as;
mod sharing;
mod support;
