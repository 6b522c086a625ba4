//! The bare loops. To reserve: a conditional UPDATE of the tenant and of the pool, one INSERT, COMMIT; it reads nothing. To
//! expire: the same UPDATEs, one of the reservations, COMMIT. Instead of an audit: reading the charged rows.

use metadata::{Backend, CONNECTIONS, StoreSettings};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, ConnectOptions as _, Executor as _};
use tokio::sync::Mutex;

use crate::{Item, TTL_MS};

const UPDATE: &str = "UPDATE quota_scope SET version = version + 1, held_cpu = held_cpu + ?, \
     held_memory = held_memory + ?, held_engines = held_engines + ? WHERE kind = ? AND name = ? AND open = 1 \
     AND held_cpu + ? <= limit_cpu AND held_memory + ? <= limit_memory AND held_engines + ? <= limit_engines";
/// The columns that are not NULL, with the same values.
const INSERT: &str = "INSERT INTO reservation (id, request_key, lineage, tenant, pool, asked_cpu, asked_memory, \
     asked_engines, asked_request_cpu, asked_request_memory, ttl_ms, cpu, memory, engines, request_cpu, \
     request_memory, asked_at_ms, locked_at_ms, deadline_ms, holder, instance, usr, creator, state, asked, epoch) VALUES";
/// The values of one row: those of its request, and the same for all.
const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'external', 'batch-7.example.com', '', '', \
     'locked', '{\"type\":\"Cpu\",\"cpu_m\":1000}', 0)";
const EXPIRE: &str = "UPDATE reservation SET state = 'expired', ended_at_ms = ?, deadline_ms = NULL WHERE id IN";
const CHARGED: &str = "SELECT * FROM reservation WHERE state IN ('locked', 'used')";
const CPU: i64 = 1_000;
const MEMORY: i64 = 1 << 30;
/// A time; its value does not matter.
const NOW_MS: i64 = 2_000_000_000_000;
const TENANT: i64 = 3;
const POOL: i64 = 4;

pub struct Peer {
    pool: AnyPool,
    backend: Backend,
    /// One writer of an `SQLite` file at a time, as in the store: without it they would wait for each other by polling.
    writer: Mutex<()>,
}

impl Peer {
    pub async fn open(settings: &StoreSettings) -> Self {
        let backend = settings.backend().unwrap();
        let options: AnyConnectOptions = settings.url.parse().unwrap();
        let on_connect = match backend {
            Backend::Sqlite => "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL",
            Backend::Postgres => "SET synchronous_commit = on",
            Backend::Mariadb => "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        };
        let pool = AnyPoolOptions::new().max_connections(CONNECTIONS).after_connect(move |connection, _| {
            Box::pin(async move {
                connection.execute(sqlx::raw_sql(on_connect)).await?;
                Ok(())
            })
        });
        let pool = pool.connect_with(options.disable_statement_logging()).await.unwrap();
        Self { pool, backend, writer: Mutex::default() }
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Reserves for items of one pool in one transaction.
    pub async fn reserve(&self, items: &[Item]) {
        let _writer = if self.backend == Backend::Sqlite { Some(self.writer.lock().await) } else { None };
        let mut connection = self.pool.acquire().await.unwrap();
        connection.execute(sqlx::raw_sql(self.begin())).await.unwrap();
        let first = items[0];
        for (kind, name) in [(TENANT, first.tenant_on_pool()), (POOL, first.pool())] {
            self.update(&mut connection, kind, name, items.len() as i64).await;
        }
        self.insert(&mut connection, items).await;
        connection.execute(sqlx::raw_sql("COMMIT")).await.unwrap();
    }

    /// Ends reservations of one pool in one transaction.
    pub async fn expire(&self, items: &[Item]) {
        let _writer = if self.backend == Backend::Sqlite { Some(self.writer.lock().await) } else { None };
        let mut connection = self.pool.acquire().await.unwrap();
        connection.execute(sqlx::raw_sql(self.begin())).await.unwrap();
        let first = items[0];
        for (kind, name) in [(TENANT, first.tenant_on_pool()), (POOL, first.pool())] {
            self.update(&mut connection, kind, name, -(items.len() as i64)).await;
        }
        let list = vec!["?"; items.len()].join(", ");
        let mut query = sqlx::query(AssertSqlSafe(self.rewritten(&format!("{EXPIRE} ({list})")))).bind(NOW_MS);
        for item in items {
            query = query.bind(item.id());
        }
        assert_eq!(query.execute(&mut *connection).await.unwrap().rows_affected(), items.len() as u64);
        connection.execute(sqlx::raw_sql("COMMIT")).await.unwrap();
    }

    /// Reads all charged reservations; returns their number.
    pub async fn read_charged(&self) -> usize {
        let mut connection = self.pool.acquire().await.unwrap();
        connection.fetch_all(CHARGED).await.unwrap().len()
    }

    const fn begin(&self) -> &'static str {
        match self.backend {
            Backend::Sqlite => "BEGIN IMMEDIATE",
            Backend::Postgres => "BEGIN",
            Backend::Mariadb => "START TRANSACTION",
        }
    }

    async fn update(&self, connection: &mut AnyConnection, kind: i64, name: String, count: i64) {
        let amounts = [CPU * count, MEMORY * count, count];
        let mut query = sqlx::query(AssertSqlSafe(self.rewritten(UPDATE)));
        for amount in amounts {
            query = query.bind(amount);
        }
        query = query.bind(kind).bind(name);
        for amount in amounts {
            query = query.bind(amount);
        }
        assert_eq!(query.execute(connection).await.unwrap().rows_affected(), 1);
    }

    async fn insert(&self, connection: &mut AnyConnection, items: &[Item]) {
        let rows = vec![ROW; items.len()].join(", ");
        let mut query = sqlx::query(AssertSqlSafe(self.rewritten(&format!("{INSERT} {rows}"))));
        for item in items {
            query = query.bind(item.id()).bind(item.key()).bind(item.id()).bind(item.tenant()).bind(item.pool());
            let asked = [CPU, MEMORY, 1, CPU, MEMORY, TTL_MS];
            let charged = [CPU, MEMORY, 1, CPU, MEMORY, NOW_MS, NOW_MS, NOW_MS + TTL_MS];
            for number in asked.into_iter().chain(charged) {
                query = query.bind(number);
            }
        }
        assert_eq!(query.execute(connection).await.unwrap().rows_affected(), items.len() as u64);
    }

    /// With `$1`, `$2`, … for `PostgreSQL`.
    fn rewritten(&self, sql: &str) -> String {
        if self.backend != Backend::Postgres {
            return sql.to_owned();
        }
        let mut pieces = sql.split('?');
        let first = pieces.next().unwrap().to_owned();
        pieces.zip(1..).fold(first, |text, (piece, number)| format!("{text}${number}{piece}"))
    }
}
