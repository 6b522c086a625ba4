//! What holds for local processes beyond the contract: real processes, real signals, crashes at every step.

#![allow(clippy::unwrap_used, clippy::panic)]

mod crashes;
mod full;
mod inside;
mod inspecting;
mod machine;
mod place;
mod sharing;
mod telling;
