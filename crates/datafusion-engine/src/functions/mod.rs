//! The functions and operators of the engine's SQL: DataFusion's, with Spark's semantics where the two differ.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`bounded`], [`measure`] | a limit ([`Limits::function_bytes`]) on results, checked before they are allocated |
//! | [`wide`] | the same limit for large constants, which an operator repeats for each row of a batch |
//! | [`operators`], [`quotients`] | `/`, `%`, `||`, `[…]` and comparisons with Spark's semantics |
//! | [`casts`] | a failed cast returns NULL |
//! | [`spelling`], [`template`] | Spark's functions that DataFusion provides under another name or with other arguments |
//! | [`column_names`] | the names of result columns without an alias |
//! | [`mod@dispatch`], [`lenient`], [`all_or_null`] | small adapters: one name for two functions, NULL instead of an error, a tuple |
//! | [`rows`], [`computed`], [`type_names`] | functions that neither DataFusion nor `datafusion-spark` provides |
//! | [`hints`] | hints for functions that do not exist |
//!
//! Order of preference for a function: DataFusion's, `datafusion-spark`'s, a rewrite to either, own code. Functions that
//! only DataFusion has are kept. The remaining differences from Spark are listed in `docs/sql-differences.md`.
//!
//! [`Limits::function_bytes`]: crate::config::Limits::function_bytes

mod adapter;
pub mod all_or_null;
pub mod bounded;
pub mod casts;
pub mod column_names;
pub mod computed;
pub mod dispatch;
pub mod hints;
pub mod java_pattern;
pub mod json_path;
pub mod lenient;
pub mod measure;
pub mod operators;
pub mod quotients;
pub mod rows;
pub mod spelling;
pub mod template;
pub mod type_names;
pub mod wide;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::error::DataFusionError;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{FunctionRegistry, SessionStateDefaults};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

use bounded::Bounded;
use datafusion::functions::core;
use datafusion::functions_nested::{concat as list_concat, extract};
use datafusion_spark::function::string::concat as spark_concat;
use dispatch::dispatch;
use measure::measure_of;

/// Functions of `datafusion-spark` that do not replace DataFusion's, which accept more types.
const KEPT: [&str; 2] = ["avg", "trunc"];

/// The functions of one engine, built once and shared by its sessions.
#[derive(Debug)]
pub struct Functions {
    scalar: Vec<Arc<ScalarUDF>>,
    by_name: HashMap<String, Arc<ScalarUDF>>,
    aggregate: Vec<Arc<AggregateUDF>>,
    bytes_max: usize,
}

impl Functions {
    /// All functions; a call may return at most `bytes_max` bytes for one batch.
    pub fn new(bytes_max: usize) -> Self {
        let defaults = SessionStateDefaults::default_scalar_functions();
        let known =
            defaults.into_iter().chain(datafusion_spark::all_default_scalar_functions().into_iter().filter(kept));
        let scalar: Vec<_> = known
            .chain(computed::functions())
            .chain([Arc::new(all_or_null::all_or_null()), Arc::new(type_names::type_of())])
            .chain([Arc::new(dispatch("concat", list_concat::array_concat_udf(), spark_concat()))])
            .chain([Arc::new(dispatch("element_at", extract::array_element_udf(), core::get_field()))])
            .map(|function| match measure_of(function.name()) {
                Some(measure) => Arc::new(ScalarUDF::new_from_impl(Bounded::new(function, measure, bytes_max))),
                None => function,
            })
            .collect();
        let mut by_name = HashMap::new();
        for function in &scalar {
            for name in function.aliases().iter().cloned().chain([function.name().to_owned()]) {
                by_name.insert(name, Arc::clone(function));
            }
        }
        let mut aggregate = datafusion_spark::all_default_aggregate_functions();
        aggregate.retain(|function| !KEPT.contains(&function.name()));
        Self { scalar, by_name, aggregate, bytes_max }
    }

    /// The function with this name or alias.
    pub fn scalar(&self, name: &str) -> Result<&Arc<ScalarUDF>, DataFusionError> {
        self.by_name.get(name).ok_or_else(|| DataFusionError::Internal(format!("function {name} is not registered")))
    }

    /// Adds the planners and rules of this module to those of a session.
    pub fn rules(self: &Arc<Self>, builder: SessionStateBuilder) -> SessionStateBuilder {
        let ours: Arc<dyn ExprPlanner> = Arc::new(operators::Operators::new(Arc::clone(self)));
        builder
            .with_expr_planners(vec![ours])
            .with_analyzer_rule(Arc::new(casts::LenientCasts::default()))
            .with_optimizer_rule(Arc::new(wide::WideConstants::new(self.bytes_max)))
    }

    /// Registers the functions in a session. DataFusion's of the same names are replaced.
    pub fn register(&self, state: &mut SessionState) -> Result<(), DataFusionError> {
        for function in &self.scalar {
            state.register_udf(Arc::clone(function))?;
        }
        for function in &self.aggregate {
            state.register_udaf(Arc::clone(function))?;
        }
        Ok(())
    }
}

fn kept(function: &Arc<ScalarUDF>) -> bool {
    !KEPT.contains(&function.name())
}
