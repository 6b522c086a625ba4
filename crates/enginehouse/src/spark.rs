//! What holds for Spark wherever it runs: the class that serves, how it is started, the properties that its agent needs.
//!
//! Spark's server believes every name and knows no password. So it listens on loopback alone, where in a pod nobody but the
//! agent is, and which on one machine everybody can reach: a reason more why that has to be allowed (`spark.unconfined`).
//! Its agent passes on the names of users, and lets nobody in but proxies.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use engine_agent::engine::{Backend, Key};

/// The class of Spark that serves `HiveServer2`.
const SERVER: &str = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2";
/// What Spark's server is told as a password: it wants one and doesn't look at it.
const PASSWORD: &str = "none";
/// Which catalog Spark has.
const CATALOG: &str = "spark.sql.catalogImplementation";
/// The catalog that knows of nothing but this engine's own tables.
const OWN_CATALOG: &str = "in-memory";
/// What holds unless the configuration or the unit says otherwise. Tables live as long as the engine, which starts in
/// seconds so, until somebody names a metastore; nobody reads a web page that anybody could reach; a statement that is
/// cancelled is interrupted; every session of the agent may have its two connections.
const DEFAULTS: [(&str, &str); 4] = [
    (CATALOG, OWN_CATALOG),
    ("spark.ui.enabled", "false"),
    ("spark.sql.thriftServer.interruptOnCancel", "true"),
    ("spark.hadoop.hive.server2.thrift.max.worker.threads", "4500"),
];

/// The command line of Spark's server with that file of properties, which stand in no command line, where they could be
/// read by others. With such a file Spark doesn't read the one of its installation.
pub fn command_line(program: &Path, properties: &Path) -> Vec<String> {
    let (program, properties) = (program.to_string_lossy(), properties.to_string_lossy());
    [&*program, "--properties-file", &*properties, "--class", SERVER].map(str::to_owned).to_vec()
}

/// The properties that are said: by default, above it by the configuration, above it by the unit.
pub fn effective_properties(
    configured: &BTreeMap<String, String>,
    unit: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let defaults = DEFAULTS.map(owned).into_iter();
    let configured = configured.iter().chain(unit).map(|(key, value)| (key.clone(), value.clone()));
    let mut properties: BTreeMap<String, String> = defaults.chain(configured).collect();
    if properties[CATALOG] == OWN_CATALOG {
        // It takes no tables of Hive, which a CREATE TABLE that says nothing else would mean.
        properties.entry("spark.sql.legacy.createHiveTableByDefault".to_owned()).or_insert_with(|| "false".to_owned());
    }
    properties
}

/// The properties that name a metastore: its service, or its database.
const METASTORES: [&str; 3] =
    ["spark.hadoop.hive.metastore.uris", "spark.hive.metastore.uris", "spark.hadoop.javax.jdo.option.ConnectionURL"];

/// Whether the tables are in a metastore: each engine that names it has them, and they outlive this one.
pub fn has_metastore(properties: &BTreeMap<String, String>) -> bool {
    properties.get(CATALOG).is_some_and(|kind| kind == "hive")
        && METASTORES.iter().any(|key| properties.get(*key).is_some_and(|value| !value.is_empty()))
}

/// Properties with those above them that make Spark's server listen there, as its agent expects it.
pub fn listening(mut properties: BTreeMap<String, String>, address: SocketAddr) -> BTreeMap<String, String> {
    let needed = [
        ("thrift.bind.host", address.ip().to_string()),
        ("thrift.port", address.port().to_string()),
        ("transport.mode", "binary".to_owned()),
        ("authentication", "NONE".to_owned()),
        ("use.SSL", "false".to_owned()),
        // It would be the operating system's users, which those of the installation are not.
        ("enable.doAs", "false".to_owned()),
    ];
    for (key, value) in needed {
        // Of the two ways to say a property of Hive neither may be left to chance.
        properties.remove(&format!("spark.hive.server2.{key}"));
        properties.insert(format!("spark.hadoop.hive.server2.{key}"), value);
    }
    properties
}

/// Spark's server, as the agent connects to it.
pub fn backend(address: SocketAddr) -> Backend {
    Backend { address: address.to_string(), key: Key(PASSWORD.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_outlive_an_engine_whose_properties_name_a_metastore() {
        let hive = (CATALOG, "hive");
        assert!(!has_metastore(&effective_properties(&map(&[]), &map(&[]))));
        // Without a metastore's address, Hive keeps a database of the engine's own.
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
    fn a_unit_stands_above_the_configuration_and_that_above_the_defaults() {
        let configured = map(&[("spark.ui.enabled", "true"), ("spark.a", "configured"), ("spark.b", "configured")]);
        let properties = effective_properties(&configured, &map(&[("spark.a", "unit")]));
        let of = |key: &str| properties[key].as_str();
        assert_eq!((of("spark.a"), of("spark.b"), of("spark.ui.enabled")), ("unit", "configured", "true"));
        assert_eq!((of(CATALOG), of("spark.sql.legacy.createHiveTableByDefault")), (OWN_CATALOG, "false"));
    }

    #[test]
    fn with_a_metastore_a_table_is_what_spark_takes_it_for() {
        let properties = effective_properties(&BTreeMap::new(), &map(&[(CATALOG, "hive")]));
        assert!(!properties.contains_key("spark.sql.legacy.createHiveTableByDefault"), "{properties:?}");
    }

    #[test]
    fn where_the_server_listens_and_whom_it_believes_is_not_the_units_to_say() {
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
