//! The store on SQLite and the model, which run the same calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metadata::{CommitRequest, Store, StoreSettings};
use model::alteration::{RequestId, Source};
use model::change::{Applied, Change, Rules};
use model::clock::{Clock as _, ManualClock};
use model::end::EndWord;
use model::engine_name::EngineName;
use model::ledger::{ScopeKey, ScopeKind, lineage_of};
use model::number::{Epoch, Generation, Incarnation};
use model::resource::Component;
use model::scaling::{LinkScale, LinkScaled, ScaleRequest, SlotAddition, SlotRemoval, SlotsSeen};
use model::shared::Shared;
use model::slot::{Link, Replacement, Slot, SlotKey};
use planner::{DesiredState, Limits};
use simulation::database::{Commit, Database};

const TTL_MS: i64 = 60_000;

/// Both databases.
pub struct Pair {
    pub store: Store,
    pub model: Database,
    pub clock: Arc<ManualClock>,
    pub epoch: Epoch,
    statements: usize,
    /// The names of engines in the store by those in the model: each draws its own numbers.
    pub names: BTreeMap<EngineName, (EngineName, Incarnation)>,
    /// The same of the lineages of reservations.
    pub lineages: BTreeMap<Arc<str>, Arc<str>>,
}

impl Pair {
    pub async fn new(settings: &StoreSettings) -> Self {
        Store::migrate(settings).await.unwrap();
        let clock = ManualClock::at(1_000_000);
        let store = Store::open(settings, Rules::default(), clock.clone()).await.unwrap();
        let desired = DesiredState { limits: Limits::default(), ..DesiredState::default() };
        let mut model = Database::new(desired, Rules::default(), None);
        let epoch = store.raise_epoch(store.master().await.unwrap().epoch, "master").await.unwrap().epoch;
        while model.master().epoch < epoch {
            model.raise_epoch("master");
        }
        Self { store, model, clock, epoch, statements: 0, names: BTreeMap::new(), lineages: BTreeMap::new() }
    }

    pub async fn alter(&mut self, change: &Change) {
        let id = self.request_id();
        let catalog = self.store.catalog().await.unwrap();
        let found = model::change::Object::find(&catalog, &change.object()).unwrap();
        let base = Some(found.map_or(Generation(0), |(_, generation)| generation));
        let commit = CommitRequest {
            id: id.clone(),
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
        let modelled = match change.apply(&self.model.state().catalog, &self.model.rules) {
            Ok(Applied::Object { base, .. }) => {
                let replacement = Replacement::StandIn;
                self.model.commit(&Commit { id: &id, change, replacement, base, after: None })
            }
            Ok(Applied::Nothing { .. }) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        assert_eq!(stored.is_ok(), modelled.is_ok(), "{change:?}: {stored:?}, {modelled:?}");
        self.learn_names().await;
    }

    /// The next id of a statement.
    pub fn request_id(&mut self) -> RequestId {
        self.statements += 1;
        RequestId::new(format!("statement-{}", self.statements)).unwrap()
    }

    /// Pairs the engines that were issued for the same slots.
    pub async fn learn_names(&mut self) {
        let stored = self.store.snapshot().await.unwrap().slots;
        for slot in &self.model.state().slots {
            let Some(same) = stored.iter().find(|one| one.key == slot.key) else { continue };
            let before = self.names.insert(slot.engine(), (same.engine(), same.incarnation));
            let is_same = before.is_none_or(|(name, _)| name == same.engine());
            assert!(is_same, "the slot {} has a new incarnation in the store only", slot.key);
            let lineage = |slot: &Shared<Slot>| lineage_of(&slot.key, slot.incarnation, Some(slot));
            self.lineages.insert(lineage(slot), lineage(same));
        }
    }

    /// The same call with the incarnations of each.
    pub async fn scale(
        &mut self,
        epoch: Epoch,
        link: &Link,
        add: &SlotAddition,
        remove: &[(SlotKey, bool)],
        is_stale: bool,
    ) {
        let call = |slots: &[Shared<Slot>]| {
            let of_link: Vec<&Shared<Slot>> = slots.iter().filter(|slot| slot.key.link() == *link).collect();
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
        self.learn_names().await;
    }

    pub async fn compare(&self) {
        let slots = |slots: &[Shared<Slot>]| {
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
