//! ZooKeeper identities (digest scheme) and the ACL of each kind of node.
//!
//! Each role and each engine has an identity with a key derived from the cluster secret. An engine is given its own key and
//! the public digests of the roles that read its registration, never the secret. CREATE and DELETE are permissions of the
//! parent, and ACLs are not inherited, so every node has an ACL of its own.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::EngineName;
use model::credential::{ClusterSecret, Purpose};
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};
use zookeeper_client::{Acl, AuthId, Permission};

const DIGEST: &str = "digest";

/// The identity that a session authenticates as.
#[derive(Debug, Clone)]
pub enum Identity {
    Proxy(ClusterSecret),
    /// A candidate for master.
    Master(ClusterSecret),
    /// A metadata agent.
    Agent(ClusterSecret),
    /// The agent of one engine.
    Engine(EngineCredential),
}

/// The ZooKeeper credentials of an engine's agent, a part of its configuration. They permit registering that one engine and
/// reading its permit and its drain order.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCredential {
    pub engine: EngineName,
    /// The key of the engine.
    pub password: String,
    /// The digests (no secrets) of master, proxy and metadata agent, in this order.
    pub readers: [String; 3],
}

impl fmt::Debug for EngineCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineCredential").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl EngineCredential {
    pub fn derive(secret: &ClusterSecret, engine: &EngineName) -> Self {
        let password = secret.derive(&Purpose::ZookeeperEngine(engine));
        Self { engine: engine.clone(), password, readers: roles(secret) }
    }

    fn user(&self) -> String {
        engine_user(&self.engine)
    }
}

impl Identity {
    /// `user:password`, as ZooKeeper's digest scheme takes it.
    pub(crate) fn login(&self) -> String {
        match self {
            Self::Proxy(secret) => format!("{PROXY}:{}", secret.derive(&Purpose::ZookeeperProxy)),
            Self::Master(secret) => format!("{MASTER}:{}", secret.derive(&Purpose::ZookeeperMaster)),
            Self::Agent(secret) => format!("{AGENT}:{}", secret.derive(&Purpose::ZookeeperAgent)),
            Self::Engine(credential) => format!("{}:{}", credential.user(), credential.password),
        }
    }

    pub(crate) fn access(&self) -> Access {
        let (readers, secret) = match self {
            Self::Proxy(secret) | Self::Master(secret) | Self::Agent(secret) => (roles(secret), Some(secret.clone())),
            Self::Engine(credential) => (credential.readers.clone(), None),
        };
        let engine = match self {
            Self::Engine(credential) => Some(digest(&credential.user(), &credential.password)),
            _ => None,
        };
        let [master, proxy, agent] = readers.map(|id| AuthId::new(DIGEST, &id));
        Access {
            master,
            proxy,
            agent,
            own_engine: engine.map(|id| AuthId::new(DIGEST, &id)),
            secret,
            is_master: matches!(self, Self::Master(_)),
        }
    }
}

const PROXY: &str = "proxy";
const MASTER: &str = "master";
const AGENT: &str = "agent";

fn engine_user(engine: &EngineName) -> String {
    format!("engine-{engine}")
}

fn roles(secret: &ClusterSecret) -> [String; 3] {
    [
        digest(MASTER, &secret.derive(&Purpose::ZookeeperMaster)),
        digest(PROXY, &secret.derive(&Purpose::ZookeeperProxy)),
        digest(AGENT, &secret.derive(&Purpose::ZookeeperAgent)),
    ]
}

/// ZooKeeper's public form of a user and password: `user:base64(sha1(user:password))`.
fn digest(user: &str, password: &str) -> String {
    format!("{user}:{}", STANDARD.encode(Sha1::digest(format!("{user}:{password}").as_bytes())))
}

/// The ACL of each kind of node, as one identity creates it.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    master: AuthId,
    proxy: AuthId,
    agent: AuthId,
    own_engine: Option<AuthId>,
    secret: Option<ClusterSecret>,
    is_master: bool,
}

const READ: Permission = Permission::READ;

impl Access {
    pub(crate) fn is_master(&self) -> bool {
        self.is_master
    }

    /// All permissions for the master, the given ones for proxies and metadata agents.
    fn acl(&self, proxy: Permission, agent: Permission) -> Vec<Acl> {
        let mut acl = vec![Acl::new(Permission::ALL, self.master.clone())];
        for (permission, identity) in [(proxy, &self.proxy), (agent, &self.agent)] {
            if permission != Permission::NONE {
                acl.push(Acl::new(permission, identity.clone()));
            }
        }
        acl
    }

    /// Levels above our root are shared with other installations.
    pub(crate) fn above_root(&self) -> Vec<Acl> {
        let mut acl = self.acl(Permission::ALL, Permission::ALL);
        acl.push(Acl::new(READ | Permission::CREATE, AuthId::anyone()));
        acl
    }

    /// Every role may create the base nodes.
    pub(crate) fn root(&self) -> Vec<Acl> {
        self.acl(READ | Permission::CREATE, READ | Permission::CREATE)
    }

    /// Agents create `alter` here, the master deletes it.
    pub(crate) fn lock(&self) -> Vec<Acl> {
        self.acl(READ, READ | Permission::CREATE)
    }

    /// The queue for the lock.
    pub(crate) fn master_only(&self) -> Vec<Acl> {
        self.acl(READ, READ)
    }

    /// `alter`: the agent creates the child in the same multi; the master deletes it.
    pub(crate) fn alter(&self) -> Vec<Acl> {
        self.acl(Permission::NONE, READ | Permission::CREATE)
    }

    /// `alter/<id>`.
    pub(crate) fn alter_child(&self) -> Vec<Acl> {
        self.acl(Permission::NONE, READ)
    }

    /// The parent of the agents' nodes.
    pub(crate) fn agents(&self) -> Vec<Acl> {
        self.acl(READ, READ | Permission::CREATE)
    }

    /// Written by the master, read by the other roles.
    pub(crate) fn read_only(&self) -> Vec<Acl> {
        self.acl(READ, READ)
    }

    /// Metadata agents write it.
    pub(crate) fn bell(&self) -> Vec<Acl> {
        self.acl(READ, READ | Permission::WRITE)
    }

    /// The discovery namespace: JDBC clients read it without a password.
    pub(crate) fn namespace(&self) -> Vec<Acl> {
        let mut acl = self.acl(READ | Permission::CREATE | Permission::DELETE, READ);
        acl.push(Acl::new(READ, AuthId::anyone()));
        acl
    }

    /// A permit: its engine reads it and creates `live` below it.
    pub(crate) fn permit(&self, engine: &EngineName) -> Vec<Acl> {
        self.and_engine(engine, READ | Permission::CREATE)
    }

    /// A drain order: its engine reads it.
    pub(crate) fn drain(&self, engine: &EngineName) -> Vec<Acl> {
        self.and_engine(engine, READ)
    }

    /// A registration, as its engine creates it.
    pub(crate) fn registration(&self) -> Vec<Acl> {
        let mut acl = self.acl(READ, READ);
        acl.extend(self.own_engine.iter().map(|engine| Acl::new(READ, engine.clone())));
        acl
    }

    /// The mark that a first registration leaves; the same whether the engine or the master creates it.
    pub(crate) fn answered(&self, engine: &EngineName) -> Vec<Acl> {
        if self.own_engine.is_some() { self.registration() } else { self.and_engine(engine, READ) }
    }

    fn and_engine(&self, engine: &EngineName, permission: Permission) -> Vec<Acl> {
        let mut acl = self.acl(READ, READ);
        let derived = self.secret.as_ref().map(|secret| {
            let password = secret.derive(&Purpose::ZookeeperEngine(engine));
            AuthId::new(DIGEST, &digest(&engine_user(engine), &password))
        });
        acl.extend(derived.map(|engine| Acl::new(permission, engine)));
        acl
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn digests_are_computed_as_zookeeper_does() {
        // From ZooKeeper's own documentation of the digest scheme: super:superpw.
        assert_eq!(digest("super", "superpw"), "super:g9oN2HttPfn8MMWJZ2r45Np/LIA=");
    }

    #[test]
    fn an_engine_credential_holds_no_other_key() {
        let secret = ClusterSecret::new(*b"0123456789abcdef").unwrap();
        let engine = EngineName::new("e-1").unwrap();
        let credential = EngineCredential::derive(&secret, &engine);
        let json = serde_json::to_string(&credential).unwrap();
        for purpose in [Purpose::ZookeeperMaster, Purpose::ZookeeperProxy, Purpose::ZookeeperAgent] {
            assert!(!json.contains(&secret.derive(&purpose)));
        }
        assert!(!format!("{credential:?}").contains(&credential.password));
        assert_eq!(Identity::Engine(credential.clone()).access().registration().len(), 4);
        let of_master = Identity::Master(secret.clone()).access().answered(&engine);
        let of_engine = Identity::Engine(credential.clone()).access().answered(&engine);
        assert_eq!(of_master, of_engine);
        assert_eq!(
            Identity::Master(secret).access().permit(&engine).last().unwrap().id(),
            digest("engine-e-1", &credential.password)
        );
    }
}
