//! Waits for what has no event: the state of another process. Every wait has a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until there is something; an error of `look`, or at the deadline, ends the wait.
pub fn until<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begun.elapsed() >= deadline {
            bail!("not within {} s: {what}", deadline.as_secs());
        }
        pause(PAUSE);
    }
}

/// Rests for a short time.
#[expect(clippy::disallowed_methods, reason = "the driver has threads and no tasks, so nothing else is held up")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_wait_ends_with_what_it_waits_for_or_at_its_deadline() {
        let mut looks = 0;
        let third = until("the third look", Duration::from_mins(1), || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(third.unwrap(), 3);
        let late = until("nothing", Duration::ZERO, || Ok(None::<()>)).unwrap_err().to_string();
        assert_eq!(late, "not within 0 s: nothing");
        assert!(until("an error", Duration::from_mins(1), || -> Result<Option<()>> { bail!("broken") }).is_err());
    }
}
