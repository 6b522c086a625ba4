//! Reads for `doctor`: the access lists of the base nodes, and the queue for the master's lock.
//!
//! ZooKeeper returns access lists in full only to an identity that may change them, so the session must have the master's
//! identity. It does not join the queue.

use std::collections::BTreeSet;

use zookeeper_client::Acl;

use crate::election;
use crate::error::Error;
use crate::layout;
use crate::session::Session;

/// A node that everything else is created below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseNode {
    pub path: String,
    pub status: BaseNodeStatus,
    /// Its access list according to the layout, in the format of ZooKeeper's command line: `digest:user:hash:cdrwa,…`.
    pub expected: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseNodeStatus {
    /// It exists and has the expected access list.
    AsExpected,
    Missing,
    /// The master may not read its access list: the node belongs to another installation, or was created with other keys.
    Unreadable,
    Differs {
        /// Expected permissions that it does not grant: `master may read it, write it`.
        missing_rights: Vec<String>,
        /// Permissions that it grants and should not.
        extra_rights: Vec<String>,
    },
}

pub async fn base_nodes(session: &Session) -> Result<Vec<BaseNode>, Error> {
    let mut nodes = Vec::new();
    for (path, expected) in layout::base_and_root(session.layout(), &session.access()) {
        let status = match session.acl(&path).await {
            Ok(None) => BaseNodeStatus::Missing,
            Ok(Some(found)) => compare(&expected, &found),
            Err(Error::NoAuth { .. }) => BaseNodeStatus::Unreadable,
            Err(error) => return Err(error),
        };
        let expected = expected.iter().map(word).collect::<Vec<_>>().join(",");
        nodes.push(BaseNode { path, status, expected });
    }
    Ok(nodes)
}

fn compare(expected: &[Acl], found: &[Acl]) -> BaseNodeStatus {
    let (should, is): (BTreeSet<_>, BTreeSet<_>) =
        (expected.iter().flat_map(rights).collect(), found.iter().flat_map(rights).collect());
    let describe = |rights: Vec<&(String, String, char)>| -> Vec<String> {
        let holders: BTreeSet<(&String, &String)> = rights.iter().map(|(scheme, id, _)| (scheme, id)).collect();
        holders
            .into_iter()
            .map(|(scheme, id)| {
                let may = rights.iter().filter(|right| (&right.0, &right.1) == (scheme, id)).map(|right| verb(right.2));
                format!("{} may {}", name(scheme, id), may.collect::<Vec<_>>().join(", "))
            })
            .collect()
    };
    let (missing_rights, extra_rights) =
        (describe(should.difference(&is).collect()), describe(is.difference(&should).collect()));
    if missing_rights.is_empty() && extra_rights.is_empty() {
        BaseNodeStatus::AsExpected
    } else {
        BaseNodeStatus::Differs { missing_rights, extra_rights }
    }
}

/// The single permissions of an entry.
fn rights(acl: &Acl) -> Vec<(String, String, char)> {
    letters(acl).chars().map(|right| (acl.scheme().to_owned(), acl.id().to_owned(), right)).collect()
}

fn letters(acl: &Acl) -> String {
    use zookeeper_client::Permission;
    let all = [
        (Permission::CREATE, 'c'),
        (Permission::DELETE, 'd'),
        (Permission::READ, 'r'),
        (Permission::WRITE, 'w'),
        (Permission::ADMIN, 'a'),
    ];
    all.into_iter().filter(|(right, _)| acl.permission().has(*right)).map(|(_, letter)| letter).collect()
}

fn verb(letter: char) -> &'static str {
    match letter {
        'c' => "create below it",
        'd' => "delete below it",
        'r' => "read it",
        'w' => "write it",
        _ => "change its access list",
    }
}

/// The name of an identity for display: the user of a digest without its hash.
fn name(scheme: &str, id: &str) -> String {
    match (scheme, id.split_once(':')) {
        ("world", _) => "any client".to_owned(),
        ("digest", Some((user, _))) => user.to_owned(),
        _ => format!("{scheme}:{id}"),
    }
}

fn word(acl: &Acl) -> String {
    format!("{}:{}:{}", acl.scheme(), acl.id(), letters(acl))
}

/// A candidate that holds the master's lock or waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub path: String,
    /// The session that owns the node.
    pub session: i64,
    /// The name that the candidate gave itself.
    pub name: String,
    /// When it joined the queue, by the server's clock, in milliseconds since 1970.
    pub since_ms: i64,
}

impl Candidate {
    /// The holder as a master records it in the database: the lock's node and session.
    pub fn holder(&self) -> String {
        format!("{} {:#x}", self.path, self.session)
    }
}

/// The queue for the master's lock; the first candidate holds it.
pub async fn queue(session: &Session) -> Result<Vec<Candidate>, Error> {
    session.sync().await?;
    let parent = session.layout().master_lock();
    let names = session.children(&parent).await?.map(|(names, _)| names).unwrap_or_default();
    let mut queue = Vec::new();
    for name in election::in_order(names) {
        let path = format!("{parent}/{name}");
        if let Some((data, stat)) = session.get(&path).await? {
            let name = String::from_utf8_lossy(&data).into_owned();
            queue.push(Candidate { path, session: stat.ephemeral_owner, name, since_ms: stat.ctime });
        }
    }
    Ok(queue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zookeeper_client::{AuthId, Permission};

    #[test]
    fn differences_name_identity_and_permission_without_the_hash() {
        let master = |right| Acl::new(right, AuthId::new("digest", "master:aGFzaA=="));
        let anyone = Acl::new(Permission::READ | Permission::WRITE, AuthId::anyone());
        assert_eq!(compare(&[master(Permission::ALL)], &[master(Permission::ALL)]), BaseNodeStatus::AsExpected);
        let differs = compare(&[master(Permission::READ | Permission::DELETE)], &[master(Permission::READ), anyone]);
        assert_eq!(
            differs,
            BaseNodeStatus::Differs {
                missing_rights: vec!["master may delete below it".to_owned()],
                extra_rights: vec!["any client may read it, write it".to_owned()]
            }
        );
        assert_eq!(word(&master(Permission::ALL)), "digest:master:aGFzaA==:cdrwa");
    }

    #[test]
    fn equal_permissions_in_other_entries_are_no_difference() {
        let one = |right| Acl::new(right, AuthId::new("digest", "proxy:x"));
        let (both, split) =
            (vec![one(Permission::READ | Permission::CREATE)], vec![one(Permission::CREATE), one(Permission::READ)]);
        assert_eq!(compare(&both, &split), BaseNodeStatus::AsExpected);
    }
}
