//! Handles of sessions and operations: a public id of 16 bytes and a secret of 16 bytes.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::tcli::{THandleIdentifier, TOperationHandle, TOperationType, TSessionHandle};

/// A handle of another length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a handle must be 16 and 16 bytes")]
pub struct InvalidHandle;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle {
    /// The id; may be printed.
    pub guid: [u8; 16],
    /// The secret; never printed.
    pub secret: [u8; 16],
}

impl Handle {
    /// A new random handle.
    pub fn random() -> Self {
        Self { guid: rand::random(), secret: rand::random() }
    }

    pub fn session(&self) -> TSessionHandle {
        TSessionHandle { session_id: self.identifier() }
    }

    pub fn operation(&self, operation_type: TOperationType, has_result_set: bool) -> TOperationHandle {
        TOperationHandle { operation_id: self.identifier(), operation_type, has_result_set, modified_row_count: None }
    }

    fn identifier(&self) -> THandleIdentifier {
        THandleIdentifier { guid: self.guid.to_vec(), secret: self.secret.to_vec() }
    }
}

/// Both halves, which are random in handles of ours. The id alone would lead a guess to the handle that it is compared with.
impl Hash for Handle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_ne_bytes(self.guid) ^ u128::from_ne_bytes(self.secret));
    }
}

/// The tables of our own handles. A client may look for any, but only random ones are in a table, so none can make others collide.
pub type HandleMap<V> = HashMap<Handle, V, BuildHasherDefault<RandomBits>>;

/// The hash of random bits: a part of them.
#[derive(Debug, Default)]
pub struct RandomBits(u64);

impl Hasher for RandomBits {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u128(&mut self, bits: u128) {
        self.0 = bits as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({self})")
    }
}

/// The id in hex.
impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TryFrom<&THandleIdentifier> for Handle {
    type Error = InvalidHandle;

    fn try_from(identifier: &THandleIdentifier) -> Result<Self, InvalidHandle> {
        let half = |bytes: &[u8]| bytes.try_into().map_err(|_| InvalidHandle);
        Ok(Self { guid: half(&identifier.guid)?, secret: half(&identifier.secret)? })
    }
}

impl TryFrom<&TSessionHandle> for Handle {
    type Error = InvalidHandle;

    fn try_from(handle: &TSessionHandle) -> Result<Self, InvalidHandle> {
        Self::try_from(&handle.session_id)
    }
}

impl TryFrom<&TOperationHandle> for Handle {
    type Error = InvalidHandle;

    fn try_from(handle: &TOperationHandle) -> Result<Self, InvalidHandle> {
        Self::try_from(&handle.operation_id)
    }
}
