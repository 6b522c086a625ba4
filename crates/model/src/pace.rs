//! Pace: how soon something that repeats may happen again, with a burst after a rest.
//!
//! One cause is often followed by the next within milliseconds: a slot by its engine, a permit by its registration. These few
//! repetitions need no pause. Repetitions that go on have one after each of them, so that a flapping cause costs a bounded share of the
//! processor. A pace is a value: the caller keeps it, passes the times and waits.

use std::time::Duration;

/// The most repetitions without a pause.
const BURST: u32 = 2;
/// How long a rest is that allows one of them again.
const REST: Duration = Duration::from_millis(500);

/// The pace of one thing that repeats.
#[derive(Debug, Clone)]
pub struct Pace {
    pause: Duration,
    /// The repetitions that may still happen without a pause.
    credit: u32,
    /// When the credit was last counted.
    counted_at: Duration,
}

impl Pace {
    /// A pace with this pause, rested.
    pub const fn new(pause: Duration) -> Self {
        Self { pause, credit: BURST, counted_at: Duration::ZERO }
    }

    /// How long to wait at `now` until it may happen again, if the pause is counted from `since`.
    pub fn wait(&mut self, since: Duration, now: Duration) -> Duration {
        let rests = now.saturating_sub(self.counted_at).as_millis() / REST.as_millis();
        if rests > 0 {
            self.credit = BURST.min(self.credit.saturating_add(u32::try_from(rests).unwrap_or(u32::MAX)));
            self.counted_at = now;
        }
        let left = (since + self.pause).saturating_sub(now);
        if left.is_zero() || self.credit == 0 {
            return left;
        }
        self.credit -= 1;
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(50);

    #[test]
    fn a_burst_has_no_pauses_and_what_goes_on_has_them() {
        let mut pace = Pace::new(PAUSE);
        let mut now = Duration::from_secs(10);
        let mut waits = |pace: &mut Pace, times: usize| -> Vec<u128> {
            let mut waits = Vec::new();
            for _ in 0..times {
                let wait = pace.wait(now, now);
                now += wait + Duration::from_millis(1);
                waits.push(wait.as_millis());
            }
            waits
        };
        assert_eq!(waits(&mut pace, 5), [0, 0, 50, 50, 50]);
        // In a long row, one of ten has none.
        assert_eq!(waits(&mut pace, 100).iter().filter(|wait| **wait == 0).count(), 9);
    }

    #[test]
    fn a_pause_that_has_passed_uses_no_credit() {
        let mut pace = Pace::new(PAUSE);
        let now = Duration::from_secs(10);
        for _ in 0..9 {
            assert_eq!(pace.wait(now, now + PAUSE), Duration::ZERO);
        }
        let after = |ms| now + Duration::from_millis(ms);
        assert_eq!([0, 20, 20].map(|ms| pace.wait(now, after(ms)).as_millis()), [0, 0, 30]);
    }

    #[test]
    fn a_rest_allows_a_burst_again() {
        let mut pace = Pace::new(PAUSE);
        let mut now = Duration::from_secs(10);
        while pace.wait(now, now).is_zero() {}
        now += REST;
        assert_eq!([(); 2].map(|()| pace.wait(now, now)), [Duration::ZERO, PAUSE]);
        now += Duration::from_hours(1);
        assert_eq!([(); 3].map(|()| pace.wait(now, now)), [Duration::ZERO, Duration::ZERO, PAUSE]);
    }
}
