//! The format of our nodes: one JSON object with a version, so that an older process reports what it cannot read.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The version that this program writes and reads.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Document<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

#[derive(Deserialize)]
struct Head {
    version: u32,
}

pub(crate) fn write<T: Serialize>(path: &str, content: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(&Document { version: VERSION, content })
        .map_err(|error| Error::Unreadable { path: path.to_owned(), cause: error.into() })
}

/// Parses a document; the error is the reason.
pub(crate) fn read<T: DeserializeOwned>(data: &[u8]) -> Result<T, String> {
    let head: Head = serde_json::from_slice(data).map_err(|error| error.to_string())?;
    if head.version != VERSION {
        return Err(format!("unknown version {}", head.version));
    }
    serde_json::from_slice::<Document<T>>(data).map(|document| document.content).map_err(|error| error.to_string())
}
