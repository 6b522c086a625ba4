//! Section `[spark]`: engines of type `spark`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use model::secret::SecretKeys;
use serde::{Deserialize, Serialize};

/// The default port of Spark's server in a pod: that of `HiveServer2`.
const DEFAULT_PORT: u16 = 10_000;

/// The configuration of engines of type `spark`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SparkSection {
    /// `spark-submit`, where Spark runs: in its image, or on this machine.
    pub program: PathBuf,
    /// The environment of Spark; for local processes all of it, except a search path and a home.
    pub environment: BTreeMap<String, String>,
    /// Properties of every engine; those of its unit override them.
    pub properties: BTreeMap<String, String>,
    /// The version of Spark in each image.
    pub versions: BTreeMap<String, String>,
    /// The loopback port of Spark's server in a pod.
    pub port: u16,
    /// Whether engines of type `spark` may be local processes, whose users have all rights of this program's user.
    pub unconfined: bool,
}

impl Default for SparkSection {
    fn default() -> Self {
        Self {
            program: PathBuf::from("/opt/spark/bin/spark-submit"),
            environment: BTreeMap::new(),
            properties: BTreeMap::new(),
            versions: BTreeMap::new(),
            port: DEFAULT_PORT,
            unconfined: false,
        }
    }
}

impl SparkSection {
    /// Refuses values with which no engine could start.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.program.is_absolute() {
            bail!("spark.program is \"{}\", which is not an absolute path", self.program.display());
        }
        if self.port == 0 {
            bail!("spark.port is 0 and must be at least 1");
        }
        if let Some(name) = self.environment.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            bail!("spark.environment has \"{name}\", which is not the name of a variable");
        }
        if self.properties.keys().any(String::is_empty) {
            bail!("spark.properties has an entry without a key");
        }
        Ok(())
    }

    /// A copy with masked secret values, for display.
    pub fn masked(mut self, secret: &SecretKeys) -> Self {
        self.environment = secret.mask(&self.environment);
        self.properties = secret.mask(&self.properties);
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use crate::configuration::Configuration;

    #[test]
    fn what_no_engine_could_be_made_from_is_refused_with_its_key() {
        for (text, key) in [
            ("program = \"bin/spark-submit\"", "spark.program"),
            ("port = 0", "spark.port"),
            ("environment = { \"A=B\" = \"\" }", "spark.environment"),
            ("properties = { \"\" = \"1\" }", "spark.properties"),
        ] {
            let configuration = Configuration::parse(&format!("[spark]\n{text}\n"), &[]).unwrap();
            let error = configuration.check().unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn secret_values_are_masked() {
        let text = "[spark]\nproperties = { \"spark.hadoop.fs.s3a.secret.key\" = \"hidden\", \"spark.x\" = \"shown\" }\n\
                    environment = { AWS_SECRET_ACCESS_KEY = \"hidden\" }\n";
        let configuration = Configuration::parse(text, &[]).unwrap();
        let shown = format!("{:?}", configuration.spark.masked(&configuration.metadata_agent.secret_keys));
        assert!(shown.contains("shown") && !shown.contains("hidden"), "{shown}");
    }
}
