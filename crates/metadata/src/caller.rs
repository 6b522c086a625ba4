//! The user on whose behalf a statement runs.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub user: String,
    /// Whether the configuration lists the user as an administrator, who may run every statement.
    pub admin: bool,
}
