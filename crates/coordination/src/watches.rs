//! One-shot watches, armed again after each event; never persistent ones, which the client library loses when it
//! connects again.
//!
//! An event carries nothing here: it only says *read again*. An event that is lost on the way (or suppressed by
//! `SessionSettings::watch_events`) costs the time until the next reading, so whoever waits here also waits for a timer.

use std::collections::HashSet;

use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use tokio::task::unconstrained;

use crate::error::{Effect, Error};
use crate::session::{MAX_IN_FLIGHT, Session};

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// A node: created, changed, deleted.
    Node(String),
    /// The set of a node's children.
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

    /// Arms those of the targets that are not armed. Answers the children of each `Children` target that was armed by
    /// this call. A node that is not there can be watched, its children can't.
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

    /// Whether events are used at all.
    pub(crate) fn enabled(&self) -> bool {
        self.session.settings().watch_events
    }

    /// Waits for an event of any armed target and takes every event that has arrived by then; waits for ever if none is
    /// armed.
    pub(crate) async fn next(&mut self) {
        match self.events.next().await {
            Some(target) => {
                self.armed.remove(&target);
            }
            None => std::future::pending().await,
        }
        self.take_ready();
    }

    /// Takes every event that has arrived, without waiting. Their targets are armed by the next [`Watches::arm`], all in
    /// one round.
    pub(crate) fn take_ready(&mut self) {
        // Outside the task's budget: with it used up, events that are there would look as if they were not.
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
