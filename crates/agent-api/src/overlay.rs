//! The entries of a control statement's configuration overlay: what a proxy passes to a metadata agent with the statement.

/// The id of the request.
pub const REQUEST_ID: &str = "enginehouse.request.id";
/// The remaining time, in milliseconds, before the transaction has to begin.
pub const REQUEST_DEADLINE_MS: &str = "enginehouse.request.deadline_ms";
/// A text about the systems that the proxy cannot reach; SHOW reports it with the engines.
pub const REQUEST_PROXY_LACKS: &str = "enginehouse.request.proxy_lacks";
/// The user who impersonates the user of the statement, for the audit like the following ones. Absent if there is none.
pub const REQUEST_VIA: &str = "enginehouse.request.via";
/// The method that authenticated the user.
pub const REQUEST_METHOD: &str = "enginehouse.request.method";
/// The address of the proxy.
pub const REQUEST_PROXY: &str = "enginehouse.request.proxy";
/// The address of the client.
pub const REQUEST_CLIENT: &str = "enginehouse.request.client";
