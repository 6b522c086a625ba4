//! The alter node: the visible mutex, the wake-up and the crash record of an alteration.
//!
//! `lock/alter` and its only child `lock/alter/<alteration id>` are made in one multi by a metadata agent and deleted
//! in one multi by the master, never by a version: a node that was made again starts at version 0 again. `alter`
//! without a child can't come from an agent; it is debris. The content is for people and for the record; what
//! settles an alteration is the child's name, so unreadable content is settled like any other.
//!
//! A stale caller: a delete names the children that were seen, so it fails as a whole when another alteration's node
//! stands there by now.

use std::time::Duration;

use model::Generation;
use model::alteration::{ObjectRef, RequestId};
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

/// The biggest alter node, in bytes. A statement that needs more is refused before anything is written.
pub const MAX_ALTER_BYTES: usize = 512 * 1024;
/// How often a reading is begun again because the node was replaced under it.
const MAX_READS: usize = 5;
/// How many children one transaction deletes at most.
const MAX_DELETED_AT_ONCE: usize = 100;

/// What the alter node says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alteration {
    /// The alteration's id.
    pub id: RequestId,
    /// What is altered.
    pub object: ObjectRef,
    /// The object's generation that the change was computed from; 0 for CREATE.
    pub base_generation: Generation,
    /// The complete object before the change, secret values masked; `None` for CREATE.
    pub old: Option<Object>,
    /// The statement, secret values masked.
    pub statement: String,
    /// The user who said it.
    pub by: String,
    /// The metadata agent that executes it.
    pub agent: String,
    /// When it was said, in milliseconds since 1970.
    pub requested_at_ms: i64,
}

impl Alteration {
    /// Takes the old object as it is and masks its secret values; the statement must come masked.
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
            agent: agent.into(),
            requested_at_ms,
        }
    }
}

/// What `alter/<id>` says: who executes the alteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Executor {
    agent: String,
    session: i64,
}

/// The alter node as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterNode {
    /// What it says, or why that can't be read.
    pub content: Result<Alteration, String>,
    /// When it was made, by the server's clock, in milliseconds since 1970.
    pub ctime_ms: i64,
    /// Whose alterations it stands for: one, unless somebody changed it by hand.
    pub children: Vec<AlterChild>,
    /// Children whose names can't be ids: made by hand.
    pub strays: Vec<String>,
}

/// One child of the alter node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterChild {
    /// The alteration's id.
    pub id: RequestId,
    /// The agent that executes it; `None` if unreadable.
    pub agent: Option<String>,
    /// That agent's session; `None` if unreadable.
    pub session: Option<i64>,
}

impl AlterNode {
    /// Whether it stands for no alteration at all.
    pub fn is_debris(&self) -> bool {
        self.children.is_empty()
    }
}

/// What became of an attempt to make the alter node.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateOutcome {
    /// It is made.
    Created,
    /// It stands there for the same id already: an earlier try of the same request.
    AlreadyOwn,
    /// Another alteration's stands there.
    Taken(Box<AlterNode>),
}

/// Makes the alter node, once.
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
            Some(node) if node.children.iter().any(|it| it.id == alteration.id) => {
                return Ok(CreateOutcome::AlreadyOwn);
            }
            Some(node) => return Ok(CreateOutcome::Taken(Box::new(node))),
            // It went away in between: try again.
            None => {}
        }
    }
    Err(Error::NodeExists { path: layout.alter() })
}

/// The alter node as it is now, after a sync; `None` if there is none.
pub async fn read(session: &Session) -> Result<Option<AlterNode>, Error> {
    session.sync().await?;
    read_here(session).await
}

/// The alter node as the server that we are connected to has it.
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
    let (agent, session) = executor.map(|it| (it.agent, it.session)).unzip();
    Ok(AlterChild { id, agent, session })
}

/// Waits until there is no alter node, at most until the deadline; says whether there was a moment without one.
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

/// Deletes the alter node exactly as it was read: the children that were seen, then the node, in one multi with the
/// check of the lock. The caller has settled and finished every child's alteration. A heap of children, which no agent
/// makes, goes before, in parts.
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
