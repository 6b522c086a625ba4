//! Cases of START, STOP and RESTART: what they write, what they refuse, and that they take effect once.

use std::time::Duration;

use metadata::{Error, RequestEffect, StoreErrorKind};
use model::alteration::ObjectKind;
use model::engine_name::EngineName;
use model::shared::Shared;
use model::slot::{Origin, Replacement};

use super::bench::{
    Bench, GRACE, admin, by, change_unit, create_pool, create_tenant, create_unit, drop_object, id, link,
};
use model::change::UnitPatch;

fn sqlstate(error: &Error) -> String {
    error.user_error().sqlstate().to_owned()
}

pub async fn start_takes_the_lowest_free_ordinal(bench: Bench) {
    let bench = bench.founded(1).await;
    let one = bench.start("s-1").await.unwrap();
    let two = bench.start("s-2").await.unwrap();
    assert_eq!((one.slot.ordinal, two.slot.ordinal, one.effect), (1, 2, RequestEffect::Started));
    bench.stop("s-3", &one.engine).await.unwrap();
    let again = bench.start("s-4").await.unwrap();
    assert_eq!(again.slot.ordinal, 1);
    assert_ne!(again.engine, one.engine);
    let slots = bench.store.snapshot().await.unwrap().slots;
    let slot = slots.iter().find(|slot| slot.key == again.slot).unwrap();
    assert_eq!((slot.origin, slot.engine()), (Origin::Start, again.engine.clone()));
    let detail = bench.store.engine(&again.engine).await.unwrap().unwrap();
    assert_eq!((detail.record.slot, detail.slot), (again.slot, Some(Shared::into_inner(slot.clone()))));
}

pub async fn start_is_refused_above_max(bench: Bench) {
    let bench = bench.founded(1).await;
    bench.start("s-1").await.unwrap();
    bench.start("s-2").await.unwrap();
    let error = bench.start("s-3").await.unwrap_err();
    assert_eq!(sqlstate(&error), "53400");
    let text = error.user_error().text();
    assert!(text.contains("MAX_ENGINES is 3") && text.contains("ALTER RESOURCE UNIT uc_1 MAX_ENGINES 4"), "{text}");
    assert_eq!(bench.present().await.len(), 3);
    assert_eq!(bench.store.request(&id("s-3")).await.unwrap(), None);
    // A refused request took no effect: it may succeed later.
    let engine = bench.present().await[2].clone();
    bench.stop("s-4", &engine).await.unwrap();
    bench.start("s-3").await.unwrap();
}

pub async fn start_names_the_missing_link(bench: Bench) {
    let bench = bench.founded(0).await;
    bench.alter("a-1", create_unit("uc_2", 0, 1)).await;
    bench.alter("a-2", create_pool("rp_2", &["uc_2"])).await;
    for (tenant, pool, unit, state, text) in [
        ("t_9", "rp_1", "uc_1", "42704", "tenant \"t_9\" does not exist"),
        ("t_1", "rp_9", "uc_1", "42704", "resource pool \"rp_9\" does not exist"),
        ("t_1", "rp_1", "uc_9", "42704", "resource unit \"uc_9\" does not exist"),
        ("t_1", "rp_2", "uc_2", "55000", "tenant \"t_1\" does not use resource pool \"rp_2\""),
        ("t_1", "rp_1", "uc_2", "55000", "resource pool \"rp_1\" does not offer unit \"uc_2\""),
    ] {
        let error = bench.start_as("s-1", admin(), link(tenant, pool, unit)).await.unwrap_err();
        assert_eq!((sqlstate(&error).as_str(), error.user_error().message.as_str()), (state, text));
    }
    assert!(bench.present().await.is_empty());
}

pub async fn stop_is_refused_below_min(bench: Bench) {
    let bench = bench.founded(1).await;
    let engine = bench.present().await[0].clone();
    let error = bench.stop("s-1", &engine).await.unwrap_err();
    assert_eq!(sqlstate(&error), "53400");
    let hint = error.user_error().hint.unwrap();
    assert!(hint.contains("RESTART ENGINE rp_1") && hint.contains("MIN_ENGINES 0"), "{hint}");
    assert_eq!(bench.present().await, std::slice::from_ref(&engine));
    // With another row left, also one of origin MIN may be deleted.
    let started = bench.start("s-2").await.unwrap();
    assert_eq!(bench.stop("s-1", &engine).await.unwrap().effect, RequestEffect::Stopped);
    assert_eq!(bench.present().await, [started.engine]);
}

pub async fn stop_condemns_stand_ins_too(bench: Bench) {
    let bench = bench.founded(0).await;
    let old = bench.start("s-1").await.unwrap().engine;
    bench.made(&old).await;
    let new = bench.restart("s-2", &old, false).await.unwrap().engine;
    let mut stop = bench.stop_request("s-3", &new);
    stop.grace = Duration::ZERO;
    bench.store.stop(&stop).await.unwrap();
    for name in [&old, &new] {
        let record = bench.store.engine(name).await.unwrap().unwrap().record;
        assert_eq!((record.end_grace_ms, record.end_reason.as_deref()), (Some(0), Some("stopped by \"admin\"")));
    }
    // A slot with the same key does not revive them, and a later end changes nothing.
    let again = bench.start("s-4").await.unwrap();
    assert_eq!(again.slot.ordinal, 0);
    bench.alter("a-1", drop_object(ObjectKind::Tenant, "t_1")).await;
    let record = bench.store.engine(&old).await.unwrap().unwrap().record;
    assert_eq!((record.end_grace_ms, record.end_reason.as_deref()), (Some(0), Some("stopped by \"admin\"")));
    let record = bench.store.engine(&again.engine).await.unwrap().unwrap().record;
    let ended = (record.end_grace_ms, record.end_reason.as_deref());
    assert_eq!(ended, (Some(GRACE.as_millis() as i64), Some("tenant \"t_1\" was dropped")));
}

pub async fn stop_of_an_old_name_names_the_successor(bench: Bench) {
    let bench = bench.founded(0).await;
    let old = bench.start("s-1").await.unwrap().engine;
    let new = bench.restart("s-2", &old, false).await.unwrap().engine;
    let error = bench.stop("s-3", &old).await.unwrap_err();
    assert_eq!(sqlstate(&error), "55000");
    assert_eq!(error.user_error().hint.unwrap(), format!("Use STOP ENGINE rp_1 '{new}'."));
    assert_eq!(bench.present().await, [new]);
}

pub async fn restart_of_an_old_name_returns_the_successor(bench: Bench) {
    let bench = bench.founded(0).await;
    let old = bench.start("s-1").await.unwrap().engine;
    let new = bench.restart("s-2", &old, false).await.unwrap();
    assert_eq!(new.effect, RequestEffect::Restarted);
    let again = bench.restart("s-3", &old, false).await.unwrap();
    assert_eq!((again.effect, &again.engine), (RequestEffect::InProgress, &new.engine));
    assert_eq!(bench.present().await, std::slice::from_ref(&new.engine));
    let third = bench.restart("s-4", &new.engine, false).await.unwrap();
    assert_eq!(third.effect, RequestEffect::Restarted);
    assert_ne!(third.engine, new.engine);
}

pub async fn an_engine_without_a_slot_is_no_longer_desired(bench: Bench) {
    let bench = bench.founded(0).await;
    let old = bench.start("s-1").await.unwrap().engine;
    let new = bench.restart("s-2", &old, false).await.unwrap().engine;
    bench.stop("s-3", &new).await.unwrap();
    for round in ["a", "b"] {
        for (at, name) in [&old, &new].into_iter().enumerate() {
            let stopped = bench.stop(&format!("s-{round}{at}"), name).await.unwrap();
            let restarted = bench.restart(&format!("r-{round}{at}"), name, true).await.unwrap();
            assert_eq!(
                (stopped.effect, restarted.effect),
                (RequestEffect::NoLongerWanted, RequestEffect::NoLongerWanted)
            );
            assert_eq!((&stopped.engine, &restarted.engine), (name, name));
        }
        if round == "a" {
            // Another slot with the same key is not theirs.
            let other = bench.start("s-9").await.unwrap();
            assert_eq!(other.slot.ordinal, 0);
        }
    }
    assert_eq!(bench.present().await.len(), 1);
}

pub async fn an_unknown_engine_is_refused(bench: Bench) {
    let bench = bench.founded(1).await;
    let unknown = EngineName::new("no-such-engine").unwrap();
    let error = bench.stop("s-1", &unknown).await.unwrap_err();
    assert_eq!((sqlstate(&error).as_str(), error.kind()), ("42704", StoreErrorKind::Refused));
    let engine = bench.present().await[0].clone();
    let mut stop = bench.stop_request("s-2", &engine);
    stop.pool = model::PoolName::new("rp_2").unwrap();
    let error = bench.store.stop(&stop).await.unwrap_err();
    assert_eq!(error.user_error().hint.as_deref(), Some("It is in resource pool rp_1."));
    assert_eq!(bench.store.engine(&unknown).await.unwrap(), None);
}

pub async fn restart_keeps_a_stand_in_and_force_condemns_it(bench: Bench) {
    let bench = bench.founded(0).await;
    let first = bench.start("s-1").await.unwrap().engine;
    let second = bench.restart("s-2", &first, false).await.unwrap().engine;
    let slot = bench.store.snapshot().await.unwrap().slots[0].clone();
    assert_eq!(slot.replacement, Replacement::StandIn);
    let record = bench.store.engine(&first).await.unwrap().unwrap().record;
    assert_eq!((record.end_grace_ms, record.end_reason), (Some(600_000), None));
    let third = bench.restart("s-3", &second, true).await.unwrap().engine;
    let slot = bench.store.snapshot().await.unwrap().slots[0].clone();
    assert_eq!(slot.replacement, Replacement::Force);
    for name in [&first, &second] {
        let record = bench.store.engine(name).await.unwrap().unwrap().record;
        let reason = record.end_reason.as_deref();
        assert_eq!((record.end_grace_ms, reason), (Some(0), Some("restarted with FORCE by \"admin\"")));
    }
    let record = bench.store.engine(&third).await.unwrap().unwrap().record;
    assert_eq!((record.end_grace_ms, record.end_reason), (None, None));
}

pub async fn restart_in_place_condemns_nothing(bench: Bench) {
    let bench = bench.founded(1).await;
    let how = async || bench.store.snapshot().await.unwrap().slots[0].replacement;
    let first = bench.present().await[0].clone();
    bench.made(&first).await;
    let answer = bench.restart_as("s-1", &first, Replacement::InPlace).await.unwrap();
    assert_eq!((answer.effect, how().await), (RequestEffect::Restarted, Replacement::InPlace));
    let ending = async |name: &EngineName| {
        let record = bench.store.engine(name).await.unwrap().unwrap().record;
        (record.end_grace_ms, record.end_reason)
    };
    assert_eq!(ending(&first).await, (Some(600_000), None), "the grace of WITHIN, for the slot's turn");
    assert_eq!(bench.restart_as("s-1", &first, Replacement::InPlace).await.unwrap(), answer, "a repeat");

    // The engine that replaces it is restarted with a stand-in, in place again, and with FORCE.
    let again = bench.restart_as("s-2", &first, Replacement::StandIn).await.unwrap();
    assert_eq!((again.effect, how().await), (RequestEffect::InProgress, Replacement::InPlace));
    let second = bench.restart_as("s-3", &answer.engine, Replacement::StandIn).await.unwrap().engine;
    assert_eq!(how().await, Replacement::StandIn);
    let third = bench.restart_as("s-4", &second, Replacement::InPlace).await.unwrap().engine;
    assert_eq!((how().await, ending(&first).await.1), (Replacement::InPlace, None));
    bench.restart_as("s-5", &third, Replacement::Force).await.unwrap();
    assert_eq!(how().await, Replacement::Force);
    assert_eq!(ending(&first).await, (Some(0), Some("restarted with FORCE by \"admin\"".to_owned())));
}

pub async fn users_of_other_tenants_learn_nothing(bench: Bench) {
    let bench = bench.founded(0).await;
    bench.alter("a-1", create_tenant("t_2", &["rp_1"], &["bob"])).await;
    let engine = bench.start_as("s-1", by("alice"), link("t_1", "rp_1", "uc_1")).await.unwrap().engine;
    let there = bench.start_as("s-2", by("bob"), link("t_1", "rp_1", "uc_1")).await.unwrap_err();
    let not_there = bench.start_as("s-2", by("bob"), link("t_9", "rp_1", "uc_1")).await.unwrap_err();
    assert_eq!((sqlstate(&there).as_str(), sqlstate(&not_there).as_str()), ("42501", "42501"));
    assert_eq!(there.user_error().text().replace("t_1", "t_9"), not_there.user_error().text());
    let mut texts = Vec::new();
    for name in [engine.clone(), EngineName::new("x".repeat(engine.as_str().len())).unwrap()] {
        let mut stop = bench.stop_request("s-3", &name);
        stop.request.caller = by("bob");
        texts.push(bench.store.stop(&stop).await.unwrap_err().user_error().text().replace(name.as_str(), "?"));
    }
    assert_eq!(texts[0], texts[1]);
    let mut stop = bench.stop_request("s-3", &engine);
    stop.request.caller = by("alice");
    bench.store.stop(&stop).await.unwrap();
}

pub async fn a_request_after_its_deadline_changes_nothing(bench: Bench) {
    let bench = bench.founded(0).await;
    let engine = bench.start("s-1").await.unwrap().engine;
    let stop = bench.stop_request("s-2", &engine);
    bench.clock.advance(Duration::from_secs(61));
    let error = bench.store.stop(&stop).await.unwrap_err();
    assert_eq!(sqlstate(&error), "HYT00");
    assert_eq!(bench.present().await, [engine]);
    assert_eq!(bench.store.request(&id("s-2")).await.unwrap(), None);
}

pub async fn a_repeat_after_the_slot_is_gone_returns_the_first_answer(bench: Bench) {
    let bench = bench.founded(0).await;
    let started = bench.start("s-1").await.unwrap();
    let stopped = bench.stop("s-2", &started.engine).await.unwrap();
    let generation = bench.store.catalog().await.unwrap().generation;
    assert_eq!(bench.start("s-1").await.unwrap(), started);
    assert_eq!(bench.stop("s-2", &started.engine).await.unwrap(), stopped);
    assert_eq!(bench.store.request(&id("s-1")).await.unwrap(), Some(started.clone()));
    assert!(bench.present().await.is_empty());
    assert_eq!(bench.store.catalog().await.unwrap().generation, generation, "a repeat draws no number");
    // An id stands for one statement.
    let error = bench.restart("s-1", &started.engine, false).await.unwrap_err();
    assert_eq!(sqlstate(&error), "22023");
    // A raised MIN counts rows of either origin.
    bench.start("s-3").await.unwrap();
    let patch = UnitPatch { min_engines: Some(2), ..UnitPatch::default() };
    bench.alter("a-1", change_unit("uc_1", patch)).await;
    assert_eq!(bench.present().await.len(), 2);
}

pub async fn no_statement_exceeds_the_limit_of_all_engines(bench: Bench) {
    let settings = bench.settings.clone();
    let clock = bench.clock.clone();
    bench.store.close().await;
    drop(bench);
    let rules = model::change::Rules { max_engines: 3, ..Default::default() };
    let store = metadata::Store::open(&settings, rules, clock.clone()).await.unwrap();
    let bench = Bench { settings, store, clock }.founded(2).await;
    let refused = |error: Error| {
        let error = error.user_error();
        assert_eq!(error.sqlstate(), "54000", "{}", error.text());
        error.detail.unwrap()
    };
    let minimum =
        |min| change_unit("uc_1", UnitPatch { min_engines: Some(min), max_engines: Some(9), ..UnitPatch::default() });
    bench.alter("a-0", minimum(2)).await;
    let detail = refused(bench.try_alter("a-1", minimum(4)).await.unwrap_err());
    assert!(detail.contains("from 2 to 4") && detail.contains("metadata_agent.max_engines is 3"), "{detail}");
    assert_eq!(bench.present().await.len(), 2, "nothing was changed");
    bench.start("s-1").await.unwrap();
    let detail = refused(bench.start("s-2").await.unwrap_err());
    assert!(detail.contains("from 3 to 4"), "{detail}");
    // A statement that does not increase their number is never refused.
    bench.alter("a-2", minimum(1)).await;
    bench.start("s-3").await.unwrap();
}
