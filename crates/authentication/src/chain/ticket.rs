//! Logins by tickets: the contexts of a method, with the log, the delay and the response of a failed login.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use hs2::{ContextStep, Principal, SecurityContext, TicketHolder};
use model::error::UserError;
use model::user_name::is_user_name;

use super::{Chain, Failure, Method, UnfinishedLogin, sleep_about};

/// Why a context does not go on.
#[derive(Debug)]
pub enum TicketFailure {
    /// The client's token is not accepted, for this reason, which the log has.
    Rejected(String),
    /// It cannot be checked now.
    Unavailable(UserError),
}

/// The client of a ticket, as the method has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketName {
    /// The user's name.
    pub user: String,
    /// The name in the ticket, with the realm.
    pub full: String,
}

/// What a method does with one token of a client.
#[derive(Debug)]
pub struct TicketStep {
    /// The token for the client; empty if there is none.
    pub reply: Vec<u8>,
    /// Who the client is, if the context is established now. Otherwise the client has to send another token.
    pub name: Option<TicketName>,
}

/// A context of one client.
#[async_trait]
pub trait TicketContext: Send {
    /// Takes the client's next token.
    async fn step(&mut self, token: &[u8]) -> Result<TicketStep, TicketFailure>;

    /// A message of an established context: signed, not encrypted.
    async fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, TicketFailure>;

    /// The content of a message of an established context.
    async fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, TicketFailure>;
}

/// A method that accepts tickets.
pub trait TicketAcceptor: Send + Sync {
    /// Begins a context.
    fn begin(&self) -> Box<dyn TicketContext>;
}

/// A client's context, with what happens when it fails.
struct TicketLogin {
    chain: Arc<Chain>,
    method: Arc<dyn Method>,
    address: IpAddr,
    context: Box<dyn TicketContext>,
    /// The client, once its context is established.
    name: Option<TicketName>,
}

impl Chain {
    /// Begins a login by a ticket, by the first method that accepts tickets; `None` if there is none.
    pub fn begin_ticket_login(self: &Arc<Self>, peer: SocketAddr) -> Option<Box<dyn SecurityContext>> {
        let (method, context) = self.methods.iter().find_map(|method| Some((method, method.tickets()?.begin())))?;
        let (chain, method) = (Arc::clone(self), Arc::clone(method));
        Some(Box::new(TicketLogin { chain, method, address: peer.ip(), context, name: None }))
    }

    /// Logs why a ticket is not accepted, and returns the error for the client after its delay.
    async fn refuse_ticket(&self, address: IpAddr, failure: TicketFailure) -> UserError {
        match failure {
            TicketFailure::Rejected(reason) => {
                // No user is known, and no guess finds a key.
                let Failure { error, delay } =
                    self.failed("", address, &reason, self.throttle.fail_without_user(address));
                sleep_about(delay).await;
                error
            }
            TicketFailure::Unavailable(error) => error,
        }
    }
}

impl TicketLogin {
    /// The result of one call to the method.
    async fn checked<T>(&mut self, called: Result<T, TicketFailure>) -> Result<T, UserError> {
        match called {
            Ok(value) => Ok(value),
            Err(failure) => Err(self.chain.refuse_ticket(self.address, failure).await),
        }
    }

    /// Refuses a client that is no user, and a user whom another method owns.
    fn check_name(&self, name: &TicketName) -> Result<(), TicketFailure> {
        let TicketName { user, full } = name;
        if !is_user_name(user) {
            return Err(TicketFailure::Rejected(format!("ticket of {full}, which is no name of a user")));
        }
        let mut others = self.chain.methods.iter().filter(|other| other.name() != self.method.name());
        if others.any(|other| other.owns(user)) {
            return Err(TicketFailure::Rejected(format!("ticket of {full}, a user whom another method owns")));
        }
        Ok(())
    }
}

#[async_trait]
impl SecurityContext for TicketLogin {
    async fn step(&mut self, token: &[u8]) -> Result<ContextStep, UserError> {
        let unfinished = UnfinishedLogin { chain: &self.chain, user: "", address: self.address, has_ended: false };
        let step = self.context.step(token).await;
        unfinished.end();
        let TicketStep { reply, name } = self.checked(step).await?;
        if let Some(name) = &name {
            let checked = self.check_name(name);
            self.checked(checked).await?;
        }
        self.name = name;
        Ok(ContextStep { reply, is_established: self.name.is_some() })
    }

    async fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, UserError> {
        let wrapped = self.context.wrap(message).await;
        self.checked(wrapped).await
    }

    async fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, UserError> {
        let content = self.context.unwrap(message).await;
        self.checked(content).await
    }

    /// The groups are those of the first other method that knows the user.
    async fn holder(self: Box<Self>) -> Result<TicketHolder, UserError> {
        let Self { chain, method, address, name, .. } = *self;
        let Some(TicketName { user, full }) = name else {
            return Err(chain.refuse_ticket(address, TicketFailure::Rejected("unfinished context".to_owned())).await);
        };
        let groups = chain.groups(&user).await.unwrap_or_default();
        Ok(TicketHolder { principal: Principal::authenticated(user, groups, method.name()), name: full })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use hs2::HttpScheme;
    use model::clock::ManualClock;
    use model::error::ErrorKind;

    use super::super::{Throttle, Verdict};
    use super::*;

    /// Its tokens are names.
    struct Tickets;

    #[async_trait]
    impl TicketContext for Tickets {
        async fn step(&mut self, token: &[u8]) -> Result<TicketStep, TicketFailure> {
            let full = String::from_utf8(token.to_vec()).unwrap();
            match full.as_str() {
                "" => Ok(TicketStep { reply: Vec::new(), name: None }),
                "down" => Err(TicketFailure::Unavailable(UserError::new(ErrorKind::Unavailable, "too busy"))),
                "other" => Err(TicketFailure::Rejected("ticket for the service other".to_owned())),
                _ => {
                    let user = full.split('@').next().unwrap().to_owned();
                    Ok(TicketStep { reply: b"proof".to_vec(), name: Some(TicketName { user, full }) })
                }
            }
        }

        async fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, TicketFailure> {
            Ok(message.to_vec())
        }

        async fn unwrap(&mut self, _: &[u8]) -> Result<Vec<u8>, TicketFailure> {
            Err(TicketFailure::Rejected("altered".to_owned()))
        }
    }

    impl TicketAcceptor for Tickets {
        fn begin(&self) -> Box<dyn TicketContext> {
            Box::new(Self)
        }
    }

    #[async_trait]
    impl Method for Tickets {
        fn name(&self) -> &'static str {
            "kerberos"
        }

        fn http_schemes(&self) -> &'static [HttpScheme] {
            &[HttpScheme::Negotiate]
        }

        async fn login(&self, _: &str, _: &str) -> Verdict {
            Verdict::Unknown
        }

        fn tickets(&self) -> Option<&dyn TicketAcceptor> {
            Some(self)
        }

        fn may_have(&self, _: &str) -> bool {
            true
        }

        async fn groups(&self, _: &str) -> Option<Vec<String>> {
            None
        }
    }

    /// Owns `root`, and knows the groups of `ann`.
    struct Directory;

    #[async_trait]
    impl Method for Directory {
        fn name(&self) -> &'static str {
            "file"
        }

        fn owns(&self, user: &str) -> bool {
            user == "root"
        }

        async fn login(&self, _: &str, _: &str) -> Verdict {
            Verdict::Unknown
        }

        async fn groups(&self, user: &str) -> Option<Vec<String>> {
            (user == "ann").then(|| vec!["analysts".to_owned()])
        }
    }

    /// Failures are counted by address.
    fn peer(number: u8) -> SocketAddr {
        ([127, 0, 0, number], 1).into()
    }

    fn chain(methods: Vec<Arc<dyn Method>>) -> Arc<Chain> {
        let clock = ManualClock::at(0);
        Arc::new(Chain::new(methods, Throttle::new(Duration::from_mins(5), clock.clone()), clock))
    }

    fn begin(chain: &Arc<Chain>, number: u8) -> Box<dyn SecurityContext> {
        chain.begin_ticket_login(peer(number)).unwrap()
    }

    #[tokio::test]
    async fn the_holder_of_a_ticket_has_the_groups_of_another_method() {
        let chain = chain(vec![Arc::new(Directory), Arc::new(Tickets)]);
        assert_eq!(chain.http_schemes(), [HttpScheme::Negotiate, HttpScheme::Basic]);
        for (token, groups) in [("ann@A", &["analysts"][..]), ("etl/host@A", &[])] {
            let mut context = begin(&chain, 1);
            assert!(!context.step(b"").await.unwrap().is_established);
            let step = context.step(token.as_bytes()).await.unwrap();
            assert_eq!((step.reply.as_slice(), step.is_established), (&b"proof"[..], true));
            let holder = context.holder().await.unwrap();
            assert_eq!(holder.name, token);
            assert_eq!(
                (holder.principal.user.as_str(), holder.principal.method),
                (&token[..token.len() - 2], "kerberos")
            );
            assert_eq!(holder.principal.groups, groups);
            assert_eq!(chain.groups_since_login(&holder.principal.user, "kerberos").await.unwrap(), groups);
        }
        assert_eq!(chain.groups_since_login("etl/host", "file").await, None, "removed from the file");
    }

    #[tokio::test]
    async fn a_ticket_that_is_refused_has_the_text_and_the_delay_of_every_failed_login() {
        let chain = chain(vec![Arc::new(Directory), Arc::new(Tickets)]);
        for (number, token) in (1..).zip(["other", "root@A", "@admins@A", "a\nb@A"]) {
            let began = tokio::time::Instant::now();
            let refused = begin(&chain, number).step(token.as_bytes()).await.unwrap_err();
            assert_eq!(refused, UserError::new(ErrorKind::InvalidAuthorization, "authentication failed"), "{token}");
            assert!(began.elapsed() >= Duration::from_millis(80), "{token}");
        }
        assert_eq!(begin(&chain, 5).step(b"down").await.unwrap_err().sqlstate(), "57P03");
        assert_eq!(begin(&chain, 6).unwrap(b"x").await.unwrap_err().sqlstate(), "28000");
        assert_eq!(begin(&chain, 7).holder().await.unwrap_err().sqlstate(), "28000", "the context is not established");
    }

    #[tokio::test]
    async fn without_a_method_for_tickets_none_is_accepted() {
        let chain = chain(vec![Arc::new(Directory)]);
        assert!(chain.begin_ticket_login(peer(1)).is_none());
        assert_eq!(chain.http_schemes(), [HttpScheme::Basic]);
    }
}
