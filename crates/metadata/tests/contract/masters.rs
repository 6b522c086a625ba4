//! Cases of the epoch and of the writes that it fences.

use std::time::Duration;

use metadata::{Error, QuotaScope, StoreErrorKind};
use model::alteration::{AlterationProgress, Outcome};
use model::number::{Epoch, Generation};
use model::observation::Publication;
use model::slot::{Renewal, Replacement};

use super::bench::{Bench, create_unit, id, memory};

pub async fn raising_again_by_the_same_holder_is_a_success(bench: Bench) {
    let store = &bench.store;
    assert_eq!(store.master().await.unwrap().epoch, Epoch(0));
    let first = store.raise_epoch(Epoch(0), "lock-1/abc").await.unwrap();
    assert_eq!((first.epoch, first.holder.as_str()), (Epoch(1), "lock-1/abc"));
    assert!(first.since_ms > 0);
    assert_eq!(store.raise_epoch(Epoch(0), "lock-1/abc").await.unwrap(), first);
    let error = store.raise_epoch(Epoch(0), "lock-2/def").await.unwrap_err();
    let Error::Deposed(current) = error else { panic!("{error}") };
    assert_eq!(*current, first);
    // A future epoch raises nothing.
    assert_eq!(store.raise_epoch(Epoch(5), "lock-2/def").await.unwrap_err().kind(), StoreErrorKind::Deposed);
    assert_eq!(store.raise_epoch(Epoch(1), "lock-2/def").await.unwrap().epoch, Epoch(2));
}

/// An agent of version 0.1.0 that is still there after the migration writes pools and tenants without their scopes.
pub async fn a_new_master_has_the_scopes_that_an_earlier_agent_left_out(bench: Bench) {
    let bench = bench.founded(1).await;
    let store = &bench.store;
    store.raise_epoch(Epoch(0), "one").await.unwrap();
    let before = store.quota_scopes().await.unwrap();
    assert_eq!(before.len(), 2, "a pool and a tenant on it: {before:?}");
    for kind in ["3", "4", "3 OR kind = 4"] {
        bench.raw(&format!("DELETE FROM quota_scope WHERE kind = {kind}")).await;
        let epoch = store.master().await.unwrap().epoch;
        store.raise_epoch(epoch, &format!("holder of {}", epoch.next())).await.unwrap();
        let after = store.quota_scopes().await.unwrap();
        let limits = |scopes: &[QuotaScope]| scopes.iter().map(|it| (it.key.clone(), it.scope)).collect::<Vec<_>>();
        assert_eq!(limits(&after), limits(&before), "{kind}");
    }
}

pub async fn every_write_of_a_deposed_master_is_refused(bench: Bench) {
    let bench = bench.founded(1).await;
    let store = &bench.store;
    store.raise_epoch(Epoch(0), "one").await.unwrap();
    let committed = bench.try_alter("a-1", memory("uc_1", "2G")).await.unwrap().record;
    store.raise_epoch(Epoch(1), "two").await.unwrap();
    let before = store.overview(None).await.unwrap();
    let slot = before.snapshot.slots[0].clone();
    let renewal = Renewal {
        slot: slot.key.clone(),
        observed: slot.incarnation,
        failures: 1,
        replacement: Replacement::StandIn,
        condemn: None,
        ends: None,
    };
    let report = Publication { waits_for: Some("nothing".to_owned()), complete: true, ..Publication::default() };
    for epoch in [Epoch(1), Epoch(3), Epoch(0)] {
        let refusals = [
            store.finish(epoch, &id("a-1"), committed.generation).await.unwrap_err(),
            store.stalled(epoch, &id("a-1"), Duration::ZERO, "late").await.unwrap_err(),
            store.superseded(epoch, &id("a-1")).await.unwrap_err(),
            store.publish(epoch, &report).await.unwrap_err(),
            store.new_incarnation(epoch, &renewal).await.unwrap_err(),
            store.new_incarnations(epoch, &[renewal.clone(), renewal.clone()]).await.unwrap_err(),
        ];
        for error in refusals {
            let Error::Deposed(current) = error else { panic!("{error}") };
            assert_eq!((current.epoch, current.holder.as_str()), (Epoch(2), "two"));
        }
    }
    let mut after = store.overview(None).await.unwrap();
    after.snapshot.now_ms = before.snapshot.now_ms;
    assert_eq!(after, before);
    // Settling needs no epoch.
    assert_eq!(store.abort(&super::bench::abort_of("a-9")).await.unwrap().outcome, Outcome::Aborted);
}

pub async fn a_complete_report_keeps_its_parts_and_refuses_late_ones(bench: Bench) {
    let bench = bench.founded(3).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let names = bench.present().await;
    let rows = |of: &[usize]| {
        let row = |at: &usize| super::engines::seen(&names[*at], model::engine_state::Phase::Running);
        of.iter().map(row).collect::<Vec<_>>()
    };
    let shown = || async {
        let observed = store.overview(None).await.unwrap().observed;
        names.iter().map(|name| observed.iter().any(|row| row.engine.name == *name)).collect::<Vec<_>>()
    };
    let last = || async { store.master().await.unwrap().last_tick_ms };
    store.publish(epoch, &Publication { engines: rows(&[1]), ..Publication::default() }).await.unwrap();
    let before_ms = last().await;
    let part =
        Publication { engines: rows(&[0]), part: true, after_tick_ms: Some(before_ms), ..Publication::default() };
    store.publish(epoch, &part).await.unwrap();
    assert_eq!((shown().await, last().await), (vec![true, true, false], before_ms), "the tick goes on");
    let rest = Publication {
        engines: rows(&[2]),
        kept: vec![names[0].clone()],
        complete: true,
        after_tick_ms: Some(before_ms),
        ..Publication::default()
    };
    store.publish(epoch, &rest).await.unwrap();
    assert_eq!(shown().await, [true, false, true]);
    let late = Publication { engines: rows(&[1]), ..part };
    assert_eq!(store.publish(epoch, &late).await.unwrap_err().kind(), StoreErrorKind::Conflict);
    assert_eq!(shown().await, [true, false, true]);
}

pub async fn a_late_report_within_its_epoch_is_refused(bench: Bench) {
    let bench = bench.founded(1).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let engine = store.snapshot().await.unwrap().slots[0].engine();
    let seen = |reason: &str| model::observation::ObservedEngine {
        reason: Some(reason.to_owned()),
        ..super::engines::seen(&engine, model::engine_state::Phase::Running)
    };
    let report = |reason: &str, before_ms: i64| Publication {
        engines: vec![seen(reason)],
        after_tick_ms: Some(before_ms),
        waits_for: Some(reason.to_owned()),
        ..Publication::default()
    };
    let last = || async { store.master().await.unwrap().last_tick_ms };
    let first = report("is being started", last().await);
    store.publish(epoch, &first).await.unwrap();
    let second = report("serves", last().await);
    // In the middle of the tick: neither its end, nor what it waits for.
    let before = store.master().await.unwrap();
    store.publish(epoch, &Publication { part: true, ..Publication::default() }).await.unwrap();
    assert_eq!(store.master().await.unwrap(), before);
    store.publish(epoch, &second).await.unwrap();
    for late in [&first, &second] {
        assert_eq!(store.publish(epoch, late).await.unwrap_err().kind(), StoreErrorKind::Conflict);
    }
    let overview = store.overview(None).await.unwrap();
    assert_eq!(overview.observed.iter().map(|row| row.engine.reason.as_deref()).collect::<Vec<_>>(), [Some("serves")]);
    assert_eq!(overview.snapshot.master.waits_for.as_deref(), Some("serves"));
    // Also in quick succession.
    for _ in 0..5 {
        store.publish(epoch, &report("serves", last().await)).await.unwrap();
    }
}

pub async fn an_older_plan_finishes_no_alteration(bench: Bench) {
    let bench = bench.founded(1).await;
    let epoch = bench.epoch().await;
    let record = bench.try_alter("a-1", memory("uc_1", "2G")).await.unwrap().record;
    let store = &bench.store;
    let early = Generation(record.generation.get() - 1);
    assert_eq!(store.finish(epoch, &record.id, early).await.unwrap_err().kind(), StoreErrorKind::Conflict);
    assert_eq!(store.snapshot().await.unwrap().alterations, std::slice::from_ref(&record));
    assert_eq!(store.finish(epoch, &record.id, record.generation).await.unwrap(), AlterationProgress::Converged);
    let finished = store.outcome(&record.id).await.unwrap().unwrap();
    assert!(finished.finished_at_ms.unwrap() >= finished.decided_at_ms);
    // A repeat, and an older plan, change nothing.
    assert_eq!(store.finish(epoch, &record.id, early).await.unwrap(), AlterationProgress::Converged);
    assert_eq!(store.stalled(epoch, &record.id, Duration::ZERO, "late").await.unwrap(), AlterationProgress::Converged);
    assert_eq!(store.outcome(&record.id).await.unwrap().unwrap(), finished);
    assert!(store.snapshot().await.unwrap().alterations.is_empty());
    assert_eq!(store.finish(epoch, &id("a-9"), early).await.unwrap_err().kind(), StoreErrorKind::Conflict);
    store.abort(&super::bench::abort_of("a-8")).await.unwrap();
    assert_eq!(store.finish(epoch, &id("a-8"), record.generation).await.unwrap_err().kind(), StoreErrorKind::Conflict);
}

pub async fn a_deadline_is_counted_by_the_database(bench: Bench) {
    let record = bench.try_alter("a-1", create_unit("uc_1", 0, 3)).await.unwrap().record;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let hour = Duration::from_hours(1);
    // The clock of this process does not count.
    bench.clock.advance(hour * 2);
    assert_eq!(store.stalled(epoch, &record.id, hour, "quota").await.unwrap(), AlterationProgress::Converging);
    bench.raw(&format!("UPDATE alteration SET decided_at_ms = decided_at_ms - {}", hour.as_millis())).await;
    assert_eq!(store.stalled(epoch, &record.id, hour, "quota").await.unwrap(), AlterationProgress::Stalled);
    let stalled = store.outcome(&record.id).await.unwrap().unwrap();
    assert_eq!((stalled.progress, stalled.reason.as_deref()), (Some(AlterationProgress::Stalled), Some("quota")));
    assert_eq!(store.snapshot().await.unwrap().alterations, [stalled], "reconciliation goes on");
    // It blocks no other alteration any more, and may still converge.
    let other = bench.try_alter("a-2", create_unit("uc_2", 0, 3)).await.unwrap().record;
    assert_eq!(store.finish(epoch, &record.id, other.generation).await.unwrap(), AlterationProgress::Converged);
}

pub async fn a_newer_alteration_supersedes_a_stalled_one(bench: Bench) {
    let (store, epoch) = (&bench.store, bench.epoch().await);
    bench.try_alter("a-1", create_unit("uc_1", 0, 3)).await.unwrap();
    assert_eq!(store.superseded(epoch, &id("a-1")).await.unwrap_err().kind(), StoreErrorKind::Conflict);
    store.stalled(epoch, &id("a-1"), Duration::ZERO, "quota").await.unwrap();
    bench.alter("a-2", create_unit("uc_2", 0, 3)).await;
    assert_eq!(store.superseded(epoch, &id("a-1")).await.unwrap_err().kind(), StoreErrorKind::Conflict);
    assert_eq!(store.snapshot().await.unwrap().alterations.len(), 1, "another object's alteration changes nothing");
    bench.try_alter("a-3", memory("uc_1", "2G")).await.unwrap();
    let open = store.snapshot().await.unwrap().alterations;
    assert_eq!(open.iter().map(|alteration| alteration.id.clone()).collect::<Vec<_>>(), [id("a-3")]);
    assert_eq!(store.superseded(epoch, &id("a-1")).await.unwrap(), AlterationProgress::Superseded);
    assert_eq!(store.outcome(&id("a-1")).await.unwrap().unwrap().progress, Some(AlterationProgress::Superseded));
    let order: Vec<_> = store.alterations(2).await.unwrap().into_iter().map(|alteration| alteration.id).collect();
    assert_eq!(order, [id("a-3"), id("a-2")], "newest first, no more than asked for");
}

pub async fn a_new_incarnation_needs_the_one_observed(bench: Bench) {
    let bench = bench.founded(1).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let slot = store.snapshot().await.unwrap().slots[0].clone();
    bench.restart("r-1", &slot.engine(), true).await.unwrap();
    let stale = Renewal {
        slot: slot.key.clone(),
        observed: slot.incarnation,
        failures: 1,
        replacement: Replacement::StandIn,
        condemn: None,
        ends: None,
    };
    assert_eq!(store.new_incarnation(epoch, &stale).await.unwrap_err().kind(), StoreErrorKind::Conflict);
    let forced = store.snapshot().await.unwrap().slots[0].clone();
    let renewal = Renewal {
        slot: slot.key.clone(),
        observed: forced.incarnation,
        failures: 4,
        replacement: Replacement::StandIn,
        condemn: None,
        ends: None,
    };
    let incarnation = store.new_incarnation(epoch, &renewal).await.unwrap();
    let now = store.snapshot().await.unwrap();
    assert_eq!(
        (now.slots[0].incarnation, now.slots[0].failures, now.slots[0].replacement),
        (incarnation, 4, Replacement::StandIn)
    );
    assert_eq!(now.catalog.generation.get(), incarnation.get());
    assert!(now.engines.iter().any(|engine| engine.name == now.slots[0].engine() && engine.incarnation == incarnation));
    // A deleted slot gets no incarnation; a renewal never inserts.
    let patch = model::change::UnitPatch { min_engines: Some(0), ..Default::default() };
    bench.alter("a-1", super::bench::change_unit("uc_1", patch)).await;
    let gone = Renewal {
        slot: slot.key.clone(),
        observed: incarnation,
        failures: 0,
        replacement: Replacement::StandIn,
        condemn: None,
        ends: None,
    };
    assert_eq!(store.new_incarnation(epoch, &gone).await.unwrap_err().kind(), StoreErrorKind::Conflict);
    assert!(store.snapshot().await.unwrap().slots.is_empty());
}

pub async fn stale_renewals_fail_without_affecting_the_batch(bench: Bench) {
    let bench = bench.founded(3).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let before = store.snapshot().await.unwrap();
    let renewal = |at: usize, failures: u32| {
        let slot = &before.slots[at];
        Renewal {
            slot: slot.key.clone(),
            observed: slot.incarnation,
            failures,
            replacement: if failures > 5 { Replacement::InPlace } else { Replacement::StandIn },
            condemn: None,
            ends: None,
        }
    };
    // One of them changed before the call, one is listed twice, and one never existed.
    bench.restart("r-1", &before.slots[1].engine(), true).await.unwrap();
    let never = Renewal { slot: model::slot::SlotKey { ordinal: 99, ..before.slots[0].key.clone() }, ..renewal(0, 0) };
    let renewals = [renewal(2, 7), renewal(1, 1), renewal(0, 2), never, renewal(0, 5)];
    let drawn = store.new_incarnations(epoch, &renewals).await.unwrap();
    let is_drawn: Vec<bool> = drawn.iter().map(Result::is_ok).collect();
    assert_eq!(is_drawn, [true, false, true, false, false], "{drawn:?}");
    assert!(drawn[3].as_ref().unwrap_err().contains("is gone"), "{drawn:?}");
    let after = store.snapshot().await.unwrap();
    let states: Vec<_> = after.slots.iter().map(|slot| (slot.incarnation, slot.failures, slot.replacement)).collect();
    let (first, last) = (drawn[2].clone().unwrap(), drawn[0].clone().unwrap());
    assert_eq!([states[0], states[2]], [(first, 2, Replacement::StandIn), (last, 7, Replacement::InPlace)]);
    assert_eq!(
        (states[1].0 > before.slots[1].incarnation, states[1].2),
        (true, Replacement::Force),
        "the restart stands"
    );
    assert_ne!(first, last);
    assert!(after.catalog.generation.get() >= first.get().max(last.get()));
    for slot in &after.slots {
        let engine = after.engines.iter().find(|engine| engine.name == slot.engine()).unwrap();
        assert_eq!((engine.incarnation, &engine.slot), (slot.incarnation, &slot.key));
    }
    let keys = |of: &model::snapshot::Snapshot| {
        of.slots.iter().map(|slot| (slot.key.clone(), slot.origin)).collect::<Vec<_>>()
    };
    assert_eq!(keys(&after), keys(&before));
    // A call without a valid renewal changes nothing.
    let refused = store.new_incarnations(epoch, &renewals).await.unwrap();
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(store.snapshot().await.unwrap().slots, after.slots);
    assert!(store.new_incarnations(epoch, &[]).await.unwrap().is_empty());
}

pub async fn a_complete_report_may_keep_more_rows_than_a_report_may_write(bench: Bench) {
    let bench = bench.founded(3).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let names = bench.present().await;
    let engines = names.iter().map(|name| super::engines::seen(name, model::engine_state::Phase::Running)).collect();
    store.publish(epoch, &Publication { engines, ..Publication::default() }).await.unwrap();
    let other = |at: usize| model::EngineName::new(format!("other-{at}")).unwrap();
    let kept = |count: usize| names.iter().take(2).cloned().chain((0..count).map(other)).collect::<Vec<_>>();
    let shown = || async { store.overview(None).await.unwrap().observed.len() };
    for (count, left) in [(metadata::MAX_KEPT, 3), (metadata::MAX_REPORT, 2)] {
        let report = Publication { kept: kept(count), complete: true, ..Publication::default() };
        store.publish(epoch, &report).await.unwrap();
        assert_eq!(shown().await, left, "{count} are kept");
    }
}
