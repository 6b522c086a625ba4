//! The control language: is a statement ours, what does it say, and how is it written down again.
//!
//! Control statements arrive as the text of a `HiveServer2` `ExecuteStatement`, mixed with the SQL of the engines. The
//! first question, [`sniff()`], looks at the head alone; what is not ours is never tokenised. What is ours is read by
//! [`parse`], which is total: any text gives a [`Statement`] or a [`ParseError`] with its place, what was expected
//! there, and a hint for near misses.
//!
//! Invariants: `parse(print(statement)) == statement`; `sniff`, [`pins_session`] and [`session_statement`] never fail
//! and never allocate; nothing here does IO or keeps state, so there is no stale caller: the same text always gives
//! the same answer, in the proxy, in the metadata agent and in the engine agent.
//!
//! How things are written, where the language leaves a choice:
//!
//! - Options are separated by commas; `=` between name and value, and SET before the first, may be left out.
//! - A string stands in single quotes and doubles them inside (`'it''s'`); a backslash is an ordinary character.
//! - A name is bare, and then folded to lower case, or stands in `"…"` or `` `…` `` and is taken as it is. In
//!   `UNIT_LIST`, `RESOURCE_POOL_LIST` and `DEFAULT_UNIT` it may also be a string. A bare name with `--` right behind it is refused.
//! - The name of an engine is always a string.
//! - Numbers, sizes and lengths of time may be quoted or not: `1G`, `'1G'`, `WAIT 5m`.
//! - DEFAULT, or NULL, takes back `NAMESPACE`, `NODE_LIST`, `NODE_SELECTOR`, `CPU_OVERCOMMIT`, `QUEUE_PREFIX`, `IMAGE`,
//!   `DEFAULT_UNIT` and `COMMENT`. `NODE_LIST ()` is no node; `NODE_SELECTOR` needs a label.
//! - `PROPERTIES RESET` drops all properties; `PROPERTIES RESET ('k'='v')` drops all and then sets.
//! - A bare WAIT waits for [`DEFAULT_WAIT`].
//! - `EXPLAIN` takes no WAIT, and `ALTER` needs at least one option.

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
pub use session::{SessionStatement, changes_tables, pins_session, session_statement, sets_session};
pub use sniff::{Head, Verb, sniff};
pub use statement::{DEFAULT_WAIT, EngineScope, Grace, MAX_LIMIT, Statement, masked_text, parse};
pub use token::MAX_STATEMENT_BYTES;
