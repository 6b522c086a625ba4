//! Cases of resource quotas: the table, its generations, conflicts, and what a quota leaves alone.

use metadata::{Error, SCHEMA_VERSION, Store, StoreErrorKind};
use model::alteration::ObjectKind;
use model::change::{Change, ObjectPatch, QuotaPatch, Rules, Setting};
use model::clock::SystemClock;
use model::name::{PoolName, QuotaName, TenantName};
use model::number::Generation;
use model::quota::{DeclaredAmount, Principal, QuotaScope};
use model::resource::Component;

use super::bench::{Bench, change_tenant, commit, drop_object, id};

fn quota(name: &str, patch: QuotaPatch) -> ObjectPatch {
    ObjectPatch::ResourceQuota(QuotaName::new(name).unwrap(), patch)
}

fn guarantee(cpu: &str) -> Setting<DeclaredAmount> {
    Setting::Set(DeclaredAmount { cpu: Some(cpu.parse().unwrap()), ..DeclaredAmount::default() })
}

fn create_quota(name: &str, cpu: &str) -> Change {
    let patch = QuotaPatch {
        tenant: Some(TenantName::new("t_1").unwrap()),
        pool: Some(PoolName::new("rp_1").unwrap()),
        guarantee: guarantee(cpu),
        ..QuotaPatch::default()
    };
    Change::Create { if_not_exists: false, object: quota(name, patch) }
}

fn create_user_quota(name: &str, user: &str) -> Change {
    let patch = QuotaPatch { user: Some(Principal::Named(user.to_owned())), ..QuotaPatch::default() };
    Change::Create { if_not_exists: false, object: quota(name, patch) }
}

fn change_quota(name: &str, cpu: &str) -> Change {
    let patch = QuotaPatch { guarantee: guarantee(cpu), ..QuotaPatch::default() };
    Change::Alter { if_exists: false, object: quota(name, patch) }
}

/// The guaranteed CPU and the generation of a quota.
async fn stored(bench: &Bench, name: &str) -> Option<(Option<i64>, Generation)> {
    let catalog = bench.store.catalog().await.unwrap();
    let quota = catalog.quotas.get(&QuotaName::new(name).unwrap())?;
    let QuotaScope::Tenant(of_tenant) = &quota.spec.scope else { panic!("a tenant's quota: {quota:?}") };
    Some((of_tenant.guarantee.get(Component::Cpu), quota.generation))
}

pub async fn a_quota_has_the_generation_of_its_last_change(bench: Bench) {
    let bench = bench.founded(0).await;
    bench.alter("a-1", create_quota("q_1", "18")).await;
    let (cpu, created) = stored(&bench, "q_1").await.unwrap();
    assert_eq!(cpu, Some(18_000));
    bench.alter("a-2", create_user_quota("q_2", "Alice")).await;
    assert_eq!(stored(&bench, "q_1").await.unwrap().1, created, "another quota changes nothing of it");
    bench.alter("a-3", change_quota("q_1", "19")).await;
    let (cpu, changed) = stored(&bench, "q_1").await.unwrap();
    assert!(cpu == Some(19_000) && changed > created, "{cpu:?} {changed:?}");
    let record = bench.store.outcome(&id("a-3")).await.unwrap().unwrap();
    let object = record.object.unwrap();
    assert_eq!((object.kind, object.name.as_str()), (ObjectKind::ResourceQuota, "q_1"));
    assert_eq!((record.base_generation, record.generation), (created, changed));
    bench.alter("a-4", drop_object(ObjectKind::ResourceQuota, "q_1")).await;
    assert_eq!(stored(&bench, "q_1").await, None);
    bench.alter("a-5", create_quota("q_1", "1")).await;
    assert!(stored(&bench, "q_1").await.unwrap().1 > changed, "a generation is never used twice");
}

pub async fn a_stale_change_of_a_quota_is_refused(bench: Bench) {
    let bench = bench.founded(0).await;
    bench.alter("a-1", create_quota("q_1", "18")).await;
    let stale = bench.base(&change_quota("q_1", "19")).await;
    bench.alter("a-2", change_quota("q_1", "19")).await;
    for (change, base) in [
        (change_quota("q_1", "20"), stale),
        (drop_object(ObjectKind::ResourceQuota, "q_1"), stale),
        (create_user_quota("q_2", "alice"), stale),
    ] {
        let error = bench.store.commit(&commit("a-3", change, Some(base), bench.soon())).await.unwrap_err();
        assert_eq!((error.kind(), error.user_error().sqlstate()), (StoreErrorKind::Conflict, "40001"), "{error}");
    }
    assert_eq!(stored(&bench, "q_1").await.unwrap().0, Some(19_000));
}

pub async fn of_two_quotas_of_one_subject_one_is_committed(bench: Bench) {
    let bench = bench.founded(0).await;
    let (one, other) = (create_quota("q_1", "18"), create_quota("q_2", "19"));
    let requests =
        [("a-1", one), ("a-2", other)].map(|(name, change)| commit(name, change, Some(Generation(0)), bench.soon()));
    let (one, other) = tokio::join!(bench.store.commit(&requests[0]), bench.store.commit(&requests[1]));
    let refused = |outcome: &Result<_, Error>| match outcome {
        Ok(_) => None,
        Err(error) => Some(error.user_error().sqlstate().to_owned()),
    };
    let mut refusals = vec![refused(&one), refused(&other)];
    refusals.sort();
    // Databases that abort one of two concurrent transactions report a conflict, which is retried.
    assert!(refusals[0].is_none() && matches!(refusals[1].as_deref(), Some("42710" | "40001")), "{refusals:?}");
    assert_eq!(bench.store.catalog().await.unwrap().quotas.len(), 1);
}

pub async fn a_quota_changes_no_slot_and_reaches_no_proxy(bench: Bench) {
    let bench = bench.founded(2).await;
    let before = bench.store.snapshot().await.unwrap();
    bench.alter("a-1", create_quota("q_1", "0")).await;
    let after = bench.store.snapshot().await.unwrap();
    assert_eq!((&after.slots, &after.engines), (&before.slots, &before.engines));
    assert_eq!(after.catalog.quotas.len(), 1, "the master's snapshot has it");
    let proxy = bench.store.proxy_snapshot().await.unwrap();
    assert!(proxy.catalog.quotas.is_empty() && proxy.catalog.tenants.len() == 1);
}

pub async fn the_subject_of_a_quota_is_not_dropped(bench: Bench) {
    let bench = bench.founded(0).await;
    bench.alter("a-1", create_quota("q_1", "18")).await;
    bench.alter("a-2", change_tenant("t_1", &[])).await;
    for (kind, name) in [(ObjectKind::Tenant, "t_1"), (ObjectKind::ResourcePool, "rp_1")] {
        let error = bench.try_alter("a-3", drop_object(kind, name)).await.unwrap_err();
        assert_eq!(error.user_error().sqlstate(), "2BP01", "{error}");
        assert!(error.user_error().text().contains("\"q_1\""), "{error}");
    }
    bench.alter("a-4", drop_object(ObjectKind::ResourceQuota, "q_1")).await;
    bench.alter("a-5", drop_object(ObjectKind::Tenant, "t_1")).await;
    bench.alter("a-6", drop_object(ObjectKind::ResourcePool, "rp_1")).await;
}

/// Schema 7 has no table of quotas, and its specs have none of the options that quotas need.
pub async fn a_database_of_schema_7_receives_the_table_of_quotas(bench: Bench) {
    let bench = bench.founded(1).await;
    bench.raw("UPDATE slot SET asked_at_ms = 0").await;
    let before = bench.store.snapshot().await.unwrap();
    bench.raw("DROP TABLE resource_quota").await;
    bench.without_schema_10().await;
    bench.raw("UPDATE schema_version SET version = 7").await;
    for table in ["resource_pool", "resource_unit"] {
        let spec = super::bench::asked(&bench.settings, &format!("SELECT spec FROM {table}")).await;
        for option in ["capacity", "protected", "reclaim", "priority", "charge"] {
            assert!(!spec.contains(option), "{table} is as schema 7 wrote it: {spec}");
        }
    }
    let settings = bench.settings.clone();
    bench.store.close().await;
    drop(bench);
    assert_eq!(Store::migrate(&settings).await.unwrap(), SCHEMA_VERSION);
    let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
    let after = store.snapshot().await.unwrap();
    assert_eq!((after.slots, after.engines), (before.slots, before.engines), "no engine is replaced");
    let (units, pools) = (after.catalog.units, after.catalog.pools);
    assert_eq!((units, pools), (before.catalog.units, before.catalog.pools));
    let deadline = std::time::Duration::MAX;
    store.commit(&commit("a-1", create_quota("q_1", "18"), Some(Generation(0)), deadline)).await.unwrap();
    assert_eq!(store.catalog().await.unwrap().quotas.len(), 1);
}
