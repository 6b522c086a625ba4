//! Operations on single nodes: stat, read, list, create, set.

use std::collections::BTreeSet;
use std::future::Future;

use futures::stream::{self, StreamExt};
use model::EngineName;
use zookeeper_client::{Acl, Acls, CreateMode, MultiReadResult, Stat};

use super::{MAX_CHILDREN, MAX_IN_FLIGHT, Session};
use crate::error::{Effect, Error};

impl Session {
    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Stat>, Error> {
        let client = self.client()?;
        self.bounded(Effect::Read, path, async move { client.check_stat(path).await }).await
    }

    /// Data and stat; `None` if the node does not exist.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<(Vec<u8>, Stat)>, Error> {
        let client = self.client()?;
        found(self.bounded(Effect::Read, path, async move { client.get_data(path).await }).await)
    }

    /// The stats of the nodes, in the same order, by one request; `None` for one that is missing or cannot be read. The request
    /// reads their data too, so it is for nodes whose data is short.
    pub(crate) async fn stats(&self, paths: &[String]) -> Result<Vec<Option<Stat>>, Error> {
        let Some(first) = paths.first() else { return Ok(Vec::new()) };
        let client = self.client()?;
        let call = async {
            let mut reader = client.new_multi_reader();
            for path in paths {
                reader.add_get_data(path)?;
            }
            reader.commit().await
        };
        let stat = |read| match read {
            MultiReadResult::Data { stat, .. } => Some(stat),
            _ => None,
        };
        Ok(self.bounded(Effect::Read, first, call).await?.into_iter().map(stat).collect())
    }

    /// The node's ACL; `None` if the node does not exist.
    pub(crate) async fn acl(&self, path: &str) -> Result<Option<Vec<Acl>>, Error> {
        let client = self.client()?;
        let read = found(self.bounded(Effect::Read, path, async move { client.get_acl(path).await }).await)?;
        Ok(read.map(|(acl, _)| acl))
    }

    pub(crate) async fn set_acl(&self, path: &str, acl: &[Acl]) -> Result<(), Error> {
        let client = self.client()?;
        let call = async move { client.set_acl(path, &Acls::new(acl), None).await };
        self.bounded(Effect::Write, path, call).await.map(drop)
    }

    /// The names of the children and the stat of the node; `None` if the node does not exist.
    pub(crate) async fn children(&self, path: &str) -> Result<Option<(Vec<String>, Stat)>, Error> {
        let client = self.client()?;
        let read = found(self.bounded(Effect::Read, path, async move { client.get_children(path).await }).await)?;
        match read {
            Some((names, _)) if names.len() > MAX_CHILDREN => {
                Err(Error::TooMany { path: path.to_owned(), count: names.len(), limit: MAX_CHILDREN })
            }
            other => Ok(other),
        }
    }

    /// The children whose names are engine names, in order: at most [`SessionSettings::max_children`](super::SessionSettings)
    /// to be read, and the rest. A list that is too long is no error, so that the master can still delete nodes from it.
    pub(crate) async fn engines(&self, path: &str) -> Result<(Vec<EngineName>, BTreeSet<EngineName>), Error> {
        let client = self.client()?;
        let read = found(self.bounded(Effect::Read, path, async move { client.get_children(path).await }).await)?;
        let names = read.map(|(names, _)| names).unwrap_or_default();
        let mut engines: Vec<EngineName> = names.into_iter().filter_map(|name| EngineName::new(name).ok()).collect();
        engines.sort();
        let unread = engines.split_off(engines.len().min(self.settings().max_children));
        Ok((engines, unread.into_iter().collect()))
    }

    /// Creates a node; returns its path, which for a sequential node ends with its number.
    pub(crate) async fn create(&self, path: &str, data: &[u8], mode: CreateMode, acl: &[Acl]) -> Result<String, Error> {
        let client = self.client()?;
        let sequential = matches!(mode, CreateMode::EphemeralSequential | CreateMode::PersistentSequential);
        let call = async move { client.create(path, data, &mode.with_acls(Acls::new(acl))).await };
        let (_, sequence) = self.bounded(Effect::Write, path, call).await?;
        Ok(if sequential { format!("{path}{sequence}") } else { path.to_owned() })
    }

    pub(crate) async fn set(&self, path: &str, data: &[u8]) -> Result<Stat, Error> {
        let client = self.client()?;
        self.bounded(Effect::Write, path, async move { client.set_data(path, data, None).await }).await
    }

    /// Creates an ephemeral node; succeeds if this session owns it already. [`Error::StillHeld`]: another session owns it.
    pub(crate) async fn create_own(&self, path: &str, data: &[u8], acl: &[Acl]) -> Result<(), Error> {
        match self.create(path, data, CreateMode::Ephemeral, acl).await {
            Err(Error::NodeExists { path }) => self.owned(path).await,
            other => other.map(drop),
        }
    }

    /// Checks that this session owns an ephemeral node that exists.
    pub(crate) async fn owned(&self, path: String) -> Result<(), Error> {
        match self.stat(&path).await? {
            Some(stat) if stat.ephemeral_owner == self.id() => Ok(()),
            Some(stat) => Err(Error::StillHeld { path, session: stat.ephemeral_owner }),
            None => Err(Error::NoNode { path }),
        }
    }
}

/// Reads the children of a node one by one, at most [`MAX_IN_FLIGHT`] at a time, in the order of their names. A child that
/// has gone since it was listed is left out.
pub(crate) async fn read_children<N, T, F>(names: Vec<N>, read: impl Fn(N) -> F) -> Result<Vec<T>, Error>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    let reads: Vec<_> = stream::iter(names.into_iter().map(read)).buffered(MAX_IN_FLIGHT).collect().await;
    reads.into_iter().filter_map(Result::transpose).collect()
}

fn found<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
