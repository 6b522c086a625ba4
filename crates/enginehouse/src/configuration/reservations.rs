//! Section `[reservations]`: deadlines of reservations, and the periods of the ledger.

use std::time::Duration;

use anyhow::bail;
use model::ledger::RESERVATION_TTL;
use serde::{Deserialize, Serialize};

use super::{Configuration, Span};

/// The longest lease.
pub const MAX_LEASE: Duration = Duration::from_hours(24);

/// The reservations of engines and of other programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReservationsSection {
    /// The time from the reservation of an engine to its first registration.
    pub ttl: Span,
    /// The time in which another program confirms a reservation.
    pub external_ttl: Span,
    /// The time for which a confirmed reservation of another program is valid without a renewal.
    pub lease: Span,
    /// The time for which smaller requests of a tenant may pass a larger one.
    pub patience: Span,
    /// The interval at which what is held is recomputed.
    pub audit: Span,
    /// The retention of reservations that have ended.
    pub keep: Span,
}

impl Default for ReservationsSection {
    fn default() -> Self {
        Self {
            ttl: Span(RESERVATION_TTL),
            external_ttl: Span::seconds(300),
            lease: Span::seconds(3600),
            patience: Span::seconds(60),
            audit: Span::seconds(60),
            keep: Span::seconds(8 * 24 * 3600),
        }
    }
}

impl Configuration {
    pub(super) fn check_reservations(&self) -> anyhow::Result<()> {
        let section = &self.reservations;
        let positive = [
            ("external_ttl", section.external_ttl),
            ("lease", section.lease),
            ("audit", section.audit),
            ("keep", section.keep),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, span)| span.0.is_zero()) {
            bail!("reservations.{key} must be greater than 0s");
        }
        if section.lease.0 > MAX_LEASE {
            bail!("reservations.lease is above the limit of {}", model::span::print(MAX_LEASE));
        }
        if section.ttl.0 <= self.engines.start_deadline.0 {
            bail!(
                "reservations.ttl is {}, which must be more than engines.start_deadline of {}\nHint: An engine that starts slowly would lose its reservation: add the time that an instance waits before it starts.",
                String::from(section.ttl),
                String::from(self.engines.start_deadline)
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use crate::configuration::check::checked;

    #[test]
    fn an_engine_may_start_for_less_than_its_reservation_lasts() {
        checked("[reservations]\nttl = \"6m\"\nlease = \"24h\"\npatience = \"0s\"\n").unwrap();
        checked("[engines]\nstart_deadline = \"10m\"\n[reservations]\nttl = \"11m\"\n").unwrap();
        for (text, expected) in [
            (
                "[reservations]\nttl = \"5m\"\n",
                "reservations.ttl is 5m, which must be more than engines.start_deadline",
            ),
            ("[engines]\nstart_deadline = \"6m\"\n", "reservations.ttl is 6m"),
            ("[reservations]\nlease = \"25h\"\n", "reservations.lease is above the limit of 1d"),
            ("[reservations]\nlease = \"0s\"\n", "reservations.lease must be greater than 0s"),
            ("[reservations]\naudit = \"0s\"\n", "reservations.audit"),
            ("[reservations]\nkeep = \"0s\"\n", "reservations.keep"),
            ("[reservations]\nexternal_ttl = \"0s\"\n", "reservations.external_ttl"),
        ] {
            let error = checked(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
