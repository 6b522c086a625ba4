//! The catalog lock: the one row of table `catalog`, which a transaction locks by raising its counter.
//!
//! Every transaction that changes slots, objects or rows of `engine` takes it. Generations and incarnations are drawn from
//! the same counter. Each time it is taken, the version of the schema is checked: a program that is older than the database
//! would write specs back without the fields that it does not know.

use model::number::Generation;

use crate::error::Error;
use crate::migration;
use crate::rows;
use crate::sql;
use crate::transaction::{Transaction, args};

/// Numbers that were drawn under the catalog lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn {
    /// The highest one.
    pub(crate) last: Generation,
    /// When, by the database's clock: after the lock was taken.
    pub(crate) at_ms: i64,
}

impl Transaction {
    /// Takes the catalog lock and draws no number.
    pub(crate) async fn lock_catalog(&mut self) -> Result<(), Error> {
        self.draw(0).await.map(drop)
    }

    /// Takes the catalog lock and returns the number that it drew.
    pub(crate) async fn lock_catalog_and_draw(&mut self) -> Result<Drawn, Error> {
        self.draw(1).await
    }

    /// Draws `count` numbers and returns the highest; takes the catalog lock if the transaction does not hold it yet.
    /// [`Error::NewerSchema`]: another program has migrated the database since this one opened it.
    pub(crate) async fn draw(&mut self, count: usize) -> Result<Drawn, Error> {
        if self.execute(sql::CATALOG_RAISE, args![count as i64]).await? != 1 {
            return Err(Error::Broken("table catalog has no row".into()));
        }
        let row = self.row_with_clock(sql::CATALOG_WITH_VERSION).await?;
        let row = row.ok_or_else(|| Error::Broken("table catalog or schema_version has no row".into()))?;
        migration::refuse_newer(rows::int(&row, "version")?)?;
        Ok(Drawn { last: Generation(rows::int(&row, "generation")?), at_ms: rows::int(&row, "now_ms")? })
    }
}
