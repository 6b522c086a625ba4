//! The name of a client or a service in Kerberos, as the library writes it: `ann@EXAMPLE`, `hive/proxy.example@EXAMPLE`.
//!
//! A backslash stands before a character that would have another meaning. Such names are not used: the same text would be another user.

use std::fmt;

/// A principal of a realm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Principal {
    /// All before the realm: of a client, the name of the user.
    pub(super) name: String,
    pub(super) realm: String,
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.realm)
    }
}

impl Principal {
    /// `None` without a name or a realm, and for a name that has to be escaped or is not UTF-8.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (name, realm) = std::str::from_utf8(text).ok()?.split_once('@')?;
        let is_plain = |part: &str| !part.is_empty() && !part.contains(['\\', '@', '\0']);
        (is_plain(name) && is_plain(realm)).then(|| Self { name: name.to_owned(), realm: realm.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_is_all_before_the_realm() {
        for (text, name, realm) in [
            ("ann@EXAMPLE", "ann", "EXAMPLE"),
            ("etl/host@EXAMPLE.COM", "etl/host", "EXAMPLE.COM"),
            ("Zoë@É", "Zoë", "É"),
        ] {
            let parsed = Principal::parse(text.as_bytes()).unwrap();
            assert_eq!((parsed.name.as_str(), parsed.realm.as_str()), (name, realm));
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn a_name_that_is_ambiguous_is_not_used() {
        for text in [
            &b""[..],
            b"ann",
            b"@EXAMPLE",
            b"ann@",
            b"ann@A@B",
            b"ann\\@corp.example@A",
            b"a\\/b@A",
            b"a\0@A",
            b"\xff@A",
        ] {
            assert_eq!(Principal::parse(text), None, "{text:?}");
        }
    }
}
