//! The freshness of the master's observations.
//!
//! The master writes only changes, so the age of a row means nothing: the age of the last tick is the age of everything that
//! SHOW prints of engines. Every such statement reports it in its log, which BeeLine prints.

use std::time::Duration;

use model::engine_state::EngineState;
use model::millis;
use model::snapshot::MasterRecord;
use model::span;

use crate::metadata::context::Context;
use crate::metadata::settings::{STALE_AFTER_TICKS, WHO_DEADLINE};

/// How fresh the master's observations are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::metadata) enum Freshness {
    /// The master ticks; with the age of its last tick, `None` for the first master ever before its first tick.
    Fresh(Option<Duration>),
    /// No master was ever elected.
    NoMaster,
    /// The first master ever has not finished a tick; with the time since its election.
    Silent(Duration),
    /// The last tick was an earlier master's: the current one has not finished a tick.
    Inherited(Duration),
    /// The last tick was too long ago.
    Stale(Duration),
}

impl Freshness {
    /// `now_ms` is the time of the database, whose clock the times of the master are from.
    pub(in crate::metadata) fn new(master: &MasterRecord, now_ms: i64, tick_interval: Duration) -> Self {
        if master.epoch.get() == 0 {
            return Self::NoMaster;
        }
        let since = |ms: i64| millis::to_duration(now_ms.saturating_sub(ms));
        let limit = tick_interval * STALE_AFTER_TICKS;
        match master.last_tick_ms {
            0 => Some(since(master.since_ms)).filter(|age| *age > limit).map_or(Self::Fresh(None), Self::Silent),
            last => {
                let age = since(last);
                if age > limit {
                    Self::Stale(age)
                } else if last < master.since_ms {
                    Self::Inherited(age)
                } else {
                    Self::Fresh(Some(age))
                }
            }
        }
    }

    /// The age of the last tick, if there was one.
    pub(in crate::metadata) fn age(&self) -> Option<Duration> {
        match self {
            Self::Fresh(age) => *age,
            Self::Stale(age) | Self::Inherited(age) => Some(*age),
            Self::NoMaster | Self::Silent(_) => None,
        }
    }

    /// Whether the observations are current.
    pub(in crate::metadata) fn is_current(&self) -> bool {
        matches!(self, Self::Fresh(_))
    }

    /// The state to show: an engine that was ready may have ended since it was observed.
    pub(in crate::metadata) fn shown(&self, observed: EngineState) -> EngineState {
        if observed == EngineState::Ready && !self.is_current() { EngineState::Unknown } else { observed }
    }

    /// The warning for a reader; `None` if the observations are fresh.
    pub(in crate::metadata) fn remark(&self) -> Option<String> {
        match self {
            Self::Fresh(_) => None,
            Self::NoMaster => Some("no master has been elected yet".to_owned()),
            Self::Silent(age) => {
                Some(format!("the master was elected {} ago and has not finished a tick", span::age(*age)))
            }
            Self::Inherited(_) => {
                Some("observed by an earlier master: the current one has not finished a tick".to_owned())
            }
            Self::Stale(age) => Some(format!("stale: the master's last tick was {} ago", span::age(*age))),
        }
    }

    /// Adds the remark to an engine's reason, and what the calling proxy cannot reach: its users cannot reach an engine that
    /// it has not observed, whatever state the master has observed.
    pub(in crate::metadata) fn added_to(&self, reason: Option<String>, proxy_lacks: Option<&str>) -> Option<String> {
        let remarks = self.remark().into_iter().chain(proxy_lacks.map(str::to_owned));
        remarks.fold(reason, |reason, remark| {
            Some(match reason {
                Some(reason) => format!("{reason} ({remark})"),
                None => remark,
            })
        })
    }

    /// The line for a statement's log; `who` is the master.
    fn line(&self, who: &str, tick_interval: Duration) -> String {
        match self {
            Self::Fresh(Some(age)) => format!("observed {} ago by {who}", span::age(*age)),
            Self::Fresh(None) => format!("{who} was just elected and has not finished a tick"),
            Self::NoMaster => "warning: no master has been elected yet, so nothing has been observed".to_owned(),
            Self::Silent(age) => {
                format!(
                    "warning: nothing has been observed: {who} was elected {} ago and has not ticked",
                    span::age(*age)
                )
            }
            Self::Inherited(age) => {
                format!("observed {} ago by an earlier master; {who} has not finished a tick", span::age(*age))
            }
            Self::Stale(age) => format!(
                "warning: what is shown is stale: observed {} ago by {who}, and more than {STALE_AFTER_TICKS} tick \
                 intervals of {} is too long",
                span::age(*age),
                span::print(tick_interval)
            ),
        }
    }
}

/// Logs the age of the observations and the master that made them.
pub(in crate::metadata) async fn log_freshness(context: &Context, freshness: &Freshness, master: &MasterRecord) {
    let who = observer(context, master).await;
    context.log.line(freshness.line(&who, context.agent.settings.tick_interval));
}

/// The master, for people: host and process for users who see the installation.
async fn observer(context: &Context, master: &MasterRecord) -> String {
    if !context.subject.sees_installation() {
        return "the master".to_owned();
    }
    match tokio::time::timeout(WHO_DEADLINE, candidate(context, &master.holder)).await {
        Ok(Ok(Some(who))) if !who.is_empty() => format!("master {who}"),
        Ok(Ok(_)) => format!("the master of epoch {}, whose lock is gone", master.epoch),
        Ok(Err(_)) | Err(_) => format!("the master of epoch {}", master.epoch),
    }
}

/// The name in the node of a master's lock.
pub(super) async fn candidate(context: &Context, holder: &str) -> Result<Option<String>, coordination::Error> {
    let path = holder.split(' ').next().unwrap_or_default();
    coordination::election::candidate(&context.agent.supervisor.session()?, path).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::number::Epoch;

    #[test]
    fn observations_are_stale_after_three_ticks() {
        let (tick, ms) = (Duration::from_secs(2), Duration::from_millis);
        let mut master = MasterRecord { last_tick_ms: 10_000, ..MasterRecord::default() };
        assert_eq!(Freshness::new(&master, 10_000, tick), Freshness::NoMaster);
        master.epoch = Epoch(1);
        assert_eq!(Freshness::new(&master, 16_000, tick), Freshness::Fresh(Some(ms(6_000))));
        assert_eq!(Freshness::new(&master, 16_001, tick), Freshness::Stale(ms(6_001)));
        let first = MasterRecord { epoch: Epoch(1), since_ms: 10_000, ..MasterRecord::default() };
        assert_eq!(Freshness::new(&first, 16_000, tick), Freshness::Fresh(None), "a master that begins");
        assert_eq!(Freshness::new(&first, 17_000, tick), Freshness::Silent(ms(7_000)));
        let next = MasterRecord { since_ms: 11_000, ..master.clone() };
        assert_eq!(Freshness::new(&next, 12_000, tick), Freshness::Inherited(ms(2_000)), "it was just elected");
        let stale = Freshness::Stale(ms(9_000));
        assert_eq!(
            stale.added_to(Some("image pull".to_owned()), Some("no ZooKeeper")).as_deref(),
            Some("image pull (stale: the master's last tick was 9.0 s ago) (no ZooKeeper)")
        );
        let fresh = Freshness::Fresh(None);
        assert_eq!(fresh.added_to(None, Some("no ZooKeeper")).as_deref(), Some("no ZooKeeper"));
        assert_eq!(fresh.added_to(None, None), None);
    }

    #[test]
    fn an_engine_is_ready_only_while_the_current_master_observes_it() {
        let age = Duration::from_secs(1);
        assert_eq!(Freshness::Fresh(Some(age)).shown(EngineState::Ready), EngineState::Ready);
        for freshness in [Freshness::Stale(age), Freshness::Inherited(age), Freshness::Silent(age)] {
            assert_eq!(freshness.shown(EngineState::Ready), EngineState::Unknown, "{freshness:?}");
            assert_eq!(freshness.shown(EngineState::Ended), EngineState::Ended);
        }
    }

    #[test]
    fn the_log_reports_the_age_and_warns_when_stale() {
        let tick = Duration::from_secs(2);
        let line = |freshness: Freshness| freshness.line("master proxy@a:7", tick);
        assert_eq!(line(Freshness::Fresh(Some(Duration::from_millis(400)))), "observed 400 ms ago by master proxy@a:7");
        assert_eq!(
            line(Freshness::Stale(Duration::from_secs(14))),
            "warning: what is shown is stale: observed 14 s ago by master proxy@a:7, and more than 3 tick intervals of \
             2s is too long"
        );
        for freshness in [Freshness::NoMaster, Freshness::Silent(Duration::from_secs(9))] {
            assert!(line(freshness).starts_with("warning: "));
        }
    }
}
