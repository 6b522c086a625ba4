//! The proxies' demand, and sessions from their arrival to their end.
//!
//! A session without a seat is counted under its key, and each proxy reports all its keys (`demand`). A session leaves the count
//! before it is opened, and that is reported first, cannot be, or 1 s has passed; refused by an engine that is full or another
//! owner's, it is counted again. The key of a session follows from the proxy's last reading of the
//! catalog, and is computed again with each retry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::demand::ScalingGroup;
use model::demand_report::{DemandRecorded, DemandReport};
use model::engine_name::EngineName;
use model::sharing::Sharer;
use model::slot::Link;

use crate::event::{Event, Scripted, Sender};
use crate::in_effect::take;
use crate::mutant::Mutant;
use crate::session::{Asked, Phase, Proxy, Session};
use crate::state::State;

const LEAVE_DEADLINE: Duration = Duration::from_secs(1);
/// How long a proxy waits for an answer that does not come.
const NO_ANSWER: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(1);
/// The pause of a client that connects again.
const RECONNECT: Duration = Duration::from_millis(500);

impl State {
    /// Sessions connect.
    pub fn arrive(&mut self, arrival: &Scripted) {
        let Scripted::Arrive { proxy, key, user, sessions, open_for, patience, repeats } = arrival else { return };
        for _ in 0..*sessions {
            self.sequence += 1;
            let (id, proxy) = (self.sequence, *proxy % self.proxies.len());
            let asked = Asked { key: key.clone(), sharer: Sharer::new(user, &[], format!("s-{id}")) };
            let key = asked.counted_under(&self.proxies[proxy].catalog);
            let (phase, open_for, patience) = (Phase::New, *open_for, *patience);
            let repeats = *repeats;
            let session = Session { proxy, asked, key, waits_since: None, phase, open_for, patience, repeats };
            self.sessions.insert(id, session);
            self.schedule(patience, Event::GiveUp(id));
            self.retry(id);
            self.activity.arrived += 1;
        }
    }

    /// The number of sessions that wait, or did a moment ago, for each group whose engines would serve them.
    pub fn waiting_for(&self, links: &[Link]) -> BTreeMap<ScalingGroup, u64> {
        let waits = |session: &&Session| matches!(session.phase, Phase::Waiting | Phase::Leaving(..));
        let now = self.now;
        let left = |(at, _): &&(Duration, Asked)| *at + Duration::from_secs(1) > now;
        let waiting = self.sessions.values().filter(waits).map(|session| &session.asked);
        let waiting = waiting.chain(self.left.iter().filter(left).map(|(_, asked)| asked));
        let catalog = &self.database.state().catalog;
        let mut groups = BTreeMap::new();
        for asked in waiting {
            for link in links.iter().filter(|link| asked.matches(link)) {
                let shared_by = catalog.unit(&link.unit).map(|unit| unit.shared_by).unwrap_or_default();
                let group = ScalingGroup { link: link.clone(), owner: asked.sharer.owner(shared_by) };
                *groups.entry(group).or_default() += 1;
            }
        }
        groups
    }

    /// The engine with a free seat that the fewest sessions use.
    fn place_for(&self, session: &Session) -> Option<EngineName> {
        let (now, proxy) = (self.now, &self.proxies[session.proxy]);
        let free = self.nodes.permits.values().filter_map(|node| {
            let permit = node.content.as_ref().ok().filter(|permit| permit.tenant == session.asked.key.tenant)?;
            node.ready()?;
            let agent =
                self.agents.get(&node.engine).filter(|agent| agent.answers(now) && !agent.is_known_to_retire(now))?;
            let seats = permit.sessions.map_or(usize::MAX, |seats| seats as usize);
            let has_seat = agent.sessions.len() < seats || self.mutant == Some(Mutant::SeatsUnchecked);
            let (tenant, pool, unit) = (permit.tenant.clone(), permit.pool.clone(), permit.unit.clone());
            let link = Link { tenant, pool, unit };
            let may_use = if now < proxy.ignores_owners_until {
                session.asked.matches(&link)
            } else {
                session.asked.may_use(&link, permit.owner.as_ref(), &proxy.catalog)
            };
            (may_use && has_seat).then_some((agent.sessions.len(), &node.engine))
        });
        free.min().map(|(_, engine)| engine.clone())
    }

    /// A session looks for an engine.
    pub fn retry(&mut self, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let (phase, proxy) = (session.phase.clone(), session.proxy);
        if !matches!(phase, Phase::New | Phase::Waiting) {
            return;
        }
        match (self.place_for(session), phase) {
            (Some(engine), Phase::New) => self.begin_open(id, engine),
            (Some(engine), _) => {
                let is_early = self.mutant != Some(Mutant::CountedUntilOpen);
                if is_early {
                    self.uncount(id);
                }
                let demand = &self.proxies[proxy].demand;
                let version = demand.version();
                let waits = is_early && !demand.is_reported(version);
                self.set_phase(id, Phase::Leaving(engine, version));
                if waits {
                    self.schedule(LEAVE_DEADLINE, Event::LeaveDeadline(id, version));
                } else {
                    self.leave_deadline(id, version);
                }
            }
            (None, Phase::New) => self.count(id),
            (None, _) => self.count_by_catalog(id),
        }
    }

    /// Counts a waiting session under another key, if the catalog that its proxy has read since gives it another one.
    fn count_by_catalog(&mut self, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let key = session.asked.counted_under(&self.proxies[session.proxy].catalog);
        if key == session.key {
            return;
        }
        self.uncount(id);
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        (session.key, session.waits_since) = (key, Some(now));
        self.add_to_count(id);
    }

    fn add_to_count(&mut self, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let proxy = session.proxy;
        self.proxies[proxy].demand.add(&session.key, id, session.waits_since.unwrap_or(self.now));
        self.schedule_report(proxy);
    }

    /// The proxies read the catalog.
    pub fn read_catalog(&mut self) {
        let catalog = Arc::new(self.database.state().catalog.clone());
        for proxy in &mut self.proxies {
            proxy.catalog = Arc::clone(&catalog);
        }
    }

    fn set_phase(&mut self, id: u64, phase: Phase) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.phase = phase;
        }
    }

    fn count(&mut self, id: u64) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let key = session.asked.counted_under(&self.proxies[session.proxy].catalog);
        let is_same = key == session.key;
        session.waits_since = session.waits_since.filter(|_| is_same).or(Some(now));
        (session.phase, session.key) = (Phase::Waiting, key);
        self.add_to_count(id);
        self.activity.waited += 1;
        self.schedule(RETRY, Event::RetryLater(id));
    }

    fn uncount(&mut self, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let proxy = session.proxy;
        if self.proxies[proxy].demand.remove(&session.key, id) {
            self.schedule_report(proxy);
        }
    }

    /// A waiting session looks again, once a second.
    pub fn retry_later(&mut self, id: u64) {
        if self.sessions.get(&id).is_some_and(|session| session.phase == Phase::Waiting) {
            self.schedule(RETRY, Event::RetryLater(id));
            self.retry(id);
        }
    }

    /// Every waiting session looks for an engine, because the registry has changed.
    pub fn retry_waiting(&mut self) {
        let waiting = self.sessions.iter().filter(|(_, session)| session.phase == Phase::Waiting);
        let waiting: Vec<u64> = waiting.map(|(id, _)| *id).collect();
        for id in waiting {
            let after = self.rng.millis(1, 20);
            self.schedule(after, Event::Retry(id));
        }
    }

    /// A session that has left the count with this version is opened, reported or not. One that was refused and counted again since
    /// has left with a later version: the deadline of the earlier one would open it while its demand is still recorded.
    pub fn leave_deadline(&mut self, id: u64, version: u64) {
        match self.sessions.get(&id).map(|session| session.phase.clone()) {
            Some(Phase::Leaving(engine, left)) if left == version => self.begin_open(id, engine),
            _ => {}
        }
    }

    fn begin_open(&mut self, id: u64, engine: EngineName) {
        self.set_phase(id, Phase::Opening(engine.clone()));
        let after = self.rng.millis(2, 50);
        self.schedule(after, Event::OpenAt(id, engine));
    }

    /// A session arrives at an engine.
    pub fn open_session(&mut self, id: u64, engine: &EngineName) {
        let Some(session) = self.sessions.get(&id) else { return };
        if session.phase != Phase::Opening(engine.clone()) {
            return;
        }
        let (mean, sharer) = (session.open_for, session.asked.sharer.clone());
        if self.open_at((id, &sharer), engine) {
            self.uncount(id);
            if let Some(session) = self.sessions.get_mut(&id) {
                (session.phase, session.waits_since) = (Phase::Open(engine.clone()), None);
            }
            self.activity.opened += 1;
            let open_for = self.rng.around(mean);
            self.schedule(open_for, Event::Close(id));
        } else {
            self.uncount(id);
            self.count(id);
        }
    }

    pub fn close_session(&mut self, id: u64) {
        if let Some(Session { phase: Phase::Open(engine), .. }) = self.sessions.get(&id) {
            let engine = engine.clone();
            self.sessions.remove(&id);
            self.leave_engine(id, &engine);
        }
    }

    fn leave_engine(&mut self, id: u64, engine: &EngineName) {
        let now = self.now;
        if let Some(agent) = self.agents.get_mut(engine) {
            agent.close(id, now);
            if agent.is_draining {
                self.schedule(Duration::from_millis(20), Event::ExitIfDrained(engine.clone()));
            }
        }
        self.wake_when_polled();
    }

    /// A session leaves an engine that drains, and looks for another one.
    pub fn move_session(&mut self, id: u64) {
        if let Some(Session { phase: Phase::Open(engine), .. }) = self.sessions.get(&id) {
            let engine = engine.clone();
            self.leave_engine(id, &engine);
            self.session_lost_engine(id);
        }
    }

    /// The engine of a session is gone: its next statement looks for another one.
    pub fn session_lost_engine(&mut self, id: u64) {
        self.set_phase(id, Phase::New);
        let patience = self.sessions.get(&id).map_or(Duration::ZERO, |session| session.patience);
        self.schedule(patience, Event::GiveUp(id));
        self.schedule(Duration::from_millis(10), Event::Retry(id));
    }

    /// A client gives up, unless its session is open.
    pub fn give_up(&mut self, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        if matches!(session.phase, Phase::Open(_) | Phase::Opening(_)) {
            return;
        }
        let again = session.repeats.then(|| Scripted::Arrive {
            proxy: session.proxy,
            key: session.asked.key.clone(),
            user: session.asked.sharer.user.clone(),
            sessions: 1,
            open_for: session.open_for,
            patience: session.patience,
            repeats: true,
        });
        self.left.push_back((self.now, session.asked.clone()));
        self.uncount(id);
        self.sessions.remove(&id);
        self.activity.gave_up += 1;
        if let Some(again) = again {
            self.schedule(RECONNECT, Event::Scripted(again));
        }
    }

    /// The next report of a proxy, if it is known when that is.
    fn schedule_report(&mut self, at: usize) {
        if let Some(due) = self.proxies[at].demand.due() {
            self.schedule_at(due.max(self.now), Event::Report(at));
        }
    }

    /// A proxy sends the report that is due.
    pub fn report(&mut self, at: usize) {
        let now = self.now;
        let proxy = &mut self.proxies[at];
        if proxy.demand.due().is_none_or(|due| due > now) {
            return;
        }
        let process = proxy.process;
        let Some(report) = proxy.demand.begin(now, now) else { return self.open_reported(at) };
        let sender = Sender { proxy: at, process, seq: report.seq };
        if take(&mut self.faults.late_reports) {
            let after = self.rng.millis(20_000, 120_000);
            self.schedule(after, Event::Reported(Box::new(report.clone()), None));
        }
        if now < self.faults.lost_reports_until {
            return self.schedule(NO_ANSWER, Event::Answered(sender, false));
        }
        let is_slow = now < self.faults.slow_reports_until;
        let after = if is_slow { self.rng.millis(50, 1_500) } else { self.rng.millis(2, 20) };
        self.schedule(after, Event::Reported(Box::new(report), Some(sender)));
    }

    /// The database records a report.
    pub fn record_report(&mut self, report: &DemandReport, sender: Option<Sender>) {
        let is_recorded = self.now >= self.faults.away_until;
        if is_recorded {
            let number_before = self.database.report_number(&report.proxy);
            let recorded = self.database.record_demand(report);
            if recorded != DemandRecorded::Superseded {
                self.judge_reported(report, number_before);
            }
            if recorded == DemandRecorded::Increased {
                self.wake();
            }
        }
        if let Some(sender) = sender {
            let after = self.rng.millis(1, 10);
            self.schedule(after, Event::Answered(sender, is_recorded));
        }
    }

    /// The answer to a report arrives.
    pub fn answered(&mut self, sender: Sender, is_recorded: bool) {
        let (now, proxy) = (self.now, &mut self.proxies[sender.proxy]);
        if proxy.process == sender.process {
            proxy.demand.end(now, sender.seq, is_recorded);
            self.open_reported(sender.proxy);
        }
    }

    /// Opens the sessions of a proxy that have left the count, as far as that was reported.
    fn open_reported(&mut self, at: usize) {
        let demand = &self.proxies[at].demand;
        let left = self.sessions.iter().filter_map(|(id, session)| match session.phase {
            Phase::Leaving(_, left) if session.proxy == at && demand.is_reported(left) => Some((*id, left)),
            _ => None,
        });
        let left: Vec<(u64, u64)> = left.collect();
        for (id, left) in left {
            self.leave_deadline(id, left);
        }
        self.schedule_report(at);
    }

    /// A proxy process dies with its sessions, and another one starts.
    pub fn proxy_died(&mut self, place: usize) {
        let at = place % self.proxies.len();
        let of_proxy: Vec<u64> =
            self.sessions.iter().filter(|(_, session)| session.proxy == at).map(|(id, _)| *id).collect();
        for id in of_proxy {
            if let Some(Session { phase: Phase::Open(engine), .. }) = self.sessions.remove(&id) {
                self.leave_engine(id, &engine);
            }
        }
        self.sequence += 1;
        let catalog = Arc::clone(&self.proxies[at].catalog);
        self.proxies[at] = Proxy::new(self.sequence, catalog);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use master::Settings;
    use model::demand::DemandKey;
    use model::name::TenantName;

    use super::*;

    #[test]
    fn the_deadline_of_an_earlier_leave_opens_no_session() {
        let mut state = State::new(1, &Settings::default(), None);
        let engine = EngineName::new("t-1-rp-1-uc-1-0-1-000000").unwrap();
        let asked = Asked {
            key: DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "hive"),
            sharer: Sharer::new("ann", &[], "s-1".to_owned()),
        };
        let (key, phase, hour) = (asked.key.clone(), Phase::Leaving(engine.clone(), 2), Duration::from_hours(1));
        let (open_for, patience) = (hour, hour);
        let session = Session { proxy: 0, asked, key, waits_since: None, phase, open_for, patience, repeats: false };
        state.sessions.insert(1, session);
        state.handle(Event::LeaveDeadline(1, 1));
        assert_eq!(state.sessions[&1].phase, Phase::Leaving(engine.clone(), 2));
        state.handle(Event::LeaveDeadline(1, 2));
        assert_eq!(state.sessions[&1].phase, Phase::Opening(engine));
    }
}
