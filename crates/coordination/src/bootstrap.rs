//! Creation of the base nodes: the persistent nodes that everything else is created below.
//!
//! Existing nodes are left as they are, also those with another access list; `doctor` reports these.

use zookeeper_client::CreateMode;

use crate::error::Error;
use crate::layout::{ancestors, base_and_root};
use crate::session::Session;

/// Creates the base nodes that are missing. Engines lack the right to do this and need none of them.
pub async fn create_base_nodes(session: &Session) -> Result<(), Error> {
    let (layout, access) = (session.layout(), session.access());
    let mut nodes = Vec::new();
    for above in ancestors(layout.root()).into_iter().chain(ancestors(layout.namespace())) {
        if !above.starts_with(layout.root()) {
            nodes.push((above, access.above_root()));
        }
    }
    nodes.extend(base_and_root(layout, &access));
    for (path, acl) in nodes {
        // Checked first: without CREATE at the parent, ZooKeeper answers NoAuth even if the node exists.
        if session.stat(&path).await?.is_some() {
            continue;
        }
        match session.create(&path, b"", CreateMode::Persistent, &acl).await {
            Ok(_) | Err(Error::NodeExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
