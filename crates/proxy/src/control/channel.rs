//! A channel to metadata agents: one session at one agent at a time, opened when first needed and replaced when its agent
//! is lost; and the statements that run there.
//!
//! A channel that is dropped cuts its connection. Its agent then ends the waits of its statements, and nothing else.

use std::net::IpAddr;
use std::time::Duration;

use hs2::tcli::TCloseSessionReq;
use hs2::{Client, Handle, Principal};
use model::alteration::RequestId;
use tracing::debug;

use crate::session::timeout::Timeout;

/// How long a metadata agent has to close a session.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Who runs a statement, and from where.
pub(crate) struct Caller<'a> {
    pub(crate) principal: &'a Principal,
    pub(crate) client: IpAddr,
    /// The client application, if it is known.
    pub(crate) creator: Option<&'a str>,
}

/// A control statement at a metadata agent.
pub(crate) struct Running {
    pub(crate) id: RequestId,
    pub(super) text: String,
    pub(super) timeout: Option<Timeout>,
    /// `None` until an agent has accepted the statement.
    pub(super) operation: Option<AgentOperation>,
}

#[derive(Clone, Copy)]
pub(super) struct AgentOperation {
    pub(super) handle: Handle,
    /// The number of the agent's session.
    pub(super) backend: u64,
}

#[derive(Default)]
pub(crate) struct Channel {
    /// In a box: most sessions have none.
    pub(super) backend: Option<Box<Backend>>,
    /// The number of sessions opened so far.
    pub(super) opened: u64,
}

/// A metadata agent's session.
pub(super) struct Backend {
    pub(super) client: Client,
    pub(super) session: Handle,
    /// Distinguishes its operations from those of an earlier backend.
    pub(super) number: u64,
}

impl Running {
    /// A statement that is about to be sent.
    pub(crate) fn new(id: RequestId, text: String, timeout: Option<Timeout>) -> Self {
        Self { id, text, timeout, operation: None }
    }
}

impl Channel {
    /// The session, unless its connection is broken.
    pub(super) fn take_usable(&mut self) -> Option<Box<Backend>> {
        self.backend.take().filter(|backend| !backend.client.is_broken())
    }

    /// The connection to the agent that has the statement, with the agent's handle; `None` if it was lost.
    pub(crate) fn agent_of(&mut self, running: &Running) -> Option<(&mut Client, Handle)> {
        let operation = running.operation?;
        let backend = self.backend.as_mut().filter(|backend| backend.number == operation.backend)?;
        Some((&mut backend.client, operation.handle))
    }

    /// Closes the agent's session, with all its operations.
    pub(crate) async fn close(&mut self) {
        if let Some(backend) = self.take_usable() {
            backend.close().await;
        }
    }

    /// The same in the background.
    pub(crate) fn close_in_background(&mut self) {
        if let Some(backend) = self.take_usable() {
            tokio::spawn(backend.close());
        }
    }
}

impl Backend {
    async fn close(mut self: Box<Self>) {
        self.client.set_call_deadline(CLOSE_DEADLINE);
        let request = TCloseSessionReq { session_handle: self.session.session() };
        if let Err(error) = self.client.close_session(&request).await {
            debug!(%error, "could not close a metadata agent session; connection cut");
        }
    }
}
