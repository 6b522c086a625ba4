//! Who a client is, once it has authenticated.

/// The authenticated principal of a connection, or of one HTTP request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    /// The user whose rights apply.
    pub user: String,
    /// The groups of the user, without `@`.
    pub groups: Vec<String>,
    /// The method that authenticated the user or the component.
    pub method: &'static str,
    /// The component of Enginehouse that authenticated and acts for the user; `None` if the user connected directly.
    pub service: Option<String>,
    /// The user who authenticated and impersonates `user`; `None` if that is the same.
    pub via: Option<String>,
    /// When the proof of the user who authenticated expires, in milliseconds since 1970; `None` if it has no end of its own. Such a
    /// proof has groups, which nothing else knows.
    pub expires_ms: Option<i64>,
}

impl Principal {
    /// A user who connected directly and whose name is trusted.
    pub fn user(user: impl Into<String>) -> Self {
        Self::authenticated(user, Vec::new(), "none")
    }

    /// A user who connected directly and was authenticated by a method.
    pub fn authenticated(user: impl Into<String>, groups: Vec<String>, method: &'static str) -> Self {
        Self { user: user.into(), groups, method, service: None, via: None, expires_ms: None }
    }

    /// The same principal, until this time.
    #[must_use]
    pub fn until(self, expires_ms: Option<i64>) -> Self {
        Self { expires_ms, ..self }
    }

    /// The user who authenticated.
    pub fn login(&self) -> &str {
        self.via.as_deref().unwrap_or(&self.user)
    }

    /// The same login on behalf of another user, with the groups of that one.
    #[must_use]
    pub fn impersonating(self, user: impl Into<String>, groups: Vec<String>) -> Self {
        Self { user: user.into(), groups, via: Some(self.user), ..self }
    }

    /// A component of Enginehouse that acts for a user.
    pub fn service(service: impl Into<String>, user: impl Into<String>) -> Self {
        Self { service: Some(service.into()), ..Self::authenticated(user, Vec::new(), "key") }
    }
}
