//! Cases of slots with owners: whom they are charged to, and what an ALTER of `SHARED_BY` leaves of them.

use metadata::Error;
use model::change::{Change, QuotaPatch, Setting, UnitPatch};
use model::demand::DemandKey;
use model::demand_report::{DemandReport, WaitingSessions};
use model::ledger::ScopeKey;
use model::name::TenantName;
use model::owner::{Owner, SharedBy};
use model::quota::Principal;
use model::resource::Component;
use model::rights::{RoleLists, Subject};
use model::scaling::{LinkScale, LinkScaled, ScaleRequest, SlotAddition, SlotsSeen};
use model::shared::Shared;
use model::slot::{Origin, Slot, StartedFor};

use super::bench::{Bench, by, change_unit, link};
use super::limits::{create_quota, engines};

fn shared_by(shared_by: SharedBy) -> Change {
    let start_on_demand = Setting::Set(true);
    let patch = UnitPatch { shared_by: Some(shared_by), max_engines: Some(9), start_on_demand, ..UnitPatch::default() };
    change_unit("uc_1", patch)
}

async fn founded(bench: Bench, by: SharedBy) -> Bench {
    let bench = bench.founded(0).await;
    bench.alter("shared", shared_by(by)).await;
    bench
}

async fn slots(bench: &Bench) -> Vec<Slot> {
    bench.store.snapshot().await.unwrap().slots.into_iter().map(Shared::into_inner).collect()
}

#[allow(clippy::unnecessary_wraps)] // As slots and permits have it.
fn user(name: &str) -> Option<Owner> {
    Some(Owner::User(name.to_owned()))
}

#[allow(clippy::unnecessary_wraps)] // As slots and permits have it.
fn started_for(name: &str) -> Option<StartedFor> {
    Some(StartedFor { user: name.to_owned(), creator: "IDE".to_owned() })
}

fn of_user(name: &str, count: u32) -> SlotAddition {
    SlotAddition { owner: user(name), started_for: started_for(name), count }
}

async fn adding(bench: &Bench, add: Vec<SlotAddition>) -> LinkScale {
    LinkScale { link: link("t_1", "rp_1", "uc_1"), seen: SlotsSeen::of(&slots(bench).await), add, remove: Vec::new() }
}

async fn scale(bench: &Bench, link: LinkScale) -> LinkScaled {
    let request = ScaleRequest { links: vec![link], reservation_ttl_ms: 60_000, grace_ms: 1_000 };
    bench.store.scale(bench.epoch().await, &request).await.unwrap().remove(0)
}

fn added(scaled: LinkScaled) -> (usize, Option<String>) {
    match scaled {
        LinkScaled::Scaled { added, short } => (added.len(), short),
        LinkScaled::Refused(reason) => panic!("{reason}"),
    }
}

fn refused(scaled: LinkScaled) -> String {
    match scaled {
        LinkScaled::Refused(reason) => reason,
        LinkScaled::Scaled { added, short } => panic!("{added:?} {short:?}"),
    }
}

/// The engines that a user or creator is charged; `None` without a row.
async fn held(bench: &Bench, key: &ScopeKey) -> Option<i64> {
    let ledger = bench.store.whole_ledger().await.unwrap();
    assert!(ledger.drifts().unwrap().is_empty());
    Some(ledger.scope(key)?.counter.held.get(Component::Engines))
}

async fn of_principals(bench: &Bench) -> [Option<i64>; 3] {
    let [ann, bob] = ["ann", "bob"].map(ScopeKey::user);
    [held(bench, &ann).await, held(bench, &bob).await, held(bench, &ScopeKey::creator("IDE")).await]
}

pub async fn engines_of_users_are_charged_to_them(bench: Bench) {
    let bench = founded(bench, SharedBy::User).await;
    assert_eq!(of_principals(&bench).await, [None, None, None]);
    let call = adding(&bench, vec![of_user("bob", 1), of_user("ann", 2)]).await;
    assert_eq!(added(scale(&bench, call.clone()).await), (3, None));
    let before = slots(&bench).await;
    let owners: Vec<_> = before.iter().map(|slot| (slot.owner.clone(), slot.started_for.clone())).collect();
    let of = |name: &str| (user(name), started_for(name));
    assert_eq!(owners, [of("bob"), of("ann"), of("ann")]);
    assert_eq!(bench.store.proxy_snapshot().await.unwrap().slots, before, "proxies see the owners");
    assert_eq!(of_principals(&bench).await, [Some(2), Some(1), Some(3)], "rows are inserted on first use");
    // A repeat after a lost answer.
    assert!(refused(scale(&bench, call).await).contains("the link has 3 slots"));
    assert_eq!((slots(&bench).await, of_principals(&bench).await), (before, [Some(2), Some(1), Some(3)]));
    bench.stop("stop", &bench.present().await[0]).await.unwrap();
    assert_eq!(
        slots(&bench).await.iter().map(|slot| slot.owner.clone()).collect::<Vec<_>>(),
        [user("ann"), user("ann")]
    );
}

pub async fn engines_of_groups_are_charged_to_the_tenant_only(bench: Bench) {
    let bench = founded(bench, SharedBy::Group).await;
    let etl = Some(Owner::Group("etl".to_owned()));
    let add = SlotAddition { owner: etl.clone(), started_for: None, count: 1 };
    let charged = SlotAddition { started_for: started_for("ann"), ..add.clone() };
    assert!(
        refused(scale(&bench, adding(&bench, vec![charged]).await).await).ends_with("is charged to the tenant only")
    );
    assert_eq!(added(scale(&bench, adding(&bench, vec![add]).await).await), (1, None));
    assert_eq!((&slots(&bench).await[0].owner, of_principals(&bench).await), (&etl, [None, None, None]));
}

pub async fn a_quota_of_one_user_leaves_others_their_engines(bench: Bench) {
    let bench = founded(bench, SharedBy::User).await;
    let limit = Setting::Set(engines(1));
    let quota = QuotaPatch { user: Some(Principal::Named("ann".to_owned())), limit, ..QuotaPatch::default() };
    bench.alter("quota", create_quota("q_ann", quota)).await;
    let (number, short) = added(scale(&bench, adding(&bench, vec![of_user("ann", 3), of_user("bob", 2)]).await).await);
    assert_eq!((number, of_principals(&bench).await), (3, [Some(1), Some(2), Some(3)]));
    let short = short.unwrap();
    assert!(short.starts_with("User \"ann\": asked 1, left 0 of 1"), "{short}");
}

pub async fn only_owners_by_which_the_unit_is_shared_now_are_added(bench: Bench) {
    let bench = founded(bench, SharedBy::User).await;
    let session = SlotAddition { owner: Some(Owner::Session("s-1".to_owned())), ..of_user("ann", 1) };
    for other in [SlotAddition::of_tenant(1), session.clone()] {
        let call = adding(&bench, vec![of_user("ann", 1), other]).await;
        assert_eq!(refused(scale(&bench, call).await), "resource unit \"uc_1\" is shared by user");
    }
    let uncharged = SlotAddition { started_for: None, ..of_user("ann", 1) };
    assert!(refused(scale(&bench, adding(&bench, vec![uncharged]).await).await).ends_with("charged to the user, too"));
    assert_eq!((slots(&bench).await, of_principals(&bench).await), (vec![], [None, None, None]));
    // A plan that was made before the ALTER.
    let call = adding(&bench, vec![of_user("ann", 1)]).await;
    bench.alter("session", shared_by(SharedBy::Session)).await;
    assert_eq!(refused(scale(&bench, call).await), "resource unit \"uc_1\" is shared by session");
    assert_eq!(added(scale(&bench, adding(&bench, vec![session]).await).await), (1, None));
    assert_eq!(of_principals(&bench).await, [Some(1), None, Some(1)], "its user is charged");
}

pub async fn an_alter_of_shared_by_deletes_what_follows_demand(bench: Bench) {
    let bench = founded(bench, SharedBy::Tenant).await;
    let started = bench.start_as("s-1", by("alice"), link("t_1", "rp_1", "uc_1")).await.unwrap();
    bench.made(&started.engine).await;
    assert_eq!(added(scale(&bench, adding(&bench, vec![SlotAddition::of_tenant(2)]).await).await), (2, None));
    let followed: Vec<_> = slots(&bench).await.into_iter().filter(|slot| slot.origin == Origin::Demand).collect();
    bench.alter("user", shared_by(SharedBy::User)).await;
    let after = slots(&bench).await;
    let [slot] = &after[..] else { panic!("{after:?}") };
    assert_eq!(
        (&slot.key, slot.owner.clone(), slot.started_for.as_ref().unwrap().user.as_str()),
        (&started.slot, user("alice"), "alice")
    );
    assert!(slot.incarnation > started.incarnation, "the owner changes with the incarnation only");
    let ended = bench.store.engine(&followed[0].engine()).await.unwrap().unwrap().record;
    assert_eq!(ended.end_reason.as_deref(), Some("SHARED_BY is now 'user'"));
    let stand_in = bench.store.engine(&started.engine).await.unwrap().unwrap().record;
    assert_eq!(stand_in.end_reason, None, "it serves until its successor does");
    // A restart keeps the owner; the way back takes it away.
    bench.restart("r-1", &slot.engine(), false).await.unwrap();
    assert_eq!(slots(&bench).await[0].owner, user("alice"));
    bench.alter("tenant", shared_by(SharedBy::Tenant)).await;
    assert_eq!(slots(&bench).await[0].owner, None);
    bench.alter("group", shared_by(SharedBy::Group)).await;
    assert_eq!(slots(&bench).await, [], "its group is not known");
}

pub async fn a_started_engine_is_owned_by_the_user_who_starts_it(bench: Bench) {
    let bench = founded(bench, SharedBy::Group).await;
    let mut grouped = by("alice");
    grouped.subject = Subject::new("alice", vec!["etl".to_owned(), "bi".to_owned()], &RoleLists::of_admins(&["admin"]));
    for (id, caller) in [("s-1", grouped), ("s-2", by("alice"))] {
        bench.start_as(id, caller, link("t_1", "rp_1", "uc_1")).await.unwrap();
    }
    let owners: Vec<_> = slots(&bench).await.into_iter().map(|slot| slot.owner).collect();
    let group = |name: &str| Some(Owner::Group(name.to_owned()));
    assert_eq!(owners, [group("etl"), group("user:alice")], "one without groups is its own");
    bench.alter("user", shared_by(SharedBy::User)).await;
    bench.start_as("s-3", by("alice"), link("t_1", "rp_1", "uc_1")).await.unwrap();
    assert!(slots(&bench).await.iter().all(|slot| slot.owner == user("alice")));
    bench.alter("session", shared_by(SharedBy::Session)).await;
    let error = match bench.start_as("s-4", by("alice"), link("t_1", "rp_1", "uc_1")).await {
        Err(Error::Refused(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!((error.sqlstate(), error.detail.is_some(), error.hint.is_some()), ("55000", true, true), "{error}");
    assert_eq!(slots(&bench).await, []);
}

pub async fn a_plan_knows_what_waiting_users_hold(bench: Bench) {
    let bench = founded(bench, SharedBy::User).await;
    assert_eq!(added(scale(&bench, adding(&bench, vec![of_user("ann", 1)]).await).await), (1, None));
    bench.alter("session", shared_by(SharedBy::Session)).await;
    let key = DemandKey {
        user: Some("ann".to_owned()),
        session: Some("s-1".to_owned()),
        ..DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "IDE")
    };
    let demand = vec![WaitingSessions { key, sessions: 1, waited_ms: 0 }];
    let report = DemandReport { proxy: "p-1".to_owned(), seq: 1, lease_ms: 1_000_000, demand };
    assert!(bench.store.snapshot().await.unwrap().ledger.scope(&ScopeKey::user("ann")).is_none());
    bench.store.record_demand(&report).await.unwrap();
    let ledger = bench.store.snapshot().await.unwrap().ledger;
    assert!([ScopeKey::user("ann"), ScopeKey::creator("IDE")].iter().all(|key| ledger.scope(key).is_some()));
}

pub async fn one_call_adds_the_engines_of_all_owners(bench: Bench) {
    let bench = founded(bench, SharedBy::User).await;
    let names = ["ann", "bob", "carol", "dave"];
    // The broken variant: a call for each owner of one plan. The first one moves the link, so one owner is served for each plan.
    let mut calls = Vec::new();
    for name in names {
        calls.push(adding(&bench, vec![of_user(name, 1)]).await);
    }
    let mut results = Vec::new();
    for call in calls {
        results.push(scale(&bench, call).await);
    }
    assert_eq!(added(results.remove(0)), (1, None));
    for result in results {
        refused(result);
    }
    assert_eq!(slots(&bench).await.len(), 1, "one owner of four");
    let rest = names[1..].iter().map(|name| of_user(name, 1)).collect();
    assert_eq!(added(scale(&bench, adding(&bench, rest).await).await), (3, None));
    let owners: Vec<Option<Owner>> = slots(&bench).await.into_iter().map(|slot| slot.owner).collect();
    assert_eq!(owners, names.map(user));
}
