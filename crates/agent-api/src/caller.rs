//! The caller's side of authentication: how a proxy or a master logs in at a metadata agent or an engine agent.
//!
//! It signs with the generation in use if the server accepts that one, otherwise with the newest that both have. A server
//! states in ZooKeeper what it accepts; one of version 0.1.0 states nothing and receives the password of generation 0. A
//! caller with an outdated statement is refused, and reads the next one.

use std::sync::Arc;

use hs2::{Auth, ServiceLogin};
use keys::callers::CallerKeys;
use keys::cluster_secret::Purpose;
use keys::role::RoleSecrets;
use keys::{Current, KeyGeneration, Role, RoleKeys};
use model::engine_name::EngineName;
use model::error::{ErrorKind, UserError};

/// A metadata agent, as it is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataAgentEndpoint {
    /// `host:port`
    pub address: String,
    /// The generations of keys that it accepts; empty if it is of version 0.1.0.
    pub keys: Vec<KeyGeneration>,
}

/// An engine agent, as it is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineEndpoint {
    pub uid: String,
    /// `host:port`
    pub address: String,
    /// The generations of keys that it accepts; empty if it is of version 0.1.0.
    pub keys: Vec<KeyGeneration>,
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
pub struct Caller(Arc<dyn Fn() -> Arc<dyn CallerKeys> + Send + Sync>);

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Caller").field(&self.role()).finish()
    }
}

impl Caller {
    pub fn new<S: RoleSecrets + Send + Sync + 'static>(keys: Current<RoleKeys<S>>) -> Self {
        Self(Arc::new(move || keys.get()))
    }

    pub fn role(&self) -> Role {
        (self.0)().role()
    }

    /// How to log in at a metadata agent, on behalf of a user or, if it is empty, for the role itself.
    pub fn metadata_agent(&self, endpoint: &MetadataAgentEndpoint, user: &str) -> Result<Auth, UserError> {
        self.login(Audience::MetadataAgent, &endpoint.keys, user)
    }

    /// How to log in at an engine's agent.
    pub fn engine(&self, engine: &EngineName, endpoint: &EngineEndpoint, user: &str) -> Result<Auth, UserError> {
        self.login(Audience::Engine { engine, uid: &endpoint.uid }, &endpoint.keys, user)
    }

    fn login(&self, audience: Audience<'_>, accepted: &[KeyGeneration], user: &str) -> Result<Auth, UserError> {
        let keys = (self.0)();
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

fn no_common_generation(audience: Audience<'_>, own: &[KeyGeneration], accepted: &[KeyGeneration]) -> UserError {
    let list = |generations: &[KeyGeneration]| {
        let numbers: Vec<String> = generations.iter().map(ToString::to_string).collect();
        numbers.join(", ")
    };
    UserError::new(ErrorKind::InvalidAuthorization, format!("no common generation of keys with {audience}"))
        .detail(format!("It accepts {}; this process has {}.", list(accepted), list(own)))
        .hint("Give both a file of keys with a generation that the other one has; enginehouse doctor shows what each accepts.")
}
