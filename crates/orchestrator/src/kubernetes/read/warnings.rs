//! Events of type *Warning* about a pod: the most recent ones, one for each reason.

use k8s_openapi::api::core::v1::Event;
use model::clock::utc;
use model::observation::MAX_DETAIL_BYTES;
use model::text::cut;

use super::millis;

/// The limit of warnings of one pod.
pub const MAX_WARNINGS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The reason of the event, such as `FailedMount`.
    pub reason: String,
    pub message: String,
    /// How often it occurred.
    pub count: i32,
    /// When it last occurred, in milliseconds since 1970.
    pub last_ms: i64,
}

impl Warning {
    /// `None` if the event is not a warning.
    pub fn from_event(event: &Event) -> Option<Self> {
        if event.type_.as_deref() != Some("Warning") {
            return None;
        }
        let series = event.series.as_ref();
        let observed = series.and_then(|series| series.last_observed_time.as_ref()).or(event.event_time.as_ref());
        let last = event.last_timestamp.as_ref().map(millis);
        Some(Self {
            reason: event.reason.clone().unwrap_or_default(),
            message: cut(event.message.as_deref().unwrap_or_default(), MAX_DETAIL_BYTES).to_owned(),
            count: series.and_then(|series| series.count).or(event.count).unwrap_or(1),
            last_ms: last.or(observed.map(|time| time.0.as_millisecond())).unwrap_or_default(),
        })
    }

    /// For DESCRIBE: `FailedMount, 3 times, last at …: …`.
    pub fn describe(&self) -> String {
        let times = if self.count > 1 { format!(", {} times", self.count) } else { String::new() };
        format!("{}{times}, last at {}: {}", self.reason, utc(self.last_ms), self.message)
    }
}

/// The warnings of one pod, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warnings(Vec<Warning>);

impl Warnings {
    /// Returns whether it is new. A repeated or late event changes nothing.
    pub fn add(&mut self, warning: Warning) -> bool {
        if let Some(known) = self.0.iter_mut().find(|known| known.reason == warning.reason) {
            let is_new = (warning.last_ms, warning.count) > (known.last_ms, known.count);
            if is_new {
                *known = warning;
                self.0.sort_by_key(|warning| warning.last_ms);
            }
            return is_new;
        }
        self.0.push(warning);
        self.0.sort_by_key(|warning| warning.last_ms);
        if self.0.len() > MAX_WARNINGS {
            self.0.remove(0);
        }
        true
    }

    /// Oldest first.
    pub fn all(&self) -> &[Warning] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(reason: &str, last_ms: i64) -> Warning {
        Warning { reason: reason.to_owned(), message: format!("at {last_ms}"), count: 1, last_ms }
    }

    #[test]
    fn the_newest_of_each_reason_is_kept() {
        let mut warnings = Warnings::default();
        assert!(warnings.add(warning("FailedMount", 5)));
        assert!(!warnings.add(warning("FailedMount", 4)));
        assert!(!warnings.add(warning("FailedMount", 5)), "a repeated one");
        assert!(warnings.add(warning("FailedMount", 6)));
        assert!(warnings.add(warning("BackOff", 1)));
        let kept: Vec<_> = warnings.all().iter().map(|one| (one.reason.as_str(), one.last_ms)).collect();
        assert_eq!(kept, [("BackOff", 1), ("FailedMount", 6)]);
    }

    #[test]
    fn above_the_limit_the_oldest_is_dropped() {
        let mut warnings = Warnings::default();
        for at in 0..20 {
            warnings.add(warning(&format!("reason {at}"), at));
        }
        assert_eq!(warnings.all().len(), MAX_WARNINGS);
        assert_eq!(warnings.all()[0].last_ms, 12);
    }
}
