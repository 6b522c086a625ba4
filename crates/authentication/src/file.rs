//! The method `file`: passwords and groups from a users file.

use std::sync::Arc;

use async_trait::async_trait;

use crate::cache::LoginCache;
use crate::chain::{Method, Verdict};
use crate::hash_queue::HashQueue;
use crate::password::{HashError, PasswordHash};
use crate::users_file::UsersFile;

/// The name of the method, as in `access.authentication`.
const NAME: &str = "file";

/// Users of a users file.
#[derive(Debug)]
pub struct FileMethod {
    file: Arc<UsersFile>,
    queue: HashQueue,
    cache: Arc<LoginCache>,
    /// The hash that an unknown user's password is compared with, so that the response takes as long.
    decoy: PasswordHash,
}

impl FileMethod {
    /// An error if no hash can be computed, see [`PasswordHash::of`].
    pub fn new(file: Arc<UsersFile>, queue: HashQueue, cache: Arc<LoginCache>) -> Result<Self, HashError> {
        let decoy = PasswordHash::of("")?;
        Ok(Self { file, queue, cache, decoy })
    }
}

#[async_trait]
impl Method for FileMethod {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A user of the file is authenticated by the file alone.
    fn owns(&self, user: &str) -> bool {
        self.file.users().get(user).is_some()
    }

    async fn login(&self, user: &str, password: &str) -> Verdict {
        let users = self.file.users();
        let Some(entry) = users.get(user) else {
            return match self.queue.matches(self.decoy.clone(), password.to_owned()).await {
                Ok(_) => Verdict::Unknown,
                Err(error) => Verdict::Unavailable(error),
            };
        };
        let line = entry.hash.to_string();
        let parts = [NAME, user, password, &line];
        if self.cache.contains(parts) {
            return Verdict::Accepted { user: None, groups: entry.groups.clone(), expires_ms: None };
        }
        match self.queue.matches(entry.hash.clone(), password.to_owned()).await {
            Ok(true) => {
                self.cache.insert(parts);
                Verdict::Accepted { user: None, groups: entry.groups.clone(), expires_ms: None }
            }
            Ok(false) => Verdict::Refused,
            Err(error) => Verdict::Unavailable(error),
        }
    }

    async fn groups(&self, user: &str) -> Option<Vec<String>> {
        self.file.users().get(user).map(|entry| entry.groups.clone())
    }
}

#[cfg(test)]
mod tests {
    //! Measures, so only the long tier runs it.
    mod long_only {
        #![allow(clippy::unwrap_used)]
        use std::fs;
        use std::os::unix::fs::PermissionsExt as _;
        use std::time::{Duration, Instant};

        use model::clock::SystemClock;

        use super::super::*;

        /// Of each kind.
        const LOGINS: usize = 200;

        #[tokio::test]
        async fn an_unknown_user_of_the_file_takes_as_long_as_a_wrong_password() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("users");
            fs::write(&path, format!("alice:{}:\n", PasswordHash::of("right").unwrap())).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let cache = Arc::new(LoginCache::new(Duration::ZERO, SystemClock::shared()));
            let file = Arc::new(UsersFile::open(&path).unwrap());
            let method = FileMethod::new(file, HashQueue::default(), cache).unwrap();
            let mut took = [Vec::new(), Vec::new()];
            // In turns, so that what else happens on the machine meets both. The delays after failures are the chain's: none takes
            // part.
            for _ in 0..LOGINS {
                for (user, took) in ["alice", "eve"].into_iter().zip(&mut took) {
                    let begun = Instant::now();
                    let verdict = method.login(user, "wrong").await;
                    took.push(begun.elapsed());
                    assert!(matches!((user, verdict), ("alice", Verdict::Refused) | ("eve", Verdict::Unknown)));
                }
            }
            let [wrong, unknown] = took.map(|mut took| {
                took.sort();
                took[LOGINS / 2]
            });
            println!("medians of {LOGINS}: wrong password {wrong:?}, unknown user {unknown:?}");
            assert!(wrong.abs_diff(unknown) <= wrong.min(unknown) / 20, "{wrong:?}, {unknown:?}");
        }
    }
}
