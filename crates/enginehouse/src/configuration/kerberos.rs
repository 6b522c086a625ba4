//! Section `[kerberos]`: which tickets of method `kerberos` are accepted.
//!
//! The keytab is the one that `KRB5_KTNAME` names, as for every program with Kerberos.

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::{Authentication, Configuration};

/// The most services, and the most realms.
const MAX_ENTRIES: usize = 100;
/// The longest name of a service or realm, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// The services and realms whose tickets are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KerberosSection {
    /// The first parts of the service's principals.
    pub services: Vec<String>,
    /// The realms of clients; only that of the service if it is empty.
    pub realms: Vec<String>,
}

impl Default for KerberosSection {
    fn default() -> Self {
        Self { services: ["hive", "HTTP"].map(str::to_owned).to_vec(), realms: Vec::new() }
    }
}

impl KerberosSection {
    /// A warning about users of several realms.
    pub fn warning(&self) -> Option<&'static str> {
        (self.realms.len() > 1).then_some(
            "kerberos.realms has several realms: users of one name in two of them are one user here, because a name has no realm",
        )
    }
}

impl Configuration {
    /// Checks the section, if method `kerberos` is used; the keytab is read by the proxies and by `config check`.
    pub(super) fn check_kerberos(&self) -> anyhow::Result<()> {
        let section = &self.kerberos;
        if !self.access.uses(Authentication::Kerberos) {
            return Ok(());
        }
        if !cfg!(feature = "kerberos") {
            bail!(
                "access.authentication has \"kerberos\", but this program was built without it\nHint: Build it with cargo build --release --features kerberos; it needs libkrb5-dev and libclang (docs/security.md)."
            );
        }
        if section.services.is_empty() {
            bail!(
                "kerberos.services is empty\nHint: Leave it out, or list the first parts of the keytab's principals."
            );
        }
        for (key, names, forbidden) in
            [("services", &section.services, &['/', '@', '\\'][..]), ("realms", &section.realms, &['@', '\\'])]
        {
            if names.len() > MAX_ENTRIES {
                bail!("kerberos.{key} has {} entries, and the limit is {MAX_ENTRIES}", names.len());
            }
            let is_name = |name: &str| {
                (1..=MAX_NAME_BYTES).contains(&name.len())
                    && !name.contains(|c: char| c.is_control() || c.is_whitespace() || forbidden.contains(&c))
            };
            if let Some(index) = names.iter().position(|name| !is_name(name)) {
                let example = if key == "services" { "hive" } else { "EXAMPLE.COM" };
                bail!("kerberos.{key}: entry {} is no name such as \"{example}\"", index + 1);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::configuration::check::checked;

    const KERBEROS: &str = "[access]\nauthentication = \"kerberos\"\n[kerberos]\n";

    #[cfg(not(feature = "kerberos"))]
    #[test]
    fn a_program_without_it_refuses_the_method() {
        let error = format!("{:#}", checked(KERBEROS).unwrap_err());
        assert!(error.contains("built without it\nHint: Build it with"), "{error}");
        checked("[kerberos]\nservices = []\n").unwrap();
    }

    #[cfg(feature = "kerberos")]
    #[test]
    fn services_and_realms_are_names() {
        checked(KERBEROS).unwrap();
        checked(&format!("{KERBEROS}services = [\"HTTP\"]\nrealms = [\"EXAMPLE.COM\", \"B/C\"]\n")).unwrap();
        for (text, expected) in [
            ("services = []", "kerberos.services is empty"),
            ("services = [\"hive\", \"hive/host\"]", "kerberos.services: entry 2 is no name such as \"hive\""),
            ("services = [\"\"]", "kerberos.services: entry 1"),
            ("realms = [\"ann@EXAMPLE\"]", "kerberos.realms: entry 1 is no name such as \"EXAMPLE.COM\""),
            ("realms = [\"A B\"]", "kerberos.realms: entry 1"),
        ] {
            let error = format!("{:#}", checked(&format!("{KERBEROS}{text}\n")).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[cfg(feature = "kerberos")]
    #[test]
    fn tickets_are_no_secrets() {
        let listen = "[proxy]\nlisten = \"0.0.0.0:10009\"\n";
        checked(&format!("{listen}{KERBEROS}")).unwrap();
        let with_passwords = KERBEROS.replace("\"kerberos\"\n", "[\"file\", \"kerberos\"]\n");
        let error = format!("{:#}", checked(&format!("{listen}{with_passwords}")).unwrap_err());
        assert!(error.contains("passwords unencrypted"), "{error}");
    }

    #[test]
    fn several_realms_are_a_warning() {
        for (realms, warns) in [(&[][..], false), (&["A"], false), (&["A", "B"], true)] {
            let realms = realms.iter().map(|realm| (*realm).to_owned()).collect();
            let section = KerberosSection { realms, ..KerberosSection::default() };
            assert_eq!(section.warning().is_some(), warns);
        }
    }
}
