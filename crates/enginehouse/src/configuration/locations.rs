//! The check that allowed locations and Enginehouse's own folders do not overlap.
//!
//! A table over the state directory would read the keys of engines, and COPY TO the data directory would overwrite the
//! catalog of another tenant. Links are resolved; a missing path is compared by its name.

use std::path::{Path, PathBuf};

use anyhow::bail;

use super::{Authentication, Catalogs, Configuration};

impl Configuration {
    /// Paths that statements may not access, with the keys that set them.
    pub fn own_paths(&self) -> Vec<(&'static str, PathBuf)> {
        let mut paths = vec![
            ("engines.data_dir", self.engines.data_dir.clone()),
            ("orchestrator.state_dir", self.orchestrator.state_dir.clone()),
            ("cluster.keys", self.cluster.keys.clone()),
        ];
        if self.access.uses(Authentication::File) {
            paths.push(("access.users_file", self.access.users_file.clone()));
        }
        if self.access.uses(Authentication::Ldap) && !self.ldap.bind_password_file.as_os_str().is_empty() {
            paths.push(("ldap.bind_password_file", self.ldap.bind_password_file.clone()));
        }
        if self.access.uses(Authentication::Jwt) {
            // A statement that writes one of them could issue tokens.
            let files = [("jwt.jwks_file", &self.jwt.jwks_file), ("jwt.ca_file", &self.jwt.ca_file)];
            let are_set = files.into_iter().filter(|(_, path)| !path.as_os_str().is_empty());
            paths.extend(are_set.map(|(key, path)| (key, path.clone())));
        }
        if self.access.uses(Authentication::Kerberos)
            && let Some(keytab) = crate::keytab::file()
        {
            paths.push((crate::keytab::VARIABLE, keytab));
        }
        if self.tls.is_on() {
            paths.push(("tls.certificate_file", self.tls.certificate_file.clone()));
            paths.push(("tls.key_file", self.tls.key_file.clone()));
        }
        if let Ok(Catalogs::Folder(folder)) = self.engines.catalog() {
            paths.push(("engines.catalog_url", folder));
        }
        paths
    }

    /// Refuses an allowed location that overlaps with one of these paths.
    pub(super) fn check_locations(&self) -> anyhow::Result<()> {
        for location in &self.engines.allowed_locations {
            let allowed = resolved(location);
            for (key, own) in self.own_paths() {
                let ours = resolved(&own);
                let how = if ours.starts_with(&allowed) {
                    "contains"
                } else if allowed.starts_with(&ours) {
                    "is inside"
                } else {
                    continue;
                };
                bail!(
                    "engines.allowed_locations has \"{}\", which {how} {key} (\"{}\")\nHint: Statements could read the \
                     keys of engines or write the catalogs of other tenants there. Allow a folder that holds only data.",
                    location.display(),
                    own.display()
                );
            }
        }
        Ok(())
    }
}

/// The absolute path with links resolved as far as it exists.
pub fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut existing = absolute.as_path();
    let mut missing = Vec::new();
    loop {
        if let Ok(canonical) = existing.canonicalize() {
            return missing.iter().rev().fold(canonical, |path, name| path.join(name));
        }
        let (Some(name), Some(parent)) = (existing.file_name(), existing.parent()) else { return absolute };
        missing.push(name.to_owned());
        existing = parent;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn an_allowed_location_and_our_own_folders_keep_apart() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("eh/data/tables")).unwrap();
        std::fs::create_dir_all(root.join("srv")).unwrap();
        std::os::unix::fs::symlink(root.join("eh"), root.join("link")).unwrap();
        let check = |location: &str| {
            let mut configuration = Configuration::default();
            configuration.engines.data_dir = root.join("eh/data");
            configuration.orchestrator.state_dir = root.join("eh/engines");
            configuration.cluster.keys = root.join("keys");
            configuration.engines.allowed_locations = vec![root.join(location)];
            configuration.check().map_err(|error| error.to_string())
        };
        for (location, expected) in [
            ("eh", "contains engines.data_dir"),
            ("", "contains engines.data_dir"),
            ("link", "contains engines.data_dir"),
            ("eh/data/tables", "is inside engines.data_dir"),
            ("link/data", "contains engines.data_dir"),
            ("eh/engines/new", "is inside orchestrator.state_dir"),
            ("keys", "contains cluster.keys"),
        ] {
            let error = check(location).unwrap_err();
            assert!(error.contains(expected) && error.contains("Hint:"), "{location}: {error}");
        }
        for location in ["srv", "srv/new", "eh/tables", "eh/data-of-others", "keys-of-others"] {
            check(location).unwrap();
        }
        // The working directory holds the default folders.
        let mut configuration = Configuration::default();
        configuration.engines.allowed_locations = vec![PathBuf::from(".")];
        assert!(configuration.check().unwrap_err().to_string().contains("contains engines.data_dir"));
    }
}
