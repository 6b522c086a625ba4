//! From a definition to something that DataFusion can scan.
//!
//! A table over files is built once per definition id and kept: inferring its columns reads files. A view is planned anew
//! each time, because what it names may have been replaced. The location is checked again whenever a table is built: the
//! definition may be older than the present configuration.

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
use crate::error::EngineError;
use crate::functions::{column_names, spelling};
use crate::opaque::Opaque;
use crate::session::state::session_state;
use crate::statement::clauses;
use crate::statement::plannable::plannable;
use crate::statement::relations;
use crate::storage::Locations;

/// How many views may stand on one another.
const VIEW_DEPTH_MAX: usize = 16;
/// What a statement may weigh, with the views on which it stands. A part of an expression counts once for each part that it
/// is in, itself included, because planning names all of them: so `a + a + …` with n of them weighs n². A view is planned
/// by putting the plans of those that it names into its own, and counts each time that it is planned. Whoever plans does not
/// give way, so what takes long can be neither cancelled nor timed out: this much takes a few seconds.
const PLAN_COST_MAX: usize = 5_000_000;
/// What an operator of a plan weighs without its expressions: each rule of the optimizer looks at it several times.
const OPERATOR_COST: usize = 50;
/// How many built tables are kept; one more, and all are built anew when next needed.
const BUILT_MAX: usize = 10_000;

/// What is known, while a statement is planned, of the views on which it stands.
#[derive(Debug, Clone, Default)]
struct ViewNesting {
    /// How many stand above what is being planned.
    depth: usize,
    /// What everything weighs that was planned for the statement so far.
    cost: Arc<AtomicUsize>,
}

tokio::task_local! {
    static VIEW_NESTING: ViewNesting;
}

impl ViewNesting {
    fn current() -> Self {
        VIEW_NESTING.try_with(Self::clone).unwrap_or_default()
    }

    /// Adds a plan, or refuses it.
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
            let error = UserError::new(ErrorKind::ProgramLimit, "the statement is too much to be planned")
                .detail(format!(
                    "Its expressions, with those of the views on which it stands, weigh more than {PLAN_COST_MAX}: each part \
                     counts once for every part that it is in."
                ))
                .hint("Shorten long chains of operators, or write what a view computes into a table with COPY.")
                .with_sqlstate("54001");
            return Err(DataFusionError::External(Box::new(error)));
        }
        self.cost.fetch_add(visitor.cost, Ordering::Relaxed);
        Ok(())
    }
}

/// Weighs expressions, and stops when they are too heavy.
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
    /// Reads definitions from there. `config` and `runtime` are those under which definitions are read.
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

    /// What is defined.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// The folders in which tables may lie.
    pub fn locations(&self) -> &Locations {
        &self.locations
    }

    /// A table or view that can be scanned; none if there is no such definition.
    ///
    /// The future is boxed here because the compiler proves here, once, that what a plan holds may go to another thread;
    /// inside a method of an `async_trait` it would prove it anew each time, which takes seconds
    /// (apache/datafusion#13814).
    pub fn table<'a>(&'a self, schema: &'a str, name: &'a str) -> BoxFuture<'a, TableResult> {
        Box::pin(async move {
            match self.definitions.read(schema, name)? {
                None => Ok(None),
                Some(definition) => self.build(&definition).await.map(Some),
            }
        })
    }

    /// Builds what a definition defines, or says why it can't be built.
    pub async fn build(&self, definition: &Definition) -> Result<Arc<dyn TableProvider>, EngineError> {
        match definition.kind {
            ObjectKind::ExternalTable => self.external_table(definition).await,
            ObjectKind::View => {
                let above = ViewNesting::current();
                if above.depth >= VIEW_DEPTH_MAX {
                    return Err(UserError::new(
                        ErrorKind::ProgramLimit,
                        format!(
                            "view \"{}\" stands on more than {VIEW_DEPTH_MAX} views, or on itself",
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
                format!("the location of table \"{}\" has no files to read the columns from", definition.name),
            )
            .hint("Write the columns in parentheses after the table's name.")
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

/// Plans a statement. For CREATE EXTERNAL TABLE no name is looked up: `DataFusion` would look for the table itself, and
/// find one that can't be built any more, or is being built just now. A statement that weighs too much is refused before
/// anything else looks at its plan.
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

/// Looks the statement's tables up, matches its names with theirs, and plans it.
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

/// Replaces the locations of a CREATE EXTERNAL TABLE by their resolved form, or refuses them. Returns whether all exist.
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

/// A view's plan with the types that its columns really have.
pub fn coerced(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]).execute_and_check(
        plan,
        &datafusion::config::ConfigOptions::default(),
        |_, _| {},
    )
}

fn not_a(definition: &Definition) -> EngineError {
    let word = definition.kind.word();
    UserError::new(ErrorKind::Io, format!("the definition of \"{}\" does not define a {word}", definition.name)).into()
}
