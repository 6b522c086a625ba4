//! Who may name a session: the user who opened it and, in binary mode, on the connection that opened it alone.

/// The owner of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) user: String,
    /// The user who authenticated, if the session impersonates its user.
    pub(crate) login: Option<String>,
    /// The connection that opened it; `None` over HTTP.
    pub(crate) connection: Option<u64>,
}

/// The user who authenticated, and the connection that names a handle.
pub(crate) struct Caller<'a> {
    pub(crate) login: &'a str,
    /// The user that it acts for, if the call names one.
    pub(crate) user: Option<&'a str>,
    pub(crate) connection: u64,
}

impl Owner {
    /// Whether the caller may name a session of this owner.
    pub(crate) fn permits(&self, caller: &Caller<'_>) -> bool {
        let same_connection = self.connection.is_none_or(|connection| connection == caller.connection);
        let same_user = caller.user.is_none_or(|user| user == self.user);
        self.login.as_deref().unwrap_or(&self.user) == caller.login && same_user && same_connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_by_its_login_for_its_user_on_its_connection() {
        let of_ann = Owner { user: "ann".to_owned(), login: None, connection: Some(1) };
        let for_ann = Owner { login: Some("etl".to_owned()), connection: None, ..of_ann.clone() };
        for (owner, login, user, connection, permitted) in [
            (&of_ann, "ann", None, 1, true),
            (&of_ann, "ann", None, 2, false),
            (&of_ann, "bob", None, 1, false),
            (&of_ann, "etl", Some("ann"), 1, false),
            (&for_ann, "etl", Some("ann"), 2, true),
            (&for_ann, "etl", None, 2, true),
            (&for_ann, "etl", Some("bob"), 2, false),
            (&for_ann, "ann", None, 2, false),
        ] {
            let caller = Caller { login, user, connection };
            assert_eq!(owner.permits(&caller), permitted, "{owner:?} {login} {user:?} {connection}");
        }
    }
}
