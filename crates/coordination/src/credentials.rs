//! ZooKeeper identities (digest scheme) and the ACL of each kind of node.
//!
//! Each role and each engine has an identity with a password of its own. An engine is given its own and the public digests of
//! the roles that read its registration. Keys are rotated by generations: a session authenticates with the passwords of all
//! accepted ones, and access lists name the digests of all. CREATE and DELETE are permissions of the parent, and ACLs are not
//! inherited, so every node has an ACL of its own.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::EngineName;
use model::role_digests::RoleDigests;
use serde::{Deserialize, Deserializer, Serialize};
use sha1::{Digest, Sha1};
use tokio::sync::watch;
use zookeeper_client::{Acl, AuthId, Permission};

const DIGEST: &str = "digest";

/// The passwords that an engine may have, one for each accepted generation of keys.
pub type EnginePasswords = Arc<dyn Fn(&EngineName) -> Vec<String> + Send + Sync>;

/// The identity that a session authenticates as. Its passwords may change while a session lives.
#[derive(Debug, Clone)]
pub struct Identity(watch::Receiver<Arc<Logins>>);

impl Identity {
    /// Logins that stay.
    pub fn fixed(logins: Logins) -> Self {
        Self::changing(watch::channel(Arc::new(logins)).1)
    }

    /// Logins that may be replaced. Those of later generations are added to the sessions that are open.
    pub fn changing(logins: watch::Receiver<Arc<Logins>>) -> Self {
        Self(logins)
    }

    /// The logins that are current now.
    pub(crate) fn logins(&self) -> Arc<Logins> {
        Arc::clone(&self.0.borrow())
    }

    /// The logins that are current now; [`Identity::changed`] then waits for later ones.
    pub(crate) fn latest(&mut self) -> Arc<Logins> {
        Arc::clone(&self.0.borrow_and_update())
    }

    /// Waits for the next logins; `None` if none will come.
    pub(crate) async fn changed(&mut self) -> Option<Arc<Logins>> {
        self.0.changed().await.ok()?;
        Some(Arc::clone(&self.0.borrow_and_update()))
    }

    pub(crate) fn is_engine(&self) -> bool {
        self.0.borrow().access.own_engine.is_some()
    }
}

/// The user and the passwords of an identity, and the access lists of the nodes that it creates.
pub struct Logins {
    user: String,
    passwords: Vec<String>,
    access: Arc<Access>,
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins")
            .field("user", &self.user)
            .field("passwords", &self.passwords.len())
            .finish_non_exhaustive()
    }
}

impl Logins {
    /// A proxy, with its passwords and the digests of all roles, one for each accepted generation.
    pub fn proxy(passwords: Vec<String>, roles: &[RoleDigests]) -> Self {
        Self::new(PROXY, passwords, Access::new(roles))
    }

    /// A metadata agent.
    pub fn metadata_agent(passwords: Vec<String>, roles: &[RoleDigests]) -> Self {
        Self::new(AGENT, passwords, Access::new(roles))
    }

    /// A candidate for master, which permits engines to register.
    pub fn master(passwords: Vec<String>, roles: &[RoleDigests], engines: EnginePasswords) -> Self {
        Self::new(MASTER, passwords, Access { is_master: true, engines: Some(engines), ..Access::new(roles) })
    }

    /// The agent of one engine.
    pub fn engine(credential: &EngineCredential) -> Self {
        let user = engine_user(&credential.engine);
        let own_engine = Some(AuthId::new(DIGEST, &digest(&user, &credential.password)));
        let access = Access { own_engine, ..Access::new(&credential.readers) };
        Self::new(&user, vec![credential.password.clone()], access)
    }

    fn new(user: &str, passwords: Vec<String>, access: Access) -> Self {
        Self { user: user.to_owned(), passwords, access: Arc::new(access) }
    }

    /// `user:password` of each accepted generation, as ZooKeeper's digest scheme takes it.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> + '_ {
        self.passwords.iter().map(|password| format!("{}:{password}", self.user))
    }

    pub(crate) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access)
    }
}

/// The ZooKeeper credentials of an engine's agent, a part of its configuration. They permit registering that one engine and
/// reading its permit and its drain order.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCredential {
    pub engine: EngineName,
    /// The password of the engine.
    pub password: String,
    /// The digests (no secrets) of the roles, one entry for each accepted generation of keys.
    #[serde(deserialize_with = "readers")]
    pub readers: Vec<RoleDigests>,
}

/// A file of version 0.1.0 has the digests of master, proxy and metadata agent, in this order.
fn readers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RoleDigests>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Readers {
        Generations(Vec<RoleDigests>),
        Old([String; 3]),
    }
    Ok(match Readers::deserialize(deserializer)? {
        Readers::Generations(generations) => generations,
        Readers::Old([master, proxy, metadata_agent]) => vec![RoleDigests { master, proxy, metadata_agent }],
    })
}

impl EngineCredential {
    pub fn new(engine: EngineName, password: String, readers: Vec<RoleDigests>) -> Self {
        Self { engine, password, readers }
    }
}

impl fmt::Debug for EngineCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineCredential").field("engine", &self.engine).finish_non_exhaustive()
    }
}

const PROXY: &str = "proxy";
const MASTER: &str = "master";
const AGENT: &str = "agent";

fn engine_user(engine: &EngineName) -> String {
    format!("engine-{engine}")
}

/// ZooKeeper's public form of a user and password: `user:base64(sha1(user:password))`.
pub fn digest(user: &str, password: &str) -> String {
    format!("{user}:{}", STANDARD.encode(Sha1::digest(format!("{user}:{password}").as_bytes())))
}

/// The ACL of each kind of node, as one identity creates it.
pub(crate) struct Access {
    masters: Vec<AuthId>,
    proxies: Vec<AuthId>,
    agents: Vec<AuthId>,
    /// Of an engine.
    own_engine: Option<AuthId>,
    /// Of a master.
    engines: Option<EnginePasswords>,
    is_master: bool,
}

const READ: Permission = Permission::READ;

impl Access {
    /// Of an identity that is neither an engine nor the master.
    fn new(roles: &[RoleDigests]) -> Self {
        let ids = |of: fn(&RoleDigests) -> &String| roles.iter().map(|role| AuthId::new(DIGEST, of(role))).collect();
        Self {
            masters: ids(|roles| &roles.master),
            proxies: ids(|roles| &roles.proxy),
            agents: ids(|roles| &roles.metadata_agent),
            own_engine: None,
            engines: None,
            is_master: false,
        }
    }

    pub(crate) fn is_master(&self) -> bool {
        self.is_master
    }

    /// All permissions for the master, the given ones for proxies and metadata agents.
    fn acl(&self, proxy: Permission, agent: Permission) -> Vec<Acl> {
        let mut acl = Vec::with_capacity(3 * self.masters.len() + 2);
        for (permission, ids) in [(Permission::ALL, &self.masters), (proxy, &self.proxies), (agent, &self.agents)] {
            if permission != Permission::NONE {
                acl.extend(ids.iter().map(|id| Acl::new(permission, id.clone())));
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

    /// The node of a metadata agent, which writes it when its keys change.
    pub(crate) fn metadata_agent(&self) -> Vec<Acl> {
        self.acl(READ, READ | Permission::WRITE)
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
        let passwords = self.engines.as_ref().map(|passwords| passwords(engine)).unwrap_or_default();
        let user = engine_user(engine);
        let ids = passwords.iter().map(|password| AuthId::new(DIGEST, &digest(&user, password)));
        acl.extend(ids.map(|id| Acl::new(permission, id)));
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

    fn roles(generation: &str) -> RoleDigests {
        let of = |user: &str| digest(user, &format!("{user} {generation}"));
        RoleDigests { master: of(MASTER), proxy: of(PROXY), metadata_agent: of(AGENT) }
    }

    fn engine() -> EngineName {
        EngineName::new("e-1").unwrap()
    }

    fn master(generations: &[&'static str]) -> Logins {
        let passwords = generations.iter().map(|generation| format!("master {generation}")).collect();
        let roles: Vec<RoleDigests> = generations.iter().map(|generation| roles(generation)).collect();
        let generations: Vec<&'static str> = generations.to_vec();
        let engines = move |engine: &EngineName| generations.iter().map(|of| format!("{engine} {of}")).collect();
        Logins::master(passwords, &roles, Arc::new(engines))
    }

    #[test]
    fn an_engine_and_the_master_create_the_same_mark() {
        let credential =
            EngineCredential { engine: engine(), password: "e-1 one".to_owned(), readers: vec![roles("one")] };
        assert!(!format!("{credential:?}").contains(&credential.password));
        let (of_engine, of_master) = (Logins::engine(&credential), master(&["one"]));
        assert_eq!(of_engine.access().registration().len(), 4);
        assert_eq!(of_master.access().answered(&engine()), of_engine.access().answered(&engine()));
        let permit = of_master.access().permit(&engine());
        assert_eq!(permit.last().unwrap().id(), digest("engine-e-1", "e-1 one"));
        let printed = format!("{of_engine:?}{of_master:?}");
        assert!(!printed.contains("e-1 one") && !printed.contains("master one"), "{printed}");
    }

    #[test]
    fn a_credential_of_version_0_1_0_is_read() {
        let old = r#"{"engine": "e-1", "password": "e-1 one", "readers": ["master:m", "proxy:p", "agent:a"]}"#;
        let credential: EngineCredential = serde_json::from_str(old).unwrap();
        let RoleDigests { master, proxy, metadata_agent } = &credential.readers[0];
        assert_eq!([master, proxy, metadata_agent], ["master:m", "proxy:p", "agent:a"]);
        let written = serde_json::to_string(&credential).unwrap();
        assert_eq!(serde_json::from_str::<EngineCredential>(&written).unwrap(), credential);
    }

    #[test]
    fn access_lists_name_every_accepted_generation() {
        let (one, both) = (master(&["one"]), master(&["two", "one"]));
        let logins: Vec<String> = both.texts().collect();
        assert_eq!(logins, ["master:master two", "master:master one"]);
        for node in [Access::lock, Access::agents, Access::root, Access::bell, Access::namespace, Access::alter] {
            let (old, new) = (node(&one.access()), node(&both.access()));
            assert!(old.iter().all(|entry| new.contains(entry)));
            assert!(new.len() > old.len());
        }
        assert_eq!(both.access().permit(&engine()).len(), 8);
    }
}
