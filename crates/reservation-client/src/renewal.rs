//! Automatic renewal of a lease.
//!
//! The lease is renewed each third of it. It counts from the moment at which a renewal was sent, by the clock that
//! includes suspension, so the holder learns that it may have ended no later than the ledger ends it.

use std::sync::Arc;
use std::time::Duration;

use model::clock::{Clock as _, SystemClock};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::Client;
use crate::error::Error;
use crate::request::Claim;

/// The renewals of a lease, until this is dropped. The reservation itself lasts until its release or the end of its lease.
#[derive(Debug)]
pub struct Renewal(JoinHandle<()>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    /// Renews the reservation of the claim, which was confirmed with this lease just now. Calls `on_loss` once if it is
    /// lost, or may be because no proxy responded for the lease: the program must stop its work then.
    pub fn keep_renewed(
        self: &Arc<Self>,
        claim: Claim,
        lease: Duration,
        on_loss: impl FnOnce(Error) + Send + 'static,
    ) -> Renewal {
        let client = Arc::clone(self);
        Renewal(tokio::spawn(async move {
            let renew = || client.renew(&claim, Some(lease));
            let error = renew_until_lost(lease, renew, Error::is_lost).await;
            tracing::warn!(%error, id = claim.id, "reservation lost");
            on_loss(error);
        }))
    }

    /// Renews the capacity that the instance has registered with this lease just now. Calls `on_loss` once if it has ended or was
    /// replaced, or may have ended because no proxy responded for the lease: then the pool grants nothing, or what another
    /// instance has registered.
    pub fn keep_registered(
        self: &Arc<Self>,
        pool: impl Into<String>,
        instance: impl Into<String>,
        lease: Duration,
        on_loss: impl FnOnce(Error) + Send + 'static,
    ) -> Renewal {
        let (client, pool, instance) = (Arc::clone(self), pool.into(), instance.into());
        Renewal(tokio::spawn(async move {
            let renew = || client.renew_registration(&pool, &instance, Some(lease));
            let error = renew_until_lost(lease, renew, Error::is_unregistered).await;
            tracing::warn!(%error, pool, instance, "registration lost");
            on_loss(error);
        }))
    }
}

/// Renews each third of the lease until it is lost; returns why.
async fn renew_until_lost<T, A>(lease: Duration, renew: impl Fn() -> A, is_lost: fn(&Error) -> bool) -> Error
where
    A: Future<Output = Result<T, Error>>,
{
    let clock = SystemClock;
    let pause = lease / 3;
    let mut renewed_at = clock.boottime();
    loop {
        sleep(pause).await;
        let sent_at = clock.boottime();
        let left = (renewed_at + lease).saturating_sub(sent_at);
        let reason = match tokio::time::timeout(left, renew()).await {
            Ok(Ok(_)) => {
                renewed_at = sent_at;
                continue;
            }
            Ok(Err(error)) if is_lost(&error) => return error,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no proxy responded".to_owned(),
        };
        if clock.boottime().saturating_sub(renewed_at) >= lease {
            return Error::LeaseEnded { lease, reason };
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::client::ClientOptions;

    #[tokio::test]
    async fn a_lease_that_cannot_be_renewed_is_reported_when_it_ends() {
        let options = ClientOptions::new(vec!["127.0.0.1:1".to_owned()], "ann", "x");
        let client = Arc::new(Client::new(options));
        let claim = Claim { id: "r".to_owned(), pool: "rp_1".to_owned(), instance: "i".to_owned(), user: None };
        let (sender, lost) = tokio::sync::oneshot::channel();
        let renewal = client.keep_renewed(claim, Duration::from_millis(300), move |error| {
            let _ = sender.send(error);
        });
        let error = lost.await.unwrap();
        assert!(matches!(error, Error::LeaseEnded { .. }) && error.is_lost(), "{error}");
        drop(renewal);
        let (sender, lost) = tokio::sync::oneshot::channel();
        let _renewal = client.keep_registered("rp_1", "i", Duration::from_millis(300), move |error| {
            let _ = sender.send(error);
        });
        assert!(matches!(lost.await.unwrap(), Error::LeaseEnded { .. }));
    }
}
