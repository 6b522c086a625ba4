//! Makes operators that multiply rows give way, so that they can be cancelled.
//!
//! A task that is cancelled ends where it next gives way. `DataFusion` lets the leaves of a plan do so: an operator that
//! asks them for each batch gives way with them. A join or an unnest can make millions of batches from one, asks no leaf
//! in between, and would compute on for hours after its client is gone.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};

/// Parts of the names of operators that make more batches than they are given.
const MULTIPLIERS: [&str; 3] = ["Join", "Unnest", "Recursive"];

/// The last rule of the physical optimizer.
#[derive(Debug, Default)]
pub struct CooperativeOperators;

impl PhysicalOptimizerRule for CooperativeOperators {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let wrapped = plan.transform_up(|plan| {
            if MULTIPLIERS.iter().any(|part| plan.name().contains(part)) {
                return Ok(Transformed::yes(Arc::new(CooperativeExec::new(plan)) as Arc<dyn ExecutionPlan>));
            }
            Ok(Transformed::no(plan))
        })?;
        tracing::trace!(plan = %displayable(wrapped.data.as_ref()).indent(false), "planned");
        Ok(wrapped.data)
    }

    fn name(&self) -> &'static str {
        "cooperative_operators"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
