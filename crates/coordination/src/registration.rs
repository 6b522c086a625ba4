//! Registrations: the ephemeral nodes `engines/<engine>/live`, which an engine writes once it can take sessions.
//!
//! An engine chooses the content and the access list of its registration itself. One that is too long, malformed or
//! unreadable for others is reported as unreadable and never fails the reading of the rest.

use model::EngineName;
use model::key_generation::KeyGeneration;
use model::owner::Owner;
use model::signed_tls_key::SignedTlsKey;
use model::table_catalog::TableCatalog;
use serde::{Deserialize, Serialize};

use crate::document;
use crate::error::Error;
use crate::session::Session;

/// The maximum length of a registration in bytes, a few times the usual one. Engines write registrations themselves, and every
/// proxy and the master read all of them each time, so a longer one is not read.
pub const MAX_REGISTRATION_BYTES: usize = 4 * 1024;

/// The content of a registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The address of the engine's agent, as `host:port`.
    pub address: String,
    /// The maximum number of sessions.
    pub capacity: u32,
    /// The hash of the configuration that the engine was started with.
    pub config: String,
    /// The version of the program. In JSON, `version` is the version of the document.
    #[serde(rename = "program_version")]
    pub version: String,
    /// The uid of the instance.
    pub uid: String,
    /// Whether it has a catalog of its own; `None` for an engine of a version that does not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<TableCatalog>,
    /// The owner in its permit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The generations of keys that its agent accepts callers with, that of its own keys first; empty for an engine of
    /// version 0.1.0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyGeneration>,
    /// The key that its agent proves in TLS; `None` if it does not offer TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<SignedTlsKey>,
}

impl Registration {
    /// Reads the content of a node, which an engine may have written arbitrarily. The error is the reason.
    pub fn read(data: &[u8]) -> Result<Self, String> {
        document::read(data).and_then(Self::checked)
    }

    /// Validates a registration, which an engine may have written arbitrarily. The error is the reason.
    fn checked(self) -> Result<Self, String> {
        if !is_endpoint(&self.address) {
            return Err("its address is not HOST:PORT".to_owned());
        }
        let texts = [&self.config, &self.version, &self.uid];
        if texts.iter().any(|text| text.chars().any(char::is_control)) {
            return Err("it has a control character".to_owned());
        }
        Ok(self)
    }
}

/// The maximum length of a host name, in bytes.
const MAX_HOST_BYTES: usize = 253;

/// Whether the text is `host:port`: a name, an IPv4 address or an IPv6 address in brackets, and a port other than 0.
fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let port_is_valid =
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let host_is_valid = if let Some(ip) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        ip.parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        !host.is_empty() && host.len() <= MAX_HOST_BYTES && host.bytes().all(letter)
    };
    port_is_valid && host_is_valid
}

/// A registration as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationNode {
    /// The content, or why it is unreadable.
    pub content: Result<Registration, String>,
    pub session: i64,
    /// When it was created, by the server's clock, in milliseconds since 1970.
    pub ctime_ms: i64,
}

/// Reads the registration of an engine. One that is too long, or that its ACL hides from us, is unreadable. The length is
/// checked first, so only an engine that replaces its registration in between makes us read more.
pub(crate) async fn read_registration(
    session: &Session,
    engine: &EngineName,
) -> Result<Option<RegistrationNode>, Error> {
    let path = session.layout().registration(engine);
    let Some(stat) = session.stat(&path).await? else { return Ok(None) };
    let (content, stat) = match too_long(stat.data_length) {
        Some(reason) => (Err(reason), stat),
        None => match session.get(&path).await {
            Err(Error::NoAuth { .. }) => (Err("its access list denies reading".to_owned()), stat),
            read => {
                let Some((data, stat)) = read? else { return Ok(None) };
                let content = match too_long(stat.data_length) {
                    Some(reason) => Err(reason),
                    None => Registration::read(&data),
                };
                (content, stat)
            }
        },
    };
    Ok(Some(RegistrationNode { content, session: stat.ephemeral_owner, ctime_ms: stat.ctime }))
}

fn too_long(bytes: i32) -> Option<String> {
    let exceeds = usize::try_from(bytes).unwrap_or(0) > MAX_REGISTRATION_BYTES;
    exceeds.then(|| format!("it has {bytes} bytes, more than {MAX_REGISTRATION_BYTES}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        for endpoint in ["127.0.0.1:1", "[::1]:65535", "eh-1.rp_1.svc:10000"] {
            assert!(is_endpoint(endpoint), "{endpoint}");
        }
        let long = format!("{}:1", "a".repeat(MAX_HOST_BYTES + 1));
        for other in
            ["", "x", ":1", "x:0", "x:65536", "x:+1", "x\u{0}:1", "a b:1", "::1:1", "[::1]", "[x]:1", "x:", &long]
        {
            assert!(!is_endpoint(other), "{other:?}");
        }
    }
}
