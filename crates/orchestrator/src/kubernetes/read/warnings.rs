//! Events of type *Warning* about a pod: the newest few, one for each of Kubernetes' words.

use k8s_openapi::api::core::v1::Event;
use model::clock::utc;
use model::observation::{MAX_DETAIL_BYTES, cut};

use super::millis;

/// Warnings of one pod that are kept.
pub const MAX_WARNINGS: usize = 8;

/// One warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Kubernetes' word: `FailedMount`.
    pub word: String,
    /// What it says.
    pub message: String,
    /// How often it was met.
    pub times: i32,
    /// When it was met last, in milliseconds since 1970.
    pub last_ms: i64,
}

impl Warning {
    /// The warning of an event; `None` of one that is none.
    pub fn of(event: &Event) -> Option<Self> {
        if event.type_.as_deref() != Some("Warning") {
            return None;
        }
        let series = event.series.as_ref();
        let observed = series.and_then(|series| series.last_observed_time.as_ref()).or(event.event_time.as_ref());
        let last = event.last_timestamp.as_ref().map(millis);
        Some(Self {
            word: event.reason.clone().unwrap_or_default(),
            message: cut(event.message.as_deref().unwrap_or_default(), MAX_DETAIL_BYTES).to_owned(),
            times: series.and_then(|series| series.count).or(event.count).unwrap_or(1),
            last_ms: last.or(observed.map(|time| time.0.as_millisecond())).unwrap_or_default(),
        })
    }

    /// For DESCRIBE: `FailedMount, 3 times, last at …: …`.
    pub fn describe(&self) -> String {
        let times = if self.times > 1 { format!(", {} times", self.times) } else { String::new() };
        format!("{}{times}, last at {}: {}", self.word, utc(self.last_ms), self.message)
    }
}

/// The warnings of one pod, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warnings(Vec<Warning>);

impl Warnings {
    /// Takes one in; whether anything is new. A repeated or late event changes nothing.
    pub fn add(&mut self, warning: Warning) -> bool {
        if let Some(known) = self.0.iter_mut().find(|known| known.word == warning.word) {
            let is_new = (warning.last_ms, warning.times) > (known.last_ms, known.times);
            if is_new {
                *known = warning;
                self.0.sort_by_key(|it| it.last_ms);
            }
            return is_new;
        }
        self.0.push(warning);
        self.0.sort_by_key(|it| it.last_ms);
        if self.0.len() > MAX_WARNINGS {
            self.0.remove(0);
        }
        true
    }

    /// All of them, oldest first.
    pub fn all(&self) -> &[Warning] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(word: &str, last_ms: i64) -> Warning {
        Warning { word: word.to_owned(), message: format!("at {last_ms}"), times: 1, last_ms }
    }

    #[test]
    fn the_newest_of_each_word_is_kept_and_a_late_one_changes_nothing() {
        let mut warnings = Warnings::default();
        assert!(warnings.add(warning("FailedMount", 5)));
        assert!(!warnings.add(warning("FailedMount", 4)));
        assert!(!warnings.add(warning("FailedMount", 5)), "a repeated one");
        assert!(warnings.add(warning("FailedMount", 6)));
        assert!(warnings.add(warning("BackOff", 1)));
        let words: Vec<_> = warnings.all().iter().map(|it| (it.word.as_str(), it.last_ms)).collect();
        assert_eq!(words, [("BackOff", 1), ("FailedMount", 6)]);
    }

    #[test]
    fn there_is_a_limit_and_the_oldest_goes() {
        let mut warnings = Warnings::default();
        for at in 0..20 {
            warnings.add(warning(&format!("word {at}"), at));
        }
        assert_eq!(warnings.all().len(), MAX_WARNINGS);
        assert_eq!(warnings.all()[0].last_ms, 12);
    }
}
