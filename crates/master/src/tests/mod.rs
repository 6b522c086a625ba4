//! The driver in worlds that do what a test tells them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod deposed;
mod doubting;
mod draining;
mod fake;
mod moved;
mod resigning;
mod settling;
mod silent;
mod telling;
mod ticking;
mod turns;
