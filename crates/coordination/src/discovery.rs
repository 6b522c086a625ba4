//! Service discovery of the proxies for Hive's JDBC driver (`serviceDiscoveryMode=zooKeeper`).
//!
//! Each proxy has one ephemeral sequential node in the namespace. It is world-readable, because drivers read it without a
//! password. The namespace must hold nothing else: the driver takes every child for a server.

use zookeeper_client::CreateMode;

use crate::error::Error;
use crate::session::Session;
use crate::transaction::Transaction;

/// How drivers that find a proxy connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriverSettings {
    /// As if their URL had `ssl=true`.
    pub use_tls: bool,
    /// With a ticket for this principal, such as `hive/_HOST@REALM`; drivers put the host of the proxy in the place of `_HOST`.
    pub principal: Option<String>,
}

/// Registers a proxy under an address that clients can reach, in binary transport, and returns the path of its node.
/// Idempotent within a session.
pub async fn register(
    session: &Session,
    host: &str,
    port: u16,
    version: &str,
    drivers: &DriverSettings,
) -> Result<String, Error> {
    if let Some(path) = own(session, host, port, version).await? {
        return Ok(path);
    }
    let tls = if drivers.use_tls { ";hive.server2.use.SSL=true" } else { "" };
    let ticket = drivers.principal.as_ref().map_or_else(String::new, |principal| {
        format!(
            ";hive.server2.authentication=KERBEROS;hive.server2.authentication.kerberos.principal={principal};hive.server2.thrift.sasl.qop=auth"
        )
    });
    let data = format!(
        "hive.server2.thrift.bind.host={host};hive.server2.thrift.port={port};hive.server2.transport.mode=binary{tls}{ticket}"
    );
    let path = format!("{}/{}", session.layout().namespace(), name(host, port, version));
    session.create(&path, data.as_bytes(), CreateMode::EphemeralSequential, &session.access().namespace()).await
}

/// Deletes the node that [`register`] created on this session; returns whether there was one.
pub async fn withdraw(session: &Session, host: &str, port: u16, version: &str) -> Result<bool, Error> {
    let Some(path) = own(session, host, port, version).await? else { return Ok(false) };
    match Transaction::new(session).delete(path).commit().await {
        Ok(()) => Ok(true),
        Err(Error::NoNode { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The path of the node that this session owns for the proxy.
async fn own(session: &Session, host: &str, port: u16, version: &str) -> Result<Option<String>, Error> {
    let namespace = session.layout().namespace();
    let name = name(host, port, version);
    let Some((names, _)) = session.children(namespace).await? else { return Ok(None) };
    for child in names.into_iter().filter(|child| child.starts_with(&name)) {
        let path = format!("{namespace}/{child}");
        if session.stat(&path).await?.is_some_and(|stat| stat.ephemeral_owner == session.id()) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn name(host: &str, port: u16, version: &str) -> String {
    format!("serverUri={host}:{port};version={version};sequence=")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredProxy {
    /// Where clients connect, as `host:port`.
    pub address: String,
    /// The version of the program; empty if the name has none.
    pub version: String,
}

/// The registered proxies, and the names of foreign nodes in the namespace, which drivers take for servers too.
pub async fn list(session: &Session) -> Result<(Vec<DiscoveredProxy>, Vec<String>), Error> {
    let read = session.children(session.layout().namespace()).await?;
    let mut names = read.map(|(names, _)| names).unwrap_or_default();
    names.sort();
    let (mut proxies, mut others) = (Vec::new(), Vec::new());
    for name in names {
        let parts = |key: &str| name.split(';').find_map(|part| part.strip_prefix(key)).map(str::to_owned);
        match parts("serverUri=").filter(|address| address.contains(':')) {
            Some(address) => proxies.push(DiscoveredProxy { address, version: parts("version=").unwrap_or_default() }),
            None => others.push(name),
        }
    }
    Ok((proxies, others))
}
