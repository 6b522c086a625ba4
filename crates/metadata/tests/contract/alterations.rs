//! Cases of CREATE, ALTER and DROP: what a commit writes, what it refuses, how it is settled.

use std::collections::BTreeSet;
use std::time::Duration;

use metadata::{Error, StoreErrorKind};
use model::alteration::{AlterationProgress, ObjectKind, Outcome};
use model::catalog::Catalog;
use model::change::{Change, ObjectPatch, UnitPatch};
use model::number::{Generation, Incarnation};
use model::secret::MASK;
use model::slot::{Origin, Replacement};

use super::bench::{
    Bench, GRACE, abort_of, change_tenant, change_unit, commit, create_pool, create_tenant, create_unit, drop_object,
    id, memory, properties,
};

async fn generation(bench: &Bench) -> Generation {
    bench.store.catalog().await.unwrap().generation
}

pub async fn a_tenant_is_given_the_minimum_of_slots(bench: Bench) {
    let bench = bench.founded(2).await;
    let snapshot = bench.store.snapshot().await.unwrap();
    let ordinals: Vec<u32> = snapshot.slots.iter().map(|slot| slot.key.ordinal).collect();
    assert_eq!(ordinals, [0, 1]);
    assert!(
        snapshot.slots.iter().all(|slot| slot.origin == Origin::Minimum
            && slot.failures == 0
            && slot.replacement == Replacement::StandIn)
    );
    let tenant = bench.store.outcome(&id("found-3")).await.unwrap().unwrap();
    // The number of the object comes first, then those of the slots in order; EXPLAIN relies on it.
    let (object, last) = (snapshot.catalog.tenants.values().next().unwrap().generation, tenant.generation);
    let drawn: Vec<i64> = snapshot.slots.iter().map(|slot| slot.incarnation.get()).collect();
    assert_eq!(drawn, [object.get() + 1, object.get() + 2]);
    assert_eq!((last.get(), snapshot.catalog.generation), (object.get() + 2, last));
    let issued: Vec<_> = snapshot.engines.iter().map(|engine| engine.name.clone()).collect();
    assert_eq!(issued, snapshot.slots.iter().map(|slot| slot.engine()).collect::<Vec<_>>());
    assert!(snapshot.engines.iter().all(|engine| engine.uid.is_none() && engine.config.is_empty()));
    assert_eq!(snapshot.namespaces, ["rp-1--t-1"]);
    assert!(snapshot.now_ms > 1_700_000_000_000, "the database's clock: {}", snapshot.now_ms);
    assert!((tenant.decided_at_ms - snapshot.now_ms).abs() < 60_000);
}

pub async fn a_repeat_returns_the_first_answer(bench: Bench) {
    let request = commit("a-1", create_unit("uc_1", 0, 3), Some(Generation(0)), bench.soon());
    let first = bench.store.commit(&request).await.unwrap();
    assert!(first.first && first.note.is_none());
    assert_eq!(first.record.outcome, Outcome::Committed);
    assert_eq!(first.record.progress, Some(AlterationProgress::Converging));
    let before = generation(&bench).await;
    bench.clock.advance(Duration::from_hours(1));
    let repeat = bench.store.commit(&request).await.unwrap();
    assert!(!repeat.first);
    assert_eq!(repeat.record, first.record);
    bench.store.finish(bench.epoch().await, &id("a-1"), first.record.generation).await.unwrap();
    let repeat = bench.store.commit(&request).await.unwrap();
    assert_eq!((repeat.record.progress, repeat.note), (Some(AlterationProgress::Converged), None));
    assert_eq!(generation(&bench).await, before, "a repeat draws no number");
}

pub async fn an_id_is_valid_for_one_statement(bench: Bench) {
    bench.alter("a-1", create_unit("uc_1", 0, 3)).await;
    let error = bench.try_alter("a-1", create_unit("uc_2", 0, 3)).await.unwrap_err();
    assert_eq!(error.user_error().sqlstate(), "22023", "{error}");
    assert_eq!(bench.store.catalog().await.unwrap().units.len(), 1);
}

pub async fn an_alteration_supersedes_only_the_open_one_of_its_object(bench: Bench) {
    bench.try_alter("a-1", create_unit("uc_1", 0, 3)).await.unwrap();
    bench.try_alter("a-2", create_unit("uc_2", 0, 3)).await.unwrap();
    bench.try_alter("a-3", memory("uc_1", "2G")).await.unwrap();
    let mut progress = Vec::new();
    for alteration in ["a-1", "a-2", "a-3"] {
        progress.push(bench.store.outcome(&id(alteration)).await.unwrap().unwrap().progress);
    }
    assert_eq!(
        progress,
        [AlterationProgress::Superseded, AlterationProgress::Converging, AlterationProgress::Converging].map(Some)
    );
    let open = bench.store.snapshot().await.unwrap().alterations;
    assert_eq!(open.iter().map(|alteration| alteration.id.as_str()).collect::<Vec<_>>(), ["a-2", "a-3"]);
    for alteration in ["a-2", "a-3"] {
        bench.store.finish(bench.epoch().await, &id(alteration), generation(&bench).await).await.unwrap();
    }
    assert!(bench.store.snapshot().await.unwrap().alterations.is_empty());
}

pub async fn a_stale_base_is_refused(bench: Bench) {
    bench.alter("a-1", create_unit("uc_1", 0, 3)).await;
    let stale = bench.base(&memory("uc_1", "2G")).await;
    bench.alter("a-2", memory("uc_1", "2G")).await;
    let before = generation(&bench).await;
    for base in [Some(stale), Some(Generation(0)), None] {
        let request = commit("a-3", memory("uc_1", "4G"), base, bench.soon());
        let error = bench.store.commit(&request).await.unwrap_err();
        assert_eq!((error.kind(), error.user_error().sqlstate()), (StoreErrorKind::Conflict, "40001"), "{error}");
    }
    assert_eq!(generation(&bench).await, before);
    assert!(bench.store.outcome(&id("a-3")).await.unwrap().is_none());
}

pub async fn an_invalid_statement_changes_nothing(bench: Bench) {
    let bench = bench.founded(1).await;
    let before = bench.store.snapshot().await.unwrap();
    for (change, state) in [
        (create_pool("rp_2", &["uc_9"]), "42704"),
        (drop_object(ObjectKind::ResourceUnit, "uc_1"), "2BP01"),
        (drop_object(ObjectKind::ResourcePool, "rp_1"), "2BP01"),
        (drop_object(ObjectKind::Tenant, "t_9"), "42704"),
        (create_unit("uc_1", 0, 1), "42710"),
        (create_unit("uc_2", 2, 1), "22023"),
    ] {
        let error = bench.try_alter("a-1", change).await.unwrap_err();
        assert_eq!((error.kind(), error.user_error().sqlstate()), (StoreErrorKind::Refused, state), "{error}");
    }
    let after = bench.store.snapshot().await.unwrap();
    assert_eq!((after.catalog, after.slots, after.engines), (before.catalog, before.slots, before.engines));
}

pub async fn a_late_commit_loses_to_abort(bench: Bench) {
    let bench = bench.founded(0).await;
    let before = bench.store.catalog().await.unwrap();
    let record = bench.store.abort(&abort_of("a-1")).await.unwrap();
    assert_eq!((record.outcome, record.progress, record.generation), (Outcome::Aborted, None, Generation(0)));
    let error = bench.try_alter("a-1", memory("uc_1", "2G")).await.unwrap_err();
    let Error::Aborted(aborted) = &error else { panic!("{error}") };
    assert_eq!(**aborted, record);
    assert!(error.user_error().text().contains("its agent is gone"), "{error}");
    assert_eq!(bench.store.catalog().await.unwrap(), before);
    assert_eq!(bench.store.outcome(&id("a-1")).await.unwrap(), Some(record));
}

pub async fn a_late_abort_loses_to_commit(bench: Bench) {
    let committed = bench.try_alter("a-1", create_unit("uc_1", 0, 3)).await.unwrap();
    assert!(bench.store.outcome(&id("a-2")).await.unwrap().is_none());
    let record = bench.store.abort(&abort_of("a-1")).await.unwrap();
    assert_eq!(record, committed.record);
    assert_eq!(bench.store.catalog().await.unwrap().units.len(), 1);
}

pub async fn an_abort_of_an_unreadable_node_is_recorded(bench: Bench) {
    let mut abort = abort_of("a-1");
    abort.object = None;
    abort.statement.clear();
    abort.requested_by = "ü".repeat(200);
    let record = bench.store.abort(&abort).await.unwrap();
    assert_eq!(record.object, None);
    let mut long = abort_of("a-0");
    long.object = Some(model::alteration::ObjectRef { kind: ObjectKind::Tenant, name: "x".repeat(500) });
    let stored = bench.store.abort(&long).await.unwrap();
    assert_eq!(stored.id, id("a-0"));
    bench.raw("DELETE FROM alteration WHERE id = 'a-0'").await;
    assert_eq!(bench.store.abort(&abort).await.unwrap(), record, "a repeat answers the same row");
    assert_eq!(bench.store.alterations(5).await.unwrap(), [record]);
}

pub async fn an_alteration_after_its_deadline_changes_nothing(bench: Bench) {
    let request = commit("a-1", create_unit("uc_1", 0, 3), Some(Generation(0)), bench.soon());
    bench.clock.advance(Duration::from_mins(1));
    let error = bench.store.commit(&request).await.unwrap_err();
    assert_eq!(error.user_error().sqlstate(), "HYT00", "{error}");
    assert_eq!(generation(&bench).await, Generation(0));
    assert!(bench.store.outcome(&id("a-1")).await.unwrap().is_none());
}

pub async fn a_statement_that_changes_nothing_is_recorded(bench: Bench) {
    let patch = ObjectPatch::ResourceUnit(model::UnitName::new("uc_1").unwrap(), UnitPatch::default());
    let change = Change::Alter { if_exists: true, object: patch };
    let request = commit("a-1", change, None, bench.soon());
    let first = bench.store.commit(&request).await.unwrap();
    assert_eq!(first.record.progress, Some(AlterationProgress::Converged));
    assert!(first.note.as_ref().unwrap().contains("does not exist"), "{first:?}");
    // The unit is created; the late repeat still changes nothing.
    bench.alter("a-2", create_unit("uc_1", 0, 3)).await;
    let before = bench.store.catalog().await.unwrap();
    let repeat = bench.store.commit(&request).await.unwrap();
    assert_eq!((repeat.record, repeat.note, repeat.first), (first.record, first.note, false));
    assert_eq!(bench.store.catalog().await.unwrap(), before);
    // Without an alter node nothing may change.
    let request = metadata::CommitRequest { id: id("a-3"), ..request };
    assert_eq!(bench.store.commit(&request).await.unwrap_err().kind(), StoreErrorKind::Conflict);
}

pub async fn a_new_configuration_renews_the_slots_and_keeps_stand_ins(bench: Bench) {
    let bench = bench.founded(1).await;
    let started = bench.start("s-1").await.unwrap();
    let old = bench.present().await;
    bench.made(&old[0]).await;
    let committed = bench.alter("a-1", memory("uc_1", "2G")).await;
    let snapshot = bench.store.snapshot().await.unwrap();
    let new = bench.present().await;
    assert!(new.iter().all(|name| !old.contains(name)));
    assert_eq!(snapshot.slots[1].origin, Origin::Start, "a started slot stays a started one");
    assert_eq!(snapshot.slots[1].incarnation.get(), committed.record.generation.get());
    assert_eq!(snapshot.engines.len(), 4);
    for engine in &snapshot.engines {
        let older = old.contains(&engine.name);
        assert_eq!(engine.end_grace_ms, older.then_some(GRACE.as_millis() as i64), "{}", engine.name);
        assert_eq!(engine.end_reason, None, "a stand-in is not condemned");
    }
    assert!(old.contains(&started.engine));
}

/// The older engines are not condemned: the master does that in each slot's turn.
pub async fn an_alteration_in_place_marks_the_slots_that_it_renews(bench: Bench) {
    let bench = bench.founded(2).await;
    let old = bench.present().await;
    for engine in &old {
        bench.made(engine).await;
    }
    let how = async || {
        let slots = bench.store.snapshot().await.unwrap().slots;
        slots.iter().map(|slot| slot.replacement).collect::<Vec<_>>()
    };
    let three = UnitPatch { min_engines: Some(3), driver_memory: Some("2G".parse().unwrap()), ..UnitPatch::default() };
    bench.alter_in_place("a-1", change_unit("uc_1", three)).await;
    assert_eq!(how().await, [Replacement::InPlace, Replacement::InPlace, Replacement::StandIn], "the third one is new");
    let snapshot = bench.store.snapshot().await.unwrap();
    assert!(snapshot.slots.iter().all(|slot| slot.failures == 0 && !old.contains(&slot.engine())));
    for engine in &snapshot.engines {
        let grace = old.contains(&engine.name).then_some(GRACE.as_millis() as i64);
        assert_eq!((engine.end_grace_ms, engine.end_reason.as_deref()), (grace, None), "{}", engine.name);
    }

    // An alteration that changes no configuration keeps what the slots wait for; the next one that does decides again.
    let comment = UnitPatch { comment: model::change::Setting::Set("new".to_owned()), ..UnitPatch::default() };
    bench.alter("a-2", change_unit("uc_1", comment)).await;
    assert_eq!(how().await[..2], [Replacement::InPlace; 2]);
    bench.alter("a-3", memory("uc_1", "3G")).await;
    assert_eq!(how().await, [Replacement::StandIn; 3]);
    bench.alter_in_place("a-4", memory("uc_1", "4G")).await;
    assert_eq!(how().await, [Replacement::InPlace; 3]);

    // Deleted rows are condemned as always.
    let none = UnitPatch { min_engines: Some(0), ..UnitPatch::default() };
    bench.alter_in_place("a-5", change_unit("uc_1", none)).await;
    assert!(how().await.is_empty());
    let record = bench.store.engine(&old[0]).await.unwrap().unwrap().record;
    assert_eq!(record.end_reason.as_deref(), Some("MIN_ENGINES is now 0"));
}

pub async fn an_unchanged_configuration_renews_no_slot(bench: Bench) {
    let bench = bench.founded(1).await;
    let before = bench.present().await;
    let patch = UnitPatch { min_engines: Some(0), max_engines: Some(9), ..UnitPatch::default() };
    bench.alter("a-1", change_unit("uc_1", UnitPatch { min_engines: Some(1), ..patch.clone() })).await;
    assert_eq!(bench.present().await, before);
    bench.alter("a-2", change_unit("uc_1", patch)).await;
    assert!(bench.present().await.is_empty(), "a lowered MIN takes its slot");
    let engine = bench.store.engine(&before[0]).await.unwrap().unwrap().record;
    assert_eq!(engine.end_reason.as_deref(), Some("MIN_ENGINES is now 0"));
}

/// While their link exists: the master knows which engines are idle.
pub async fn an_alteration_leaves_slots_on_demand_to_the_master(bench: Bench) {
    let bench = bench.founded(1).await;
    bench.start("s-1").await.unwrap();
    bench.start("s-2").await.unwrap();
    bench.raw("UPDATE slot SET origin = 'demand' WHERE ordinal > 0").await;
    let slots = async || bench.store.snapshot().await.unwrap().slots;
    let before = slots().await;
    let origins: Vec<Origin> = before.iter().map(|slot| slot.origin).collect();
    assert_eq!(origins, [Origin::Minimum, Origin::Demand, Origin::Demand]);
    let limits = |min, max| UnitPatch { min_engines: Some(min), max_engines: Some(max), ..UnitPatch::default() };
    bench.alter("a-1", change_unit("uc_1", limits(1, 1))).await;
    assert_eq!(slots().await, before, "they do not count for a lowered maximum");
    assert_eq!(bench.start("s-3").await.unwrap_err().user_error().sqlstate(), "53400", "they count for START");
    bench.alter("a-2", change_unit("uc_1", limits(3, 3))).await;
    assert_eq!(slots().await, before, "they count for the minimum");
    bench.alter("a-3", change_tenant("t_1", &[])).await;
    assert!(slots().await.is_empty());
}

/// `{rp_1: uc_1, uc_2; rp_2: uc_3}` becomes `{rp_1; rp_3: uc_4}`.
pub async fn a_removed_link_condemns_all_engines_of_its_slots(bench: Bench) {
    for unit in ["uc_1", "uc_2", "uc_3", "uc_4"] {
        bench.alter(&format!("u-{unit}"), create_unit(unit, 1, 3)).await;
    }
    bench.alter("p-1", create_pool("rp_1", &["uc_1", "uc_2"])).await;
    bench.alter("p-2", create_pool("rp_2", &["uc_3"])).await;
    bench.alter("p-3", create_pool("rp_3", &["uc_4"])).await;
    bench.alter("t-1", create_tenant("t_1", &["rp_1", "rp_2"], &[])).await;
    bench.alter("u-5", memory("uc_3", "2G")).await;
    let before = bench.store.snapshot().await.unwrap();
    assert_eq!((before.slots.len(), before.engines.len()), (3, 4), "uc_3 has a stand-in");
    bench.alter("t-2", change_tenant("t_1", &["rp_1", "rp_3"])).await;
    let after = bench.store.snapshot().await.unwrap();
    let present: Vec<String> = after.slots.iter().map(|slot| slot.key.to_string()).collect();
    assert_eq!(present, ["t_1/rp_1/uc_1/0", "t_1/rp_1/uc_2/0", "t_1/rp_3/uc_4/0"]);
    assert_eq!(after.slots[..2], before.slots[..2], "engines in rp_1 keep their incarnation");
    for engine in &after.engines {
        let condemned = engine.slot.pool.as_str() == "rp_2";
        let reason = condemned.then_some("tenant \"t_1\" no longer uses resource pool \"rp_2\"");
        assert_eq!(engine.end_reason.as_deref(), reason, "{}", engine.name);
    }
    assert_eq!(after.engines.iter().filter(|engine| engine.end_reason.is_some()).count(), 2);
    assert_eq!(after.namespaces, ["rp-1--t-1", "rp-2--t-1", "rp-3--t-1"]);
}

pub async fn an_incarnation_is_never_used_twice(bench: Bench) {
    let bench = bench.founded(1).await;
    let mut seen: BTreeSet<Incarnation> = BTreeSet::new();
    for round in 0..3 {
        let incarnation = bench.store.snapshot().await.unwrap().slots[0].incarnation;
        assert!(seen.insert(incarnation), "{incarnation} was used before");
        bench.alter(&format!("d-{round}"), drop_object(ObjectKind::Tenant, "t_1")).await;
        assert!(bench.present().await.is_empty());
        bench.alter(&format!("c-{round}"), create_tenant("t_1", &["rp_1"], &["alice"])).await;
    }
    let all = bench.store.snapshot().await.unwrap().engines;
    let names: BTreeSet<_> = all.iter().map(|engine| &engine.name).collect();
    assert_eq!((names.len(), all.len()), (4, 4));
    let last = all.iter().filter(|engine| engine.end_reason.is_none()).count();
    assert_eq!(last, 1, "what was condemned stays so, though a slot stands at its place again");
}

pub async fn secrets_are_masked_for_proxies(bench: Bench) {
    bench.alter("a-1", create_unit("uc_1", 0, 3)).await;
    bench.alter("a-2", properties("uc_1", "db.password", "hidden")).await;
    bench.alter("a-3", properties("uc_1", "plain", "shown")).await;
    // The masked value keeps the stored one.
    bench.alter("a-4", properties("uc_1", "db.password", MASK)).await;
    let value = |catalog: &Catalog, key: &str| catalog.units.values().next().unwrap().spec.properties[key].clone();
    let proxy = bench.store.proxy_snapshot().await.unwrap().catalog;
    assert_eq!((value(&proxy, "db.password"), value(&proxy, "plain")), (MASK.to_owned(), "shown".to_owned()));
    let master = bench.store.snapshot().await.unwrap().catalog;
    assert_eq!(value(&master, "db.password"), "hidden");
}

pub async fn an_abort_refused_for_its_content_is_repeated_without_it(bench: Bench) {
    // A database that rejects such a text.
    bench
        .raw(match bench.store.backend() {
            metadata::Backend::Sqlite => {
                "CREATE TRIGGER refuse BEFORE INSERT ON alteration WHEN NEW.statement <> '' \
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            }
            metadata::Backend::Postgres | metadata::Backend::Mariadb => {
                "ALTER TABLE alteration ADD CONSTRAINT refuse CHECK (statement = '')"
            }
        })
        .await;
    let record = bench.store.abort(&abort_of("a-1")).await.unwrap();
    assert_eq!((record.outcome, record.object, record.statement.as_str()), (Outcome::Aborted, None, ""));
    assert_eq!(bench.store.outcome(&id("a-1")).await.unwrap().unwrap().outcome, Outcome::Aborted);
}

pub async fn an_abort_stores_a_null_character_as_a_replacement(bench: Bench) {
    let mut abort = abort_of("a-1");
    "ALTER RESOURCE UNIT uc_1 COMMENT 'a\0b'".clone_into(&mut abort.statement);
    bench.store.abort(&abort).await.unwrap();
    let stored = bench.store.outcome(&id("a-1")).await.unwrap().unwrap().statement;
    assert_eq!(stored, "ALTER RESOURCE UNIT uc_1 COMMENT 'a\u{fffd}b'");
}
