//! Reservations of real transactions: every engine has one from before its creation until it is gone.

use std::collections::BTreeSet;

use model::change::{Change, ObjectPatch, UnitPatch};
use model::ledger::{Role, ScopeKey, State};
use model::snapshot::Snapshot;
use model::{PoolName, UnitName};

use crate::cluster::{Cluster, eventually};

/// The names of engines with a reservation in this state.
fn reserved(snapshot: &Snapshot, state: State) -> BTreeSet<String> {
    let reservations = snapshot.ledger.reservations().filter(|reservation| reservation.state == state);
    reservations.map(|reservation| reservation.id().to_string()).collect()
}

/// What the pool holds, and the epoch whose master has counted its engines.
fn pool(snapshot: &Snapshot) -> (i64, i64) {
    let scope = snapshot.ledger.scope(&ScopeKey::pool(&PoolName::new("rp_1").unwrap())).unwrap();
    let Role::Pool(row) = scope.role else { panic!("{scope:?}") };
    (scope.counter.held.engines, row.counted_epoch.get())
}

#[tokio::test]
async fn every_engine_holds_a_reservation_until_it_is_gone() {
    let cluster = Cluster::founded(2).await;
    let master = cluster.master();
    cluster.start().await;
    cluster.converges().await;
    let snapshot = async || cluster.store.snapshot().await.unwrap();
    eventually("three confirmed reservations", || async { reserved(&snapshot().await, State::Used).len() == 3 }).await;
    let now = snapshot().await;
    let engines: BTreeSet<String> = now.slots.iter().map(|slot| slot.engine().to_string()).collect();
    assert_eq!(reserved(&now, State::Used), engines);
    assert_eq!(pool(&now).0, 3);
    eventually("counted engines", || async {
        let now = snapshot().await;
        pool(&now).1 == now.master.epoch.get()
    })
    .await;

    // A roll-out replaces them: in the end each has one again.
    cluster.memory_of_unit(2).await;
    cluster.converges().await;
    eventually("the reservations of the new engines", || async {
        let now = snapshot().await;
        let engines: BTreeSet<String> = now.slots.iter().map(|slot| slot.engine().to_string()).collect();
        reserved(&now, State::Used) == engines && pool(&now).0 == 3
    })
    .await;

    // The engines end, and so do their charges.
    let patch = UnitPatch { min_engines: Some(0), ..UnitPatch::default() };
    let unit = ObjectPatch::ResourceUnit(UnitName::new("uc_1").unwrap(), patch);
    let started = snapshot().await.slots.iter().find(|slot| slot.started_for.is_some()).map(|slot| slot.engine());
    cluster.stop(&started.unwrap()).await;
    cluster.alter(Change::Alter { if_exists: false, object: unit }).await;
    cluster.converges().await;
    eventually("no charge", || async {
        let now = snapshot().await;
        pool(&now).0 == i64::try_from(now.slots.len()).unwrap()
    })
    .await;
    master.shutdown().await;
}
