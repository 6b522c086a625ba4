//! SHOW RESERVATIONS, DESCRIBE RESERVATION and CANCEL RESERVATION.

use std::fmt;

use model::name::{PoolName, TenantName};

use super::Statement;
use super::limit::{read_limit, write_limit};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::{quoted_name, quoted_string};

/// Whose reservations SHOW RESERVATIONS lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationFilter {
    Tenant(TenantName),
    Pool(PoolName),
    /// Those that are charged to the user.
    User(String),
}

/// Parses `[TENANT t_1 | POOL rp_1 | USER 'alice'] [ALL] [LIMIT n]`.
pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, ParseError> {
    let of = if cursor.eat("TENANT") {
        Some(ReservationFilter::Tenant(cursor.tenant()?))
    } else if cursor.eat("POOL") {
        Some(ReservationFilter::Pool(cursor.pool()?))
    } else if cursor.eat("USER") {
        Some(ReservationFilter::User(cursor.string("the name of a user such as 'alice'")?))
    } else {
        None
    };
    let all = cursor.eat("ALL");
    let limit = read_limit(cursor)?;
    if limit.is_some() && cursor.is("ALL") {
        return Err(cursor.missing("the end of the statement").or_hint("Write ALL before LIMIT."));
    }
    Ok(Statement::ShowReservations { of, all, limit })
}

/// The id of a reservation, always in single quotes.
pub(super) fn read_id(cursor: &mut Cursor<'_>) -> Result<String, ParseError> {
    cursor.string("the id of a reservation in single quotes")
}

pub(super) fn write_show(
    f: &mut fmt::Formatter<'_>,
    of: Option<&ReservationFilter>,
    all: bool,
    limit: Option<u32>,
) -> fmt::Result {
    f.write_str("SHOW RESERVATIONS")?;
    match of {
        None => {}
        Some(ReservationFilter::Tenant(tenant)) => write!(f, " TENANT {}", quoted_name(tenant.as_str()))?,
        Some(ReservationFilter::Pool(pool)) => write!(f, " POOL {}", quoted_name(pool.as_str()))?,
        Some(ReservationFilter::User(user)) => write!(f, " USER {}", quoted_string(user))?,
    }
    f.write_str(if all { " ALL" } else { "" })?;
    write_limit(f, limit)
}

/// `<verb> RESERVATION 'id'`
pub(super) fn write_one(f: &mut fmt::Formatter<'_>, verb: &str, id: &str) -> fmt::Result {
    write!(f, "{verb} RESERVATION {}", quoted_string(id))
}
