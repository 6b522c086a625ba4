//! The end of a run: with faults ended and constant demand, everything that is wanted is there in time, and nothing else; also
//! after a machine has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::demand::DemandKey;
use model::engine_name::EngineName;
use model::error::UserError;
use model::owner::Owner;
use model::shared::Shared;
use model::slot::{Link, Origin, Slot};

use crate::event::{Event, Scripted};
use crate::machine::{Failing, FailureEnd, MACHINES};
use crate::run::{Run, TICK};
use crate::script;
use crate::session::{Phase, Session};
use crate::state::State;

/// Back-off and leases are over after this, clocks that were shifted included.
const CALM: Duration = Duration::from_mins(16);
/// The statements that restore the catalog follow each other after this, except behind an alteration in doubt.
pub(crate) const ONE_BY_ONE: Duration = Duration::from_secs(2);
pub(crate) const IDLE: Duration = Duration::from_mins(1);
const SESSIONS: u32 = 3;
/// Sessions of each user for each link at the end.
const WAITING: [u64; 3] = [4, 1, 1];
/// An engine starts within 8 s and registers within 2 s more.
pub(crate) const SERVED: Duration = Duration::from_secs(10 + 5);
/// A failed machine is reported and its registrations have expired after this.
const REPORTED: Duration = Duration::from_secs(10);
/// `master.node_grace`.
const NODE_GRACE: Duration = Duration::from_secs(5);
/// An engine that has never registered is replaced when its machine has not been ready for so long.
const NODE_ALONE: Duration = Duration::from_secs(30);
/// The sessions of an engine notice that it has gone, and its agent registers again.
const NOTICED: Duration = Duration::from_secs(5);
/// The engine of a session is known to be idle after the next poll, and has ended after two ticks.
const OF_SESSION_ENDS: Duration = Duration::from_secs(35);
pub(crate) const COOLDOWN: Duration = Duration::from_secs(31);
/// An engine starts in this time, and a client gives up and connects again in less.
const SLOW_START: Duration = Duration::from_secs(40);
const IMPATIENT: Duration = Duration::from_secs(10);

impl Run {
    /// Ends all faults and sessions, then checks what must be so in the end.
    pub(crate) fn settle(&mut self) -> Result<(), UserError> {
        {
            let mut world = self.world.lock();
            world.end_faults();
            world.close_all();
            world.draw_lost_numbers();
        }
        for statement in script::restoring(SESSIONS, IDLE)? {
            self.world.lock().handle(Event::Scripted(statement));
            if !self.run_for(ONE_BY_ONE) {
                return Ok(());
            }
        }
        if !self.run_for(CALM) {
            return Ok(());
        }
        self.world.lock().judge_rest("without demand");
        let goes_on = self.is_patient_with_impatient_clients()?
            && self.serves_constant_demand()?
            && self.replaces_engines_of_a_failed_machine()?
            && self.keeps_engines_while_most_machines_have_failed();
        if !goes_on {
            return Ok(());
        }
        self.world.lock().close_all();
        if !self.run_for(OF_SESSION_ENDS) {
            return Ok(());
        }
        self.world.lock().judge_engines_of_sessions();
        let engines = self.world.lock().database.state().slots.len() as u32;
        if self.run_for(IDLE + Duration::from_secs(35) + COOLDOWN * engines) {
            self.world.lock().judge_rest("after the idle timeout");
            self.admits_within_a_guarantee()?;
        }
        Ok(())
    }

    /// Ends all faults: in the end there is an engine for each slot and nothing else.
    pub(crate) fn rest(&mut self) {
        self.world.lock().end_faults();
        if self.run_for(CALM) {
            self.world.lock().judge_nothing_else("without faults");
        }
    }

    /// A client that connects again every 10 s is served by an engine that starts in 40 s.
    fn is_patient_with_impatient_clients(&mut self) -> Result<bool, UserError> {
        let link = script::links()?.swap_remove(1);
        let has_engine = self.world.lock().database.slots_of(&link).next().is_some();
        if has_engine {
            return Ok(true);
        }
        let arrival = arrival(&link, (script::USERS[0], 1), IMPATIENT, true);
        self.world.lock().start_takes = Some(SLOW_START);
        self.world.lock().handle(Event::Scripted(arrival));
        let is_calm = self.run_for(SLOW_START * 2 + Duration::from_secs(30));
        let mut world = self.world.lock();
        world.start_takes = None;
        if is_calm && world.open_at_link(&link) == 0 {
            world.violated("a client that connects again every 10 s never gets an engine".to_owned());
        }
        world.close_all();
        drop(world);
        Ok(self.run_for(IDLE + Duration::from_secs(35) + COOLDOWN * 2))
    }

    /// Demand that fits is met by the fewest engines, also if the first wake-up is lost.
    fn serves_constant_demand(&mut self) -> Result<bool, UserError> {
        let links = script::links()?;
        {
            let mut world = self.world.lock();
            world.faults.wakes_lost_until = world.now + Duration::from_secs(1);
            for link in &links {
                for (user, sessions) in script::USERS.into_iter().zip(WAITING) {
                    let arrival = arrival(link, (user, sessions), Duration::from_mins(30), false);
                    world.handle(Event::Scripted(arrival));
                }
            }
        }
        if !self.run_for(SERVED + TICK) {
            return Ok(false);
        }
        Ok(self.world.lock().judge_served(&links, None))
    }

    /// The engines of a machine that fails are replaced at once; when it returns, what is left there ends. Sessions may notice before
    /// the master has its evidence: they start an engine each, at most as many as have failed.
    fn replaces_engines_of_a_failed_machine(&mut self) -> Result<bool, UserError> {
        let links = script::links()?;
        let (end, machine) = {
            let mut world = self.world.lock();
            let at = world.rng.index(MACHINES);
            let ends = [FailureEnd::Restarted, FailureEnd::Resumed];
            let end = ends[world.rng.index(ends.len())];
            let (reported_after, lasted) = (Duration::from_secs(2), Duration::from_mins(2));
            world.fail_machine(at, Failing { reported_after, lasted, end });
            (world.now + lasted, world.machines[at].name.clone())
        };
        if !self.run_for(REPORTED + NODE_GRACE + SERVED + TICK) {
            return Ok(false);
        }
        // Of an engine that was created there before the machine was reported, the machine alone is evidence.
        if self.world.lock().has_unregistered_on(&machine) && !self.run_for(NODE_ALONE) {
            return Ok(false);
        }
        if !self.world.lock().judge_served(&links, Some(&machine)) {
            return Ok(false);
        }
        // With those that sessions have started too early.
        if !self.run_until(end + NOTICED + IDLE + COOLDOWN * 3) {
            return Ok(false);
        }
        let mut world = self.world.lock();
        world.judge_nothing_else("after a machine has returned");
        Ok(world.violation.is_none())
    }

    /// While most machines seem to have failed, engines stay, and they serve again when the network is back.
    fn keeps_engines_while_most_machines_have_failed(&mut self) -> bool {
        let before: BTreeSet<EngineName> = {
            let mut world = self.world.lock();
            let (reported_after, lasted) = (Duration::from_secs(2), Duration::from_secs(40));
            let failing = Failing { reported_after, lasted, end: FailureEnd::Reconnected };
            (0..MACHINES - 1).for_each(|at| world.fail_machine(at, failing));
            world.database.state().slots.iter().map(|slot| slot.engine()).collect()
        };
        if !self.run_for(Duration::from_secs(40) + NOTICED * 2 + TICK * 2) {
            return false;
        }
        let mut world = self.world.lock();
        let after: BTreeSet<EngineName> = world.database.state().slots.iter().map(|slot| slot.engine()).collect();
        if before != after {
            let replaced = before.difference(&after).count();
            world.violated(format!("{replaced} engines were replaced while most machines had failed"));
        }
        world.judge_nothing_else("after most machines had failed");
        world.violation.is_none()
    }
}

pub(crate) fn arrival(link: &Link, (user, sessions): (&str, u64), patience: Duration, repeats: bool) -> Scripted {
    let key = DemandKey::of_tenant(link.tenant.clone(), "hive");
    let key = DemandKey { pool: Some(link.pool.clone()), unit: Some(link.unit.clone()), ..key };
    let (user, open_for) = (user.to_owned(), Duration::from_hours(100_000));
    Scripted::Arrive { proxy: 0, key, user, sessions, open_for, patience, repeats }
}

impl State {
    /// Every session ends.
    fn close_all(&mut self) {
        let ids: Vec<u64> = self.sessions.keys().copied().collect();
        for id in ids {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.repeats = false;
            }
            self.close_session(id);
            self.give_up(id);
            self.schedule(Duration::from_secs(1), Event::Close(id));
        }
    }

    /// Every session of the link ends.
    pub(crate) fn close_at_link(&mut self, link: &Link) {
        let of_link = self.sessions.iter().filter(|(_, session)| session.asked.matches(link));
        let ids: Vec<u64> = of_link.map(|(id, _)| *id).collect();
        for id in ids {
            self.close_session(id);
            self.give_up(id);
            self.schedule(Duration::from_secs(1), Event::Close(id));
        }
    }

    pub(crate) fn open_at_link(&self, link: &Link) -> u64 {
        let is_open = |phase: &Phase| matches!(phase, Phase::Open(_));
        self.sessions.values().filter(|one| is_open(&one.phase) && one.asked.matches(link)).count() as u64
    }

    /// Checks that every session of the links is open, and that each owner has the fewest engines, apart from those that have replaced
    /// the ones of a failed machine. Returns whether that is so.
    fn judge_served(&mut self, links: &[Link], failed: Option<&str>) -> bool {
        let (catalog, seats) = (self.database.state().catalog.clone(), u64::from(SESSIONS));
        for link in links {
            let sessions: Vec<&Session> = self.sessions.values().filter(|one| one.asked.matches(link)).collect();
            let waiting = sessions.len() as u64;
            let shared_by = catalog.unit(&link.unit).map(|unit| unit.shared_by).unwrap_or_default();
            let mut owners: BTreeMap<Option<Owner>, (u64, u64)> = BTreeMap::new();
            for session in sessions {
                owners.entry(session.asked.sharer.owner(shared_by)).or_default().0 += 1;
            }
            for slot in self.database.slots_of(link).filter(|slot| slot.origin != Origin::Demand) {
                owners.entry(slot.owner.clone()).or_default().1 += 1;
            }
            let needed =
                |(sessions, others): &(u64, u64)| others + sessions.saturating_sub(others * seats).div_ceil(seats);
            let expected: u64 = owners.values().map(needed).sum();
            let (open, engines) = (self.open_at_link(link), self.database.slots_of(link).count() as u64);
            if open < waiting || waiting < WAITING.iter().sum() {
                let engines = self.described(link);
                self.violated(format!("{open} of {waiting} sessions of {link:?} are served: {engines}"));
            } else if engines < expected || engines > expected + self.left_on(failed, link) {
                self.violated(format!("{engines} engines of {link:?} serve what {expected} can"));
            }
        }
        self.violation.is_none()
    }

    /// The engines of a link, for a violation.
    fn described(&self, link: &Link) -> String {
        let engines = self.database.state().engines.iter().filter(|record| record.slot.is_of(link));
        let engines = engines.map(|record| {
            let agent = self.agents.get(&record.name);
            let is_registered = self.nodes.registration(&record.name).is_some();
            let (machine, open) = agent.map_or(("none", 0), |agent| (agent.machine.as_str(), agent.sessions.len()));
            let is_retiring = agent.is_some_and(|agent| agent.is_retiring(self.now));
            format!(
                "{} registered={is_registered} machine={machine} down={} open={open} retiring={is_retiring} {:?} {:?}",
                record.name,
                self.is_down(&record.name),
                record.end_reason,
                record.ended_reason
            )
        });
        engines.collect::<Vec<_>>().join(", ")
    }

    fn has_unregistered_on(&self, machine: &str) -> bool {
        self.agents.values().any(|agent| agent.machine == machine && !agent.has_ended && !agent.has_registered)
    }

    /// How many engines of the link are left on the machine.
    fn left_on(&self, machine: Option<&str>, link: &Link) -> u64 {
        let engines = self.database.state().engines.iter().filter(|record| record.slot.is_of(link));
        let agents = engines.filter_map(|record| self.agents.get(&record.name));
        agents.filter(|agent| Some(agent.machine.as_str()) == machine && !agent.has_ended).count() as u64
    }

    /// Checks that no engine of a session is left.
    fn judge_engines_of_sessions(&mut self) {
        let of_session = |slot: &&Shared<Slot>| matches!(slot.owner, Some(Owner::Session(_)));
        let left = self.database.state().slots.iter().filter(of_session).count();
        if left > 0 {
            self.violated(format!("{left} engines have outlived their sessions"));
        }
    }

    /// The same, and that no slot follows demand.
    fn judge_rest(&mut self, when: &str) {
        let snapshot = self.database.state();
        let surplus = snapshot.slots.iter().filter(|slot| slot.origin == Origin::Demand).count();
        if surplus > 0 {
            self.violated(format!("{surplus} slots follow demand {when}"));
        }
        self.judge_nothing_else(when);
    }

    /// Checks that there is an engine for each slot and nothing else.
    fn judge_nothing_else(&mut self, when: &str) {
        let snapshot = self.database.state();
        let slots = snapshot.slots.len();
        let running = self.agents.values().filter(|agent| !agent.has_ended).count();
        let serving = self.nodes.permits.values().filter(|node| node.ready().is_some()).count();
        let (permits, drains) = (self.nodes.permits.len(), self.nodes.drains.len());
        let charged = snapshot.ledger.reservations().filter(|held| held.state.is_charged()).count();
        let open = snapshot.alterations.len() + self.alterations.len() + usize::from(self.nodes.alter.is_some());
        if [running, serving, permits, charged] != [slots; 4] || drains > 0 || open > 0 {
            self.violated(format!(
                "{when}: {slots} slots, {running} engines, {serving} registered, {permits} permits, {charged} charges, \
                 {drains} drain orders, {open} alterations"
            ));
        }
    }
}
