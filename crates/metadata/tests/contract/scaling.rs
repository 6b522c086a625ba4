//! Cases of slots that follow demand: a master adds them with their reservations and removes them.

use metadata::Error;
use model::change::{PoolPatch, Setting, UnitPatch};
use model::end::EndWord;
use model::engine_name::EngineName;
use model::ledger::State;
use model::number::{Epoch, Incarnation};
use model::quota::Capacity;
use model::scaling::{
    AddedSlot, LinkScale, LinkScaled, MAX_SCALED_SLOTS, ScaleRequest, SlotAddition, SlotRemoval, SlotsSeen,
};
use model::shared::Shared;
use model::slot::{Link, Origin, Slot};

use super::bench::{Bench, change_tenant, change_unit, create_pool, create_unit, link};
use super::limits::{change_pool, engines};

fn of_t_1() -> Link {
    link("t_1", "rp_1", "uc_1")
}

fn on_demand(patch: UnitPatch) -> model::change::Change {
    change_unit("uc_1", UnitPatch { start_on_demand: Setting::Set(true), ..patch })
}

/// Tenant, pool and unit, with engines on demand.
async fn founded(bench: Bench, min: u32) -> Bench {
    let bench = bench.founded(min).await;
    bench.alter("on-demand", on_demand(UnitPatch::default())).await;
    bench
}

async fn slots(bench: &Bench) -> Vec<Slot> {
    bench.store.snapshot().await.unwrap().slots.into_iter().map(Shared::into_inner).collect()
}

/// The slots of the link as a plan sees them now.
async fn seen(bench: &Bench, link: &Link) -> SlotsSeen {
    SlotsSeen::of(slots(bench).await.iter().filter(|slot| slot.key.link() == *link))
}

async fn adding(bench: &Bench, link: Link, add: u32) -> LinkScale {
    let add = if add == 0 { Vec::new() } else { vec![SlotAddition::of_tenant(add)] };
    LinkScale { seen: seen(bench, &link).await, link, add, remove: Vec::new() }
}

async fn removing(bench: &Bench, gone: &[&Slot]) -> LinkScale {
    let remove = gone.iter().map(|slot| SlotRemoval {
        slot: slot.key.clone(),
        incarnation: slot.incarnation,
        reason: "idle for 5m".to_owned(),
        word: EndWord::Idle,
    });
    LinkScale { remove: remove.collect(), ..adding(bench, of_t_1(), 0).await }
}

async fn try_scale(bench: &Bench, epoch: Epoch, links: Vec<LinkScale>) -> Result<Vec<LinkScaled>, Error> {
    let request = ScaleRequest { links, reservation_ttl_ms: 60_000, grace_ms: 1_000 };
    bench.store.scale(epoch, &request).await
}

async fn scale(bench: &Bench, link: LinkScale) -> LinkScaled {
    try_scale(bench, bench.epoch().await, vec![link]).await.unwrap().remove(0)
}

fn added(scaled: LinkScaled) -> (Vec<AddedSlot>, Option<String>) {
    match scaled {
        LinkScaled::Scaled { added, short } => (added, short),
        LinkScaled::Refused(reason) => panic!("{reason}"),
    }
}

fn refused(scaled: LinkScaled) -> String {
    match scaled {
        LinkScaled::Refused(reason) => reason,
        LinkScaled::Scaled { added, short } => panic!("{added:?} {short:?}"),
    }
}

/// The engines of the tenant that are charged.
async fn charged(bench: &Bench) -> Vec<EngineName> {
    let ledger = bench.store.whole_ledger().await.unwrap();
    assert!(ledger.drifts().unwrap().is_empty());
    let charged = ledger.reservations().filter(|reservation| reservation.state.is_charged());
    let mut names: Vec<EngineName> = charged.map(|reservation| EngineName::new(&**reservation.id()).unwrap()).collect();
    names.sort();
    names
}

async fn present(bench: &Bench) -> Vec<EngineName> {
    let mut names = bench.present().await;
    names.sort();
    names
}

pub async fn an_added_slot_is_charged_in_the_same_transaction(bench: Bench) {
    let bench = founded(bench, 0).await;
    let (names, short) = added(scale(&bench, adding(&bench, of_t_1(), 2).await).await);
    assert_eq!((names.len(), short), (2, None));
    let slots = slots(&bench).await;
    for (slot, added) in slots.iter().zip(&names) {
        assert_eq!((&slot.key, slot.incarnation), (&added.slot, added.incarnation));
        assert_eq!((slot.origin, slot.started_for.as_ref(), slot.born), (Origin::Demand, None, slot.incarnation));
    }
    assert_eq!(slots.iter().map(|slot| slot.key.ordinal).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(charged(&bench).await, present(&bench).await);
    let reservation = bench.store.reservation(slots[0].engine().as_str()).await.unwrap().unwrap();
    assert_eq!((reservation.state, reservation.request.ttl_ms), (State::Locked, None), "nothing limits it");
}

pub async fn a_slot_that_is_short_of_capacity_is_not_added(bench: Bench) {
    let bench = founded(bench, 0).await;
    let capacity = PoolPatch { capacity: Setting::Set(Capacity::Amount(engines(2))), ..PoolPatch::default() };
    bench.alter("limit", change_pool("rp_1", capacity)).await;
    let (names, short) = added(scale(&bench, adding(&bench, of_t_1(), 3).await).await);
    assert_eq!(names.len(), 2);
    let short = short.unwrap();
    assert!(short.starts_with("Resource pool \"rp_1\": asked 1, left 0 of 2"), "{short}");
    assert_eq!((slots(&bench).await.len(), charged(&bench).await.len()), (2, 2));
    let reservation = bench.store.reservation(present(&bench).await[0].as_str()).await.unwrap().unwrap();
    assert_eq!(reservation.request.ttl_ms, Some(60_000), "it ends unless its engine registers");
}

pub async fn a_late_call_adds_nothing_to_a_link_that_is_empty_again(bench: Bench) {
    let bench = founded(bench, 0).await;
    let read_at = bench.store.snapshot().await.unwrap().catalog.generation;
    let empty = SlotsSeen { read_at, ..seen(&bench, &of_t_1()).await };
    let call = LinkScale { seen: empty, ..adding(&bench, of_t_1(), 1).await };
    // What the next plan adds is no longer needed a moment later.
    added(scale(&bench, call.clone()).await);
    let slots = slots(&bench).await;
    added(scale(&bench, removing(&bench, &[&slots[0]]).await).await);
    assert!(seen(&bench, &of_t_1()).await.are_those_of(&empty));
    let refusal = refused(scale(&bench, call.clone()).await);
    assert!(refusal.contains("was issued for the link after generation"), "{refusal}");
    assert_eq!(present(&bench).await, []);
    // The next plan reads the link again.
    let read_at = bench.store.snapshot().await.unwrap().catalog.generation;
    added(scale(&bench, LinkScale { seen: SlotsSeen { read_at, ..empty }, ..call }).await);
}

pub async fn a_repeated_call_adds_nothing_twice(bench: Bench) {
    let bench = founded(bench, 0).await;
    let call = adding(&bench, of_t_1(), 3).await;
    added(scale(&bench, call.clone()).await);
    let before = present(&bench).await;
    assert!(refused(scale(&bench, call.clone()).await).contains("the link has 3 slots"));
    // A slot that went and another that came leave the count as it was.
    bench.stop("stop-1", &before[2]).await.unwrap();
    let seen = seen(&bench, &of_t_1()).await;
    let again = LinkScale { seen, add: vec![SlotAddition::of_tenant(1)], ..call.clone() };
    added(scale(&bench, again.clone()).await);
    bench.stop("stop-2", &present(&bench).await[0]).await.unwrap();
    refused(scale(&bench, again).await);
    assert_eq!(present(&bench).await.len(), 2);
}

pub async fn only_an_idle_slot_on_demand_above_the_minimum_is_removed(bench: Bench) {
    let bench = founded(bench, 0).await;
    let started = bench.start("s-1").await.unwrap();
    added(scale(&bench, adding(&bench, of_t_1(), 2).await).await);
    let all = slots(&bench).await;
    let (of_user, on_demand): (Vec<&Slot>, Vec<&Slot>) = all.iter().partition(|slot| slot.origin == Origin::Start);
    assert_eq!(of_user[0].engine(), started.engine);
    assert!(refused(scale(&bench, removing(&bench, &of_user).await).await).contains("has changed"));
    // An ALTER that raises the minimum to what exists changes no row.
    bench.alter("min", on_demand_min(3)).await;
    assert_eq!(slots(&bench).await, all);
    let reason = refused(scale(&bench, removing(&bench, &on_demand[..1]).await).await);
    assert_eq!(reason, "MIN_ENGINES is 3");
    bench.alter("min-2", on_demand_min(2)).await;
    refused(scale(&bench, removing(&bench, &on_demand).await).await);
    bench.made(&on_demand[1].engine()).await;
    added(scale(&bench, removing(&bench, &on_demand[1..]).await).await);
    let left = slots(&bench).await;
    assert_eq!(left, [all[0].clone(), all[1].clone()]);
    let engine = bench.store.engine(&on_demand[1].engine()).await.unwrap().unwrap().record;
    assert_eq!((engine.end_reason.as_deref(), engine.end_grace_ms), (Some("idle for 5m"), Some(1_000)));
    // The slot is gone, and its incarnation with it.
    assert!(refused(scale(&bench, removing(&bench, &on_demand[1..]).await).await).contains("is gone"));
}

fn on_demand_min(min: u32) -> model::change::Change {
    on_demand(UnitPatch { min_engines: Some(min), ..UnitPatch::default() })
}

pub async fn a_slot_with_another_incarnation_is_not_removed(bench: Bench) {
    let bench = founded(bench, 0).await;
    added(scale(&bench, adding(&bench, of_t_1(), 1).await).await);
    let before = slots(&bench).await;
    let planned = removing(&bench, &before.iter().collect::<Vec<_>>()).await;
    bench.restart("r-1", &before[0].engine(), false).await.unwrap();
    assert!(refused(scale(&bench, planned.clone()).await).contains("up to incarnation"));
    let seen = seen(&bench, &of_t_1()).await;
    assert!(refused(scale(&bench, LinkScale { seen, ..planned }).await).contains("has changed"));
    assert_eq!(slots(&bench).await.len(), 1);
}

pub async fn slots_on_demand_keep_every_limit(bench: Bench) {
    let bench = founded(bench, 0).await;
    let (names, short) = added(scale(&bench, adding(&bench, of_t_1(), 9).await).await);
    assert_eq!((names.len(), short.as_deref()), (3, Some("MAX_ENGINES is 3")));
    let off = UnitPatch { start_on_demand: Setting::Set(false), ..UnitPatch::default() };
    bench.alter("off", change_unit("uc_1", off)).await;
    bench.alter("more", change_unit("uc_1", UnitPatch { max_engines: Some(9), ..UnitPatch::default() })).await;
    let reason = refused(scale(&bench, adding(&bench, of_t_1(), 1).await).await);
    assert_eq!(reason, "resource unit \"uc_1\" does not start engines on demand");
    bench.alter("on", on_demand(UnitPatch::default())).await;
    bench.alter("unlinked", change_tenant("t_1", &[])).await;
    assert_eq!(slots(&bench).await, [], "the link is gone with its slots");
    refused(scale(&bench, adding(&bench, of_t_1(), 1).await).await);
    let too_many = adding(&bench, of_t_1(), MAX_SCALED_SLOTS as u32 + 1).await;
    assert!(matches!(try_scale(&bench, bench.epoch().await, vec![too_many]).await, Err(Error::Broken(_))));
}

pub async fn the_links_of_a_call_have_results_of_their_own(bench: Bench) {
    let bench = founded(bench, 0).await;
    bench.alter("unit", create_unit("uc_2", 0, 3)).await;
    bench.alter("pool", create_pool("rp_2", &["uc_1", "uc_2"])).await;
    bench.alter("tenant", change_tenant("t_1", &["rp_1", "rp_2"])).await;
    let off = UnitPatch { start_on_demand: Setting::Set(false), ..UnitPatch::default() };
    bench.alter("off", change_unit("uc_2", off)).await;
    let (one, two, no) = (of_t_1(), link("t_1", "rp_2", "uc_1"), link("t_1", "rp_2", "uc_2"));
    let links =
        vec![adding(&bench, one.clone(), 1).await, adding(&bench, no, 1).await, adding(&bench, two.clone(), 2).await];
    let results = try_scale(&bench, bench.epoch().await, links.clone()).await.unwrap();
    let [first, second, third] = &results[..] else { panic!("{results:?}") };
    assert_eq!(added(first.clone()).0.len(), 1);
    assert_eq!(refused(second.clone()), "resource unit \"uc_2\" does not start engines on demand");
    assert_eq!(added(third.clone()).0.len(), 2);
    assert_eq!(charged(&bench).await, present(&bench).await);
    let incarnations: std::collections::BTreeSet<Incarnation> =
        slots(&bench).await.into_iter().map(|slot| slot.incarnation).collect();
    assert_eq!(incarnations.len(), 3);
    assert!(matches!(
        try_scale(&bench, bench.epoch().await, vec![links[0].clone(), links[0].clone()]).await,
        Err(Error::Broken(_))
    ));
}

pub async fn a_deposed_master_scales_nothing(bench: Bench) {
    let bench = founded(bench, 0).await;
    let call = adding(&bench, of_t_1(), 1).await;
    let epoch = bench.epoch().await;
    bench.store.raise_epoch(epoch, "new-master").await.unwrap();
    let deposed = try_scale(&bench, epoch, vec![call.clone()]).await;
    assert!(matches!(deposed, Err(Error::Deposed(_))), "{deposed:?}");
    assert_eq!((slots(&bench).await, charged(&bench).await), (Vec::new(), Vec::new()));
    added(scale(&bench, call).await);
}
