//! What a master does to the database, call by call on both: the plans of the real planner for the model, executed decision by
//! decision, with statements of users, external reservations, expiry and audits in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metadata::{Caller, Error, Request, RestartRequest, StartRequest, StopRequest, StoreSettings};
use model::alteration::{AlterationProgress, Source};
use model::clock::Clock as _;
use model::end::GivenUp;
use model::engine_name::EngineName;
use model::ledger::{self, Amounts, Change, End, Holder, LedgerRecord, LedgerRecorded, ScopedChange, Scopes, State};
use model::number::Epoch;
use model::observation::{CreatedEngine, EndedEngine, EngineFacts};
use model::resource::Amount;
use model::rights::{RoleLists, Subject};
use model::shared::Shared;
use model::slot::{Link, Renewal, Replacement};
use model::snapshot::EngineRecord;
use planner::{Action, Decision, Transition};
use simulation::database::Statement;
use simulation::rng::Rng;
use simulation::script;
use tokio::runtime::Builder;

use crate::change_of;
use crate::pair::Pair;

const SEEDS: u64 = 2;
const STEPS: usize = 100;
/// How many rounds of the planner follow each step at most.
const ROUNDS: usize = 3;
/// Decisions under an epoch that is over, in percent.
const DEPOSED: u64 = 4;
/// The virtual time between two steps, in the model only: all of them take less than the lease of a reservation.
const PAUSE: Duration = Duration::from_secs(20);
const HOUR_MS: i64 = 3_600_000;

/// How many calls of each kind were compared.
type Compared = BTreeMap<&'static str, usize>;

/// A row of an engine: uid, whether it was condemned and has ended, and with which word.
type Row = (Option<String>, bool, bool, Option<String>);

impl Pair {
    fn caller(user: &str) -> Caller {
        Caller { subject: Subject::new(user, Vec::new(), &RoleLists::of_admins(&[user])), source: Source::default() }
    }

    fn request(&mut self, user: &str) -> Request {
        let deadline = self.clock.boottime() + Duration::from_mins(10);
        Request { id: self.request_id(), statement: "ENGINE".to_owned(), caller: Self::caller(user), deadline }
    }

    /// START by both.
    async fn start(&mut self, link: &Link, user: &str) {
        let start = StartRequest {
            request: self.request(user),
            link: link.clone(),
            creator: "hive".to_owned(),
            nowait: false,
            reservation_ttl: Duration::from_mins(5),
        };
        let stored = self.store.start(&start).await;
        let modelled = self.model.run(&Statement::Start(link.clone(), user.to_owned()));
        assert_eq!(stored.is_ok(), modelled.is_ok(), "START {link:?}: {stored:?}, {modelled:?}");
        self.learn_names().await;
    }

    /// STOP or RESTART by both of the current engine of the slot at this place.
    async fn stop_or_restart(&mut self, place: usize, restart: Option<Replacement>) {
        let slots = &self.model.state().slots;
        let Some(slot) = slots.get(place % slots.len().max(1)).cloned() else { return };
        let (engine, pool) = (self.names[&slot.engine()].0.clone(), slot.key.pool.clone());
        let (request, grace) = (self.request("ann"), Duration::from_mins(1));
        let (stored, statement) = match restart {
            Some(replacement) => {
                let call = RestartRequest { request, pool, engine, grace, replacement };
                (self.store.restart(&call).await, Statement::Restart(place, replacement))
            }
            None => (self.store.stop(&StopRequest { request, pool, engine, grace }).await, Statement::Stop(place)),
        };
        let modelled = self.model.run(&statement);
        assert_eq!(stored.is_ok(), modelled.is_ok(), "{statement:?}: {stored:?}, {modelled:?}");
        self.learn_names().await;
    }

    /// The change with the names that the store has issued.
    fn translated(&self, scoped: &ScopedChange) -> ScopedChange {
        let name = |id: &Arc<str>| -> Arc<str> {
            let known = EngineName::new(id.to_string()).ok().and_then(|name| self.names.get(&name));
            known.map_or_else(|| Arc::clone(id), |(name, _)| name.as_str().into())
        };
        let request = |request: &Arc<ledger::Request>| {
            let mut translated = ledger::Request { id: name(&request.id), ..(**request).clone() };
            if let Holder::Engine { incarnation, .. } = &mut translated.holder
                && let Some((_, other)) =
                    EngineName::new(request.id.to_string()).ok().and_then(|id| self.names.get(&id))
            {
                *incarnation = *other;
            }
            if let Some(lineage) = self.lineages.get(&request.lineage) {
                translated.lineage = Arc::clone(lineage);
            }
            Arc::new(translated)
        };
        let change = match scoped.change.clone() {
            Change::Reserve(asked) => Change::Reserve(request(&asked)),
            Change::Enqueue { request: asked, wait_ms } => Change::Enqueue { request: request(&asked), wait_ms },
            Change::Adopt { request: asked, uid } => Change::Adopt { request: request(&asked), uid },
            Change::Transfer { from, request: asked } => {
                Change::Transfer { from: name(&from), request: request(&asked) }
            }
            Change::Admit { id } => Change::Admit { id: name(&id) },
            Change::Cancel { id } => Change::Cancel { id: name(&id) },
            Change::Expire { id } => Change::Expire { id: name(&id) },
            Change::End(end) => Change::End(End { id: name(&end.id), ..end }),
            Change::Confirm(mut confirmation) => {
                confirmation.claim.id = name(&confirmation.claim.id);
                Change::Confirm(confirmation)
            }
            Change::Renew { mut claim, lease_ms } => {
                claim.id = name(&claim.id);
                Change::Renew { claim, lease_ms }
            }
            Change::Release(mut claim) => {
                claim.id = name(&claim.id);
                Change::Release(claim)
            }
        };
        ScopedChange { scopes: scoped.scopes.clone(), change }
    }

    /// One change of a reservation by both; returns whether its chain goes on.
    async fn change(&mut self, epoch: Epoch, change: &ScopedChange) -> bool {
        let stored = self.store.ledger(epoch, &[self.translated(change)]).await;
        let modelled = self.model.change_ledger(epoch, std::slice::from_ref(change));
        let (Ok(stored), Ok(modelled)) = (&stored, &modelled) else {
            assert!(
                matches!(stored, Err(Error::Deposed { .. })) && modelled.is_err(),
                "{change:?}: {stored:?}, {modelled:?}"
            );
            return false;
        };
        // Of a refusal the kind is compared: it names amounts and reservations.
        let short = |decided: &ledger::Decided| match decided {
            Ok(reservation) => Ok((reservation.state, reservation.amounts)),
            Err(refusal) => Err(std::mem::discriminant(refusal)),
        };
        let (stored, modelled) = (&stored[0], &modelled[0]);
        assert_eq!(short(stored), short(modelled), "{change:?}: {stored:?}, {modelled:?}");
        let is_grant = matches!(change.change, Change::Reserve(_) | Change::Transfer { .. });
        modelled.as_ref().is_ok_and(|reservation| !is_grant || reservation.state.is_charged())
    }

    /// One decision by both, if it is a transaction of the database; returns whether its chain goes on.
    async fn decide(&mut self, decision: &Decision, created: &mut Option<String>, epoch: Epoch) -> bool {
        let of_store = decision.engine.as_ref().and_then(|engine| self.names.get(engine)).map(|(name, _)| name.clone());
        let numbers = (epoch, self.model.state().catalog.generation);
        let stored: Result<(), Error> = match (&decision.action, of_store) {
            // Scaling is compared by itself, no agent is there that could agree to retire, and the store has a clock of its own.
            (Action::Scale(_) | Action::Retire { .. } | Action::Finish { transition: Transition::Stalled, .. }, _) => {
                return false;
            }
            (Action::Ledger(change), _) => return self.change(epoch, change).await,
            (Action::RecordUid { uid, config }, Some(name)) => {
                let uid = uid.clone().or_else(|| created.clone()).unwrap();
                let facts = EngineFacts {
                    created: vec![CreatedEngine { name, uid, config: config.clone() }],
                    ..EngineFacts::default()
                };
                self.store.record(epoch, &facts).await.map(|recorded| {
                    assert!(recorded.other_uid.is_empty() && recorded.unknown.is_empty(), "{recorded:?}");
                })
            }
            (Action::RecordEnd { reason, class, log_tail }, Some(name)) => {
                let (reason, log_tail) = (reason.clone(), log_tail.clone());
                let ended = vec![EndedEngine { name, reason, class: Some(*class), log_tail }];
                self.store.record(epoch, &EngineFacts { ended, ..EngineFacts::default() }).await.map(drop)
            }
            (Action::DrawIncarnation { failures, replacement, ends, .. }, Some(_)) => {
                let slot = decision.slot.clone().unwrap();
                let slots = self.store.snapshot().await.unwrap().slots;
                let observed = slots.iter().find(|one| one.key == slot).unwrap().incarnation;
                let ends = ends.map(|class| GivenUp { class, reason: decision.reason.clone() });
                let (failures, replacement, condemn) = (*failures, *replacement, None);
                let renewal = Renewal { slot, observed, failures, replacement, condemn, ends };
                self.store.new_incarnation(epoch, &renewal).await.map(drop)
            }
            (Action::Finish { id, transition }, _) => {
                let plan = self.store.snapshot().await.unwrap().catalog.generation;
                let stored = match transition {
                    Transition::Converged => self.store.finish(epoch, id, plan).await,
                    _ => self.store.superseded(epoch, id).await,
                };
                stored.map(drop)
            }
            _ => return self.model.simulation_mut().apply_one(decision, created),
        };
        let modelled = self.model.apply(decision, numbers, created.as_deref());
        assert_eq!(stored.is_ok(), modelled.is_ok(), "{decision:?}: {stored:?}, {modelled:?}");
        self.learn_names().await;
        modelled.is_ok()
    }

    /// A round of the planner for the model.
    async fn tick(&mut self, rng: &mut Rng, compared: &mut Compared) -> bool {
        let plan = self.model.simulation_mut().plan();
        for chain in &plan.chains {
            let mut created = None;
            let epoch = if rng.percent(DEPOSED) { Epoch(0) } else { self.epoch };
            for decision in &chain.decisions {
                *compared.entry(decision.verb()).or_default() += 1;
                if !self.decide(decision, &mut created, epoch).await {
                    break;
                }
            }
        }
        !plan.chains.is_empty()
    }

    /// A reservation of another program, of which every second is overdue at once.
    async fn reserve(&mut self, link: &Link, number: usize, rng: &mut Rng) {
        let is_overdue = rng.percent(50);
        let id: Arc<str> = format!("external-{number}").into();
        let request = Arc::new(ledger::Request {
            id: Arc::clone(&id),
            holder: Holder::External { key: Arc::clone(&id), instance: "program".into() },
            lineage: id,
            scopes: Scopes::new(&link.tenant, &link.pool, None, None),
            amounts: Amounts::same(Amount { cpu_m: 500, memory: 1 << 20, engines: 0 }).unwrap(),
            asked: None,
            ttl_ms: Some(if is_overdue { 0 } else { HOUR_MS }),
        });
        let change = if rng.percent(70) {
            Change::Reserve(request)
        } else {
            Change::Enqueue { request, wait_ms: if is_overdue { 0 } else { HOUR_MS } }
        };
        let scopes = Scopes::new(&link.tenant, &link.pool, None, None);
        self.change(self.epoch, &ScopedChange { scopes, change }).await;
    }

    /// Expiry and audit by both.
    async fn record(&mut self, rng: &mut Rng, compared: &mut Compared) {
        let epoch = if rng.percent(DEPOSED) { Epoch(0) } else { self.epoch };
        for record in [LedgerRecord::Expiry, LedgerRecord::Audit] {
            let stored = self.store.record_ledger(epoch, &record).await;
            let modelled = self.model.record_ledger(epoch, &record);
            match (stored, modelled) {
                (Ok(LedgerRecorded::Expired(stored)), Ok(LedgerRecorded::Expired(modelled))) => {
                    let short = |all: &[Arc<ledger::Reservation>]| -> BTreeMap<Arc<str>, State> {
                        all.iter().map(|one| (Arc::clone(one.id()), one.state)).collect()
                    };
                    assert_eq!(short(&stored), short(&modelled));
                    *compared.entry("expired").or_default() += stored.len();
                }
                (Ok(LedgerRecorded::Audited(stored)), Ok(LedgerRecorded::Audited(modelled))) => {
                    assert!(stored.is_empty() && modelled.is_empty(), "{stored:?}, {modelled:?}");
                    *compared.entry("audited").or_default() += 1;
                }
                (stored, modelled) => assert!(stored.is_err() && modelled.is_err(), "{stored:?}, {modelled:?}"),
            }
        }
    }

    /// Compares engines, their reservations and open alterations.
    async fn compare_engines(&self) {
        let snapshot = self.store.snapshot().await.unwrap();
        let row = |record: &EngineRecord| -> Row {
            let word = record.ended_word.map(|word| word.to_string());
            (record.uid.clone(), record.end_reason.is_some(), record.ended_at_ms.is_some(), word)
        };
        let stored: BTreeMap<EngineName, Row> =
            snapshot.engines.iter().map(|record| (record.name.clone(), row(record))).collect();
        let modelled = self.model.state().engines.iter();
        let modelled: BTreeMap<EngineName, Row> =
            modelled.map(|record| (self.names[&record.name].0.clone(), row(record))).collect();
        assert_eq!(stored, modelled);
        let incarnations = |slots: &[Shared<model::slot::Slot>]| -> BTreeMap<_, _> {
            slots.iter().map(|slot| (slot.key.clone(), (slot.failures, slot.replacement))).collect()
        };
        assert_eq!(incarnations(&snapshot.slots), incarnations(&self.model.state().slots));
        let charged = |ledger: &ledger::Ledger, translate: &dyn Fn(&Arc<str>) -> String| -> BTreeMap<String, State> {
            let held = ledger.reservations().filter(|held| !held.state.is_ended());
            held.map(|held| (translate(held.id()), held.state)).collect()
        };
        let of_model = |id: &Arc<str>| {
            let known = EngineName::new(id.to_string()).ok().and_then(|name| self.names.get(&name));
            known.map_or_else(|| id.to_string(), |(name, _)| name.to_string())
        };
        let whole = self.store.whole_ledger().await.unwrap();
        assert_eq!(charged(&whole, &|id| id.to_string()), charged(&self.model.state().ledger, &of_model));
        let open = |records: &[model::alteration::AlterationRecord]| -> BTreeMap<String, Option<AlterationProgress>> {
            records.iter().map(|record| (record.id.to_string(), record.progress)).collect()
        };
        assert_eq!(open(&snapshot.alterations), open(&self.model.state().alterations));
    }

    /// Engines register, drain and end in the world of the model.
    fn turn_of_engines(&mut self, rng: &mut Rng) {
        let simulation = self.model.simulation_mut();
        for engine in simulation.about_to_register() {
            if rng.percent(70) {
                simulation.register(&engine);
            }
        }
        simulation.exit_drained();
        let running: Vec<String> =
            simulation.observed.instances.iter().filter(|one| one.is_alive()).map(|one| one.uid.clone()).collect();
        if rng.percent(15) && !running.is_empty() {
            simulation.end(&running[rng.index(running.len())], "exit code 1");
        }
    }
}

async fn compare_a_master(seed: u64) -> Compared {
    println!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(&StoreSettings::sqlite(&folder.path().join("metadata.sqlite"))).await;
    for statement in script::founding(seed).unwrap() {
        pair.alter(change_of(&statement).unwrap()).await;
    }
    let links = script::links().unwrap();
    let alterations = script::script(seed, Duration::from_hours(40)).unwrap();
    let mut alterations = alterations.iter().filter_map(|(_, event)| change_of(event));
    let (mut rng, mut compared) = (Rng::new(seed), Compared::new());
    let ways = [Replacement::StandIn, Replacement::InPlace, Replacement::Force];
    for step in 0..STEPS {
        let link = links[rng.index(links.len())].clone();
        match rng.below(9) {
            0 | 1 => pair.alter(alterations.next().unwrap()).await,
            2 | 3 => pair.start(&link, script::USERS[rng.index(3)]).await,
            4 => pair.stop_or_restart(rng.index(100), None).await,
            5 => pair.stop_or_restart(rng.index(100), Some(ways[rng.index(3)])).await,
            6 | 7 => pair.reserve(&link, step, &mut rng).await,
            _ => pair.record(&mut rng, &mut compared).await,
        }
        // Back-off ends.
        pair.model.set_now(PAUSE * step as u32);
        for _ in 0..ROUNDS {
            pair.turn_of_engines(&mut rng);
            if !pair.tick(&mut rng, &mut compared).await {
                break;
            }
        }
        pair.compare().await;
        pair.compare_engines().await;
    }
    pair.store.close().await;
    compared
}

#[test]
fn the_model_of_the_database_follows_a_master_like_sqlite() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut compared = Compared::new();
    for seed in 1..=SEEDS {
        for (kind, count) in runtime.block_on(compare_a_master(seed)) {
            *compared.entry(kind).or_default() += count;
        }
    }
    println!("{compared:?}");
    for kind in ["record uid", "record end", "draw incarnation", "finish alteration", "expired", "audited"] {
        assert!(compared.get(kind).is_some_and(|count| *count > 3), "{kind} was hardly compared: {compared:?}");
    }
}
