//! The caller's side of authentication: how a proxy or a master logs in at a metadata agent or an engine agent.
//!
//! It signs with the generation in use if the server accepts that one, otherwise with the newest that both have. A server
//! states in ZooKeeper what it accepts; one of version 0.1.0 states nothing and receives the password of generation 0. A
//! caller with an outdated statement is refused, and reads the next one.

use std::sync::Arc;

use hs2::{Auth, ClientError, ClientOptions, ClientTls, ServiceLogin};
use keys::callers::CallerKeys;
use keys::cluster_secret::Purpose;
use keys::role::RoleSecrets;
use keys::{Current, KeyGeneration, PublicKey, Role, RoleKeys};
use model::engine_name::EngineName;
use model::error::{ErrorKind, UserError};
use model::signed_tls_key::SignedTlsKey;

use crate::tls::{self, ClusterTls};

/// A metadata agent, as it is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataAgentEndpoint {
    /// `host:port`
    pub address: String,
    /// The generations of keys that it accepts; empty if it is of version 0.1.0.
    pub keys: Vec<KeyGeneration>,
    /// The generation of the key that it proves in TLS; `None` if it does not offer TLS.
    pub tls: Option<KeyGeneration>,
}

/// An engine agent, as it is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineEndpoint {
    pub uid: String,
    /// `host:port`
    pub address: String,
    /// The generations of keys that it accepts; empty if it is of version 0.1.0.
    pub keys: Vec<KeyGeneration>,
    /// The key that it proves in TLS; `None` if it does not offer TLS.
    pub tls: Option<SignedTlsKey>,
}

/// A server of the installation, as a proof names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience<'a> {
    MetadataAgent,
    /// The engine agent of one instance.
    Engine {
        engine: &'a EngineName,
        uid: &'a str,
    },
}

impl std::fmt::Display for Audience<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MetadataAgent => f.write_str("metadata-agent"),
            Self::Engine { engine, uid } => write!(f, "engine:{engine}:{uid}"),
        }
    }
}

/// The role that this process calls others as. Its keys may be replaced meanwhile.
#[derive(Clone)]
pub struct Caller {
    keys: Arc<dyn Fn() -> Arc<dyn CallerKeys> + Send + Sync>,
    tls: ClusterTls,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Caller").field(&self.role()).finish()
    }
}

impl Caller {
    pub fn new<S: RoleSecrets + Send + Sync + 'static>(keys: Current<RoleKeys<S>>, tls: ClusterTls) -> Self {
        Self { keys: Arc::new(move || keys.get()), tls }
    }

    pub fn role(&self) -> Role {
        (self.keys)().role()
    }

    /// How to connect to a metadata agent, on behalf of a user or, if it is empty, for the role itself.
    pub fn metadata_agent(&self, endpoint: &MetadataAgentEndpoint, user: &str) -> Result<ClientOptions, ClientError> {
        let MetadataAgentEndpoint { address, keys, tls } = endpoint;
        let key = || (self.keys)().metadata_agent_tls();
        let tls = self.tls("the metadata agent", address, tls.is_some(), key);
        options(address, tls, self.login(Audience::MetadataAgent, keys, user))
    }

    /// How to connect to an engine's agent.
    pub fn engine(
        &self,
        engine: &EngineName,
        endpoint: &EngineEndpoint,
        user: &str,
    ) -> Result<ClientOptions, ClientError> {
        let EngineEndpoint { uid, address, keys, tls } = endpoint;
        let key = || tls.iter().filter_map(|signed| (self.keys)().engine_tls(engine, signed)).collect();
        let tls = self.tls(&format!("engine \"{engine}\""), address, tls.is_some(), key);
        options(address, tls, self.login(Audience::Engine { engine, uid }, keys, user))
    }

    /// TLS where the server offers it. A server whose key is not known is refused, and not reached in plain text.
    fn tls(
        &self,
        server: &str,
        address: &str,
        is_offered: bool,
        accepted: impl FnOnce() -> Vec<PublicKey>,
    ) -> Result<Option<ClientTls>, UserError> {
        if self.tls.is_off() || !is_offered {
            return self.tls.permits_plain(server, address).map(|()| None);
        }
        match accepted().as_slice() {
            [] => Err(tls::unknown_key(server)),
            keys => tls::client(keys).map(Some),
        }
    }

    fn login(&self, audience: Audience<'_>, accepted: &[KeyGeneration], user: &str) -> Result<Auth, UserError> {
        let keys = (self.keys)();
        let accepted = if accepted.is_empty() { &[KeyGeneration::CLUSTER_SECRET][..] } else { accepted };
        let own = keys.generations();
        let Some(generation) = own.iter().copied().find(|generation| accepted.contains(generation)) else {
            return Err(no_common_generation(audience, &own, accepted));
        };
        if generation == KeyGeneration::CLUSTER_SECRET
            && let Some(secret) = keys.cluster_secret()
        {
            let purpose = match audience {
                Audience::MetadataAgent => Purpose::MetadataAgent,
                Audience::Engine { engine, .. } => Purpose::Engine(engine),
            };
            return Ok(Auth::service(keys.role().name(), secret.derive(purpose), user));
        }
        let role = keys.role().name();
        // Without a key of that generation the proof is refused.
        let sign = move |message: &[u8]| keys.sign(generation, message).unwrap_or([0; 64]);
        Ok(Auth::Service(ServiceLogin {
            role,
            generation: generation.0,
            audience: audience.to_string(),
            user: user.to_owned(),
            sign: Arc::new(sign),
        }))
    }
}

fn options(
    address: &str,
    tls: Result<Option<ClientTls>, UserError>,
    auth: Result<Auth, UserError>,
) -> Result<ClientOptions, ClientError> {
    let refused = |error: UserError| ClientError::Unauthenticated(error.text());
    let mut options = ClientOptions::new(address, auth.map_err(refused)?);
    options.tls = tls.map_err(refused)?;
    Ok(options)
}

fn no_common_generation(audience: Audience<'_>, own: &[KeyGeneration], accepted: &[KeyGeneration]) -> UserError {
    let list = |generations: &[KeyGeneration]| {
        let numbers: Vec<String> = generations.iter().map(ToString::to_string).collect();
        numbers.join(", ")
    };
    UserError::new(ErrorKind::InvalidAuthorization, format!("no common generation of keys with {audience}"))
        .detail(format!("It accepts {}; this process has {}.", list(accepted), list(own)))
        .hint("Give both a file of keys with a generation that the other one has; enginehouse doctor shows what each accepts.")
}
