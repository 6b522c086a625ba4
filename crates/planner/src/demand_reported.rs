//! What a plan reports of demand.

use std::collections::BTreeMap;
use std::time::Duration;

use model::demand::ScalingGroup;
use model::demand_report::UnmetDemand;

/// The part of a plan that is no decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DemandReported {
    /// The sessions that were assigned to each group.
    pub assigned: BTreeMap<ScalingGroup, u64>,
    pub unmet: Vec<UnmetDemand>,
    /// The time until an idle engine reaches its timeout.
    pub due: Option<Duration>,
}
