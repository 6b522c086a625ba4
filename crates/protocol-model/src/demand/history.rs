//! What has been true since a tick began: the truth that its decisions are judged by.
//!
//! A plan is made from what was read, and takes effect later. It is right if it was right at some time in between. Loads are read
//! before the demand: a start is right if so many sessions waited at some time for which there was no seat then or before.

use super::state::{History, Life, Phase, Session, State};
use super::{Demand, Link};

impl History {
    /// The current moment.
    pub fn now(state: &State, model: &Demand) -> Self {
        let bits = |holds: &dyn Fn(usize) -> bool| {
            (0..state.engines.len()).filter(|engine| holds(*engine)).fold(0, |bits, engine| bits | 1 << engine)
        };
        let seats = seats(state, model.link);
        Self {
            short: unserved(state).saturating_sub(seats),
            seats,
            busy: bits(&|engine| state.taken(engine) > 0),
            created: bits(&|engine| state.engines[engine].is_alive()),
            registered: bits(&|engine| state.engines[engine].registered),
            ready: bits(&|engine| !state.is_unready(engine, model.link)),
            sought: is_sought(state),
        }
    }

    /// Until `now`.
    pub fn extend(&mut self, now: Self, unserved: u8) {
        self.seats = self.seats.min(now.seats);
        self.short = self.short.max(unserved.saturating_sub(self.seats));
        self.busy &= now.busy;
        self.created &= now.created;
        self.registered &= now.registered;
        self.ready &= now.ready;
        self.sought &= now.sought;
    }
}

impl History {
    /// A slot was added: it serves one of the sessions.
    pub fn added(&mut self) {
        self.short = self.short.saturating_sub(1);
        self.seats += 1;
    }
}

/// Whether a client waits, is being served or comes again.
pub(super) fn is_sought(state: &State) -> bool {
    let seeks = |phase| matches!(phase, Phase::Waiting | Phase::Leaving(_) | Phase::Away);
    state.sessions.iter().any(|session| seeks(session.phase))
}

/// Sessions that wait or are about to be opened, and those of which it is not recorded yet that they wait no longer, because
/// their client has stopped or their proxy has died.
pub(super) fn unserved(state: &State) -> u8 {
    let is_unserved = |session: &&Session| match session.phase {
        Phase::Waiting | Phase::Leaving(_) => true,
        Phase::Away | Phase::Closed => session.row.waits && session.recorded != Some(false),
        Phase::Dead => session.row.waits && session.leased,
        Phase::Outside | Phase::Open(_) => false,
    };
    state.sessions.iter().filter(is_unserved).count() as u8
}

/// The seats that are free or on their way, at most one for each slot.
fn seats(state: &State, link: Link) -> u8 {
    let seats = state.slots.iter().flatten().map(|slot| {
        let engine = &state.engines[slot.engine];
        let mut older = state.engines[..slot.engine].iter().enumerate().filter(|(_, older)| {
            older.ordinal == engine.ordinal && older.is_alive() && !older.ordered && older.removed.is_none()
        });
        match engine.life {
            Life::Running if engine.registered => {
                let is_used = engine.consent || engine.silent || state.is_cut(slot.engine, link);
                if is_used { 0 } else { 1 - state.taken(slot.engine) }
            }
            // It has lost its registration, and counts as full unless its node has failed.
            Life::Running => u8::from(state.is_unready(slot.engine, link)),
            Life::Issued | Life::Starting => {
                // One that stands in counts in place of the new one, which takes over its sessions.
                let stands_in = older.find(|(at, older)| older.registered || !state.is_unready(*at, link));
                stands_in.map_or(1, |(at, older)| {
                    let serves = older.registered && !older.consent && !older.silent;
                    if serves { 1 - state.taken(at) } else { 0 }
                })
            }
            Life::Gone => 0,
        }
    });
    seats.sum()
}
