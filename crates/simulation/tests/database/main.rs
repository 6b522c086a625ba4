//! The model of the database decides like the real store: the same random calls, on SQLite.
#![allow(clippy::unwrap_used, clippy::panic)]

mod demand;
mod master;
mod pair;

use std::time::Duration;

use metadata::StoreSettings;
use model::change::Change;
use model::demand::DemandKey;
use model::demand_report::{DemandReport, WaitingSessions};
use model::number::Epoch;
use model::owner::SharedBy;
use model::scaling::SlotAddition;
use model::sharing::Sharer;
use model::slot::{Origin, SlotKey, StartedFor};
use simulation::database::Statement;
use simulation::event::Scripted;
use simulation::rng::Rng;
use simulation::script;
use tokio::runtime::Builder;

use pair::Pair;

const CALLS: usize = 150;

fn change_of(event: &Scripted) -> Option<&Change> {
    match event {
        Scripted::Statement(Statement::Alter(change, _)) => Some(change),
        _ => None,
    }
}

async fn compare_random_calls(seed: u64) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let settings = StoreSettings::sqlite(&folder.path().join("metadata.sqlite"));
    let mut pair = Pair::new(&settings).await;
    for statement in script::founding(seed).unwrap() {
        pair.alter(change_of(&statement).unwrap()).await;
    }
    let links = script::links().unwrap();
    let alterations = script::script(seed, Duration::from_hours(40)).unwrap();
    let mut alterations = alterations.iter().filter_map(|(_, event)| change_of(event));
    let (mut rng, mut scaled) = (Rng::new(seed), 0);
    for call in 0..CALLS {
        let link = &links[rng.index(links.len())];
        match rng.below(10) {
            0 => pair.alter(alterations.next().unwrap()).await,
            1 | 2 => {
                let key = DemandKey::of_tenant(link.tenant.clone(), "hive");
                let demand = vec![WaitingSessions { key, sessions: rng.below(4), waited_ms: 0 }];
                let seq = (call as u64 + 3).saturating_sub(rng.below(6)) as i64;
                let report = DemandReport { proxy: "proxy".to_owned(), seq, lease_ms: 3_600_000, demand };
                assert_eq!(pair.store.record_demand(&report).await.unwrap(), pair.model.record_demand(&report));
            }
            _ => {
                let slots = pair.model.slots_of(link).filter(|slot| slot.origin == Origin::Demand || rng.percent(5));
                let keys: Vec<SlotKey> = slots.map(|slot| slot.key.clone()).collect();
                let most = rng.index(3);
                let remove: Vec<_> = keys.into_iter().take(most).map(|key| (key, !rng.percent(5))).collect();
                let unit = pair.model.state().catalog.unit(&link.unit).unwrap();
                let is_right = rng.percent(90);
                let shared_by = if is_right { unit.shared_by } else { SharedBy::User };
                let sharer = Sharer::new(script::USERS[rng.index(3)], &[], format!("s-{call}"));
                let started_for = StartedFor { user: sharer.user.clone(), creator: "hive".to_owned() };
                let add = SlotAddition {
                    owner: sharer.owner(shared_by),
                    started_for: shared_by.charges_users().then_some(started_for),
                    count: rng.below(4) as u32,
                };
                let epoch = if rng.percent(5) { Epoch(0) } else { pair.epoch };
                let is_stale = rng.percent(10);
                pair.scale(epoch, link, &add, &remove, is_stale).await;
                scaled += 1;
            }
        }
        pair.compare().await;
    }
    pair.store.close().await;
    scaled
}

#[test]
fn the_model_of_the_database_scales_like_sqlite() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let scaled: usize = (1..=2).map(|seed| runtime.block_on(compare_random_calls(seed))).sum();
    assert!(scaled > CALLS, "only {scaled} calls were compared");
}

#[test]
fn the_model_of_the_database_records_demand_like_sqlite() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 1..=2 {
        let folder = tempfile::tempdir().unwrap();
        let settings = StoreSettings::sqlite(&folder.path().join("metadata.sqlite"));
        let done = runtime.block_on(async {
            let mut pair = Pair::new(&settings).await;
            let done = demand::compare_random_reports(&mut pair, seed).await;
            pair.store.close().await;
            done
        });
        assert!(done.iter().all(|reports| *reports > 20), "recorded, increased, late: {done:?}");
    }
}
