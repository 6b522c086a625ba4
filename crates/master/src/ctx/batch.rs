//! A batcher: group commit for the writes of concurrent chains.
//!
//! A write for each created engine (its permit, its uid in the database, its uid in the permit) costs much per request and
//! little per engine: each transaction of a master locks its row and waits for the disk, each multi waits for ZooKeeper's. A
//! thousand creates that write one by one would wait for each other there, not at the orchestrator.
//!
//! All writes that wait when a request begins are sent with it. An expensive write may set a minimum interval between
//! requests: the first is sent immediately, the next carries everything queued in the meantime. The queue is bounded by the
//! number of chains in a stage. Each write has its own result, except that a failure of the request fails all of them. A
//! cancelled waiter is dropped from the batch; the next tick notices the missing write.

use std::future::Future;
use std::time::Duration;

use model::number::Epoch;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, sleep_until};

use super::Failure;

type Answer<A> = Result<A, Failure>;

/// Batches writes of `T` with results of `A`.
#[derive(Debug)]
pub(super) struct Batcher<T, A> {
    queue: Mutex<Vec<Entry<T, A>>>,
    /// Held during a request; the earliest time of the next one.
    turn: tokio::sync::Mutex<Instant>,
    interval: Duration,
}

#[derive(Debug)]
struct Entry<T, A> {
    item: T,
    epoch: Epoch,
    reply: oneshot::Sender<Answer<A>>,
}

impl<T, A> Batcher<T, A> {
    /// `interval`: the minimum time between the beginnings of two requests.
    pub(super) fn new(interval: Duration) -> Self {
        Self { queue: Mutex::default(), turn: tokio::sync::Mutex::new(Instant::now()), interval }
    }

    /// Writes an item, in its own request or in another's. `write` returns one result for each item, in order.
    pub(super) async fn write<F>(&self, item: T, epoch: Epoch, write: impl FnOnce(Vec<T>) -> F) -> Answer<A>
    where
        F: Future<Output = Vec<Answer<A>>>,
    {
        let (reply, mut answer) = oneshot::channel();
        self.lock().push(Entry { item, epoch, reply });
        let mut next_at = self.turn.lock().await;
        if let Some(answer) = take_answer(&mut answer) {
            return answer;
        }
        if *next_at > Instant::now() {
            sleep_until(*next_at).await;
        }
        // Lets the chains that are ready at the same moment join.
        tokio::task::yield_now().await;
        *next_at = Instant::now() + self.interval;
        let mut batch = std::mem::take(&mut *self.lock());
        batch.retain(|entry| entry.epoch == epoch && !entry.reply.is_closed());
        let (items, replies): (Vec<T>, Vec<_>) = batch.into_iter().map(|entry| (entry.item, entry.reply)).unzip();
        let answers = write(items).await;
        for (reply, answer) in replies.into_iter().zip(answers) {
            // A cancelled waiter needs no answer.
            drop(reply.send(answer));
        }
        take_answer(&mut answer).unwrap_or_else(cancelled)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry<T, A>>> {
        self.queue.lock()
    }
}

/// The answer, if another request contained the item.
fn take_answer<A>(answer: &mut oneshot::Receiver<Answer<A>>) -> Option<Answer<A>> {
    match answer.try_recv() {
        Ok(answer) => Some(answer),
        Err(TryRecvError::Closed) => Some(cancelled()),
        Err(TryRecvError::Empty) => None,
    }
}

fn cancelled<A>() -> Answer<A> {
    Err(Failure::Unknown("its batch was cancelled".to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn queued_writes_share_a_request_and_have_their_own_results() {
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
    async fn a_waiter_of_a_cancelled_request_fails_as_unknown() {
        let batch = Arc::new(Batcher::<&str, ()>::new(Duration::ZERO));
        let hanging = {
            let batch = Arc::clone(&batch);
            tokio::spawn(async move { batch.write("a", Epoch(1), |_| std::future::pending()).await })
        };
        while batch.turn.try_lock().is_ok() || !batch.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let (reply, mut answer) = oneshot::channel::<Answer<()>>();
        drop(reply);
        assert!(matches!(take_answer(&mut answer), Some(Err(Failure::Unknown(_)))));
        hanging.abort();
        assert!(hanging.await.unwrap_err().is_cancelled());
        let after = batch.write("b", Epoch(1), |all| async move { all.into_iter().map(|_| Ok(())).collect() });
        assert_eq!(after.await, Ok(()), "and the next one has its turn");
    }
}
