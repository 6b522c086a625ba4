//! Group commit of the calls of holders: the queues, one for each pool with a transaction under way.
//!
//! A call for a pool without a transaction is sent at once. Calls that arrive during one are queued, and the next transaction
//! takes up to [`MAX_BATCHED_CALLS`] of them, in the order of their arrival: the pool's row, which all of them change, is
//! locked once for all. Pools do not wait for each other here.
//!
//! A call is in its queue or in a batch. Until a batch takes it, its caller may withdraw it, and nothing has happened;
//! afterwards the transaction decides, and a caller that is gone finds its outcome under its key. Every call that was
//! pushed is answered, withdrawn, or released by [`HolderQueues::abandon`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use model::alteration::RequestId;
use model::cause::Cause;
use model::ledger::{Decided, ScopeKey, ScopedChange};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};

use crate::caller::Caller;
use crate::error::Error;
use crate::ledger_limits::MAX_BATCH_SCOPES;

/// The maximum number of holders' calls in a transaction.
pub const MAX_BATCHED_CALLS: usize = 50;
/// The maximum number of holders' calls that wait for the transactions of a pool.
pub const MAX_QUEUED_CALLS: usize = 1_000;

/// The maximum number of calls of failed batches that run at the same time, each in a transaction of its own: if the row of
/// a pool stays locked, they must not take the connections of all.
const MAX_ALONE: usize = 2;

/// What the audit has of a change.
#[derive(Debug, Clone)]
pub struct HolderStatement {
    /// The same with every retry.
    pub id: RequestId,
    pub caller: Caller,
    pub statement: String,
}

/// A call of a holder: a change of one reservation, and what the audit has of it.
#[derive(Debug, Clone)]
pub(crate) struct HolderCall {
    pub(crate) change: ScopedChange,
    pub(crate) statement: Option<HolderStatement>,
    /// The deadline of the caller; `None` if the call may take as long as a transaction.
    pub(crate) until: Option<Instant>,
}

/// What became of a queued call.
#[derive(Debug)]
pub(crate) enum Answer {
    Decided(Decided),
    Failed(Error),
    /// Its batch has failed, maybe because of another call: the call is to be run alone. The cause is set if the batch may
    /// have been committed.
    Alone {
        doubt: Option<Cause>,
    },
}

/// A call with the channel of its answer.
#[derive(Debug)]
pub(crate) struct Queued {
    number: u64,
    pub(crate) call: HolderCall,
    reply: oneshot::Sender<Answer>,
}

#[derive(Debug)]
pub(crate) struct HolderQueues {
    state: Mutex<State>,
    alone: Semaphore,
}

impl Default for HolderQueues {
    fn default() -> Self {
        Self { state: Mutex::default(), alone: Semaphore::new(MAX_ALONE) }
    }
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// The pools with a task that runs their transactions.
    pools: BTreeMap<ScopeKey, VecDeque<Queued>>,
}

/// The place of a call in a queue; dropping it withdraws the call.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    queues: &'a HolderQueues,
    pool: ScopeKey,
    number: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Queued {
    pub(crate) fn new(number: u64, call: HolderCall) -> (Self, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        (Self { number, call, reply }, answer)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.reply.is_closed()
    }

    pub(crate) fn answer(self, answer: Answer) {
        // A cancelled caller needs no answer.
        drop(self.reply.send(answer));
    }
}

impl HolderQueues {
    /// Adds a call to the queue of its pool. If the flag is set, no task runs the pool's transactions, and the caller must
    /// start one. An error if the queue is full.
    pub(crate) fn push(&self, call: HolderCall) -> Result<(Ticket<'_>, bool), Error> {
        let pool = call.change.scopes.pool().clone();
        let mut state = self.state.lock();
        let is_first = !state.pools.contains_key(&pool);
        state.last += 1;
        let number = state.last;
        let queue = state.pools.entry(pool.clone()).or_default();
        if queue.len() >= MAX_QUEUED_CALLS {
            let full = format!("{MAX_QUEUED_CALLS} calls wait for {pool}");
            return Err(Error::Unavailable(full.into()));
        }
        let (queued, answer) = Queued::new(number, call);
        queue.push_back(queued);
        drop(state);
        Ok((Ticket { queues: self, pool, number, answer }, is_first))
    }

    /// The calls of the pool's next transaction; `None` if there is none, which ends the pool's task.
    pub(crate) fn next(&self, pool: &ScopeKey) -> Option<Vec<Queued>> {
        let mut state = self.state.lock();
        let batch = state.pools.get_mut(pool).map(taken).filter(|batch| !batch.is_empty());
        if batch.is_none() {
            state.pools.remove(pool);
        }
        batch
    }

    /// Releases the calls of a pool whose task has failed.
    pub(crate) fn abandon(&self, pool: &ScopeKey) {
        let abandoned = self.state.lock().pools.remove(pool);
        drop(abandoned);
    }

    /// Waits until a call of a failed batch may run; fails after `patience`.
    pub(crate) async fn alone(&self, patience: Duration) -> Result<SemaphorePermit<'_>, Error> {
        match timeout(patience, self.alone.acquire()).await {
            Ok(permit) => permit.map_err(|error| Error::Broken(error.into())),
            Err(_) => Err(Error::Unavailable("other calls of a failed batch have not ended in time".into())),
        }
    }

    /// The number of calls that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().pools.values().map(VecDeque::len).sum()
    }

    /// Removes a call that no batch has taken; false if one has.
    fn withdraw(&self, pool: &ScopeKey, number: u64) -> bool {
        let mut state = self.state.lock();
        let Some(queue) = state.pools.get_mut(pool) else { return false };
        let at = queue.iter().position(|queued| queued.number == number);
        at.and_then(|at| queue.remove(at)).is_some()
    }
}

/// Takes the first calls of a queue that fit into a transaction, at least one.
fn taken(queue: &mut VecDeque<Queued>) -> Vec<Queued> {
    let (mut batch, mut scopes) = (Vec::new(), BTreeSet::new());
    while let Some(first) = queue.front() {
        let new: Vec<&ScopeKey> =
            first.call.change.scopes.in_lock_order().filter(|key| !scopes.contains(*key)).collect();
        let is_full = batch.len() == MAX_BATCHED_CALLS || scopes.len() + new.len() > MAX_BATCH_SCOPES;
        if is_full && !batch.is_empty() {
            break;
        }
        scopes.extend(new.into_iter().cloned());
        batch.extend(queue.pop_front());
    }
    batch
}

impl Ticket<'_> {
    pub(crate) const fn pool(&self) -> &ScopeKey {
        &self.pool
    }

    /// The answer. A call that no batch has taken within `patience` fails; nothing has happened then.
    pub(crate) async fn answer(mut self, patience: Duration) -> Answer {
        let answer = match timeout(patience, &mut self.answer).await {
            Ok(answer) => answer,
            Err(_) if self.queues.withdraw(&self.pool, self.number) => {
                let waits = format!("earlier calls for {} have not ended in time", self.pool);
                return Answer::Failed(Error::Unavailable(waits.into()));
            }
            // The deadline of its transaction bounds this.
            Err(_) => (&mut self.answer).await,
        };
        // Without an answer, the task of the pool has failed, maybe after COMMIT.
        answer.unwrap_or_else(|_| Answer::Alone { doubt: Some("the transaction failed unexpectedly".into()) })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.queues.withdraw(&self.pool, self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::Arc;

    use model::ledger::{Change, Scopes};
    use model::name::{PoolName, TenantName};

    use super::*;

    fn call(number: usize, pool: &str, user: &str) -> HolderCall {
        let (tenant, pool) = (TenantName::new("t_a").unwrap(), PoolName::new(pool).unwrap());
        let scopes = Scopes::new(&tenant, &pool, Some(user), None);
        let id: Arc<str> = number.to_string().into();
        HolderCall { change: ScopedChange { scopes, change: Change::Cancel { id } }, statement: None, until: None }
    }

    fn ids(batch: &[Queued]) -> Vec<usize> {
        batch.iter().map(|queued| queued.call.change.change.id().parse().unwrap()).collect()
    }

    #[test]
    fn a_batch_has_the_oldest_calls_within_both_limits() {
        let queues = HolderQueues::default();
        let tickets: Vec<_> = (0..60).map(|at| queues.push(call(at, "rp_1", "alice")).unwrap()).collect();
        assert_eq!(tickets.iter().filter(|(_, is_first)| *is_first).count(), 1, "one task for the pool");
        let pool = tickets[0].0.pool().clone();
        assert_eq!(ids(&queues.next(&pool).unwrap()), (0..MAX_BATCHED_CALLS).collect::<Vec<_>>());
        assert_eq!(ids(&queues.next(&pool).unwrap()), (MAX_BATCHED_CALLS..60).collect::<Vec<_>>());
        assert!(queues.next(&pool).is_none());
        let another = queues.push(call(0, "rp_1", "alice")).unwrap();
        assert!(another.1, "the task has ended");
    }

    #[test]
    fn a_batch_locks_no_more_scopes_than_a_transaction_may() {
        let call = |number| {
            let mut of_one = call(number, "rp_1", &format!("user {number}"));
            let (tenant, pool) = (TenantName::new(format!("t_{number}")).unwrap(), PoolName::new("rp_1").unwrap());
            of_one.change.scopes = Scopes::new(&tenant, &pool, Some(&format!("user {number}")), None);
            of_one
        };
        let queues = HolderQueues::default();
        let tickets: Vec<_> = (0..40).map(|at| queues.push(call(at)).unwrap().0).collect();
        // Each call has a user and a tenant of its own, and all have one pool.
        let most = (MAX_BATCH_SCOPES - 1) / 2;
        assert_eq!(queues.next(tickets[0].pool()).unwrap().len(), most);
        assert_eq!(queues.next(tickets[0].pool()).unwrap().len(), 40 - most);
    }

    #[test]
    fn pools_have_queues_of_their_own() {
        let queues = HolderQueues::default();
        let one = queues.push(call(1, "rp_1", "alice")).unwrap();
        let other = queues.push(call(2, "rp_2", "alice")).unwrap();
        assert!(one.1 && other.1);
        assert_eq!(ids(&queues.next(other.0.pool()).unwrap()), [2]);
        assert_eq!(queues.waiting(), 1);
    }

    #[test]
    fn a_full_queue_refuses_a_call_and_a_cancelled_one_makes_space() {
        let queues = HolderQueues::default();
        let mut tickets: Vec<_> =
            (0..MAX_QUEUED_CALLS).map(|at| queues.push(call(at, "rp_1", "alice")).unwrap().0).collect();
        let refused = queues.push(call(0, "rp_1", "alice")).unwrap_err();
        assert!(matches!(&refused, Error::Unavailable(reason) if reason.to_string().contains("rp_1")), "{refused}");
        drop(tickets.remove(1));
        tickets.push(queues.push(call(7, "rp_1", "alice")).unwrap().0);
        assert_eq!(ids(&queues.next(tickets[0].pool()).unwrap())[..2], [0, 2]);
    }

    #[tokio::test]
    async fn a_call_that_waits_too_long_is_withdrawn_unless_it_was_sent() {
        let queues = HolderQueues::default();
        let (sent, _) = queues.push(call(1, "rp_1", "alice")).unwrap();
        let batch = queues.next(sent.pool()).unwrap();
        let (late, _) = queues.push(call(2, "rp_1", "alice")).unwrap();
        let patience = Duration::from_millis(20);
        assert!(matches!(late.answer(patience).await, Answer::Failed(Error::Unavailable(_))));
        assert_eq!(queues.waiting(), 0);
        let answered = async {
            tokio::time::sleep(2 * patience).await;
            for queued in batch {
                queued.answer(Answer::Alone { doubt: None });
            }
        };
        assert!(matches!(tokio::join!(sent.answer(patience), answered).0, Answer::Alone { doubt: None }));
    }

    #[tokio::test]
    async fn calls_of_a_failed_task_are_released() {
        let queues = HolderQueues::default();
        let (ticket, _) = queues.push(call(1, "rp_1", "alice")).unwrap();
        queues.abandon(&ticket.pool().clone());
        assert!(matches!(ticket.answer(Duration::from_secs(5)).await, Answer::Alone { doubt: Some(_) }));
    }
}
