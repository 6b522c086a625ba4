//! Cases of the history: each engine that ended has one row with its word, written once.

use metadata::{HistoryFilter, Store};
use model::end::{EndClass, EndWord, GivenUp, StartFault};
use model::engine_name::EngineName;
use model::history::EndedRecord;
use model::name::{PoolName, TenantName, UnitName};
use model::observation::{EndedEngine, EngineFacts};
use model::scaling::{LinkScale, LinkScaled, ScaleRequest, SlotAddition, SlotRemoval, SlotsSeen};
use model::shared::Shared;
use model::slot::{Origin, Renewal, Replacement, Slot};

use super::bench::{Bench, change_unit, create_pool, create_tenant, create_unit, link};

fn of_tenant(tenant: &str, limit: u32) -> HistoryFilter {
    HistoryFilter { tenant: TenantName::new(tenant).unwrap(), pool: None, unit: None, limit }
}

async fn history(bench: &Bench) -> Vec<EndedRecord> {
    bench.store.engine_history(&of_tenant("t_1", 20)).await.unwrap()
}

async fn words(bench: &Bench) -> Vec<Option<EndWord>> {
    history(bench).await.into_iter().map(|record| record.word).collect()
}

async fn slot(bench: &Bench) -> Slot {
    Shared::into_inner(bench.store.snapshot().await.unwrap().slots.remove(0))
}

async fn end(bench: &Bench, name: &EngineName, class: Option<EndClass>, reason: &str) {
    let ended = EndedEngine { name: name.clone(), reason: reason.to_owned(), class, log_tail: None };
    let served = vec![(name.clone(), reason.len() as u64)];
    let facts = EngineFacts { ended: vec![ended], served, ..EngineFacts::default() };
    bench.store.record(bench.epoch().await, &facts).await.unwrap();
}

async fn scale(bench: &Bench, add: u32, remove: Vec<SlotRemoval>) -> LinkScaled {
    let slots = bench.store.snapshot().await.unwrap().slots;
    let add = if add == 0 { Vec::new() } else { vec![SlotAddition::of_tenant(add)] };
    let links = vec![LinkScale { link: link("t_1", "rp_1", "uc_1"), seen: SlotsSeen::of(&slots), add, remove }];
    let request = ScaleRequest { links, reservation_ttl_ms: 60_000, grace_ms: 1_000 };
    bench.store.scale(bench.epoch().await, &request).await.unwrap().remove(0)
}

/// A slot that follows demand.
async fn scaled(bench: &Bench) -> Slot {
    let demand = model::change::UnitPatch {
        start_on_demand: model::change::Setting::Set(true),
        ..model::change::UnitPatch::default()
    };
    bench.alter("on-demand", change_unit("uc_1", demand)).await;
    assert!(matches!(scale(bench, 1, Vec::new()).await, LinkScaled::Scaled { .. }));
    slot(bench).await
}

pub async fn an_engine_that_ended_is_history_with_its_times_and_word(bench: Bench) {
    let bench = bench.founded(0).await;
    let Slot { key, incarnation, .. } = scaled(&bench).await;
    let name = key.engine(incarnation);
    bench.made(&name).await;
    assert_eq!(history(&bench).await, [], "it has not ended");
    let idle = SlotRemoval { slot: key.clone(), incarnation, reason: "idle for 5m".to_owned(), word: EndWord::Idle };
    assert!(matches!(scale(&bench, 0, vec![idle]).await, LinkScaled::Scaled { .. }));
    // What is observed of its end is no news.
    end(&bench, &name, Some(EndClass::of_start(EndWord::Failed, Some(StartFault::Exited))), "drained").await;
    end(&bench, &name, Some(EndClass::of(EndWord::Vanished)), "again").await;
    let [record] = &history(&bench).await[..] else { panic!("one engine ended") };
    assert_eq!((&record.name, &record.slot, record.origin, &record.owner), (&name, &key, Some(Origin::Demand), &None));
    assert_eq!((record.word, record.retryable), (Some(EndWord::Idle), None));
    assert_eq!(record.ordered.as_deref(), Some("idle for 5m"));
    assert_eq!(record.reason.as_deref(), Some("drained"), "the first report stands");
    let (Some(reserved), Some(created)) = (record.reserved_at_ms, record.created_at_ms) else { panic!("{record:?}") };
    assert!(record.wanted_at_ms <= reserved && reserved <= created && created <= record.ended_at_ms, "{record:?}");
    assert_eq!(record.sessions_served, Some("drained".len() as i64), "the first report stands");
    assert_eq!(record.registered_at_ms, None, "it never registered");
    let (cpu_m, memory) = record.charge.unwrap();
    assert!(cpu_m >= 1_000 && memory >= 1 << 30, "{cpu_m} {memory}");
}

pub async fn the_word_of_an_end_is_that_of_its_order(bench: Bench) {
    let bench = bench.founded(0).await;
    let stopped = bench.start("s-1").await.unwrap().engine;
    bench.stop("s-2", &stopped).await.unwrap();
    end(&bench, &stopped, Some(EndClass::of(EndWord::Superseded)), "drained").await;
    assert_eq!(words(&bench).await, [Some(EndWord::Stopped)]);
    // A restart with FORCE.
    let restarted = bench.start("s-3").await.unwrap().engine;
    let present = bench.restart("r-1", &restarted, true).await.unwrap().engine;
    end(&bench, &restarted, None, "killed").await;
    assert_eq!(words(&bench).await[0], Some(EndWord::Superseded));
    // MAX_ENGINES falls below the started engines.
    bench.alter("link", change_unit("uc_1", max_of(1))).await;
    let second = bench.start("s-4").await;
    assert!(second.is_err(), "the unit has its maximum");
    bench.alter("more", change_unit("uc_1", max_of(2))).await;
    let second = bench.start("s-5").await.unwrap().engine;
    bench.alter("less", change_unit("uc_1", max_of(1))).await;
    end(&bench, &second, Some(EndClass::of(EndWord::Failed)), "drained").await;
    assert_eq!(words(&bench).await[0], Some(EndWord::OverMax));
    // One of an older master has no word.
    end(&bench, &present, None, "exit code 1").await;
    assert_eq!(words(&bench).await[0], None);
    assert_eq!(history(&bench).await[0].reason.as_deref(), Some("exit code 1"));
}

pub async fn a_busy_engine_ends_as_replaced_although_its_successor_was_idle(bench: Bench) {
    let bench = bench.founded(0).await;
    let older = scaled(&bench).await.engine();
    bench.made(&older).await;
    let newer = bench.restart("r-1", &older, false).await.unwrap().engine;
    bench.made(&newer).await;
    let Slot { key, incarnation, .. } = slot(&bench).await;
    let idle = SlotRemoval { slot: key, incarnation, reason: "idle for 5m".to_owned(), word: EndWord::Idle };
    assert!(matches!(scale(&bench, 0, vec![idle]).await, LinkScaled::Scaled { .. }));
    for (name, word, reason) in [
        (&older, EndWord::Superseded, format!("replaced by {newer}")),
        (&newer, EndWord::Idle, "idle for 5m".to_owned()),
    ] {
        let record = bench.store.engine(name).await.unwrap().unwrap().record;
        assert_eq!((record.ended_word, record.end_reason), (Some(word), Some(reason)));
    }
}

fn max_of(max: u32) -> model::change::UnitPatch {
    model::change::UnitPatch { max_engines: Some(max), ..Default::default() }
}

pub async fn a_start_that_was_given_up_keeps_its_reason(bench: Bench) {
    let bench = bench.founded(1).await;
    let epoch = bench.epoch().await;
    let Slot { key, incarnation, .. } = slot(&bench).await;
    let first = key.engine(incarnation);
    bench.made(&first).await;
    let class = EndClass::of_start(EndWord::StartTimeout, Some(StartFault::Image));
    let renewal = Renewal {
        slot: key.clone(),
        observed: incarnation,
        failures: 1,
        replacement: Replacement::StandIn,
        condemn: None,
        ends: Some(GivenUp { class, reason: "not registered within 2m: no such image".to_owned() }),
    };
    bench.store.new_incarnation(epoch, &renewal).await.unwrap();
    let snapshot = bench.store.snapshot().await.unwrap();
    let given_up = snapshot.engines.iter().find(|record| record.name == first).unwrap();
    assert_eq!((given_up.ended_word, given_up.retryable), (Some(EndWord::StartTimeout), Some(false)));
    assert_eq!((given_up.ended_at_ms, &given_up.end_reason), (None, &None), "it may still stand in");
    assert_eq!(history(&bench).await, []);
    end(&bench, &first, Some(EndClass::of(EndWord::Superseded)), "ended").await;
    let [record] = &history(&bench).await[..] else { panic!("one engine ended") };
    assert_eq!((record.word, record.retryable), (Some(EndWord::StartTimeout), Some(false)));
    assert_eq!(record.reason.as_deref(), Some("not registered within 2m: no such image"));
    assert_eq!(record.origin, Some(Origin::Minimum));
    let current = &bench.store.snapshot().await.unwrap().engines[0];
    assert_eq!(current.failure_before.as_deref(), Some("not registered within 2m: no such image"));
}

pub async fn the_history_is_read_newest_first_by_its_scope(bench: Bench) {
    bench.alter("u-1", create_unit("uc_1", 1, 2)).await;
    bench.alter("u-2", create_unit("uc_2", 1, 2)).await;
    bench.alter("p-1", create_pool("rp_1", &["uc_1", "uc_2"])).await;
    bench.alter("p-2", create_pool("rp_2", &["uc_1"])).await;
    bench.alter("t-1", create_tenant("t_1", &["rp_1", "rp_2"], &[])).await;
    bench.alter("t-2", create_tenant("t_2", &["rp_2"], &[])).await;
    let snapshot = bench.store.snapshot().await.unwrap();
    let name = |tenant: &str, pool: &str, unit: &str| {
        let of = link(tenant, pool, unit);
        snapshot.slots.iter().find(|slot| slot.key.link() == of).unwrap().engine()
    };
    let ended = [("t_1", "rp_1", "uc_1"), ("t_1", "rp_2", "uc_1"), ("t_2", "rp_2", "uc_1"), ("t_1", "rp_1", "uc_2")];
    for (at, (tenant, pool, unit)) in ended.into_iter().enumerate() {
        let name = name(tenant, pool, unit);
        end(&bench, &name, Some(EndClass::of(EndWord::Failed)), "exit code 1").await;
        bench.raw(&format!("UPDATE engine SET ended_at_ms = {} WHERE name = '{name}'", 1_000 + at)).await;
    }
    let read = async |store: &Store, filter: HistoryFilter| {
        let records = store.engine_history(&filter).await.unwrap();
        records.into_iter().map(|record| record.name).collect::<Vec<_>>()
    };
    let (pool, unit) = (PoolName::new("rp_1").ok(), UnitName::new("uc_2").ok());
    let [first, second, other, last] = ended.map(|(tenant, pool, unit)| name(tenant, pool, unit));
    let all = [last.clone(), second, first.clone()];
    assert_eq!(read(&bench.store, of_tenant("t_1", 20)).await, all);
    assert_eq!(read(&bench.store, of_tenant("t_1", 1)).await, all[..1]);
    assert_eq!(read(&bench.store, of_tenant("t_2", 20)).await, [other]);
    let of_pool = HistoryFilter { pool: pool.clone(), ..of_tenant("t_1", 20) };
    assert_eq!(read(&bench.store, of_pool).await, [last.clone(), first]);
    assert_eq!(read(&bench.store, HistoryFilter { pool, unit, ..of_tenant("t_1", 20) }).await, [last]);
}
