//! The fixture of the cases: a migrated database, a store, a manual clock, and short ways to run statements.

use std::sync::Arc;
use std::time::Duration;

use metadata::{
    Backend, Caller, CommitRequest, Committed, EngineAnswer, Error, Request, RestartRequest, StartRequest, StopRequest,
    Store, StoreSettings,
};
use model::alteration::{Abort, ObjectKind, ObjectRef, RequestId, Source};
use model::change::{Change, ObjectPatch, PoolPatch, PropertiesPatch, Rules, TenantPatch, UnitPatch};
use model::clock::{Clock as _, ManualClock};
use model::engine_name::EngineName;
use model::instance::InstanceKind;
use model::name::{PoolName, TenantName, UnitName};
use model::number::{Epoch, Generation};
use model::observation::{CreatedEngine, EngineFacts};
use model::rights::{RoleLists, Subject};
use model::slot::{Link, Replacement};
use sqlx::{AssertSqlSafe, Row as _};

/// The drain grace of the cases.
pub const GRACE: Duration = Duration::from_mins(30);
/// The retention of the audit in the cases.
pub const AUDIT_KEEP: Duration = Duration::from_hours(400 * 24);

/// A database with one store.
#[derive(Clone)]
pub struct Bench {
    pub settings: StoreSettings,
    pub store: Store,
    pub clock: Arc<ManualClock>,
}

pub fn id(text: &str) -> RequestId {
    RequestId::new(text).unwrap()
}

pub fn admin() -> Caller {
    by("admin")
}

pub fn by(user: &str) -> Caller {
    let subject = Subject::new(user, Vec::new(), &RoleLists::of_admins(&["admin"]));
    Caller { subject, source: Source::default() }
}

pub fn link(tenant: &str, pool: &str, unit: &str) -> Link {
    Link {
        tenant: TenantName::new(tenant).unwrap(),
        pool: PoolName::new(pool).unwrap(),
        unit: UnitName::new(unit).unwrap(),
    }
}

pub fn create_unit(name: &str, min: u32, max: u32) -> Change {
    let patch = UnitPatch { min_engines: Some(min), max_engines: Some(max), ..UnitPatch::default() };
    Change::Create { if_not_exists: false, object: ObjectPatch::ResourceUnit(UnitName::new(name).unwrap(), patch) }
}

pub fn change_unit(name: &str, patch: UnitPatch) -> Change {
    Change::Alter { if_exists: false, object: ObjectPatch::ResourceUnit(UnitName::new(name).unwrap(), patch) }
}

pub fn memory(name: &str, memory: &str) -> Change {
    change_unit(name, UnitPatch { driver_memory: Some(memory.parse().unwrap()), ..UnitPatch::default() })
}

fn units(names: &[&str]) -> Vec<UnitName> {
    names.iter().map(|name| UnitName::new(*name).unwrap()).collect()
}

fn pools(names: &[&str]) -> Vec<PoolName> {
    names.iter().map(|name| PoolName::new(*name).unwrap()).collect()
}

pub fn create_pool(name: &str, offers: &[&str]) -> Change {
    let patch = PoolPatch { units: Some(units(offers)), ..PoolPatch::default() };
    Change::Create { if_not_exists: false, object: ObjectPatch::ResourcePool(PoolName::new(name).unwrap(), patch) }
}

pub fn create_tenant(name: &str, uses: &[&str], users: &[&str]) -> Change {
    let users = Some(users.iter().map(|user| (*user).to_owned()).collect());
    let patch = TenantPatch { pools: Some(pools(uses)), users, ..TenantPatch::default() };
    Change::Create { if_not_exists: false, object: ObjectPatch::Tenant(TenantName::new(name).unwrap(), patch) }
}

pub fn change_tenant(name: &str, uses: &[&str]) -> Change {
    let patch = TenantPatch { pools: Some(pools(uses)), ..TenantPatch::default() };
    Change::Alter { if_exists: false, object: ObjectPatch::Tenant(TenantName::new(name).unwrap(), patch) }
}

pub fn drop_object(kind: ObjectKind, name: &str) -> Change {
    Change::Drop { if_exists: false, object: ObjectRef { kind, name: name.to_owned() } }
}

pub fn properties(name: &str, key: &str, value: &str) -> Change {
    let set = [(key.to_owned(), Some(value.to_owned()))].into();
    change_unit(name, UnitPatch { properties: PropertiesPatch { reset: false, set }, ..UnitPatch::default() })
}

/// The commit of an agent that has just read `base`.
pub fn commit(text: &str, change: Change, base: Option<Generation>, deadline: Duration) -> CommitRequest {
    CommitRequest {
        id: id(text),
        statement: format!("{} {}", change.verb(), change.object()),
        change,
        base,
        requested_by: "admin".to_owned(),
        source: Source::default(),
        requested_at_ms: 1,
        agent: "agent-1".to_owned(),
        replacement: Replacement::StandIn,
        grace: GRACE,
        deadline,
    }
}

pub fn abort_of(text: &str) -> Abort {
    Abort {
        id: id(text),
        object: Some(ObjectRef { kind: ObjectKind::Tenant, name: "t_1".to_owned() }),
        base_generation: Generation(0),
        statement: "CREATE TENANT t_1".to_owned(),
        requested_by: "admin".to_owned(),
        source: Source::default(),
        requested_at_ms: 1,
        decided_by: "master 7".to_owned(),
        reason: "its agent is gone".to_owned(),
    }
}

/// START of the client application `IDE`, with a wait.
pub fn start_request(request: Request, link: Link) -> StartRequest {
    let reservation_ttl = model::ledger::RESERVATION_TTL;
    StartRequest { request, link, creator: "IDE".to_owned(), nowait: false, reservation_ttl }
}

/// Runs SQL on a connection of its own.
pub async fn raw(settings: &StoreSettings, sql: &str) {
    let pool = sqlx::any::AnyPoolOptions::new().max_connections(1).connect(&settings.url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&pool).await.unwrap();
    pool.close().await;
}

/// The first column of the first row of a query, on a connection of its own.
pub async fn asked(settings: &StoreSettings, sql: &str) -> String {
    let pool = sqlx::any::AnyPoolOptions::new().max_connections(1).connect(&settings.url).await.unwrap();
    let row = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_one(&pool).await.unwrap();
    let answer = sqlx::Row::get(&row, 0);
    pool.close().await;
    answer
}

impl Bench {
    pub async fn open(settings: StoreSettings) -> Self {
        Store::migrate(&settings).await.unwrap();
        let clock = ManualClock::at(1_000_000);
        let store = Store::open(&settings, Rules::default(), clock.clone()).await.unwrap();
        Self { settings, store, clock }
    }

    /// The same database, with engines that are pods.
    pub async fn with_pods(self) -> Self {
        let Self { settings, store, clock } = self;
        store.close().await;
        drop(store);
        let mut rules = Rules::default();
        rules.defaults.instances = InstanceKind::Pod;
        let store = Store::open(&settings, rules, clock.clone()).await.unwrap();
        Self { settings, store, clock }
    }

    /// Takes back what schema 10 and later ones have added.
    pub async fn without_schema_10(&self) {
        self.without_demand().await;
        for column in ["usr", "creator", "asked_at_ms"] {
            self.raw(&format!("ALTER TABLE slot DROP COLUMN {column}")).await;
        }
        for column in ["capacity", "measured_at_ms"] {
            self.raw(&format!("ALTER TABLE quota_scope DROP COLUMN {column}")).await;
        }
        self.raw("ALTER TABLE master DROP COLUMN drifts").await;
    }

    /// Takes back what schema 12 has added.
    pub async fn without_demand(&self) {
        for table in ["demand", "observed_demand"] {
            self.raw(&format!("DROP TABLE {table}")).await;
        }
        for column in ["owner_kind", "owner"] {
            self.raw(&format!("ALTER TABLE slot DROP COLUMN {column}")).await;
        }
        let on_table = if matches!(self.settings.backend(), Ok(Backend::Mariadb)) { " ON engine" } else { "" };
        self.raw(&format!("DROP INDEX engine_of_tenant_by_end{on_table}")).await;
        for column in [
            "origin",
            "owner_kind",
            "owner",
            "ended_word",
            "retryable",
            "reserved_at_ms",
            "registered_at_ms",
            "charge_cpu",
            "charge_memory",
            "sessions_served",
        ] {
            self.raw(&format!("ALTER TABLE engine DROP COLUMN {column}")).await;
        }
        for column in ["idle_since_ms", "stateful"] {
            self.raw(&format!("ALTER TABLE observed_engine DROP COLUMN {column}")).await;
        }
    }

    /// A deadline that does not expire in this case.
    pub fn soon(&self) -> Duration {
        self.clock.boottime() + Duration::from_mins(1)
    }

    /// Runs SQL outside of the store.
    pub async fn raw(&self, sql: &str) {
        raw(&self.settings, sql).await;
    }

    /// All rows of all tables, one a line, with the table and each column that has a text or a number.
    pub async fn dump(&self) -> String {
        let tables = match self.settings.backend().unwrap() {
            Backend::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
            Backend::Postgres => {
                "SELECT CAST(table_name AS TEXT) FROM information_schema.tables WHERE table_schema = current_schema()"
            }
            Backend::Mariadb => {
                "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()"
            }
        };
        let pool = sqlx::any::AnyPoolOptions::new().max_connections(1).connect(&self.settings.url).await.unwrap();
        let query = |text: &str| sqlx::query(AssertSqlSafe(text.to_owned())).fetch_all(&pool);
        let mut lines = Vec::new();
        for table in query(tables).await.unwrap() {
            let table: String = table.get(0);
            for row in query(&format!("SELECT * FROM {table}")).await.unwrap() {
                let column = |at| match row.try_get::<Option<String>, _>(at) {
                    Ok(text) => text.unwrap_or_default(),
                    Err(_) => row.get::<Option<i64>, _>(at).map_or_else(String::new, |number| number.to_string()),
                };
                let columns: Vec<String> = (0..row.len()).map(column).collect();
                lines.push(format!("{table}: {}", columns.join(" | ")));
            }
        }
        pool.close().await;
        lines.join("\n")
    }

    /// The current generation of the object, as an agent writes it into the alter node.
    pub async fn base(&self, change: &Change) -> Generation {
        let catalog = self.store.catalog().await.unwrap();
        let found = model::change::Object::find(&catalog, &change.object()).unwrap();
        found.map_or(Generation(0), |(_, generation)| generation)
    }

    /// Commits a change; it stays converging.
    pub async fn try_alter(&self, text: &str, change: Change) -> Result<Committed, Error> {
        let base = self.base(&change).await;
        self.store.commit(&commit(text, change, Some(base), self.soon())).await
    }

    /// Commits a change that replaces engines in place.
    pub async fn alter_in_place(&self, text: &str, change: Change) {
        let base = self.base(&change).await;
        let replacement = Replacement::InPlace;
        let request = CommitRequest { replacement, ..commit(text, change, Some(base), self.soon()) };
        self.store.commit(&request).await.unwrap();
    }

    /// Commits a change and finishes it as a master would.
    pub async fn alter(&self, text: &str, change: Change) -> Committed {
        let committed = self.try_alter(text, change).await.unwrap();
        let epoch = self.epoch().await;
        self.store.finish(epoch, &committed.record.id, committed.record.generation).await.unwrap();
        committed
    }

    pub async fn epoch(&self) -> Epoch {
        self.store.master().await.unwrap().epoch
    }

    /// Unit `uc_1` (the given MIN, MAX 3), pool `rp_1` that offers it, tenant `t_1` that uses it, with user alice.
    pub async fn founded(self, min: u32) -> Self {
        self.alter("found-1", create_unit("uc_1", min, 3)).await;
        self.alter("found-2", create_pool("rp_1", &["uc_1"])).await;
        self.alter("found-3", create_tenant("t_1", &["rp_1"], &["alice"])).await;
        self
    }

    pub fn request(&self, text: &str, statement: &str, caller: Caller) -> Request {
        Request { id: id(text), statement: statement.to_owned(), caller, deadline: self.soon() }
    }

    pub async fn start(&self, text: &str) -> Result<EngineAnswer, Error> {
        self.start_as(text, admin(), link("t_1", "rp_1", "uc_1")).await
    }

    pub async fn start_as(&self, text: &str, caller: Caller, link: Link) -> Result<EngineAnswer, Error> {
        let request = self.request(text, "START ENGINE", caller);
        self.store.start(&start_request(request, link)).await
    }

    pub fn stop_request(&self, text: &str, engine: &EngineName) -> StopRequest {
        let request = self.request(text, &format!("STOP ENGINE rp_1 '{engine}'"), admin());
        StopRequest { request, pool: PoolName::new("rp_1").unwrap(), engine: engine.clone(), grace: GRACE }
    }

    pub async fn stop(&self, text: &str, engine: &EngineName) -> Result<EngineAnswer, Error> {
        self.store.stop(&self.stop_request(text, engine)).await
    }

    pub async fn restart(&self, text: &str, engine: &EngineName, force: bool) -> Result<EngineAnswer, Error> {
        let replacement = if force { Replacement::Force } else { Replacement::StandIn };
        self.restart_as(text, engine, replacement).await
    }

    pub async fn restart_as(
        &self,
        text: &str,
        engine: &EngineName,
        replacement: Replacement,
    ) -> Result<EngineAnswer, Error> {
        let request = self.request(text, &format!("RESTART ENGINE rp_1 '{engine}'"), admin());
        let pool = PoolName::new("rp_1").unwrap();
        let grace = Duration::from_mins(10);
        self.store.restart(&RestartRequest { request, pool, engine: engine.clone(), grace, replacement }).await
    }

    /// The names of all current engines, in the order of the slots.
    pub async fn present(&self) -> Vec<EngineName> {
        self.store.snapshot().await.unwrap().slots.iter().map(|slot| slot.engine()).collect()
    }

    /// Records that the engine runs.
    pub async fn made(&self, name: &EngineName) {
        let made = vec![CreatedEngine { name: name.clone(), uid: format!("uid-{name}"), config: "c".to_owned() }];
        self.store.record(self.epoch().await, &EngineFacts { created: made, ..EngineFacts::default() }).await.unwrap();
    }
}
