//! The user on whose behalf a statement runs.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub user: String,
    /// Whether the configuration lists the user as an administrator, who may run every statement.
    pub admin: bool,
    pub source: Source,
}

/// How a statement reached the metadata agent, as its proxy reports it, for the audit. A proxy of an earlier version
/// reports nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    /// The user who impersonates the caller.
    pub via: Option<String>,
    /// The method that authenticated the user.
    pub method: Option<String>,
    /// The address of the proxy.
    pub proxy: Option<String>,
    /// The address of the client.
    pub client: Option<String>,
}
