//! Authentication of clients: who a client is, by the methods that the configuration lists.
//!
//! | file | content |
//! | --- | --- |
//! | `chain` | the methods in their order, with the delay and the response of a failed login |
//! | `file` | the method `file`: passwords and groups from a users file |
//! | `ldap` | the method `ldap`: passwords and groups of a directory |
//! | `jwt` | the method `jwt`: tokens of an issuer |
//! | `kerberos` | the method `kerberos`: tickets of a Kerberos realm; with the cargo feature of that name |
//! | `secret_file` | whether other users can read a file with secrets |
//! | `users_file` | the users file: its mode, and reading it again |
//! | `users` | the lines of a users file, to look up and to edit |
//! | `password` | password hashes, and their limits |
//! | `hash_queue` | how many hashes are computed at once |
//! | `cache` | logins that succeeded a short time ago |
//! | `cookie` | the cookie of HTTP clients |
//! | `refusal_log` | how many refusals have a line in the log |
//! | `throttle` | delays and lock-outs after failed logins |
//! | `impersonation` | the rules that permit users to act for others |
//!
//! A failed login has one text, whatever failed: an unknown user costs as much time as a wrong password.

mod cache;
mod chain;
mod cookie;
mod file;
mod hash_queue;
mod impersonation;
mod jwt;
#[cfg(feature = "kerberos")]
mod kerberos;
mod ldap;
mod password;
mod refusal_log;
mod secret_file;
mod throttle;
mod users;
mod users_file;

pub use cache::LoginCache;
pub use chain::{Chain, Method, TicketAcceptor, TicketContext, TicketFailure, TicketName, TicketStep, Verdict};
pub use cookie::{CookieKey, CookieKeys, Cookies, MAX_COOKIE_BYTES};
pub use file::FileMethod;
pub use hash_queue::HashQueue;
pub use impersonation::{ImpersonationRules, RuleError, RuleErrorReason};
pub use jwt::{JwtAlgorithm, JwtMethod, JwtSettings, KeyLocation, KeyLocationError, KeySetError, KeysError};
#[cfg(feature = "kerberos")]
pub use kerberos::{KerberosError, KerberosMethod, KerberosSettings};
pub use ldap::{
    GroupSearch, LdapMethod, LdapSettings, LdapUrl, SearchIdentity, SettingError, Template, TemplateError, UserSource,
};
pub use password::{HashError, PasswordHash};
pub use refusal_log::{RefusalEvent, RefusalLog};
pub use secret_file::is_open_to_others;
pub use throttle::Throttle;
pub use users::{LineError, Users};
pub use users_file::{UsersFile, UsersFileError};
