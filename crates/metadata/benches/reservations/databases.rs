//! The databases of a run: two each, for the store and for its peer.

use std::fmt;

use metadata::StoreSettings;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use tempfile::TempDir;

/// Where the files of `SQLite` wait for no disk.
const IN_MEMORY: &str = "/dev/shm";

pub struct Database {
    /// Its place in the lists of targets.
    at: usize,
    name: &'static str,
    /// For the store, and for the peer.
    settings: [StoreSettings; 2],
    /// The URL and the statements that delete both.
    end: Option<(String, [String; 2])>,
    _folder: Option<TempDir>,
}

impl Database {
    /// Those that the environment has.
    pub async fn all() -> Vec<Self> {
        sqlx::any::install_default_drivers();
        let disk = tempfile::tempdir().unwrap();
        let mut all = vec![Self::sqlite(0, "SQLite, synchronous=FULL on a disk", disk)];
        match tempfile::tempdir_in(IN_MEMORY) {
            Ok(folder) => all.push(Self::sqlite(1, "SQLite in memory, which no COMMIT waits for", folder)),
            Err(error) => println!("{IN_MEMORY}: {error}; not measured"),
        }
        let run = uuid::Uuid::new_v4().simple().to_string();
        let names = ["ours", "peer"].map(|side| format!("eh_{}_{side}", &run[..8]));
        match std::env::var("EH_TEST_POSTGRES") {
            Ok(url) => all.push(Self::postgres(url, &names).await),
            Err(_) => println!("EH_TEST_POSTGRES is not set; PostgreSQL is not measured"),
        }
        match std::env::var("EH_TEST_MARIADB") {
            Ok(url) => all.push(Self::mariadb(url, &names).await),
            Err(_) => println!("EH_TEST_MARIADB is not set; MariaDB is not measured"),
        }
        all
    }

    pub const fn at(&self) -> usize {
        self.at
    }

    pub fn ours(&self) -> &StoreSettings {
        &self.settings[0]
    }

    pub fn peers(&self) -> &StoreSettings {
        &self.settings[1]
    }

    pub async fn delete(self) {
        if let Some((url, statements)) = &self.end {
            for statement in statements {
                execute(url, statement).await;
            }
        }
    }

    fn sqlite(at: usize, name: &'static str, folder: TempDir) -> Self {
        let settings = ["ours.db", "peer.db"].map(|file| StoreSettings::sqlite(&folder.path().join(file)));
        Self { at, name, settings, end: None, _folder: Some(folder) }
    }

    async fn postgres(url: String, names: &[String; 2]) -> Self {
        let sign = if url.contains('?') { '&' } else { '?' };
        for schema in names {
            execute(&url, &format!("CREATE SCHEMA {schema}")).await;
        }
        let settings =
            names.each_ref().map(|schema| StoreSettings::new(format!("{url}{sign}options[search_path]={schema}")));
        let end = names.each_ref().map(|schema| format!("DROP SCHEMA {schema} CASCADE"));
        Self { at: 2, name: "PostgreSQL", settings, end: Some((url, end)), _folder: None }
    }

    async fn mariadb(url: String, names: &[String; 2]) -> Self {
        for database in names {
            execute(&url, &format!("CREATE DATABASE {database}")).await;
        }
        let settings = names.each_ref().map(|name| StoreSettings::new(format!("{}/{name}", url.trim_end_matches('/'))));
        let end = names.each_ref().map(|database| format!("DROP DATABASE {database}"));
        Self { at: 3, name: "MariaDB", settings, end: Some((url, end)), _folder: None }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

async fn execute(url: &str, sql: &str) {
    let mut connection = AnyConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    connection.close().await.unwrap();
}
