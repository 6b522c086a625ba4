//! Registrations: the ephemeral nodes `engines/<engine>/live`, which an engine writes once it can take sessions.
//!
//! An engine chooses the content and the access list of its registration itself. One that is too long, malformed or
//! unreadable for others is reported as unreadable and never fails the reading of the rest.

use model::EngineName;
use model::table_catalog::TableCatalog;
use serde::{Deserialize, Serialize};

use crate::document;
use crate::error::Error;
use crate::session::Session;

/// The most bytes of a registration, a few times as many as one has. An engine writes it itself, and everybody reads all of
/// them at each look: so what is longer is not read at all.
pub const MAX_REGISTRATION_BYTES: usize = 4 * 1024;

/// What a registration says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Where the engine's agent listens: `host:port`.
    pub address: String,
    /// How many sessions it takes.
    pub capacity: u32,
    /// The hash of the configuration that it was launched with.
    pub config: String,
    /// The version of the program; the document's own version has the short name in JSON.
    #[serde(rename = "program_version")]
    pub version: String,
    /// The orchestrator's id of this pod or process.
    pub uid: String,
    /// Whether its tables are its own; `None` of an engine whose version does not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<TableCatalog>,
}

impl Registration {
    /// Checks a registration that was read: the engine writes it, so it may hold anything. The error names what is wrong.
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

/// The longest name of a machine, in bytes.
const MAX_HOST_BYTES: usize = 253;

/// Whether the text is `host:port`: a name or an IPv4 address, or an IPv6 address in brackets, and a port that is not 0.
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
    /// What it says, or why that can't be read.
    pub content: Result<Registration, String>,
    /// The session that owns it.
    pub session: i64,
    /// When it was made, by the server's clock, in milliseconds since 1970.
    pub ctime_ms: i64,
}

/// What is registered. An engine gives its registration content and access list itself: one that is too long to be one,
/// or that keeps us from reading it, is as unreadable as any other nonsense in it. Its length is asked for first: only an
/// engine that changes it in between makes anybody read more.
pub(crate) async fn read_registration(
    session: &Session,
    engine: &EngineName,
) -> Result<Option<RegistrationNode>, Error> {
    let path = session.layout().registration(engine);
    let Some(stat) = session.stat(&path).await? else { return Ok(None) };
    let (content, stat) = match too_long(stat.data_length) {
        Some(reason) => (Err(reason), stat),
        None => match session.get(&path).await {
            Err(Error::NoAuth { .. }) => (Err("its access list keeps others from reading it".to_owned()), stat),
            read => {
                let Some((data, stat)) = read? else { return Ok(None) };
                let content = match too_long(stat.data_length) {
                    Some(reason) => Err(reason),
                    None => document::read(&data).and_then(Registration::checked),
                };
                (content, stat)
            }
        },
    };
    Ok(Some(RegistrationNode { content, session: stat.ephemeral_owner, ctime_ms: stat.ctime }))
}

fn too_long(bytes: i32) -> Option<String> {
    let is = usize::try_from(bytes).unwrap_or(0) > MAX_REGISTRATION_BYTES;
    is.then(|| format!("it has {bytes} bytes, and a registration has {MAX_REGISTRATION_BYTES} at most"))
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
