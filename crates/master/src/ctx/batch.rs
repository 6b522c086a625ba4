//! Writing together: one request for all that wait when it begins.
//!
//! What is written for each engine that is made (its permit, its uid in the database, its uid in the permit) has a price for
//! the request and a small one for the engine: each transaction of a master holds its row and waits for the disk, each multi
//! waits for ZooKeeper's. A thousand creates that wrote one by one would wait for each other there and not at the orchestrator.
//! What is dear may say how far apart its requests begin at least: the first is made at once, the next one takes along what
//! came meanwhile. There wait at most as many as a stage has chains. Each has an answer of its own; that the request fails as
//! a whole is the same for all in it. Who is broken off while he waits is not written; the next tick sees what is missing.

use std::future::Future;
use std::time::Duration;

use model::number::Epoch;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, sleep_until};

use super::Failure;

type Answer<A> = Result<A, Failure>;

/// Those that wait to write a `T` and to be answered an `A`.
#[derive(Debug)]
pub(super) struct Batcher<T, A> {
    waiting: Mutex<Vec<Entry<T, A>>>,
    /// Held while a request is on its way; when the next may begin.
    turn: tokio::sync::Mutex<Instant>,
    apart: Duration,
}

#[derive(Debug)]
struct Entry<T, A> {
    what: T,
    epoch: Epoch,
    told: oneshot::Sender<Answer<A>>,
}

impl<T, A> Batcher<T, A> {
    /// Nobody waits; from the beginning of one request to the next one's there lies at least that time.
    pub(super) fn new(apart: Duration) -> Self {
        Self { waiting: Mutex::default(), turn: tokio::sync::Mutex::new(Instant::now()), apart }
    }

    /// Writes it, in a request of its own or in another's. `write` answers each, in their order.
    pub(super) async fn write<F>(&self, what: T, epoch: Epoch, write: impl FnOnce(Vec<T>) -> F) -> Answer<A>
    where
        F: Future<Output = Vec<Answer<A>>>,
    {
        let (told, mut answer) = oneshot::channel();
        self.lock().push(Entry { what, epoch, told });
        let mut next_at = self.turn.lock().await;
        if let Some(answer) = told_already(&mut answer) {
            return answer;
        }
        if *next_at > Instant::now() {
            sleep_until(*next_at).await;
        }
        // Chains that have come this far at the same moment as this one come along.
        tokio::task::yield_now().await;
        *next_at = Instant::now() + self.apart;
        let mut batch = std::mem::take(&mut *self.lock());
        batch.retain(|it| it.epoch == epoch && !it.told.is_closed());
        let (all, waiting): (Vec<T>, Vec<_>) = batch.into_iter().map(|it| (it.what, it.told)).unzip();
        let answers = write(all).await;
        for (waiting, answer) in waiting.into_iter().zip(answers) {
            // Who has gone meanwhile needs no answer.
            drop(waiting.send(answer));
        }
        told_already(&mut answer).unwrap_or_else(broken_off)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry<T, A>>> {
        self.waiting.lock()
    }
}

/// The answer, if somebody else's request had this in it.
fn told_already<A>(answer: &mut oneshot::Receiver<Answer<A>>) -> Option<Answer<A>> {
    match answer.try_recv() {
        Ok(answer) => Some(answer),
        Err(TryRecvError::Closed) => Some(broken_off()),
        Err(TryRecvError::Empty) => None,
    }
}

fn broken_off<A>() -> Answer<A> {
    Err(Failure::Unknown("what wrote it was broken off".to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn what_waits_while_one_is_written_is_written_together_and_each_has_its_own_answer() {
        let (batch, gate) = (Arc::new(Batcher::new(Duration::ZERO)), Arc::new(Semaphore::new(0)));
        let written: Arc<Mutex<Vec<Vec<&str>>>> = Arc::default();
        let write = |what: &'static str| {
            let (batch, gate, written) = (Arc::clone(&batch), Arc::clone(&gate), Arc::clone(&written));
            tokio::spawn(async move {
                let write = |all: Vec<&'static str>| async move {
                    gate.acquire().await.unwrap().forget();
                    written.lock().push(all.clone());
                    let answer =
                        |what: &'static str| if what == "c" { Err(Failure::Moved(what.to_owned())) } else { Ok(what) };
                    all.into_iter().map(answer).collect()
                };
                batch.write(what, Epoch(1), write).await
            })
        };
        let first = write("a");
        while batch.turn.try_lock().is_ok() || !batch.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let others = [write("b"), write("c"), write("d")];
        while batch.lock().len() < 3 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        assert_eq!(first.await.unwrap(), Ok("a"));
        let mut answers = Vec::new();
        for other in others {
            answers.push(other.await.unwrap());
        }
        assert_eq!(answers, [Ok("b"), Err(Failure::Moved("c".to_owned())), Ok("d")]);
        let written = written.lock();
        assert_eq!((written.len(), written[0].as_slice()), (2, &["a"][..]));
        assert_eq!(written[1].len(), 3, "{written:?}");
    }

    #[tokio::test]
    async fn who_waits_for_a_request_that_is_broken_off_is_told_so() {
        let batch = Arc::new(Batcher::<&str, ()>::new(Duration::ZERO));
        let hanging = {
            let batch = Arc::clone(&batch);
            tokio::spawn(async move { batch.write("a", Epoch(1), |_| std::future::pending()).await })
        };
        while batch.turn.try_lock().is_ok() || !batch.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let (told, mut answer) = oneshot::channel::<Answer<()>>();
        drop(told);
        assert!(matches!(told_already(&mut answer), Some(Err(Failure::Unknown(_)))));
        hanging.abort();
        assert!(hanging.await.unwrap_err().is_cancelled());
        let after = batch.write("b", Epoch(1), |all| async move { all.into_iter().map(|_| Ok(())).collect() });
        assert_eq!(after.await, Ok(()), "and the next one has its turn");
    }
}
