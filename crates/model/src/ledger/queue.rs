//! The reasons of requests without a reservation, as a master publishes them with the engine, read back for SHOW.

/// The beginning of the reason of a queued request; its position follows.
const QUEUED: &str = "queued at position ";
/// The beginning of the reason of a request that can never fit.
const NEVER_FITS: &str = "cannot start: ";

/// The position of a queued engine, from its reason: `queued at position 3: …`. `None` for any other reason.
pub fn queue_position(reason: &str) -> Option<u32> {
    let (position, _) = reason.strip_prefix(QUEUED)?.split_once(':')?;
    position.parse().ok()
}

/// Why an engine can never be granted with the current limits, from its reason: `cannot start: …`. `None` for any other.
pub fn never_fits(reason: &str) -> Option<&str> {
    reason.strip_prefix(NEVER_FITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reasons_of_requests_are_read() {
        let reason = "queued at position 12: tenant \"t_a\" on resource pool \"rp_1\": asked 1, left 0 of 18";
        assert_eq!(queue_position(reason), Some(12));
        for other in ["", "queued", "queued at position x: y", "queued at position 3", "is being created"] {
            assert_eq!(queue_position(other), None, "{other}");
        }
        assert_eq!(never_fits("cannot start: user \"a\": asked 2"), Some("user \"a\": asked 2"));
        assert_eq!(never_fits("queued at position 1: x"), None);
    }
}
