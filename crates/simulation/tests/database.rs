//! The model of the database decides like the real store: the same random calls, on SQLite.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metadata::{CommitRequest, Store, StoreSettings};
use model::alteration::{RequestId, Source};
use model::change::{Change, Rules};
use model::clock::{Clock as _, ManualClock};
use model::demand::DemandKey;
use model::demand_report::{DemandReport, WaitingSessions};
use model::end::EndWord;
use model::ledger::{ScopeKey, ScopeKind};
use model::number::{Epoch, Generation, Incarnation};
use model::owner::SharedBy;
use model::resource::Component;
use model::scaling::{LinkScale, LinkScaled, ScaleRequest, SlotAddition, SlotRemoval, SlotsSeen};
use model::sharing::Sharer;
use model::slot::{Link, Origin, Replacement, Slot, SlotKey, StartedFor};
use planner::{DesiredState, Limits};
use simulation::database::{Database, Statement};
use simulation::event::Scripted;
use simulation::rng::Rng;
use simulation::script;
use tokio::runtime::Builder;

const CALLS: usize = 150;
const TTL_MS: i64 = 60_000;

/// Both databases.
struct Pair {
    store: Store,
    model: Database,
    clock: Arc<ManualClock>,
    epoch: Epoch,
    statements: usize,
}

impl Pair {
    async fn new(settings: &StoreSettings) -> Self {
        Store::migrate(settings).await.unwrap();
        let clock = ManualClock::at(1_000_000);
        let store = Store::open(settings, Rules::default(), clock.clone()).await.unwrap();
        let desired = DesiredState { limits: Limits::default(), ..DesiredState::default() };
        let mut model = Database::new(desired, Rules::default(), None);
        let epoch = store.raise_epoch(store.master().await.unwrap().epoch, "master").await.unwrap().epoch;
        while model.master().epoch < epoch {
            model.raise_epoch("master");
        }
        Self { store, model, clock, epoch, statements: 0 }
    }

    async fn alter(&mut self, change: &Change) {
        self.statements += 1;
        let catalog = self.store.catalog().await.unwrap();
        let found = model::change::Object::find(&catalog, &change.object()).unwrap();
        let base = Some(found.map_or(Generation(0), |(_, generation)| generation));
        let commit = CommitRequest {
            id: RequestId::new(format!("statement-{}", self.statements)).unwrap(),
            statement: "ALTER".to_owned(),
            change: change.clone(),
            base,
            requested_by: "admin".to_owned(),
            source: Source::default(),
            requested_at_ms: 1,
            agent: "agent".to_owned(),
            replacement: Replacement::StandIn,
            grace: Duration::from_mins(30),
            deadline: self.clock.boottime() + Duration::from_mins(10),
        };
        let stored = self.store.commit(&commit).await;
        let modelled = self.model.run(&Statement::Alter(Box::new(change.clone()), Replacement::StandIn));
        assert_eq!(stored.is_ok(), modelled.is_ok(), "{change:?}: {stored:?}, {modelled:?}");
    }

    /// The same call with the incarnations of each.
    async fn scale(
        &mut self,
        epoch: Epoch,
        link: &Link,
        add: &SlotAddition,
        remove: &[(SlotKey, bool)],
        is_stale: bool,
    ) {
        let call = |slots: &[Slot]| {
            let of_link: Vec<&Slot> = slots.iter().filter(|slot| slot.key.link() == *link).collect();
            let mut seen = SlotsSeen::of(of_link.iter().copied());
            seen.count += u32::from(is_stale);
            let incarnation = |key: &SlotKey, is_right: bool| {
                let found = of_link.iter().find(|slot| slot.key == *key).map(|slot| slot.incarnation);
                found.filter(|_| is_right).unwrap_or(Incarnation(1))
            };
            let remove = remove.iter().map(|(key, is_right)| SlotRemoval {
                slot: key.clone(),
                incarnation: incarnation(key, *is_right),
                reason: "no longer needed".to_owned(),
                word: EndWord::Unneeded,
            });
            LinkScale { link: link.clone(), seen, add: vec![add.clone()], remove: remove.collect() }
        };
        let of_store = call(&self.store.snapshot().await.unwrap().slots);
        let of_model = call(&self.model.state().slots.clone());
        let request = ScaleRequest { links: vec![of_store], reservation_ttl_ms: TTL_MS, grace_ms: 1_000 };
        let stored = match self.store.scale(epoch, &request).await.map(|mut scaled| scaled.remove(0)) {
            Ok(LinkScaled::Scaled { added, .. }) => Some(added.len()),
            Ok(LinkScaled::Refused(_)) | Err(_) => None,
        };
        // A call that adds nothing is refused by the master's context, not by the database.
        let is_only_added = of_model.remove.is_empty() && add.count > 0;
        let stored = stored.filter(|added| !(is_only_added && *added == 0));
        let modelled = self.model.scale(epoch, &of_model).ok();
        assert_eq!(stored, modelled, "{of_model:?} under epoch {epoch}");
    }

    async fn compare(&self) {
        let slots = |slots: &[Slot]| {
            slots.iter().map(|slot| (slot.key.clone(), (slot.origin, slot.owner.clone()))).collect::<BTreeMap<_, _>>()
        };
        let snapshot = self.store.snapshot().await.unwrap();
        assert_eq!(slots(&snapshot.slots), slots(&self.model.state().slots));
        let held = |ledger: &model::ledger::Ledger| -> BTreeMap<ScopeKey, Vec<i64>> {
            let held = |scope: &model::ledger::Scope| Component::ALL.map(|each| scope.counter.held.get(each)).to_vec();
            // The store inserts the rows of users before it decides.
            let is_of_user = |key: &ScopeKey| matches!(key.kind, ScopeKind::User | ScopeKind::Creator);
            let all = ledger.scopes().map(|(key, scope)| (key.clone(), held(scope)));
            all.filter(|(key, held)| !is_of_user(key) || held.iter().any(|held| *held != 0)).collect()
        };
        assert_eq!(held(&self.store.whole_ledger().await.unwrap()), held(&self.model.state().ledger));
        let demand = |demand: Vec<model::demand::Demand>| -> Vec<_> {
            demand.into_iter().filter(|one| one.waiting > 0).map(|one| (one.key, one.waiting)).collect()
        };
        assert_eq!(demand(self.store.demand().await.unwrap()), demand(self.model.demand()));
    }
}

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
