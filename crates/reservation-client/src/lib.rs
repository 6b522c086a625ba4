//! A client of the reservations API, for programs that are no engines and share a resource pool with them: batch
//! launchers, other schedulers.
//!
//! A program requests an amount ([`Client::obtain`]), starts its work, confirms that an instance uses the reservation
//! ([`Client::confirm`]), renews its lease while it runs ([`Client::keep_renewed`]) and releases it at the end
//! ([`Client::release`]). `examples/share_a_pool.rs` does all of this.
//!
//! Every call is sent to one proxy of a list and, until one has replied, to the next, with a back-off and within a
//! deadline. A request for a reservation is repeated under its [`RequestKey`], and the other calls change nothing the
//! second time, so a proxy that dies costs time and nothing is charged twice. A program that may restart between the
//! request and the reply stores the key before it sends the request.
//!
//! A program that provides the capacity of a pool registers it ([`Client::register`]), keeps the lease renewed
//! ([`Client::keep_registered`]) and unregisters at the end ([`Client::unregister`]).
//!
//! A holder whose reservation has ended ([`Error::is_lost`]) must stop its work: the amount may be granted to another
//! one.

mod client;
mod error;
mod exchange;
mod renewal;
mod request;

pub use client::{Client, ClientOptions};
pub use error::{Error, Problem};
pub use model::ledger::{LedgerError, RegistrationState, RegistrationStatus, ReservationStatus, ShortageStatus, State};
pub use model::resource::{Kind, Resource};
pub use renewal::Renewal;
pub use request::{Claim, ListFilter, PoolCapacity, RequestKey, ReservationRequest, ReservationsPage, Target};
