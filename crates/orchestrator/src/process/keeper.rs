//! The keeper: a task that reads the state directory periodically, which carries deletions on and wakes the watchers when
//! anything has changed.

use std::sync::Arc;
use std::time::Duration;

use model::cause::chain;
use model::labels::LabelMap;

use super::list;
use super::state_dir::StateDir;

/// The interval between two reads.
pub const KEEPER_PERIOD: Duration = Duration::from_millis(500);

/// Runs until it is aborted. Reads at once when it is nudged, which follows each effect of this process, and then wakes the
/// watchers in any case.
pub(super) async fn run(state_dir: Arc<StateDir>) {
    let mut period = tokio::time::interval(KEEPER_PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut logged = None;
    loop {
        let nudged = tokio::select! {
            _ = period.tick() => false,
            () = state_dir.nudged() => true,
        };
        let listing = tokio::task::spawn_blocking({
            let state_dir = Arc::clone(&state_dir);
            move || list::list(&state_dir, &LabelMap::new())
        })
        .await;
        // Logged once for each error, not twice a second for as long as it lasts.
        match listing {
            Ok(Err(error)) if logged.as_ref() == Some(&error) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "keeper cannot read the state directory");
                logged = Some(error);
            }
            Ok(Ok(_)) if logged.take().is_some() => tracing::info!("keeper reads the state directory again"),
            _ => {}
        }
        if nudged {
            state_dir.notifier.notify();
        }
    }
}
