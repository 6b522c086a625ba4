//! A call that arrives late: of a master that was deposed meanwhile, or one that is repeated.

use coordination::{AlterNode, Observation as Coordination};
use model::ledger::ScopedChange;
use model::number::{Epoch, Generation};
use planner::Decision;

/// An effect of a deposed master.
#[derive(Debug, Clone)]
pub struct LateCall {
    pub what: Late,
    pub epoch: Epoch,
    pub lock: u64,
}

#[derive(Debug, Clone)]
pub enum Late {
    Decision(Box<Decision>, Box<Coordination>, Generation, Option<String>),
    Ledger(Vec<ScopedChange>),
    DeleteNode(Box<AlterNode>),
}
