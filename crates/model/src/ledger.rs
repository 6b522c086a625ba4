//! The ledger of reservations: what every engine, and every external program that shares a pool, is charged, and the
//! limits that each charge must respect. Pure: the metadata database applies the same arithmetic to its rows.
//!
//! | module | concept |
//! | --- | --- |
//! | `scope` | users, creators, tenants on pools and pools, with limits and held amounts |
//! | `reservation` | holders, requests, reservations and their states |
//! | `book` | the in-memory ledger: its invariants, and the conditions of a grant |
//! | `grant`, `hold` | the operations that charge; those on a reservation that exists |
//! | `change` | those operations as values |
//! | `limits` | the limits of a scope's row, and how they change |
//! | `derive` | the scopes and limits that follow from a catalog |
//! | `engine` | the requests of engines |
//! | `snapshot` | the copy that a master plans from |
//! | `trial` | what a change that is only tried would add |
//! | `audit` | recomputes what scopes hold |
//! | `record` | what a master records of the ledger apart from changes of reservations |
//! | `registration` | the capacity of a pool that a program registers |
//! | `queue` | the reasons of requests without a reservation |
//! | `refusal` | why an operation changed nothing |
//! | `status` | reservations and refusals as programs read them |
//!
//! Users, creators and tenants are charged nominal sizes, once for each lineage: the component-wise maximum of its
//! charged reservations, because the engines of a slot replace each other. A pool is charged the requests of each
//! reservation, because both engines exist during a replacement.
//!
//! A stale caller: a grant that was decided in a copy is decided again by the rows that it changes. Each operation
//! names what it applies to, is refused if that is in another state, and may be repeated.

mod audit;
mod book;
mod change;
mod derive;
mod engine;
mod grant;
mod hold;
mod limits;
mod queue;
mod record;
mod refusal;
mod registration;
mod reservation;
mod scope;
mod snapshot;
mod status;
mod trial;

pub use audit::Drift;
pub use book::{Ledger, Moment};
pub use change::{Change, Decided, ScopedChange};
pub use derive::{Measured, changed, derive, principal, principals};
pub use engine::{RESERVATION_TTL, engine_scopes, lineage_of, reclaim_reason, reclaimed_for};
pub use hold::{Actual, Claim, Confirmation, End, overdue_end};
pub use limits::PoolCapacity;
pub use queue::{never_fits, queue_position};
pub use record::{LedgerRecord, LedgerRecorded};
pub use refusal::{Of, Refusal, Shortage, unknown};
pub use registration::{Registration, RegistrationState, RegistrationStatus, offered};
pub use reservation::{Amounts, Holder, Request, Reservation, State, is_transition};
pub use scope::{
    Counter, Guarantees, Parts, PoolRow, Role, Scope, ScopeKey, ScopeKind, Scopes, UNLIMITED, bound, limit_from,
};
pub use status::{HolderKind, LedgerError, ReservationStatus, ShortageStatus};
