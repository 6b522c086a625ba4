//! The state of a run, and its events in the order of their time.
//!
//! The state changes only by events and by calls of the master. A call takes some milliseconds, in which the events that are
//! due happen first: so engines register, sessions open and statements commit between two calls of one tick.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use coordination::{Observation, Permit};
use futures::FutureExt as _;
use master::{InstanceCache, Settings};
use model::alteration::RequestId;
use model::change::Rules;
use model::clock::SharedClock;
use model::demand::ScalingGroup;
use model::engine_name::EngineName;
use model::in_order::InOrder;
use model::labels::{LabelMap, selector};
use model::shared::Shared;
use orchestrator::memory::Memory;
use planner::{DesiredState, EngineLoad, EngineUse};

use crate::activity::{Activity, Cause, Judge};
use crate::agent::EngineAgent;
use crate::alteration::Alteration;
use crate::clock::VirtualClock;
use crate::database::{Database, Statement};
use crate::event::{Event, Scripted};
use crate::in_effect::Faults;
use crate::machine::{Machine, machines};
use crate::mutant::Mutant;
use crate::nodes::Nodes;
use crate::rng::Rng;
use crate::session::{Asked, Proxy, Session};
use crate::shown::Shown;

/// The least time between the beginnings of two ticks.
const TICK_PAUSE: Duration = Duration::from_millis(50);
/// How often the master polls the loads of engines.
pub const STATUS_POLL: Duration = Duration::from_secs(5);
/// How old a proxy's reading of the catalog may be, in milliseconds.
pub const CATALOG_AGE_MS: u64 = 2_000;
/// The most events of one moment: more are a defect of the simulation.
const MAX_EVENTS: usize = 1_000_000;

/// The world without the master.
#[derive(Debug)]
pub struct State {
    pub now: Duration,
    pub rng: Rng,
    clock: Arc<VirtualClock>,
    pub memory: Memory,
    pub selector: LabelMap,
    pub database: Database,
    pub nodes: Nodes,
    pub agents: BTreeMap<EngineName, EngineAgent>,
    pub proxies: Vec<Proxy>,
    pub sessions: BTreeMap<u64, Session>,
    /// The alterations that are not decided, or whose COMMIT is on its way.
    pub alterations: BTreeMap<RequestId, Alteration>,
    pub machines: Vec<Machine>,
    /// The sessions that gave up a moment ago.
    pub left: VecDeque<(Duration, Asked)>,
    events: BTreeMap<(Duration, u64), Event>,
    /// The last number of a session, an event or a process.
    pub sequence: u64,
    pub faults: Faults,
    /// The instances that the master has read last.
    pub instances: InstanceCache,
    /// When loads were polled; `None`: they are to be polled now.
    pub polled_at: Option<Duration>,
    pub loads: Shared<BTreeMap<EngineName, EngineLoad>>,
    /// What the master has read last of the use of engines.
    uses: Shared<BTreeMap<EngineName, EngineUse>>,
    /// How many sessions waited for each group when the master last read the demand; `None`: that is not known.
    pub waiting_when_read: Option<BTreeMap<ScalingGroup, u64>>,
    /// How long engines take to start, if that is fixed.
    pub start_takes: Option<Duration>,
    pub mutant: Option<Mutant>,
    pub shown: Shown,
    pub judge: Judge,
    pub activity: Activity,
    pub violation: Option<String>,
    /// When the next tick begins.
    pub tick_at: Option<Duration>,
    pub last_tick: Duration,
}

/// The result of a call to the orchestrator's fake, which never waits.
pub fn ready<T>(call: impl Future<Output = T>) -> Option<T> {
    call.now_or_never()
}

impl State {
    pub fn new(seed: u64, settings: &Settings, mutant: Option<Mutant>) -> Self {
        let clock = VirtualClock::new();
        let desired = DesiredState {
            cluster: settings.cluster.clone(),
            defaults: settings.defaults.clone(),
            limits: settings.limits,
            ..DesiredState::default()
        };
        let rules = Rules { defaults: settings.defaults.clone(), ..Rules::default() };
        let mut state = Self {
            now: Duration::ZERO,
            rng: Rng::new(seed).fork(1),
            memory: Memory::new(Arc::clone(&clock) as SharedClock),
            clock,
            selector: selector(&settings.cluster),
            database: Database::new(desired, rules, mutant),
            nodes: Nodes { mutant, ..Nodes::default() },
            agents: BTreeMap::new(),
            proxies: (1..=2).map(|process| Proxy::new(process, Arc::default())).collect(),
            sessions: BTreeMap::new(),
            alterations: BTreeMap::new(),
            machines: machines(),
            left: VecDeque::new(),
            events: BTreeMap::new(),
            sequence: 1_000,
            faults: Faults::default(),
            instances: InstanceCache::default(),
            polled_at: None,
            loads: Shared::default(),
            uses: Shared::default(),
            waiting_when_read: None,
            start_takes: None,
            mutant,
            shown: Shown::default(),
            judge: Judge::default(),
            activity: Activity::default(),
            violation: None,
            tick_at: None,
            last_tick: Duration::ZERO,
        };
        state.set_machines();
        state.nodes.set_agent(0, 1);
        state.nodes.set_agent(1, 2);
        state
    }

    /// Adds an event.
    pub fn schedule(&mut self, after: Duration, event: Event) {
        self.schedule_at(self.now + after, event);
    }

    pub fn schedule_at(&mut self, at: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    /// Removes the events that are scheduled and like this.
    pub fn cancel(&mut self, is_like: impl Fn(&Event) -> bool) {
        self.events.retain(|_, event| !is_like(event));
    }

    /// Wakes the master.
    pub fn wake(&mut self) {
        if self.now >= self.faults.wakes_lost_until {
            self.tick_within(Duration::ZERO);
        }
    }

    /// The next tick begins within this time.
    pub fn tick_within(&mut self, after: Duration) {
        let at = (self.now + after).max(self.last_tick + TICK_PAUSE);
        if self.tick_at.is_none_or(|planned| at < planned) {
            self.tick_at = Some(at);
            self.schedule_at(at, Event::Tick);
        }
    }

    /// A load has changed, which the next poll shows.
    pub fn wake_when_polled(&mut self) {
        let next = self.polled_at.map_or(self.now, |at| at + STATUS_POLL).max(self.now);
        self.schedule_at(next, Event::Polled);
    }

    pub fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// The next event until then; time passes until it happens, or until then.
    pub fn next(&mut self, until: Duration) -> Option<Event> {
        let next = self.events.first_key_value().map(|(key, _)| *key).filter(|(at, _)| *at <= until);
        let now = next.map_or(until, |(at, _)| at).max(self.now);
        self.set_now(now);
        next.and_then(|key| self.events.remove(&key))
    }

    fn set_now(&mut self, now: Duration) {
        self.now = now;
        self.clock.set(now);
        self.database.set_now(now);
    }

    /// Lets time pass within a tick: the events that are due happen, except other ticks.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        let mut later = Vec::new();
        for _ in 0..MAX_EVENTS {
            match self.next(until) {
                None => break,
                Some(event @ (Event::Tick | Event::Elect)) => later.push(event),
                Some(event) => self.handle(event),
            }
        }
        for event in later {
            self.schedule(Duration::ZERO, event);
        }
    }

    /// Makes an event happen.
    pub fn handle(&mut self, event: Event) {
        self.activity.events += 1;
        match event {
            Event::Scripted(Scripted::Statement(Statement::Alter(change, replacement))) => {
                self.alter(&change, replacement);
            }
            Event::Scripted(Scripted::Statement(statement)) => return self.run_at_once(&statement),
            Event::Scripted(Scripted::Fault(fault)) => self.inject(&fault),
            Event::Scripted(arrival) => self.arrive(&arrival),
            Event::Register(engine, uid) => self.register(&engine, &uid),
            Event::Expire(engine) => {
                self.nodes.expire(&engine);
                self.wake();
            }
            Event::DrainRead(engine) => self.drain_read(&engine),
            Event::ExitIfDrained(engine) => self.exit_if_drained(&engine),
            Event::Exit(engine) => self.exit(&engine),
            Event::Retry(id) => self.retry(id),
            Event::RetryLater(id) => self.retry_later(id),
            Event::LeaveDeadline(id, version) => self.leave_deadline(id, version),
            Event::OpenAt(id, engine) => self.open_session(id, &engine),
            Event::Leave(id) => self.move_session(id),
            Event::Close(id) => self.close_session(id),
            Event::GiveUp(id) => self.give_up(id),
            Event::Report(at) => self.report(at),
            Event::Reported(report, sender) => self.record_report(&report, sender),
            Event::Answered(sender, is_recorded) => self.answered(sender, is_recorded),
            Event::Late(call) => self.arrives_late(&call),
            Event::CreatesAccepted => self.memory.refuse_creates(None),
            Event::ListThawed => {
                self.memory.thaw_lists();
                self.faults.is_frozen = false;
                self.wake();
            }
            Event::Polled => self.wake(),
            Event::CatalogRead => self.read_catalog(),
            Event::Reachable(at, is_ready) => self.report_machine(at, is_ready),
            Event::MachineReturns(at, end) => self.return_machine(at, end),
            Event::AlterCheck(id) => self.check_alteration(&id),
            Event::AlterNode(id) => self.create_alter_node(&id),
            Event::AlterCommit(id) => self.commit_alteration(&id),
            Event::AlterAbort(id) => self.abort_alteration(&id),
            Event::AgentExpires(at) => self.agent_expires(at),
            Event::Restore(backup) => self.restore(*backup),
            Event::Tick | Event::Elect => {}
        }
        while self.left.front().is_some_and(|(at, _)| *at + Duration::from_secs(2) < self.now) {
            self.left.pop_front();
        }
        self.judge(Cause::Other);
    }

    /// Runs a statement as one transaction; an alteration has no node then.
    pub fn run_at_once(&mut self, statement: &Statement) {
        self.activity.statements += u64::from(self.database.run(statement).is_ok());
        self.statement_committed();
    }

    /// Makes an event of the script happen within a call.
    pub fn happen_at_once(&mut self, event: Scripted) {
        match event {
            Scripted::Statement(statement) => self.run_at_once(&statement),
            other => self.handle(Event::Scripted(other)),
        }
    }

    /// The engine at a place among those that run.
    pub fn engine_at(&self, place: usize) -> Option<EngineName> {
        let running: Vec<&EngineName> =
            self.agents.iter().filter(|(_, agent)| !agent.has_ended).map(|(name, _)| name).collect();
        running.get(place % running.len().max(1)).map(|name| (*name).clone())
    }

    /// Polls all agents; one that does not answer has no load.
    pub fn poll(&mut self) {
        self.forget_ended_agents();
        self.take_answers(|_| true);
    }

    /// Polls the agents of engines with such permits.
    pub fn poll_some(&mut self, polls: impl Fn(&Permit) -> bool) {
        self.forget_ended_agents();
        let permits = std::mem::take(&mut self.nodes.permits);
        let mut of_agents = InOrder::new(&permits);
        self.take_answers(|engine| of_agents.get(engine).is_some_and(|node| node.content.as_ref().is_ok_and(&polls)));
        self.nodes.permits = permits;
    }

    /// Takes what these agents answer. Most loads are what they were.
    fn take_answers(&mut self, mut is_polled: impl FnMut(&EngineName) -> bool) {
        let (now, mut changed) = (self.now, Vec::new());
        let mut known = InOrder::new(self.loads.iter());
        for (engine, agent) in &mut self.agents {
            if agent.has_ended {
                agent.reported = None;
            } else if agent.has_registered && is_polled(engine) {
                agent.reported = agent.answers(now).then(|| (agent.seen(now), now));
                let load = agent.reported.map(|_| EngineLoad { sessions: agent.sessions.len() as u32, running: 0 });
                if known.get(engine) != load.as_ref() {
                    changed.push((engine.clone(), load));
                }
            }
        }
        let mut agents = InOrder::new(&self.agents);
        let is_gone = |engine: &&EngineName| agents.get(engine).is_none_or(|agent| agent.has_ended);
        let gone: Vec<EngineName> = self.loads.keys().filter(is_gone).cloned().collect();
        changed.extend(gone.into_iter().map(|engine| (engine, None)));
        for (engine, load) in changed {
            match load {
                Some(load) => drop(self.loads.insert(engine, load)),
                None => drop(self.loads.remove(&engine)),
            }
        }
    }

    fn forget_ended_agents(&mut self) {
        self.agents.retain(|engine, agent| !agent.has_ended || self.nodes.permits.contains_key(engine));
    }

    /// What the master reads of ZooKeeper.
    pub fn coordination(&self) -> Observation {
        let mut observed = self.nodes.observe();
        if self.mutant == Some(Mutant::NodeAlone) {
            observed.permits.iter_mut().filter(|node| self.is_unready(&node.engine)).for_each(|node| {
                node.registration = None;
            });
        }
        observed
    }

    /// What agents have reported, with the time that has passed since.
    pub fn uses(&mut self) -> Shared<BTreeMap<EngineName, EngineUse>> {
        let longer = |(seen, at): (EngineUse, Duration)| {
            let since = if seen.idle_for.is_zero() { Duration::ZERO } else { self.now.saturating_sub(at) };
            EngineUse { idle_for: seen.idle_for + since, ..seen }
        };
        let reported = self.agents.iter().filter_map(|(engine, agent)| Some((engine, agent.reported?)));
        let reported = reported.map(|(engine, reported)| (engine, longer(reported)));
        // Mostly they are of the same engines as the last time.
        let mut last = self.uses.iter_mut();
        let is_same = |(engine, seen): (&EngineName, EngineUse)| {
            last.next().filter(|(name, _)| *name == engine).map(|(_, of_last)| *of_last = seen).is_some()
        };
        if !reported.clone().all(is_same) || last.next().is_some() {
            let uses: BTreeMap<_, _> = reported.map(|(engine, seen)| (engine.clone(), seen)).collect();
            self.uses = uses.into();
        }
        self.uses.clone()
    }
}
