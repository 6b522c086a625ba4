//! Section `[zookeeper]`: the ensemble, and how connections to it are protected.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use coordination::{Layout, ZookeeperTls};
use serde::{Deserialize, Serialize};

use super::{Configuration, Span, UnreadableFile};

/// The shortest session timeout, in milliseconds.
const MIN_SESSION_MS: u128 = 500;
/// The longest CA file, in bytes: an object of Kubernetes with more than a MiB is refused.
const MAX_CA_BYTES: usize = 256 << 10;
/// The cargo feature of a program that can use TLS.
const HOW_TO_BUILD: &str = "cargo build --release --features zookeeper-tls";

/// Whether connections to ZooKeeper are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZookeeperTlsMode {
    Off,
    /// Each server must prove its host name.
    Required,
}

/// ZooKeeper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZookeeperSection {
    /// `host:port,host:port,…`
    pub connect: String,
    /// The root node; one or two levels.
    pub root: String,
    /// The time without a heartbeat after which the ephemeral nodes of a process are deleted.
    pub session_timeout: Span,
    /// Whether watch events are used; without them everything converges by polling.
    pub watch_events: bool,
    pub tls: ZookeeperTlsMode,
    /// The certificates of CAs in PEM; those of the machine if it is empty.
    pub ca_file: PathBuf,
}

impl Default for ZookeeperSection {
    fn default() -> Self {
        Self {
            connect: "127.0.0.1:2181".to_owned(),
            root: "/enginehouse".to_owned(),
            session_timeout: Span::seconds(10),
            watch_events: true,
            tls: ZookeeperTlsMode::Off,
            ca_file: PathBuf::new(),
        }
    }
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn host(server: &str) -> &str {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl ZookeeperSection {
    /// The text of the CA file; `None` for the certificates of the machine.
    pub fn ca(&self) -> anyhow::Result<Option<String>> {
        if self.ca_file.as_os_str().is_empty() {
            return Ok(None);
        }
        let read = std::fs::read_to_string(&self.ca_file);
        let unreadable = |error| UnreadableFile::new("CA file", &self.ca_file, error);
        let text = read.map_err(unreadable).context("zookeeper.ca_file")?;
        if text.len() > MAX_CA_BYTES {
            let (path, bytes) = (self.ca_file.display(), text.len());
            bail!("zookeeper.ca_file: {path} has {bytes} bytes, more than {MAX_CA_BYTES}: every engine has a copy");
        }
        Ok(Some(text))
    }

    /// Whose certificates sessions trust; `None` without TLS. Reads the CA file.
    pub fn trust(&self) -> anyhow::Result<Option<ZookeeperTls>> {
        match self.tls {
            ZookeeperTlsMode::Off => Ok(None),
            ZookeeperTlsMode::Required => zookeeper_trust(self.ca()?.as_deref()).map(Some),
        }
    }

    /// Whether passwords leave this machine in clear.
    pub fn is_sent_in_clear(&self) -> bool {
        let is_local = |host: &str| {
            host.eq_ignore_ascii_case("localhost")
                || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
        };
        self.tls == ZookeeperTlsMode::Off && !self.connect.split(',').all(|server| is_local(host(server)))
    }
}

/// Trusts the certificates of a text in PEM, or without one those of the machine.
pub fn zookeeper_trust(ca: Option<&str>) -> anyhow::Result<ZookeeperTls> {
    match ca {
        Some(pem) => ZookeeperTls::from_pem(pem).context("zookeeper.ca_file"),
        None => ZookeeperTls::from_machine().context("the certificates of the machine; set zookeeper.ca_file"),
    }
}

impl Configuration {
    pub(super) fn check_zookeeper(&self) -> anyhow::Result<()> {
        let section = &self.zookeeper;
        if section.session_timeout.0.as_millis() < MIN_SESSION_MS {
            bail!("zookeeper.session_timeout is below {MIN_SESSION_MS}ms");
        }
        for server in section.connect.split(',') {
            let port = server.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'));
            if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                bail!(
                    "zookeeper.connect has \"{server}\", which is not HOST:PORT\nHint: Separate servers by commas; set the root node with zookeeper.root, and TLS with zookeeper.tls."
                );
            }
        }
        self.check_zookeeper_tls()?;
        let namespace = &self.proxy.discovery_namespace;
        match Layout::new(&section.root, (!namespace.is_empty()).then_some(namespace.as_str())) {
            Ok(_) => Ok(()),
            Err(error) => bail!("zookeeper.root or proxy.discovery_namespace: {}", error.text()),
        }
    }

    fn check_zookeeper_tls(&self) -> anyhow::Result<()> {
        let section = &self.zookeeper;
        match section.tls {
            ZookeeperTlsMode::Off if !section.ca_file.as_os_str().is_empty() => {
                bail!("zookeeper.ca_file is set, but zookeeper.tls is \"off\": the file would have no effect")
            }
            ZookeeperTlsMode::Off => Ok(()),
            ZookeeperTlsMode::Required if !ZookeeperTls::is_built() => bail!(
                "zookeeper.tls is \"required\", but this program was built without the cargo feature zookeeper-tls\nHint: Build it with {HOW_TO_BUILD}."
            ),
            ZookeeperTlsMode::Required => {
                // The client library would panic.
                if let Some(server) = section.connect.split(',').find(|server| !ZookeeperTls::can_prove(server)) {
                    bail!("zookeeper.connect has \"{server}\", whose host is no name that a certificate can have");
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::configuration::check::checked;

    fn refusal(text: &str) -> String {
        format!("{:#}", checked(&format!("[zookeeper]\n{text}\n")).unwrap_err())
    }

    #[test]
    fn servers_have_a_host_and_a_port_and_no_scheme() {
        checked("[zookeeper]\nconnect = \"zk1:2181,10.0.0.7:2181,[::1]:2181\"\n").unwrap();
        for connect in ["zk1", "zk1:2181/root", "tcp://zk1:2181", "tcp+tls://zk1:2281", ":2181", "zk1:2181,"] {
            assert!(refusal(&format!("connect = \"{connect}\"")).contains("which is not HOST:PORT"), "{connect}");
        }
    }

    #[test]
    fn required_needs_a_program_with_the_feature() {
        assert!(refusal("tls = \"on\"").contains("expected `off` or `required`"));
        assert!(refusal("ca_file = \"ca.crt\"").contains("would have no effect"));
        let required = "tls = \"required\"\nconnect = \"zk1:2281\"";
        if ZookeeperTls::is_built() {
            checked(&format!("[zookeeper]\n{required}\n")).unwrap();
            let error = refusal("tls = \"required\"\nconnect = \"zk 1:2281\"");
            assert!(error.contains("no name that a certificate can have"), "{error}");
        } else {
            assert!(refusal(required).contains("without the cargo feature zookeeper-tls"), "{}", refusal(required));
        }
    }

    #[test]
    fn digests_leave_this_machine_in_clear_only_without_tls() {
        let section = |connect: &str, tls| ZookeeperSection { connect: connect.to_owned(), tls, ..Default::default() };
        for (connect, in_clear) in [
            ("127.0.0.1:2181", false),
            ("localhost:1,[::1]:2", false),
            ("127.0.0.1:2181,zk1:2181", true),
            ("10.0.0.7:2181", true),
        ] {
            assert_eq!(section(connect, ZookeeperTlsMode::Off).is_sent_in_clear(), in_clear, "{connect}");
            assert!(!section(connect, ZookeeperTlsMode::Required).is_sent_in_clear(), "{connect}");
        }
    }
}
