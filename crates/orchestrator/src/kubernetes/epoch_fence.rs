//! The epoch fence: a config map in the masters' namespace holds the highest epoch that has acted, and every effect checks it
//! first.
//!
//! Checks are coalesced. One read serves all effects that were waiting when it began and those that arrive shortly after
//! ([`Config::epoch_good_for`](super::Config)), so that a thousand creates cost few reads, and a server that does not reply
//! is waited for once instead of once by each. Both times are measured by the clock that counts suspension: a process that
//! was suspended reads again, also for effects that were waiting for the read.
//! A higher epoch is written with the resource version that was read; a master that loses this race reads again. During that
//! short time and the duration of one call another master may be elected: a pod that a deposed master creates then gets no
//! permit, and its deletes name the uid.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::Epoch;
use model::labels::{CLUSTER, MANAGED_BY, MANAGER};
use tokio::sync::Mutex;

use super::cluster::{Cluster, post_params};
use super::error::CallError;
use super::names;
use crate::Error;

/// The key of the config map's data.
const KEY: &str = "epoch";
/// How long after its reply a read admits the effects that were waiting for it. They follow at once; only a process that was
/// suspended in between is later, and it reads again.
const WAITERS_ADMITTED_FOR: Duration = Duration::from_secs(1);
/// Attempts after lost races before the effect is *transient*.
const ATTEMPTS: usize = 5;

/// The reads of one instance.
#[derive(Debug)]
pub(super) struct EpochFence {
    cluster: Arc<Cluster>,
    /// The number of checks that have begun.
    checks: AtomicU64,
    last: Mutex<LastRead>,
}

#[derive(Debug, Default)]
struct LastRead {
    /// Every check up to this number was waiting when the read began.
    waiters: u64,
    /// Until when they are admitted, by the clock that counts suspension.
    waiters_until: Duration,
    /// Until when later checks are admitted.
    good_until: Duration,
    outcome: Option<Result<Epoch, Error>>,
}

impl EpochFence {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster, checks: AtomicU64::default(), last: Mutex::default() }
    }

    /// Refuses an epoch below the highest one; records a higher one.
    pub(super) async fn check(&self, epoch: Epoch) -> Result<(), Error> {
        let number = self.checks.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        let clock = &self.cluster.clock;
        let now = clock.boottime();
        let waited = last.waiters >= number;
        let is_good = if waited { now < last.waiters_until } else { now < last.good_until };
        let outcome = match last.outcome.clone().filter(|outcome| is_good && (outcome.is_ok() || waited)) {
            // The last read suffices to refuse or to admit, but a higher epoch has to be written first.
            Some(Ok(highest)) if epoch <= highest => Ok(highest),
            Some(Err(error)) => Err(error),
            _ => {
                let waiters = self.checks.load(Ordering::SeqCst);
                let outcome = raise(&self.cluster, epoch).await;
                last.good_until = now.saturating_add(self.cluster.config.epoch_good_for);
                last.waiters_until = clock.boottime().saturating_add(WAITERS_ADMITTED_FOR);
                (last.waiters, last.outcome) = (waiters, Some(outcome.clone()));
                outcome
            }
        };
        match outcome? {
            highest if epoch < highest => {
                tracing::info!(%epoch, %highest, "effect of a deposed master refused");
                Err(Error::Deposed { epoch, highest })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the highest epoch, after writing the given one if it is higher.
async fn raise(cluster: &Cluster, epoch: Epoch) -> Result<Epoch, Error> {
    let name = names::epoch_config_map(&cluster.config.cluster);
    let api = cluster.config_maps(&cluster.config.home_namespace);
    let action = format!("read the epoch in config map {}/{name}", cluster.config.home_namespace);
    for _ in 0..ATTEMPTS {
        let found = match cluster.effect(api.get(&name)).await {
            Ok(found) => Some(found),
            Err(CallError::NotFound(_)) => None,
            Err(error) => return Err(error.into_error(&action)),
        };
        let written = match found {
            None => cluster.effect(api.create(&post_params(), &config_map(cluster, &name, epoch))).await,
            Some(found) => {
                let highest = parse(&found)
                    .map_err(|why| Error::refused(format!("{action}: {why}; delete the config map to start over")))?;
                if epoch <= highest {
                    return Ok(highest);
                }
                let mut raised = found;
                raised.data = Some(data(epoch));
                cluster.effect(api.replace(&name, &post_params(), &raised)).await
            }
        };
        match written {
            Ok(_) => return Ok(epoch),
            // Another master was faster: the epoch that it wrote decides.
            Err(CallError::AlreadyExists(_) | CallError::Conflict(_)) => {}
            // The namespace itself is missing: the masters do not run where the configuration says.
            Err(CallError::NotFound(text)) => return Err(Error::refused(format!("{action}: {text}"))),
            Err(error) => return Err(error.into_error(&action)),
        }
    }
    Err(Error::transient(format!("{action}: concurrently changed {ATTEMPTS} times")))
}

fn config_map(cluster: &Cluster, name: &str, epoch: Epoch) -> ConfigMap {
    let labels = BTreeMap::from([
        (MANAGED_BY.to_owned(), MANAGER.to_owned()),
        (CLUSTER.to_owned(), cluster.config.cluster.clone()),
    ]);
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(data(epoch)), ..ConfigMap::default() }
}

fn data(epoch: Epoch) -> BTreeMap<String, String> {
    BTreeMap::from([(KEY.to_owned(), epoch.to_string())])
}

/// Treating a damaged config map as "no epoch yet" would let a deposed master in.
fn parse(found: &ConfigMap) -> Result<Epoch, String> {
    let text = found.data.as_ref().and_then(|data| data.get(KEY)).ok_or_else(|| format!("it has no key \"{KEY}\""))?;
    text.trim().parse().map(Epoch).map_err(|_| format!("invalid epoch \"{text}\""))
}
