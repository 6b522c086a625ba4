//! Recording uids: one transaction for all that wait when it begins.
//!
//! Each transaction of a master holds its row and waits for the disk, so a thousand creates that recorded their uid one by
//! one would wait for each other there and not at the orchestrator. There wait at most as many as a stage has chains. What one
//! transaction answers about one engine says nothing about another; that it fails is the same for all in it. Who is broken
//! off while he waits is not recorded, and adopted by the next tick.

use std::sync::{Mutex, MutexGuard, PoisonError};

use model::number::Epoch;
use model::observation::{MadeEngine, Recorded};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::Failure;

type Answer = Result<Recorded, Failure>;

/// Those that wait.
#[derive(Debug, Default)]
pub(super) struct Uids {
    waiting: Mutex<Vec<Entry>>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Entry {
    made: MadeEngine,
    epoch: Epoch,
    told: oneshot::Sender<Answer>,
}

impl Uids {
    /// Records an engine's uid, in a transaction of its own or in another's.
    pub(super) async fn record<F>(
        &self,
        made: MadeEngine,
        epoch: Epoch,
        write: impl FnOnce(Epoch, Vec<MadeEngine>) -> F,
    ) -> Answer
    where
        F: Future<Output = Answer>,
    {
        let (told, mut answer) = oneshot::channel();
        self.lock().push(Entry { made, epoch, told });
        let _turn = self.turn.lock().await;
        match answer.try_recv() {
            Ok(answer) => return answer,
            Err(TryRecvError::Closed) => return Err(Failure::Unknown("what recorded it was broken off".to_owned())),
            Err(TryRecvError::Empty) => {}
        }
        let mut together = std::mem::take(&mut *self.lock());
        together.retain(|it| it.epoch == epoch && !it.told.is_closed());
        let answer = write(epoch, together.iter().map(|it| it.made.clone()).collect()).await;
        for entry in together {
            // Who has gone meanwhile needs no answer.
            drop(entry.told.send(answer.clone()));
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use model::EngineName;
    use tokio::sync::Semaphore;

    use super::*;

    fn made(name: &str) -> MadeEngine {
        MadeEngine { name: EngineName::new(name).unwrap(), uid: format!("uid-of-{name}"), config: String::new() }
    }

    #[tokio::test]
    async fn what_waits_while_one_is_recorded_is_recorded_together_and_each_has_an_answer() {
        let (uids, gate) = (Arc::new(Uids::default()), Arc::new(Semaphore::new(0)));
        let written: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
        let record = |name: &'static str| {
            let (uids, gate, written) = (Arc::clone(&uids), Arc::clone(&gate), Arc::clone(&written));
            tokio::spawn(async move {
                let write = |_, made: Vec<MadeEngine>| async move {
                    gate.acquire().await.unwrap().forget();
                    written.lock().unwrap().push(made.iter().map(|it| it.name.to_string()).collect());
                    let unknown = made.into_iter().map(|it| it.name).filter(|it| it.as_str() == "c").collect();
                    Ok(Recorded { unknown, ..Recorded::default() })
                };
                uids.record(made(name), Epoch(1), write).await
            })
        };
        let first = record("a");
        while uids.turn.try_lock().is_ok() || !uids.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let others = [record("b"), record("c"), record("d")];
        while uids.lock().len() < 3 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        assert_eq!(first.await.unwrap().unwrap().unknown, []);
        for other in others {
            assert_eq!(other.await.unwrap().unwrap().unknown, [EngineName::new("c").unwrap()]);
        }
        let written = written.lock().unwrap();
        assert_eq!((written.len(), written[0].as_slice()), (2, &["a".to_owned()][..]));
        assert_eq!(written[1].len(), 3, "{written:?}");
    }
}
