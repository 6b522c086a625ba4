//! The contract on `PostgreSQL`, each case in a schema of its own.

use metadata::StoreSettings;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::contract;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_POSTGRES"]
async fn the_store_keeps_its_contract_on_postgres() {
    let url = std::env::var("EH_TEST_POSTGRES").expect("EH_TEST_POSTGRES is a postgres:// URL");
    let run = uuid::Uuid::new_v4().simple().to_string();
    contract::run_all("postgres", async |at| {
        let schema = format!("eh_{}_{at}", &run[..8]);
        sqlx::any::install_default_drivers();
        let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
        connection.execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await.unwrap();
        connection.close().await.unwrap();
        let sign = if url.contains('?') { '&' } else { '?' };
        StoreSettings::new(format!("{url}{sign}options[search_path]={schema}"))
    })
    .await;
}
