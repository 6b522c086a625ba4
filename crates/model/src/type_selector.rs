//! The selector of an engine type: what a session asks for with `enginehouse.engine_type`.
//!
//! `spark` selects all engines of that type, `spark-3.5` those whose version is `3.5` or continues it. The version of an engine is
//! the tag of its image. Proxies and the planner decide by the same catalog and with the same function here, so that a session
//! waits for the engines that are started for it.

use std::fmt;
use std::str::FromStr;

use crate::catalog::{PoolSpec, UnitSpec};
use crate::configuration::Defaults;
use crate::engine_type::EngineType;
use crate::error::{ErrorKind, UserError};
use crate::text::cut;

/// The longest version, in bytes: that of an image's tag.
pub const MAX_VERSION_BYTES: usize = 128;

/// A type, optionally with the beginning of a version, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeSelector {
    engine_type: EngineType,
    version: Option<String>,
}

impl TypeSelector {
    /// Whether it selects engines of this type and version. A version matches those that continue it after a separator, so
    /// `3.5` is `3.5.1` and not `3.51`. An engine of unknown version is selected by its type alone.
    pub fn selects(&self, engine_type: EngineType, version: Option<&str>) -> bool {
        let Some(asked) = &self.version else { return self.engine_type == engine_type };
        let version = version.map(str::to_ascii_lowercase);
        let Some(more) = version.as_ref().and_then(|version| version.strip_prefix(asked.as_str())) else {
            return false;
        };
        self.engine_type == engine_type && !more.starts_with(|c: char| c.is_ascii_alphanumeric())
    }

    /// Whether it selects the engines of the unit in the pool.
    pub fn selects_unit(&self, pool: &PoolSpec, unit: &UnitSpec, defaults: &Defaults) -> bool {
        self.selects(unit.engine_type, defaults.image(pool, unit.engine_type).and_then(version_of))
    }
}

/// The type of the engines of the unit in the pool, with their version if it is known: the narrowest selector of them.
pub fn type_of(pool: &PoolSpec, unit: &UnitSpec, defaults: &Defaults) -> String {
    match defaults.image(pool, unit.engine_type).and_then(version_of) {
        Some(version) => format!("{}-{}", unit.engine_type, version.to_ascii_lowercase()),
        None => unit.engine_type.to_string(),
    }
}

/// The tag of an image, which states the version of its engine.
pub fn version_of(image: &str) -> Option<&str> {
    let name = image.split('@').next().unwrap_or(image);
    let (_, tag) = name.rsplit('/').next()?.split_once(':')?;
    Some(tag)
}

impl fmt::Display for TypeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}-{version}", self.engine_type),
            None => write!(f, "{}", self.engine_type),
        }
    }
}

impl FromStr for TypeSelector {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        let lower = cut(text, 2 * MAX_VERSION_BYTES).to_ascii_lowercase();
        let (word, version) = match lower.split_once('-') {
            Some((word, version)) => (word, Some(version)),
            None => (lower.as_str(), None),
        };
        let engine_type: EngineType = word.parse()?;
        let is_version = |version: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            version.starts_with(|c: char| c.is_ascii_alphanumeric())
                && version.len() <= MAX_VERSION_BYTES
                && version.chars().all(is_part)
        };
        match version {
            Some(version) if !is_version(version) => {
                let shown = version.escape_debug();
                Err(UserError::new(ErrorKind::InvalidValue, format!("invalid version \"{shown}\" of engine type {word}"))
                    .detail(format!(
                        "A version is the beginning of an image's tag: letters, digits, dots, hyphens and underscores, at most \
                         {MAX_VERSION_BYTES}."
                    ))
                    .hint(format!("Write {word}, or for example {word}-3.5.")))
            }
            version => Ok(Self { engine_type, version: version.map(str::to_owned) }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_version_matches_those_that_continue_it_after_a_separator() {
        let spark = EngineType::Spark;
        for (label, version, is_selected) in [
            ("spark", None, true),
            ("SPARK", Some("3.5.1"), true),
            ("spark-3.5", Some("3.5.1"), true),
            ("spark-3.5.1", Some("3.5.1"), true),
            ("spark-3.5", Some("3.5-SNAPSHOT"), true),
            ("spark-3.5-snapshot", Some("3.5-SNAPSHOT"), true),
            ("spark-3.5", Some("3.51.0"), false),
            ("spark-3.5.1", Some("3.5"), false),
            ("spark-3.5", None, false),
            ("datafusion", Some("3.5.1"), false),
            ("datafusion-3.5", Some("3.5.1"), false),
        ] {
            assert_eq!(
                label.parse::<TypeSelector>().unwrap().selects(spark, version),
                is_selected,
                "{label} {version:?}"
            );
        }
    }

    #[test]
    fn a_selector_is_printed_as_it_is_read_and_others_are_refused() {
        for (text, printed) in
            [("Spark", "spark"), ("spark-3.5", "spark-3.5"), ("HiveServer2-V1_a-b", "hiveserver2-v1_a-b")]
        {
            assert_eq!(text.parse::<TypeSelector>().unwrap().to_string(), printed);
        }
        let long = format!("spark-{}", "1".repeat(MAX_VERSION_BYTES + 1));
        for (text, message) in [
            ("", "unknown engine type \"\""),
            ("spark3", "unknown engine type \"spark3\""),
            ("presto-1", "unknown engine type \"presto\""),
            ("spark-", "invalid version \"\" of engine type spark"),
            ("spark-.5", "invalid version \".5\" of engine type spark"),
            ("spark-3 5", "invalid version \"3 5\" of engine type spark"),
            ("spark-3.5\u{7}", "invalid version \"3.5\\u{7}\" of engine type spark"),
            (&long, &format!("invalid version \"{}\" of engine type spark", "1".repeat(MAX_VERSION_BYTES + 1))),
        ] {
            let error = text.parse::<TypeSelector>().unwrap_err();
            assert_eq!((error.sqlstate(), error.message.as_str()), ("22023", message));
            assert!(error.hint.is_some(), "{text}");
        }
    }

    #[test]
    fn the_version_is_the_tag_of_the_image() {
        for (image, version) in [
            ("spark", None),
            ("spark:3.5.1", Some("3.5.1")),
            ("registry:5000/spark", None),
            ("registry:5000/team/spark:3.5.1@sha256:00", Some("3.5.1")),
            ("spark@sha256:00", None),
        ] {
            assert_eq!(version_of(image), version, "{image}");
        }
    }
}
