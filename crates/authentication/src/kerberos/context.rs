//! The contexts of clients. Each call of the library runs on a thread that may block: it reads the keytab and the cache of tickets that
//! were used, from files.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use libgssapi::context::{SecurityContext as _, ServerCtx};
use libgssapi::credential::Cred;
use libgssapi::error::Error;
use libgssapi::oid::GSS_MECH_KRB5;
use model::error::{ErrorKind, UserError};
use model::text::cut;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::principal::Principal;
use super::settings::KerberosSettings;
use crate::chain::{TicketContext, TicketFailure, TicketName, TicketStep};

/// How long a call may wait for a thread, and how long it may take.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// The longest text of an error of the library, in bytes: it may repeat names of a client's token.
const MAX_ERROR_BYTES: usize = 512;

/// The server's side of the context of one client.
pub(super) struct AcceptedContext {
    /// `None` after a call that did not end in time.
    context: Option<ServerCtx>,
    settings: Arc<KerberosSettings>,
    calls: Arc<Semaphore>,
}

impl AcceptedContext {
    pub(super) fn new(credential: Cred, settings: Arc<KerberosSettings>, calls: Arc<Semaphore>) -> Self {
        Self { context: Some(ServerCtx::new(Some(credential))), settings, calls }
    }

    /// Runs a call. One that does not end in time keeps its place until it does.
    async fn call<T: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut ServerCtx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, TicketFailure> {
        let mut context = self.context.take().ok_or_else(late)?;
        let permit = timeout(CALL_DEADLINE, Arc::clone(&self.calls).acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(late)?;
        let running = tokio::task::spawn_blocking(move || {
            // The library keeps the text of an error for the thread in which it occurred.
            let result = call(&mut context).map_err(text);
            drop(permit);
            (context, result)
        });
        let (context, result) = timeout(CALL_DEADLINE, running).await.ok().and_then(Result::ok).ok_or_else(late)?;
        self.context = Some(context);
        result.map_err(TicketFailure::Rejected)
    }
}

/// The text of an error, in one line.
pub(super) fn text(error: Error) -> String {
    let shown = error.to_string();
    cut(&shown.trim().escape_debug().to_string(), MAX_ERROR_BYTES).to_owned()
}

fn late() -> TicketFailure {
    let text = "authentication is unavailable: a ticket could not be checked in time";
    TicketFailure::Unavailable(UserError::new(ErrorKind::Unavailable, text).hint("Retry the login later."))
}

/// The names in a ticket, as the library writes them.
struct Names {
    client: Vec<u8>,
    service: Vec<u8>,
}

/// The names in the ticket of a context that is established, unless another mechanism was used.
fn names(context: &ServerCtx) -> Result<Option<Names>, Error> {
    if context.mechanism()? != GSS_MECH_KRB5 {
        return Ok(None);
    }
    let (client, service) = (context.source_name()?.display_name()?, context.target_name()?.display_name()?);
    Ok(Some(Names { client: client.to_vec(), service: service.to_vec() }))
}

impl KerberosSettings {
    /// The client of a ticket with these names, if it is accepted.
    fn accept(&self, names: Option<Names>) -> Result<TicketName, TicketFailure> {
        let rejected = |reason: String| Err(TicketFailure::Rejected(reason));
        let Some(Names { client, service }) = names else {
            return rejected("mechanism other than Kerberos".to_owned());
        };
        let (Some(client), Some(service)) = (Principal::parse(&client), Principal::parse(&service)) else {
            let name = String::from_utf8_lossy(&client).escape_debug().to_string();
            return rejected(format!("ticket of {}, a name that is escaped", cut(&name, MAX_ERROR_BYTES)));
        };
        match self.refuses(&client, &service) {
            Some(reason) => rejected(reason),
            None => Ok(TicketName { full: client.to_string(), user: client.name }),
        }
    }
}

#[async_trait]
impl TicketContext for AcceptedContext {
    async fn step(&mut self, token: &[u8]) -> Result<TicketStep, TicketFailure> {
        // The library would answer with its offer of SPNEGO, as if it began.
        if token.is_empty() {
            return Err(TicketFailure::Rejected("empty token".to_owned()));
        }
        let token = token.to_vec();
        let call = self.call(move |context| {
            // A client may bind its token to its TLS connection, which is not compared: TLS may end before this server.
            let reply = context.step(&token, None)?.map(|reply| reply.to_vec()).unwrap_or_default();
            let names = if context.is_complete() { Some(names(context)?) } else { None };
            Ok((reply, names))
        });
        let (reply, names) = call.await?;
        Ok(TicketStep { reply, name: names.map(|names| self.settings.accept(names)).transpose()? })
    }

    async fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, TicketFailure> {
        let message = message.to_vec();
        self.call(move |context| Ok(context.wrap(false, &message)?.to_vec())).await
    }

    async fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, TicketFailure> {
        let message = message.to_vec();
        self.call(move |context| Ok(context.unwrap(&message)?.to_vec())).await
    }
}
