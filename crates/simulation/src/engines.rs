//! Engine agents: registration, seats, idle time, consent to retire, drain.
//!
//! An agent registers below a permit of its uid, opens sessions of its owner while a seat is free, and agrees to retire only if no session is
//! open or was since. After a drain order it opens none; it exits when the last session has left, at the end of the grace at the
//! latest.

use std::time::Duration;

use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::number::Generation;
use model::sharing::Sharer;
use orchestrator::memory::End;

use crate::activity::Cause;
use crate::agent::EngineAgent;
use crate::event::Event;
use crate::mutant::Mutant;
use crate::state::State;

/// How long a registration may outlive its engine.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How often an engine without a permit tries to register.
const REGISTER_RETRY: Duration = Duration::from_secs(1);

impl State {
    /// An instance was created: its agent starts.
    pub fn engine_created(
        &mut self,
        engine: &EngineName,
        (uid, machine): (&str, &str),
        generation: Generation,
        starts_after: Duration,
    ) {
        let mut agent = EngineAgent::new(uid.to_owned(), (machine.to_owned(), generation), self.now + starts_after);
        agent.is_silent = self.faults.take_silent();
        agent.is_stubborn = self.faults.take_stubborn();
        if !agent.is_silent {
            let after = starts_after + self.rng.millis(100, 2_000);
            self.schedule(after, Event::Register(engine.clone(), uid.to_owned()));
        }
        self.agents.insert(engine.clone(), agent);
        self.activity.created += 1;
    }

    /// Whether a master takes an engine that is not registered for one that has ended, which only a mutant does.
    pub fn is_taken_for_ended(&self, engine: &EngineName) -> bool {
        self.mutant == Some(Mutant::AbsenceIsEnd)
            && self.nodes.permits.get(engine).is_some_and(|node| node.answered && node.registration.is_none())
    }

    /// An agent tries to register.
    pub fn register(&mut self, engine: &EngineName, uid: &str) {
        let Some(agent) = self.agents.get(engine).filter(|agent| agent.uid == uid && !agent.has_ended) else { return };
        if agent.is_draining {
            return;
        }
        if self.is_down(engine) {
            return self.schedule(REGISTER_RETRY, Event::Register(engine.clone(), uid.to_owned()));
        }
        if self.nodes.drains.contains_key(engine) && self.mutant != Some(Mutant::DrainIsExpiry) {
            return self.drain_read(engine);
        }
        if self.nodes.registration(engine).is_some() {
            return;
        }
        if !self.nodes.register(engine, uid) {
            return self.schedule(REGISTER_RETRY, Event::Register(engine.clone(), uid.to_owned()));
        }
        self.judge_registration(engine, uid);
        let owner = self.nodes.permit(engine).and_then(|permit| permit.owner.clone());
        if let Some(agent) = self.agents.get_mut(engine) {
            agent.has_registered = true;
            agent.read_owner(owner.as_ref());
        }
        self.judge.registering.push(engine.clone());
        self.judge.registered.insert(uid.to_owned());
        self.activity.registered += 1;
        self.polled_at = None;
        self.retry_waiting();
        self.wake();
    }

    /// A session arrives at an engine; returns whether it is open.
    pub fn open_at(&mut self, session: (u64, &Sharer), engine: &EngineName) -> bool {
        let (now, mutant) = (self.now, self.mutant);
        if self.is_down(engine) {
            return false;
        }
        let is_other = self.agents.get(engine).is_some_and(|agent| agent.has_registered && !agent.serves(session.1));
        self.activity.refused_owners += u64::from(is_other);
        let seats = self.nodes.permit(engine).map(|permit| permit.sessions);
        let opens = self
            .agents
            .get_mut(engine)
            .zip(seats)
            .is_some_and(|(agent, seats)| agent.open(session, seats, now, mutant));
        if opens && let Some(agent) = self.agents.get(engine) {
            let seats = seats.flatten().map_or(usize::MAX, |seats| seats as usize);
            if agent.sessions.len() > seats {
                let open = agent.sessions.len();
                self.violated(format!("engine {engine} has {open} sessions and {seats} seats"));
            }
            self.judge_owner(engine, session.1);
        }
        opens
    }

    /// An agent reads its drain order.
    pub fn drain_read(&mut self, engine: &EngineName) {
        if self.is_down(engine) {
            return self.schedule(REGISTER_RETRY, Event::DrainRead(engine.clone()));
        }
        let Some(Ok(order)) = self.nodes.drains.get(engine).map(|node| node.content.clone()) else { return };
        let Some(agent) = self.agents.get_mut(engine).filter(|agent| !agent.has_ended && !agent.is_draining) else {
            return;
        };
        if order.uid.as_deref().is_some_and(|uid| uid != agent.uid) {
            return;
        }
        agent.is_draining = true;
        let sessions: Vec<u64> = agent.sessions.iter().copied().collect();
        let grace = Duration::from_millis(order.grace_ms.unsigned_abs());
        for session in sessions {
            let after = self.rng.millis(10, 20_000).min(grace);
            self.schedule(after, Event::Leave(session));
        }
        let after = self.rng.millis(10, 200);
        self.schedule(after, Event::ExitIfDrained(engine.clone()));
        self.schedule(grace, Event::Exit(engine.clone()));
    }

    /// A draining engine exits once it has no sessions.
    pub fn exit_if_drained(&mut self, engine: &EngineName) {
        let is_drained = self.agents.get(engine).is_some_and(|agent| agent.is_draining && agent.sessions.is_empty());
        if is_drained {
            self.exit(engine);
        }
    }

    /// An engine exits at the end of its drain.
    pub fn exit(&mut self, engine: &EngineName) {
        if self.is_down(engine) {
            return self.schedule(REGISTER_RETRY, Event::Exit(engine.clone()));
        }
        let exits = self.agents.get(engine).is_some_and(|agent| agent.is_draining && !agent.is_stubborn);
        if exits && self.memory.end(engine, &End::code(0)) {
            self.notice_ended();
        }
    }

    /// The session of an engine expires; it opens another one later.
    pub fn lose_session(&mut self, engine: &EngineName, lasted: Duration) {
        self.nodes.expire(engine);
        let Some(agent) = self.agents.get(engine) else { return };
        let uid = agent.uid.clone();
        if self.mutant == Some(Mutant::LostSessionIsDrain) && !agent.is_draining && agent.has_registered {
            let open = agent.sessions.len();
            self.memory.end(engine, &End::code(0));
            self.notice_ended();
            if open > 0 {
                self.violated(format!("engine {engine} exits with {open} sessions and without a drain order"));
            }
        }
        self.schedule(lasted, Event::Register(engine.clone(), uid));
        self.wake();
    }

    /// Ends the agents whose instances have ended, with their sessions.
    pub fn notice_ended(&mut self) {
        let mut ended = Vec::new();
        let mut running = self.agents.iter().filter(|(_, agent)| !agent.has_ended).peekable();
        // Both are in the order of the names.
        self.memory.for_each(|instance| {
            while let Some((engine, _)) = running.next_if(|(engine, _)| **engine < instance.name) {
                ended.push(engine.clone());
            }
            if let Some((engine, agent)) = running.next_if(|(engine, _)| **engine == instance.name)
                && (agent.uid != instance.uid || instance.phase >= Phase::Ended)
            {
                ended.push(engine.clone());
            }
        });
        ended.extend(running.map(|(engine, _)| engine.clone()));
        for engine in ended {
            let Some(agent) = self.agents.get_mut(&engine) else { continue };
            agent.has_ended = true;
            let sessions = std::mem::take(&mut agent.sessions);
            for session in sessions {
                self.activity.moved += 1;
                self.session_lost_engine(session);
            }
            let after = self.rng.millis(1, SESSION_TIMEOUT.as_millis() as u64);
            self.schedule(after, Event::Expire(engine));
            self.wake();
            self.judge(Cause::Other);
        }
    }
}
