//! The control language: sniffer, parser and printer.
//!
//! Control statements arrive as the text of a HiveServer2 `ExecuteStatement`, mixed with the SQL of the engines.
//! First [`sniff()`] reads the head alone; a statement that is not a control statement is never tokenised. [`parse`]
//! reads control statements and is total: any text gives a [`Statement`] or a [`ParseError`] with its position, what
//! was expected there, and a hint for near misses.
//!
//! Invariants: `parse(print(statement)) == statement`; `sniff`, [`pins_session`] and [`session_statement`] never fail
//! and never allocate; the crate does no I/O and keeps no state, so there is no stale caller: the same text always
//! gives the same result, in the proxy, in the metadata agent and in the engine agent.
//!
//! Notation, where the language leaves a choice:
//!
//! - Options are separated by commas; `=` between name and value, and SET before the first, are optional.
//! - A string is in single quotes, which are doubled inside (`'it''s'`); a backslash is an ordinary character.
//! - A name is bare, and then folded to lower case, or in `"…"` or `` `…` ``, and then kept as it is. In `UNIT_LIST`,
//!   `RESOURCE_POOL_LIST` and `DEFAULT_UNIT` it may also be a string. A bare name directly followed by `--` is refused.
//! - The name of an engine is always a string.
//! - Numbers, sizes and durations may be quoted: `1G`, `'1G'`, `WAIT 5m`.
//! - DEFAULT, or NULL, resets `NAMESPACE`, `NODE_LIST`, `NODE_SELECTOR`, `CPU_OVERCOMMIT`, `QUEUE_PREFIX`, `IMAGE`,
//!   `CAPACITY`, `PROTECTED`, `RESOURCE_KIND`, `RECLAIM`, `DEFAULT_UNIT`, the limits of a quota and `COMMENT`.
//!   `NODE_LIST ()` means no node; `NODE_SELECTOR` needs a label, and an amount in parentheses a component.
//! - `USER DEFAULT` and `CREATOR DEFAULT` of a quota name those without a quota of their own; NULL is refused there.
//! - `PROPERTIES RESET` removes all properties; `PROPERTIES RESET ('k'='v')` removes all and then sets.
//! - WAIT without a duration waits for [`DEFAULT_WAIT`].
//! - `EXPLAIN` has none of WAIT, NOWAIT, WITHIN and FORCE, and `ALTER` needs at least one option.
//! - `IN PLACE` follows the options of an ALTER and the name of an engine, and comes before WITHIN and WAIT.
//! - The id of a reservation is always a string.

mod create;
mod cursor;
mod distance;
mod error;
mod like;
mod near_miss;
mod quote;
mod scan;
mod session;
mod sniff;
mod statement;
mod token;

pub use create::print_create;
pub use error::{ParseError, Position};
pub use like::like_matches;
pub use near_miss::near_miss;
pub use quote::{quoted_name, quoted_string};
pub use session::{SessionStatement, assignment, changes_tables, pins_session, session_statement, sets_session};
pub use sniff::{Head, Verb, sniff};
pub use statement::{
    AuditScope, DEFAULT_WAIT, EngineScope, Grace, HistoryScope, MAX_LIMIT, QuotaFilter, ReservationFilter, Statement,
    masked_text, parse,
};
pub use token::MAX_STATEMENT_BYTES;
