//! The options of a resource pool.

use std::collections::BTreeMap;

use model::alteration::ObjectKind;
use model::change::{PoolPatch, Setting};
use model::error::{ErrorKind, UserError};
use model::name::UnitName;
use model::quota::Capacity;

use super::amounts::{printed_amount, printed_amount_setting, read_amount};
use super::options::{Options, printed_list, printed_setting, printed_text, read_list, read_setting, read_text};
use crate::cursor::Cursor;
use crate::error::ParseError;
use crate::quote::quoted_string;
use crate::token::TokenKind;

/// The most labels that are parsed; the catalog has a limit of its own.
const MAX_LABELS: usize = 1_000;

impl Options for PoolPatch {
    const KIND: ObjectKind = ObjectKind::ResourcePool;
    const NAMES: &'static [&'static str] = &[
        "UNIT_LIST",
        "NAMESPACE",
        "NODE_LIST",
        "NODE_SELECTOR",
        "CPU_OVERCOMMIT",
        "QUEUE_PREFIX",
        "IMAGE",
        "CAPACITY",
        "PROTECTED",
        "RESOURCE_KIND",
        "RECLAIM",
        "COMMENT",
    ];

    fn read(&mut self, option: &'static str, cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
        match option {
            "UNIT_LIST" => {
                let unit = |cursor: &mut Cursor<'_>| cursor.list_name("the name of a resource unit", UnitName::new);
                self.units = Some(read_list(cursor, option, unit)?);
            }
            "NAMESPACE" => self.namespace = read_text(cursor)?,
            "NODE_LIST" => {
                self.nodes = read_setting(cursor, |cursor| {
                    read_list(cursor, option, |cursor| cursor.string("the quoted name of a node"))
                })?;
            }
            "NODE_SELECTOR" => self.node_selector = read_setting(cursor, read_labels)?,
            "CPU_OVERCOMMIT" => self.cpu_overcommit = read_setting(cursor, |cursor| cursor.number(option))?,
            "QUEUE_PREFIX" => self.queue_prefix = read_text(cursor)?,
            "IMAGE" => self.image = read_text(cursor)?,
            "CAPACITY" => self.capacity = read_setting(cursor, |cursor| read_capacity(cursor, option))?,
            "PROTECTED" => self.protected = read_setting(cursor, |cursor| read_amount(cursor, option))?,
            "RESOURCE_KIND" => {
                let kind = |cursor: &mut Cursor<'_>| cursor.value(option, "a kind such as 'DriverAndExecutor'");
                self.resource_kind = read_setting(cursor, kind)?;
            }
            "RECLAIM" => self.reclaim = read_setting(cursor, |cursor| cursor.value(option, "'none' or 'idle'"))?,
            _ => self.comment = read_text(cursor)?,
        }
        Ok(())
    }

    fn printed(&self) -> Vec<String> {
        let mut options = Vec::new();
        options.extend(self.units.as_ref().map(|units| printed_list("UNIT_LIST", units)));
        options.extend(printed_text("NAMESPACE", &self.namespace));
        match &self.nodes {
            Setting::Keep => {}
            Setting::Reset => options.push("NODE_LIST DEFAULT".to_owned()),
            Setting::Set(nodes) => options.push(printed_list("NODE_LIST", nodes)),
        }
        match &self.node_selector {
            Setting::Keep => {}
            Setting::Reset => options.push("NODE_SELECTOR DEFAULT".to_owned()),
            Setting::Set(labels) => options.push(printed_labels(labels)),
        }
        match &self.cpu_overcommit {
            Setting::Keep => {}
            Setting::Reset => options.push("CPU_OVERCOMMIT DEFAULT".to_owned()),
            Setting::Set(percent) => options.push(format!("CPU_OVERCOMMIT {percent}")),
        }
        options.extend(printed_text("QUEUE_PREFIX", &self.queue_prefix));
        options.extend(printed_text("IMAGE", &self.image));
        options.extend(printed_capacity(&self.capacity));
        options.extend(printed_amount_setting("PROTECTED", &self.protected));
        options.extend(printed_setting("RESOURCE_KIND", &self.resource_kind));
        options.extend(printed_setting("RECLAIM", &self.reclaim));
        options.extend(printed_text("COMMENT", &self.comment));
        options
    }
}

/// Parses NODES, REGISTERED or an amount.
fn read_capacity(cursor: &mut Cursor<'_>, option: &'static str) -> Result<Capacity, ParseError> {
    if cursor.eat("NODES") {
        Ok(Capacity::Nodes)
    } else if cursor.eat("REGISTERED") {
        Ok(Capacity::Registered)
    } else {
        read_amount(cursor, option).map(Capacity::Amount)
    }
}

fn printed_capacity(setting: &Setting<Capacity>) -> Option<String> {
    match setting {
        Setting::Keep => None,
        Setting::Reset => Some("CAPACITY DEFAULT".to_owned()),
        Setting::Set(Capacity::Nodes) => Some("CAPACITY NODES".to_owned()),
        Setting::Set(Capacity::Registered) => Some("CAPACITY REGISTERED".to_owned()),
        Setting::Set(Capacity::Amount(amount)) => Some(format!("CAPACITY {}", printed_amount(amount))),
    }
}

/// Parses `('label'='value', …)`: at least one, because an empty selector would match any node, not none.
fn read_labels(cursor: &mut Cursor<'_>) -> Result<BTreeMap<String, String>, ParseError> {
    if !cursor.eat_symbol(&TokenKind::Open) {
        return Err(cursor
            .unexpected()
            .or_hint("Write labels in parentheses: NODE_SELECTOR ('zone'='a', 'disk'='ssd')."));
    }
    let mut labels = BTreeMap::new();
    loop {
        let position = cursor.position();
        let label = cursor.string("the quoted name of a label").map_err(|error| {
            if labels.is_empty() { error.or_hint("Use NODE_SELECTOR DEFAULT to remove the labels.") } else { error }
        })?;
        cursor.symbol(&TokenKind::Equals)?;
        let value = cursor.string("a value in single quotes")?;
        if labels.contains_key(&label) {
            let shown: String = label.chars().take(MAX_LABEL_SHOWN_CHARS).collect();
            return Err(ParseError::syntax(position, format!("label \"{shown}\" specified more than once"))
                .or_hint("Remove one of them."));
        }
        labels.insert(label, value);
        if labels.len() > MAX_LABELS {
            let error = UserError::new(ErrorKind::ProgramLimit, "NODE_SELECTOR has too many labels")
                .detail(format!("The limit is {MAX_LABELS}."));
            return Err(ParseError::at(position, error));
        }
        if !cursor.eat_symbol(&TokenKind::Comma) {
            cursor.symbol(&TokenKind::Close)?;
            return Ok(labels);
        }
    }
}

/// The longest label name that an error repeats, in characters.
const MAX_LABEL_SHOWN_CHARS: usize = 64;

fn printed_labels(labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> =
        labels.iter().map(|(label, value)| format!("{}={}", quoted_string(label), quoted_string(value))).collect();
    format!("NODE_SELECTOR ({})", labels.join(", "))
}
