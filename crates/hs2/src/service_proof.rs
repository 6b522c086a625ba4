//! What a component of an installation sends to prove its role, and how it logs in.
//!
//! A proof is a signature over the server's random bytes and name, so it is valid for one connection to one server: it cannot
//! be replayed, and a server that receives it cannot pass it on to another one. A verifier has no key that signs. No clock is
//! compared. [`crate::sasl`] has the messages.

use std::fmt;
use std::sync::Arc;

/// The random bytes that a server sends.
pub(crate) const CHALLENGE_BYTES: usize = 32;
/// The bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// The first field of what is signed.
const CONTEXT: &str = "enginehouse service 1";

/// Signs a message with the key of a role.
pub type Sign = Arc<dyn Fn(&[u8]) -> [u8; SIGNATURE_BYTES] + Send + Sync>;

/// How a component logs in.
#[derive(Clone)]
pub struct ServiceLogin {
    pub role: &'static str,
    /// The generation of the key.
    pub generation: u32,
    /// The name of the server that is to be reached, such as `metadata-agent`. Another server refuses the proof.
    pub audience: String,
    /// The user on whose behalf the component connects; empty for itself.
    pub user: String,
    pub sign: Sign,
}

impl fmt::Debug for ServiceLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, generation, audience, user, .. } = self;
        f.debug_struct("ServiceLogin")
            .field("role", role)
            .field("generation", generation)
            .field("audience", audience)
            .field("user", user)
            .finish_non_exhaustive()
    }
}

/// What a client has sent as proof of its role. Nothing is verified before [`crate::Authenticator::authenticate_service`]
/// accepts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceProof {
    pub role: String,
    /// The generation of the key.
    pub generation: u32,
    /// The user on whose behalf the component connects; empty for itself.
    pub user: String,
    pub signature: [u8; SIGNATURE_BYTES],
    pub(crate) challenge: [u8; CHALLENGE_BYTES],
}

impl ServiceProof {
    /// What the client must have signed to reach the server of that name.
    pub fn message(&self, audience: &str) -> Vec<u8> {
        message(&self.challenge, audience, &self.role, self.generation, &self.user)
    }
}

/// Each field is preceded by its length, so that no two proofs have the same message.
pub(crate) fn message(
    challenge: &[u8; CHALLENGE_BYTES],
    audience: &str,
    role: &str,
    generation: u32,
    user: &str,
) -> Vec<u8> {
    let generation = generation.to_be_bytes();
    let fields: [&[u8]; 6] =
        [CONTEXT.as_bytes(), challenge, audience.as_bytes(), role.as_bytes(), &generation, user.as_bytes()];
    let mut message = Vec::with_capacity(fields.iter().map(|field| 4 + field.len()).sum());
    for field in fields {
        message.extend_from_slice(&(field.len() as u32).to_be_bytes());
        message.extend_from_slice(field);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_proofs_have_the_same_message() {
        let one = [1; CHALLENGE_BYTES];
        let messages = [
            message(&one, "metadata-agent", "proxy", 1, "ann"),
            message(&[2; CHALLENGE_BYTES], "metadata-agent", "proxy", 1, "ann"),
            message(&one, "metadata-agentp", "roxy", 1, "ann"),
            message(&one, "metadata-agent", "proxy", 2, "ann"),
            message(&one, "metadata-agent", "proxy", 1, "anna"),
            message(&one, "metadata-agent", "proxya", 1, "nn"),
        ];
        for (at, message) in messages.iter().enumerate() {
            assert!(messages.iter().skip(at + 1).all(|other| other != message));
        }
    }
}
