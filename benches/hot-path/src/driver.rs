//! The driver: clients that measure. They use threads and blocking sockets, so that a measured call has no cost of a runtime.

pub mod connection;
pub mod endpoint;
pub mod fetches;
pub mod load;
pub mod logins;
pub mod round_trips;
pub mod session;
mod stream;
