//! Cases of concurrent agents and masters.

use std::collections::BTreeSet;

use metadata::{EngineAnswer, Error, RequestEffect, StoreErrorKind};
use model::alteration::{AlterationProgress, Outcome};
use model::number::{Epoch, Generation};
use model::snapshot::Snapshot;

use super::bench::{Bench, abort_of, change_tenant, change_unit, commit, create_unit, id, properties};

/// The number of rounds of a race.
const ROUNDS: usize = 12;

pub async fn commit_and_abort_race_for_one_row(bench: Bench) {
    let (mut committed, mut aborted) = (0, 0);
    for round in 0..ROUNDS {
        let name = format!("a-{round}");
        let request = commit(&name, create_unit(&format!("uc_{round}"), 0, 1), Some(Generation(0)), bench.soon());
        let (one, other) = (bench.store.clone(), bench.store.clone());
        let abort = abort_of(&name);
        let committing = tokio::spawn(async move { one.commit(&request).await });
        // The abort starts at a different time in each round.
        for _ in 0..round * 40 {
            tokio::task::yield_now().await;
        }
        let aborting = tokio::spawn(async move { other.abort(&abort).await });
        let (commit, abort) = (committing.await.unwrap(), aborting.await.unwrap().unwrap());
        let record = bench.store.outcome(&id(&name)).await.unwrap().unwrap();
        assert_eq!(abort, record);
        let units = bench.store.catalog().await.unwrap().units.len();
        match (commit, record.outcome) {
            (Ok(won), Outcome::Committed) => {
                assert_eq!(won.record, record);
                committed += 1;
                bench.store.finish(Epoch(0), &id(&name), record.generation).await.unwrap();
            }
            (Err(Error::Aborted(lost)), Outcome::Aborted) => {
                assert_eq!(*lost, record);
                aborted += 1;
            }
            (commit, outcome) => panic!("{commit:?} though {outcome:?}"),
        }
        assert_eq!(units, committed, "an aborted alteration changes nothing");
    }
    println!("contract: races won by commit={committed} abort={aborted}");
    assert_eq!(committed + aborted, ROUNDS);
}

pub async fn two_commits_from_one_base_lose_no_update(bench: Bench) {
    bench.alter("a-0", create_unit("uc_1", 0, 1)).await;
    for round in 0..ROUNDS {
        let keys = [format!("left{round}"), format!("right{round}")];
        let base = bench.base(&properties("uc_1", "k", "v")).await;
        let tasks: Vec<_> = keys
            .iter()
            .map(|key| {
                let request = commit(key, properties("uc_1", key, "v"), Some(base), bench.soon());
                let store = bench.store.clone();
                tokio::spawn(async move { store.commit(&request).await })
            })
            .collect();
        let mut won = Vec::new();
        for (key, task) in keys.iter().zip(tasks) {
            match task.await.unwrap() {
                Ok(committed) => won.push((key, committed.record)),
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Conflict, "{error}"),
            }
        }
        assert_eq!(won.len(), 1, "one alteration is in flight at most");
        let (key, record) = won.remove(0);
        bench.store.finish(Epoch(0), &record.id, record.generation).await.unwrap();
        let catalog = bench.store.catalog().await.unwrap();
        let properties = &catalog.units.values().next().unwrap().spec.properties;
        assert_eq!(properties.len(), round + 1, "no update is lost");
        assert!(properties.contains_key(key));
    }
}

fn is_derived(snapshot: &Snapshot) {
    let Snapshot { catalog, slots, engines, alterations, .. } = snapshot;
    let follows = model::desired::derive(catalog, catalog, slots, &model::configuration::Defaults::default());
    assert_eq!(follows, model::desired::SlotChanges::default(), "the slots follow from the catalog in every reading");
    let issued: BTreeSet<_> = engines.iter().map(|engine| &engine.name).collect();
    assert!(slots.iter().all(|slot| issued.contains(&slot.engine())), "each slot has an issued name");
    let converging =
        alterations.iter().filter(|alteration| alteration.progress == Some(AlterationProgress::Converging)).count();
    assert!(converging <= 1, "one alteration is in flight at most");
    assert!(alterations.iter().all(|alteration| alteration.generation <= catalog.generation));
}

pub async fn concurrent_requests_take_effect_once_and_never_pass_max(bench: Bench) {
    let bench = bench.founded(1).await;
    // The same request many times, and many requests.
    let repeats = (0..4).map(|_| "same".to_owned());
    let tasks: Vec<_> = repeats
        .chain((0..4).map(|at| format!("other-{at}")))
        .map(|name| {
            let bench = bench.clone();
            tokio::spawn(async move { (name.clone(), bench.start(&name).await) })
        })
        .collect();
    let mut engines = BTreeSet::new();
    let mut same = BTreeSet::new();
    for task in tasks {
        match task.await.unwrap() {
            (name, Ok(answer)) => {
                assert_eq!(answer.effect, RequestEffect::Started);
                if name == "same" {
                    same.insert(answer.engine.clone());
                }
                engines.insert(answer.engine);
            }
            (_, Err(error)) => assert_eq!(error.user_error().sqlstate(), "53400", "{error}"),
        }
    }
    assert!(same.len() <= 1, "a request takes effect once");
    assert_eq!(engines.len(), 2, "MAX is 3 and one was there");
    let slots = bench.store.snapshot().await.unwrap().slots;
    assert_eq!(slots.iter().map(|slot| slot.key.ordinal).collect::<Vec<_>>(), [0, 1, 2]);

    // All at once, and a reader that never sees a partial commit.
    let reading = {
        let store = bench.store.clone();
        tokio::spawn(async move {
            for _ in 0..30 {
                is_derived(&store.snapshot().await.unwrap());
            }
        })
    };
    let altering = {
        let bench = bench.clone();
        tokio::spawn(async move {
            for round in 0..6 {
                let uses: &[&str] = if round % 2 == 0 { &[] } else { &["rp_1"] };
                bench.alter(&format!("t-{round}"), change_tenant("t_1", uses)).await;
                let patch = model::change::UnitPatch { min_engines: Some(round % 3), ..Default::default() };
                bench.alter(&format!("u-{round}"), change_unit("uc_1", patch)).await;
            }
        })
    };
    let asking: Vec<_> = (0..3)
        .map(|worker| {
            let bench = bench.clone();
            tokio::spawn(async move {
                for round in 0..6 {
                    let done_or_refused = |outcome: Result<EngineAnswer, Error>| {
                        if let Err(error) = outcome {
                            assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
                        }
                    };
                    let started = bench.start(&format!("w-{worker}-{round}")).await;
                    if let Ok(answer) = &started {
                        let name = &answer.engine;
                        done_or_refused(bench.restart(&format!("r-{worker}-{round}"), name, false).await);
                        done_or_refused(bench.stop(&format!("x-{worker}-{round}"), name).await);
                    }
                    done_or_refused(started);
                }
            })
        })
        .collect();
    reading.await.unwrap();
    altering.await.unwrap();
    for task in asking {
        task.await.unwrap();
    }
    let snapshot = bench.store.snapshot().await.unwrap();
    is_derived(&snapshot);
    let wanted: BTreeSet<_> = snapshot.slots.iter().map(|slot| &slot.key).collect();
    for engine in &snapshot.engines {
        let stands = wanted.contains(&engine.slot) || engine.end_reason.is_some();
        assert!(stands, "engine {} has neither a slot nor an end", engine.name);
    }
}

pub async fn two_masters_raise_the_epoch_and_one_wins(bench: Bench) {
    for round in 0..ROUNDS as i64 {
        let tasks: Vec<_> = ["left", "right", "third"]
            .into_iter()
            .map(|holder| {
                let store = bench.store.clone();
                tokio::spawn(async move { (holder, store.raise_epoch(Epoch(round), holder).await) })
            })
            .collect();
        let mut won = Vec::new();
        for task in tasks {
            match task.await.unwrap() {
                (holder, Ok(record)) => won.push((holder, record)),
                (_, Err(Error::Deposed(_))) => {}
                (holder, Err(error)) => panic!("{holder}: {error}"),
            }
        }
        assert_eq!(won.len(), 1, "one master wins");
        let master = bench.store.master().await.unwrap();
        assert_eq!((master.epoch, master.holder.as_str()), (Epoch(round + 1), won[0].0));
        assert_eq!(master, won[0].1);
    }
}
