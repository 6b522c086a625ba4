//! Spark's server in general: its class, its command line and the properties that its agent needs.
//!
//! Spark's server trusts every user name and checks no password, so it listens on loopback only. In a pod only the agent can
//! connect there; on one machine every user can, which is one reason for `spark.unconfined`. The agent forwards the names of
//! users, and accepts connections of proxies only.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use engine_agent::engine::{Backend, Key};

/// Spark's class that serves `HiveServer2`.
const SERVER: &str = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2";
/// The password for Spark's server, which requires one and ignores it.
const PASSWORD: &str = "none";
/// The property with the type of the catalog.
const CATALOG: &str = "spark.sql.catalogImplementation";
/// A catalog with this engine's own tables only.
const OWN_CATALOG: &str = "in-memory";
/// Defaults that the configuration and the unit override: a catalog that lives as long as the engine and starts in seconds,
/// until a metastore is configured; no web interface, which would be public; cancelled statements are interrupted; two
/// connections for each session of the agent.
const DEFAULTS: [(&str, &str); 4] = [
    (CATALOG, OWN_CATALOG),
    ("spark.ui.enabled", "false"),
    ("spark.sql.thriftServer.interruptOnCancel", "true"),
    ("spark.hadoop.hive.server2.thrift.max.worker.threads", "4500"),
];

/// The command line of Spark's server. The properties are in a file, since other users can read command lines. With such a
/// file Spark ignores the one of its installation.
pub fn command_line(program: &Path, properties: &Path) -> Vec<String> {
    let (program, properties) = (program.to_string_lossy(), properties.to_string_lossy());
    [&*program, "--properties-file", &*properties, "--class", SERVER].map(str::to_owned).to_vec()
}

/// The properties by precedence: the unit's, the configuration's, the defaults.
pub fn effective_properties(
    configured: &BTreeMap<String, String>,
    unit: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let defaults = DEFAULTS.map(owned).into_iter();
    let configured = configured.iter().chain(unit).map(|(key, value)| (key.clone(), value.clone()));
    let mut properties: BTreeMap<String, String> = defaults.chain(configured).collect();
    if properties[CATALOG] == OWN_CATALOG {
        // It has no Hive tables, which a plain CREATE TABLE would create.
        properties.entry("spark.sql.legacy.createHiveTableByDefault".to_owned()).or_insert_with(|| "false".to_owned());
    }
    properties
}

/// Properties that configure a metastore: its service, or its database.
const METASTORES: [&str; 3] =
    ["spark.hadoop.hive.metastore.uris", "spark.hive.metastore.uris", "spark.hadoop.javax.jdo.option.ConnectionURL"];

/// Whether the tables are in a metastore, which shares them among engines and keeps them when this one ends.
pub fn has_metastore(properties: &BTreeMap<String, String>) -> bool {
    properties.get(CATALOG).is_some_and(|kind| kind == "hive")
        && METASTORES.iter().any(|key| properties.get(*key).is_some_and(|value| !value.is_empty()))
}

/// Overrides the properties that make Spark's server listen at the address in the way that its agent expects.
pub fn listening(mut properties: BTreeMap<String, String>, address: SocketAddr) -> BTreeMap<String, String> {
    let needed = [
        ("thrift.bind.host", address.ip().to_string()),
        ("thrift.port", address.port().to_string()),
        ("transport.mode", "binary".to_owned()),
        ("authentication", "NONE".to_owned()),
        ("use.SSL", "false".to_owned()),
        // It would use users of the operating system, which users of the installation are not.
        ("enable.doAs", "false".to_owned()),
    ];
    for (key, value) in needed {
        // A property of Hive has two spellings; only one remains.
        properties.remove(&format!("spark.hive.server2.{key}"));
        properties.insert(format!("spark.hadoop.hive.server2.{key}"), value);
    }
    properties
}

/// The agent's view of Spark's server.
pub fn backend(address: SocketAddr) -> Backend {
    Backend { address: address.to_string(), key: Key(PASSWORD.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_in_a_metastore_outlive_their_engine() {
        let hive = (CATALOG, "hive");
        assert!(!has_metastore(&effective_properties(&map(&[]), &map(&[]))));
        // Without the address of a metastore, Hive uses a database of the engine's own.
        assert!(!has_metastore(&effective_properties(&map(&[hive]), &map(&[]))));
        assert!(has_metastore(&effective_properties(
            &map(&[hive]),
            &map(&[(METASTORES[0], "thrift://metastore:9083")])
        )));
        assert!(!has_metastore(&effective_properties(&map(&[(METASTORES[0], "thrift://metastore:9083")]), &map(&[]))));
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_unit_overrides_the_configuration_which_overrides_defaults() {
        let configured = map(&[("spark.ui.enabled", "true"), ("spark.a", "configured"), ("spark.b", "configured")]);
        let properties = effective_properties(&configured, &map(&[("spark.a", "unit")]));
        let of = |key: &str| properties[key].as_str();
        assert_eq!((of("spark.a"), of("spark.b"), of("spark.ui.enabled")), ("unit", "configured", "true"));
        assert_eq!((of(CATALOG), of("spark.sql.legacy.createHiveTableByDefault")), (OWN_CATALOG, "false"));
    }

    #[test]
    fn with_a_metastore_create_table_has_sparks_own_default() {
        let properties = effective_properties(&BTreeMap::new(), &map(&[(CATALOG, "hive")]));
        assert!(!properties.contains_key("spark.sql.legacy.createHiveTableByDefault"), "{properties:?}");
    }

    #[test]
    fn a_unit_cannot_set_address_and_authentication_of_the_server() {
        let unit = map(&[
            ("spark.hive.server2.thrift.bind.host", "0.0.0.0"),
            ("spark.hadoop.hive.server2.thrift.port", "1"),
            ("spark.hadoop.hive.server2.transport.mode", "http"),
            ("spark.hive.server2.idle.session.timeout", "1h"),
        ]);
        let properties = listening(unit, SocketAddr::from(([127, 0, 0, 1], 10_000)));
        let hive: Vec<_> = properties.keys().filter(|key| key.starts_with("spark.hive.")).collect();
        assert_eq!(hive, ["spark.hive.server2.idle.session.timeout"]);
        for (key, value) in [("thrift.bind.host", "127.0.0.1"), ("thrift.port", "10000"), ("transport.mode", "binary")]
        {
            assert_eq!(properties[&format!("spark.hadoop.hive.server2.{key}")], value);
        }
    }
}
