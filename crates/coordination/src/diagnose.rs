//! A look at our nodes by an operator's tool: who may do what at the base nodes, and who queues for the master's lock.
//!
//! It only reads. Access lists are told in full only to an identity that could change them, so the session must be a
//! master's; it stands in no queue.

use std::collections::BTreeSet;

use zookeeper_client::Acl;

use crate::election;
use crate::error::Error;
use crate::layout;
use crate::session::Session;

/// A node that has to be there before all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseNode {
    /// Where it stands.
    pub path: String,
    /// Whether it is as the layout wants it.
    pub status: BaseNodeStatus,
    /// Its access list as the layout wants it, as ZooKeeper's command line takes it: `digest:user:hash:cdrwa,…`.
    pub expected: String,
}

/// How a base node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseNodeStatus {
    /// There, and with the access list that it should have.
    AsExpected,
    /// Not there.
    Missing,
    /// Its access list can't be read by the master: it is another installation's, or another secret's.
    Unreadable,
    /// Its access list is another one.
    Differs {
        /// Rights that it should give and does not: `master may read, write`.
        missing_rights: Vec<String>,
        /// Rights that it gives and should not.
        extra_rights: Vec<String>,
    },
}

/// Looks at the base nodes.
pub async fn base_nodes(session: &Session) -> Result<Vec<BaseNode>, Error> {
    let mut nodes = Vec::new();
    for (path, expected) in layout::base_and_root(session.layout(), session.access()) {
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
    let told = |rights: Vec<&(String, String, char)>| -> Vec<String> {
        let who: BTreeSet<(&String, &String)> = rights.iter().map(|(scheme, id, _)| (scheme, id)).collect();
        who.into_iter()
            .map(|(scheme, id)| {
                let may = rights.iter().filter(|it| (&it.0, &it.1) == (scheme, id)).map(|it| verb(it.2));
                format!("{} may {}", name(scheme, id), may.collect::<Vec<_>>().join(", "))
            })
            .collect()
    };
    let (missing_rights, extra_rights) =
        (told(should.difference(&is).collect()), told(is.difference(&should).collect()));
    if missing_rights.is_empty() && extra_rights.is_empty() {
        BaseNodeStatus::AsExpected
    } else {
        BaseNodeStatus::Differs { missing_rights, extra_rights }
    }
}

/// Each single right of an entry.
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

/// Who it is, for people: the user of a digest without its hash.
fn name(scheme: &str, id: &str) -> String {
    match (scheme, id.split_once(':')) {
        ("world", _) => "anybody".to_owned(),
        ("digest", Some((user, _))) => user.to_owned(),
        _ => format!("{scheme}:{id}"),
    }
}

fn word(acl: &Acl) -> String {
    format!("{}:{}:{}", acl.scheme(), acl.id(), letters(acl))
}

/// Somebody who holds the master's lock or waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its node.
    pub path: String,
    /// The session that the node goes with.
    pub session: i64,
    /// Who that is, in its own words.
    pub who: String,
    /// When it came, by the server's clock, in milliseconds since 1970.
    pub since_ms: i64,
}

impl Candidate {
    /// As a master writes itself into the database: the lock's node and session.
    pub fn holder(&self) -> String {
        format!("{} {:#x}", self.path, self.session)
    }
}

/// The queue for the master's lock; the first one holds it.
pub async fn queue(session: &Session) -> Result<Vec<Candidate>, Error> {
    session.sync().await?;
    let parent = session.layout().master_lock();
    let names = session.children(&parent).await?.map(|(names, _)| names).unwrap_or_default();
    let mut queue = Vec::new();
    for name in election::in_order(names) {
        let path = format!("{parent}/{name}");
        if let Some((data, stat)) = session.get(&path).await? {
            let who = String::from_utf8_lossy(&data).into_owned();
            queue.push(Candidate { path, session: stat.ephemeral_owner, who, since_ms: stat.ctime });
        }
    }
    Ok(queue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zookeeper_client::{AuthId, Permission};

    #[test]
    fn a_difference_is_told_by_who_and_right_and_never_by_its_hash() {
        let master = |right| Acl::new(right, AuthId::new("digest", "master:aGFzaA=="));
        let anyone = Acl::new(Permission::READ | Permission::WRITE, AuthId::anyone());
        assert_eq!(compare(&[master(Permission::ALL)], &[master(Permission::ALL)]), BaseNodeStatus::AsExpected);
        let differs = compare(&[master(Permission::READ | Permission::DELETE)], &[master(Permission::READ), anyone]);
        assert_eq!(
            differs,
            BaseNodeStatus::Differs {
                missing_rights: vec!["master may delete below it".to_owned()],
                extra_rights: vec!["anybody may read it, write it".to_owned()]
            }
        );
        assert_eq!(word(&master(Permission::ALL)), "digest:master:aGFzaA==:cdrwa");
    }

    #[test]
    fn the_same_rights_in_other_entries_are_the_same_rights() {
        let one = |right| Acl::new(right, AuthId::new("digest", "proxy:x"));
        let (both, split) =
            (vec![one(Permission::READ | Permission::CREATE)], vec![one(Permission::CREATE), one(Permission::READ)]);
        assert_eq!(compare(&both, &split), BaseNodeStatus::AsExpected);
    }
}
