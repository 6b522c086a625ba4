//! Discovery: where Hive's JDBC driver finds a proxy (`serviceDiscoveryMode=zooKeeper`).
//!
//! Each proxy has one ephemeral sequential node in the namespace, readable by everybody, because drivers read it
//! without a password. Nothing else may stand there: the driver takes every child for a server.

use zookeeper_client::CreateMode;

use crate::error::Error;
use crate::session::Session;

/// Registers a proxy under the address that clients can reach, in binary transport; answers the node's path. A second
/// call on the same session answers the node that is there.
pub async fn register(session: &Session, host: &str, port: u16, version: &str) -> Result<String, Error> {
    let namespace = session.layout().namespace();
    let name = format!("serverUri={host}:{port};version={version};sequence=");
    if let Some((names, _)) = session.children(namespace).await? {
        for there in names.into_iter().filter(|it| it.starts_with(&name)) {
            let path = format!("{namespace}/{there}");
            if session.stat(&path).await?.is_some_and(|stat| stat.ephemeral_owner == session.id()) {
                return Ok(path);
            }
        }
    }
    let data = format!(
        "hive.server2.thrift.bind.host={host};hive.server2.thrift.port={port};hive.server2.transport.mode=binary"
    );
    let path = format!("{namespace}/{name}");
    session.create(&path, data.as_bytes(), CreateMode::EphemeralSequential, &session.access().namespace()).await
}
