//! The liveness of an engine whose reply is overdue: a process that is stopped or hangs keeps its connections open, so its
//! silence looks like a long statement.
//!
//! While a call waits longer than [`REPLY_OVERDUE`] for its reply, the engine's agent is asked for its status on a side
//! connection. An agent answers that while its engine computes. Two pieces of evidence are needed to give up soon: several
//! status calls without a reply, and no registration in ZooKeeper, which goes with the agent's session. An agent that is
//! still registered, or a registry that this proxy cannot read, is given more time. A statement that was given up here is
//! never sent again, because it may have taken effect.

use std::time::Duration;

use hs2::relay::{RelayError, deadline_passed};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

use crate::Gateway;
use crate::routes::Route;

/// How long a reply may take before the engine's agent is asked for its status.
pub(crate) const REPLY_OVERDUE: Duration = Duration::from_secs(5);
/// The time between two status calls, and the time that one may take.
pub(crate) const STATUS_INTERVAL: Duration = Duration::from_secs(5);
/// Status calls in a row without a reply after which an engine that is not registered is lost.
const MISSES_UNREGISTERED: u32 = 3;
/// The same of an engine that is registered, as far as this proxy knows.
const MISSES_REGISTERED: u32 = 12;

/// Completes when the engine is taken for lost, which it never is while its agent answers, or when `deadline` has passed.
pub(crate) async fn given_up(gateway: &Gateway, route: &Route, deadline: Duration) -> RelayError {
    // One timer is enough for both.
    let Some(left) = deadline.checked_sub(REPLY_OVERDUE) else { return deadline_passed(deadline).await };
    let began = Instant::now();
    sleep(REPLY_OVERDUE).await;
    // In a box: most replies are not overdue.
    Box::pin(async {
        tokio::select! {
            reason = gives_no_status(gateway, route, began) => RelayError::GivenUp(reason),
            () = sleep(left) => RelayError::Timeout(deadline),
        }
    })
    .await
}

async fn gives_no_status(gateway: &Gateway, route: &Route, began: Instant) -> String {
    let mut misses = 0;
    loop {
        let next = Instant::now() + STATUS_INTERVAL;
        match timeout(STATUS_INTERVAL, gateway.routes.status(route, STATUS_INTERVAL)).await {
            Ok(Ok(_)) => misses = 0,
            Ok(Err(error)) => {
                misses += 1;
                debug!(engine = %route.engine, misses, %error, "an engine with an overdue reply gives no status");
            }
            Err(_) => misses += 1,
        }
        let registered = gateway.routes.is_registered(route);
        if misses >= if registered { MISSES_REGISTERED } else { MISSES_UNREGISTERED } {
            let seconds = began.elapsed().as_secs();
            let registration = if registered { "" } else { ", and it is not registered" };
            return format!(
                "the engine has not replied for {seconds} s, {misses} status calls had no reply{registration}"
            );
        }
        sleep_until(next).await;
    }
}
