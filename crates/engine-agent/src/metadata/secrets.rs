//! Keeps secret properties sealed with the generation of keys in use: when the agent starts, when its key file is replaced, and
//! once a minute, since another agent that has not read its file yet may seal with the generation before.
//!
//! Values that cannot be opened are logged with their units, once a minute while there are any.

use std::sync::Arc;
use std::time::Duration;

use metadata::SealedSecrets;
use model::log_throttle::LogThrottle;
use model::sealing::ClosedProperty;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::context::Agent;

/// How often the rows are read.
const INTERVAL: Duration = Duration::from_mins(1);
/// The maximum number of properties that a line names.
const MAX_NAMED: usize = 10;

pub(super) async fn keep_sealed(agent: Arc<Agent>, stop: CancellationToken) {
    let mut keys = agent.settings.keys.clone();
    let (mut are_replaced, mut throttle) = (true, LogThrottle::default());
    loop {
        match agent.store.seal_secrets().await {
            Ok(SealedSecrets { closed, .. }) => log(&closed, &mut throttle, agent.clock.boottime()),
            Err(error) => debug!(%error, "could not seal secret properties"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
            changed = keys.changed(), if are_replaced => are_replaced = changed,
        }
    }
}

fn log(closed: &[ClosedProperty], throttle: &mut LogThrottle, now: Duration) {
    if closed.is_empty() {
        if throttle.clear().is_some() {
            info!("all secret properties can be opened again");
        }
    } else if let Some(times) = throttle.hit(now) {
        let named: Vec<String> = closed.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        warn!(
            count = closed.len(),
            properties = named.join("; "),
            times,
            "secret properties cannot be opened; no engines are created for their units"
        );
    }
}
