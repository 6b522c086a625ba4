//! DataFusion's state of a session: its settings and functions over the engine's shared resources.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::CatalogProviderList;
use datafusion::error::Result as PlanResult;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionConfig;
use datafusion::scalar::ScalarValue;

use crate::catalog::{CATALOG, DEFAULT_SCHEMA};
use crate::config::Config;
use crate::error::{EngineError, user_error};
use crate::functions::Functions;
use crate::session::cooperative::CooperativeOperators;
use crate::session::settings;
use crate::storage::resources::Resources;

/// The settings of a new session, or an error that names an invalid property of the unit.
pub fn initial_settings(config: &Config) -> Result<SessionConfig, EngineError> {
    let partitions = config.cpu_threads;
    let mut settings = SessionConfig::new()
        .with_target_partitions(partitions)
        .with_default_catalog_and_schema(CATALOG, DEFAULT_SCHEMA)
        .with_create_default_catalog_and_schema(false)
        // The catalog provides its own, which tolerates broken tables.
        .with_information_schema(false)
        .with_sort_spill_reservation_bytes(Resources::sort_reservation(config, partitions));
    settings.set_extension(Arc::new(Functions::new(config.limits.function_bytes)));
    // NULL is less than every value, as in Spark.
    "nulls_min".clone_into(&mut settings.options_mut().sql_parser.default_null_ordering);
    // A table's files may be in folders such as `year=2026/`; other subfolders belong to other tables.
    settings.options_mut().execution.listing_table_ignore_subdirectory = true;
    // Spark and Hive write timestamps as INT96. Read as nanoseconds, DataFusion's default, those after 2262 would be
    // silently wrong.
    settings.options_mut().execution.parquet.coerce_int96 = Some("us".to_owned());
    for (key, value) in config.properties.iter().filter(|(key, _)| key.starts_with("datafusion.")) {
        let why = settings::check(key, value).map_err(|error| error.text());
        let why = why.and_then(|()| settings_set(&mut settings, key, value));
        why.map_err(|why| EngineError::Config { key: format!("properties.{key}"), why })?;
    }
    Ok(settings)
}

fn settings_set(settings: &mut SessionConfig, key: &str, value: &str) -> Result<(), String> {
    settings.options_mut().set(key, value).map_err(|error| user_error(&error).text())
}

/// The state of a session: DataFusion's and this crate's functions, over the shared resources.
pub fn session_state(
    settings: SessionConfig,
    runtime: Arc<RuntimeEnv>,
    catalogs: Arc<dyn CatalogProviderList>,
    user: &str,
) -> SessionState {
    let functions = settings.get_extension::<Functions>();
    let builder = SessionStateBuilder::new()
        .with_config(settings)
        .with_runtime_env(runtime)
        .with_catalog_list(catalogs)
        .with_physical_optimizer_rule(Arc::new(CooperativeOperators));
    // The engine's planners come first: the first one that supports an operator plans it.
    let builder = match &functions {
        Some(functions) => functions.rules(builder),
        None => builder,
    };
    let mut state = builder.with_default_features().build();
    if let Some(functions) = functions
        && let Err(error) = functions.register(&mut state)
    {
        tracing::warn!(%error, "could not register functions");
    }
    for (name, property) in [
        ("current_catalog", SessionProperty::Catalog),
        ("current_database", SessionProperty::Schema),
        ("current_schema", SessionProperty::Schema),
        ("current_user", SessionProperty::User(user.to_owned())),
        ("session_user", SessionProperty::User(user.to_owned())),
        ("user", SessionProperty::User(user.to_owned())),
    ] {
        let function = SessionFunction { name, property, signature: Signature::nullary(Volatility::Stable) };
        if let Err(error) = state.register_udf(Arc::new(ScalarUDF::new_from_impl(function))) {
            tracing::warn!(%error, name, "could not register function");
        }
    }
    state
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SessionProperty {
    Catalog,
    Schema,
    User(String),
}

/// A function without arguments that returns a property of the session.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SessionFunction {
    name: &'static str,
    property: SessionProperty,
    signature: Signature,
}

impl ScalarUDFImpl for SessionFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let catalog = &args.config_options.catalog;
        let text = match &self.property {
            SessionProperty::Catalog => catalog.default_catalog.clone(),
            SessionProperty::Schema => catalog.default_schema.clone(),
            SessionProperty::User(user) => user.clone(),
        };
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(text))))
    }
}
