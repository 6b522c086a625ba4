//! Cases of secret properties in the database: sealed with the generation of keys in use, opened for masters, masked for proxies.

use std::sync::Arc;

use keys::{Current, KeyGeneration, MetadataAgentKeys, Root, SecretKey};
use metadata::{CommitRequest, Error, SealedSecrets, Store, StoreSettings};
use model::alteration::{Abort, Source};
use model::catalog::UnitSpec;
use model::change::{PropertiesPatch, Rules, UnitPatch};
use model::clock::SystemClock;
use model::fingerprint::FingerprintKey;
use model::name::UnitName;
use model::sealed::{CannotOpen, is_sealed};
use model::sealing::{Sealing, has_clear};
use model::secret::MASK;
use tokio::sync::watch;

use super::bench::{Bench, abort_of, change_unit, commit, create_pool, create_unit, id, memory, properties, raw};

const KEY: &str = "db.password";
const VALUE: &str = "hunter2-in-clear";

/// The keys of metadata agents, of one root key.
fn agent_keys(in_use: u32, accepted: &[u32]) -> MetadataAgentKeys {
    let secret = keys::ClusterSecret::new(*b"0123456789abcdef").unwrap();
    let root = Root::new("eh", SecretKey::new([7; 32])).with_cluster_secret(secret);
    let accepted: Vec<KeyGeneration> = accepted.iter().copied().map(KeyGeneration).collect();
    let file = root.role_file(KeyGeneration(in_use), &accepted, |_, _| String::new()).unwrap();
    file.verified("eh").unwrap()
}

fn rules(keys: &Current<MetadataAgentKeys>) -> Rules {
    let fingerprint = keys.clone();
    Rules {
        fingerprint_key: FingerprintKey::current(move || fingerprint.get().fingerprint()),
        sealing: Sealing::new(keys.clone()),
        ..Rules::default()
    }
}

/// The bench with the store of a metadata agent with these keys, and the sender of those that replace them.
async fn agent(bench: Bench, in_use: u32, accepted: &[u32]) -> (Bench, watch::Sender<Arc<MetadataAgentKeys>>) {
    let Bench { settings, store, clock } = bench;
    // An SQLite file has one store at a time.
    store.close().await;
    drop(store);
    let (sender, keys) = Current::new(agent_keys(in_use, accepted));
    let store = Store::open(&settings, rules(&keys), clock.clone()).await.unwrap();
    (Bench { settings, store, clock }, sender)
}

/// The same, with keys that stay.
async fn of_agent(bench: Bench, in_use: u32, accepted: &[u32]) -> Bench {
    agent(bench, in_use, accepted).await.0
}

fn uc_1() -> UnitName {
    UnitName::new("uc_1").unwrap()
}

async fn row_of(settings: &StoreSettings, unit: &str) -> UnitSpec {
    let json = super::bench::asked(settings, &format!("SELECT spec FROM resource_unit WHERE name = '{unit}'")).await;
    serde_json::from_str(&json).unwrap()
}

async fn stored(bench: &Bench) -> String {
    row_of(&bench.settings, "uc_1").await.properties[KEY].clone()
}

async fn opened(bench: &Bench) -> String {
    bench.store.snapshot().await.unwrap().catalog.units[&uc_1()].spec.properties[KEY].clone()
}

async fn with_unit(bench: &Bench) {
    bench.alter("a-1", create_unit("uc_1", 1, 4)).await;
    bench.alter("a-2", properties("uc_1", KEY, VALUE)).await;
}

pub async fn a_secret_value_is_sealed_in_its_row_and_opened_for_the_master(bench: Bench) {
    let bench = of_agent(bench, 1, &[1]).await;
    with_unit(&bench).await;
    let first = stored(&bench).await;
    assert!(first.starts_with("sealed:1:1:"), "{first}");
    assert_eq!(opened(&bench).await, VALUE);
    assert_eq!(bench.store.catalog().await.unwrap().units[&uc_1()].spec.properties[KEY], VALUE);
    assert_eq!(bench.store.overview(None).await.unwrap().snapshot.catalog.units[&uc_1()].spec.properties[KEY], VALUE);
    let of_proxy = bench.store.proxy_snapshot().await.unwrap();
    assert_eq!(of_proxy.catalog.units[&uc_1()].spec.properties[KEY], MASK);
    let before = bench.store.snapshot().await.unwrap().catalog.units[&uc_1()].spec.secrets.clone();
    // The mask keeps the value, and so does a change of another option; the fingerprint stays.
    bench.alter("a-3", properties("uc_1", KEY, MASK)).await;
    bench.alter("a-4", memory("uc_1", "2G")).await;
    assert_eq!(opened(&bench).await, VALUE);
    assert_eq!(bench.store.snapshot().await.unwrap().catalog.units[&uc_1()].spec.secrets, before);
    bench.alter("a-5", properties("uc_1", "open", "1")).await;
    let row = row_of(&bench.settings, "uc_1").await;
    assert_eq!(row.properties["open"], "1", "other values are in clear");
    assert!(!has_clear(&row));
}

pub async fn a_secret_that_does_not_change_replaces_no_engine(bench: Bench) {
    let bench = of_agent(bench, 1, &[1]).await.founded(1).await;
    bench.alter("a-s1", properties("uc_1", KEY, VALUE)).await;
    let before = bench.store.snapshot().await.unwrap().slots;
    bench.alter("a-s2", properties("uc_1", KEY, VALUE)).await;
    let same = bench.store.snapshot().await.unwrap();
    assert_eq!(same.slots, before, "the same value, sealed again");
    bench.alter("a-s3", properties("uc_1", KEY, "another")).await;
    let after = bench.store.snapshot().await.unwrap();
    assert_ne!(after.slots, before);
}

pub async fn opening_a_store_seals_values_in_clear_and_replaces_nothing(bench: Bench) {
    // An agent whose keys are of generation 0, from version 0.1.0, seals nothing.
    let bench = of_agent(bench, 0, &[0, 1]).await.founded(1).await;
    bench.alter("a-s1", properties("uc_1", KEY, VALUE)).await;
    assert_eq!(stored(&bench).await, VALUE);
    let before = bench.store.snapshot().await.unwrap();
    let bench = of_agent(bench, 1, &[0, 1]).await;
    assert!(stored(&bench).await.starts_with("sealed:1:1:"));
    let after = bench.store.snapshot().await.unwrap();
    assert_eq!(after.catalog, before.catalog, "neither a value nor a generation has changed");
    assert_eq!((after.slots, after.engines), (before.slots, before.engines));
    let sealed = stored(&bench).await;
    assert_eq!(bench.store.seal_secrets().await.unwrap(), SealedSecrets::default());
    assert_eq!(stored(&bench).await, sealed, "running again changes nothing");
    // Keys of generation 0 that are used again still open it.
    let bench = of_agent(bench, 0, &[0, 1]).await;
    assert_eq!((opened(&bench).await.as_str(), stored(&bench).await), (VALUE, sealed));
}

/// An agent of version 0.1.0 alters a unit: its row has no record of secret properties, and the value as it was read.
pub async fn a_row_of_an_earlier_version_keeps_its_sealed_value(bench: Bench) {
    let bench = of_agent(bench, 1, &[1]).await;
    with_unit(&bench).await;
    let was = bench.store.snapshot().await.unwrap().catalog.units[&uc_1()].clone();
    let row = UnitSpec { secrets: None, ..row_of(&bench.settings, "uc_1").await };
    let json = serde_json::to_string(&row).unwrap();
    bench.raw(&format!("UPDATE resource_unit SET spec = '{json}' WHERE name = 'uc_1'")).await;
    assert_eq!(opened(&bench).await, VALUE);
    let done = bench.store.seal_secrets().await.unwrap();
    assert_eq!(done.recorded, [uc_1()].into());
    let now = bench.store.snapshot().await.unwrap().catalog.units[&uc_1()].clone();
    assert_eq!(now.spec, was.spec);
    assert!(now.generation > was.generation && is_sealed(&stored(&bench).await));
}

pub async fn a_new_generation_seals_again_while_statements_go_on(bench: Bench) {
    let (bench, keys) = agent(bench, 1, &[1]).await;
    with_unit(&bench).await;
    let change = properties("uc_1", "open", "1");
    let base = bench.base(&change).await;
    keys.send_replace(Arc::new(agent_keys(1, &[1, 2])));
    assert_eq!(bench.store.seal_secrets().await.unwrap(), SealedSecrets::default(), "still of the generation in use");
    keys.send_replace(Arc::new(agent_keys(2, &[1, 2])));
    let done = bench.store.seal_secrets().await.unwrap();
    assert_eq!((done.sealed, done.closed), ([uc_1()].into(), Vec::new()));
    assert!(stored(&bench).await.starts_with("sealed:1:2:"));
    // A statement that was issued before is not refused.
    bench.store.commit(&commit("a-3", change, Some(base), bench.soon())).await.unwrap();
    // An agent that still uses the old generation leaves the newer one.
    keys.send_replace(Arc::new(agent_keys(1, &[1, 2])));
    assert_eq!(bench.store.seal_secrets().await.unwrap(), SealedSecrets::default());
    keys.send_replace(Arc::new(agent_keys(2, &[2])));
    assert_eq!(opened(&bench).await, VALUE, "generation 1 is retired");
    assert_eq!(bench.store.stored_secrets().await.unwrap().sealed, [(KeyGeneration(2), [uc_1()].into())].into());
}

pub async fn a_value_that_cannot_be_opened_affects_its_unit_only(bench: Bench) {
    let bench = of_agent(bench, 1, &[1]).await.founded(1).await;
    bench.alter("a-s1", properties("uc_1", KEY, VALUE)).await;
    bench.alter("a-s2", create_unit("uc_2", 0, 1)).await;
    bench.alter("a-s3", properties("uc_2", KEY, "of the other")).await;
    let before = bench.store.snapshot().await.unwrap();
    let sealed = stored(&bench).await;
    // The row of one unit is put into the other one.
    let row = serde_json::to_string(&row_of(&bench.settings, "uc_1").await).unwrap();
    bench.raw(&format!("UPDATE resource_unit SET spec = '{row}' WHERE name = 'uc_2'")).await;
    let done = bench.store.seal_secrets().await.unwrap();
    let named: Vec<(&str, &str, CannotOpen)> =
        done.closed.iter().map(|one| (one.unit.as_str(), one.key.as_str(), one.reason)).collect();
    assert_eq!(named, [("uc_2", KEY, CannotOpen::NotGenuine)]);
    // A file without the generation opens nothing, and everything else goes on.
    let bench = of_agent(bench, 2, &[2]).await;
    let snapshot = bench.store.snapshot().await.unwrap();
    assert_eq!((&snapshot.slots, &snapshot.engines), (&before.slots, &before.engines));
    assert_eq!(snapshot.catalog.units[&uc_1()].spec.properties[KEY], sealed, "it is not used in place of the value");
    let closed = bench.store.seal_secrets().await.unwrap().closed;
    assert!(closed.iter().any(|one| one.unit == uc_1() && one.reason == CannotOpen::NotAccepted(KeyGeneration(1))));
    let of_proxy = bench.store.proxy_snapshot().await.unwrap();
    assert_eq!(of_proxy.catalog.units[&uc_1()].spec.properties[KEY], MASK);
    // Other options can be altered, and keep it; a new value replaces it.
    bench.alter("a-s4", memory("uc_1", "2G")).await;
    assert_eq!(stored(&bench).await, sealed);
    bench.alter("a-s5", properties("uc_1", KEY, "set again")).await;
    assert_eq!(opened(&bench).await, "set again");
    assert!(stored(&bench).await.starts_with("sealed:1:2:"));
}

pub async fn a_statement_cannot_set_a_sealed_value(bench: Bench) {
    let bench = of_agent(bench, 1, &[1]).await;
    with_unit(&bench).await;
    let sealed = stored(&bench).await;
    for (at, key) in [KEY, "open"].into_iter().enumerate() {
        let error = bench.try_alter(&format!("a-r{at}"), properties("uc_1", key, &sealed)).await.unwrap_err();
        assert!(matches!(&error, Error::Refused(error) if error.sqlstate() == "22023"), "{error}");
    }
}

/// All columns of all tables, after statements that took effect, were repeated, refused and aborted.
pub async fn no_row_of_the_database_has_a_secret_value(bench: Bench) {
    let bench = of_agent(bench, 1, &[1]).await.founded(1).await;
    let set = [(KEY.to_owned(), Some(VALUE.to_owned())), ("my.token".to_owned(), Some(format!("{VALUE}-2")))].into();
    let patch = UnitPatch { properties: PropertiesPatch { reset: false, set }, ..UnitPatch::default() };
    let change = change_unit("uc_1", patch);
    let base = bench.base(&change).await;
    // Its text is masked by the agent.
    let statement = format!("ALTER RESOURCE UNIT uc_1 PROPERTIES ('{KEY}'='{MASK}')");
    let request =
        |text| CommitRequest { statement: statement.clone(), ..commit(text, change.clone(), Some(base), bench.soon()) };
    let (request, refused) = (request("a-s1"), request("a-s2"));
    bench.store.commit(&request).await.unwrap();
    assert!(!bench.store.commit(&request).await.unwrap().first);
    bench.store.commit(&refused).await.unwrap_err();
    let aborted = Abort { statement: refused.statement.clone(), source: Source::default(), ..abort_of("a-s2") };
    bench.store.abort(&aborted).await.unwrap();
    let engine = bench.present().await[0].clone();
    bench.made(&engine).await;
    bench.start("s-1").await.unwrap();
    bench.alter("a-s3", create_pool("rp_2", &["uc_1"])).await;
    assert_eq!(bench.store.snapshot().await.unwrap().catalog.units[&uc_1()].spec.properties[KEY], VALUE);
    assert_eq!(bench.store.outcome(&id("a-s1")).await.unwrap().unwrap().statement, request.statement);
    let rows = bench.dump().await;
    assert!(rows.contains("sealed:1:1:") && rows.contains("uc_1") && rows.contains("a-s2"), "the dump is not complete");
    assert!(!rows.contains(VALUE), "{}", rows.lines().filter(|row| row.contains(VALUE)).collect::<Vec<_>>().join("\n"));
}

/// What was in clear is not left in free pages of the file, which is what is copied for a backup.
pub async fn no_file_keeps_what_was_in_clear(bench: Bench) {
    if bench.settings.backend().unwrap() != metadata::Backend::Sqlite {
        return;
    }
    let bench = of_agent(bench, 0, &[0, 1]).await;
    bench.alter("a-1", create_unit("uc_1", 0, 1)).await;
    // Longer than a page, so that its pages become free.
    let value = format!("{VALUE}-").repeat(2_000);
    bench.alter("a-2", properties("uc_1", KEY, &value)).await;
    let path = bench.settings.sqlite_path().unwrap();
    let in_clear = || {
        let files = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let ours = files.filter(move |file| file.file_name().unwrap().to_str().unwrap().starts_with(&name));
        ours.filter(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).contains(VALUE)).collect::<Vec<_>>()
    };
    // No file is read while a store has it open: closing the descriptor would drop the store's locks.
    bench.store.close().await;
    assert!(!in_clear().is_empty(), "the value is searched for where it is not");
    let bench = of_agent(bench, 1, &[0, 1]).await;
    assert_eq!(opened(&bench).await, value);
    bench.store.close().await;
    assert_eq!(in_clear(), Vec::<std::path::PathBuf>::new());
}

/// A store for reading has no keys, and changes nothing.
pub async fn opening_a_store_to_read_records_and_seals_nothing(bench: Bench) {
    with_unit(&bench).await;
    let spec = UnitSpec { secrets: None, ..row_of(&bench.settings, "uc_1").await };
    let json = serde_json::to_string(&spec).unwrap();
    bench.store.close().await;
    let settings = bench.settings.clone();
    drop(bench);
    raw(&settings, &format!("UPDATE resource_unit SET spec = '{json}' WHERE name = 'uc_1'")).await;
    let store = Store::open_to_read(&settings, SystemClock::shared()).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().catalog.units[&uc_1()].spec, spec);
    store.close().await;
    drop(store);
    assert_eq!(row_of(&settings, "uc_1").await, spec);
}
