//! How the script injects faults, and their end.

use std::time::Duration;

use model::engine_name::EngineName;
use orchestrator::Error;
use orchestrator::memory::{End, Verb};

use crate::activity::Cause;
use crate::event::{Event, Fault, Racing};
use crate::in_effect::{Faults, take};
use crate::machine::FailureEnd;
use crate::state::State;

/// The lease of a proxy's demand, and a little more: for so long the demand of a proxy that died is stale.
pub const STALE_DEMAND: Duration = Duration::from_secs(16);

impl State {
    /// Injects a fault.
    pub fn inject(&mut self, fault: &Fault) {
        self.activity.faults += 1;
        let now = self.now;
        match fault {
            Fault::CreatesRefused(lasted) => {
                self.memory.refuse_creates(Some("the quota is exceeded"));
                self.schedule(*lasted, Event::CreatesAccepted);
            }
            Fault::CreateFails => self.faults.failing_creates += 1,
            Fault::CreateReplyLost => self.faults.lost_creates += 1,
            Fault::SlowStarts(lasted) => self.faults.slow_until = now + *lasted,
            Fault::NextNeverRegisters => self.faults.silent += 1,
            Fault::NextExitsEarly => self.faults.early_exits += 1,
            Fault::NextIsStubborn => self.faults.stubborn += 1,
            Fault::Killed(place) => {
                if let Some(engine) = self.engine_at(*place) {
                    self.memory.end(&engine, &End::signal(9));
                    self.notice_ended();
                }
            }
            Fault::Vanished(place) => {
                if let Some(engine) = self.engine_at(*place) {
                    self.memory.vanish(&engine);
                    self.notice_ended();
                }
            }
            Fault::MachineFails(at, failing) => {
                self.faults.stale_until = self.faults.stale_until.max(now + STALE_DEMAND);
                self.fail_machine(*at, *failing);
            }
            Fault::ManyFail(count, failing) => {
                self.faults.stale_until = self.faults.stale_until.max(now + STALE_DEMAND);
                for at in 0..*count {
                    self.fail_machine(at, *failing);
                }
            }
            Fault::MachineUnready(at, lasted) => {
                let at = at % self.machines.len();
                self.report_machine(at, false);
                self.schedule(*lasted, Event::Reachable(at, true));
            }
            Fault::MachinesGone => {
                let places = self.agents.values().filter(|agent| !agent.has_ended).count();
                for place in (0..places).step_by(2) {
                    if let Some(engine) = self.engine_at(place) {
                        self.memory.vanish(&engine);
                    }
                }
                self.notice_ended();
            }
            Fault::Muted(place, lasted) => {
                let engine = self.engine_at(*place);
                if let Some(agent) = engine.and_then(|engine| self.agents.get_mut(&engine)) {
                    agent.muted_until = now + *lasted;
                }
            }
            Fault::SessionLost(place, lasted) => {
                if let Some(engine) = self.engine_at(*place) {
                    self.lose_session(&engine, *lasted);
                }
            }
            Fault::ProxyDied(place) => {
                self.faults.stale_until = self.faults.stale_until.max(now + STALE_DEMAND);
                self.proxy_died(*place);
            }
            Fault::OwnersIgnored(place, lasted) => {
                let at = place % self.proxies.len();
                self.proxies[at].ignores_owners_until = now + *lasted;
                self.faults.stale_until = self.faults.stale_until.max(now + *lasted + STALE_DEMAND);
            }
            Fault::LateReport => self.faults.late_reports += 1,
            Fault::SlowReports(lasted) => {
                self.faults.slow_reports_until = now + *lasted;
                self.faults.stale_until = self.faults.stale_until.max(now + *lasted + Duration::from_secs(3));
            }
            Fault::LostReports(lasted) => {
                self.faults.lost_reports_until = now + *lasted;
                self.faults.stale_until = self.faults.stale_until.max(now + *lasted + STALE_DEMAND);
            }
            Fault::Deposed { effects, late } => self.faults.depose = Some((*effects, *late)),
            Fault::ReplyLost(effects) => self.faults.reply_lost = Some((*effects, None)),
            Fault::Repeated(effects, after) => self.faults.reply_lost = Some((*effects, Some(*after))),
            Fault::AgentsAway(lasted) => {
                self.faults.away_until = now + *lasted;
                self.faults.stale_until = self.faults.stale_until.max(now + *lasted + STALE_DEMAND);
            }
            Fault::ListFrozen(lasted) => {
                self.memory.freeze_lists();
                self.faults.is_frozen = true;
                self.schedule(*lasted, Event::ListThawed);
            }
            Fault::DatabaseRestored(after) => self.back_up(*after),
            Fault::ClockShifted(by_ms) => {
                self.database.ahead_ms += by_ms;
                self.database.set_now(now);
                let shift = Duration::from_millis(by_ms.unsigned_abs());
                self.faults.stale_until = self.faults.stale_until.max(now + shift + STALE_DEMAND);
            }
            Fault::BeforeScaling(event) => self.faults.before_scaling = Some(event.clone()),
            Fault::Agent(fault) => self.faults.agent = Some(*fault),
            Fault::AlterDebris => {
                self.nodes.leave_debris();
                self.wake();
            }
            Fault::BeforeDrain(racing) => self.faults.before_drain = Some(*racing),
            Fault::WakesLost(lasted) => self.faults.wakes_lost_until = now + *lasted,
        }
        self.judge(Cause::Other);
    }

    /// Lets the next create fail, or its reply be lost, if a fault says so.
    pub fn disturb_create(&mut self) {
        if take(&mut self.faults.failing_creates) {
            self.memory.fail_next(Verb::Ensure, Error::transient("the API server is away"));
        } else if take(&mut self.faults.lost_creates) {
            self.memory.lose_reply(Verb::Ensure);
        }
    }

    /// Lets the registrations change that a drain relies on, if a fault intervenes.
    pub fn disturb_drain(&mut self, engine: &EngineName, successor: Option<&EngineName>) {
        match (self.faults.before_drain, successor) {
            (Some(Racing::SuccessorLost), Some(successor)) => {
                self.faults.before_drain = None;
                self.lose_session(successor, Duration::from_secs(2));
            }
            (Some(Racing::EngineRegisters), _) if self.nodes.registration(engine).is_none() => {
                self.faults.before_drain = None;
                let uid = self.agents.get(engine).map(|agent| agent.uid.clone());
                self.register(engine, &uid.unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Ends every fault that would last.
    pub fn end_faults(&mut self) {
        let Faults { stale_until, .. } = self.faults;
        self.faults = Faults { stale_until, ..Faults::default() };
        self.memory.refuse_creates(None);
        self.memory.thaw_lists();
        self.cancel(|event| matches!(event, Event::Restore(_)));
        for agent in self.agents.values_mut() {
            (agent.muted_until, agent.is_stubborn) = (Duration::ZERO, false);
        }
        for at in 0..self.machines.len() {
            self.machines[at].down_until = Duration::ZERO;
            self.return_machine(at, FailureEnd::Resumed);
            self.report_machine(at, true);
        }
        for proxy in &mut self.proxies {
            proxy.ignores_owners_until = Duration::ZERO;
        }
    }
}
