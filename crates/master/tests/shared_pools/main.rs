//! Pools that tenants share, through SQL: the fixtures of the design by statements of clients to a real proxy, with a
//! real metadata agent and a real master over an embedded ZooKeeper, on each database. Only the engines are those of the
//! orchestrator's fake.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../engine-agent/tests/fixture/agents.rs"]
mod agents;
#[path = "../../../engine-agent/tests/fixture/mod.rs"]
mod fixture;

mod installation;
mod programs;

/// Tests of a property on each database. Those of servers need their URLs.
macro_rules! on_each_database {
    ($($property:ident),+ $(,)?) => {$(
        mod $property {
            use crate::installation::Database;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                super::$property(Database::Sqlite).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs EH_TEST_POSTGRES"]
            async fn on_postgres() {
                super::$property(Database::Postgres).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs EH_TEST_MARIADB"]
            async fn on_mariadb() {
                super::$property(Database::Mariadb).await;
            }
        }
    )+};
}

mod alternation;
mod guarantees;
mod hints;
mod nodes;
mod overcommit;
mod protected;
