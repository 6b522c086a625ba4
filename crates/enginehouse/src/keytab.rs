//! The keytab of method `kerberos`: the keys of the services for which a proxy accepts tickets.
//!
//! It is the one that `KRB5_KTNAME` names, or else that of the machine's `krb5.conf`, usually `/etc/krb5.keytab`. Who has it can claim to
//! be any user of the realm to this proxy.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use anyhow::bail;
use authentication::is_open_to_others;

/// The environment variable with its name.
pub const VARIABLE: &str = "KRB5_KTNAME";

/// What may stand before the name of a file.
const KINDS: [&str; 2] = ["FILE:", "WRFILE:"];

/// The file that the variable names; `None` if it is not set, or if it names none.
pub fn file() -> Option<PathBuf> {
    named(&std::env::var(VARIABLE).ok()?)
}

fn named(value: &str) -> Option<PathBuf> {
    let path = KINDS.into_iter().find_map(|kind| value.strip_prefix(kind)).unwrap_or(value);
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// Refuses a keytab without a key, one that cannot be read, and one that other users can read.
pub fn check() -> anyhow::Result<()> {
    if let Some(path) = file()
        && let Ok(metadata) = path.metadata()
        && is_open_to_others(metadata.permissions().mode(), metadata.uid())
    {
        bail!(
            "{VARIABLE}: {} is open to other users (mode {:04o})\nHint: Run chmod 600 on it.",
            path.display(),
            metadata.permissions().mode() & 0o7777
        );
    }
    #[cfg(feature = "kerberos")]
    if let Err(error) = authentication::KerberosMethod::probe() {
        bail!(
            "the keytab cannot be used: {error}\nHint: Set {VARIABLE} to a file with the keys of hive/HOST@REALM and HTTP/HOST@REALM, which the administrator of the realm makes."
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keytab_is_a_file() {
        let path = |text: &str| Some(PathBuf::from(text));
        for (value, file) in [
            ("/etc/proxy.keytab", path("/etc/proxy.keytab")),
            ("FILE:/etc/proxy.keytab", path("/etc/proxy.keytab")),
            ("WRFILE:/etc/proxy.keytab", path("/etc/proxy.keytab")),
            ("MEMORY:proxy", None),
            ("", None),
        ] {
            assert_eq!(named(value), file, "{value}");
        }
    }
}
