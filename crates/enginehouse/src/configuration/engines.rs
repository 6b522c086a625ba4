//! Section `[engines]`: the location of the engines' catalogs, and the defaults of engines on demand.

use std::path::PathBuf;

use anyhow::bail;
use model::on_demand::OnDemandDefaults;
use model::secret::{MASK, SecretKeys};

use super::EnginesSection;
use crate::engine_file::CatalogBucket;

/// The schemes of object stores that engines read.
const STORES: [&str; 7] = ["s3://", "s3a://", "gs://", "az://", "abfs://", "abfss://", "azure://"];

/// The location of the catalogs, which has a folder for each tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Catalogs {
    /// Below the engines' data.
    Default,
    /// A folder on the engine's machine.
    Folder(PathBuf),
    /// An object store.
    Bucket(CatalogBucket),
}

impl EnginesSection {
    /// The location that `catalog_url` denotes.
    pub fn catalog(&self) -> anyhow::Result<Catalogs> {
        let url = self.catalog_url.as_str();
        if STORES.iter().any(|scheme| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty())) {
            if !cfg!(feature = "object-stores") {
                bail!(
                    "engines.catalog_url is \"{url}\", but this program was built without object stores\nHint: Build it with cargo build --release --features object-stores."
                );
            }
            return Ok(Catalogs::Bucket(CatalogBucket { url: url.to_owned(), options: self.catalog_options.clone() }));
        }
        if !self.catalog_options.is_empty() {
            bail!("engines.catalog_options is given, and engines.catalog_url names no object store");
        }
        match url.strip_prefix("file://") {
            Some("") => Ok(Catalogs::Default),
            Some(path) if path.starts_with('/') => Ok(Catalogs::Folder(PathBuf::from(path))),
            _ => bail!("engines.catalog_url \"{url}\" is none of file://, file:///folder, {}…", STORES.join("…, ")),
        }
    }

    /// For units that leave the options of engines on demand open.
    pub const fn on_demand(&self) -> OnDemandDefaults {
        OnDemandDefaults { start_on_demand: self.start_on_demand, idle_timeout: self.idle_timeout }
    }

    /// A copy with masked secret options, for display.
    pub fn masked(mut self, secret: &SecretKeys) -> Self {
        self.catalog_options = secret.mask(&self.catalog_options);
        for (key, value) in &mut self.catalog_options {
            // An account's key or a signature of Azure opens the store too.
            if ["key", "sas"].iter().any(|word| key.to_ascii_lowercase().contains(word)) {
                MASK.clone_into(value);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn section(url: &str) -> EnginesSection {
        EnginesSection { catalog_url: url.to_owned(), ..EnginesSection::default() }
    }

    #[test]
    fn a_catalog_is_a_folder_or_in_an_object_store() {
        assert_eq!(EnginesSection::default().catalog().unwrap(), Catalogs::Default);
        assert_eq!(section("file:///srv/catalog").catalog().unwrap(), Catalogs::Folder(PathBuf::from("/srv/catalog")));
        #[cfg(feature = "object-stores")]
        {
            let Catalogs::Bucket(bucket) = section("s3://bucket/prefix").catalog().unwrap() else {
                panic!("no bucket")
            };
            assert_eq!(bucket.url, "s3://bucket/prefix");
        }
        #[cfg(not(feature = "object-stores"))]
        {
            let error = section("s3://bucket/prefix").catalog().unwrap_err().to_string();
            assert!(error.contains("built without object stores\nHint: Build it with"), "{error}");
        }
        for wrong in ["", "folder", "file://folder", "s3://", "http://x/y"] {
            let error = section(wrong).catalog().unwrap_err().to_string();
            assert!(error.contains("engines.catalog_url"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_idle_timeout_is_a_duration_or_never() {
        let read = |text: &str| crate::configuration::Configuration::parse(&format!("[engines]\n{text}\n"), &[]);
        for (text, timeout) in [("", "5m"), ("idle_timeout = \"90s\"", "90s"), ("idle_timeout = \"never\"", "never")] {
            let on_demand = read(text).unwrap().engines.on_demand();
            assert_eq!((on_demand.idle_timeout.to_string(), on_demand.start_on_demand), (timeout.to_owned(), true));
        }
        assert!(!read("start_on_demand = false").unwrap().engines.on_demand().start_on_demand);
        let error = format!("{:#}", read("idle_timeout = \"0s\"").unwrap_err());
        let expected = ["line 2", "idle_timeout: invalid idle timeout \"0s\"", "at least 1s", "or NEVER"];
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn secrets_of_the_store_are_masked_and_belong_to_a_store() {
        let mut section = section("s3://bucket/prefix");
        section.catalog_options.insert("aws_secret_access_key".to_owned(), "hush".to_owned());
        assert!(!format!("{:?}", section.catalog()).contains("hush"));
        assert!(!format!("{:?}", section.clone().masked(&SecretKeys::default())).contains("hush"));
        section.catalog_url = "file://".to_owned();
        assert!(section.catalog().unwrap_err().to_string().contains("catalog_options"));
    }
}
