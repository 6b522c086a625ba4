//! The source of the password of the database's user: outside of the URL, and read again when it may have changed.

use std::fmt;
use std::sync::Arc;

use model::cause::Cause;

/// Where the password of the database's user comes from. Cheap to clone.
#[derive(Clone)]
pub struct PasswordSource(Arc<dyn Fn() -> Result<String, Cause> + Send + Sync>);

impl PasswordSource {
    /// The function is called before each transaction takes a connection, so it must be fast: a small local file.
    pub fn new(read: impl Fn() -> Result<String, Cause> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(crate) fn read(&self) -> Result<String, Cause> {
        (self.0)()
    }
}

impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordSource").finish_non_exhaustive()
    }
}
