//! The plan: which engines are created, replaced and drained, and how many slots the waiting sessions need. One seat each.

use super::Demand;
use super::state::{Effect, Expected, Life, Scale, Seen, Slot, State, Why};

/// A slot as scaling sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its engine serves, with so many of one seat taken; `None` if it counts as full and busy.
    Ready(Option<u8>),
    /// Its agent has agreed to open no sessions.
    Retiring,
    /// Its engine is on its way.
    Pending { is_created: bool, is_kept: bool },
    /// It has no reservation.
    Queued,
}

impl Demand {
    /// The effects in order, from what was observed and read.
    pub(super) fn plan(
        &self,
        state: &State,
        seen: &[Seen],
        (slots, expected): (&[Option<Slot>; 2], Expected),
        waiting: u8,
    ) -> Vec<Effect> {
        let scaling = self.scaling(state, seen, (slots, expected), waiting);
        let cancelled = scaling.iter().find_map(|effect| match effect {
            Effect::Scale(Scale { remove: Some((engine, _)), .. }) => Some(*engine),
            _ => None,
        });
        let mut effects = self.creates(state, seen, slots);
        // An engine that is cancelled is not created before.
        effects
            .retain(|effect| self.without.cancelled_is_not_created || cancelled.map(Effect::Create) != Some(*effect));
        effects.extend(scaling);
        for slot in slots.iter().flatten() {
            if seen.get(slot.engine).is_some_and(|seen| self.is_replaced(seen)) {
                effects.push(Effect::Draw(slot.engine));
            }
        }
        for (at, engine) in seen.iter().enumerate() {
            if engine.engine.is_alive() && !engine.engine.ordered && Self::ends(seen, slots, at) {
                effects.push(Effect::Drain(at));
            }
        }
        effects
    }

    /// Engines that do not exist yet, unless their slot waits for its turn.
    fn creates(&self, state: &State, seen: &[Seen], slots: &[Option<Slot>; 2]) -> Vec<Effect> {
        let mut effects = Vec::new();
        let takes_turn = |slot: &Slot| self.stand_in(seen, slot, true).is_some();
        let life = |slot: &Slot| state.engines[slot.engine].life;
        let begun = |slot: &&Slot| takes_turn(slot) && life(slot) == Life::Starting;
        let mut is_free = !slots.iter().flatten().any(|slot| begun(&slot));
        for slot in slots.iter().flatten().filter(|slot| life(slot) == Life::Issued) {
            if takes_turn(slot) && !std::mem::take(&mut is_free) {
                continue;
            }
            let is_charged = state.engines[slot.engine].charged;
            effects.push(if is_charged { Effect::Create(slot.engine) } else { Effect::Reserve(slot.engine) });
        }
        effects
    }

    /// The older engine of a slot that runs, has registered once and has no drain order; whether it serves or may serve again.
    /// An unreachable one takes no turn.
    fn stand_in(&self, seen: &[Seen], slot: &Slot, with_turn: bool) -> Option<usize> {
        let ordinal = seen.get(slot.engine).map(|seen| seen.engine.ordinal);
        let older = seen.iter().take(slot.engine).enumerate().rev();
        let mut older = older.filter(|(_, older)| {
            let engine = older.engine;
            let is_unreachable = !engine.registered && older.unready;
            let counts = !is_unreachable || with_turn && self.without.unreachable_takes_no_turn;
            let of_slot = ordinal.is_none_or(|ordinal| ordinal == engine.ordinal) && engine.removed.is_none();
            engine.life == Life::Running && !engine.ordered && of_slot && counts
        });
        older.next().map(|(at, _)| at)
    }

    /// Whether the slot of the engine is given another one, because its node has failed. For one that never registered the node
    /// counts alone.
    fn is_replaced(&self, seen: &Seen) -> bool {
        let is_missing = !seen.engine.registered || self.without.registration_is_evidence;
        match seen.engine.life {
            Life::Running => is_missing && (seen.unready || self.without.node_is_evidence),
            Life::Starting => seen.unready,
            Life::Issued | Life::Gone => false,
        }
    }

    /// Whether an engine is to end: its slot is gone, or a newer engine of it is registered, or it never registered.
    fn ends(seen: &[Seen], slots: &[Option<Slot>; 2], at: usize) -> bool {
        let engine = seen[at].engine;
        let slot = slots[engine.ordinal].filter(|_| engine.removed.is_none());
        let Some(slot) = slot else { return true };
        let is_ready = seen.get(slot.engine).is_some_and(|newer| newer.engine.registered);
        slot.engine != at && (is_ready || engine.life == Life::Starting)
    }

    fn kind(&self, state: &State, seen: &[Seen], slot: &Slot, waiting: u8) -> Kind {
        let occupancy = |at: usize| {
            let Seen { engine, taken, .. } = seen[at];
            match (engine.silent, engine.consent) {
                (true, _) if self.without.silent_is_busy => Kind::Ready(Some(0)),
                // It has just registered, or does not answer.
                (true, _) if waiting == 0 => Kind::Pending { is_created: true, is_kept: true },
                (true, _) => Kind::Ready(None),
                (false, true) if taken == 0 => Kind::Retiring,
                _ => Kind::Ready(Some(taken)),
            }
        };
        let stand_in = self.stand_in(seen, slot, false);
        let current = seen.get(slot.engine).map(|seen| seen.engine);
        if current.is_some_and(|engine| engine.registered) {
            return occupancy(slot.engine);
        }
        if let Some(serving) = stand_in.filter(|at| seen[*at].engine.registered) {
            return occupancy(serving);
        }
        if current.is_some_and(|engine| engine.life == Life::Running) {
            if self.is_replaced(&seen[slot.engine]) && !self.without.replaced_is_pending {
                return Kind::Pending { is_created: true, is_kept: true };
            }
            let is_busy = !self.without.unregistered_is_busy;
            return if is_busy { Kind::Ready(None) } else { Kind::Pending { is_created: true, is_kept: false } };
        }
        if stand_in.is_some() {
            return Kind::Ready(None);
        }
        if !state.engines[slot.engine].charged {
            return Kind::Queued;
        }
        let is_created = current.is_some_and(|engine| engine.life != Life::Issued);
        let is_kept = seen.get(slot.engine).is_some_and(|seen| self.is_replaced(seen));
        Kind::Pending { is_created, is_kept }
    }

    /// The change of slots that the waiting sessions need, with the question to the agent that it depends on.
    fn scaling(
        &self,
        state: &State,
        seen: &[Seen],
        (slots, expected): (&[Option<Slot>; 2], Expected),
        waiting: u8,
    ) -> Vec<Effect> {
        let kinds = || slots.iter().flatten().map(|slot| (slot, self.kind(state, seen, slot, waiting)));
        let count = slots.iter().flatten().count();
        let free = kinds().filter(|(_, kind)| *kind == Kind::Ready(Some(0))).count();
        let pending = kinds().filter(|(_, kind)| matches!(kind, Kind::Pending { .. })).count();
        let missing = usize::from(waiting).saturating_sub(free);
        let new = missing.saturating_sub(if self.without.pending_seats { 0 } else { pending });
        let remove = self.removal(
            state,
            seen,
            &kinds().collect::<Vec<_>>(),
            (missing, pending, free.saturating_sub(waiting.into())),
        );
        let remove = remove.filter(|_| count > state.min || self.without.minimum && count > 0);
        let add = new.min(self.link.max - count).min(state.free.into());
        if let Some((engine, why)) = remove {
            let scale = Effect::Scale(Scale { expected, add: 0, remove: Some((engine, why)) });
            let opened = seen.get(engine).map_or(0, |seen| seen.engine.opened);
            let asks = why == Why::Idle && !self.without.retire;
            return asks.then_some(Effect::Retire { engine, opened }).into_iter().chain([scale]).collect();
        }
        if add > 0 { vec![Effect::Scale(Scale { expected, add, remove: None })] } else { Vec::new() }
    }

    /// The slot that is removed: one without a reservation, one that is on its way and not needed, or an idle one.
    fn removal(
        &self,
        state: &State,
        seen: &[Seen],
        kinds: &[(&Slot, Kind)],
        (missing, pending, surplus): (usize, usize, usize),
    ) -> Option<(usize, Why)> {
        let removable = |slot: &Slot| slot.on_demand || self.without.on_demand_only;
        let slots = || kinds.iter().filter(|(slot, _)| removable(slot)).map(|(slot, kind)| (slot.engine, *kind));
        if let Some((queued, _)) = slots().find(|(_, kind)| *kind == Kind::Queued) {
            return Some((queued, Why::Queued));
        }
        if pending > missing.min(pending) {
            let may_cancel = |is_created: bool| !is_created || state.lapsed || self.without.delayed_cancel;
            let unneeded = slots().find(
                |(_, kind)| matches!(kind, Kind::Pending { is_created, is_kept: false } if may_cancel(*is_created)),
            );
            if let Some((engine, _)) = unneeded {
                return Some((engine, Why::Unneeded));
            }
        }
        let is_idle = |engine: usize| seen.get(engine).is_some_and(|seen| seen.engine.registered && seen.engine.idle);
        let retiring = slots().find(|(engine, kind)| *kind == Kind::Retiring && is_idle(*engine));
        let idle = slots().find(|(engine, kind)| *kind == Kind::Ready(Some(0)) && is_idle(*engine) && surplus > 0);
        retiring.filter(|_| missing == 0).or(idle).map(|(engine, _)| (engine, Why::Idle))
    }
}
