//! Whether a listener has TLS: a proxy for its clients, and an agent for roles.

use serde::{Deserialize, Serialize};

/// Whether those who connect may or must use TLS: clients of proxies, or roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    Off,
    /// They may use TLS. Passwords of clients that a method checks are accepted inside TLS only.
    Optional,
    /// Outside TLS only the probes are served.
    Required,
}
