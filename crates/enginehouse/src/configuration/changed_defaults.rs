//! The changed defaults: keys whose default makes an installation behave differently than under an earlier version, with the
//! line that keeps the old behavior.
//!
//! A key is listed if its default was another value, or if it is new and the earlier version behaved as with another value.
//! `docs/upgrade.md` has the same table; tests compare both with the defaults, and with those recorded of that version.

/// A key with a changed default.
#[derive(Debug, Clone, Copy)]
pub struct ChangedDefault {
    pub section: &'static str,
    pub key: &'static str,
    /// The last version with the old behavior.
    pub last: &'static str,
    /// The old default, or in words what a version without this key did.
    pub old: &'static str,
    /// The default, in TOML.
    pub new: &'static str,
    /// The value that keeps the old behavior, in TOML.
    pub keep: &'static str,
}

/// All changed defaults: versions in order, the newest first, and the keys of a section one after the other.
pub const CHANGED_DEFAULTS: [ChangedDefault; 22] = [
    since_0_1_0("cluster", "tls", "off", "\"required\"", "\"optional\""),
    since_0_1_0("proxy", "unbind_after", "never", "\"5m\"", "\"0s\""),
    since_0_1_0("proxy", "session_idle", "never", "\"1d\"", "\"0s\""),
    since_0_1_0("proxy", "hosts", "any name", "[]", "[\"*\"]"),
    since_0_1_0("proxy", "max_connections_per_user", "no limit", "1000", "1000000"),
    since_0_1_0("proxy", "max_connections_per_address", "no limit", "4000", "1000000"),
    since_0_1_0("proxy", "max_unauthenticated", "no limit", "1000", "1000000"),
    since_0_1_0("proxy", "max_unauthenticated_per_address", "no limit", "32", "1000000"),
    since_0_1_0("proxy", "connect_rate", "no limit", "1000", "0"),
    since_0_1_0("proxy", "max_sessions_per_tenant", "no limit", "2000", "1000000"),
    since_0_1_0("proxy", "max_statements_per_user", "no limit", "100", "1000000"),
    since_0_1_0("proxy", "max_statements_per_tenant", "no limit", "500", "1000000"),
    since_0_1_0("proxy", "max_session_setting_bytes", "no limit", "1048576", "1000000000000"),
    since_0_1_0("proxy", "max_session_statement_bytes", "no limit", "33554432", "1000000000000"),
    since_0_1_0("proxy", "max_held_bytes", "no limit", "1073741824", "1000000000000"),
    since_0_1_0("proxy", "request_memory", "no limit", "268435456", "1000000000000"),
    since_0_1_0("proxy", "request_memory_per_user", "no limit", "67108864", "268435456"),
    since_0_1_0("master", "replace_after", "never", "\"1m\"", "\"3650d\""),
    since_0_1_0("master", "node_grace", "never", "\"5s\"", "\"3650d\""),
    since_0_1_0("metadata_agent", "max_engines", "no limit", "10000", "1000000"),
    since_0_1_0("engines", "start_on_demand", "false", "true", "false"),
    since_0_1_0("database", "tls", "if the server offers it", "\"verify\"", "\"off\""),
];

const fn since_0_1_0(
    section: &'static str,
    key: &'static str,
    old: &'static str,
    new: &'static str,
    keep: &'static str,
) -> ChangedDefault {
    ChangedDefault { section, key, last: "0.1.0", old, new, keep }
}

impl ChangedDefault {
    /// The line for the section of the key.
    fn line(&self) -> String {
        format!("{} = {}", self.key, self.keep)
    }

    fn is_set(&self, keys: &toml::Table) -> bool {
        keys.get(self.section).and_then(toml::Value::as_table).is_some_and(|section| section.contains_key(self.key))
    }
}

/// The changed defaults of the keys that are not set, as comments in TOML: for each version a heading, and sections and lines
/// to copy. Empty if all are set.
pub fn notice(keys: &toml::Table) -> Vec<String> {
    let unset: Vec<&ChangedDefault> = CHANGED_DEFAULTS.iter().filter(|changed| !changed.is_set(keys)).collect();
    let width = unset.iter().map(|changed| changed.line().len()).max().unwrap_or_default();
    let mut lines = Vec::new();
    let (mut version, mut section) = ("", "");
    for changed in unset {
        if changed.last != version {
            (version, section) = (changed.last, "");
            lines.push(format!("# changed defaults since {version}; to keep the old behavior, add:"));
        }
        if changed.section != section {
            section = changed.section;
            lines.push(format!("#   [{section}]"));
        }
        let ChangedDefault { old, new, .. } = changed;
        lines.push(format!("#   {:width$}  # {version}: {old}; now: {new}", changed.line()));
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::super::Configuration;
    use super::*;

    /// The defaults of each recorded version, as its `config check` printed them.
    const RECORDED: [(&str, &str); 1] = [("0.1.0", include_str!("../../../../tests/upgrade/0.1.0/defaults.toml"))];

    /// Keys that came after the recorded versions, and with whose default an installation behaves as before.
    const WITHOUT_EFFECT: [&str; 75] = [
        "access.auditors",
        "access.impersonation",
        "access.lockout",
        "access.login_cache",
        "access.operators",
        "access.resource_providers",
        "access.stale",
        "access.users_file",
        // Without key files no role starts, and the error says how to make them.
        "cluster.keys",
        "database.ca_file",
        "database.password_file",
        "engines.catalog_options",
        "engines.catalog_url",
        "engines.idle_timeout",
        "hiveserver2.command",
        "hiveserver2.environment",
        "hiveserver2.properties",
        "hiveserver2.property_arguments",
        "hiveserver2.shared_catalog",
        "hiveserver2.unconfined",
        "jwt.algorithms",
        "jwt.as_password",
        "jwt.audience",
        "jwt.ca_file",
        "jwt.groups_claim",
        "jwt.issuer",
        "jwt.jwks_file",
        "jwt.jwks_url",
        "jwt.leeway",
        "jwt.refresh",
        "jwt.user_claim",
        "kerberos.realms",
        "kerberos.services",
        "kubernetes.user_ids",
        "ldap.bind_dn",
        "ldap.bind_password_file",
        "ldap.bind_pattern",
        "ldap.ca_file",
        "ldap.connect_timeout",
        "ldap.connections",
        "ldap.group_attribute",
        "ldap.group_base",
        "ldap.group_filter",
        "ldap.insecure",
        "ldap.member_of",
        "ldap.start_tls",
        "ldap.timeout",
        "ldap.url",
        "ldap.user_attribute",
        "ldap.user_base",
        "ldap.user_filter",
        "master.burst",
        "master.cancel_after",
        "master.cooldown",
        "metadata_agent.audit_keep",
        "orchestrator.min_uid",
        "proxy.demand_lease",
        "proxy.http_session_idle",
        "proxy.product_name",
        "proxy.product_version",
        "proxy.serves_clients",
        "proxy.session_age",
        "reservations.audit",
        "reservations.external_ttl",
        "reservations.keep",
        "reservations.lease",
        "reservations.patience",
        "reservations.ttl",
        "tls.certificate_file",
        "tls.key_file",
        "tls.minimum_version",
        "tls.mode",
        "tls.reload",
        "zookeeper.ca_file",
        "zookeeper.tls",
    ];

    fn defaults() -> toml::Table {
        toml::Table::try_from(Configuration::default()).unwrap()
    }

    /// A word stands for a list of one.
    fn same(one: &toml::Value, other: &toml::Value) -> bool {
        let list = |value: &toml::Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        list(one) == list(other)
    }

    #[test]
    fn the_table_has_the_defaults_and_lines_that_are_accepted() {
        let defaults = defaults();
        for changed in CHANGED_DEFAULTS {
            let ChangedDefault { section, key, .. } = changed;
            let default = defaults[section].get(key).unwrap_or_else(|| panic!("there is no {section}.{key}"));
            assert_eq!(default.to_string(), changed.new, "{section}.{key}");
            assert_ne!(changed.new, changed.keep, "{section}.{key}");
            let text = format!("[{section}]\n{}\n", changed.line());
            Configuration::parse(&text, &[]).unwrap().check().unwrap();
        }
    }

    #[test]
    fn every_default_that_differs_from_a_recorded_version_is_listed() {
        for (version, recorded) in RECORDED {
            let recorded: toml::Table = recorded.parse().unwrap();
            for (section, keys) in &defaults() {
                for (key, now) in keys.as_table().unwrap() {
                    let is_this = |changed: &&ChangedDefault| {
                        changed.last == version && changed.section == section && changed.key == key
                    };
                    let listed = CHANGED_DEFAULTS.iter().find(is_this);
                    let name = format!("{section}.{key}");
                    match (recorded.get(section).and_then(|keys| keys.get(key)), listed) {
                        (Some(old), Some(listed)) => assert_eq!(old.to_string(), listed.old, "{name}"),
                        (Some(old), None) => assert!(same(old, now), "{name} was {old} in {version}, and is {now}"),
                        (None, Some(_)) => assert!(!WITHOUT_EFFECT.contains(&name.as_str()), "{name}"),
                        (None, None) => assert!(
                            WITHOUT_EFFECT.contains(&name.as_str()),
                            "{name} is new since {version}: list it here if an installation behaves as before, and in \
                             CHANGED_DEFAULTS otherwise"
                        ),
                    }
                }
            }
        }
    }

    #[test]
    fn keys_that_are_set_are_left_out() {
        let all = notice(&toml::Table::new());
        assert_eq!(all[..2], ["# changed defaults since 0.1.0; to keep the old behavior, add:", "#   [cluster]"]);
        let columns: Vec<usize> = all.iter().filter_map(|line| line.find("  # 0.1.0: ")).collect();
        assert_eq!(columns.len(), CHANGED_DEFAULTS.len());
        assert!(columns.iter().all(|column| *column == columns[0]), "{all:#?}");
        let lines: Vec<&str> = all[1..].iter().map(|line| line.trim_start_matches('#')).collect();
        let mut keys: toml::Table = lines.join("\n").parse().unwrap();
        assert_eq!(notice(&keys), Vec::<String>::new());
        keys["proxy"].as_table_mut().unwrap().remove("hosts");
        let one = ["#   [proxy]", "#   hosts = [\"*\"]  # 0.1.0: any name; now: []"];
        assert_eq!(notice(&keys)[1..], one);
    }
}
