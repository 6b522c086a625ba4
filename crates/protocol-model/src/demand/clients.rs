//! Clients with their proxies: sessions that are counted, reported, opened and closed, and reports that are given up.

use super::state::{Life, Phase, Report, State};
use super::{Action, Demand};

impl Demand {
    /// Steps of proxies, which follow by themselves.
    pub(super) fn proxy_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, session) in state.sessions.iter().enumerate() {
            let counted = session.is_counted(self.without.left_before_open);
            if session.phase != Phase::Dead && session.recorded != Some(counted) {
                actions.push(Action::Report(at));
            }
            match session.phase {
                Phase::Waiting => {
                    for engine in 0..state.engines.len() {
                        actions.push(Action::Leave(at, engine));
                    }
                }
                Phase::Leaving(_) => actions.push(Action::Open(at)),
                Phase::Open(engine) if state.is_cut(engine, self.link) => actions.push(Action::Lose(at)),
                Phase::Away => actions.push(Action::Wait(at)),
                Phase::Dead if session.row.waits && session.leased => actions.push(Action::LeaseEnds(at)),
                _ => {}
            }
        }
    }

    /// What clients do at any time or never, and reports that arrive late.
    pub(super) fn client_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let (limits, used) = (self.limits, state.used);
        for (at, session) in state.sessions.iter().enumerate() {
            match session.phase {
                Phase::Outside => actions.push(Action::Wait(at)),
                Phase::Open(_) => actions.push(Action::Close(at)),
                Phase::Waiting if used.retries < limits.retries => {
                    actions.extend([Action::Stop(at, true), Action::Stop(at, false)]);
                }
                _ => {}
            }
            let is_alive = !matches!(session.phase, Phase::Outside | Phase::Dead);
            if is_alive && used.deaths < limits.deaths {
                actions.push(Action::Die(at));
            }
            let counted = session.is_counted(self.without.left_before_open);
            let reports = session.phase != Phase::Dead && session.recorded != Some(counted);
            if reports && session.late.is_none() && used.reports < limits.reports {
                actions.push(Action::GiveUpReport(at));
            }
            if session.late.is_some() {
                actions.extend([Action::LateReport(at), Action::LateReportLost(at)]);
            }
        }
    }

    pub(super) fn client(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Wait(at) => {
                let session = &mut state.sessions[at];
                if !matches!(session.phase, Phase::Outside | Phase::Away) {
                    return false;
                }
                session.phase = Phase::Waiting;
                state.lapsed = false;
            }
            Action::Report(at) => return self.report(state, at, true),
            Action::GiveUpReport(at) => {
                state.used.reports += 1;
                return self.report(state, at, false);
            }
            Action::LateReport(at) => {
                let Some(report) = state.sessions[at].late.take() else { return false };
                self.record(state, at, report);
            }
            Action::LateReportLost(at) => return state.sessions[at].late.take().is_some(),
            Action::Leave(at, engine) => {
                // A proxy avoids an engine for a while that it could not connect to.
                let is_free = state.engines[engine].registered
                    && !state.is_cut(engine, self.link)
                    && !state.engines[engine].consent
                    && state.taken(engine) == 0
                    && !state.sessions.iter().any(|session| session.phase == Phase::Leaving(engine));
                if state.sessions[at].phase != Phase::Waiting || !is_free {
                    return false;
                }
                state.sessions[at].phase = Phase::Leaving(engine);
            }
            Action::Open(at) => return self.open(state, at),
            Action::Lose(at) => {
                let Phase::Open(engine) = state.sessions[at].phase else { return false };
                if !state.is_cut(engine, self.link) {
                    return false;
                }
                state.sessions[at].phase = Phase::Waiting;
                state.lapsed = false;
            }
            Action::Close(at) => {
                if !matches!(state.sessions[at].phase, Phase::Open(_)) {
                    return false;
                }
                state.sessions[at].phase = Phase::Closed;
            }
            Action::Stop(at, comes_again) => {
                if state.sessions[at].phase != Phase::Waiting {
                    return false;
                }
                state.used.retries += 1;
                state.sessions[at].phase = if comes_again { Phase::Away } else { Phase::Closed };
            }
            Action::Die(at) => {
                state.used.deaths += 1;
                state.sessions[at].phase = Phase::Dead;
            }
            Action::LeaseEnds(at) => {
                let session = &mut state.sessions[at];
                if session.phase != Phase::Dead || !session.row.waits || !session.leased {
                    return false;
                }
                session.leased = false;
            }
            _ => return false,
        }
        true
    }

    /// A proxy sends a report; whether it arrives and is answered now.
    fn report(&self, state: &mut State, at: usize, arrives: bool) -> bool {
        let session = &mut state.sessions[at];
        let waits = session.is_counted(self.without.left_before_open);
        if session.phase == Phase::Dead || session.recorded == Some(waits) {
            return false;
        }
        session.seq += 1;
        let report = Report { seq: session.seq, waits };
        if arrives {
            session.recorded = Some(waits);
            self.record(state, at, report);
        } else {
            session.recorded = None;
            session.late = Some(report);
        }
        true
    }

    fn record(&self, state: &mut State, at: usize, report: Report) {
        let row = &mut state.sessions[at].row;
        if report.seq > row.seq || self.without.numbered {
            *row = report;
        }
    }

    /// The agent opens the session or refuses it, which is counted again then.
    fn open(&self, state: &mut State, at: usize) -> bool {
        let session = state.sessions[at];
        let Phase::Leaving(engine) = session.phase else { return false };
        if session.recorded != Some(false) && !self.without.left_before_open {
            return false;
        }
        let is_cut = state.is_cut(engine, self.link);
        let taken = state.taken(engine);
        let opening = &mut state.engines[engine];
        let accepts = opening.life == Life::Running && !opening.consent && !opening.ordered && taken == 0 && !is_cut;
        if !accepts {
            state.sessions[at].phase = Phase::Waiting;
            state.lapsed = false;
            return true;
        }
        opening.opened += 1;
        opening.idle = false;
        state.broken.opened_on_released |= opening.removed == Some(super::state::Why::Idle) && !opening.overdue;
        state.sessions[at].phase = Phase::Open(engine);
        true
    }
}
