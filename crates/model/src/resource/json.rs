//! The JSON form of resources.
//!
//! Each value is printed in one form. More forms are read: aliases of fields, memory with a unit, CPU in cores. A number is
//! read from its digits and never through a float. Unknown fields are ignored; a missing field is an error, because a
//! misspelled one would otherwise be a request for nothing. The fields `driver` and `executors` hold a load and a queue whose
//! `type` may be left out.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::arithmetic::scaled;
use super::kind::Kind;
use super::ratio::{Ratio, digits};
use super::{LoadInstance, MAX_AMOUNT, Queue, Resource, Special, error};
use crate::error::UserError;
use crate::quantity::memory_power;

const MEMORY: &[&str] = &["memory", "queueMemory"];
const CPU_MILLIS: &str = "cpu_m";
const CPU_CORES: &[&str] = &["cpu", "queueCpu"];
const INSTANCES: &[&str] = &["instances", "instance"];
const QUEUE: &[&str] = &["queue", "queueName"];
const DRIVER: &[&str] = &["driver"];
const EXECUTORS: &[&str] = &["executors", "yarn", "kubernetes"];

/// The length of the name of a queue, in bytes.
const MAX_QUEUE_NAME_BYTES: usize = 255;

impl Resource {
    /// Reads a resource. An unknown type, or none, is `KIND_UNKNOWN`.
    pub fn from_json(text: &str) -> Result<Self, UserError> {
        let object = Object::read(text)?;
        let kind: Kind = object.kind()?.as_deref().unwrap_or_default().parse()?;
        object.resource(kind)
    }

    /// Prints a resource in its one form.
    pub fn to_json(&self) -> Result<String, UserError> {
        serde_json::to_string(self).map_err(|error| UserError::internal(error.to_string()))
    }
}

impl<'de> Deserialize<'de> for Resource {
    /// As [`Resource::from_json`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Self::from_json(&value.to_string()).map_err(|error| serde::de::Error::custom(error.text()))
    }
}

/// The fields of a JSON object in their order, with values that are not interpreted yet.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    fn read(text: &'a str) -> Result<Self, UserError> {
        serde_json::from_str(text).map_err(|error| error::invalid_json(&error.to_string()))
    }

    /// The value with one of these names, if there is one.
    fn field(&self, names: &[&str]) -> Result<Option<(&str, &'a RawValue)>, UserError> {
        let mut found = self.0.iter().filter(|(name, _)| names.contains(&name.as_str()));
        let Some((name, value)) = found.next() else { return Ok(None) };
        match found.next() {
            Some((other, _)) => Err(error::specified_twice(name, other)),
            None => Ok(Some((name, value))),
        }
    }

    fn required(&self, kind: Kind, names: &[&str]) -> Result<(&str, &'a RawValue), UserError> {
        self.field(names)?.ok_or_else(|| error::missing(kind, names.first().unwrap_or(&"")))
    }

    fn kind(&self) -> Result<Option<String>, UserError> {
        self.field(&["type"])?.map(|(name, value)| text(name, value)).transpose()
    }

    fn resource(&self, kind: Kind) -> Result<Resource, UserError> {
        Ok(match kind {
            Kind::Memory => Resource::Memory { memory: self.memory(kind)? },
            Kind::Cpu => Resource::Cpu { cpu_m: self.cpu_m(kind)? },
            Kind::Load => Resource::Load { memory: self.memory(kind)?, cpu_m: self.cpu_m(kind)? },
            Kind::LoadInstance => Resource::LoadInstance(self.load(kind)?),
            Kind::Queue => Resource::Queue(self.queue()?),
            Kind::DriverAndExecutor => Resource::DriverAndExecutor {
                driver: self.nested(DRIVER, Kind::LoadInstance)?.load(Kind::LoadInstance)?,
                executors: self.nested(EXECUTORS, Kind::Queue)?.queue()?,
            },
            Kind::Special => Resource::Special(self.special()?),
        })
    }

    /// The object in a field of a driver with executors.
    fn nested(&self, names: &[&str], kind: Kind) -> Result<Self, UserError> {
        let (name, value) = self.required(Kind::DriverAndExecutor, names)?;
        let object = Self::read(value.get())
            .map_err(|_| error::invalid_field(name, value.get(), format!("It is an object of kind {kind}.")))?;
        match object.kind()?.map(|found| found.parse::<Kind>()).transpose()? {
            Some(found) if found != kind => Err(error::kind_required(kind, found)),
            _ => Ok(object),
        }
    }

    fn load(&self, kind: Kind) -> Result<LoadInstance, UserError> {
        Ok(LoadInstance { memory: self.memory(kind)?, cpu_m: self.cpu_m(kind)?, instances: self.instances(kind)? })
    }

    fn queue(&self) -> Result<Queue, UserError> {
        let (name, value) = self.required(Kind::Queue, QUEUE)?;
        let queue = text(name, value)?;
        if queue.is_empty() || queue.len() > MAX_QUEUE_NAME_BYTES {
            return Err(error::invalid_field(name, value.get(), "The name of a queue has 1 to 255 bytes."));
        }
        Ok(Queue { queue, load: self.load(Kind::Queue)? })
    }

    fn memory(&self, kind: Kind) -> Result<i64, UserError> {
        let (name, value) = self.required(kind, MEMORY)?;
        let bytes = match token(value) {
            Some(Token::Number(number)) => digits(number),
            Some(Token::Text(text)) => bytes(&text),
            None => None,
        };
        amount(name, value, bytes, "It is a number of bytes, or a text such as \"1G\" or \"1.5 GB\"")
    }

    fn cpu_m(&self, kind: Kind) -> Result<i64, UserError> {
        let Some((cores, value)) = self.field(CPU_CORES)? else {
            let (name, value) = self.required(kind, &[CPU_MILLIS])?;
            return amount(name, value, whole(value), "It is a whole number of thousandths of a core");
        };
        if self.field(&[CPU_MILLIS])?.is_some() {
            return Err(error::specified_twice(CPU_MILLIS, cores));
        }
        let millis = match token(value) {
            Some(Token::Number(number)) => millis(number),
            Some(Token::Text(text)) => text.strip_suffix('m').map_or_else(|| millis(&text), digits),
            None => None,
        };
        amount(cores, value, millis, "It is a number of cores in steps of a thousandth, or a text such as \"500m\"")
    }

    fn instances(&self, kind: Kind) -> Result<i64, UserError> {
        let (name, value) = self.required(kind, INSTANCES)?;
        amount(name, value, whole(value), "It is a whole number")
    }

    fn special(&self) -> Result<Special, UserError> {
        let (field, value) = self.required(Kind::Special, &["amounts"])?;
        let named = Self::read(value.get())
            .map_err(|_| error::invalid_field(field, value.get(), "It is an object with an amount for each name."))?;
        let mut amounts = BTreeMap::new();
        for (name, value) in named.0 {
            let amount = amount(&name, value, whole(value), "It is a whole number")?;
            if amounts.insert(name.clone(), amount).is_some() {
                return Err(error::specified_twice(&name, &name));
            }
        }
        Special::new(amounts)
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// A JSON value that can be an amount.
enum Token<'a> {
    /// The digits as they were written.
    Number(&'a str),
    Text(String),
}

fn token(value: &RawValue) -> Option<Token<'_>> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok().map(Token::Text),
        b'-' | b'0'..=b'9' => Some(Token::Number(value.get())),
        _ => None,
    }
}

fn text(name: &str, value: &RawValue) -> Result<String, UserError> {
    match token(value) {
        Some(Token::Text(text)) => Ok(text),
        _ => Err(error::invalid_field(name, value.get(), "It is a text.")),
    }
}

fn whole(value: &RawValue) -> Option<i64> {
    match token(value)? {
        Token::Number(number) => digits(number),
        Token::Text(_) => None,
    }
}

/// Thousandths of a core of a number of cores.
fn millis(cores: &str) -> Option<i64> {
    let millionths = cores.parse::<Ratio>().ok()?.millionths();
    (millionths % 1_000 == 0).then_some(millionths / 1_000)
}

/// The bytes of a decimal with a unit, rounded down.
fn bytes(text: &str) -> Option<i64> {
    let upper = text.to_ascii_uppercase();
    let (number, unit) = upper.split_at(upper.find(|c: char| !c.is_ascii_digit() && c != '.')?);
    let factor = 1 << memory_power(unit.strip_prefix(' ').unwrap_or(unit))?;
    match digits(number) {
        Some(whole) => whole.checked_mul(factor),
        None => scaled(factor, number.parse::<Ratio>().ok()?.millionths(), Ratio::UNIT).ok(),
    }
}

/// An amount that was read, within the limits of a request. `expected` describes the field without a full stop.
fn amount(name: &str, value: &RawValue, read: Option<i64>, expected: &str) -> Result<i64, UserError> {
    read.filter(|amount| *amount <= MAX_AMOUNT).ok_or_else(|| {
        error::invalid_field(name, value.get(), format!("{expected}, and an amount is from 0 to {MAX_AMOUNT}."))
    })
}
