//! Password hashes: Argon2id in the PHC string format.

use std::fmt;

use argon2::password_hash::phc::{self, Output};
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Block, Params, PasswordHasher as _, Version};

/// The most memory that a hash may ask for, in KiB.
pub const MAX_MEMORY_KIB: u32 = 256 << 10;
/// The most passes over its memory that a hash may ask for.
pub const MAX_PASSES: u32 = 16;
/// The most lanes; they are computed one after another.
pub const MAX_LANES: u32 = 16;
/// The bytes of a salt.
const SALT_BYTES: usize = 16;

/// Why a text is not the hash of a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    #[error("the password hash is not a PHC string: {0}")]
    Format(String),
    #[error("the password hash is not of type argon2id")]
    Algorithm,
    #[error("the password hash has no salt or no output")]
    Incomplete,
    #[error("the password hash asks for {0} KiB of memory; the limit is {MAX_MEMORY_KIB} KiB")]
    Memory(u32),
    #[error("the password hash asks for {0} passes; the limit is {MAX_PASSES}")]
    Passes(u32),
    #[error("the password hash asks for {0} lanes; the limit is {MAX_LANES}")]
    Lanes(u32),
    #[error("the password could not be hashed: {0}")]
    Hashing(String),
}

/// The hash of a password, whose cost is within the limits.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(phc::PasswordHash);

impl PasswordHash {
    /// Parses `$argon2id$v=19$m=…,t=…,p=…$salt$output`. An error for another form or algorithm, and for costs above the
    /// limits.
    pub fn parse(text: &str) -> Result<Self, HashError> {
        let hash = phc::PasswordHash::new(text).map_err(|error| HashError::Format(error.to_string()))?;
        if hash.algorithm != ARGON2ID_IDENT {
            return Err(HashError::Algorithm);
        }
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err(HashError::Incomplete);
        }
        let params = Params::try_from(&hash).map_err(|error| HashError::Format(error.to_string()))?;
        match (params.m_cost(), params.t_cost(), params.p_cost()) {
            (memory, _, _) if memory > MAX_MEMORY_KIB => Err(HashError::Memory(memory)),
            (_, passes, _) if passes > MAX_PASSES => Err(HashError::Passes(passes)),
            (_, _, lanes) if lanes > MAX_LANES => Err(HashError::Lanes(lanes)),
            _ => Ok(Self(hash)),
        }
    }

    /// Hashes a password with a random salt: 19 MiB, two passes. Takes some 30 ms of a core. An error only
    /// if the memory cannot be allocated.
    pub fn of(password: &str) -> Result<Self, HashError> {
        let salt: [u8; SALT_BYTES] = rand::random();
        let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
        hash.map(Self).map_err(|error| HashError::Hashing(error.to_string()))
    }

    /// Whether it is the hash of that password. Takes as long as its parameters ask for.
    pub fn matches(&self, password: &str, memory: &mut HashMemory) -> bool {
        let hash = &self.0;
        let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else { return false };
        let Ok(params) = Params::try_from(hash) else { return false };
        let Ok(version) = hash.version.map_or(Ok(Version::default()), Version::try_from) else { return false };
        let blocks = memory.of(params.block_count());
        let mut output = [0; Output::MAX_LENGTH];
        let Some(output) = output.get_mut(..expected.len()) else { return false };
        let argon2 = Argon2::new(Algorithm::Argon2id, version, params);
        let computed = argon2.hash_password_into_with_memory(password.as_bytes(), salt, output, blocks);
        memory.shrink();
        // Outputs are compared in constant time.
        computed.is_ok() && Output::new(output).is_ok_and(|output| output == *expected)
    }
}

/// The memory that hashes are computed in, one after another. It is kept, because an allocator keeps what is freed for each of the
/// threads that have computed a hash: together far more than the hashes that are computed at the same time.
#[derive(Default)]
pub struct HashMemory(Vec<Block>);

impl HashMemory {
    fn of(&mut self, blocks: usize) -> &mut [Block] {
        self.0.resize(blocks, Block::new());
        &mut self.0
    }

    /// Frees what a hash with the parameters of [`PasswordHash::of`] does not need.
    fn shrink(&mut self) {
        if self.0.len() > Params::DEFAULT.block_count() {
            self.0 = Vec::new();
        }
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for HashMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashMemory({} KiB)", self.0.len())
    }
}

/// The output could be searched for offline.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(******)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_hash_matches_its_password_only_and_parses_back() {
        let hash = PasswordHash::of("correct horse").unwrap();
        let text = hash.to_string();
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        let parsed = PasswordHash::parse(&text).unwrap();
        let mut memory = HashMemory::default();
        // The same memory for each of them.
        for _ in 0..2 {
            assert!(parsed.matches("correct horse", &mut memory) && !parsed.matches("correct  horse", &mut memory));
        }
        assert_eq!(memory.0.len(), 19_456);
        assert!(!format!("{hash:?}").contains("argon2id"));
        assert_ne!(PasswordHash::of("correct horse").unwrap().to_string(), text);
    }

    /// Hashes of other programs, with other parameters.
    #[test]
    fn memory_is_as_large_as_a_hash_needs_and_not_kept_above_the_usual() {
        let mut memory = HashMemory::default();
        for (kib, kept) in [(64, 64), (1_024, 1_024), (20_000, 0), (19_456, 19_456)] {
            let params = Params::new(kib, 1, 1, Some(24)).unwrap();
            let hash = Argon2::from(params).hash_password_with_salt(b"x", &[7; SALT_BYTES]).unwrap();
            let hash = PasswordHash::parse(&phc::PasswordHash::to_string(&hash)).unwrap();
            assert!(hash.matches("x", &mut memory), "{kib}");
            assert_eq!(memory.0.len(), kept);
            assert!(!hash.matches("y", &mut memory), "{kib}");
        }
    }

    #[test]
    fn expensive_incomplete_and_foreign_hashes_are_refused() {
        let good = PasswordHash::of("x").unwrap().to_string();
        let with = |from: &str, to: &str| PasswordHash::parse(&good.replace(from, to)).unwrap_err();
        assert_eq!(with("m=19456", "m=262145"), HashError::Memory(262_145));
        assert_eq!(with("t=2", "t=17"), HashError::Passes(17));
        assert_eq!(with("p=1", "p=17"), HashError::Lanes(17));
        assert_eq!(with("argon2id", "argon2i"), HashError::Algorithm);
        assert_eq!(PasswordHash::parse("$argon2id$v=19$m=19456,t=2,p=1"), Err(HashError::Incomplete));
        assert!(matches!(PasswordHash::parse("secret"), Err(HashError::Format(_))));
    }
}
