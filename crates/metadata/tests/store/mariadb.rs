//! The contract on `MariaDB`, each case in a database of its own.

use metadata::StoreSettings;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::contract;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_MARIADB"]
async fn the_store_keeps_its_contract_on_mariadb() {
    let url =
        std::env::var("EH_TEST_MARIADB").expect("EH_TEST_MARIADB is a mysql:// URL of a user who may CREATE DATABASE");
    let run = uuid::Uuid::new_v4().simple().to_string();
    contract::run_all("mariadb", async |at| {
        let database = format!("eh_{}_{at}", &run[..8]);
        sqlx::any::install_default_drivers();
        let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
        connection.execute(AssertSqlSafe(format!("CREATE DATABASE {database}"))).await.unwrap();
        connection.close().await.unwrap();
        // Replaces the database of the URL.
        let (scheme, rest) = url.split_once("://").unwrap();
        let server = rest.split(['/', '?']).next().unwrap();
        StoreSettings::new(format!("{scheme}://{server}/{database}"))
    })
    .await;
}
