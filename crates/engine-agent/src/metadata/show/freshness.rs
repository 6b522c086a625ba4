//! Whether what the master observed can be believed.

use std::time::Duration;

use model::snapshot::MasterRecord;

use crate::metadata::settings::STALE_AFTER_TICKS;

/// How fresh the master's observations are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::metadata) enum Freshness {
    /// The master ticks.
    Fresh,
    /// There was never a master.
    NoMaster,
    /// The first master ever was elected that long ago and has not finished a tick.
    Silent(Duration),
    /// The last tick is too long ago.
    Stale(Duration),
}

impl Freshness {
    pub(in crate::metadata) fn of(master: &MasterRecord, now_ms: i64, tick_interval: Duration) -> Self {
        if master.epoch.get() == 0 {
            return Self::NoMaster;
        }
        let since = |ms: i64| Duration::from_millis(now_ms.saturating_sub(ms).max(0).unsigned_abs());
        let limit = tick_interval * STALE_AFTER_TICKS;
        match master.last_tick_ms {
            0 => Some(since(master.since_ms)).filter(|age| *age > limit).map_or(Self::Fresh, Self::Silent),
            last => Some(since(last)).filter(|age| *age > limit).map_or(Self::Fresh, Self::Stale),
        }
    }

    /// What a reader has to know; `None` when all is fresh.
    pub(in crate::metadata) fn remark(&self) -> Option<String> {
        match self {
            Self::Fresh => None,
            Self::NoMaster => Some("no master has been elected yet".to_owned()),
            Self::Silent(age) => {
                Some(format!("the master was elected {} s ago and has not finished a tick", age.as_secs()))
            }
            Self::Stale(age) => Some(format!("stale: the master's last tick was {} s ago", age.as_secs())),
        }
    }

    /// Adds the remark to a reason.
    pub(in crate::metadata) fn added_to(&self, reason: Option<String>) -> Option<String> {
        match (reason, self.remark()) {
            (Some(reason), Some(remark)) => Some(format!("{reason} ({remark})")),
            (reason, remark) => reason.or(remark),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::number::Epoch;

    #[test]
    fn observations_are_stale_after_three_tick_intervals_and_a_missing_master_is_told() {
        let tick = Duration::from_secs(2);
        let mut master = MasterRecord { last_tick_ms: 10_000, ..MasterRecord::default() };
        assert_eq!(Freshness::of(&master, 10_000, tick), Freshness::NoMaster);
        master.epoch = Epoch(1);
        assert_eq!(Freshness::of(&master, 16_000, tick), Freshness::Fresh);
        assert_eq!(Freshness::of(&master, 16_001, tick), Freshness::Stale(Duration::from_millis(6_001)));
        let first = MasterRecord { epoch: Epoch(1), since_ms: 10_000, ..MasterRecord::default() };
        assert_eq!(Freshness::of(&first, 16_000, tick), Freshness::Fresh, "a master that begins");
        assert_eq!(Freshness::of(&first, 17_000, tick), Freshness::Silent(Duration::from_secs(7)));
        let stale = Freshness::Stale(Duration::from_secs(9));
        assert_eq!(
            stale.added_to(Some("image pull".to_owned())).as_deref(),
            Some("image pull (stale: the master's last tick was 9 s ago)")
        );
    }
}
