//! The keys of an installation: derived from one root key, and given to each role in a file of its own.
//!
//! | module | content |
//! | --- | --- |
//! | [`root`] | the root key, from which every key is derived; no running process has it |
//! | [`role_keys`] | the keys of one role, as its file has them: its own secrets, and the public keys of the others |
//! | [`role`] | proxy, master and metadata agent, with the secrets of each |
//! | [`engine`] | the keys of one engine, which a master derives |
//! | [`callers`] | the public keys with which a server of the installation verifies its callers |
//! | [`signature`] | Ed25519 |
//! | [`seal`] | the encryption of secret properties |
//! | [`tls`] | how a master states the TLS key of an engine |
//! | [`secret_key`] | 32 secret bytes, and keys derived from them |
//! | [`cluster_secret`] | generation 0: the one secret of version 0.1.0 |
//! | [`current`] | keys that change while the process runs |
//!
//! Invariants: no file has a secret of another role, so the file of a proxy can neither log in to ZooKeeper as the
//! master nor sign as it; a process that only verifies has no key that signs; no key is ever printed. A derived key
//! reveals neither the root key nor another key.
//!
//! Keys have a generation. A role signs with the generation that its file says, and accepts all that the file has, so
//! that keys are rotated without an interruption. A process with an older file still works as long as the others accept
//! a generation that it has; after that it is refused like a stranger.

pub mod callers;
pub mod cluster_secret;
pub mod current;
pub mod engine;
pub mod role;
pub mod role_keys;
pub mod root;
pub mod seal;
pub mod secret_key;
pub mod signature;
pub mod tls;

pub use callers::{CallerKeys, Callers};
pub use cluster_secret::ClusterSecret;
pub use current::Current;
pub use engine::{EngineKeys, EngineTlsKey};
pub use model::key_generation::KeyGeneration;
pub use role::{MasterSecrets, MetadataAgentSecrets, ProxySecrets, Role, RoleDigests};
pub use role_keys::{AllKeys, MasterKeys, MetadataAgentKeys, ProxyKeys, RoleFile, RoleKeys};
pub use root::Root;
pub use secret_key::SecretKey;
pub use signature::PublicKey;
