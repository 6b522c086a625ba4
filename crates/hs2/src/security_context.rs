//! A login by a ticket: the server's side of one context of GSSAPI (RFC 2743), which a method of authentication implements.
//!
//! A context takes the client's tokens in their order until it is established, and is then exchanged for its principal. One that failed
//! fails again. A caller with a stale context has no effect: a token that was accepted once is a replay the second time.

use async_trait::async_trait;
use model::error::UserError;

use crate::principal::Principal;

/// What a server does with one token of its client.
#[derive(Clone, PartialEq, Eq)]
pub struct ContextStep {
    /// The token for the client; empty if there is none.
    pub reply: Vec<u8>,
    /// Whether the client is authenticated. Otherwise the client has to send another token.
    pub is_established: bool,
}

impl std::fmt::Debug for ContextStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContextStep").field("is_established", &self.is_established).finish_non_exhaustive()
    }
}

/// The client whose ticket was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketHolder {
    pub principal: Principal,
    /// The client's name as its ticket has it, with the realm. Some clients send it as their authorization id.
    pub name: String,
}

/// The server's side of a context. Each error is for the client: 28000 if the token is not accepted, 57P03 if it cannot be checked now.
#[async_trait]
pub trait SecurityContext: Send {
    /// Takes the next token.
    async fn step(&mut self, token: &[u8]) -> Result<ContextStep, UserError>;

    /// A message of an established context: signed, not encrypted.
    async fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, UserError>;

    /// The content of a message of an established context.
    async fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, UserError>;

    /// Who the client is, once the context is established.
    async fn holder(self: Box<Self>) -> Result<TicketHolder, UserError>;
}
