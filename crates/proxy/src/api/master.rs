//! The master.

use ddl::Statement;
use utoipa::openapi::schema::Type;

use super::extract::{Names, NoParameters};
use super::objects::run_whole;
use super::operation::{About, Column, Operation, Rows};

const MASTER: &[Column] = &[
    ("master", Type::String),
    ("state", Type::String),
    ("since", Type::String),
    ("epoch", Type::Integer),
    ("last_tick", Type::String),
    ("last_tick_age", Type::String),
    ("waits_for", Type::String),
    ("lock", Type::String),
    ("queued", Type::Integer),
    ("reservations", Type::String),
    ("drifts", Type::Integer),
];

pub(super) fn operation() -> Operation {
    let about = About {
        id: "getMaster",
        summary: "Returns the master, or no row without one (SHOW MASTER).",
        rows: Rows::Of(MASTER),
        success: &[(200, "The row.")],
    };
    Operation::get("/api/v1/master", &about, |call, _: Names, _: NoParameters| async move {
        run_whole(&call, Statement::ShowMaster).await
    })
}
