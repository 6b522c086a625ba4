//! The options of a resource unit.

use model::alteration::ObjectKind;
use model::catalog::{MAX_PROPERTIES, PRIORITIES};
use model::change::{PropertiesPatch, Setting, UnitPatch};
use model::error::{ErrorKind, UserError};
use model::on_demand::{IdleTimeout, MAX_SESSIONS_PER_ENGINE};

use super::amounts::printed_quantity;
use super::options::{Options, printed_text, read_setting, read_text};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::quoted_string;
use crate::token::TokenKind;

impl Options for UnitPatch {
    const KIND: ObjectKind = ObjectKind::ResourceUnit;
    const NAMES: &'static [&'static str] = &[
        "ENGINE_TYPE",
        "DRIVER_CPU",
        "DRIVER_MEMORY",
        "EXECUTOR_CPU",
        "EXECUTOR_MEMORY",
        "MIN_EXECUTORS",
        "MAX_EXECUTORS",
        "MIN_ENGINES",
        "MAX_ENGINES",
        "PROPERTIES",
        "PRIORITY",
        "CHARGE",
        "START_ON_DEMAND",
        "SESSIONS_PER_ENGINE",
        "SPARE_ENGINES",
        "IDLE_TIMEOUT",
        "SHARED_BY",
        "RUN_AS",
        "COMMENT",
    ];

    fn read(&mut self, option: &'static str, cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
        const CPU: &str = "an amount of CPU such as 2, 0.5 or 500m";
        const MEMORY: &str = "an amount of memory such as '1G'";
        match option {
            "ENGINE_TYPE" => self.engine_type = Some(cursor.value(option, "an engine type such as 'spark'")?),
            "DRIVER_CPU" => self.driver_cpu = Some(cursor.value(option, CPU)?),
            "DRIVER_MEMORY" => self.driver_memory = Some(cursor.value(option, MEMORY)?),
            "EXECUTOR_CPU" => self.executor_cpu = Some(cursor.value(option, CPU)?),
            "EXECUTOR_MEMORY" => self.executor_memory = Some(cursor.value(option, MEMORY)?),
            "MIN_EXECUTORS" => self.min_executors = Some(cursor.number(option)?),
            "MAX_EXECUTORS" => self.max_executors = Some(cursor.number(option)?),
            "MIN_ENGINES" => self.min_engines = Some(cursor.number(option)?),
            "MAX_ENGINES" => self.max_engines = Some(cursor.number(option)?),
            "PROPERTIES" => self.properties = read_properties(cursor)?,
            "PRIORITY" => self.priority = Some(read_priority(cursor)?),
            "CHARGE" => self.charge = Some(cursor.value(option, "'max' or 'min'")?),
            "START_ON_DEMAND" => self.start_on_demand = read_setting(cursor, read_truth)?,
            "SESSIONS_PER_ENGINE" => self.sessions_per_engine = read_sessions(cursor, option)?,
            "SPARE_ENGINES" => self.spare_engines = Some(cursor.number(option)?),
            "IDLE_TIMEOUT" => self.idle_timeout = read_setting(cursor, |cursor| read_idle_timeout(cursor, option))?,
            "SHARED_BY" => self.shared_by = Some(cursor.value(option, "'tenant', 'group', 'user' or 'session'")?),
            "RUN_AS" => self.run_as = Some(cursor.value(option, "'service' or 'owner'")?),
            _ => self.comment = read_text(cursor)?,
        }
        Ok(())
    }

    fn printed(&self) -> Vec<String> {
        let mut options = Vec::new();
        options
            .extend(self.engine_type.map(|engine_type| format!("ENGINE_TYPE {}", quoted_string(engine_type.as_str()))));
        for (option, cpu, memory) in
            [("DRIVER", self.driver_cpu, self.driver_memory), ("EXECUTOR", self.executor_cpu, self.executor_memory)]
        {
            options.extend(cpu.map(|cpu| format!("{option}_CPU {}", printed_quantity(&cpu.to_string()))));
            options.extend(memory.map(|memory| format!("{option}_MEMORY {}", printed_quantity(&memory.to_string()))));
        }
        for (option, number) in [
            ("MIN_EXECUTORS", self.min_executors),
            ("MAX_EXECUTORS", self.max_executors),
            ("MIN_ENGINES", self.min_engines),
            ("MAX_ENGINES", self.max_engines),
        ] {
            options.extend(number.map(|number| format!("{option} {number}")));
        }
        options.extend(printed_properties(&self.properties));
        options.extend(self.priority.map(|priority| format!("PRIORITY {priority}")));
        options.extend(self.charge.map(|charge| format!("CHARGE {}", quoted_string(charge.as_str()))));
        options.extend(printed_on_demand(self));
        options.extend(self.shared_by.map(|shared_by| format!("SHARED_BY {}", quoted_string(shared_by.as_str()))));
        options.extend(self.run_as.map(|run_as| format!("RUN_AS {}", quoted_string(run_as.as_str()))));
        options.extend(printed_text("COMMENT", &self.comment));
        options
    }
}

/// Parses TRUE or FALSE.
fn read_truth(cursor: &mut Cursor<'_>) -> Result<bool, ParseError> {
    if cursor.eat("TRUE") {
        return Ok(true);
    }
    cursor.keyword("FALSE").map(|()| false)
}

/// Parses UNLIMITED, which is the default, or a whole number; the catalog checks its range.
fn read_sessions(cursor: &mut Cursor<'_>, option: &'static str) -> Result<Setting<u32>, ParseError> {
    if cursor.eat("UNLIMITED") {
        return Ok(Setting::Reset);
    }
    let hint = || format!("Write a whole number from 1 to {MAX_SESSIONS_PER_ENGINE}, or UNLIMITED.");
    read_setting(cursor, |cursor| cursor.number(option).map_err(|error| error.or_hint(hint())))
}

/// Parses NEVER or a duration.
fn read_idle_timeout(cursor: &mut Cursor<'_>, option: &'static str) -> Result<IdleTimeout, ParseError> {
    if cursor.eat("NEVER") {
        return Ok(IdleTimeout::Never);
    }
    cursor.value(option, "a length of time such as '5m'")
}

fn printed_on_demand(patch: &UnitPatch) -> Vec<String> {
    let mut options = Vec::new();
    match patch.start_on_demand {
        Setting::Keep => {}
        Setting::Reset => options.push("START_ON_DEMAND DEFAULT".to_owned()),
        Setting::Set(true) => options.push("START_ON_DEMAND TRUE".to_owned()),
        Setting::Set(false) => options.push("START_ON_DEMAND FALSE".to_owned()),
    }
    match patch.sessions_per_engine {
        Setting::Keep => {}
        Setting::Reset => options.push("SESSIONS_PER_ENGINE UNLIMITED".to_owned()),
        Setting::Set(sessions) => options.push(format!("SESSIONS_PER_ENGINE {sessions}")),
    }
    options.extend(patch.spare_engines.map(|engines| format!("SPARE_ENGINES {engines}")));
    match patch.idle_timeout {
        Setting::Keep => {}
        Setting::Reset => options.push("IDLE_TIMEOUT DEFAULT".to_owned()),
        Setting::Set(IdleTimeout::Never) => options.push("IDLE_TIMEOUT NEVER".to_owned()),
        Setting::Set(timeout) => options.push(format!("IDLE_TIMEOUT {}", quoted_string(&timeout.to_string()))),
    }
    options
}

/// Parses a whole number that may be negative; the catalog checks its range.
fn read_priority(cursor: &mut Cursor<'_>) -> Result<i32, ParseError> {
    let (text, position) = cursor.scalar("a whole number such as 10 or -10")?;
    text.parse().map_err(|_| {
        let error = UserError::new(ErrorKind::InvalidValue, "PRIORITY: invalid number");
        let (least, most) = (PRIORITIES.start(), PRIORITIES.end());
        ParseError::at(position, error.detail(format!("It is a whole number from {least} to {most}.")))
    })
}

/// Parses `('k'='v', 'x'=NULL)`, `RESET` or `RESET ('k'='v')`.
fn read_properties(cursor: &mut Cursor<'_>) -> Result<PropertiesPatch, ParseError> {
    let mut patch = PropertiesPatch { reset: cursor.eat("RESET"), ..PropertiesPatch::default() };
    if !cursor.eat_symbol(&TokenKind::Open) {
        return if patch.reset { Ok(patch) } else { Err(cursor.unexpected()) };
    }
    loop {
        let position = cursor.position();
        let key = cursor.string("the quoted key of a property").map_err(|error| {
            if patch.set.is_empty() { error.or_hint("Use PROPERTIES RESET to remove all properties.") } else { error }
        })?;
        // From the first key on, any unexpected token can be a value or a piece of one, if the user forgot the = or
        // did not double a quote.
        cursor.hide(true);
        cursor.symbol(&TokenKind::Equals)?;
        let value = read_property_value(cursor)?;
        if patch.set.contains_key(&key) {
            let shown: String = key.chars().take(MAX_KEY_SHOWN_CHARS).collect();
            return Err(ParseError::syntax(position, format!("property \"{shown}\" specified more than once"))
                .or_hint("Remove one of them."));
        }
        patch.set.insert(key, value);
        if patch.set.len() > MAX_PROPERTIES {
            let error = UserError::new(ErrorKind::ProgramLimit, "PROPERTIES has too many properties")
                .detail(format!("The limit is {MAX_PROPERTIES}."));
            return Err(ParseError::at(position, error));
        }
        if !cursor.eat_symbol(&TokenKind::Comma) {
            cursor.symbol(&TokenKind::Close)?;
            cursor.hide(false);
            return Ok(patch);
        }
    }
}

/// The longest key that an error repeats, in characters.
const MAX_KEY_SHOWN_CHARS: usize = 64;

fn read_property_value(cursor: &mut Cursor<'_>) -> Result<Option<String>, ParseError> {
    if cursor.eat("NULL") {
        return Ok(None);
    }
    let value = cursor.string("a value in single quotes");
    value.map(Some).map_err(|error| error.or_hint("Put single quotes around a value and double those inside: 'it''s'."))
}

fn printed_properties(properties: &PropertiesPatch) -> Option<String> {
    let items: Vec<String> = properties
        .set
        .iter()
        .map(|(key, value)| {
            let value = value.as_ref().map_or_else(|| "NULL".to_owned(), |value| quoted_string(value));
            format!("{}={value}", quoted_string(key))
        })
        .collect();
    match (properties.reset, items.is_empty()) {
        (false, true) => None,
        (true, true) => Some("PROPERTIES RESET".to_owned()),
        (false, false) => Some(format!("PROPERTIES ({})", items.join(", "))),
        (true, false) => Some(format!("PROPERTIES RESET ({})", items.join(", "))),
    }
}
