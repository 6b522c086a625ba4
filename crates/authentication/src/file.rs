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
