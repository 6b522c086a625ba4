//! Unit tests of the reconciler over a fake context.
#![allow(clippy::unwrap_used, clippy::panic)]

mod deposed;
mod draining;
mod failed_nodes;
mod fake;
mod in_place;
mod ledger;
mod ledger_records;
mod logging;
mod outages;
mod races;
mod resigning;
mod retiring;
mod settle;
mod silence;
mod stale_pods;
mod tick;
mod turns;
mod waiting;
