//! The address of a server: `HOST:PORT`, or a `jdbc:hive2://` URL as other clients use.

use anyhow::{Context as _, bail};

/// The port of a HiveServer2 when none is named.
const DEFAULT_PORT: u16 = 10_000;

/// A server and the parameters of a session.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ServerUrl {
    /// `host:port`
    pub address: String,
    /// Without SASL (`;auth=noSasl`).
    pub plain_thrift: bool,
    /// With TLS (`;ssl=true`).
    pub tls: bool,
    /// The user, if the URL names one.
    pub user: Option<String>,
    /// The password, if the URL has one.
    pub password: Option<String>,
    /// Entries of the session's configuration, in the spelling of the JDBC driver.
    pub configuration: Vec<(String, String)>,
}

impl ServerUrl {
    /// Reads an address or URL. As the JDBC driver does: the path is the database, `?k=v;…` are settings, `#k=v;…`
    /// are variables.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let Some(rest) = text.strip_prefix("jdbc:hive2://") else {
            if text.contains("://") {
                bail!("invalid address \"{text}\"\nHint: Use HOST:PORT or jdbc:hive2://HOST:PORT/.");
            }
            return Ok(Self { address: address(text)?, ..Self::default() });
        };
        let (rest, variables) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut parts = path.split(';');
        let database = parts.next().unwrap_or_default();
        let mut target = Self { address: address(host)?, ..Self::default() };
        for option in parts.filter(|option| !option.is_empty()) {
            let (key, value) = pair(option)?;
            match key.to_ascii_lowercase().as_str() {
                "auth" if value.eq_ignore_ascii_case("noSasl") => target.plain_thrift = true,
                "ssl" if value.eq_ignore_ascii_case("true") => target.tls = true,
                "ssl" if value.eq_ignore_ascii_case("false") => target.tls = false,
                "ssltruststore" | "truststorepassword" => {
                    bail!(
                        "option \"{key}\" of the URL is not supported\nHint: Use --ca FILE, with certificates in PEM."
                    )
                }
                "user" => target.user = Some(value.to_owned()),
                "password" => target.password = Some(value.to_owned()),
                "auth" | "transportmode" | "ssl" | "servicediscoverymode" | "zookeepernamespace" => {
                    bail!("option \"{option}\" of the URL is not supported")
                }
                _ => bail!("unknown option \"{key}\" in the URL\nHint: Settings of the session follow after ?."),
            }
        }
        if !database.is_empty() {
            target.configuration.push(("use:database".to_owned(), database.to_owned()));
        }
        for (prefix, list) in [("set:hiveconf:", settings), ("set:hivevar:", variables)] {
            for entry in list.split([';', '&']).filter(|entry| !entry.is_empty()) {
                let (key, value) = pair(entry)?;
                target.configuration.push((format!("{prefix}{key}"), value.to_owned()));
            }
        }
        Ok(target)
    }
}

fn pair(text: &str) -> anyhow::Result<(&str, &str)> {
    text.split_once('=').with_context(|| format!("\"{text}\" in the URL is not of the form key=value"))
}

fn address(text: &str) -> anyhow::Result<String> {
    if text.contains(',') {
        bail!("several hosts in \"{text}\" are not supported");
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !host.ends_with(':') => {
            port.parse::<u16>().with_context(|| format!("invalid port \"{port}\""))?;
            Ok(text.to_owned())
        }
        None if !text.is_empty() => Ok(format!("{text}:{DEFAULT_PORT}")),
        _ => bail!("invalid address \"{text}\"\nHint: Use HOST:PORT or jdbc:hive2://HOST:PORT/."),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn an_address_with_or_without_a_port_is_read() {
        assert_eq!(ServerUrl::parse("h:1").unwrap().address, "h:1");
        assert_eq!(ServerUrl::parse("h").unwrap().address, "h:10000");
        for bad in ["", ":1", "h:x", "http://h", "jdbc:hive2://a:1,b:2/"] {
            assert!(ServerUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_jdbc_url_is_read_as_the_driver_reads_it() {
        let target = ServerUrl::parse("jdbc:hive2://h:1/db;auth=noSasl?a=1;b=2#c=3").unwrap();
        assert!(target.plain_thrift);
        let expected =
            [("use:database", "db"), ("set:hiveconf:a", "1"), ("set:hiveconf:b", "2"), ("set:hivevar:c", "3")];
        assert_eq!(target.configuration, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert!(ServerUrl::parse("jdbc:hive2://h:1/;transportMode=http").is_err());
        assert!(ServerUrl::parse("jdbc:hive2://h:1/;ssl=true").unwrap().tls);
        assert!(!ServerUrl::parse("jdbc:hive2://h:1/;ssl=false").unwrap().tls);
        let error = ServerUrl::parse("jdbc:hive2://h:1/;ssl=true;sslTrustStore=x.jks").err().unwrap().to_string();
        assert!(error.contains("--ca FILE"), "{error}");
        let target = ServerUrl::parse("jdbc:hive2://h:1/;user=ann;password=a=b").unwrap();
        assert_eq!((target.user.as_deref(), target.password.as_deref()), (Some("ann"), Some("a=b")));
    }
}
