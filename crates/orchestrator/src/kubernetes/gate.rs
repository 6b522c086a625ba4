//! The epoch: one config map beside the masters holds the highest that has acted, and every effect reads it first.
//!
//! One reading serves all effects that were waiting when it began and those that come within a moment after
//! ([`Config::epoch_good_for`](super::Config)), so that a thousand creates cost few readings, and a server that does not answer
//! is waited for once and not once by each. Both times are counted by the clock that goes on while a process is stopped: a
//! process that was stopped reads again, also for effects that waited for the reading.
//! A higher epoch is written with the version of what was read; whoever loses that race reads again. Between the reading
//! and the effect lie this moment and one call's time in which another master may be elected: what a deposed master makes
//! then gets no permit, and what it deletes it names by uid.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::Epoch;
use model::labels::{CLUSTER, MANAGED_BY, MANAGER};
use tokio::sync::Mutex;

use super::answer::Failure;
use super::names;
use super::place::{Place, post};
use crate::Error;

/// The key of the config map's data.
const KEY: &str = "epoch";
/// How long after its answer a reading lets in the effects that waited for it. They follow at once; only a process that was
/// stopped meanwhile is later, and it reads again.
const SERVED_WITHIN: Duration = Duration::from_secs(1);
/// How often a lost race is tried again before the effect is *transient*.
const TRIES: usize = 5;

/// The readings of one instance.
#[derive(Debug, Default)]
pub(super) struct Gate {
    asked: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// Every effect up to this number began to wait before the reading did.
    served: u64,
    /// Until when they are let in, by the clock that counts suspension.
    served_until: Duration,
    /// Until when what was read lets in effects that came later.
    good_until: Duration,
    outcome: Option<Result<Epoch, Error>>,
}

impl Gate {
    /// Refuses an epoch below the highest one; remembers a higher one.
    pub(super) async fn admit(&self, place: &Place, epoch: Epoch) -> Result<(), Error> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        let now = place.clock.boottime();
        let is_good = if last.served >= number { now < last.served_until } else { now < last.good_until };
        let is_for_all = |outcome: &Result<Epoch, Error>| outcome.is_ok() || last.served >= number;
        let outcome = match last.outcome.clone().filter(|outcome| is_good && is_for_all(outcome)) {
            // What was read is enough to refuse or to let in, but a higher epoch has to be written first.
            Some(Ok(highest)) if epoch <= highest => Ok(highest),
            Some(Err(error)) => Err(error),
            _ => {
                let served = self.asked.load(Ordering::SeqCst);
                let outcome = raise(place, epoch).await;
                last.good_until = now.saturating_add(place.config.epoch_good_for);
                last.served_until = place.clock.boottime().saturating_add(SERVED_WITHIN);
                (last.served, last.outcome) = (served, Some(outcome.clone()));
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

/// The highest epoch, after the given one was written if it is higher.
async fn raise(place: &Place, epoch: Epoch) -> Result<Epoch, Error> {
    let name = names::epoch_config_map(&place.config.cluster);
    let api = place.config_maps(&place.config.home_namespace);
    let doing = format!("read the epoch in config map {}/{name}", place.config.home_namespace);
    for _ in 0..TRIES {
        let found = match place.effect(api.get(&name)).await {
            Ok(found) => Some(found),
            Err(Failure::Absent(_)) => None,
            Err(failure) => return Err(failure.into_error(&doing)),
        };
        let written = match found {
            None => place.effect(api.create(&post(), &config_map(place, &name, epoch))).await,
            Some(found) => {
                let highest = read(&found)
                    .map_err(|why| Error::refused(format!("{doing}: {why}; delete the config map to begin anew")))?;
                if epoch <= highest {
                    return Ok(highest);
                }
                let mut raised = found;
                raised.data = Some(data(epoch));
                place.effect(api.replace(&name, &post(), &raised)).await
            }
        };
        match written {
            Ok(_) => return Ok(epoch),
            // Another master was faster: what it wrote decides.
            Err(Failure::Exists(_) | Failure::Moved(_)) => {}
            // The namespace itself is missing: the masters don't run where the configuration says.
            Err(Failure::Absent(text)) => return Err(Error::refused(format!("{doing}: {text}"))),
            Err(failure) => return Err(failure.into_error(&doing)),
        }
    }
    Err(Error::transient(format!("{doing}: it was changed {TRIES} times meanwhile")))
}

fn config_map(place: &Place, name: &str, epoch: Epoch) -> ConfigMap {
    let labels = BTreeMap::from([
        (MANAGED_BY.to_owned(), MANAGER.to_owned()),
        (CLUSTER.to_owned(), place.config.cluster.clone()),
    ]);
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(data(epoch)), ..ConfigMap::default() }
}

fn data(epoch: Epoch) -> BTreeMap<String, String> {
    BTreeMap::from([(KEY.to_owned(), epoch.to_string())])
}

/// Taking what can't be read for "no epoch yet" would let a deposed master in.
fn read(found: &ConfigMap) -> Result<Epoch, String> {
    let text = found.data.as_ref().and_then(|data| data.get(KEY)).ok_or_else(|| format!("it has no \"{KEY}\""))?;
    text.trim().parse().map(Epoch).map_err(|_| format!("\"{text}\" is no epoch"))
}
