//! HiveServer2 on the wire: between our own ends, from recordings, from real clients, from hostile ones. One binary, so
//! that it is linked once.

mod admission;
mod bearer;
mod components;
mod connection_limits;
mod cookies;
mod corpus;
mod handshakes;
mod hostile;
mod http;
mod http_api;
mod http_cut_calls;
mod http_framing;
mod http_relays;
mod number_server;
mod pinned_keys;
mod real_clients;
mod recorded;
mod refusals;
mod relays;
mod replies;
mod request_memory;
mod rowsets;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod surplus;
mod tickets;
mod tls;
mod tls_peers;
