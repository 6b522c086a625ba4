//! The order of requests: among those of a tenant on a pool, and among the first ones of all tenants.
//!
//! Both orders end with the id, so no two requests are equal and the result does not depend on the order of the input.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use model::ledger::ScopeKey;
use model::quota::Share;

use super::headroom::{Entitlement, Headroom};
use super::request::Request;

/// The rank of a request among those of its tenant on its pool. The least is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SiblingRank<'a> {
    is_no_transfer: bool,
    priority: Reverse<i32>,
    asked_at_ms: i64,
    id: &'a str,
}

impl<'a> SiblingRank<'a> {
    fn new(request: &'a Request) -> Self {
        Self {
            is_no_transfer: request.replaces.is_none(),
            priority: Reverse(request.priority),
            asked_at_ms: request.asked_at_ms,
            id: request.id(),
        }
    }
}

/// The rank of a request among the first ones of all tenants on all pools. The least is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HeadRank<'a> {
    exceeds_guarantee: bool,
    share: Share,
    borrows: bool,
    portion: Share,
    priority: Reverse<i32>,
    asked_at_ms: i64,
    id: &'a str,
}

/// The first request of a tenant on a pool.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub request: &'a Request,
    pub entitlement: Entitlement,
    /// The index of its queue.
    queue: usize,
}

impl<'a> Head<'a> {
    fn rank(&self) -> HeadRank<'a> {
        HeadRank {
            exceeds_guarantee: !self.entitlement.is_guaranteed,
            share: self.entitlement.share,
            borrows: self.entitlement.borrows,
            portion: self.entitlement.portion,
            priority: Reverse(self.request.priority),
            asked_at_ms: self.request.asked_at_ms,
            id: self.request.id(),
        }
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_> {}

/// The requests of a tenant on a pool that are behind the head.
#[derive(Debug, Default)]
struct Queue<'a> {
    /// The first one last.
    behind: Vec<&'a Request>,
    /// Those that exceeded the guarantee, the first one first. What the tenant holds only grows, so they still do.
    beyond: Vec<&'a Request>,
    /// Whether only requests that exceed the guarantee are left.
    is_beyond: bool,
}

impl<'a> Queue<'a> {
    /// The next head with its entitlement: the first request within the guarantee, else the first one.
    fn next(&mut self, headroom: &Headroom) -> Option<(&'a Request, Entitlement)> {
        loop {
            while let Some(request) = self.behind.pop() {
                let entitlement = headroom.entitlement(request);
                if entitlement.is_guaranteed || self.is_beyond {
                    return Some((request, entitlement));
                }
                self.beyond.push(request);
            }
            if self.beyond.is_empty() {
                return None;
            }
            self.behind = std::mem::take(&mut self.beyond);
            self.behind.reverse();
            self.is_beyond = true;
        }
    }
}

/// The queues of all tenants on all pools.
///
/// A request within the guarantee is not hidden behind one of its tenant that exceeds it. Otherwise another tenant
/// would borrow, in its turn before both, what was reclaimed for the guarantee, and lose it again, for ever.
///
/// The rank of a head depends on what its tenant holds on its pool, which only grants to that tenant change. So a heap
/// holds the head of each queue with its rank, and the next one is ranked when the head has been granted or set aside.
#[derive(Debug)]
pub(super) struct Queues<'a> {
    queues: Vec<Queue<'a>>,
    heads: BinaryHeap<Reverse<Head<'a>>>,
}

impl<'a> Queues<'a> {
    pub fn new(requests: &[&'a Request], headroom: &Headroom) -> Self {
        let mut by_tenant: HashMap<&ScopeKey, Vec<&Request>> = HashMap::new();
        let tenant = |request: &&'a Request| request.reservation.scopes.tenant();
        for of_tenant in requests.chunk_by(|one, other| tenant(one) == tenant(other)) {
            by_tenant.entry(tenant(&of_tenant[0])).or_default().extend(of_tenant);
        }
        let queue = |(tenant, mut behind): (&ScopeKey, Vec<&'a Request>)| {
            behind.sort_unstable_by_key(|request| Reverse(SiblingRank::new(request)));
            // Without a guarantee all of them exceed it.
            Queue { behind, is_beyond: !headroom.has_guarantee(tenant), ..Queue::default() }
        };
        let queues: Vec<Queue<'a>> = by_tenant.into_iter().map(queue).collect();
        let mut all = Self { heads: BinaryHeap::with_capacity(queues.len()), queues };
        for queue in 0..all.queues.len() {
            all.advance(queue, headroom);
        }
        all
    }

    /// The first one of all heads. Its queue continues with [`Self::follow`].
    pub fn pop(&mut self) -> Option<Head<'a>> {
        self.heads.pop().map(|Reverse(head)| head)
    }

    /// Ranks the request behind this head, after it was granted or set aside.
    pub fn follow(&mut self, head: &Head<'a>, headroom: &Headroom) {
        self.advance(head.queue, headroom);
    }

    fn advance(&mut self, queue: usize, headroom: &Headroom) {
        if let Some((request, entitlement)) = self.queues.get_mut(queue).and_then(|queue| queue.next(headroom)) {
            self.heads.push(Reverse(Head { request, entitlement, queue }));
        }
    }
}
