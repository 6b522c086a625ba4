//! Fuzz targets: one function for each reader of untrusted bytes.
//!
//! A target takes arbitrary bytes, has the real reader read them, and panics if something does not hold that must hold of every
//! input. Nothing of a reader is replaced: those of a connection read from a socket of a real server.
//!
//! | module | what reads the bytes |
//! | --- | --- |
//! | `connections` | a server, from the first byte of a client, after its log-in, and over HTTP |
//! | `messages` | the scanner and the decoder of Thrift messages, of clients and of engines |
//! | `credentials` | cookies, tokens, users files, key files, templates of LDAP |
//! | `cluster_state` | registrations and labels, which an engine or a pod may have in any form |
//! | `sealed` | secret properties in rows of the database |
//! | `statements` | the control language |
//! | `sessions` | the settings with which a client opens a session |
//! | `agent_calls` | the calls of roles at a metadata agent |
//! | `configuration` | the configuration file |
//!
//! `corpus/TARGET` has the inputs from which `cargo fuzz` starts. Tests replay all of them, so an input that has once failed stays a
//! test.

mod agent_calls;
mod cluster_state;
mod configuration;
mod connections;
mod credentials;
mod messages;
mod sealed;
mod server;
mod sessions;
mod statements;

/// What a target does with an input.
type Target = fn(&[u8]);

/// The longest input that is read, in bytes: more than any reader accepts before it knows its peer.
pub const MAX_INPUT_BYTES: usize = 128 << 10;

/// The targets by name, in alphabetical order.
pub const TARGETS: [(&str, Target); 21] = [
    ("agent_api", agent_calls::agent_api),
    ("bearer", credentials::bearer),
    ("configuration", configuration::configuration),
    ("cookie", credentials::cookie),
    ("engine_reply", messages::engine_reply),
    ("first_bytes", connections::first_bytes),
    ("framing", connections::framing),
    ("gssapi_layer", connections::gssapi_layer),
    ("http_request", connections::http_request),
    ("key_file", credentials::key_file),
    ("labels", cluster_state::labels),
    ("ldap_escape", credentials::ldap_escape),
    ("registration", cluster_state::registration),
    ("sasl", connections::sasl),
    ("sealed_property", sealed::sealed_property),
    ("service_handshake", connections::service_handshake),
    ("session_keys", sessions::session_keys),
    ("sniff_and_parse", statements::sniff_and_parse),
    ("thrift_decode", messages::thrift_decode),
    ("users_file", credentials::users_file),
    ("walker", messages::walker),
];

/// Runs the target of that name.
///
/// # Panics
/// If there is none, or if something does not hold of the input.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("the target is listed");
    if data.len() <= MAX_INPUT_BYTES {
        target(data);
    }
}
