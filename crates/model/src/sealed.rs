//! Sealed values: secret properties as the database has them.
//!
//! A secret value is encrypted, and authenticated together with its unit and its key, by metadata agents alone. In a row
//! its text is `sealed:1:<generation of the keys>:<content>`; everywhere else a value is in clear or masked. So a copy of the
//! database has no secret value, and a sealed one is of no use in another row or under another key.
//!
//! No statement can set a value of this form ([`refuse`]), so a text that begins with [`PREFIX`] is never a value.

use std::fmt;

use crate::error::{ErrorKind, UserError};
use crate::key_generation::KeyGeneration;
use crate::name::UnitName;

/// The first characters of every sealed value, of whatever version.
pub const PREFIX: &str = "sealed:";
/// The version of the form and of the algorithm.
const VERSION: &str = "1";

/// A sealed value, in two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedValue<'a> {
    /// That of the key that opens it.
    pub generation: KeyGeneration,
    /// Of the form that [`SealingKeys`] gives it.
    pub content: &'a str,
}

impl fmt::Display for SealedValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{VERSION}:{}:{}", self.generation, self.content)
    }
}

impl<'a> SealedValue<'a> {
    /// `None` if the text has another form, or one of another version.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (version, rest) = text.strip_prefix(PREFIX)?.split_once(':')?;
        let (number, content) = rest.split_once(':')?;
        let generation = number.parse().ok().map(KeyGeneration)?;
        // Each value has one text: no sign, no leading zero.
        (version == VERSION && generation.to_string() == number).then_some(Self { generation, content })
    }
}

/// Whether the text is a sealed value, also one that cannot be opened.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// What a sealed value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PropertyRef<'a> {
    pub unit: &'a UnitName,
    pub key: &'a str,
}

impl PropertyRef<'_> {
    /// The bytes that are authenticated with the value. The name of a unit has no zero byte, so no two places have the same.
    pub fn bytes(&self) -> Vec<u8> {
        [b"resource_unit\0", self.unit.as_str().as_bytes(), b"\0", self.key.as_bytes()].concat()
    }
}

/// Why a value cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CannotOpen {
    /// Its keys are not accepted here.
    NotAccepted(KeyGeneration),
    /// It was altered, or sealed for another unit or key, or with other keys.
    NotGenuine,
}

impl fmt::Display for CannotOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAccepted(generation) => {
                write!(f, "it is sealed with generation {generation} of the keys, which is not accepted")
            }
            Self::NotGenuine => f.write_str("it was altered, or sealed for another property or with other keys"),
        }
    }
}

/// The keys that seal and open; only metadata agents have them.
pub trait SealingKeys: fmt::Debug + Send + Sync {
    /// The generation that new values are sealed with; `None` if they are stored in clear.
    fn in_use(&self) -> Option<KeyGeneration>;

    /// The sealed text of a value, or the value itself if it is to be stored in clear. An error if the operating system has no random
    /// bytes.
    fn seal(&self, place: &PropertyRef<'_>, value: &str) -> Result<String, UserError>;

    fn open(&self, place: &PropertyRef<'_>, sealed: &SealedValue<'_>) -> Result<String, CannotOpen>;
}

/// Refuses values that a statement sets and that would be taken for sealed ones.
pub fn refuse<'a>(properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), UserError> {
    match properties.into_iter().find(|(_, value)| is_sealed(value)) {
        None => Ok(()),
        Some((key, _)) => Err(UserError::new(ErrorKind::InvalidValue, format!("invalid value of property \"{key}\""))
            .detail(format!("It begins with \"{PREFIX}\", as do values that metadata agents have sealed."))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_sealed_value_has_one_text() {
        let sealed = SealedValue { generation: KeyGeneration(12), content: "a+/b==:" };
        let text = sealed.to_string();
        assert_eq!(text, "sealed:1:12:a+/b==:");
        assert_eq!(SealedValue::parse(&text), Some(sealed));
        for other in [
            "",
            "sealed:",
            "sealed:1",
            "sealed:1:2",
            "sealed:2:2:x",
            "sealed:1:02:x",
            "sealed:1:+2:x",
            "sealed:1:4294967296:x",
        ] {
            assert_eq!(SealedValue::parse(other), None, "{other}");
        }
        assert!(is_sealed("sealed:2:x") && !is_sealed("Sealed:1:1:x"));
    }

    #[test]
    fn no_two_places_are_the_same() {
        let (one, two) = (UnitName::new("uc_1").unwrap(), UnitName::new("uc_1x").unwrap());
        let bytes = |unit, key| PropertyRef { unit, key }.bytes();
        assert_ne!(bytes(&one, "xa"), bytes(&two, "a"));
        assert_ne!(bytes(&one, "a"), bytes(&one, "A"));
        assert_ne!(bytes(&one, "a\0b"), bytes(&one, "a"));
    }

    #[test]
    fn a_statement_sets_no_value_of_that_form() {
        assert!(refuse([("a", "is sealed:"), ("b", "")]).is_ok());
        let error = refuse([("a", "1"), ("db.password", "sealed:1:1:x")]).unwrap_err();
        assert_eq!((error.sqlstate(), error.message.as_str()), ("22023", "invalid value of property \"db.password\""));
    }
}
