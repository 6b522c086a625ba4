//! SET: the settings that a session may change, and those that are only stored.
//!
//! A key with the prefix `datafusion.` changes DataFusion's setting, unless it affects other sessions: shared resources
//! (`datafusion.runtime.*`: memory, disk) are configured by the unit. Every other key is stored and shown, as in Spark;
//! drivers set many. Invariant: keys, values and their number are limited.

use std::collections::BTreeMap;
use std::time::Duration;

use datafusion::config::ConfigEntry;
use datafusion::logical_expr::{LogicalPlan, ResetVariable, SetVariable, Statement};
use datafusion::prelude::{SessionConfig, SessionContext};
use model::error::{ErrorKind, UserError};

use crate::error::EngineError;

/// The most stored keys of a session.
pub const VARIABLES_MAX: usize = 1_000;
/// The longest key and the longest value, in bytes.
pub const VARIABLE_BYTES_MAX: usize = 64 << 10;
/// The largest `datafusion.execution.batch_size`: a result holds a few batches in memory.
pub const BATCH_SIZE_MAX: usize = 65_536;
/// The largest `datafusion.execution.target_partitions`.
pub const PARTITIONS_MAX: usize = 1_024;
/// The largest `datafusion.sql_parser.recursion_limit`.
pub const RECURSION_MAX: usize = 200;
/// The longest wait of a `GetOperationStatus`.
pub const LONG_POLL_MAX: Duration = Duration::from_secs(30);
/// The key of the wait of `GetOperationStatus`.
pub const LONG_POLL: &str = "hive.server2.long.polling.timeout";

/// How the engine treats a key.
#[derive(Debug, PartialEq, Eq)]
enum SettingClass {
    /// The current schema.
    Schema,
    /// A setting of DataFusion.
    DataFusion,
    /// A setting of DataFusion, an integer from 1 to this limit.
    Limited(usize),
    /// Refused, with the reason.
    Refused(&'static str),
    /// Only stored.
    Kept,
}

fn class_of(key: &str) -> SettingClass {
    match key {
        "datafusion.catalog.default_schema" => SettingClass::Schema,
        "datafusion.execution.batch_size" => SettingClass::Limited(BATCH_SIZE_MAX),
        "datafusion.execution.target_partitions" | "datafusion.execution.planning_concurrency" => {
            SettingClass::Limited(PARTITIONS_MAX)
        }
        "datafusion.sql_parser.recursion_limit" => SettingClass::Limited(RECURSION_MAX),
        _ if key.starts_with("datafusion.runtime.") => {
            SettingClass::Refused("It is shared by all sessions of the engine.")
        }
        _ if key.starts_with("datafusion.catalog.") => SettingClass::Refused("The catalog belongs to the tenant."),
        _ if key.starts_with("datafusion.") => SettingClass::DataFusion,
        _ => SettingClass::Kept,
    }
}

/// The key without the prefix that names its origin.
pub fn plain_key(key: &str) -> &str {
    let key = key.trim();
    for prefix in ["hiveconf:", "hivevar:", "spark:"] {
        if key.len() > prefix.len()
            && key.is_char_boundary(prefix.len())
            && key[..prefix.len()].eq_ignore_ascii_case(prefix)
        {
            return &key[prefix.len()..];
        }
    }
    key
}

/// The outcome of a SET.
#[derive(Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// The setting is applied.
    Applied,
    /// The session has to change to this schema.
    UseSchema(String),
}

/// Changes one setting of a session.
pub async fn set(
    context: &SessionContext,
    variables: &mut BTreeMap<String, String>,
    key: &str,
    value: &str,
) -> Result<SetOutcome, EngineError> {
    let key = plain_key(key);
    if key.is_empty() {
        return Err(UserError::new(ErrorKind::Syntax, "syntax error: SET needs a key before the equals sign").into());
    }
    if key.len() > VARIABLE_BYTES_MAX || value.len() > VARIABLE_BYTES_MAX {
        return Err(UserError::new(ErrorKind::ProgramLimit, "setting is too long")
            .detail(format!("Keys and values may have at most {VARIABLE_BYTES_MAX} bytes each."))
            .into());
    }
    let lowered = key.to_ascii_lowercase();
    match class_of(&lowered) {
        SettingClass::Schema => return Ok(SetOutcome::UseSchema(unquoted(value).to_owned())),
        SettingClass::Refused(why) => return Err(refused(key, why).into()),
        SettingClass::Limited(_) | SettingClass::DataFusion => {
            check(&lowered, value)?;
            apply(context, &lowered, value).await?;
        }
        SettingClass::Kept => {
            if lowered == LONG_POLL && duration(value).is_none() {
                return Err(UserError::new(
                    ErrorKind::InvalidValue,
                    format!("invalid value for setting \"{key}\": \"{value}\""),
                )
                .hint("Specify a time, such as 500ms or 5s.")
                .into());
            }
            if variables.len() >= VARIABLES_MAX && !variables.contains_key(key) {
                return Err(UserError::new(ErrorKind::ProgramLimit, "too many settings in the session")
                    .detail(format!("The limit is {VARIABLES_MAX}."))
                    .into());
            }
            variables.insert(key.to_owned(), value.to_owned());
        }
    }
    Ok(SetOutcome::Applied)
}

/// Checks that a session may set this value. `DataFusion` itself checks that the value is valid.
pub fn check(key: &str, value: &str) -> Result<(), UserError> {
    match class_of(key) {
        SettingClass::Refused(why) => Err(refused(key, why)),
        SettingClass::Schema => Err(refused(key, "The USE statement changes it.")),
        SettingClass::Limited(max)
            if !unquoted(value).parse::<usize>().is_ok_and(|number| (1..=max).contains(&number)) =>
        {
            Err(UserError::new(ErrorKind::InvalidValue, format!("invalid value for setting \"{key}\": \"{value}\""))
                .detail(format!("The value must be a number from 1 to {max}.")))
        }
        SettingClass::Limited(_) | SettingClass::DataFusion | SettingClass::Kept => Ok(()),
    }
}

async fn apply(context: &SessionContext, key: &str, value: &str) -> Result<(), EngineError> {
    let set = SetVariable { variable: key.to_owned(), value: unquoted(value).to_owned() };
    context.execute_logical_plan(LogicalPlan::Statement(Statement::SetVariable(set))).await?;
    Ok(())
}

/// Restores the initial value of a setting. One without an initial value is reset to DataFusion's default.
async fn restore(context: &SessionContext, first: &ConfigEntry) -> Result<(), EngineError> {
    if let Some(value) = &first.value {
        return apply(context, &first.key, value).await;
    }
    let reset = Statement::ResetVariable(ResetVariable { variable: first.key.clone() });
    context.execute_logical_plan(LogicalPlan::Statement(reset)).await?;
    Ok(())
}

/// Restores the initial value of one setting, or of all settings.
pub async fn reset(
    context: &SessionContext,
    first: &SessionConfig,
    variables: &mut BTreeMap<String, String>,
    key: Option<&str>,
) -> Result<(), EngineError> {
    let first = first.options().entries();
    let own = |key: &str| matches!(class_of(key), SettingClass::DataFusion | SettingClass::Limited(_));
    let Some(key) = key.map(plain_key) else {
        variables.clear();
        for entry in first.iter().filter(|entry| own(&entry.key)) {
            if value_of(context, &entry.key) != entry.value {
                restore(context, entry).await?;
            }
        }
        return Ok(());
    };
    let lowered = key.to_ascii_lowercase();
    match class_of(&lowered) {
        SettingClass::Refused(why) => Err(refused(key, why).into()),
        SettingClass::DataFusion | SettingClass::Limited(_) => {
            let entry = first.iter().find(|entry| entry.key == lowered).ok_or_else(|| {
                UserError::new(ErrorKind::InvalidValue, format!("setting \"{key}\" does not exist"))
                    .hint("SET -v lists the settings.")
            })?;
            restore(context, entry).await
        }
        SettingClass::Schema | SettingClass::Kept => {
            variables.remove(key);
            Ok(())
        }
    }
}

/// The current value of a setting of DataFusion; `None` if there is no such setting.
pub fn value_of(context: &SessionContext, key: &str) -> Option<String> {
    let state = context.state_ref();
    let state = state.read();
    state.config_options().entries().into_iter().find(|entry| entry.key == key).and_then(|entry| entry.value)
}

fn refused(key: &str, why: &str) -> UserError {
    UserError::new(ErrorKind::InsufficientPrivilege, format!("setting \"{key}\" cannot be changed in a session"))
        .detail(why)
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    for quote in ['\'', '"'] {
        if value.len() >= 2 && value.starts_with(quote) && value.ends_with(quote) {
            return &value[1..value.len() - 1];
        }
    }
    value
}

/// A time in Hive's format: `500ms`, `5s`, `1m`, or bare milliseconds; at most [`LONG_POLL_MAX`].
pub fn duration(text: &str) -> Option<Duration> {
    let text = unquoted(text).to_ascii_lowercase();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let millis = match unit.trim() {
        "" | "ms" | "msec" => number,
        "s" | "sec" => number.checked_mul(1_000)?,
        "m" | "min" => number.checked_mul(60_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(millis).min(LONG_POLL_MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn shared_settings_are_refused_and_unknown_ones_are_kept() {
        assert!(matches!(class_of("datafusion.runtime.memory_limit"), SettingClass::Refused(_)));
        assert!(matches!(class_of("datafusion.catalog.location"), SettingClass::Refused(_)));
        assert_eq!(class_of("datafusion.optimizer.max_passes"), SettingClass::DataFusion);
        assert_eq!(class_of("spark.sql.shuffle.partitions"), SettingClass::Kept);
    }

    #[test]
    fn times_are_read_as_hive_writes_them() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("'5s'"), Some(Duration::from_secs(5)));
        assert_eq!(duration("250"), Some(Duration::from_millis(250)));
        assert_eq!(duration("1h"), None);
        assert_eq!(duration("9999m"), Some(LONG_POLL_MAX));
        assert_eq!(plain_key("hiveconf:a.b"), "a.b");
        assert_eq!(plain_key("HIVEVAR:x"), "x");
    }
}
