//! The alter node: mutex, wake-up and crash record of an alteration.
//!
//! A metadata agent creates `lock/alter` and its only child `lock/alter/<alteration id>` in one multi, and the master deletes
//! both in one multi. The delete does not check a version, because the version of a recreated node starts at 0 again; it names
//! the children that were read, so a stale delete fails as a whole if the node belongs to another alteration by now.
//!
//! An alteration is settled by the child's name. The content is informational, so an alteration with unreadable content is
//! settled like any other. `alter` without a child cannot come from an agent; it is debris.

use std::time::Duration;

use model::Generation;
use model::alteration::{ObjectRef, RequestId, Source};
use model::change::Object;
use model::secret::SecretKeys;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::document;
use crate::election::Lock;
use crate::error::Error;
use crate::failpoints;
use crate::session::{Session, read_children};
use crate::transaction::Transaction;
use crate::watches::{Target, Watches};

/// The maximum size of an alter node, in bytes. A larger statement is refused before anything is written.
pub const MAX_ALTER_BYTES: usize = 512 * 1024;
/// How often a read is restarted because the node was replaced meanwhile.
const MAX_READS: usize = 5;
/// The maximum number of children that one multi deletes.
const MAX_DELETED_AT_ONCE: usize = 100;

/// The content of the alter node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alteration {
    pub id: RequestId,
    pub object: ObjectRef,
    /// The generation of the object from which the change was computed; 0 for CREATE.
    pub base_generation: Generation,
    /// The complete object before the change, secret values masked; `None` for CREATE.
    pub old: Option<Object>,
    /// The statement, secret values masked.
    pub statement: String,
    /// The user who issued it.
    pub by: String,
    /// How the statement reached the agent, for the audit of an abort. Empty if an earlier version wrote the node.
    #[serde(default, skip_serializing_if = "Source::is_empty")]
    pub source: Source,
    /// The metadata agent that executes it.
    pub agent: String,
    /// When it was issued, in milliseconds since 1970.
    pub requested_at_ms: i64,
}

impl Alteration {
    /// Masks the secret values of the old object; the statement must be masked already.
    #[expect(clippy::too_many_arguments, reason = "one for each field of the node")]
    pub fn new(
        id: RequestId,
        object: ObjectRef,
        base_generation: Generation,
        old: Option<&Object>,
        keys: &SecretKeys,
        masked_statement: impl Into<String>,
        by: impl Into<String>,
        agent: impl Into<String>,
        requested_at_ms: i64,
    ) -> Self {
        Self {
            id,
            object,
            base_generation,
            old: old.map(|object| object.masked(keys)),
            statement: masked_statement.into(),
            by: by.into(),
            source: Source::default(),
            agent: agent.into(),
            requested_at_ms,
        }
    }

    /// Sets how the statement reached the agent.
    #[must_use]
    pub fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }
}

/// The content of `alter/<id>`: the agent that executes the alteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Executor {
    agent: String,
    session: i64,
}

/// The alter node as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterNode {
    /// The content, or why it is unreadable.
    pub content: Result<Alteration, String>,
    /// When it was created, by the server's clock, in milliseconds since 1970.
    pub ctime_ms: i64,
    /// The alterations that it stands for: one, unless the node was changed by hand.
    pub children: Vec<AlterChild>,
    /// Children whose names are not valid ids; they were created by hand.
    pub strays: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterChild {
    pub id: RequestId,
    /// The agent that executes it; `None` if unreadable.
    pub agent: Option<String>,
    /// That agent's session; `None` if unreadable.
    pub session: Option<i64>,
}

impl AlterNode {
    /// Whether it stands for no alteration.
    pub fn is_debris(&self) -> bool {
        self.children.is_empty()
    }
}

/// The result of an attempt to create the alter node.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateOutcome {
    /// This call created it.
    Created,
    /// It exists for the same id: an earlier attempt of the same request created it.
    AlreadyOwn,
    /// It belongs to another alteration.
    Taken(Box<AlterNode>),
}

/// Creates the alter node if there is none.
pub async fn create(session: &Session, alteration: &Alteration) -> Result<CreateOutcome, Error> {
    let (layout, access) = (session.layout(), session.access());
    let data = document::write(&layout.alter(), alteration)?;
    if data.len() > MAX_ALTER_BYTES {
        return Err(Error::TooLarge { bytes: data.len(), limit: MAX_ALTER_BYTES });
    }
    let child = layout.alter_child(&alteration.id);
    let executor = document::write(&child, &Executor { agent: alteration.agent.clone(), session: session.id() })?;
    for _ in 0..MAX_READS {
        model::failpoint!(failpoints::ALTER_BEFORE_MAKE);
        let made = Transaction::new(session)
            .create(layout.alter(), data.clone(), access.alter())
            .create(child.clone(), executor.clone(), access.alter_child())
            .commit()
            .await;
        match made {
            Ok(()) => {
                model::failpoint!(failpoints::ALTER_MADE);
                return Ok(CreateOutcome::Created);
            }
            Err(Error::NodeExists { .. }) => {}
            Err(error) => return Err(error),
        }
        match read(session).await? {
            Some(node) if node.children.iter().any(|child| child.id == alteration.id) => {
                return Ok(CreateOutcome::AlreadyOwn);
            }
            Some(node) => return Ok(CreateOutcome::Taken(Box::new(node))),
            // It was deleted in between.
            None => {}
        }
    }
    Err(Error::NodeExists { path: layout.alter() })
}

/// Reads the alter node after a sync.
pub async fn read(session: &Session) -> Result<Option<AlterNode>, Error> {
    session.sync().await?;
    read_here(session).await
}

/// Reads the alter node without a sync: as the connected server has it.
pub(crate) async fn read_here(session: &Session) -> Result<Option<AlterNode>, Error> {
    let path = session.layout().alter();
    for _ in 0..MAX_READS {
        let Some((data, stat)) = session.get(&path).await? else { return Ok(None) };
        let Some((names, listed)) = session.children(&path).await? else { return Ok(None) };
        if listed.czxid != stat.czxid {
            continue;
        }
        let (mut ids, mut strays) = (Vec::new(), Vec::new());
        for name in names {
            match RequestId::new(name.clone()) {
                Ok(id) => ids.push(id),
                Err(_) => strays.push(name),
            }
        }
        ids.sort();
        strays.sort();
        let children = read_children(ids, |id| async move { read_child(session, id).await.map(Some) }).await?;
        return Ok(Some(AlterNode { content: document::read(&data), ctime_ms: stat.ctime, children, strays }));
    }
    Err(Error::BadVersion { path })
}

async fn read_child(session: &Session, id: RequestId) -> Result<AlterChild, Error> {
    let data = session.get(&session.layout().alter_child(&id)).await?;
    let executor = data.and_then(|(data, _)| document::read::<Executor>(&data).ok());
    let (agent, session) = executor.map(|executor| (executor.agent, executor.session)).unzip();
    Ok(AlterChild { id, agent, session })
}

/// Waits until there is no alter node, at most for the given time; returns whether that was observed.
pub async fn wait_absent(session: &Session, deadline: Duration) -> Result<bool, Error> {
    let until = Instant::now() + deadline;
    let path = session.layout().alter();
    let mut watches = Watches::new(session);
    loop {
        watches.arm(vec![Target::Node(path.clone())]).await?;
        if session.stat(&path).await?.is_none() {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        tokio::select! {
            () = watches.next() => {}
            () = sleep(left.min(session.settings().reread)) => {}
        }
    }
}

/// Deletes the alter node exactly as it was read: its children and the node in one multi with the check of the lock. The
/// caller has settled and finished the alteration of every child. An excess of children, which no agent creates, is deleted
/// first, in several multis.
pub async fn delete(lock: &Lock, seen: &AlterNode) -> Result<(), Error> {
    let layout = lock.session().layout();
    let strays = seen.strays.iter().map(|name| format!("{}/{name}", layout.alter()));
    let mut paths: Vec<String> =
        strays.chain(seen.children.iter().map(|child| layout.alter_child(&child.id))).collect();
    while paths.len() > MAX_DELETED_AT_ONCE {
        let part = paths.drain(..MAX_DELETED_AT_ONCE);
        part.fold(Transaction::under(lock), Transaction::delete).commit().await?;
    }
    let transaction = paths.into_iter().fold(Transaction::under(lock), Transaction::delete);
    model::failpoint!(failpoints::ALTER_BEFORE_DELETE);
    transaction.delete(layout.alter()).commit().await?;
    model::failpoint!(failpoints::ALTER_DELETED);
    Ok(())
}
