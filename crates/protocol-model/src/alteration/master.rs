//! The holder of the lock: raise the epoch, then tick after tick: observe, settle, snapshot, plan, execute, finish.

use super::state::{Master, Observed, Plan, Progress, Row, Snapshot, State, Tick};
use super::{Action, Alteration};

/// How a tick continues.
enum Next {
    Goes(Tick),
    /// The epoch is another's: raise it again, if the lock is still held.
    Deposed,
}

impl Alteration {
    pub(super) fn master_actions(state: &State, actions: &mut Vec<Action>) {
        let Master::Acting { tick, .. } = state.master else {
            actions.push(match state.master {
                Master::Vacant => Action::Win,
                Master::Won => Action::ReadEpoch,
                _ => Action::RaiseEpoch,
            });
            return;
        };
        match tick {
            Tick::Idle => actions.push(Action::Observe),
            Tick::Observed(_) => actions.extend([Action::GraceOver, Action::Settle]),
            Tick::Aborting(_) => actions.push(Action::MasterAbort),
            Tick::Deleting(_) => actions.push(Action::DeleteNode),
            Tick::Settled(_) => actions.extend([Action::Snapshot(false), Action::Snapshot(true)]),
            Tick::Planned(plan) => actions.push(plan.next()),
        }
    }

    pub(super) fn master(&self, state: &mut State, action: Action) -> bool {
        match (action, state.master) {
            (Action::Win, Master::Vacant) => state.master = Master::Won,
            (Action::ReadEpoch, Master::Won) => state.master = Master::Read(state.db.epoch),
            (Action::RaiseEpoch, Master::Read(read)) => {
                state.master = if state.db.epoch == read {
                    state.db.epoch += 1;
                    Master::Acting { epoch: read + 1, tick: Tick::Idle }
                } else {
                    Master::Won
                };
            }
            (_, Master::Acting { epoch, tick }) => {
                let Some(next) = self.tick(state, action, epoch, tick) else { return false };
                state.master = match next {
                    Next::Goes(tick) => Master::Acting { epoch, tick },
                    Next::Deposed => Master::Won,
                };
            }
            _ => return false,
        }
        true
    }

    /// The tick after the step; `None` if the step is not enabled.
    fn tick(&self, state: &mut State, action: Action, epoch: u8, tick: Tick) -> Option<Next> {
        Some(Next::Goes(match (action, tick) {
            (Action::Observe, Tick::Idle) => {
                if self.without.level && state.node.is_none() {
                    return None;
                }
                let early = self.without.order.then(|| snapshot(state));
                Tick::Observed(Observed { node: state.node, pods: state.pods, early })
            }
            (Action::Settle, Tick::Observed(seen)) => self.settle(state, seen),
            (Action::GraceOver, Tick::Observed(seen)) => {
                let id = seen.node?.unsettled(&state.db.rows)?;
                let in_doubt = state.db.rows[id] == Row::InDoubt;
                in_doubt.then(|| self.abort_or_delete(seen))?
            }
            (Action::MasterAbort, Tick::Aborting(seen)) => {
                let id = seen.node?.unsettled(&state.db.rows)?;
                if self.key_is_held(state, id) {
                    return None;
                }
                self.abort(state, id);
                match seen.node?.unsettled(&state.db.rows).map(|id| state.db.rows[id]) {
                    Some(row) if !row.is_finished() => Tick::Settled(seen),
                    _ => Tick::Deleting(seen),
                }
            }
            (Action::DeleteNode, Tick::Deleting(seen)) => {
                self.delete_node(state, seen);
                Tick::Settled(Observed { node: None, ..seen })
            }
            (Action::Snapshot(late), Tick::Settled(seen)) => {
                if late && !state.refusing {
                    return None;
                }
                if state.db.epoch != epoch {
                    return Some(Next::Deposed);
                }
                Plan::ticking(self.plan(state, seen, late))
            }
            (Action::CreateEngine | Action::DeleteEngine | Action::Finish, Tick::Planned(plan))
                if plan.next() == action =>
            {
                return self.effect(state, epoch, plan);
            }
            (Action::DeleteNode, Tick::Planned(plan)) if plan.next() == action => {
                self.delete_node(state, Observed { node: plan.release, pods: [0; 2], early: None });
                Tick::Idle
            }
            _ => return None,
        }))
    }

    /// The next step for an alteration in doubt whose grace has expired.
    fn abort_or_delete(&self, seen: Observed) -> Tick {
        if self.without.in_doubt_stays { Tick::Deleting(seen) } else { Tick::Aborting(seen) }
    }

    fn settle(&self, state: &State, seen: Observed) -> Tick {
        let Some(node) = seen.node else { return Tick::Settled(seen) };
        let Some(id) = node.unsettled(&state.db.rows) else {
            return if self.without.debris_deleted { Tick::Settled(seen) } else { Tick::Deleting(seen) };
        };
        let row = state.db.rows[id];
        if row == Row::InDoubt {
            // The agent is gone when its session was no longer registered in the observation.
            if node.agent.is_none() && !self.without.outcome { self.abort_or_delete(seen) } else { Tick::Settled(seen) }
        } else if row.is_finished() {
            Tick::Deleting(seen)
        } else {
            Tick::Settled(seen)
        }
    }

    fn delete_node(&self, state: &mut State, seen: Observed) {
        let (Some(seen), Some(current)) = (seen.node, state.node) else { return };
        if (current.child, current.second) != (seen.child, seen.second) && !self.without.node_by_child {
            return;
        }
        let lost = [current.child, current.second].into_iter().flatten();
        state.history.node_lost_early |= lost.into_iter().any(|id| !state.db.rows[id].is_decided());
        state.node = None;
    }

    fn plan(&self, state: &State, seen: Observed, late: bool) -> Plan {
        let mut snap = seen.early.unwrap_or_else(|| snapshot(state));
        // The row was read with the snapshot, except in the variant without that order.
        snap.rows = if self.without.order { state.db.rows } else { snap.rows };
        let mut plan =
            Plan { generation: snap.generation, create: [0; 2], delete: [0; 2], finish: [None; 2], release: None };
        for object in 0..2 {
            let (slot, pods) = (snap.slots[object], seen.pods[object]);
            if slot != 0 && pods & 1 << slot == 0 {
                plan.create[object] = slot;
            }
            // Pods that were created from a newer snapshot are not touched.
            let known = (1_u32 << (snap.generation + 1)) as u16;
            let desired = if slot == 0 { 0 } else { 1 << slot };
            plan.delete[object] = pods & (known - 1) & !desired;
        }
        for id in 0..2 {
            let Row::Committed { object, progress, generation, .. } = snap.rows[id] else { continue };
            if generation > snap.generation && !self.without.generation_rule {
                continue;
            }
            let named = seen.node.is_some_and(|node| node.stands_for(id));
            if self.without.finish_without_node && !named {
                continue;
            }
            let missing = plan.create[object] != 0 || plan.delete[object] != 0;
            plan.finish[id] = match progress {
                Progress::Converging | Progress::Stalled if !missing => Some(Progress::Converged),
                Progress::Converging if late => Some(Progress::Stalled),
                _ => None,
            };
        }
        let mut children = seen.node.into_iter().flat_map(|node| [node.child, node.second]).flatten();
        // The snapshot has the alteration, so this tick acts on it; it need not have converged.
        let is_known = |id: usize| {
            let known = matches!(snap.rows[id], Row::Committed { generation, .. } if generation <= snap.generation);
            known || plan.finish[id].is_some()
        };
        let finishes = seen.node.is_some_and(|node| node.child.is_some()) && children.all(is_known);
        let unasked = self.without.outcome && plan.create == [0; 2] && plan.delete == [0; 2];
        plan.release = seen.node.filter(|node| finishes || unasked && node.child.is_some());
        plan
    }

    /// Carries out the plan's next effect.
    fn effect(&self, state: &mut State, epoch: u8, mut plan: Plan) -> Option<Next> {
        if let Some(object) = plan.create.iter().position(|slot| *slot != 0) {
            let slot = std::mem::take(&mut plan.create[object]);
            if !state.refusing {
                create(state, object, slot);
            }
        } else if let Some(object) = plan.delete.iter().position(|pods| *pods != 0) {
            state.pods[object] &= !std::mem::take(&mut plan.delete[object]);
        } else if let Some(id) = plan.finish.iter().position(Option::is_some) {
            let progress = plan.finish[id].take()?;
            if epoch != state.db.epoch && !self.without.epoch_in_transaction {
                return Some(Next::Deposed);
            }
            self.finish(state, id, progress, plan.generation);
        }
        Some(Next::Goes(Plan::ticking(plan)))
    }

    /// Writes the progress of an alteration; the caller has checked the epoch.
    pub(super) fn finish(&self, state: &mut State, id: usize, to: Progress, plan: u8) {
        let Row::Committed { generation, progress, .. } = &mut state.db.rows[id] else { return };
        let known = *generation <= plan || self.without.generation_rule;
        match (*progress, to) {
            (Progress::Converging | Progress::Stalled, Progress::Converged) if known => *progress = to,
            (Progress::Converging, Progress::Stalled) => *progress = to,
            _ => {}
        }
    }
}

fn snapshot(state: &State) -> Snapshot {
    let slots = [state.db.objects[0].slot, state.db.objects[1].slot];
    Snapshot { generation: state.db.generation, slots, rows: state.db.rows }
}

pub(super) fn create(state: &mut State, object: usize, slot: u8) {
    state.pods[object] |= 1 << slot;
    state.history.made |= 1 << slot;
}

impl Plan {
    /// The next step of the plan.
    pub(super) fn next(&self) -> Action {
        if self.create != [0; 2] {
            Action::CreateEngine
        } else if self.delete != [0; 2] {
            Action::DeleteEngine
        } else if self.finish != [None; 2] {
            Action::Finish
        } else {
            Action::DeleteNode
        }
    }

    /// The tick that continues with this plan.
    fn ticking(plan: Self) -> Tick {
        let over = plan.next() == Action::DeleteNode && plan.release.is_none();
        if over { Tick::Idle } else { Tick::Planned(plan) }
    }
}
