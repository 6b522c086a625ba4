//! An optimizer rule that makes operators yield, so that they can be cancelled.
//!
//! A cancelled task ends when it next yields. `DataFusion` makes the leaves of a plan yield, and with them each operator
//! that reads a leaf for each batch. A join or an unnest can produce millions of batches from one without reading a leaf
//! in between, and would run for hours after its client is gone.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};

/// Parts of the names of operators that produce more batches than they read.
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
