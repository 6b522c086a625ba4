//! Logins: connections with a login and OpenSession, made by several threads at once.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

use super::connection::Buffer;
use super::endpoint::Endpoint;
use super::session::Session;

/// The threads that log in: fewer than the connections from one address that a proxy authenticates at once.
pub const THREADS: usize = 8;

/// Opens this many sessions, and returns them.
pub fn open(endpoint: &Endpoint, user: &str, sessions: usize) -> Result<Vec<Session>> {
    let opened = Mutex::new(Vec::with_capacity(sessions));
    in_threads(sessions, |number, buffer| {
        let session = Session::open(endpoint, number, user, buffer)?;
        opened.lock().push(session);
        Ok(())
    })?;
    Ok(opened.into_inner())
}

/// Opens this many sessions and returns how long it took. They are closed afterwards.
pub fn measure(endpoint: &Endpoint, user: &str, sessions: usize) -> Result<Duration> {
    let begun = Instant::now();
    let opened = open(endpoint, user, sessions)?;
    let took = begun.elapsed();
    for_each(opened, Session::close)?;
    Ok(took)
}

/// Does the same with each session.
pub fn for_each<T: Send>(sessions: Vec<T>, work: impl Fn(T, &mut Buffer) -> Result<()> + Sync) -> Result<()> {
    let count = sessions.len();
    let sessions = Mutex::new(sessions);
    in_threads(count, |_, buffer| {
        let session = sessions.lock().pop().context("fewer sessions than were counted")?;
        work(session, buffer)
    })
}

/// Runs the work for each number below `count`, in [`THREADS`] threads. The first error ends the run.
fn in_threads(count: usize, work: impl Fn(usize, &mut Buffer) -> Result<()> + Sync) -> Result<()> {
    let run = |thread: usize| -> Result<()> {
        let mut buffer = Buffer::default();
        (thread..count).step_by(THREADS).try_for_each(|number| work(number, &mut buffer))
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the driver panicked"))));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_is_worked_on_once() {
        let seen = Mutex::new(Vec::new());
        in_threads(100, |number, _| {
            seen.lock().push(number);
            Ok(())
        })
        .unwrap();
        let seen = seen.into_inner();
        assert_eq!((seen.len(), seen.into_iter().collect::<BTreeSet<_>>().len()), (100, 100));
        let failed = in_threads(10, |number, _| if number == 7 { anyhow::bail!("seven") } else { Ok(()) });
        assert_eq!(failed.unwrap_err().to_string(), "seven");
    }

    #[test]
    fn each_value_is_passed_to_the_work() {
        let sum = Mutex::new(0);
        for_each((1..=10).collect(), |value, _| {
            *sum.lock() += value;
            Ok(())
        })
        .unwrap();
        assert_eq!(sum.into_inner(), 55);
    }
}
