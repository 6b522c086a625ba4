//! A transaction: one atomic multi. Its error names the node whose operation failed.

use zookeeper_client as zk;
use zookeeper_client::{Acl, Acls, CreateMode};

use crate::election::Lock;
use crate::error::{Effect, Error, LockLoss};
use crate::session::Session;

/// The maximum number of operations of a multi.
const MAX_OPERATIONS: usize = 200;

enum Operation {
    Check { version: Option<i32> },
    Create { data: Vec<u8>, mode: CreateMode, acl: Vec<Acl> },
    Set { data: Vec<u8>, version: i32 },
    Delete,
}

pub(crate) struct Transaction<'a> {
    session: &'a Session,
    lock: Option<&'a Lock>,
    operations: Vec<(String, Operation)>,
}

impl<'a> Transaction<'a> {
    /// A transaction without a check of the master's lock.
    pub(crate) fn new(session: &'a Session) -> Self {
        Self { session, lock: None, operations: Vec::new() }
    }

    /// A transaction of the master: it begins with a check of the lock's node, the fencing token.
    pub(crate) fn under(lock: &'a Lock) -> Self {
        let check = (lock.path().to_owned(), Operation::Check { version: None });
        Self { session: lock.session(), lock: Some(lock), operations: vec![check] }
    }

    fn and(mut self, path: String, operation: Operation) -> Self {
        self.operations.push((path, operation));
        self
    }

    /// The node must exist.
    pub(crate) fn check(self, path: String) -> Self {
        self.and(path, Operation::Check { version: None })
    }

    /// The node must exist with that version.
    pub(crate) fn check_version(self, path: String, version: i32) -> Self {
        self.and(path, Operation::Check { version: Some(version) })
    }

    pub(crate) fn create(self, path: String, data: Vec<u8>, acl: Vec<Acl>) -> Self {
        self.and(path, Operation::Create { data, mode: CreateMode::Persistent, acl })
    }

    pub(crate) fn create_ephemeral(self, path: String, data: Vec<u8>, acl: Vec<Acl>) -> Self {
        self.and(path, Operation::Create { data, mode: CreateMode::Ephemeral, acl })
    }

    pub(crate) fn set(self, path: String, data: Vec<u8>, version: i32) -> Self {
        self.and(path, Operation::Set { data, version })
    }

    pub(crate) fn delete(self, path: String) -> Self {
        self.and(path, Operation::Delete)
    }

    pub(crate) async fn commit(self) -> Result<(), Error> {
        if let Some(lock) = self.lock
            && !lock.lease_valid()
        {
            return Err(Error::LockLost(LockLoss::NoAnswer));
        }
        // The last operation names the subject of the transaction in errors.
        let about = self.operations.last().map(|(path, _)| path.clone()).unwrap_or_default();
        if self.operations.len() > MAX_OPERATIONS {
            return Err(Error::TooMany { path: about, count: self.operations.len(), limit: MAX_OPERATIONS });
        }
        let client = self.session.client()?;
        let mut writer = client.new_multi_writer();
        for (path, operation) in &self.operations {
            let added = match operation {
                Operation::Check { version } => writer.add_check_version(path, version.unwrap_or(ANY_VERSION)),
                Operation::Create { data, mode, acl } => writer.add_create(path, data, &mode.with_acls(Acls::new(acl))),
                Operation::Set { data, version } => writer.add_set_data(path, data, Some(*version)),
                Operation::Delete => writer.add_delete(path, None),
            };
            added.map_err(|error| Error::from_client(error, Effect::Read, path))?;
        }
        let answer = self.session.answered(Effect::Write, &about, async move { writer.commit().await }).await?;
        match answer {
            Ok(_) => Ok(()),
            Err(zk::MultiWriteError::RequestFailed { source }) => {
                Err(Error::from_client(source, Effect::Write, &about))
            }
            Err(zk::MultiWriteError::OperationFailed { index, source }) => {
                let path = self.operations.get(index).map_or(about.as_str(), |(path, _)| path);
                match Error::from_client(source, Effect::Write, path) {
                    Error::NoNode { .. } if index == 0 && self.lock.is_some() => {
                        Err(Error::LockLost(LockLoss::NodeGone))
                    }
                    error => Err(error),
                }
            }
        }
    }
}

const ANY_VERSION: i32 = -1;
