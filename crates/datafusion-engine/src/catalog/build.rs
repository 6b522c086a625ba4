//! Building of tables and views from their definitions, and planning of statements over them.
//!
//! A table over files is built once per definition id and cached, because inferring its columns reads files. A view is
//! planned each time, because the tables that it names may have been replaced. The location is checked whenever a table is
//! built: the definition may be older than the current configuration.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use datafusion::catalog::{EmptyCatalogProviderList, TableProvider, TableProviderFactory};
use datafusion::common::TableReference;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::datasource::ViewTable;
use datafusion::datasource::listing_table_factory::ListingTableFactory;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{CreateExternalTable, DdlStatement, Expr, LogicalPlan};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement;
use futures::future::BoxFuture;
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;

use super::definition::{Definition, ObjectKind};
use super::definitions::Definitions;
use super::prefetched::{self, PrefetchedCatalogs};
use super::provider::{SessionCatalogs, TableResult, TableSource};
use crate::dialect::{SqlDialect, names, rewrite};
use crate::error::{EngineError, statement_too_complex};
use crate::functions::{column_names, spelling};
use crate::opaque::Opaque;
use crate::session::state::session_state;
use crate::statement::clauses;
use crate::statement::plannable::plannable;
use crate::statement::relations;
use crate::storage::Locations;

/// The deepest nesting of views.
const VIEW_DEPTH_MAX: usize = 16;
/// The most planning cost of a statement, including its views. A part of an expression counts once for each part that
/// contains it, including itself, because planning derives the names of all of them: a chain `a + a + …` of length n costs
/// n². The plan of a view contains the plans of the views that it names, and counts each time that it is planned. Planning
/// does not yield, so it can be neither cancelled nor timed out; this cost takes a few seconds.
const PLAN_COST_MAX: usize = 5_000_000;
/// The cost of an operator without its expressions: each rule of the optimizer visits it several times.
const OPERATOR_COST: usize = 50;
/// The most cached tables; one more empties the cache.
const BUILT_MAX: usize = 10_000;

/// The nesting of views while a statement is planned.
#[derive(Debug, Clone, Default)]
struct ViewNesting {
    /// The number of views above the current one.
    depth: usize,
    /// The planning cost of the statement so far.
    cost: Arc<AtomicUsize>,
}

tokio::task_local! {
    static VIEW_NESTING: ViewNesting;
}

impl ViewNesting {
    fn current() -> Self {
        VIEW_NESTING.try_with(Self::clone).unwrap_or_default()
    }

    /// Adds the cost of a plan, or refuses it.
    fn charge(&self, plan: &LogicalPlan) -> Result<(), DataFusionError> {
        let budget = PLAN_COST_MAX.saturating_sub(self.cost.load(Ordering::Relaxed));
        let mut visitor = CostVisitor { budget, cost: 0, depth: 0 };
        plan.apply_with_subqueries(|part| {
            visitor.cost += OPERATOR_COST;
            if visitor.cost > budget {
                return Ok(TreeNodeRecursion::Stop);
            }
            part.apply_expressions(|expression| expression.visit(&mut visitor))
        })?;
        if visitor.cost > budget {
            let error = statement_too_complex(&format!(
                "The planning cost of its expressions, including those of its views, exceeds {PLAN_COST_MAX}. Each part of \
                 an expression counts once for every part that contains it."
            ))
            .hint("Shorten long chains of operators, or write the result of a view to a table with COPY.");
            return Err(DataFusionError::External(Box::new(error)));
        }
        self.cost.fetch_add(visitor.cost, Ordering::Relaxed);
        Ok(())
    }
}

/// Adds up the cost of expressions, and stops above the budget.
struct CostVisitor {
    budget: usize,
    cost: usize,
    depth: usize,
}

impl<'n> TreeNodeVisitor<'n> for CostVisitor {
    type Node = Expr;

    fn f_down(&mut self, _: &'n Expr) -> Result<TreeNodeRecursion, DataFusionError> {
        self.depth += 1;
        self.cost += self.depth;
        Ok(if self.cost > self.budget { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    }

    fn f_up(&mut self, _: &'n Expr) -> Result<TreeNodeRecursion, DataFusionError> {
        self.depth -= 1;
        Ok(TreeNodeRecursion::Continue)
    }
}

/// A built table and the id of the definition that it was built from.
type Built = (String, Arc<dyn TableProvider>);

/// The tenant's catalog as one engine sees it.
#[derive(Debug)]
pub struct Catalog {
    definitions: Definitions,
    locations: Arc<Locations>,
    reader: Opaque<SessionState>,
    built: Mutex<HashMap<(String, String), Built>>,
}

impl Catalog {
    /// The catalog of these definitions, which are planned with `config` and `runtime`.
    pub fn new(
        definitions: Definitions,
        locations: Arc<Locations>,
        config: SessionConfig,
        runtime: Arc<RuntimeEnv>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|catalog: &Weak<Self>| {
            let source: Weak<dyn TableSource> = Weak::clone(catalog) as _;
            let catalogs = Arc::new(SessionCatalogs::for_definitions(source));
            let reader = Opaque::new(session_state(config, runtime, catalogs, ""));
            Self { definitions, locations, reader, built: Mutex::default() }
        })
    }

    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// The folders that tables may be in.
    pub fn locations(&self) -> &Locations {
        &self.locations
    }

    /// A table or view that can be scanned; `None` if there is no such definition.
    ///
    /// The future is boxed so that the compiler proves only once, here, that a plan is `Send`; in each method of an
    /// `async_trait` the proof would be repeated, which takes seconds (apache/datafusion#13814).
    pub fn table<'a>(&'a self, schema: &'a str, name: &'a str) -> BoxFuture<'a, TableResult> {
        Box::pin(async move {
            match self.definitions.read(schema, name)? {
                None => Ok(None),
                Some(definition) => self.build(&definition).await.map(Some),
            }
        })
    }

    /// Builds the table or view of a definition.
    pub async fn build(&self, definition: &Definition) -> Result<Arc<dyn TableProvider>, EngineError> {
        match definition.kind {
            ObjectKind::ExternalTable => self.external_table(definition).await,
            ObjectKind::View => {
                let above = ViewNesting::current();
                if above.depth >= VIEW_DEPTH_MAX {
                    return Err(UserError::new(
                        ErrorKind::ProgramLimit,
                        format!(
                            "view \"{}\" depends on more than {VIEW_DEPTH_MAX} levels of views, or on itself",
                            definition.name
                        ),
                    )
                    .into());
                }
                let below = ViewNesting { depth: above.depth + 1, ..above };
                Box::pin(VIEW_NESTING.scope(below, self.view(definition))).await
            }
        }
    }

    async fn external_table(&self, definition: &Definition) -> Result<Arc<dyn TableProvider>, EngineError> {
        let key = (definition.schema.clone(), definition.name.clone());
        if let Some((id, table)) = self.built().get(&key)
            && *id == definition.id
        {
            return Ok(Arc::clone(table));
        }
        let (state, plan) = self.read(definition).await?;
        let LogicalPlan::Ddl(DdlStatement::CreateExternalTable(mut command)) = plan else {
            return Err(not_a(definition));
        };
        confine(&self.locations, &mut command)?;
        command.name = TableReference::partial(definition.schema.as_str(), definition.name.as_str());
        command.definition = Some(definition.statement.clone());
        let table = ListingTableFactory::new().create(&state, &command).await?;
        if table.schema().fields().is_empty() {
            return Err(UserError::new(
                ErrorKind::Io,
                format!("location of table \"{}\" has no files from which to infer the columns", definition.name),
            )
            .hint("Specify the columns in parentheses after the table name.")
            .with_sqlstate("58P01")
            .into());
        }
        let mut built = self.built();
        if built.len() >= BUILT_MAX {
            built.clear();
        }
        built.insert(key, (definition.id.clone(), Arc::clone(&table)));
        Ok(table)
    }

    async fn view(&self, definition: &Definition) -> Result<Arc<dyn TableProvider>, EngineError> {
        let (_, plan) = self.read(definition).await?;
        let LogicalPlan::Ddl(DdlStatement::CreateView(command)) = plan else {
            return Err(not_a(definition));
        };
        Ok(Arc::new(ViewTable::new(coerced(Arc::unwrap_or_clone(command.input))?, Some(definition.statement.clone()))))
    }

    async fn read(&self, definition: &Definition) -> Result<(SessionState, LogicalPlan), EngineError> {
        let mut state = SessionState::clone(&self.reader);
        state.mark_start_execution();
        let options = state.config_mut().options_mut();
        for (key, value) in &definition.parser {
            options.set(key, value)?;
        }
        options.catalog.default_schema.clone_from(&definition.default_schema);
        let dialect = SqlDialect::from_definition(definition.dialect.as_deref(), options)?;
        let (statement, _) = plannable(dialect.statement(&definition.statement, options)?);
        let plan = plan(&mut state, statement).await?;
        Ok((state, plan))
    }

    fn built(&self) -> parking_lot::MutexGuard<'_, HashMap<(String, String), Built>> {
        self.built.lock()
    }
}

impl TableSource for Catalog {
    fn definitions(&self) -> &Definitions {
        Self::definitions(self)
    }

    fn table<'a>(&'a self, schema: &'a str, name: &'a str) -> BoxFuture<'a, TableResult> {
        Self::table(self, schema, name)
    }
}

/// Plans a statement. CREATE EXTERNAL TABLE is planned without a catalog: `DataFusion` would look up the table itself,
/// which may no longer be buildable or is being built right now. A statement that is too complex is refused before its
/// plan is processed further.
pub async fn plan(state: &mut SessionState, statement: Statement) -> Result<LogicalPlan, DataFusionError> {
    relations::check_statement(&statement).map_err(|refused| DataFusionError::External(Box::new(refused)))?;
    let mut statement = rewrite::rewritten(statement);
    column_names::name_columns(&mut statement);
    spelling::respell(&mut statement);
    clauses::check(&statement, state).map_err(|refused| DataFusionError::External(Box::new(refused)))?;
    if matches!(statement, Statement::CreateExternalTable(_)) {
        let catalogs = Arc::clone(state.catalog_list());
        state.register_catalog_list(Arc::new(EmptyCatalogProviderList));
        let plan = state.statement_to_plan(statement).await;
        state.register_catalog_list(catalogs);
        return plan;
    }
    let nesting = ViewNesting::current();
    let plan = VIEW_NESTING.scope(nesting.clone(), plan_over_tables(state, statement)).await?;
    nesting.charge(&plan)?;
    relations::check_plan(&plan)?;
    Ok(plan)
}

/// Looks up the statement's tables, matches the case of its names with theirs, and plans it.
async fn plan_over_tables(state: &mut SessionState, mut statement: Statement) -> Result<LogicalPlan, DataFusionError> {
    let mut tables = prefetched::tables(state, &statement).await?;
    names::match_case(&mut statement, &mut tables)?;
    let catalogs = Arc::clone(state.catalog_list());
    state
        .register_catalog_list(Arc::new(PrefetchedCatalogs { inner: Arc::clone(&catalogs), tables: Arc::new(tables) }));
    let plan = state.statement_to_plan(statement).await;
    state.register_catalog_list(catalogs);
    plan
}

/// Resolves the locations of a CREATE EXTERNAL TABLE, or refuses them. Returns whether all exist.
pub fn confine(locations: &Locations, command: &mut CreateExternalTable) -> Result<bool, UserError> {
    if command.unbounded {
        return Err(UserError::new(ErrorKind::NotSupported, "unbounded tables are not supported"));
    }
    let mut all_exist = true;
    for location in &mut command.locations {
        let confined = locations.confine(location)?;
        all_exist &= confined.exists;
        *location = confined.text;
    }
    Ok(all_exist)
}

/// A view's plan with coerced types, so that its columns have their final types.
pub fn coerced(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]).execute_and_check(
        plan,
        &datafusion::config::ConfigOptions::default(),
        |_, _| {},
    )
}

fn not_a(definition: &Definition) -> EngineError {
    let word = definition.kind.word();
    UserError::new(ErrorKind::Io, format!("definition of \"{}\" does not define a {word}", definition.name)).into()
}
