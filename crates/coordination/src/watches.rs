//! One-shot watches that are armed again after each event. Persistent watches are not used, because the client library loses
//! them when it reconnects.
//!
//! Events carry no payload; they only mean *read again*. An event that is lost, or suppressed by
//! `SessionSettings::watch_events`, costs the time until the next read, so callers also need a timer.

use std::collections::HashSet;

use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use tokio::task::unconstrained;

use crate::error::{Effect, Error};
use crate::session::{MAX_IN_FLIGHT, Session};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// Creation, change and deletion of a node.
    Node(String),
    /// Changes of the set of a node's children.
    Children(String),
}

/// Armed watches of one session.
pub(crate) struct Watches {
    session: Session,
    armed: HashSet<Target>,
    events: FuturesUnordered<BoxFuture<'static, Target>>,
}

impl Watches {
    pub(crate) fn new(session: &Session) -> Self {
        Self { session: session.clone(), armed: HashSet::new(), events: FuturesUnordered::new() }
    }

    /// Arms the targets that are not armed. Returns the children of each `Children` target that this call armed. A missing node
    /// can be watched, its children cannot.
    pub(crate) async fn arm(&mut self, targets: Vec<Target>) -> Result<Vec<(String, Vec<String>)>, Error> {
        if !self.enabled() {
            return Ok(Vec::new());
        }
        let session = self.session.clone();
        let missing: Vec<Target> = targets.into_iter().filter(|target| !self.armed.contains(target)).collect();
        let mut answers =
            stream::iter(missing.into_iter().map(|target| arm_one(&session, target))).buffer_unordered(MAX_IN_FLIGHT);
        let mut children = Vec::new();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((target, names, event)) => {
                    if let (Target::Children(path), Some(names)) = (&target, names) {
                        children.push((path.clone(), names));
                    }
                    self.armed.insert(target);
                    self.events.push(event);
                }
                Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(children)
    }

    /// Whether watch events are used.
    pub(crate) fn enabled(&self) -> bool {
        self.session.settings().watch_events
    }

    /// Waits for an event of any armed target and consumes all events that have arrived by then; never returns if none is armed.
    pub(crate) async fn next(&mut self) {
        match self.events.next().await {
            Some(target) => {
                self.armed.remove(&target);
            }
            None => std::future::pending().await,
        }
        self.take_ready();
    }

    /// Consumes all events that have arrived, without waiting. The next [`Watches::arm`] arms their targets in one round.
    pub(crate) fn take_ready(&mut self) {
        // Without the task's cooperative budget: once it is used up, ready events would look pending.
        while let Some(Some(target)) = unconstrained(self.events.next()).now_or_never() {
            self.armed.remove(&target);
        }
    }
}

type Armed = (Target, Option<Vec<String>>, BoxFuture<'static, Target>);

async fn arm_one(session: &Session, target: Target) -> Result<Armed, Error> {
    let client = session.client()?;
    let (names, watcher) = match &target {
        Target::Node(path) => {
            let call = async { client.check_and_watch_stat(path).await };
            (None, session.bounded(Effect::Read, path, call).await?.1)
        }
        Target::Children(path) => {
            let call = async { client.list_and_watch_children(path).await };
            let (names, watcher) = session.bounded(Effect::Read, path, call).await?;
            (Some(names), watcher)
        }
    };
    let event = {
        let target = target.clone();
        Box::pin(async move {
            watcher.changed().await;
            target
        })
    };
    Ok((target, names, event))
}
